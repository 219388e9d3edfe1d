"""Other clouds over the running server: session tokens that stay with their Pod, documents without their secrets."""

import socket

import pytest

from podgate.features.metadata.filter import Client, Filter
from podgate.features.metadata.profiles import PROFILES
from podgate.lab.peers.clouds.aws import TOKEN_PATH, Aws
from podgate.lab.peers.clouds.openstack import OpenStack
from tests.support.metadata_upstream import World, answering, cloud_behind, read_answer, run, script_behind

AWS = Filter(profile=PROFILES["aws"], opened=PROFILES["aws"].open)
OPENSTACK = Filter(profile=PROFILES["openstack"], opened=PROFILES["openstack"].open)
TTL = "X-aws-ec2-metadata-token-ttl-seconds: 60"
INSTANCE = "/latest/meta-data/instance-id"


def asked(target: str, *headers: str, method: str = "GET") -> bytes:
    lines = [f"{method} {target} HTTP/1.1", "Host: 169.254.169.254", *headers, "", ""]
    return "\r\n".join(lines).encode()


async def get_token(world: World) -> tuple[str, dict[str, str]]:
    reader, writer = await world.connect()
    writer.write(asked(TOKEN_PATH, TTL, "Content-Length: 0", method="PUT"))
    status, headers, body = await read_answer(reader)
    writer.close()
    assert status == 200
    return body.decode(), headers


async def status_with(world: World, token: str) -> int:
    return await world.status(asked(INSTANCE, f"X-aws-ec2-metadata-token: {token}"))


def test_a_token_opens_what_is_harmless_and_roles_stay_closed() -> None:
    async def main() -> None:
        async with cloud_behind(Aws(), filter_=AWS) as (world, serving):
            token, headers = await get_token(world)
            assert headers["x-aws-ec2-metadata-token-ttl-seconds"] == "60"
            assert headers["connection"] == "close"
            assert await status_with(world, token) == 200
            role = "/latest/meta-data/iam/security-credentials/node-role"
            assert await world.status(asked(role, f"X-aws-ec2-metadata-token: {token}")) == 403
            assert all("x-forwarded-for" not in str(request.headers).lower() for request in serving.asked)

    run(main())


def test_a_token_that_this_process_did_not_give_out_is_401() -> None:
    async def main() -> None:
        cloud = Aws()
        cloud._tokens.add("elsewhere")
        async with cloud_behind(cloud, filter_=AWS) as (world, serving):
            assert await status_with(world, "elsewhere") == 401
            token, _ = await get_token(world)
            both = (f"X-aws-ec2-metadata-token: {token}",) * 2
            assert await world.status(asked(INSTANCE, *both)) in (400, 401)
            assert len(serving.asked) == 1

    run(main())


def test_a_token_is_bound_to_the_pod_that_asked() -> None:
    async def main() -> None:
        async with cloud_behind(Aws(), filter_=AWS) as (world, _):
            token, _ = await get_token(world)
            world.use(Filter(profile=AWS.profile, opened=AWS.opened, clients={"127.0.0.1": Client("ns/other")}))
            assert await status_with(world, token) == 401
            own, _ = await get_token(world)
            assert await status_with(world, own) == 200

    run(main())


@pytest.mark.parametrize("hops", [1, 3])
def test_the_answer_with_a_token_travels_so_many_hops(hops: int) -> None:
    async def main() -> None:
        async with cloud_behind(Aws(), filter_=AWS, token_hops=hops) as (world, _):
            limits: list[int] = []
            real = type(world.proxy).changed

            def noting(*arguments: object) -> object:
                changed = real(*arguments)  # type: ignore[arg-type]
                (client,) = [each for each in world.proxy._clients if each.decision is not None]
                sock: socket.socket = client._transport.get_extra_info("socket")
                limits.append(sock.getsockopt(socket.IPPROTO_IP, socket.IP_TTL))
                return changed

            world.proxy.changed = lambda *rest: noting(world.proxy, *rest)  # type: ignore[method-assign,assignment]
            await get_token(world)
            assert limits == [hops]

    run(main())


def test_the_password_is_taken_out_of_openstacks_document() -> None:
    async def main() -> None:
        cloud = OpenStack()
        async with cloud_behind(cloud, filter_=OPENSTACK) as (world, _):
            reader, writer = await world.connect()
            writer.write(asked("/openstack/latest/meta_data.json", "Accept-Encoding: gzip"))
            status, _, body = await read_answer(reader)
            assert (status, b'"uuid"' in body) == (200, True)
            assert cloud.secrets["admin-password"].encode() not in body
            writer.write(asked("/openstack/latest/network_data.json"))
            assert (await read_answer(reader))[0] == 200
            for name in ("user_data", "password", "vendor_data.json", "vendor_data2.json"):
                writer.write(asked(f"/openstack/latest/{name}"))
                assert (await read_answer(reader))[0] == 403
            writer.close()

    run(main())


@pytest.mark.parametrize(
    "raw",
    [
        b'HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n{"admin_pass',
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nContent-Length: 600000\r\n\r\n" + b" " * 600_000,
    ],
    ids=["no JSON", "compressed", "too long"],
)
def test_a_document_that_cannot_be_looked_through_is_not_passed_on(raw: bytes) -> None:
    async def main() -> None:
        async with script_behind(answering(raw), filter_=OPENSTACK) as world:
            answer = await world.ask(asked("/openstack/latest/meta_data.json"))
            assert answer.startswith(b"HTTP/1.1 502 ")
            assert b"admin_pass" not in answer

    run(main())
