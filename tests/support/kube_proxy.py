"""The real kube-proxy on a node of a service lab, fed by a real API server: what podgate's answers are compared with.

Here: its configuration, the way from the node's namespace to the API server, starting and ending it.
Not here: building it (controlplane.py), objects and packets (the tests).
Invariant: it ends with the body, and with the thread that started it; nothing of it reaches the machine's own network.
"""

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from podgate.lab.kuberelay import Entrance, Relay
from podgate.linux.namespaces import inside_network, open_namespace
from tests.support.cluster import ControlPlane
from tests.support.controlplane import build
from tests.support.netns import NetNamespace
from tests.support.poll import poll

HEALTH: Final = 10256
METRICS: Final = 10249
_WRITTEN: Final = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
_IPS: Final = ("IPv4", "IPv6")

_WORDS: Final = {"all": ("0.0.0.0/0", "::/0")}
"""Words of podgate that 1.36 has none for (KEP-6032)."""

UNTOUCHED: Final = {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"}
"""Connection tracking as it is: its limits cannot be written outside of the first network namespace."""


def configuration(node: str, mode: str, kubeconfig: Path, **more: Any) -> dict[str, Any]:
    """Give a KubeProxyConfiguration; ``more`` are further fields, which win."""
    quick = {"minSyncPeriod": "0.1s", "syncPeriod": "30s"}
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "hostnameOverride": node,
        "mode": mode,
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "healthzBindAddress": f"0.0.0.0:{HEALTH}",
        "metricsBindAddress": f"127.0.0.1:{METRICS}",
        "conntrack": UNTOUCHED,
        **more,
        "nftables": {**quick, **more.get("nftables", {})},
        "iptables": {**quick, **more.get("iptables", {})},
    }


def fields_of(settings: Mapping[str, Any], mode: str) -> dict[str, Any]:
    """Give the fields of a KubeProxyConfiguration that stand for settings."""
    given = dict(settings)
    rules = {"masqueradeAll": given.pop("masquerade_all", False), "masqueradeBit": given.pop("masquerade_bit", 14)}
    local = {
        "bridgeInterface": given.pop("pod_bridge_interface", ""),
        "interfaceNamePrefix": given.pop("pod_interface_name_prefix", ""),
    }
    fields = {
        # Node ports on loopback are an option of their own here (nodeport_addresses: localhost).
        mode: {**rules, **({"localhostNodePorts": False} if mode == "iptables" else {})},
        "detectLocal": local,
        "detectLocalMode": given.pop("detect_local_mode", "ClusterCIDR"),
        "clusterCIDR": given.pop("cluster_cidr", ""),
        "nodePortAddresses": [
            each for word in given.pop("nodeport_addresses", "primary").split(",") for each in _WORDS.get(word, (word,))
        ],
    }
    if "external_ips" in given:
        fields["featureGates"] = {"AllowServiceExternalIPs": given.pop("external_ips")}
    assert given == {}, "say what this option is in kube-proxy's configuration"
    return fields


@contextmanager
def relay(plane: ControlPlane, node: NetNamespace, port: int = 0) -> Iterator[None]:
    """Make the API server's port on loopback, or another one, reachable on the node's loopback, for the body."""
    machine = open_namespace("net", "thread-self")
    entrance = Entrance("127.0.0.1", port or plane.ports.api)
    loop = asyncio.new_event_loop()
    task = loop.create_task(Relay((entrance.address, entrance.port), machine).run(node.descriptor, entrance))

    def serve() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        finally:
            loop.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join()
        os.close(machine)


def real() -> tuple[str, ...]:
    """Give the program: kube-proxy itself."""
    return (str(build() / "kube-proxy"), "--v=2")


def podgate() -> tuple[str, ...]:
    """Give the program: podgate under the old name, with a /var/lib of its own."""
    apart = 'mount -t tmpfs none /var/lib && exec "$@"'
    return ("unshare", "--mount", "sh", "-c", apart, "sh", sys.executable, "-c", _OLD_NAME)


_OLD_NAME: Final = "import sys; from podgate.features.services.dropin import main; sys.exit(main())"


@contextmanager
def kube_proxy(
    node: NetNamespace, config: Mapping[str, Any], folder: Path, program: Sequence[str] | None = None
) -> Iterator[Path]:
    """Run kube-proxy, or ``program``, in a node's namespace for the body, which begins when it has written its rules.

    Gives its log.
    """
    file, log = folder / "kube-proxy.json", folder / "kube-proxy.log"
    file.write_text(json.dumps(config))
    with inside_network(node.descriptor), log.open("ab") as output:
        process = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", *(program or real()), "--config", str(file)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/",
        )  # fmt: skip
    try:
        poll(lambda: process.poll() is not None or _has_written(node))
        assert process.poll() is None, "\n".join(log.read_text().splitlines()[-12:])
        yield log
    finally:
        process.kill()
        process.wait()


def _has_written(node: NetNamespace) -> bool:
    """Whether it has written the rules of both families: it is healthy, and its Pod ready, before."""
    healthy, metrics = _page(node, HEALTH, "/healthz"), _page(node, METRICS, "/metrics")
    return " 200 " in healthy.partition("\n")[0] and all(
        f'{_WRITTEN}{{ip_family="{each}"}}' in metrics for each in _IPS
    )


def _page(node: NetNamespace, port: int, page: str) -> str:
    with inside_network(node.descriptor):
        asking = socket.socket()
    found = b""
    with asking, contextlib.suppress(OSError):
        asking.settimeout(20.0)
        asking.connect(("127.0.0.1", port))
        asking.sendall(f"GET {page} HTTP/1.0\r\n\r\n".encode())
        while part := asking.recv(1 << 16):
            found += part
    return found.decode(errors="replace")
