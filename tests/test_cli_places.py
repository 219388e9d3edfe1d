"""Where a mistake is, as each verb says it: the same file and line."""

import json
from pathlib import Path

import pytest

from tests.test_cli import run


def test_check_and_explain_name_the_same_place_of_the_same_mistake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("a: 1\nb: [\n")
    head = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n"
    (tmp_path / "web.yaml").write_text(f"{head}spec:\n  clusterIP: 10.96.0.9\n  ports: [{{port: 80, protocol: X}}]\n")
    source = ["--source", str(tmp_path), "--node-name", "n"]
    told = run(capsys, "services", "explain", "10.96.0.1", *source)[2].splitlines()
    found = json.loads(run(capsys, "services", "check", *source, "--output", "json")[1])["findings"]
    places = [row["place"] for row in found if "Options/" not in row["object"] and "Node/" not in row["object"]]
    assert places == [f"{tmp_path}/broken.yaml:3", f"{tmp_path}/web.yaml:7"]
    assert set(places) <= {line.partition(": ")[0] for line in told}
    lines = run(capsys, "services", "check", *source)[1].splitlines()
    assert any(line.startswith(f"{places[1]}: Service/default/web:spec.ports[0].protocol: ") for line in lines)
