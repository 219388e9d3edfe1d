"""Where a mistake is, as each verb says it: the same file and line."""

import json
from pathlib import Path

import pytest

from tests.test_cli import run


def test_check_and_render_name_the_same_place_of_the_same_mistake(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("a: 1\nb: [\n")
    head = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n"
    (tmp_path / "web.yaml").write_text(f"{head}spec:\n  clusterIP: 10.96.0.9\n  ports: [{{port: 80, protocol: X}}]\n")
    source = ["--source", str(tmp_path), "--node-name", "n"]
    told = run(capsys, "services", "render", *source)[2].splitlines()
    found = json.loads(run(capsys, "services", "check", *source, "--output", "json")[1])["findings"]
    places = [row["place"] for row in found if "Options/" not in row["object"] and "Node/" not in row["object"]]
    assert places == [f"{tmp_path}/broken.yaml:3", f"{tmp_path}/web.yaml:7"]
    assert set(places) <= {line.partition(": ")[0] for line in told}
    lines = run(capsys, "services", "check", *source)[1].splitlines()
    assert any(line.startswith(f"{places[1]}: Service/default/web:spec.ports[0].protocol: ") for line in lines)


def test_explain_complains_of_whom_it_names_and_counts_the_others(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "broken.yaml").write_text("a: 1\nb: [\n")
    for number, name in enumerate(("web", "api", "db")):
        head = f"apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n"
        ports = "[{port: 80}, {port: 81, protocol: X}]"
        (tmp_path / f"{name}.yaml").write_text(f"{head}spec:\n  clusterIP: 10.96.0.{number + 1}\n  ports: {ports}\n")
    words = ("services", "explain", "--source", str(tmp_path), "--node-name", "n")
    code, out, err = run(capsys, *words, "web")
    assert (code, out.partition(":80: ")[0]) == (0, "10.96.0.1:80/tcp default/web")
    told = [f"{tmp_path}/broken.yaml:3", "Node/n", f"{tmp_path}/web.yaml:7"]
    assert {line.partition(": ")[0] for line in err.splitlines()[:-1]} == set(told)
    assert err.endswith("\n2 complaints about other objects: podgate services check shows all\n")
    code, out, err = run(capsys, *words, "web", "--from", "nobody")
    assert (code, out) == (2, "")
    assert {line.partition(": ")[0] for line in err.splitlines()} == {*told[:2], "podgate services explain"}


def test_explain_without_objects_asks_for_their_source(capsys: pytest.CaptureFixture[str]) -> None:
    said = "podgate services explain: no objects to look at: give --source or --kubeconfig\n"
    assert run(capsys, "services", "explain", "web", "--node-name", "n") == (2, "", said)


def test_check_names_the_line_of_a_mistyped_kind_and_counts_what_it_did_not_look_at(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    slips = (
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\n---\napiVersion: v1\nkind: Nod\nmetadata: {name: n}\n"
    )
    (tmp_path / "a.yaml").write_text(slips)
    for feature in ("services", "masquerade", "metadata"):
        code, out, _ = run(capsys, feature, "check", "--source", str(tmp_path), "--node-name", "n")
        assert code == 1
        assert f'{tmp_path}/a.yaml:6: UnknownKind: "Nod" is no kind that is read here (did you mean "Node"?)' in out
        assert "2 others not looked at" in out


def test_a_folder_without_anything_to_look_at_is_doubted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for feature in ("services", "masquerade", "metadata"):
        err = run(capsys, feature, "check", "--source", str(tmp_path), "--node-name", "n")[2]
        assert err.startswith(f"podgate {feature} check: {tmp_path} has no object that is looked at (")
        assert err.endswith("): is --source right?\n")
    (tmp_path / "a.yaml").write_text("apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: d}\n")
    words = ("services", "check", "--source", str(tmp_path), "--node-name", "n")
    assert run(capsys, *words)[2].endswith(") among its 1: is --source right?\n")
    (tmp_path / "b.yaml").write_text("apiVersion: v1\nkind: Node\nmetadata: {name: n}\n")
    assert run(capsys, *words)[2] == ""


def test_what_a_kube_proxy_configuration_says_in_vain_is_found_with_file_and_line(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    config, objects = tmp_path / "config.conf", tmp_path / "node.yaml"
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\nmode: nftables\n"
    config.write_text(f"{head}foo: 1\nclusterCIDR: 10.0.0.0/8\niptables:\n  masqueradeAll: true\n")
    objects.write_text("apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\n")
    words = ["--config", str(config), "--source", str(objects), "--node-name", "node-1"]
    code, out, err = run(capsys, "services", "check", *words)
    assert (code, err) == (1, "")
    assert out.splitlines()[0].startswith(f"{config}:4: foo: UnknownKey: there is no such field")
    assert out.splitlines()[1].startswith(f"{config}:7: iptables.masqueradeAll: Unused: it changes nothing here")
    found = json.loads(run(capsys, "services", "check", *words, "--output", "json")[1])["findings"]
    assert [(row["place"], row["field"], row["reason"]) for row in found] == [
        (f"{config}:4", "foo", "UnknownKey"),
        (f"{config}:7", "iptables.masqueradeAll", "Unused"),
    ]
    assert run(capsys, "services", "render", *words)[2].startswith(f"{config}:4: warning: foo: there is no such field")
    config.write_text(head)
    assert run(capsys, "services", "check", *words)[:2] == (
        0,
        "checked: options, 0 EndpointSlice, 1 Node, 0 Pod, 0 Service, 0 ServiceCIDR\n0 findings\n",
    )


def test_a_kubeconfig_that_a_file_names_is_told_with_the_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "kubeadm.conf"
    head = "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n"
    path.write_text(f"{head}mode: nftables\nclientConnection: {{kubeconfig: /nonexistent}}\n")
    words = ("services", "check", "--node-name", "n", "--config", str(path))
    wrong = "podgate services check: /nonexistent: the kubeconfig cannot be read: No such file or directory"
    named = f"; {path} names it (clientConnection.kubeconfig): give --source or --kubeconfig to look elsewhere"
    assert run(capsys, *words) == (2, "", f"{wrong}{named}\n")
    assert run(capsys, *words, "--kubeconfig", "/nonexistent") == (2, "", f"{wrong}\n")
