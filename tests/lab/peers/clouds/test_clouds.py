"""The fake clouds do what makes a proxy in front of the real ones go wrong."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from podgate.lab.clouds import ADDRESSES
from podgate.lab.peers.clouds.__main__ import CLOUDS
from podgate.lab.peers.clouds.aws import TOKEN_PATH, Aws
from podgate.lab.peers.clouds.azure import Azure
from podgate.lab.peers.clouds.cloud import Asked, Cloud, Hold, Reply
from podgate.lab.peers.clouds.gce import ACCOUNT, Gce
from podgate.lab.peers.clouds.openstack import OpenStack
from podgate.lab.peers.clouds.serving import CloudServer
from tests.support.metadata_upstream import run

V1 = "/computeMetadata/v1/"
FLAVOR = ("Metadata-Flavor", "Google")


def asks(cloud: Cloud, target: str, *headers: tuple[str, str], method: str = "GET") -> Reply:
    answer = cloud.answer(Asked(method, target, headers))
    assert isinstance(answer, Reply)
    return answer


@pytest.mark.parametrize("target", ["/", V1, f"{V1}instance/zone", "/0.1/meta-data/", "/nothing", "/computeMetadata"])
def test_every_answer_of_google_has_its_flavor_and_forwarding_is_403(target: str) -> None:
    assert FLAVOR in asks(Gce(), target, FLAVOR).headers
    assert asks(Gce(), target, FLAVOR, ("x-forwarded-for", "")).status == 403


def test_google_wants_its_header_on_v1_alone() -> None:
    assert asks(Gce(), f"{V1}instance/zone").status == 403
    assert asks(Gce(), f"{V1}instance/zone", ("X-Google-Metadata-Request", "True")).status == 200
    assert asks(Gce(), "/").status == 200
    assert asks(Gce(), "/computeMetadata/v1beta1/instance/zone").status == 200
    assert asks(Gce(legacy=False), "/computeMetadata/v1beta1/instance/zone").status == 403


def test_a_directory_without_a_slash_is_301_with_the_hosts_name() -> None:
    moved = asks(Gce(), f"{V1}instance?recursive=true", FLAVOR, ("Host", "metadata"))
    assert moved.status == 301
    assert ("Location", f"http://metadata{V1}instance/?recursive=true") in moved.headers


def test_recursion_gives_the_attributes_and_no_token() -> None:
    cloud = Gce()
    text = asks(cloud, f"{V1}instance/?recursive=true", FLAVOR).body.decode()
    assert cloud.secrets["kube-env"] in text
    assert cloud.secrets["token"] not in text
    flat = asks(cloud, f"{V1}instance/?recursive=true&alt=text", FLAVOR).body.decode()
    assert f"attributes/kube-env kube-env: {cloud.secrets['kube-env']}" in flat
    account = json.loads(asks(cloud, f"{V1}instance/service-accounts/default/?recursive=true", FLAVOR).body)
    assert account["email"] == ACCOUNT


@pytest.mark.parametrize("name", sorted(Gce().secrets))
def test_every_secret_of_google_is_somewhere(name: str) -> None:
    cloud = Gce()
    everything = json.dumps(cloud._tree)
    assert everything.count(cloud.secrets[name]) >= 1


@pytest.mark.parametrize(
    ("query", "held"),
    [
        ("wait_for_change=true", Hold()),
        ("wait_for_change=true&timeout_sec=360", Hold(360)),
        ("wait_for_change=true&timeout_sec=0", None),
        ("wait_for_change=true&last_etag=0", None),
        ("wait_for_change=false", None),
    ],
)
def test_a_change_is_waited_for(query: str, held: Hold | None) -> None:
    answer = Gce().answer(Asked("GET", f"{V1}instance/tags?{query}", (FLAVOR,)))
    assert answer == held if held else isinstance(answer, Reply) and answer.status == 200


def test_listings_and_tokens_cannot_be_waited_for() -> None:
    for target in ("instance/", "instance/service-accounts/default/token"):
        assert asks(Gce(), f"{V1}{target}?wait_for_change=true", FLAVOR).status == 400


def test_amazon_wants_a_token_and_its_answer_travels_one_hop() -> None:
    cloud = Aws()
    instance = "/latest/meta-data/instance-id"
    assert asks(cloud, instance).status == 401
    assert asks(Aws(required=False), instance).status == 200
    got = asks(cloud, TOKEN_PATH, ("X-aws-ec2-metadata-token-ttl-seconds", "60"), method="PUT")
    assert (got.status, got.hops) == (200, 1)
    assert asks(cloud, instance, ("X-aws-ec2-metadata-token", got.body.decode())).status == 200
    assert asks(cloud, TOKEN_PATH, method="PUT").status == 400
    assert asks(cloud, TOKEN_PATH, ("X-Forwarded-For", "1"), method="PUT").status == 403


def test_azure_takes_paths_in_any_case_and_wants_its_header_and_version() -> None:
    cloud, header = Azure(), ("Metadata", "true")
    found = asks(cloud, "/METADATA/Instance/compute/osprofile?api-version=1", header)
    assert cloud.secrets["admin-password"].encode() in found.body
    assert asks(cloud, "/metadata/instance?api-version=1").status == 400
    assert asks(cloud, "/metadata/instance", header).status == 400
    wire = asks(cloud, "/machine?comp=goalstate", ("Host", "168.63.129.16"))
    assert cloud.secrets["goal-state"].encode() in wire.body


def test_openstacks_document_holds_the_password_twice() -> None:
    cloud = OpenStack()
    body = asks(cloud, "/openstack/latest/meta_data.json").body.decode()
    assert body.count(cloud.secrets["admin-password"]) == 2


@asynccontextmanager
async def served(cloud: Cloud) -> AsyncIterator[tuple[CloudServer, asyncio.StreamReader, asyncio.StreamWriter]]:
    serving = CloudServer(cloud)
    async with serving.listening([("127.0.0.1", 0)]) as taken:
        reader, writer = await asyncio.open_connection(*taken[0])
        yield serving, reader, writer
        writer.close()


def test_over_sockets_a_change_ends_the_wait_and_is_recorded() -> None:
    async def main() -> None:
        async with served(Gce()) as (serving, reader, writer):
            target = f"{V1}instance/tags?wait_for_change=true"
            writer.write(f"GET {target} HTTP/1.1\r\nHost: x\r\nmetadata-Flavor: Google\r\n\r\n".encode())
            await asyncio.sleep(0.05)
            await serving.put(f"{V1}instance/tags", "changed")
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert await reader.readexactly(7) == b"changed"
            assert serving.asked[0].headers[1] == ("metadata-Flavor", "Google")

    run(main())


def test_as_a_process_it_tells_its_secrets_first_and_then_what_was_asked() -> None:
    async def main() -> None:
        command = (sys.executable, "-m", "podgate.lab.peers.clouds", "gce", "--listen", "127.0.0.1:0")
        started = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
        assert started.stdout is not None
        first = json.loads(await started.stdout.readline())
        reader, writer = await asyncio.open_connection(*first["listening"][0])
        writer.write(b"GET /?x=y HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in await reader.read()
        writer.close()
        assert json.loads(await started.stdout.readline())["target"] == "/?x=y"
        assert first["secrets"].keys() == Gce().secrets.keys()
        started.terminate()
        assert await started.wait() == 0

    run(main())
    assert CLOUDS.keys() == ADDRESSES.keys()
