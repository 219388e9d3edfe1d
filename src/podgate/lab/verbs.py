"""The lab's verbs that talk to a lab that runs: down, status, exec, logs, forward.

Here: one function per verb. Not here: arguments (lab/cli.py), requests (lab/client.py), objects (lab/objectverbs.py).
Invariant: what is asked for goes to stdout; progress, warnings and complaints go to stderr.
"""

import argparse
import json
import os
import socket
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from inotify_simple import INotify, flags

from podgate.lab import client
from podgate.lab.messages import Describe, Execute, LabError
from podgate.lab.places import DEFAULT_NAME, Places, folders


def say(text: str) -> None:
    """Print for people, beside what was asked for."""
    print(text, file=sys.stderr, flush=True)


def down(arguments: argparse.Namespace) -> int:
    """End a lab."""
    client.end(arguments.places, arguments.grace)
    say(f"lab {arguments.places.name}: ended")
    return 0


def labs(arguments: argparse.Namespace) -> int:
    """Show which labs run."""
    found: list[dict[str, Any]] = []
    for where in _folders():
        try:
            nodes = [node["name"] for node in client.ask(where, Describe()).value["nodes"]]
            since = datetime.fromtimestamp(where.socket.stat().st_mtime, UTC).isoformat(timespec="seconds")
        except (LabError, FileNotFoundError) as error:
            say(str(error))
        else:
            found.append({"name": where.name, "nodes": nodes, "since": since})
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    elif found:
        table(
            ("NAME", "NODES", "RUNNING SINCE"),
            [(each["name"], " ".join(each["nodes"]), each["since"]) for each in found],
        )
    else:
        say("no lab runs")
    return 0


def _folders() -> tuple[Places, ...]:
    try:
        return folders()
    except PermissionError as error:
        raise LabError(f"{error.filename} belongs to root: run this with sudo") from error


def _others(where: Places) -> str:
    """Say which other labs run, for whoever named none; empty when none does."""
    if where.name != DEFAULT_NAME:
        return ""
    names = [each.name for each in _folders() if each.name != where.name and client.answers(each)]
    return f"other labs run: {', '.join(names)} (--name)" if names else ""


def status(arguments: argparse.Namespace) -> int:
    """Show what runs."""
    others = _others(arguments.places)
    try:
        report = client.ask(arguments.places, Describe()).value
    except LabError as error:
        raise LabError(f"{error}{'; ' if others else ''}{others}", error.code) from error
    if arguments.output == "json":
        print(json.dumps(report, indent=2))
        return 0
    print(f"lab {report['name']} in {report['state']}\n")
    table(
        ("NODE", "ADDRESSES", "POD RANGES"),
        [(node["name"], " ".join(node["addresses"]), " ".join(node["podCIDRs"])) for node in report["nodes"]],
    )
    table(
        ("HOST", "ADDRESSES", "READY"),
        [(host["name"], " ".join(host["addresses"]), "yes" if host["ready"] else "no") for host in report["hosts"]],
    )
    table(
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
    if others:
        print(others)
    return 0


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> None:
    """Print a table and an empty line; nothing without rows."""
    if not rows:
        return
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    for row in (head, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print()


def _target(text: str, default: str = "default") -> tuple[str, str, str]:
    """Give kind, namespace and name of ``[NS/]POD``, ``node/NAME``, ``host/NAME``; ``default`` is the namespace."""
    before, slash, name = text.partition("/")
    if not slash:
        return "pod", default, before
    return (before, "", name) if before in ("node", "host") else ("pod", before, name)


def execute(arguments: argparse.Namespace) -> int:
    """Run a command in a container, on a node or on a host."""
    terminal = os.environ.get("TERM", "") if os.isatty(0) else ""
    words = tuple(arguments.words)
    where = _target(arguments.target, arguments.namespace)
    return client.execute(arguments.places, Execute(*where, words, arguments.container, terminal))


def logs(arguments: argparse.Namespace) -> int:
    """Print a container's output."""
    where: Places = arguments.places
    kind, namespace, name = _target(arguments.target, arguments.namespace)
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
    for pod in client.ask(where, Describe()).value["pods"]:
        if (pod["namespace"], pod["name"]) == (namespace, name):
            return str(pod["containers"][0])
    known = "logs takes a Pod as [NAMESPACE/]NAME, and podgate lab get pods -A lists them"
    raise LabError(f"Pod/{namespace}/{name} not found: {known}")


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
        client.forward(arguments.places, listener, *target, say)
    return 0
