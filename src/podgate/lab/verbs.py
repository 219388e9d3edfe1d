"""The lab's verbs: from parsed arguments to requests, and from answers to text.

Here: one function per verb. Not here: the arguments themselves (lab/cli.py), the requests (lab/client.py).
Invariant: what is asked for goes to stdout; progress, warnings and complaints go to stderr.
"""

import argparse
import json
import os
import select
import signal
import socket
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from inotify_simple import INotify, flags

from podgate.lab import client
from podgate.lab.client import LabError
from podgate.lab.kinds import Kinds, Object
from podgate.lab.manifests import read_manifests
from podgate.lab.messages import Delete, Execute, Progress, Report
from podgate.lab.objects import Store
from podgate.lab.places import Places
from podgate.model.frozen import ObjectRef


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _manifests(paths: Iterable[str], kinds: Kinds) -> tuple[Object, ...]:
    """Read manifests; complaints go to stderr, and any error stops here."""
    found = read_manifests(paths, kinds)
    for complaint in found.complaints:
        _say(str(complaint))
    if found.failed:
        raise LabError("nothing was applied: correct the errors above", 2)
    return found.objects


def _store(where: Places) -> Store:
    client.require(where)
    return Store(str(where.state))


class _Shown:
    """Progress, each line once."""

    def __init__(self) -> None:
        self._seen: set[str] = set()
        self.last: tuple[str, ...] = ()

    def __call__(self, progress: Progress) -> None:
        for line in (*(f"warning: {warning}" for warning in progress.warnings), *progress.waiting):
            if line not in self._seen:
                self._seen.add(line)
                _say(f"  {line}")
        self.last = progress.waiting


def _await_ready(arguments: argparse.Namespace) -> int:
    shown = _Shown()
    if client.wait(arguments.places, arguments.timeout, shown):
        return 0
    _say(f"podgate lab: not ready after {arguments.timeout:g} s:")
    for line in shown.last:
        _say(f"  {line}")
    _say("podgate lab: the lab goes on; `podgate lab status` and `podgate lab logs` say more")
    return 1


def up(arguments: argparse.Namespace) -> int:
    """Start a lab."""
    where: Places = arguments.places
    objects = _manifests(arguments.paths, Kinds())
    _say(f"lab {where.name}: starting")
    init = client.start(where, attached=arguments.foreground)
    client.apply(where, objects)
    code = _await_ready(arguments)
    if code == 0:
        counts = client.ask(where, Report()).value
        _say(
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
    _say(f"podgate lab: the lab ended by itself:\n{client.last_lines(arguments.places)}")
    return 1


def down(arguments: argparse.Namespace) -> int:
    """End a lab."""
    client.stop(arguments.places, arguments.grace)
    _say(f"lab {arguments.places.name}: ended")
    return 0


def status(arguments: argparse.Namespace) -> int:
    """Show what runs."""
    report = client.ask(arguments.places, Report()).value
    if arguments.output == "json":
        print(json.dumps(report, indent=2))
        return 0
    print(f"lab {report['name']} in {report['state']}\n")
    _table(
        ("NODE", "ADDRESSES", "POD RANGES"),
        [(node["name"], " ".join(node["addresses"]), " ".join(node["podCIDRs"])) for node in report["nodes"]],
    )
    _table(
        ("HOST", "ADDRESSES", "READY"),
        [(host["name"], " ".join(host["addresses"]), "yes" if host["ready"] else "no") for host in report["hosts"]],
    )
    _table(
        ("POD", "NODE", "PHASE", "READY", "RESTARTS", "ADDRESSES"),
        [
            (f"{pod['namespace']}/{pod['name']}", pod["node"] or "-", pod["phase"], "yes" if pod["ready"] else "no",
             str(pod["restarts"]), " ".join(pod["addresses"]))
            for pod in report["pods"]
        ],
    )  # fmt: skip
    for title in ("waiting", "warnings"):
        for line in report[title]:
            print(f"{title.removesuffix('s')}: {line}")
    return 0


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    if not rows:
        return
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


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
    _table(("NAMESPACE", "NAME", "STATUS"), sorted(rows))
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


def _target(text: str) -> tuple[str, str, str]:
    """Give kind, namespace and name of ``[NS/]POD``, ``node/NAME``, ``host/NAME``."""
    before, slash, name = text.partition("/")
    if not slash:
        return "pod", "default", before
    return (before, "", name) if before in ("node", "host") else ("pod", before, name)


def execute(arguments: argparse.Namespace) -> int:
    """Run a command in a container, on a node or on a host."""
    terminal = os.environ.get("TERM", "") if os.isatty(0) else ""
    words = tuple(arguments.words)
    return client.execute(arguments.places, Execute(*_target(arguments.target), words, arguments.container, terminal))


def logs(arguments: argparse.Namespace) -> int:
    """Print a container's output."""
    where: Places = arguments.places
    kind, namespace, name = _target(arguments.target)
    if kind == "node":
        raise LabError("a node has no log of its own; see the lab's own in its state directory: lab.log", 2)
    path = where.container_log(namespace, name, arguments.container or _first_container(where, kind, namespace, name))
    try:
        with path.open("rb") as file:
            _print_log(file.read(), arguments.tail)
            if arguments.follow:
                _follow(path, file.tell())
    except FileNotFoundError:
        there = sorted(entry.stem for entry in path.parent.glob("*.log")) if path.parent.is_dir() else []
        raise LabError(
            f"{arguments.target}: no output of a container {path.stem}; "
            + (f"containers with output: {', '.join(there)}" if there else "nothing of that name ever ran")
        ) from None
    return 0


def _first_container(where: Places, kind: str, namespace: str, name: str) -> str:
    if kind == "host":
        return "host"
    found = _store(where).load().get(ObjectRef("Pod", name, namespace))
    if found is None:
        raise LabError(f"{ObjectRef('Pod', name, namespace)} not found")
    return str(found["spec"]["containers"][0]["name"])


def _print_log(data: bytes, tail: int | None) -> None:
    lines = data.splitlines(keepends=True)
    sys.stdout.buffer.write(b"".join(lines if tail is None else lines[max(len(lines) - tail, 0) :]))
    sys.stdout.buffer.flush()


def _follow(path: Path, offset: int) -> None:
    with INotify() as watch, path.open("rb") as file:
        watch.add_watch(str(path), flags.MODIFY)
        file.seek(offset)
        while True:
            _print_log(file.read(), None)
            watch.read()


def _port(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise LabError(f"{text!r}: say HOST:PORT", 2)
    return host.strip("[]"), int(port)


def forward(arguments: argparse.Namespace) -> int:
    """Relay a port until interrupted."""
    near, target = _port(arguments.near), _port(arguments.far)
    family = socket.AF_INET6 if ":" in near[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((near[0] or "127.0.0.1", near[1]))
        except OSError as error:
            raise LabError(f"cannot listen on {arguments.near}: {error.strerror}") from error
        listener.listen(64)
        client.dial(arguments.places, *target).close()
        host, port = listener.getsockname()[:2]
        print(f"http://{f'[{host}]' if ':' in host else host}:{port} leads to {arguments.far}", flush=True)
        client.forward(arguments.places, listener, *target, _say)
    return 0
