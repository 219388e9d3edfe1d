"""Which API an administrator's verb works with, and waiting for it."""

import argparse
from pathlib import Path

import pytest

from podgate.admin.reaching import add_api, connection_to, kubeconfig_of, let_in, listed
from podgate.joints import SourceError
from podgate.kubeapi.access import Access
from podgate.kubeapi.answers import Refusal
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.discovery import VERSION
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.snapshot import Watch
from tests.support.asynchronous import in_loop
from tests.support.fake_apiserver import FakeApiServer
from tests.support.kubeconfigs import kubeconfig
from tests.support.virtual_time import in_virtual_time_over_sockets, now


def asked(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_api(parser)
    return parser.parse_args(words)


@pytest.mark.parametrize(
    ("words", "environ", "expected"),
    [
        (["--kubeconfig", "/a"], {"KUBECONFIG": "/b"}, "/a"),
        ([], {"KUBECONFIG": "/b"}, "/b"),
        (["--context", "c"], {"KUBECONFIG": "/b"}, "/b"),
        ([], {"KUBECONFIG": ""}, None),
        ([], {}, None),
    ],
)
def test_the_flag_comes_before_the_environment(words: list[str], environ: dict[str, str], expected: str | None) -> None:
    assert kubeconfig_of(asked(*words), environ) == expected


@pytest.mark.parametrize(
    ("words", "environ", "message"),
    [
        ([], {"KUBECONFIG": "/a:/b"}, "names several files"),
        (["--kubeconfig", ""], {}, "--kubeconfig is empty"),
        (["--context", "c"], {}, "give --kubeconfig too"),
        ([], {"PODGATE_SOURCE": "/x"}, "no API is known here"),
        (["--kubeconfig", "/nonexistent"], {}, "/nonexistent"),
    ],
)
def test_what_leads_to_no_api(words: list[str], environ: dict[str, str], message: str) -> None:
    with pytest.raises(SourceError, match=message):
        connection_to(asked(*words), environ, print)


def test_an_api_that_no_flag_names_is_said(tmp_path: Path) -> None:
    path, told = kubeconfig(tmp_path, "http://127.0.0.1:1"), list[str]()
    connection_to(asked("--context", "c"), {"KUBECONFIG": path}, told.append)
    assert told == [f"the API is that of $KUBECONFIG: {path} c"]
    connection_to(asked("--kubeconfig", path), {"KUBECONFIG": "/other"}, told.append)
    assert len(told) == 1


@in_loop
async def test_a_list_of_many_pages_is_one_list(tmp_path: Path) -> None:
    async with FakeApiServer().serving() as server, Connection(Access(server.url)) as connection:
        for number in range(1001):
            server.put("configmaps", {"metadata": {"name": f"c{number}"}})
        found = await listed(connection.send, Watch(CONFIG_MAP))
        assert (len(found) if isinstance(found, list) else found) == 1001
        server.forbidden = {("list", "configmaps")}
        assert isinstance(await listed(connection.send, Watch(CONFIG_MAP)), Refusal)


@in_virtual_time_over_sockets
async def test_waiting_ends_with_the_time() -> None:
    async with FakeApiServer().serving() as server, Connection(Access(server.url)) as connection:
        server.tokens = {"another"}
        told: list[str] = []
        began = now()
        assert "401 Unauthorized" in await let_in(connection.send, VERSION, told.append, 10, 3)
        assert (now() - began, len(told)) == (9, 1)
        server.tokens = None
        assert not await let_in(connection.send, VERSION, told.append, 10, 3)
