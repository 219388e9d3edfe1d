"""What a lab says about itself, and the messages that carry it."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest

from podgate.lab import client, objectverbs, verbs
from podgate.lab.cluster import Cluster
from podgate.lab.containers import Installation
from podgate.lab.messages import (
    Answer,
    Apply,
    Done,
    Execute,
    Failed,
    LabError,
    Progress,
    Request,
    receive,
    send,
    socket_address,
    taken,
)
from podgate.lab.objects import Store
from podgate.lab.places import Places, lock
from podgate.lab.pods import wanted
from podgate.lab.rootfs import MachineRoot
from podgate.model.frozen import ObjectRef

NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": "node-1"},
    "spec": {"podCIDRs": ["10.16.1.0/24"]},
    "status": {"addresses": [{"type": "InternalIP", "address": "10.140.15.217"}]},
}
HOST = {
    "apiVersion": "lab.podgate.dev/v1",
    "kind": "Host",
    "metadata": {"name": "partner"},
    "spec": {"addresses": ["10.70.0.2"]},
}


def pod(name: str, **status: Any) -> dict[str, Any]:
    spec = {"nodeName": "node-1", "containers": [{"name": "main", "image": "x", "command": ["true"]}]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec, "status": status}


def holding(folder: Path, *objects: dict[str, Any]) -> Cluster:
    """Give a cluster that knows objects and runs nothing."""
    where = Places(str(folder), "lab")
    where.state.mkdir(exist_ok=True)
    store = Store.create(str(where.state))
    for obj in objects:
        store.apply(obj)
    cluster = Cluster(where, store, Installation(MachineRoot(), "/py", "/setpriv", "/bin", "/objects"))
    cluster.objects = store.load()
    cluster.want = wanted(cluster.objects)
    return cluster


READY = {"phase": "Running", "podIPs": [{"ip": "10.16.1.6"}], "conditions": [{"type": "Ready", "status": "True"}]}
CRASHING = {
    "phase": "Running",
    "containerStatuses": [
        {
            "name": "main", "restartCount": 4, "ready": False,
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": {"terminated": {"exitCode": 3}},
        }
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("status", "line"),
    [
        (READY, None),
        ({"phase": "Succeeded"}, None),
        ({"phase": "Failed"}, "Pod/default/web: Failed"),
        ({}, "Pod/default/web: Pending"),
        (CRASHING, "Pod/default/web: main: CrashLoopBackOff: last exit code 3"),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "no node fits"}]},
            "Pod/default/web: no node fits",
        ),
    ],
)
def test_what_is_not_ready_is_said_with_the_reason(tmp_path: Path, status: dict[str, Any], line: str | None) -> None:
    assert holding(tmp_path, NODE, pod("web", **status)).waiting() == ((line,) if line else ())


def test_a_pod_that_ends_is_waited_for(tmp_path: Path) -> None:
    cluster = holding(tmp_path, NODE, pod("web", **READY))
    cluster.store.delete(ObjectRef("Pod", "web", "default"))
    cluster.objects = cluster.store.load()
    assert cluster.waiting() == ("Pod/default/web: ending",)


def test_an_object_that_makes_no_sense_is_waited_for(tmp_path: Path) -> None:
    bad = pod("web", **READY)
    bad["status"] = {"podIPs": [{"ip": "10.140.15.217"}]}
    assert any("10.140.15.217 is the address of Node/node-1" in line for line in holding(tmp_path, NODE, bad).waiting())


def test_the_report_says_who_is_where(tmp_path: Path) -> None:
    report = holding(tmp_path, NODE, HOST, pod("web", **(READY | CRASHING))).report()
    assert report["nodes"] == [{"name": "node-1", "addresses": ["10.140.15.217/24"], "podCIDRs": ["10.16.1.0/24"]}]
    assert report["hosts"] == [{"name": "partner", "addresses": ["10.70.0.2"], "ready": False}]
    (line,) = report["pods"]
    assert (line["name"], line["node"], line["restarts"], line["addresses"]) == ("web", "node-1", 4, ["10.16.1.6"])


@pytest.mark.parametrize(
    ("target", "address"),
    [
        ("web", "10.16.1.6"), ("default/web", "10.16.1.6"), ("other/web", None), ("node/node-1", "10.140.15.217"),
        ("host/partner", "10.70.0.2"), ("partner", "10.70.0.2"), ("node/none", None),
    ],
)  # fmt: skip
def test_names_lead_to_addresses(tmp_path: Path, target: str, address: str | None) -> None:
    assert holding(tmp_path, NODE, HOST, pod("web", **READY)).address_of(target) == address


def test_a_warning_is_given_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = holding(tmp_path)
    cluster.warn("no IPv6 here")
    cluster.warn("no IPv6 here")
    assert capsys.readouterr().out == "warning: no IPv6 here\n"
    assert cluster.report()["warnings"] == ["no IPv6 here"]


# --- messages ---


@pytest.mark.parametrize(
    "message",
    [Apply(), Execute("pod", "default", "web", ("sh", "-c", "x"), "c", "xterm")],
)
def test_a_request_arrives_whole_with_its_descriptors(message: Request) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far, Path(os.devnull).open("rb") as null:
        send(near, message, (null.fileno(),))
        arrived: tuple[Request, list[int]] | None = taken(far, Request)  # type: ignore[arg-type]
        assert arrived is not None
        assert arrived[0] == message
        assert os.path.samestat(os.fstat(arrived[1][0]), os.fstat(null.fileno()))
        os.close(arrived[1][0])
        near.close()
        assert taken(far, Request) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("answer", [Done(3, ("x",), {"a": [1]}), Failed("not there", 2)])
def test_an_answer_arrives_as_it_was(answer: Answer) -> None:
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with near, far:
        send(near, answer)
        assert receive(far) == (answer, [])


def test_a_socket_may_lie_deeper_than_its_address_is_long(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["deep" * 10] * 5)
    deep.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        address, folder = socket_address(deep / "control.sock")
        listener.bind(address)
        os.close(folder)
    assert (deep / "control.sock").is_socket()


# --- the client without a lab ---


def test_without_a_lab_every_question_says_how_to_start_one(tmp_path: Path) -> None:
    for ask in (client.require, lambda where: client.stop(where, 1.0), lambda where: client.dial(where, "x", 1)):
        with pytest.raises(LabError, match="lab gone is not running: start it with `podgate lab up --name gone DIR`"):
            ask(Places(str(tmp_path), "gone"))


@pytest.mark.kernel
def test_a_lab_whose_lock_is_held_is_not_started_again(tmp_path: Path) -> None:
    where = Places(str(tmp_path), "held")
    held = lock(where)
    assert held is not None
    try:
        with pytest.raises(LabError, match="lab held runs already"):
            client.start(where)
    finally:
        os.close(held)


def test_the_end_of_the_log_is_shown(tmp_path: Path) -> None:
    where = Places(str(tmp_path), "lab")
    assert "No such file" in client.last_lines(where)
    where.state.mkdir()
    where.log.write_text("".join(f"{number}\n" for number in range(30)))
    assert client.last_lines(where, 2) == "28\n29"


def test_tables_line_up(capsys: pytest.CaptureFixture[str]) -> None:
    verbs.table(("NAME", "X"), [("a", "1"), ("longer", "2")])
    verbs.table(("NAME",), [])
    assert capsys.readouterr().out == "NAME    X\na       1\nlonger  2\n\n"


def test_a_progress_line_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    shown = objectverbs.Shown()
    for _ in range(2):
        shown(Progress(("Pod/default/web: Pending",), ("no IPv6",)))
    assert capsys.readouterr().err == "  warning: no IPv6\n  Pod/default/web: Pending\n"
    assert shown.last == ("Pod/default/web: Pending",)


def test_references_are_made_of_kind_namespace_and_name() -> None:
    assert str(ObjectRef("Pod", "web", "default")) == "Pod/default/web"
