"""The lab's verbs that read manifests or objects: up, apply, get, delete.

Here: one function per verb. Not here: the verbs that only talk to the daemon (lab/verbs.py), which start faster so.
Invariant: what is asked for goes to stdout; progress, warnings and complaints go to stderr.
"""

import argparse
import importlib
import json
import os
import select
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from podgate.lab import client
from podgate.lab.fields import unhonoured
from podgate.lab.kinds import Kinds, Object, Resource, ref_of
from podgate.lab.kubejoin import Join
from podgate.lab.manifests import read_manifests
from podgate.lab.messages import Delete, Describe, LabError, ObjectVersion, Progress
from podgate.lab.objects import Store
from podgate.lab.places import Places
from podgate.lab.verbs import say, table
from podgate.model.frozen import ObjectRef

ENFORCEABLE: Final = ("cpu", "memory")
"""The limits that a lab enforces when it was started so."""


def _manifests(paths: Iterable[str], kinds: Kinds, *, joined: bool) -> tuple[Object, ...]:
    """Read manifests; complaints go to stderr, and any error stops here."""
    found = read_manifests(paths, kinds, joined=joined)
    for complaint in found.complaints:
        say(str(complaint))
    if found.failed:
        raise LabError("nothing was applied: correct the errors above", 2)
    return found.objects


def _store(where: Places) -> Store:
    client.require(where)
    return Store(str(where.state))


class Shown:
    """Progress, each line once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.last: tuple[str, ...] = ()

    def __call__(self, progress: Progress) -> None:
        for line in (*(f"warning: {warning}" for warning in progress.warnings), *progress.waiting):
            if line not in self._seen:
                self._seen.add(line)
                say(f"  {line}")
        self.last = progress.waiting


def _await_ready(arguments: argparse.Namespace, versions: tuple[ObjectVersion, ...] = ()) -> int:
    shown = Shown()
    if client.wait(arguments.places, arguments.timeout, shown, versions):
        return 0
    say(f"podgate lab: not ready after {arguments.timeout:g} s:")
    for line in shown.last:
        say(f"  {line}")
    more = " and ".join(f"`{arguments.places.command(verb)}`" for verb in ("status", "logs"))
    say(f"podgate lab: the lab goes on; {more} say more")
    return 1


def up(arguments: argparse.Namespace) -> int:
    """Start a lab."""
    where: Places = arguments.places
    joined = _join(arguments)
    kinds = clusterverbs().known_kinds(joined) if joined else Kinds()
    objects = _manifests(arguments.paths, kinds, joined=joined is not None)
    say(f"lab {where.name}: starting")
    if joined:
        clusterverbs().prepare(joined)
    init = client.start(where, attached=arguments.foreground, limits=arguments.limits, joined=joined)
    _, versions = _applied(where, objects, kinds)
    code = _await_ready(arguments, versions)
    if code == 0:
        counts = client.ask(where, Describe()).value
        say(
            f"lab {where.name}: ready with {len(counts['nodes'])} nodes, {len(counts['pods'])} Pods, "
            f"{len(counts['hosts'])} hosts; state in {where.state}"
        )
    return _stay(arguments, init) if arguments.foreground else code


def _stay(arguments: argparse.Namespace, init: int) -> int:
    """Wait for the lab's end, or end it when interrupted."""
    ended = os.pidfd_open(init)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    try:
        select.select([ended], [], [])
    except KeyboardInterrupt:
        client.end(arguments.places, 2.0)
        return 0
    result = os.waitid(os.P_PIDFD, ended, os.WEXITED)
    if result is not None and result.si_status == 0:
        return 0  # `lab down` ended it.
    say(f"podgate lab: the lab ended by itself:\n{client.last_lines(arguments.places)}")
    return 1


def apply(arguments: argparse.Namespace) -> int:
    """Apply manifests."""
    kinds = _kinds(arguments.places)
    objects = _manifests(arguments.paths, kinds, joined=client.joined_by(arguments.places) is not None)
    if not objects:
        raise LabError(f"nothing was applied: no objects in {', '.join(arguments.paths)}")
    if not arguments.wait:  # Waiting tells what a Pod that runs asks for in vain.
        for obj in objects:
            for text in _in_vain(obj):
                say(f"warning: {ref_of(obj)}: {text}")
    lines, versions = _applied(arguments.places, objects, kinds)
    for line in lines:
        print(line)
    return _await_ready(arguments, versions) if arguments.wait else 0


def _in_vain(obj: Object) -> tuple[str, ...]:
    """Say which fields of a Pod, or of the Pods of a workload, are not honoured; of limits the lab itself tells."""
    if obj["kind"] == "Pod":
        return unhonoured(obj, ENFORCEABLE)
    if obj["kind"] in ("DaemonSet", "Deployment", "ReplicaSet"):
        return tuple(f"template: {text}" for text in unhonoured(obj["spec"]["template"], ENFORCEABLE))
    return ()


def _join(arguments: argparse.Namespace) -> Join | None:
    if not arguments.kubeconfig:
        return None
    joined: Join = clusterverbs().joining(arguments.kubeconfig, arguments.context)
    return joined


def clusterverbs() -> ModuleType:
    """Give the verbs of a lab that has joined a cluster; one that has not needs no HTTP client."""
    return importlib.import_module("podgate.lab.kubeverbs")


def _kinds(where: Places) -> Kinds:
    """Give the kinds that a running lab knows."""
    joined = client.joined_by(where)
    if joined:
        client.require(where)
        found: Kinds = clusterverbs().known_kinds(joined)
        return found
    store = _store(where)
    store.load()
    return store.kinds


def _applied(
    where: Places, objects: Sequence[Object], kinds: Kinds
) -> tuple[tuple[str, ...], tuple[ObjectVersion, ...]]:
    """Apply objects; give a line per object, and the versions that an API server gave them."""
    joined = client.joined_by(where)
    if joined is None:
        return client.apply(where, objects), ()
    lines: tuple[str, ...]
    versions: tuple[ObjectVersion, ...]
    lines, versions = clusterverbs().apply_objects(joined, where.name, objects, kinds)
    return lines, versions


def _resource(kinds: Kinds, word: str) -> Resource:
    resource = kinds.named(word)
    if resource is None:
        near = kinds.near(word)
        known = f"did you mean {near!r}?" if near else f"known: {', '.join(kinds.names())}"
        raise LabError(f"no kind is called {word!r}; {known}", 2)
    return resource


def _objects(where: Places, resource: Resource) -> list[Object]:
    """Give the objects of a kind."""
    joined = client.joined_by(where)
    if joined:
        found: list[Object] = clusterverbs().listed(joined, resource)
        return found
    return [value for ref, value in _store(where).load().items() if ref.kind == resource.kind]


def get(arguments: argparse.Namespace) -> int:
    """Show objects."""
    kind, _, named = arguments.kind.partition("/")
    name = arguments.object or named
    resource = _resource(_kinds(arguments.places), kind)
    chosen = _objects(arguments.places, resource)
    if arguments.namespace and resource.namespaced:
        chosen = [value for value in chosen if value["metadata"].get("namespace") == arguments.namespace]
    if name:
        namespace = (arguments.namespace or "default") if resource.namespaced else ""
        wanted = ObjectRef(resource.kind, name, namespace)
        chosen = [value for value in chosen if _is(value, wanted)]
        if not chosen:
            raise LabError(f"{wanted} not found")
    if arguments.output == "json":
        print(json.dumps(chosen[0] if name else {"kind": "List", "items": chosen}, indent=2))
        return 0
    rows = [(v["metadata"].get("namespace") or "-", v["metadata"]["name"], _summary(v)) for v in chosen]
    table(("NAMESPACE", "NAME", "STATUS"), sorted(rows))
    return 0


def _is(value: Object, ref: ObjectRef) -> bool:
    metadata = value["metadata"]
    return (metadata["name"], metadata.get("namespace") or "") == (ref.name, ref.namespace)


def _summary(value: Mapping[str, Any]) -> str:
    """Give what matters most of an object's status in a few words."""
    held = value.get("status") or {}
    parts = [str(held["phase"])] if "phase" in held else []
    parts += [f"{c['type']}={c['status']}" for c in held.get("conditions") or () if c.get("type") == "Ready"]
    parts += [entry["ip"] for entry in held.get("podIPs") or () if "ip" in entry]
    for have, want in (("numberReady", "desiredNumberScheduled"), ("readyReplicas", "replicas")):
        if want in held:
            parts.append(f"{held.get(have, 0)}/{held[want]} ready")
    parts += _services(value)
    return " ".join(parts)


def _services(value: Mapping[str, Any]) -> Iterator[str]:
    """Say where a Service is, or how many endpoints of a slice are ready."""
    if value.get("kind") == "Service":
        spec = value.get("spec") or {}
        yield spec.get("type", "ClusterIP")
        yield from spec.get("clusterIPs", ())
        for port in spec.get("ports", ()):
            node_port = f":{port['nodePort']}" if port.get("nodePort") else ""
            yield f"{port['port']}{node_port}/{port.get('protocol', 'TCP')}"
    if value.get("kind") == "EndpointSlice":
        ready = [(one.get("conditions") or {}).get("ready", True) for one in value.get("endpoints") or ()]
        yield f"{value['addressType']} {sum(ready)}/{len(ready)} ready"


def delete(arguments: argparse.Namespace) -> int:
    """Delete objects."""
    kinds = _kinds(arguments.places)
    joined = client.joined_by(arguments.places)
    refs: list[tuple[Resource, ObjectRef]] = []
    for text in arguments.objects:
        word, slash, name = text.partition("/")
        if not slash or not name:
            raise LabError(f"{text!r}: say KIND/NAME, as pod/web", 2)
        resource = _resource(kinds, word)
        namespace = (arguments.namespace or "default") if resource.namespaced else ""
        refs.append((resource, ObjectRef(resource.kind, name, namespace)))
    if joined:
        clusterverbs().delete(joined, refs, wait=not arguments.no_wait)
    else:
        named = tuple((ref.kind, ref.namespace, ref.name) for _, ref in refs)
        client.ask(arguments.places, Delete(named, wait=not arguments.no_wait))
    for _, ref in refs:
        print(f"{ref} deleted")
    return 0
