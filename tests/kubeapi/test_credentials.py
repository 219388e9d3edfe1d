"""Credentials: token files and plugins are read again when they must be, and nothing of them shows."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from podgate.kubeapi.access import Access, AccessError, Exec, InFile, Login
from podgate.kubeapi.connection import Connection
from podgate.kubeapi.credentials import Credentials, in_cluster, load_kubeconfig, own_namespace
from podgate.kubeapi.requests import list_page
from podgate.model.kinds.config import CONFIG_MAP
from podgate.model.secret import Secret
from podgate.model.snapshot import Watch
from tests.support.asynchronous import in_loop
from tests.support.certificates import Certificates
from tests.support.fake_apiserver import FakeApiServer

V1 = "client.authentication.k8s.io/v1"
SERVER = "https://127.0.0.1:6443"


def token_of(login: Login) -> Credentials:
    return Credentials(Access(SERVER, login=login, origin="kubeconfig"))


@in_loop
async def test_a_token_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(" one \n")
    credentials = token_of(Login(token=InFile(str(file))))
    assert await credentials.headers() == {"Authorization": "Bearer one"}
    file.write_text("two")
    assert await credentials.headers() == {"Authorization": "Bearer two"}
    file.unlink()
    with pytest.raises(AccessError, match="token: the token cannot be read: No such file"):
        await credentials.headers()


@in_loop
async def test_nobody_logs_in_without_anything() -> None:
    assert await token_of(Login()).headers() == {}


@pytest.mark.parametrize("token", [b"a\r\nX: y", b"a b", b"\xff\xfe"])
@in_loop
async def test_a_token_that_is_none_is_not_sent_and_not_shown(token: bytes) -> None:
    with pytest.raises(AccessError) as caught:
        await token_of(Login(token=Secret(token))).headers()
    assert str(caught.value) == "kubeconfig: the token holds characters that no token has"


def plugin(folder: Path, *answers: dict[str, Any], code: int = 0, says: str = "") -> Path:
    """Make a program that answers one after another, and keeps what it was told."""
    for number, answer in enumerate(answers):
        (folder / f"answer{number}").write_text(json.dumps(answer))
    path = folder / "login"
    path.write_text(
        f"""#!/bin/sh
cd {folder}
n=$(cat count 2>/dev/null || echo 0); echo $((n + 1)) > count
echo "$KUBERNETES_EXEC_INFO" > info; echo "$PROFILE $*" > told
[ -z "{says}" ] || echo "{says}" >&2
cat answer$n 2>/dev/null || cat answer{len(answers) - 1}
exit {code}
"""
    )
    path.chmod(path.stat().st_mode | stat.S_IEXEC)
    return path


def credential(token: str = "", ends: timedelta | None = None, **status: Any) -> dict[str, Any]:
    if token:
        status["token"] = token
    if ends is not None:
        status["expirationTimestamp"] = (datetime.now(UTC) + ends).isoformat().replace("+00:00", "Z")
    return {"kind": "ExecCredential", "apiVersion": V1, "status": status}


def by_plugin(path: Path, **fields: Any) -> Credentials:
    return token_of(Login(program=Exec(V1, str(path), **fields)))


@in_loop
async def test_a_plugin_is_asked_once_until_its_answer_ends(tmp_path: Path) -> None:
    path = plugin(tmp_path, credential("one", timedelta(seconds=5)), credential("two", timedelta(hours=1)))
    credentials = by_plugin(path, arguments=("get", "token"), environment=(("PROFILE", "prod"),))
    assert await credentials.headers() == {"Authorization": "Bearer one"}
    for _ in range(3):
        # Five seconds are too few to rely on.
        assert await credentials.headers() == {"Authorization": "Bearer two"}
    assert (tmp_path / "count").read_text() == "2\n"
    assert (tmp_path / "told").read_text() == "prod get token\n"
    info = json.loads((tmp_path / "info").read_text())
    assert info == {"apiVersion": V1, "kind": "ExecCredential", "spec": {"interactive": False}}


@in_loop
async def test_a_plugin_is_told_the_cluster_where_it_wants_to(tmp_path: Path) -> None:
    path = plugin(tmp_path, credential("one"))
    program = Exec(V1, str(path), cluster_info=True)
    await Credentials(Access(SERVER, Secret(b"PEM"), "name", login=Login(program=program))).headers()
    cluster = json.loads((tmp_path / "info").read_text())["spec"]["cluster"]
    assert cluster == {"server": SERVER, "tls-server-name": "name", "certificate-authority-data": "UEVN"}


@in_loop
async def test_a_server_that_takes_it_no_longer_has_it_asked_again(tmp_path: Path) -> None:
    path = plugin(tmp_path, credential("one"), credential("two"))
    async with FakeApiServer().serving() as server:
        server.tokens = {"two"}
        access = Access(server.url, login=Login(program=Exec(V1, str(path))))
        async with Connection(access) as connection:
            assert (await connection.send(list_page(Watch(CONFIG_MAP)))).refused is None
        assert (tmp_path / "count").read_text() == "2\n"


@in_loop
async def test_a_plugin_may_give_a_certificate(tmp_path: Path, certificates: Certificates) -> None:
    pair: dict[str, Any] = {
        "clientCertificateData": certificates.read("client.crt").decode(),
        "clientKeyData": certificates.read("client.key").decode(),
    }
    path = plugin(tmp_path, credential(**pair))
    async with FakeApiServer().serving(certificates.server_context()) as server:
        login = Login(program=Exec(V1, str(path)))
        async with Connection(Access(server.url, InFile(certificates.path("ca.crt")), login=login)) as connection:
            assert (await connection.send(list_page(Watch(CONFIG_MAP)))).refused is None
        assert len(server.certificates) == 1


BAD_PLUGINS = {
    "fails": ({"code": 3, "says": "log in first"}, "ended with code 3: log in first"),
    "no answer": ({"answers": ()}, "did not answer with an ExecCredential"),
    "another kind": ({"answers": ({"kind": "Pod", "apiVersion": V1, "status": {}},)}, f"answered {V1} Pod"),
    "another version": ({"answers": ({**credential("x"), "apiVersion": "v0"},)}, "answered v0 ExecCredential"),
    "nothing in it": ({"answers": (credential(),)}, "gave neither a token nor a certificate"),
}


@pytest.mark.parametrize(("how", "message"), BAD_PLUGINS.values(), ids=BAD_PLUGINS.keys())
@in_loop
async def test_a_plugin_that_gives_nothing_is_named(tmp_path: Path, how: dict[str, Any], message: str) -> None:
    answers = how.pop("answers", (credential("x"),))
    path = plugin(tmp_path, *answers, **how)
    with pytest.raises(AccessError) as caught:
        await by_plugin(path).headers()
    assert message in str(caught.value)
    assert str(path) in str(caught.value)


@in_loop
async def test_a_plugin_that_is_not_there_says_how_to_get_it() -> None:
    with pytest.raises(AccessError, match="no-such-program is not there: pip install it"):
        await by_plugin(Path("no-such-program"), hint="pip install it").headers()


@in_loop
async def test_what_cannot_be_used_for_tls_is_named(certificates: Certificates) -> None:
    bad = {
        "the certificate authority is not a PEM certificate": Access(SERVER, Secret(b"no"), origin="kubeconfig"),
        "the client certificate and its key cannot be used": Access(
            SERVER,
            login=Login(
                certificate=Secret(certificates.read("client.crt")), key=Secret(certificates.read("server.key"))
            ),
            origin="kubeconfig",
        ),
    }
    for message, access in bad.items():
        with pytest.raises(AccessError, match=f"kubeconfig: {message}"):
            await Credentials(access).tls()


def test_a_pod_finds_its_account(tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert in_cluster(environ, str(tmp_path)) is None
    (tmp_path / "token").write_text("t")
    (tmp_path / "namespace").write_text("net\n")
    assert in_cluster({}, str(tmp_path)) is None
    found = in_cluster(environ, str(tmp_path))
    assert found == Access(
        "https://10.96.0.1:443",
        InFile(str(tmp_path / "ca.crt")),
        namespace="net",
        login=Login(token=InFile(str(tmp_path / "token"))),
        origin=str(tmp_path),
    )
    six = in_cluster({**environ, "KUBERNETES_SERVICE_HOST": "fd00::1"}, str(tmp_path))
    assert six is not None
    assert six.server == "https://[fd00::1]:443"


def test_a_kubeconfig_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(AccessError, match="nothing: the kubeconfig cannot be read: No such file or directory"):
        load_kubeconfig(str(tmp_path / "nothing"))
    (tmp_path / "c").write_text("current-context: a\ncontexts: [{name: a, context: {cluster: a}}]\n"
                                "clusters: [{name: a, cluster: {server: 'https://a'}}]\n")  # fmt: skip
    assert load_kubeconfig(str(tmp_path / "c")).server == "https://a"


def test_our_own_objects_go_to_the_pods_namespace_also_where_a_kubeconfig_leads_to_the_api(tmp_path: Path) -> None:
    access = Access("https://10.0.0.1:6443", namespace="of-the-context")
    assert own_namespace(access, str(tmp_path)) == "of-the-context"
    (tmp_path / "namespace").write_text("kube-system\n")
    assert own_namespace(access, str(tmp_path)) == "kube-system"
