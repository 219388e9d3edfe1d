"""What programs get of each verb: docs/guide/json.md has the table, and the verbs are asked.

Here: the keys of real answers. Not here: what stands in them (tests of each verb).
Invariant: each verb of the page is asked here, or it says here why not.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from podgate import cli
from podgate.admin.addons.keeping import Pass, told
from podgate.commandline.findings import Finding, answered
from tests.admin.test_relabelling import serving
from tests.support.agent import podgate
from tests.support.netns import NetNamespace, netns
from tests.support.virtual_time import in_virtual_time_over_sockets

pytestmark = [pytest.mark.slow, pytest.mark.kernel]

PAGE: Final = Path(__file__).parent.parent / "docs/guide/json.md"
NOT_ASKED: Final = {
    "podgate lab list": "a lab has to run",
    "podgate lab status": "a lab has to run",
    "podgate lab get KIND": "a lab has to run",
}

Shape = Mapping[str, Any]
"""Keys, with ``?`` where they may be missing, and what stands in them: None for anything, or a list's shape."""


def rows() -> dict[str, str]:
    """Give the page's table: verbs and shapes."""
    found: dict[str, str] = {}
    for first, last in re.findall(r"^\| (.+?) \| (.+) \|$", PAGE.read_text(), re.MULTILINE):
        for verb in re.findall(r"`(podgate [^`]+)`", first) or [first]:
            found[verb] = re.findall(r"`(.+?)`", last)[0] if "`" in last else ""
    return {verb: shape for verb, shape in found.items() if shape}


def read_shape(text: str) -> tuple[bool, Shape]:
    """Read a shape: whether it is a list of such objects, and the object."""
    words = re.findall(r"[][{}:]|\w+\??", text)
    is_list = words[0] == "["
    return is_list, _object(iter(words[is_list:]))


def _object(words: Iterator[str]) -> Shape:
    assert next(words) == "{"
    found: dict[str, Any] = {}
    name = ""
    for word in words:
        if word == "}":
            break
        if word == ":":
            assert next(words) == "["
            found[name] = _object(words)
            assert next(words) == "]"
        else:
            name = word
            found[name] = None
    return found


def misfits(shape: Shape, value: Any) -> Iterator[str]:
    """Say what in an object is not as the page says."""
    required = {name for name in shape if not name.endswith("?")}
    known = {name.removesuffix("?"): inner for name, inner in shape.items()}
    yield from (f"no {name}" for name in sorted(required - value.keys()))
    yield from (f"{name} is not on the page" for name in value.keys() - known.keys())
    for name, inner in known.items():
        for each in value.get(name, ()) if inner is not None else ():
            yield from (f"{name}: {fault}" for fault in misfits(inner, each))


CONFIG: Final = "nonMasqueradeCIDRs: [10.16.0.0/14, 10.17.0.0/16]\n"
SERVICE: Final = """
apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}
"""
SOURCE: Final = ("--source", "FOLDER/source")
OPTIONS: Final[Mapping[str, Sequence[str]]] = {
    "masquerade": (*SOURCE, "--config", "FOLDER/config"),
    "metadata": (),
    "services": SOURCE,
}
QUESTIONS: Final = {"masquerade": ("10.0.0.1",), "metadata": ("/computeMetadata/v1/",), "services": ("10.96.0.10", "?")}

Ask = Callable[..., Any]


@pytest.fixture(scope="module")
def node() -> Iterator[NetNamespace]:
    with netns() as made:
        yield made


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str], node: NetNamespace, tmp_path: Path) -> Ask:
    """Ask podgate on a node; give what a program reads."""
    (tmp_path / "source").mkdir()
    (tmp_path / "source" / "web.yaml").write_text(SERVICE)
    (tmp_path / "config").write_text(CONFIG)

    def asked(*words: str) -> Any:
        given = [word.replace("FOLDER", str(tmp_path)) for word in (*words, "--output", "json")]
        if words[1] in ("plan", "clean"):  # they leave their sockets to the end of the process
            return podgate(*given, namespace=node).json
        assert node.call(lambda: cli.main(given)) in (0, 1, 2)
        return json.loads(capsys.readouterr().out)

    return asked


def answers(ask: Ask) -> Iterator[tuple[str, Any]]:
    """Give real answers, by the page's word for the verb."""
    for feature, options in OPTIONS.items():
        state = ("--state-dir", "FOLDER/state") if feature != "metadata" else ()
        yield f"podgate {feature} render", ask(feature, "render", *options)
        yield f"podgate {feature} explain", ask(feature, "explain", *QUESTIONS[feature], *options)
        yield "podgate FEATURE check", ask(feature, "check", *options)
        yield "podgate FEATURE plan", ask(feature, "plan", *options, *state)
        yield "podgate FEATURE clean", ask(feature, "clean", *state)
        if feature != "metadata":
            yield "the same with `--backend iptables`", ask(feature, "render", *options, "--backend", "iptables")
    doctors = answered([Finding("port 988", "bad", "nobody listens", "start it")]).data
    yield from ((f"podgate {doctor}", doctors) for doctor in ("doctor", "metadata doctor"))
    yield "podgate addon reconcile", told(Pass(complaints=("a.yaml:1: it is no object",)), "").data
    for dry in (False, True):
        yield "podgate metadata kube-up migrate-labels", _migrated(dry=dry)


def _migrated(*, dry: bool) -> Any:
    found: list[Any] = []

    @in_virtual_time_over_sockets
    async def migrate() -> None:
        async with serving() as server:
            found.append((await server.migrate(dry=dry)).data)

    migrate()
    return found[0]


def test_each_verb_gives_what_the_page_says(ask: Ask) -> None:
    page = rows()
    seen = set()
    for verb, answer in answers(ask):
        is_list, shape = read_shape(page[verb])
        assert isinstance(answer, list) is is_list, verb
        entries = answer if is_list else [answer]
        assert [fault for each in entries for fault in misfits(shape, each)] == [], verb
        seen.add(verb)
    assert page.keys() - seen == NOT_ASKED.keys()
    assert {"errors": ["podgate services explain: "]}.keys() == ask("services", "explain", "?", *SOURCE).keys()
