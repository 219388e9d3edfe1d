"""The walk-through of services: who answers at a Service's address, and whom does the one who answers see?

Here: the steps and what must be seen at each. Not here: the lab (examples/services), the agent (deploy/services).
Invariant: what is counted are answers of real servers to real connections, a new one for each request.
"""

import json
import subprocess
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tools.walkthrough import PODGATE, StepNotSeenError, Walkthrough

SERVICE, NODE, NODE_PORT = "http://10.96.0.80/", "10.140.0.11", "http://10.140.0.11:30080/"
CLIENT, PARTNER = "10.16.1.100", "10.70.0.2"
LOOK: Final = (
    "apply --wait -f deploy/services -f examples/services-config/from-the-lab.yaml",
    "get services",
    "get endpointslices",
    "exec client -- curl -s http://10.96.0.80/",
    "exec node/node-1 -- nft list ruleset",
)
"""What to look around with once the lab is kept."""

ASK: Final = """
import json, sys, urllib.request as r
answers = []
for _ in range(int(sys.argv[2])):
    try:
        answers.append(json.loads(r.urlopen(sys.argv[1], timeout=float(sys.argv[3])).read()))
    except OSError as error:
        answers.append({"failed": str(error)})
print(json.dumps(answers))
"""

PROBE: Final = """
import json, select, sys, urllib.request as r
print("asking", flush=True)
hosts, failures = {}, []
while not select.select([sys.stdin], [], [], 0)[0]:
    try:
        host = json.loads(r.urlopen(sys.argv[1], timeout=20).read())["hostname"]
        hosts[host] = hosts.get(host, 0) + 1
    except (OSError, ValueError) as error:
        failures.append(str(error))
print(json.dumps([hosts, failures]))
"""


class Answers(NamedTuple):
    """Who answered, and whom they saw, each name once, sorted; how many requests got no answer."""

    hosts: list[str]
    sources: list[str]
    failed: int


def walk(lab: Walkthrough) -> None:
    """Walk through it."""
    lab.step(1, "a cluster without a service proxy: the Service has an address, and nobody answers there")
    lab.up("examples/services/nodes.yaml")
    # A real API marks new nodes until they are ready; the first that is would get all replicas.
    lab.until("nodes", lambda: not any(node["spec"].get("taints") for node in lab.get("nodes")["items"]))
    lab.lab("apply", "--wait", "-f", "examples/services")
    lab.seen("requests answered", 0, 2 - asked(lab, "client", SERVICE, 2, seconds=0.5).failed)
    lab.seen("endpoints in its EndpointSlice", 3, len(endpoints(lab)))

    lab.step(2, "podgate: three replicas on two nodes answer in turn")
    lab.lab("apply", "--wait", "-f", "deploy/services", "-f", "examples/services-config/from-the-lab.yaml")
    lab.until("answers", lambda: not asked(lab, "client", SERVICE, 1, seconds=0.5).failed)
    got = asked(lab, "client", SERVICE, 40)
    lab.seen("requests without an answer", 0, got.failed)
    lab.seen("who answered 40 requests", replicas(lab), got.hosts)
    lab.seen("on the nodes", ["node-1", "node-2"], nodes_of(lab, got.hosts))
    lab.seen("whom they saw", [CLIENT], got.sources)

    lab.step(3, "all replicas replaced, while the client asks again and again")
    before = replicas(lab)
    hosts, failures = replaced(lab)
    lab.seen("failed requests", 0, len(failures))
    print(f"    {sum(hosts.values())} requests, answered by {len(hosts)} replicas: 3 old ones and 3 new ones")
    lab.seen("old replicas that are left", [], sorted(set(before) & set(replicas(lab))))
    lab.seen("who answers now", replicas(lab), asked(lab, "client", SERVICE, 40).hosts)

    lab.step(4, "from outside, by the node port of node-1: any replica answers, and sees the node")
    got = asked(lab, "host/partner", NODE_PORT, 40)
    lab.seen("who answered", replicas(lab), got.hosts)
    lab.seen("whom they saw", [NODE], got.sources)

    lab.step(5, "externalTrafficPolicy: Local: the replicas of that node answer, and see who asked")
    lab.lab("apply", "-f", "examples/services-config/local.yaml")
    lab.until("that", lambda: asked(lab, "host/partner", NODE_PORT, 1).sources == [PARTNER])
    got = asked(lab, "host/partner", NODE_PORT, 40)
    lab.seen("on the nodes", ["node-1"], nodes_of(lab, got.hosts))
    lab.seen("whom they saw", [PARTNER], got.sources)

    lab.step(6, "the DaemonSet deleted: rules stay until they are cleaned, then nothing is left")
    lab.lab("delete", "daemonset/kube-proxy", "--namespace", "kube-system")
    lab.seen("requests without an answer", 0, asked(lab, "client", SERVICE, 10).failed)
    for node in ("node-1", "node-2"):
        lab.lab("exec", f"node/{node}", "--", "podgate", "services", "clean")
        left = lab.lab("exec", f"node/{node}", "--", "nft", "list", "ruleset", quiet=True).strip()
        lab.seen(f"rules and chains left on {node}", "none", left or "none")


def asked(lab: Walkthrough, place: str, url: str, count: int, seconds: float = 20.0) -> Answers:
    """Ask from a place, with a connection for each request, and give the answers."""
    words = [sys.executable, "-c", ASK, url, str(count), str(seconds)]
    answers = json.loads(lab.lab("exec", place, "--", *words, quiet=True))
    good = [answer for answer in answers if "failed" not in answer]
    hosts, sources = ({str(answer[name]) for answer in good} for name in ("hostname", "source"))
    return Answers(sorted(hosts), sorted(sources), len(answers) - len(good))


def replicas(lab: Walkthrough) -> list[str]:
    """Give the names of the replicas that are not on their way out."""
    return sorted(
        pod["metadata"]["name"]
        for pod in lab.get("pods", "--namespace", "default")["items"]
        if pod["metadata"].get("labels", {}).get("app") == "hello" and "deletionTimestamp" not in pod["metadata"]
    )


def nodes_of(lab: Walkthrough, names: Iterable[str]) -> list[str]:
    """Give the nodes that Pods are on."""
    pods: Sequence[Any] = lab.get("pods", "--namespace", "default")["items"]
    return sorted({pod["spec"]["nodeName"] for pod in pods if pod["metadata"]["name"] in set(names)})


def endpoints(lab: Walkthrough) -> list[Any]:
    """Give the endpoints of the Service."""
    slices = lab.get("endpointslices", "--namespace", "default")["items"]
    ours = [one for one in slices if one["metadata"]["labels"].get("kubernetes.io/service-name") == "hello"]
    return [endpoint for one in ours for endpoint in one["endpoints"]]


def replaced(lab: Walkthrough) -> tuple[dict[str, int], list[str]]:
    """Replace all replicas while the client asks again and again; give who answered how often, and what failed."""
    command = [str(PODGATE), "lab", "exec", "--name", lab.name, "client", "--", sys.executable, "-c", PROBE, SERVICE]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        if probe.stdin is None or probe.stdout is None:
            raise StepNotSeenError("the client has no pipes")
        probe.stdout.readline()
        lab.lab("apply", "--wait", "-f", "examples/services-config/release-2.yaml")
        lab.until("the end of the old replicas", lambda: len(endpoints(lab)) == 3)
        probe.stdin.close()
        hosts, failures = json.loads(probe.stdout.readline())
    return hosts, failures
