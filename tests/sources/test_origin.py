"""Where objects come from: the order of what applies, and what each gives."""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from podgate.joints import SourceError
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.snapshot import Absent, Snapshot, Watch
from podgate.sources import origin as module
from podgate.sources.origin import Api, Manifests, Nowhere, Origin, follow, load, looked_at, origin, unasked
from tests.support.fake_apiserver import FakeApiServer

WATCHES = (Watch(CONFIG_MAP),)
CONFIG = ObjectRef("ConfigMap", "a", "default")
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.mark.parametrize(
    ("source", "kubeconfig", "environ", "expected"),
    [
        ("/s", "/k", {"PODGATE_SOURCE": "/e", **IN_A_POD}, Manifests("/s")),
        (None, "/k", {"PODGATE_SOURCE": "/e", **IN_A_POD}, Api("/k", "c")),
        (None, None, {"PODGATE_SOURCE": "/e", **IN_A_POD}, Manifests("/e")),
        (None, None, IN_A_POD, Api()),
        (None, None, {}, Nowhere()),
        (None, None, {"KUBECONFIG": "/k"}, Nowhere()),
        (None, None, {"KUBECONFIG": "/k", **IN_A_POD}, Api()),
    ],
)
def test_the_first_that_applies(  # noqa: PLR0917
    source: str | None, kubeconfig: str | None, environ: Mapping[str, str], expected: Origin,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(module, "_ACCOUNT", str(tmp_path / "token"))
    assert origin(source, kubeconfig, "c", environ) == expected


@pytest.mark.parametrize(
    ("source", "kubeconfig", "environ", "expected", "said"),
    [
        ("/s", None, {"KUBECONFIG": "/k:/l"}, Manifests("/s"), ""),
        (None, "/o", {"KUBECONFIG": "/k"}, Api("/o", "c"), ""),
        (None, None, {"PODGATE_SOURCE": "/e", "KUBECONFIG": "/k"}, Manifests("/e"), ""),
        (None, None, {"KUBECONFIG": "/k", **IN_A_POD}, Api("/k", "c"), "from $KUBECONFIG: /k c"),
        (None, None, IN_A_POD, Api(), "from the API of this Pod's cluster, by its own account"),
        (None, None, {"KUBECONFIG": ""}, Nowhere(), ""),
    ],
)
def test_a_verb_that_only_looks_follows_the_kubeconfig_of_the_environment(  # noqa: PLR0917
    source: str | None, kubeconfig: str | None, environ: Mapping[str, str], expected: Origin, said: str,
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path,
) -> None:  # fmt: skip
    (tmp_path / "token").write_text("t")
    monkeypatch.setattr(module, "_ACCOUNT", str(tmp_path / "token"))
    found = looked_at(source, kubeconfig, "c", environ)
    assert found == expected
    assert unasked(found, source, kubeconfig) == (said and f"objects come {said}")


def test_files_of_kubeconfig_that_would_have_to_be_merged_are_refused() -> None:
    with pytest.raises(SourceError, match="names several files"):
        looked_at(None, None, None, {"KUBECONFIG": "/k:/l"})


def test_a_pod_without_an_account_has_no_api(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_ACCOUNT", str(tmp_path / "token"))
    assert origin(None, None, None, IN_A_POD) == Nowhere()


def test_how_they_print() -> None:
    found = (Manifests("/s"), Api("/k", "c"), Api("/k"), Api(), Nowhere())
    assert [str(each) for each in found] == ["/s", "/k c", "/k", "in-cluster", "none"]


def test_manifests_and_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n")
    assert list(load(Manifests(str(tmp_path)), WATCHES, {}).snapshot.objects(CONFIG_MAP)) == [CONFIG]
    assert load(Nowhere(), WATCHES, {}).snapshot == Snapshot({"ConfigMap": Absent("no source")})


def kubeconfig(folder: Path, url: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\nusers: [{{name: u, user: {{token: t}}}}]\n"
    )
    return str(path)


async def test_an_api_is_followed(tmp_path: Path) -> None:
    async with FakeApiServer().serving() as server:
        server.tokens = {"t"}
        server.objects.put("configmaps", {"metadata": {"name": "a"}})
        following = follow(Api(kubeconfig(tmp_path, server.url)), WATCHES, {}, lambda _watch, _trouble: None)
        values = following.source.values()
        assert list((await anext(values)).objects(CONFIG_MAP)) == [CONFIG]
        await values.aclose()  # type: ignore[attr-defined]


def test_an_api_that_does_not_answer_is_named_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWERING_SECONDS", 0.3)
    path = kubeconfig(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(SourceError) as caught:
        load(Api(path), WATCHES, {})
    refused = "http://127.0.0.1:1: get the server's version: Connection refused"
    assert str(caught.value) == f"{path}: {refused}: check the server's address, and the network to it"


async def test_an_api_that_does_not_know_the_login_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWERING_SECONDS", 0.3)
    async with FakeApiServer().serving() as server:
        server.tokens = {"another"}
        path = kubeconfig(tmp_path, server.url)
        with pytest.raises(SourceError) as caught:
            await asyncio.to_thread(load, Api(path), WATCHES, {})
    assert str(caught.value).startswith(f"{path}: {server.url} refuses the login: 401 ")


async def test_an_api_that_gives_no_objects_is_waited_for_and_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def only_its_version(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            if b"/version" in await reader.readline():
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            await reader.read()

    monkeypatch.setattr(module, "LISTING_SECONDS", 1.0)
    server = await asyncio.start_server(only_its_version, "127.0.0.1", 0)
    async with server:
        path = kubeconfig(tmp_path, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        with pytest.raises(SourceError) as caught:
            await asyncio.to_thread(load, Api(path), WATCHES, {})
    assert str(caught.value) == f"{path}: no objects in 1 s: it does not answer"


def test_a_kubeconfig_that_is_refused_is_a_source_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r'clusters\[0\]\.cluster\.server: "http://10\.0\.0\.1" is plain HTTP'):
        load(Api(kubeconfig(tmp_path, "http://10.0.0.1")), WATCHES, {})


def test_where_no_api_is_asked_nothing_of_it_is_loaded() -> None:
    program = "import sys; import podgate.verbs; print([n for n in sys.modules if 'kube' in n or 'aiohttp' in n])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
