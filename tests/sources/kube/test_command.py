"""``podgate … --kubeconfig``: the command line over an API, as a process of its own."""

import asyncio
import os
import sys
from pathlib import Path

from tests.support.asynchronous import in_loop
from tests.support.certificates import Certificates
from tests.support.fake_apiserver import FakeApiServer


async def podgate(*words: str) -> tuple[int, str, str]:
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).with_name("podgate")),
        *words,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={name: value for name, value in os.environ.items() if name != "PODGATE_SOURCE"},
    )
    out, err = await process.communicate()
    return process.returncode or 0, out.decode(), err.decode()


def kubeconfig(folder: Path, url: str, more: str = "") -> str:
    path = folder / "kubeconfig"
    path.write_text(
        "current-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        f"clusters: [{{name: c, cluster: {{server: '{url}', certificate-authority: pki/ca.crt{more}}}}}]\n"
        "users: [{name: u, user: {token: hush}}]\n"
    )
    return str(path)


@in_loop
async def test_a_configmap_of_the_api_decides(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "pki")
    async with FakeApiServer().serving(certificates.server_context()) as server:
        server.tokens = {"hush"}
        config = {"config": "nonMasqueradeCIDRs: [198.51.100.0/24]\n"}
        metadata = {"name": "ip-masq-agent", "namespace": "kube-system"}
        server.objects.put("configmaps", {"metadata": metadata, "data": config})
        words = ("masquerade", "explain", "198.51.100.1", "203.0.113.1", "--node-name", "n1")
        code, out, err = await podgate(*words, "--kubeconfig", kubeconfig(tmp_path, server.url))
        assert (code, err) == (0, "")
        assert [line.split()[1].strip(",") for line in out.splitlines()] == ["keep", "masquerade"]
        assert {path for _, path, _ in server.requests} >= {"/api/v1/namespaces/kube-system/configmaps"}


@in_loop
async def test_a_kubeconfig_that_is_refused_is_named_with_its_line(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://127.0.0.1:1", ", insecure-skip-tls-verify: true")
    code, out, err = await podgate("masquerade", "render", "--kubeconfig", path)
    assert (code, out) == (2, "")
    assert f"{path}:3: clusters[0].cluster.insecure-skip-tls-verify: " in err
    assert "hush" not in err
