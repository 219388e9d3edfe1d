"""Where the agents of ``./dev soak services`` get their objects from: a folder, and a real API server on bad days.

Here: writing changes in an order in which nobody loses the Services that clients ask; bad days. Not here: what Services
look like (soak_services_objects.py), the agents (soak_services.py).
Invariant: between two events each source answers, and has what was written last.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.support import rest
from podgate.lab.kinds import Object
from tests.support.api_days import DAYS
from tests.support.chaos_proxy import ChaosProxy, Do, in_thread
from tests.support.cluster import ControlPlane
from tests.support.etcd import compact
from tests.support.kube_proxy import relay
from tests.support.kubeconfigs import through
from tests.support.netns import NetNamespace
from tests.support.real_api import RealApi
from tests.support.service_flows import node_objects
from tests.support.services_agent import Folder
from tools.soak_services_objects import BAD, NAMESPACE, Shape, changed, crowd, objects

OTHERS: Final = range(11, 17)
"""Numbers of Services that nobody asks, and that may be anything."""

CROWD: Final = 300
_CONFLICT, _INVALID = 409, 422
_PATHS: Final = {
    "Service": f"/api/v1/namespaces/{NAMESPACE}/services",
    "EndpointSlice": f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices",
}


class Shapes:
    """The Services of one source.

    Attributes:
        there: by number.
    """

    def __init__(self, served: Sequence[Shape], chance: random.Random) -> None:
        self.first = {shape.number: shape for shape in served}
        self.there = dict(self.first)
        self.chance = chance

    def next(self) -> tuple[Shape | None, Shape | None]:
        """Change one, make one or take one away; give it before and after."""
        number = self.chance.choice((*self.first, *OTHERS))
        old = self.there.get(number)
        if old is not None and not old.served and self.chance.random() < 0.3:
            return self.there.pop(number), None
        new = changed(old or Shape(number), self.chance)
        self.there[number] = new
        return old, new


class FolderObjects:
    """A folder; each change is one file, put there at once.

    Attributes:
        words: how a command is told of it.
    """

    def __init__(self, path: Path, served: Sequence[Shape], chance: random.Random) -> None:
        self._folder, self._shapes, self._chance = Folder(path), Shapes(served, chance), chance
        self._crowd = 0
        self.words: tuple[str, ...] = ("--source", str(path))
        self._folder.write(node_objects(""), "nodes")
        self._write()

    def _write(self) -> None:
        self._folder.write(obj for shape in self._shapes.there.values() for obj in objects(shape))

    def change(self) -> None:
        """Change a Service."""
        self._shapes.next()
        self._write()

    def crowd(self) -> None:
        """Have many Services more, or some of them, or none."""
        self._crowd = self._chance.choice((0, CROWD // 3, CROWD))
        self._folder.write(crowd(self._crowd), "crowd")

    def bad(self) -> None:
        """Have some bad objects, or none."""
        self._folder.write((obj for obj in BAD if self._chance.random() < 0.4), "bad")

    def away(self) -> None:
        """Move the folder away and back."""
        away = self._folder.path.with_name("away")
        self._folder.path.rename(away)
        rest(self._chance.uniform(0.0, 1.0))
        away.rename(self._folder.path)

    def reset(self) -> None:
        """Have the first Services, and nothing else."""
        self._shapes.there = dict(self._shapes.first)
        for name in ("crowd", "bad"):
            self._folder.write((), name)
        self._write()


class ApiObjects:
    """A real API server, behind a proxy that misbehaves.

    Attributes:
        words: how a command is told of it.
    """

    def __init__(self, plane: ControlPlane, proxy: ChaosProxy, do: Do, shapes: Shapes, folder: Path) -> None:
        self._plane, self._proxy, self._do, self._shapes = plane, proxy, do, shapes
        self._ask("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
        for node in node_objects(""):
            self._ask("POST", "/api/v1/nodes", node)
        for shape in shapes.there.values():
            self._put(list(objects(shape)))
        self.words: tuple[str, ...] = ("--kubeconfig", str(through(proxy, plane, folder)))

    @contextmanager
    def reachable(self, node: NetNamespace) -> Iterator[None]:
        """Make it reachable on a node's loopback for the body."""
        with relay(self._plane, node, self._proxy.port):
            yield

    def change(self) -> None:
        """Change a Service, object by object."""
        self._write(*self._shapes.next())

    def _write(self, old: Shape | None, new: Shape | None) -> None:
        if old and new:
            self._put(list(objects(new, old)))
        wanted = list(objects(new)) if new else []
        self._put(wanted)
        for gone in {path(obj) for obj in (objects(old) if old else ())} - {path(obj) for obj in wanted}:
            self._ask("DELETE", gone)

    def _put(self, found: Sequence[Object]) -> None:
        for obj in found:
            where = path(obj)
            code = self._ask("PUT", where, obj)
            if code == _INVALID:  # a field that no update may change
                self._ask("DELETE", where)
            if code not in (200, 201):
                code = self._ask("POST", where.rpartition("/")[0], obj)
            if code not in (200, 201):
                raise AssertionError(f"{where}: {code}: {obj}")

    def _ask(self, verb: str, where: str, body: Any = None) -> int:
        return self._plane.request(verb, where, body)[0]

    def bad_answer(self) -> None:
        """Have the next requests answered badly, slowly, or in part."""
        fault = self._shapes.chance.choice(list(DAYS.values()))
        self._do(lambda: self._proxy.strike(fault, fault))
        self.cut()

    def cut(self) -> None:
        """Cut every connection, so that agents ask again."""
        self._do(self._proxy.cut_all)

    def compact(self) -> None:
        """Have etcd forget its history."""
        compact(self._plane)

    def kill(self) -> None:
        """Kill the API server, and start it a while later; it has forgotten its history, too."""
        self._plane.stop_part("kube-apiserver")
        rest(self._shapes.chance.uniform(0.0, 3.0))
        self._plane.start_part("kube-apiserver")

    def calm(self) -> None:
        """Answer well from now on."""
        self._do(self._proxy.calm)

    def reset(self) -> None:
        """Have the first Services, and nothing else."""
        for number in {*self._shapes.there, *self._shapes.first}:
            self._write(self._shapes.there.get(number), self._shapes.first.get(number))
        self._shapes.there = dict(self._shapes.first)


def path(obj: Object) -> str:
    """Give where an object stands."""
    return f"{_PATHS[obj['kind']]}/{obj['metadata']['name']}"


@contextmanager
def api_objects(
    plane: ControlPlane, served: Sequence[Shape], chance: random.Random, folder: Path
) -> Iterator[ApiObjects]:
    """Have the API server behind its proxy for the body."""
    with in_thread(plane.server, RealApi(plane).upstream) as (proxy, do):
        yield ApiObjects(plane, proxy, do, Shapes(served, chance), folder)
