"""From what doctor saw to its lines: a verdict each, and what to do where something is wrong."""

import msgspec
import pytest

from podgate.commandline.findings import Finding, answered
from podgate.features.metadata.diagnosis import (
    NO_SOURCE,
    Attempt,
    denials,
    from_pods,
    node_label,
    order,
    rules,
    rules_ahead,
    scheduled,
    ways_past,
)
from podgate.features.metadata.node_rules import READY_LABEL
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import Node
from podgate.model.kinds.workloads import DaemonSet

REF = ObjectRef("DaemonSet", "metadata-proxy-v0.1", "kube-system")
OURS = "podgate:0.1.0"


def node(**labels: str) -> Node:
    return Node(ObjectMeta(name="n", labels=dict.fromkeys((READY_LABEL,) if labels else (), "".join(labels.values()))))


def daemonset(image: str, status: dict[str, int] | None = None, *args: str) -> DaemonSet:
    template = {"spec": {"containers": [{"image": f"registry.example.com:5000/{image}", "args": args}]}}
    return msgspec.convert({"spec": {"template": template}, "status": status or {}}, DaemonSet)


def counted(desired: int, current: int, ready: int) -> dict[str, int]:
    return {"desiredNumberScheduled": desired, "currentNumberScheduled": current, "numberReady": ready}


RUN = ("metadata", "run")
POD = Attempt("default/web", "403")

# What was found -> the verdict, what was seen, and how what to do begins.
LINES = {
    "the label": (node_label(node(a="true"), "n", needed=True), "ok", f"Node n has {READY_LABEL}=true", ""),
    "no label": (
        node_label(node(), "n", needed=True),
        "bad",
        f"Node n has no label {READY_LABEL}",
        f"kubectl label --overwrite node n {READY_LABEL}=true",
    ),
    "another label": (
        node_label(node(a="no"), "n", needed=True),
        "bad",
        f"Node n has {READY_LABEL}=no",
        "kubectl label",
    ),
    "no Node": (node_label(None, "n", needed=True), "unknown", "there is no Node n", "give --node-name"),
    "no source": (node_label(None, "n", needed=True, unread=NO_SOURCE), "unknown", NO_SOURCE, "give --kubeconfig"),
    "no right": (
        scheduled({}, "daemonsets cannot be listed: forbidden"),
        "unknown",
        "daemonsets cannot be listed: forbidden",
        "use an account that may list them",
    ),
    "no label needed": (node_label(None, "n", needed=False), "ok", "none is needed with these options", ""),
    "scheduled": (
        scheduled({REF: daemonset(OURS, counted(3, 3, 3), *RUN)}),
        "ok",
        f"{REF}: 3 of 3 scheduled, 3 ready",
        "",
    ),
    "the old image": (
        scheduled({REF: daemonset("metadata-proxy:v0.1.12", counted(3, 2, 2))}),
        "bad",
        f"{REF}: 2 of 3 scheduled, 2 ready",
        "kubectl -n kube-system describe daemonset metadata-proxy-v0.1",
    ),
    "not ready": (
        scheduled({REF: daemonset(OURS, counted(3, 3, 2), *RUN)}),
        "bad",
        f"{REF}: 3 of 3 scheduled, 2 ready",
        "kubectl",
    ),
    "no node": (
        scheduled({REF: daemonset(OURS, counted(0, 0, 0), *RUN)}),
        "bad",
        f"{REF}: 0 of 0 scheduled, 0 ready",
        f"kubectl -n kube-system describe daemonset metadata-proxy-v0.1; label nodes {READY_LABEL}=true",
    ),
    "no status": (scheduled({REF: daemonset(OURS, None, *RUN)}), "unknown", f"{REF} has no status", "ask an API"),
    "another DaemonSet": (
        scheduled({REF: daemonset(OURS, counted(3, 3, 3), "masquerade", "run")}),
        "bad",
        "none runs a metadata proxy",
        "kubectl apply -f deploy/metadata",
    ),
    "DaemonSets are not known": (scheduled({}, NO_SOURCE), "unknown", NO_SOURCE, "give --kubeconfig"),
    "rules": (rules({"nftables/ip": "", "addresses": ""}), "ok", "as they should be", ""),
    "wrong rules": (
        rules({"nftables/ip": "+ table", "addresses": "", "a": "- x"}),
        "bad",
        "not as they should be: a, nftables/ip",
        "podgate metadata plan",
    ),
    "no rules wanted": (rules({"addresses": ""}, "--no-firewall"), "ok", "none are wanted: --no-firewall", ""),
    "no rights": (rules({}, unread="not permitted"), "unknown", "not permitted", "run it as root"),
    "nobody is first": (order(()), "ok", "nobody else's rule gets Pods' packets to the metadata server first", ""),
    "somebody is first": (
        order(("table ip t, chain c: x",)),
        "bad",
        "before podgate's: table ip t, chain c: x",
        "take",
    ),
    "refused": (from_pods((POD,), "/x"), "ok", "/x is refused with 403 to default/web", ""),
    "allowed by a policy": (
        from_pods((POD, Attempt("a/b", "200", allowed_by="MetadataPolicy/b")), "/x"),
        "ok",
        "/x is refused with 403 to default/web; answered to a/b with 200, by MetadataPolicy/b",
        "",
    ),
    "allowed to one and leaking to another": (
        from_pods((Attempt("a/b", "200", allowed_by="MetadataPolicy/b"), Attempt("a/c", "200")), "/x"),
        "bad",
        "/x is answered to a/c with 200",
        "see the lines on rules",
    ),
    "leaking": (
        from_pods((POD, Attempt("a/b", "200")), "/x"),
        "bad",
        "/x is answered to a/b with 200",
        "see the lines",
    ),
    "nobody listens": (
        from_pods(tuple(Attempt(name, "refused") for name in "abcde"), "/x"),
        "bad",
        "connections of a, b, c, 2 more are refused: no metadata at all",
        "start the proxy",
    ),
    "silence": (
        from_pods((Attempt("a", "timed out", is_reached=False),), "/x"),
        "unknown",
        "no Pod of this node can be asked from: a (timed out)",
        "run it as root",
    ),
    "some were not asked": (
        from_pods(
            (POD, Attempt("a", "timed out", is_reached=False)), "/x", "1 of 2 gave no answer, and 3 more were not asked"
        ),
        "unknown",
        "1 of 2 gave no answer, and 3 more were not asked",
        "run it as root",
    ),
    "some were not asked, and one that was is leaking": (
        from_pods((POD, Attempt("a/b", "200")), "/x", "1 of 3 gave no answer, and 3 more were not asked"),
        "bad",
        "/x is answered to a/b with 200",
        "see the lines",
    ),
    "no Pod": (from_pods((), "/x"), "unknown", "no Pod of this node can be asked from: none found", "run it as root"),
    "veth": (ways_past((POD,), (), ("eth0",), by_user=False), "ok", "Pods pass this node's IP stack", ""),
    "macvlan": (
        ways_past((POD, Attempt("a/b", "200", "macvlan"), Attempt("a/c", "200", "")), (), (), by_user=False),
        "bad",
        "packets of a/b (macvlan device), a/c (hardware device) do not pass this node's IP stack",
        "give these Pods a veth",
    ),
    "the cluster's own on the node": (
        ways_past((POD,), (("kube-system", "kube-proxy"),), (), by_user=False),
        "ok",
        "Pods pass this node's IP stack",
        "",
    ),
    "a tenant on the node": (
        ways_past((POD,), (("team-a", "agent"),), (), by_user=False),
        "bad",
        "on the node's own network, which no redirect is for: team-a/agent",
        "give --node-uids",
    ),
    "a tenant on the node, by user": (
        ways_past((POD,), (("team-a", "agent"),), (), by_user=True),
        "ok",
        "Pods pass this node's IP stack",
        "",
    ),
    "eBPF, not asked": (
        ways_past((), (), ("cilium_host", "eth0"), by_user=False),
        "unknown",
        "eBPF may route Pods' packets here (cilium_host)",
        "ask from a Pod",
    ),
    "eBPF, and refused": (ways_past((POD,), (), ("cilium_host",), by_user=False), "ok", "Pods pass this node's", ""),
    "Pods are not known": (
        ways_past((POD,), None, (), by_user=False),
        "unknown",
        f"no Pod's device goes past them; Pods with hostNetwork: {NO_SOURCE}",
        "give --kubeconfig",
    ),
    "no metrics": (denials("", "", 0, "127.0.0.1:989"), "unknown", "nobody serves metrics on 127.0.0.1:989", "give"),
}


@pytest.mark.parametrize(("finding", "verdict", "seen", "todo"), LINES.values(), ids=LINES.keys())
def test_line(finding: Finding, verdict: str, seen: str, todo: str) -> None:
    assert (finding.verdict, finding.todo[: len(todo)] if todo else finding.todo) == (verdict, todo)
    assert finding.seen.startswith(seen)
    assert answered([finding]).code == (verdict == "bad")
    assert bool(finding.todo) or verdict == "ok"


def page(blocked: int, proxied: int) -> str:
    rows = {"blocked": ("403", blocked), "proxied": ("200", proxied)}
    lines = [
        f'request_count{{code="{code}",filter_result="filter_result_{word}"}} {count}.0'
        for word, (code, count) in rows.items()
    ]
    return "\n".join(["# TYPE request_count counter", *lines])


def test_denials_are_counted_ever_and_lately_without_doctors_own() -> None:
    found = denials(page(4, 10), page(9, 15), 2, "127.0.0.1:989")
    assert found.seen == "4 of 14 requests refused since the proxy started, 3 of 8 while doctor looked"


RULESET = """\
table ip podgate-metadata {
	chain prerouting {
		type nat hook prerouting priority -104; policy accept;
		ip daddr 169.254.169.254 tcp dport { 80, 8080 } dnat to 169.254.169.252
	}
}
table ip early {
	chain first {
		type nat hook prerouting priority -110; policy accept;
		ip daddr 10.96.0.1 tcp dport 443 dnat to 192.0.2.7:6443
		jump second
		tcp dport 80 redirect to :8080
	}
	chain second {
		ip daddr 169.254.0.0/16 counter packets 0 bytes 0 dnat to 192.0.2.1:8181
		dnat to 192.0.2.2:80
		ip daddr != 169.254.169.254 dnat to 192.0.2.3:80
	}
}
table ip late {
	chain first {
		type filter hook prerouting priority -300; policy accept;
	}
	chain prerouting {
		type nat hook prerouting priority -100; policy accept;
		ip daddr 169.254.169.254 tcp dport 80 dnat to 192.0.2.1:8181
	}
}
table ip raw {
	chain PREROUTING {
		type filter hook prerouting priority -300; policy accept;
		ip daddr 169.254.0.0/16 counter packets 0 bytes 0 notrack
	}
	chain OUTPUT {
		type filter hook output priority -300; policy accept;
		ip daddr 169.254.0.0/16 counter packets 0 bytes 0 notrack
	}
}
table ip nat {
	chain PREROUTING {
		type nat hook prerouting priority -100; policy accept;
		ip daddr 169.254.169.254 tcp dport 80 dnat to 169.254.169.252:988 comment "metadata-concealment: bridge"
	}
}
"""


def ahead(priority: int) -> list[str]:
    ours = ("podgate-metadata", "metadata-concealment: ")
    return [line.partition(": ")[0] for line in rules_ahead(RULESET, ("169.254.169.254",), ours, priority)]


def test_others_rules_that_come_first_are_found() -> None:
    early = ["table ip early, chain first", "table ip early, chain second"]
    assert ahead(-105) == [*early, "table ip raw, chain PREROUTING"]
    assert ahead(-200) == ["table ip raw, chain PREROUTING"]
    assert ahead(0) == [*early, "table ip late, chain prerouting", "table ip raw, chain PREROUTING"]
