"""``podgate metadata doctor`` on a node of a lab: before there is a proxy, with one, and with ways past it."""

import json
from pathlib import Path

import pytest

from tests.support.lab import TestLab, lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.lab, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
KUBE_ENV = "/computeMetadata/v1/instance/attributes/kube-env"
NONE_YET = {
    "node label": "ok",
    "DaemonSet": "bad",
    "address": "bad",
    "port 988": "bad",
    "port 987": "bad",
    "port 989": "bad",
    "a secret": "unknown",
    "rules": "bad",
    "order of rules": "ok",
    "from a Pod": "bad",
    "ways past the rules": "ok",
    "upstream": "ok",
    "other agents": "ok",
    "denials": "unknown",
}
TENANT = """\
apiVersion: v1
kind: Pod
metadata: {name: on-the-node}
spec: {nodeName: node-1, hostNetwork: true, containers: [{name: main, image: busybox, command: [sleep, infinity]}]}
"""
OTHER = """\
table ip other {
  chain prerouting {
    type nat hook prerouting priority -110;
    ip daddr 169.254.169.254 tcp dport 80 dnat to 10.140.15.217:8181
  }
}
"""
MACVLAN = r"""
unshare --net sleep infinity & pid=$!
until [ "$(readlink /proc/$pid/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
ip link add mv0 link eth0 type macvlan mode bridge && ip link set mv0 netns $pid
nsenter --net=/proc/$pid/ns/net sh -c \
  'ip addr add 10.140.15.218/20 dev mv0; ip link set mv0 up; ip route add default dev mv0'
podgate metadata doctor --output json
kill $pid
"""
"""A Pod whose network is a part of the node's uplink, as Multus gives it, while doctor looks."""


def doctor(running: TestLab, script: str = "podgate metadata doctor --output json") -> dict[str, dict[str, str]]:
    rows = json.loads(running.shell("node/node-1", script, check=False))
    return {row["name"]: row for row in rows}


def verdicts(found: dict[str, dict[str, str]]) -> dict[str, str]:
    return {name: row["verdict"] for name, row in found.items()}


def all_ok(found: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Give what was found when nothing is wrong, else nothing."""
    return found if set(verdicts(found).values()) == {"ok"} else {}


def test_doctor_sees_what_pods_can_do() -> None:
    with lab(ROOT / "examples" / "metadata", name="doctor") as running:
        found = doctor(running)
        assert verdicts(found) == NONE_YET
        assert found["from a Pod"]["seen"] == f"{KUBE_ENV} is answered to default/web with 200"
        assert all(row["todo"] for row in found.values() if row["verdict"] == "bad")

        running.run("apply", "-f", str(ROOT / "deploy" / "metadata"), "--wait")
        found = poll(lambda: all_ok(doctor(running)))
        assert found["DaemonSet"]["seen"] == "DaemonSet/kube-system/metadata-proxy-v0.1: 1 of 1 scheduled, 1 ready"
        assert found["from a Pod"]["seen"] == f"{KUBE_ENV} is refused with 403 to default/web"

        running.apply(TENANT)
        running.shell("node/node-1", f"nft -f - <<'END'\n{OTHER}END")
        found = doctor(running)
        assert verdicts(found) == dict.fromkeys(found, "ok") | dict.fromkeys(
            ("order of rules", "from a Pod", "ways past the rules"), "bad"
        )
        assert "table ip other, chain prerouting: ip daddr 169.254.169.254" in found["order of rules"]["seen"]
        assert "default/on-the-node" in found["ways past the rules"]["seen"]

        found = doctor(running, MACVLAN)
        assert "(sleep) (macvlan device) do not pass this node's IP stack" in found["ways past the rules"]["seen"]
