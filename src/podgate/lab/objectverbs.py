"""The lab's verbs that read manifests or objects: up, apply, get, delete.

Here: one function per verb. Not here: the verbs that only talk to the daemon (lab/verbs.py), which start faster so.
Invariant: what is asked for goes to stdout; progress, warnings and complaints go to stderr.
"""

import argparse
import json
import os
import select
import signal
from collections.abc import Iterable, Mapping
from typing import Any

from podgate.lab import client
from podgate.lab.client import LabError
from podgate.lab.kinds import Kinds, Object
from podgate.lab.manifests import read_manifests
from podgate.lab.messages import Delete, Progress, Report
from podgate.lab.objects import Store
from podgate.lab.places import Places
from podgate.lab.verbs import say, table
from podgate.model.frozen import ObjectRef


def _manifests(paths: Iterable[str], kinds: Kinds) -> tuple[Object, ...]:
    """Read manifests; complaints go to stderr, and any error stops here."""
    found = read_manifests(paths, kinds)
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


def _await_ready(arguments: argparse.Namespace) -> int:
    shown = Shown()
    if client.wait(arguments.places, arguments.timeout, shown):
        return 0
    say(f"podgate lab: not ready after {arguments.timeout:g} s:")
    for line in shown.last:
        say(f"  {line}")
    say("podgate lab: the lab goes on; `podgate lab status` and `podgate lab logs` say more")
    return 1


def up(arguments: argparse.Namespace) -> int:
    """Start a lab."""
    where: Places = arguments.places
    objects = _manifests(arguments.paths, Kinds())
    say(f"lab {where.name}: starting")
    init = client.start(where, attached=arguments.foreground)
    client.apply(where, objects)
    code = _await_ready(arguments)
    if code == 0:
        counts = client.ask(where, Report()).value
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
        client.stop(arguments.places, 2.0)
        return 0
    result = os.waitid(os.P_PIDFD, ended, os.WEXITED)
    if result is not None and result.si_status == 0:
        return 0  # `lab down` ended it.
    say(f"podgate lab: the lab ended by itself:\n{client.last_lines(arguments.places)}")
    return 1


def apply(arguments: argparse.Namespace) -> int:
    """Apply manifests."""
    store = _store(arguments.places)
    store.load()
    objects = _manifests(arguments.paths, store.kinds)
    for line in client.apply(arguments.places, objects):
        print(line)
    return _await_ready(arguments) if arguments.wait else 0


def _kind_of(store: Store, word: str) -> str:
    resource = store.kinds.named(word)
    if resource is None:
        raise LabError(f"no kind is called {word!r}; known: {', '.join(store.kinds.names())}", 2)
    return resource.kind


def get(arguments: argparse.Namespace) -> int:
    """Show objects."""
    store = _store(arguments.places)
    objects = store.load()
    kind = _kind_of(store, arguments.kind)
    resource = store.kinds.named(arguments.kind)
    namespaced = resource is not None and resource.namespaced
    chosen = [value for ref, value in objects.items() if ref.kind == kind]
    if arguments.namespace and namespaced:
        chosen = [value for value in chosen if value["metadata"].get("namespace") == arguments.namespace]
    if arguments.object:
        namespace = (arguments.namespace or "default") if namespaced else ""
        found = objects.get(ObjectRef(kind, arguments.object, namespace))
        if found is None:
            raise LabError(f"{ObjectRef(kind, arguments.object, namespace)} not found")
        chosen = [found]
    if arguments.output == "json":
        print(json.dumps(chosen[0] if arguments.object else {"kind": "List", "items": chosen}, indent=2))
        return 0
    rows = [(v["metadata"].get("namespace") or "-", v["metadata"]["name"], _summary(v)) for v in chosen]
    table(("NAMESPACE", "NAME", "STATUS"), sorted(rows))
    return 0


def _summary(value: Mapping[str, Any]) -> str:
    """Give what matters most of an object's status in a few words."""
    held = value.get("status") or {}
    parts = [str(held["phase"])] if "phase" in held else []
    parts += [f"{c['type']}={c['status']}" for c in held.get("conditions") or () if c.get("type") == "Ready"]
    parts += [entry["ip"] for entry in held.get("podIPs") or () if "ip" in entry]
    for have, want in (("numberReady", "desiredNumberScheduled"), ("readyReplicas", "replicas")):
        if want in held:
            parts.append(f"{held.get(have, 0)}/{held[want]} ready")
    return " ".join(parts)


def delete(arguments: argparse.Namespace) -> int:
    """Delete objects."""
    store = _store(arguments.places)
    store.load()
    refs: list[tuple[str, str, str]] = []
    for text in arguments.objects:
        word, slash, name = text.partition("/")
        if not slash or not name:
            raise LabError(f"{text!r}: say KIND/NAME, as pod/web", 2)
        kind = _kind_of(store, word)
        resource = store.kinds.named(word)
        namespace = (arguments.namespace or "default") if resource is not None and resource.namespaced else ""
        refs.append((kind, namespace, name))
    client.ask(arguments.places, Delete(tuple(refs), wait=not arguments.no_wait))
    for kind, namespace, name in refs:
        print(f"{ObjectRef(kind, name, namespace)} deleted")
    return 0
