"""$KUBECONFIG, as users meet it: the verbs that look read it and say so, an agent does not."""

import pytest

from podgate.cli import FEATURES
from tests.support.agent import OF_SHELLS
from tests.test_cli import run


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_SHELLS:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("words", ["check", "explain 10.16.1.77", "render", "plan"])
@pytest.mark.parametrize("feature", ["masquerade", "services"])
def test_verbs_that_look_read_the_kubeconfig_of_the_environment_and_say_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, feature: str, words: str
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    verb, *asked = words.split()
    code, _, err = run(capsys, feature, verb, *asked)
    assert code == 2
    said, error = err.splitlines()
    assert said == f"podgate {feature} {verb}: objects come from $KUBECONFIG: /nonexistent/kubeconfig"
    assert "/nonexistent/kubeconfig" in error


@pytest.mark.parametrize(
    "words", ["masquerade check", "services explain 10.96.0.1:80", "metadata explain /", "metadata doctor"]
)
def test_a_context_alone_is_one_of_the_environments_kubeconfig(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    feature, verb, *asked = words.split()
    words_of_verb = (feature, verb, *asked, "--context", "c")
    code, _, err = run(capsys, *words_of_verb)
    assert (code, "--context c: it names a context in a kubeconfig: give --kubeconfig too" in err) == (2, True)
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    _, _, err = run(capsys, *words_of_verb)
    said = f"podgate {feature} {verb}: objects come from $KUBECONFIG: /nonexistent/kubeconfig c"
    assert err.splitlines().count(said) == 1
    assert "give --kubeconfig too" not in err
    assert "--context c" in run(capsys, *words_of_verb, "--source", "/nonexistent")[2]
    monkeypatch.setenv("KUBECONFIG", "/a:/b")
    assert "names several files" in run(capsys, *words_of_verb)[2]


def test_an_agent_reads_no_kubeconfig_of_the_environment(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nonexistent/kubeconfig")
    for feature in FEATURES:
        assert "give --kubeconfig too" in run(capsys, feature, "run", "--context", "c")[2]
