"""The command line as users meet it: words, exit codes, messages, and what a process loads and touches."""

import json
import re
from pathlib import Path

import pytest

from podgate.cli import FEATURES, VERBS, FeatureEntry, main
from podgate.commandline.options import options_of
from podgate.features.masquerade.settings import Settings
from tests.support.agent import OF_SHELLS

GOOD = "nonMasqueradeCIDRs:\n- 10.16.0.0/14   # Pods\n- 10.140.0.0/20\n"
BAD = "nonMasqueradeCIDRs:\n- 10.0.0.1/8\n- abc\nmasqLinkLocl: true\nresyncInterval: 60\n"
MANIFESTS = """\
apiVersion: v1
kind: Node
metadata: {name: node-1}
spec: {podCIDRs: [10.16.1.0/24]}
---
apiVersion: v1
kind: Pod
metadata: {name: web, namespace: shop}
spec: {nodeName: node-1}
status: {podIP: 10.16.1.6}
---
apiVersion: v1
kind: Pod
metadata: {name: agent, namespace: kube-system}
spec: {nodeName: node-1, hostNetwork: true}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: ip-masq-agent, namespace: kube-system}
data:
  config: |
    nonMasqueradeCIDRs:
    - 10.16.0.0/14
    - 10.140.0.0/20
"""
UNSEEN = (
    "no Kubernetes objects were looked at (MasqueradePolicy, Namespace, Node, Pod): "
    "--source, --kubeconfig or $KUBECONFIG says where they are"
)
LOOKING = ("render", "explain", "check")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_SHELLS:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    path = tmp_path / "good"
    path.write_text(GOOD)
    return path


@pytest.fixture
def bad(tmp_path: Path) -> Path:
    path = tmp_path / "bad"
    path.write_text(BAD)
    return path


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "objects"
    path.mkdir()
    (path / "all.yaml").write_text(MANIFESTS)
    return path


def run(capsys: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    """Run a command in this process; give exit code, output and messages."""
    try:
        code = main([str(word) for word in words])
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    said = capsys.readouterr()
    return code, said.out, said.err


def words_of(verb: str) -> tuple[str, ...]:
    return ("masquerade", verb, *(("10.70.0.2",) if verb == "explain" else ()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nonsense"], "'nonsense'"),
        (["--nope"], "--nope means nothing here"),
        (["masquerade"], "VERB"),
        (["masquerade", "nonsense"], "'nonsense'"),
        (["masquerade", "run", "--nope"], "--nope means nothing here"),
        (["masquerade", "run", "extra"], "extra means nothing here"),
        (["masquerade", "run", "--nope=x", "extra"], "extra means nothing here"),
        (
            ["masquerade", "run", "--node-nam", "n1"],
            '(did you mean "--node-name"?)\npodgate masquerade run: --help says',
        ),
        (["masquerade", "run", "--stat-dir", "/x"], 'did you mean "--state-dir"?'),
        (["masquerade", "run", "--backend", "nftable"], 'did you mean "nftables"?'),
        (["masquerade", "run", "--state-dir", ""], "--state-dir is empty"),
        (["masquerade", "run", "--metrics-addr", "name:10350"], '"name" is not an IP address'),
        (["masquerade", "render", "--state-dir", "/x"], "--state-dir means nothing here"),
        (["masquerade", "render", "--output", "yaml"], "'yaml'"),
        (["masquerde", "plan"], 'did you mean "masquerade"?'),
        (["masquerade", "exlain"], 'did you mean "explain"?'),
        (["metadata", "kubeup"], 'did you mean "kube-up"?'),
        (["metadata", "kube-up", "bogus"], "migrate-labels"),
        (["metadata", "kube-up", "manifst"], 'did you mean "manifest"?'),
        (["doctor", "--source", "/nonexistent"], "podgate doctor: --source /nonexistent: there is no such file"),
        (["lab", "statsu"], 'did you mean "status"?'),
        (["masquerade", "explain"], "ADDRESS"),
        (["masquerade", "explain", "10.0.0.0/8"], "is not an IP address"),
        (["masquerade", "explain", "10.0.0.1", "--from", "nobody"], "neither an address nor a Pod"),
        (["masquerade", "explain", "10.0.0.1", "--config", ""], "--config is empty"),
        (["masquerade", "check", "--source", "/nonexistent"], "/nonexistent"),
        *(
            (["services", *verb.split(), "--source", "/nonexistent"], "/nonexistent: error: no objects can be read")
            for verb in ("check", "explain 10.96.0.1", "plan", "render")
        ),
    ],
)
def test_wrong_usage_is_exit_2_with_what_was_wrong(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    "words",
    [
        "masquerade exlain 10.0.0.1",
        "masquerade render --nope",
        "masquerade explain 10.0.0.1 --from nobody",
        "masquerade check --source /nonexistent",
        "masquerade plan --config ",
        "metadata doctor --nope",
        "metadata kube-up migrate-labels",
        "metadata kube-up migrate-labels --kubeconfig /nonexistent",
        "lab get pods --nope",
        "lab get pods --name nobody",
    ],
)
def test_a_program_finds_one_json_object_about_what_was_wrong(capsys: pytest.CaptureFixture[str], words: str) -> None:
    code, out, err = run(capsys, *words.split(" "), "--output", "json")
    assert (code, err) == (1 if "nobody" in words and "lab" in words else 2, "")
    assert all(json.loads(out)["errors"])


def test_every_mistake_is_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    _, _, err = run(capsys, "masquerade", "run", "--metrics-addr", "a", "--health-addr", "b", "--state-dir", "")
    assert [flag in err for flag in ("--metrics-addr", "--health-addr", "--state-dir")] == [True] * 3


def test_podgate_alone_shows_its_help(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys)
    assert code == 2
    assert all(name in out for name in (*FEATURES, "lab", "--version"))
    assert run(capsys, "--help")[:2] == (0, out)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--version")
    assert code == 0
    assert re.fullmatch(r"podgate \d+\.\d+\.\d+\n", out)


@pytest.mark.parametrize(("feature", "entry"), FEATURES.items())
def test_help_names_every_verb(capsys: pytest.CaptureFixture[str], feature: str, entry: FeatureEntry) -> None:
    code, out, _ = run(capsys, feature, "--help")
    assert code == 0
    assert set(re.findall(r"^    ([a-z-]+) ", out, re.MULTILINE)) == {*VERBS, *entry.alone}
    assert f"say what happens to {entry.asked}, and" in out
    for verb in entry.alone:
        assert f"podgate {feature} {verb}" in run(capsys, feature, verb, "--help")[1]


PROMISED = {
    "run": "config backend source node-name metrics-addr health-addr once clean-on-exit state-dir random-fully "
    "nomasq-all-reserved-ranges",
    "render": "config source node-name output",
    "plan": "config source node-name output",
    "explain": "config source node-name output from",
    "check": "config source node-name output",
    "clean": "state-dir output",
}


def flags_in_help(capsys: pytest.CaptureFixture[str], verb: str) -> set[str]:
    code, out, _ = run(capsys, "masquerade", verb, "--help")
    assert code == 0
    listed = out.partition("\noptions:")[2]
    return set(re.findall(r"^  (?:-h, )?--([a-z0-9-]+)", listed, re.MULTILINE)) - {"help"}


@pytest.mark.parametrize("verb", VERBS)
def test_help_names_every_flag_of_a_verb(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    fields = {each.flag.removeprefix("--") for each in options_of(Settings) if not each.verbs or verb in each.verbs}
    named = flags_in_help(capsys, verb)
    assert set(PROMISED[verb].split()) <= named
    assert named - {"from", "out", "output"} == fields


def test_no_verb_takes_a_flag_that_does_nothing_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert flags_in_help(capsys, "clean") == {"state-dir", "output"}
    for verb in ("explain", "check"):
        assert flags_in_help(capsys, verb) & {"random-fully", "once", "state-dir", "metrics-addr"} == set()


def test_a_flag_for_several_things_may_be_given_again_instead_of_a_comma(capsys: pytest.CaptureFixture[str]) -> None:
    once = run(capsys, "metadata", "render", "--uplink", "eth0,eth1,eth2")
    assert once[0] == 0
    assert "but not from eth0 eth1 eth2" in once[1]
    assert run(capsys, "metadata", "render", "--uplink", "eth0", "--uplink", "eth1,eth2") == once


def test_explain_as_json_has_exactly_these_fields(capsys: pytest.CaptureFixture[str], good: Path) -> None:
    asked = ("10.16.2.9", "10.70.0.2", "169.254.1.1", "224.0.0.1")
    code, out, err = run(capsys, "masquerade", "explain", *asked, "--config", good, "--output", "json")
    assert (code, err) == (0, f"podgate masquerade explain: {UNSEEN}\n")
    assert json.loads(out) == [
        {"address": "10.16.2.9", "action": "keep", "rule": "10.16.0.0/14", "source": f"{good}:2"},
        {"address": "10.70.0.2", "action": "masquerade", "rule": "everything else", "source": "default"},
        {"address": "169.254.1.1", "action": "keep", "rule": "169.254.0.0/16", "source": "default"},
        {"address": "224.0.0.1", "action": "keep", "rule": "multicast", "source": "default"},
    ]


def test_explain_as_text(capsys: pytest.CaptureFixture[str], good: Path) -> None:
    assert run(capsys, "masquerade", "explain", "10.16.2.9", "10.70.0.2", "--config", good) == (
        0,
        f"10.16.2.9: keep, by 10.16.0.0/14 ({good}:2)\n10.70.0.2: masquerade, by everything else (default)\n",
        f"podgate masquerade explain: {UNSEEN}\n",
    )


@pytest.mark.parametrize(
    ("sender", "action"),
    [
        ("shop/web", "masquerade"),
        ("kube-system/agent", "keep"),
        ("10.16.1.6", "masquerade"),
        ("127.0.0.1", "keep"),
    ],
)
def test_explain_for_a_sender(capsys: pytest.CaptureFixture[str], source: Path, sender: str, action: str) -> None:
    words = ("masquerade", "explain", "198.51.100.9", "--node-name", "node-1", "--output", "json")
    code, out, _ = run(capsys, *words, "--source", source, "--from", sender)
    assert (code, json.loads(out)[0]["action"]) == (0, action)


def test_a_pod_without_a_namespace_is_in_default(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    words = ("masquerade", "explain", "198.51.100.9", "--node-name", "node-1", "--source", source)
    code, _, err = run(capsys, *words, "--from", "web")
    assert code == 2
    assert "shop/web" in err  # what there is
    text = MANIFESTS.replace("namespace: shop", "namespace: default")
    (source / "all.yaml").write_text(text)
    assert run(capsys, *words, "--from", "web")[0] == 0


def test_a_pod_of_another_node_is_not_answered_for(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    words = ("masquerade", "explain", "198.51.100.9", "--node-name", "node-2", "--from", "shop/web")
    code, out, err = run(capsys, *words, "--source", source)
    assert (code, out) == (2, "")
    assert "--node-name" in err


def test_a_configmap_is_named_as_an_object(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    words = ("masquerade", "explain", "10.17.0.1", "10.16.1.77", "--node-name", "node-1", "--output", "json")
    code, out, _ = run(capsys, *words, "--source", source)
    assert code == 0
    assert [row["source"] for row in json.loads(out)] == [
        "ConfigMap/kube-system/ip-masq-agent:data.config.nonMasqueradeCIDRs[0]",
        "Node/node-1:spec.podCIDRs[0]",
    ]


def test_the_source_and_the_node_come_from_the_environment_too(
    capsys: pytest.CaptureFixture[str], source: Path, good: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PODGATE_SOURCE", str(source))
    monkeypatch.setenv("NODE_NAME", "node-1")
    words = ("masquerade", "explain", "10.16.1.77")
    assert run(capsys, *words)[1] == "10.16.1.77: keep, by 10.16.1.0/24 (Node/node-1:spec.podCIDRs[0])\n"
    empty = source.parent / "empty"
    empty.mkdir()
    code, out, _ = run(capsys, *words, "--source", empty, "--config", good)  # the flag wins
    assert (code, out) == (0, f"10.16.1.77: keep, by 10.16.0.0/14 ({good}:2)\n")


@pytest.mark.parametrize("asked", ["check", "explain 10.16.1.77"])
def test_without_objects_one_line_says_what_was_not_looked_at(
    capsys: pytest.CaptureFixture[str], good: Path, source: Path, asked: str
) -> None:
    verb, *words = asked.split()
    _, _, err = run(capsys, "masquerade", verb, *words, "--config", good)
    assert err == f"podgate masquerade {verb}: {UNSEEN}\n"
    assert (
        run(capsys, "masquerade", verb, *words, "--config", good, "--source", source, "--node-name", "node-1")[2] == ""
    )


@pytest.mark.parametrize("verb", [*LOOKING, "plan"])
@pytest.mark.parametrize("output", ["text", "json"])
def test_a_bad_file_is_exit_2_with_every_problem_at_its_line(
    capsys: pytest.CaptureFixture[str], bad: Path, verb: str, output: str
) -> None:
    code, out, err = run(capsys, *words_of(verb), "--config", bad, "--output", output)
    lines = json.loads(out)["errors"] if output == "json" else err.splitlines()
    assert (code, "" in (out, err)) == (2, True)
    assert [re.match(rf"{bad}:(\d+): (\w+): ", line).groups() for line in lines] == [  # type: ignore[union-attr]
        ("2", "error"),
        ("3", "error"),
        ("4", "warning"),
        ("5", "error"),
    ]
    assert "10.0.0.0/8" in lines[0]  # the fix


def test_a_bad_configmap_is_named_at_the_line_of_its_manifest(capsys: pytest.CaptureFixture[str], source: Path) -> None:
    (source / "all.yaml").write_text(MANIFESTS.replace("10.140.0.0/20", "10.140.0.0/33"))
    line = 1 + MANIFESTS.splitlines().index("    - 10.140.0.0/20")
    code, _, err = run(capsys, "masquerade", "render", "--source", source, "--node-name", "node-1")
    assert code == 2
    assert err.startswith(f"{source}/all.yaml:{line}: error: ")
    assert "ConfigMap/kube-system/ip-masq-agent" in err


def test_a_warning_does_not_stop_an_answer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "odd"
    path.write_text(GOOD + "surprise: 1\n")
    code, out, err = run(capsys, "masquerade", "explain", "10.16.0.1", "--config", path)
    assert (code, out) == (0, f"10.16.0.1: keep, by 10.16.0.0/14 ({path}:2)\n")
    assert err.startswith(f"{path}:4: warning: ")


def test_render_shows_what_nft_would_load(capsys: pytest.CaptureFixture[str], good: Path) -> None:
    code, out, _ = run(capsys, "masquerade", "render", "--config", good)
    assert code == 0
    assert out.startswith("table ip podgate-masquerade {\n")
    assert "10.16.0.0/14" in out
    assert "masquerade fully-random" in out
    assert "fully-random" not in run(capsys, "masquerade", "render", "--config", good, "--no-random-fully")[1]
    code, out, _ = run(capsys, "masquerade", "render", "--config", good, "--output", "json")
    table = next(each for each in json.loads(out)["tables"] if each["family"] == "ip")
    assert (code, table["table"]) == (0, "podgate-masquerade")
    assert {each["name"]: each["elements"] for each in table["sets"]}["keep"] == [
        "10.16.0.0/14",
        "10.140.0.0/20",
        "169.254.0.0/16",
    ]


def test_render_with_all_reserved_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "masquerade", "render", "--nomasq-all-reserved-ranges")
    assert "198.51.100.0/24" in out
    assert "198.51.100.0/24" not in run(capsys, "masquerade", "render")[1]


def test_check_is_exit_1_on_findings_and_0_without(
    capsys: pytest.CaptureFixture[str], good: Path, tmp_path: Path
) -> None:
    code, out, err = run(capsys, "masquerade", "check", "--config", good)
    assert (code, err) == (0, f"podgate masquerade check: {UNSEEN}\n")
    assert out.startswith("checked: configuration, no objects (no source); live rules")
    assert out.endswith("0 findings\n")
    path = tmp_path / "overlapping"
    path.write_text(GOOD + "- 10.17.0.0/16\n")
    code, out, _ = run(capsys, "masquerade", "check", "--config", path)
    assert code == 1
    assert out.startswith(f"{path}:4: nonMasqueradeCIDRs[2]: Redundant: ")
    code, out, _ = run(capsys, "masquerade", "check", "--config", path, "--output", "json")
    found = json.loads(out)
    assert code == 1
    assert [(row["place"], row["reason"]) for row in found["findings"]] == [(f"{path}:4", "Redundant")]
    assert "live_rules" in found


def test_check_says_what_a_list_forgets(capsys: pytest.CaptureFixture[str], source: Path, tmp_path: Path) -> None:
    path = tmp_path / "forgetful"
    path.write_text("nonMasqueradeCIDRs: [192.0.2.0/24]\n")
    code, out, _ = run(
        capsys, "masquerade", "check", "--config", path, "--source", source, "--node-name", "node-1", "--output", "json"
    )
    assert code == 1
    found = json.loads(out)
    assert any("10.16.1.0/24" in row["message"] for row in found["findings"])
    assert found["objects"] == {"MasqueradePolicy": 0, "Namespace": 0, "Node": 1, "Pod": 2}
