"""``podgate metadata kube-up`` against the cluster scripts' own sed commands."""

import re
import subprocess
from pathlib import Path

import pytest

from podgate.features.metadata.kube_up import BEGIN, END, KubeUpError, answer, manifest, node_labels, provider_vars

TEMPLATE = (Path(__file__).parents[3] / "deploy" / "metadata" / "kube-up" / "metadata-proxy.yaml").read_text()
ON = {"ENABLE_METADATA_CONCEALMENT": "true"}
WITH_METRICS = {
    "ENABLE_PROMETHEUS_TO_SD": "true",
    "PROMETHEUS_TO_SD_PREFIX": "custom.example.com",
    "PROMETHEUS_TO_SD_ENDPOINT": "https://monitoring.example.com/",
}


def sed(*scripts: str) -> str:
    words = [word for script in scripts for word in ("-e", script)]
    return subprocess.run(["sed", *words], input=TEMPLATE, capture_output=True, text=True, check=True).stdout


def test_filled_as_the_scripts_fill_it() -> None:
    expected = sed(
        "s@{{ *prometheus_to_sd_prefix *}}@custom.example.com@g",
        "s@{{ *prometheus_to_sd_endpoint *}}@https://monitoring.example.com/@g",
    )
    assert manifest(TEMPLATE, WITH_METRICS) == expected
    assert "{{" not in expected


@pytest.mark.parametrize(
    "environ",
    [{}, {"ENABLE_PROMETHEUS_TO_SD": "false"}, {**WITH_METRICS, "DISABLE_PROMETHEUS_TO_SD_IN_DS": "true"}],
    ids=["not set", "off", "not in DaemonSets"],
)
def test_removed_as_the_scripts_remove_it(environ: dict[str, str]) -> None:
    assert manifest(TEMPLATE, environ) == sed(f"/{BEGIN}/,/{END}/d")
    assert "prometheus-to-sd" not in manifest(TEMPLATE, environ)


def test_the_defaults_are_the_scripts() -> None:
    filled = manifest(TEMPLATE, {"ENABLE_PROMETHEUS_TO_SD": "true"})
    assert "--stackdriver-prefix=custom.googleapis.com/addons" in filled
    assert "--api-override=https://monitoring.googleapis.com/\n" in filled


@pytest.mark.parametrize("value", ["a\n- name: evil", "a b", "a'b", "a #b", "@a@"])
def test_a_value_cannot_change_the_manifest_elsewhere(value: str) -> None:
    with pytest.raises(KubeUpError, match="PROMETHEUS_TO_SD_PREFIX"):
        manifest(TEMPLATE, {**WITH_METRICS, "PROMETHEUS_TO_SD_PREFIX": value})


def test_a_block_without_an_end_is_an_error_where_sed_would_delete_the_rest() -> None:
    with pytest.raises(KubeUpError, match=r"1 lines .* and 0 "):
        manifest(TEMPLATE.replace(END, ""), {})


def test_a_manifest_without_the_block_stays_as_it_is() -> None:
    once = manifest(TEMPLATE, {})
    assert manifest(once, {}) == manifest(once, WITH_METRICS) == once


@pytest.mark.parametrize(
    ("environ", "labels", "variables"),
    [
        ({}, "", ""),
        ({"NODE_LABELS": "a=b", "PROVIDER_VARS": "X Y"}, "a=b", "X Y"),
        (
            {**ON, "NODE_LABELS": "a=b", "PROVIDER_VARS": "X"},
            "a=b,cloud.google.com/metadata-proxy-ready=true",
            "X ENABLE_METADATA_CONCEALMENT METADATA_CONCEALMENT_NO_FIREWALL",
        ),
        (
            {**ON, "NODE_LABELS": "cloud.google.com/metadata-proxy-ready=true"},
            "cloud.google.com/metadata-proxy-ready=true",
            "ENABLE_METADATA_CONCEALMENT METADATA_CONCEALMENT_NO_FIREWALL",
        ),
    ],
)
def test_labels_and_variables(environ: dict[str, str], labels: str, variables: str) -> None:
    assert node_labels(environ) == labels
    assert provider_vars(environ) == variables


def test_lines_of_shell_that_can_be_evaluated() -> None:
    said = answer([], {**ON, "NODE_LABELS": "a=b"}, str)
    shell = subprocess.run(
        ["sh", "-c", f'{said.out}\necho "$NODE_LABELS"; echo "$PROVIDER_VARS"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert shell.stdout.splitlines() == [
        "a=b,cloud.google.com/metadata-proxy-ready=true",
        "ENABLE_METADATA_CONCEALMENT METADATA_CONCEALMENT_NO_FIREWALL",
    ]


def test_what_it_answers() -> None:
    assert answer(["node-labels"], ON, str).out == "cloud.google.com/metadata-proxy-ready=true\n"
    assert answer(["provider-vars"], {}, str).out == "\n"
    assert answer(["manifest"], {}, lambda: TEMPLATE).out == manifest(TEMPLATE, {})
    assert answer(["manifest"], {}, lambda: BEGIN).code == 1
    assert answer(["manifesto"], {}, str).code == 2
    wrong = answer([], {"ENABLE_METADATA_CONCEALMENT": "yes"}, str)
    assert (wrong.code, wrong.out) == (2, "")
    assert re.search(r"ENABLE_METADATA_CONCEALMENT='yes': write true or false", wrong.complaint)
    assert "NODE_LABELS" in answer(["--help"], {}, str).out
