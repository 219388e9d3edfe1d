"""What the verbs that only look say does not depend on the process: string hashes differ in each, and so do all sets.

Here: the same questions to processes with other seeds, about folders rich enough that two orders are never the same by
chance. Not here: what the answers mean (tests of each verb).
Invariant: nothing here looks at this machine: each question is about a node of the folder.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.agent import OF_SHELLS

SEEDS: Final = ("1", "22", "333")
STREAMS: Final = ("out", "err")
MARK: Final = "$ podgate "
_ASKING: Final = f"""
import json, sys
from podgate import verbs
from podgate.cli import main
from podgate.joints import ForeignNat
verbs.load_foreign_nat = lambda ours: ForeignNat()  # others' rules count packets, and may be changed by anybody
for words in json.loads(sys.argv[1]):
    for stream in (sys.stdout, sys.stderr):
        print({MARK!r} + " ".join(words), file=stream, flush=True)
    try:
        code = main(words)
    except SystemExit as end:
        code = end.code
    print("exit", code, flush=True)
"""

NAMES: Final = ("ant", "bee", "cow", "doe", "eel")
SPACES: Final = ("farm", "lake")
Object = dict[str, Any]


def obj(kind: str, name: str, namespace: str = "", version: str = "v1", **parts: Any) -> Object:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **parts.pop("metadata", {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **parts}


def policy(kind: str, name: str, spec: Any) -> Object:
    return obj(kind, name, version="podgate.dev/v1alpha1", spec=spec)


def nodes() -> Iterator[Object]:
    for number, name in enumerate(NAMES, 1):
        ranges = [f"10.16.{number}.0/24", f"fd00:16:{number}::/64"]
        addresses = [{"type": "InternalIP", "address": text} for text in (f"192.0.2.{number}", f"2001:db8::{number}")]
        labels = {"topology.kubernetes.io/zone": "ab"[number % 2]}
        yield obj("Node", name, metadata={"labels": labels}, spec={"podCIDRs": ranges}, status={"addresses": addresses})


def pods() -> Iterator[Object]:
    for space in SPACES:
        yield obj("Namespace", space, metadata={"labels": {"team": space}})
        for number, name in enumerate(NAMES, 1):
            # Two Pods of each name in different namespaces have one address, as when one takes over from the other.
            last = number + 10 * (SPACES.index(space) // 2)
            ips = [{"ip": f"10.16.1.{last}"}, {"ip": f"fd00:16:1::{last}"}]
            spec = {"nodeName": NAMES[0], "hostNetwork": name == NAMES[-1], "serviceAccountName": name}
            labels = {"app": name, "tenant": space}
            yield obj("Pod", name, space, metadata={"labels": labels}, spec=spec, status={"podIPs": ips})


def services() -> Iterator[Object]:
    for space, name in ((space, name) for space in SPACES for name in NAMES):
        place = SPACES.index(space) * 40 + NAMES.index(name)
        ports = [
            {"name": f"{each}{name}", "port": 80 + number, "nodePort": 30000 + 10 * place + number}
            for number, each in enumerate(NAMES)
        ]
        spec: Object = {"type": "LoadBalancer", "clusterIPs": [f"10.96.0.{place}", f"fd00:96::{place:x}"]}
        spec |= {"ports": [*ports, {"name": "udp", "port": 53, "protocol": "UDP"}]}
        spec |= {"externalIPs": [f"198.51.100.{place}", "198.51.100.200", f"2001:db8:1::{place:x}"]}
        spec |= {"loadBalancerSourceRanges": ["203.0.113.0/24", "2001:db8:2::/64"], "healthCheckNodePort": 31999}
        spec |= {"externalTrafficPolicy": "Local" if place % 2 else "Cluster", "sessionAffinity": "ClientIP"}
        spec |= {"internalTrafficPolicy": "Local" if place % 3 else "Cluster"}
        spec |= {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 20000 + place}}}
        ingress = [{"ip": f"198.51.100.{place + 120}"}, {"ip": f"2001:db8:3::{place:x}"}]
        yield obj("Service", name, space, spec=spec, status={"loadBalancer": {"ingress": ingress}})
        for part, kind in ((part, kind) for part in range(3) for kind in ("IPv4", "IPv6")):
            yield endpoints(name, space, part, kind, place)


def endpoints(name: str, space: str, part: int, kind: str, place: int) -> Object:
    stem = "10.16.1." if kind == "IPv4" else "fd00:16:1::"
    found = [
        {
            # Those of the slices overlap: a Pod that moves from one to the other.
            "addresses": [f"{stem}{10 + place % 7 + number + 2 * part}"],
            "nodeName": NAMES[number % 3],
            "conditions": {"ready": number % 4 != 3, "serving": True, "terminating": number % 4 == 3},
            "targetRef": {"kind": "Pod", "uid": f"{name}{number}"},
            **({"hints": {"forZones": [{"name": "ab"[number % 2]}]}} if part else {}),
        }
        for number in range(5)
    ]
    ports = [{"name": f"{each}{name}", "port": 8080 + number} for number, each in enumerate(NAMES[:-1])]
    labels = {"kubernetes.io/service-name": name}
    parts = {"addressType": kind, "endpoints": found, "ports": [*ports, {"name": "udp", "port": 53, "protocol": "UDP"}]}
    slice_name = f"{name}-{part}-{kind.lower()}"
    return obj("EndpointSlice", slice_name, space, "discovery.k8s.io/v1", metadata={"labels": labels}, **parts)


def broken_services() -> Iterator[Object]:
    for name, cidr in zip(
        NAMES, ("10.96.0.0/24", "fd00:96::/112", "x", "10.97.0.0/16", "y", "10.98.0.0/24"), strict=False
    ):
        yield obj("ServiceCIDR", name, version="networking.k8s.io/v1", spec={"cidrs": [cidr, "z"]})
    for space, name in ((space, name) for space in SPACES for name in NAMES):
        yield obj("Service", f"bad-{name}", space, spec=_bad_spec(name), sepc={})
        labels = {"kubernetes.io/service-name": f"gone-{name}"}
        addresses = [{"addresses": [text], "adresses": []} for text in ("x", "fd00::1", "127.0.0.1", "010.0.0.1")]
        parts = {
            "addressType": "IPv4",
            "endpoints": addresses,
            "ports": [{"port": 1, "protocol": "X"}, {"port": 99999}],
        }
        yield obj("EndpointSlice", f"bad-{name}", space, "discovery.k8s.io/v1", metadata={"labels": labels}, **parts)
        yield obj("Service", f"undecodable-{name}", space, spec={"ports": 5})


def _bad_spec(name: str) -> Object:
    """Give a spec with as many mistakes as there are, and addresses and ports that others ask for too."""
    ports = [{"port": 80, "nodePort": 30000}, {"port": 80}, {"port": 0}, {"port": 7, "protocol": "X"}, {"port": 8}]
    spec: Object = {"type": "LoadBalancr", "clusterIPs": ["10.96.0.0", "010.96.0.99", "x"], "ports": ports, "prots": []}
    spec |= {"externalIPs": ["127.0.0.1", "198.51.100.0", "y"], "loadBalancerSourceRanges": ["z", "010.0.0.0/8"]}
    spec |= {"externalTrafficPolicy": "local", "internalTrafficPolicy": "Locl", "sessionAffinity": "ClientIp"}
    return {**spec, "clusterIPs": ["None"]} if name == NAMES[-1] else spec


def masquerade_policies() -> Iterator[Object]:
    for number, name in enumerate(NAMES):
        spec: Object = {"action": ("Keep", "Masquerade", "SNAT")[number % 3], "priority": number // 2}
        if spec["action"] == "SNAT":
            spec |= {"snatAddress": f"192.0.2.{number}", "to": [{"cidr": "203.0.113.0/24"}, {"cidr": "10.40.0.0/16"}]}
        if number % 2:
            spec["from"] = {"podSelector": {"matchLabels": {"app": name}}, "namespaceSelector": {"matchLabels": {}}}
        yield policy("MasqueradePolicy", name, spec)


def metadata_policies() -> Iterator[Object]:
    for number, name in enumerate(NAMES):
        rules = [{"paths": [f"/computeMetadata/v1/instance/{name}/**"], "verdict": ("deny", "allow")[number % 2]}]
        rules += [{"paths": ["/computeMetadata/v1/instance/attributes/kube-env"], "verdict": "allow"}]
        yield policy(
            "MetadataPolicy", name, {"subjects": {"podSelector": {"matchLabels": {"app": name}}}, "rules": rules}
        )


def broken_policies() -> Iterator[Object]:
    for name in NAMES:
        yield policy(
            "MasqueradePolicy", name, {"action": "Kep", "to": ["x"], "from": {"podSelecter": {}}, "ports": "0"}
        )
        yield policy("MetadataPolicy", name, {"rules": [{"paths": ["x"], "verdict": "allow", "methods": ["GETT"]}]})
        yield obj("Node", f"undecodable-{name}", spec={"podCIDRs": 5})
    text = "nonMasqueradeCIDRs: [10.0.0.1/8, abc]\nmasqLinkLocl: true\nresyncInterval: 60\n"
    yield obj("ConfigMap", "ip-masq-agent", "kube-system", data={"config": text})


@pytest.fixture
def good(tmp_path: Path) -> str:
    """Give a folder in which all is right, as far as an agent must have it so."""
    objects = (*nodes(), *pods(), *services(), *masquerade_policies(), *metadata_policies())
    return _folder(tmp_path / "good", {"all.jsonl": objects})


@pytest.fixture
def bad(tmp_path: Path) -> str:
    """Give a folder with several mistakes of each sort, in objects and in files."""
    most = (*nodes(), *pods(), *services(), *broken_services())
    files = {"a.jsonl": most, "b.jsonl": (*services(), *broken_policies())}
    return _folder(tmp_path / "bad", {**files, "c.yaml": "a: [", "d.yaml": "- 1", "e.json": "{"})


def _folder(path: Path, files: Mapping[str, str | Iterable[Object]]) -> str:
    path.mkdir()
    for name, content in files.items():
        text = content if isinstance(content, str) else "".join(f"{json.dumps(each)}\n" for each in content)
        (path / name).write_text(text)
    return str(path)


BACK_ENDS: Final = {
    "masquerade": ("nftables", "iptables-nft"),
    "metadata": ("nftables", "iptables"),
    "services": ("nftables", "iptables"),
}
MORE: Final = {"masquerade": ("--enable-ipv6",), "services": ("--cluster-cidr", "10.16.0.0/16,fd00:16::/48")}
ASKED: Final = {
    "masquerade": (
        ("203.0.113.9", "10.40.0.1", "2001:db8::9"),
        ("10.40.0.1", "--from", "lake/bee"),
        ("10.0.0.1", "--from", "x"),
    ),
    "metadata": (
        ("/computeMetadata/v1/instance/id", "--from", "lake/cow"),
        ("/", "--from", "10.16.1.2"),
        ("/", "--from", "ox"),
    ),
    "services": (
        ("farm/ant", "lake/bee", "farm/cow", "--from", "node"),
        ("10.96.0.1", "192.0.2.1", "198.51.100.200:80", "198.51.100.161", "--from", "lake/doe"),
        ("farm/bad-ant", "lake/ant:x", "ant", "lake/nat", "lake/gone", "10.96.0.200"),
    ),
}


def questions(good: str, bad: str) -> Iterator[list[str]]:
    """Give every looking verb of every feature, in each of its forms."""
    for feature, back_end in ((feature, back_end) for feature, found in BACK_ENDS.items() for back_end in found):
        own = ["--node-name", NAMES[0], "--backend", back_end, *MORE.get(feature, ())]
        verbs = [["render"], ["check"], *(["explain", *asked] for asked in ASKED[feature])]
        for verb, form in ((verb, form) for verb in verbs for form in ("text", "json")):
            yield [feature, *verb, "--source", good, *own, "--output", form]
        for verb, form in (*((verb, "text") for verb in verbs), (["check"], "json")):
            yield [feature, *verb, "--source", bad, *own, "--output", form]


@contextmanager
def answering(seed: str, asked: Sequence[Sequence[str]], folder: Path) -> Iterator[Callable[[], list[dict[str, str]]]]:
    """Have a process answer them all; gives what waits for it, and then gives both of its outputs by question."""
    environ = {name: value for name, value in os.environ.items() if name not in OF_SHELLS}
    command = [sys.executable, "-c", _ASKING, json.dumps(asked)]
    told = [folder / f"{seed}.{stream}" for stream in STREAMS]
    with told[0].open("w") as output, told[1].open("w") as errors:
        process = subprocess.Popen(command, env={**environ, "PYTHONHASHSEED": seed}, stdout=output, stderr=errors)

    def ended() -> list[dict[str, str]]:
        assert process.wait() == 0, told[1].read_text()[-1000:]
        return [by_question(path.read_text()) for path in told]

    try:
        yield ended
    finally:
        process.kill()
        process.wait()


def by_question(said: str) -> dict[str, str]:
    parts = (part.partition("\n") for part in said.split(MARK)[1:])
    return {words: text for words, _, text in parts}


@pytest.mark.slow
def test_each_verb_says_the_same_whatever_the_seed_of_hashes(good: str, bad: str, tmp_path: Path) -> None:
    asked = list(questions(good, bad))
    with ExitStack() as stack:
        started = [stack.enter_context(answering(seed, asked, tmp_path)) for seed in SEEDS]
        first, *others = [ended() for ended in started]
    assert [len(said) for said in first] == [len(asked)] * len(STREAMS)
    differing = [
        (words, stream, seed)
        for seed, other in zip(SEEDS[1:], others, strict=True)
        for stream, ours, theirs in zip(STREAMS, first, other, strict=True)
        for words, said in ours.items()
        if theirs.get(words) != said
    ]
    assert differing == []
