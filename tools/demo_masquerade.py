"""The walk-through of masquerade: who does a server outside see?

Here: the steps and what must be seen at each. Not here: the lab (examples/masquerade), the agent (deploy/masquerade).
Invariant: what is compared is the access log of a real server outside the cluster.
"""

import subprocess
import sys
import time
from typing import Final

from tools.walkthrough import PODGATE, Walkthrough

POD, NODE, PARTNER, PEER = "10.16.1.6", "10.140.15.217", "10.70.0.2", "10.16.2.7"
LOOK: Final = (
    "apply --wait -f deploy/masquerade",
    "status",
    "exec web -- ip addr",
    "exec node/node-1 -- nft list ruleset",
    "logs host/partner",
)
"""What to look around with once the lab is kept."""

ASK: Final = "import sys, urllib.request as r; r.urlopen(sys.argv[1], timeout=20).read()"
PROBE: Final = """
import json, sys, time, urllib.request as r
print("probing", flush=True)
until, count = time.monotonic() + 60, 0
while time.monotonic() < until:
    count += 1
    answer = json.loads(r.urlopen(sys.argv[1], timeout=20).read())
    if answer["source"] == sys.argv[2]:
        print(time.time(), count, flush=True)
        break
"""


def walk(lab: Walkthrough) -> None:
    """Walk through it."""
    lab.step(1, "a cluster without podgate: the partner sees the Pod's own address")
    lab.up("examples/masquerade")
    lab.seen(f"{PARTNER}'s access log says", POD, asked(lab, "host/partner", PARTNER, "step-1"))

    lab.step(2, "podgate, and a list that keeps the cluster's ranges: the partner sees the node")
    lab.lab("apply", "--wait", "-f", "deploy/masquerade", "-f", "examples/masquerade-config/cluster-ranges.yaml")
    lab.until("masquerading", lambda: asked(lab, "host/partner", PARTNER, "wait") == NODE)
    lab.seen(f"{PARTNER}'s access log says", NODE, asked(lab, "host/partner", PARTNER, "step-2"))
    lab.seen("the log of the Pod on the other node says", POD, asked(lab, "default/peer", PEER, "step-2"))

    lab.step(3, "10.70.0.0/16 added to the ConfigMap: the partner sees the Pod again")
    milliseconds, since, requests = changed(lab)
    lab.seen(f"{PARTNER}'s access log says", POD, asked(lab, "host/partner", PARTNER, "step-3"))
    print(f"    {milliseconds:.0f} ms from {since} to the first changed request ({requests} requests meanwhile)")

    lab.step(4, "the DaemonSet deleted: rules stay until they are cleaned, then nothing is left")
    lab.lab("apply", "-f", "examples/masquerade-config/cluster-ranges.yaml")
    lab.until("masquerading", lambda: asked(lab, "host/partner", PARTNER, "wait") == NODE)
    lab.lab("delete", "daemonset/ip-masq-agent", "--namespace", "kube-system")
    lab.until("the agents' end", lambda: not lab.get("pods", "--namespace", "kube-system")["items"])
    lab.seen("after the agent is gone, the log says", NODE, asked(lab, "host/partner", PARTNER, "step-4-rules-stay"))
    for node in ("node-1", "node-2"):
        lab.lab("exec", f"node/{node}", "--", "podgate", "masquerade", "clean")
        lab.seen(f"rules and chains left on {node}", "none", ruleset(lab, node) or "none")
    lab.seen(f"{PARTNER}'s access log says", POD, asked(lab, "host/partner", PARTNER, "step-4-cleaned"))


def asked(lab: Walkthrough, server: str, address: str, path: str) -> str:
    """Ask a server from the Pod, with a path of its own, and give the source that its access log names."""
    unique = f"{path}-{time.monotonic_ns()}"
    lab.lab("exec", "web", "--", sys.executable, "-c", ASK, f"http://{address}/{unique}", quiet=True)
    lines = [line for line in lab.lab("logs", server, quiet=True).splitlines() if unique in line]
    return lines[-1].split()[0] if lines else "nothing"


def ruleset(lab: Walkthrough, node: str) -> str:
    """Give what nft lists on a node."""
    return lab.lab("exec", f"node/{node}", "--", "nft", "list", "ruleset", quiet=True).strip()


def changed(lab: Walkthrough) -> tuple[float, str, int]:
    """Edit the ConfigMap while the Pod asks again and again.

    Gives the milliseconds to the first request that changed, since when they are counted, and how many requests that
    took.
    """
    command = [str(PODGATE), "lab", "exec", "--name", lab.name, "web", "--", sys.executable, "-c", PROBE]
    with subprocess.Popen([*command, f"http://{PARTNER}/probe", POD], stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout is not None
        probe.stdout.readline()
        edited, since = lab.edit(
            "examples/masquerade-config/with-partner.yaml", "configmaps/kube-system/ip-masq-agent.json"
        )
        words = probe.stdout.readline().split()
    if len(words) != 2:
        lab.seen("the source changed", "yes", "no")
    return (float(words[0]) - edited) * 1000, since, int(words[1])
