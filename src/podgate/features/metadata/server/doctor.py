"""doctor: is the metadata proxy of this node in the way of Pods, and does it work?

Here: looking: at objects, the node's rules, listeners, Pods' networks, metrics. Not here: what it means, where that
takes more than a line (diagnosis.py).
Invariant: it only looks; what it cannot look at is ``unknown``, never ``ok``.
"""

import asyncio
import contextlib
import functools
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from podgate.commandline.findings import Finding
from podgate.features.metadata import diagnosis
from podgate.features.metadata.compile import file_watches, intent_of
from podgate.features.metadata.explain import Question, explain
from podgate.features.metadata.filter import Decider
from podgate.features.metadata.intent import NodeRules
from podgate.features.metadata.node_rules import node_rules
from podgate.features.metadata.policy import METADATA_POLICY
from podgate.features.metadata.server.node import node_steps
from podgate.features.metadata.server.pod_networks import ask_pods, processes
from podgate.features.metadata.server.probing import HEAD, ask, status_of
from podgate.features.metadata.settings import LOCAL_ADDRESS, Settings, address_and_port
from podgate.features.metadata.to_iptables import OWNERS
from podgate.features.metadata.to_nftables import FIRST_DSTNAT, REDIRECT_TABLE, TABLE
from podgate.joints import ApplyError, Inputs, SourceError
from podgate.linux import proc
from podgate.linux.running import find_program, run
from podgate.model.kinds.nodes import NODE, Node
from podgate.model.kinds.pods import POD, Pod
from podgate.model.kinds.workloads import DAEMON_SET
from podgate.model.machine import Machine
from podgate.model.snapshot import Absent, Kind, Snapshot, Watch
from podgate.sources.files import load_files
from podgate.sources.machine import load_machine, node_name_of
from podgate.sources.origin import load, looked_at
from podgate.targets.iptables.apply import IptablesTarget
from podgate.targets.listeners.holders import holders_of
from podgate.targets.nftables.apply import NftablesTarget

SUMMARY: Final = "Say what is right and wrong with the metadata proxy of this node, a verdict per line."

ASKS: Final = (
    *(
        "addr",
        "metrics_addr",
        "profile",
        "firewall",
        "backend",
        "upstream",
        "uplink",
        "node_uids",
        "node_name",
        "policy",
    ),
    *("source", "kubeconfig", "context"),
)
"""The settings that say where to look."""

KUBE_ENV: Final = "/computeMetadata/v1/instance/attributes/kube-env"
_SECRET_PATHS: Final = {
    "gce": KUBE_ENV,
    "v0.1.12": KUBE_ENV,
    "aws": "/latest/meta-data/iam/security-credentials/",
    "azure": "/metadata/identity/oauth2/token?api-version=2018-02-01",
    "openstack": "/openstack/latest/user_data",
}
_OTHERS: Final = frozenset({"metadata-proxy", "kube2iam", "kiam", "nmi", "eks-pod-identity", "gke-metadata-se"})
"""Names of processes (15 characters of them, proc(5)) that answer for a metadata server themselves."""

AskPods = Callable[[str, str, Mapping[str, str]], tuple[Sequence[diagnosis.Attempt], str]]
"""As ``ask_pods``."""

_Permit = Callable[[Sequence[diagnosis.Attempt]], list[diagnosis.Attempt]]
"""Adds the policies that let somebody have what they got."""

_SECONDS: Final = 3.0
_IPTABLES_DSTNAT: Final = -100


class Gathered(NamedTuple):
    """What a source said; ``unread`` says of a kind why it is not known."""

    snapshot: Snapshot
    unread: Mapping[str, str]


def examine(settings: Settings, environ: Mapping[str, str], ask_from_pods: AskPods = ask_pods) -> Iterator[Finding]:
    """Look at everything in turn; ``ask_from_pods`` is what enters Pods' networks."""
    page, own = _metrics(settings), 0
    node_name = node_name_of(settings.node_name, environ)
    objects = _objects(settings, environ, node_name)
    node = next((each for each in objects.snapshot.objects(NODE).values() if each.metadata.name == node_name), None)
    needs_label = settings.firewall and settings.cloud.name in ("gce", "v0.1.12")
    unread = objects.unread.get(NODE.kind, "")
    yield diagnosis.node_label(node, node_name, needed=needs_label, unread=unread)
    daemonsets = objects.snapshot.objects(DAEMON_SET)
    yield diagnosis.scheduled(daemonsets, objects.unread.get(DAEMON_SET.kind, ""))
    permit = functools.partial(_with_permissions, settings, environ, objects, node_name)
    for each in _listening(settings, permit):
        own += each.name == "a secret" and each.seen.endswith("403")
        yield each
    yield from _rules(settings, node_name, node)
    asked, why = ask_from_pods(
        settings.cloud.addresses[0], _SECRET_PATHS[settings.cloud.name], _names(objects, node_name)
    )
    own += sum(each.outcome == "403" for each in asked)
    asked = permit(asked)
    yield from _pods(settings, objects, node_name, asked, why)
    host, upstream_port = settings.upstream_address
    yield _reachable(str(host), upstream_port)
    yield _others(holders_of(settings.listen[1]))
    if settings.metrics_addr:
        yield diagnosis.denials(page, _metrics(settings), own, settings.metrics_addr)


def _objects(settings: Settings, environ: Mapping[str, str], node_name: str) -> Gathered:
    """Ask for each kind by itself: an account may have the right to some."""
    found = looked_at(settings.source, settings.kubeconfig, settings.context, environ)
    watches = (
        Watch(NODE, field_selector=f"metadata.name={node_name}"),
        Watch(POD, field_selector=f"spec.nodeName={node_name}"),
        Watch(DAEMON_SET),
    )
    kinds, unread = {}, {}
    for watch in watches:
        name = watch.kind.kind
        try:
            kinds[name] = load(found, (watch,), environ).snapshot.kinds[name]
        except SourceError as error:
            unread[name] = str(error)
        else:
            why = _why_absent(kinds[name], watch.kind)
            unread |= {name: why} if why else {}
    return Gathered(Snapshot(kinds), unread)


def _with_permissions(
    settings: Settings,
    environ: Mapping[str, str],
    objects: Gathered,
    node_name: str,
    asked: Sequence[diagnosis.Attempt],
) -> list[diagnosis.Attempt]:
    """Add the policies that let Pods have what they got, as explain gives them; who is refused needs none."""
    if all(each.outcome in ("403", "refused") or not each.is_reached for each in asked):
        return list(asked)
    found = looked_at(settings.source, settings.kubeconfig, settings.context, environ)
    try:
        policies = load(found, (Watch(METADATA_POLICY),), environ).snapshot
    except SourceError:
        return list(asked)
    snapshot = Snapshot({**objects.snapshot.kinds, **policies.kinds}, policies.faults)
    files = load_files(file_watches(settings.policy_path))
    filter_ = intent_of(settings, Inputs(snapshot, files, Machine(node_name=node_name)))[0].filter
    names = {policy.name for policy in filter_.policies}
    decider, headers = Decider(filter_), tuple(HEAD.split("\r\n")[:-1])
    permitted = []
    for each in asked:
        question = Question(_SECRET_PATHS[settings.cloud.name], headers=headers, source=each.source)
        answer = explain(decider, question)
        name = answer.rule.rpartition(" rules[")[0]
        is_permitted = answer.verdict == "forward" and not answer.audited and name in names
        permitted.append(replace(each, allowed_by=name) if is_permitted else each)
    return permitted


def _why_absent(found: object, kind: Kind[object]) -> str:
    if not isinstance(found, Absent):
        return ""
    return diagnosis.NO_SOURCE if found.why == "no source" else f"{kind.plural} cannot be listed: {found.why}"


def _listening(settings: Settings, permit: _Permit) -> Iterator[Finding]:
    address, port = settings.listen
    local = LOCAL_ADDRESS if address.is_unspecified else str(address)
    here = _address(local)
    yield here
    ports = [(port, "the proxy")] + ([(port - 1, "what 8080 is redirected to")] if settings.firewall else [])
    ports += [(address_and_port(settings.metrics_addr)[1], "metrics")] if settings.metrics_addr else []
    for number, what in ports:
        yield _holder(number, what)
    if here.verdict == "ok":
        yield _secret(local, port, settings.cloud.name, permit)
    else:
        yield Finding("a secret", "unknown", f"not asked for: {local} may be anybody's")


def _address(address: str) -> Finding:
    with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            seen = f"{address} is no address of this node: redirected packets go nowhere"
            return Finding("address", "bad", seen, f"start the proxy, or: ip addr add {address}/32 dev lo scope host")
    return Finding("address", "ok", f"{address} is this node's")


def _holder(port: int, what: str) -> Finding:
    holders = holders_of(port)
    if not holders:
        todo = "start the proxy, and look at its log"
        return Finding(f"port {port}", "bad", f"no process that can be seen from here listens ({what})", todo)
    return Finding(f"port {port}", "ok", f"{', '.join(holders)} ({what})")


def _secret(address: str, port: int, cloud: str, permit: _Permit) -> Finding:
    path = _SECRET_PATHS[cloud]
    status = status_of(ask((address, port), path))
    if status == "403":
        return Finding("a secret", "ok", f"{path} is refused with 403")
    if not status:
        return Finding(
            "a secret", "bad", f"nobody answers on {address}:{port}", "start the proxy: Pods get no metadata"
        )
    (asked,) = permit((diagnosis.Attempt("whoever is not known", status),))
    if asked.allowed_by:
        return Finding("a secret", "ok", f"{path} is answered with {status} to {asked.who}, by {asked.allowed_by}")
    todo = "see who listens, and podgate metadata explain for this path"
    return Finding("a secret", "bad", f"{path} was answered with {status}", todo)


def _rules(settings: Settings, node_name: str, node: Node | None) -> Iterator[Finding]:
    """Compare the kernel's rules with those that these options want, and look for others' before them."""
    try:
        machine = load_machine(node_name)
    except SourceError as error:
        yield diagnosis.rules({}, unread=str(error))
        return
    # A proxy that runs wants its rules, whatever becomes of the label; where none does, the label says what is wanted.
    labels = node.metadata.labels if node and not holders_of(settings.listen[1]) else None
    wanted = node_rules(settings, machine, labels)
    try:
        differences = asyncio.run(_differences(settings, wanted))
    except ApplyError as error:
        yield diagnosis.rules({}, unread=str(error).splitlines()[0])
    else:
        yield diagnosis.rules(differences, wanted.why if wanted.phase == "none" else "")
    if wanted.phase != "none":
        yield _order(settings)


async def _differences(settings: Settings, wanted: NodeRules) -> dict[str, str]:
    steps = node_steps(lambda rules: rules, backend=settings.backend)
    found = {}
    with contextlib.ExitStack() as stack:
        for step in (*steps.before, *steps.after):
            if isinstance(step.target, NftablesTarget | IptablesTarget):
                stack.callback(step.target.close)
            found[step.name] = str(step.target.diff(await step.target.read(), step.want(wanted)) or "")
    return found


def _order(settings: Settings) -> Finding:
    nft = find_program("nft")
    if nft is None:
        return diagnosis.order((), unread="nft is not installed")
    try:
        ended = asyncio.run(run((nft, "-y", "list", "ruleset")))
    except OSError as error:
        return diagnosis.order((), unread=f"{nft} cannot be started: {error.strerror}")
    if ended.code or ended.is_cut:
        return diagnosis.order((), unread=(ended.errors.strip().splitlines() or ["too many rules"])[0])
    priority = FIRST_DSTNAT if settings.backend == "nftables" else _IPTABLES_DSTNAT
    ours = (TABLE, REDIRECT_TABLE, *OWNERS)
    return diagnosis.order(tuple(diagnosis.rules_ahead(ended.output, settings.cloud.addresses, ours, priority)))


def _pods_of(objects: Gathered, node_name: str) -> list[Pod]:
    """Give the Pods of this node, in the order of their names: a table has none."""
    pods = objects.snapshot.objects(POD)
    return [pods[ref] for ref in sorted(pods) if pods[ref].spec.node_name == node_name]


def _names(objects: Gathered, node_name: str) -> dict[str, str]:
    """Give the Pods of this node by their addresses; of two with one address the first by name."""
    pods = [pod for pod in reversed(_pods_of(objects, node_name)) if not pod.spec.host_network]
    return {address: f"{pod.metadata.namespace}/{pod.metadata.name}" for pod in pods for address in pod.addresses}


def _pods(
    settings: Settings, objects: Gathered, node_name: str, asked: Sequence[diagnosis.Attempt], unread: str
) -> Iterator[Finding]:
    if settings.firewall:
        yield diagnosis.from_pods(asked, _SECRET_PATHS[settings.cloud.name], unread)
    on_the_node = [
        (pod.metadata.namespace, pod.metadata.name)
        for pod in _pods_of(objects, node_name)
        if pod.spec.host_network and not pod.has_ended
    ]
    known = None if POD.kind in objects.unread else on_the_node
    devices = [interface.name for interface in _machine(node_name).interfaces]
    yield diagnosis.ways_past(asked, known, devices, by_user=bool(settings.node_uids))


def _machine(node_name: str) -> Machine:
    try:
        return load_machine(node_name)
    except SourceError:
        return Machine()  # whose findings said so


def _reachable(host: str, port: int) -> Finding:
    try:
        with socket.create_connection((host, port), _SECONDS):
            return Finding("upstream", "ok", f"{host}:{port} takes connections")
    except OSError as error:
        todo = f"look at the route: ip route get {host}"
        return Finding("upstream", "bad", f"{host}:{port} cannot be reached: {error.strerror or error}", todo)


def _others(own: list[str]) -> Finding:
    """Look for other agents on this node's network; the drop-in may have an old agent's name itself."""
    here = proc.network_of(proc.SELF)
    found = ((pid, name) for pid, network, name in processes() if network == here and name in _OTHERS)
    named = sorted(f"process {pid} ({name})" for pid, name in found)
    others = [each for each in named if each not in own]
    if others:
        return Finding("other agents", "bad", f"{', '.join(others)} may answer in this one's place", "stop one of them")
    return Finding("other agents", "ok", "none by the names that are known")


def _metrics(settings: Settings) -> str:
    """Give the metrics page; empty where there is none."""
    if not settings.metrics_addr:
        return ""
    address, port = address_and_port(settings.metrics_addr)
    return ask((str(address), port), "/metrics", whole=True).decode("utf-8", "replace")
