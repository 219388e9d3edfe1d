"""A container's rights, environment and volumes, as values."""

import json
from base64 import b64decode, b64encode
from pathlib import Path
from typing import Any

import pytest

from podgate.lab.containers import OBJECTS, Installation, VolumePlaces, command_in, program, root
from podgate.lab.nodeshell import node_program, node_root
from podgate.lab.placement import Volumes
from podgate.lab.places import Places, places
from podgate.lab.podenv import Surroundings, environment, expanded, field
from podgate.lab.pods import Workload
from podgate.lab.podspec import Container, FieldRef, HostPath, Pod, PodSecurityContext, Volume, decode_pod
from podgate.lab.rootfs import Bind, MachineRoot
from podgate.lab.security import RUNTIME_CAPABILITIES, ConfigFault, setpriv, user_of
from podgate.lab.volumes import Content, contents, of_machine
from podgate.lab.volumewriter import VolumeWriter, make_host_path
from podgate.model.frozen import ObjectRef

INSTALLATION = Installation(
    MachineRoot(frozenset({"usr"})), "/venv/bin/python", "/usr/bin/setpriv", "/lab/bin", "/lab/objects"
)
OBJECTS_THERE = {
    ObjectRef("ConfigMap", "map", "default"): {
        "data": {"a": "1", "b": "2"},
        "binaryData": {"c": b64encode(b"\xff").decode()},
    },
    ObjectRef("Secret", "secret", "default"): {
        "data": {"token": b64encode(b"hidden").decode()},
        "stringData": {"plain": "x"},
    },
}


def pod(*containers: dict[str, Any], **spec: Any) -> Pod:
    return decode_pod(
        {
            "metadata": {
                "name": "web", "namespace": "default", "uid": "u-1",
                "labels": {"app": "web", "b": 'say "x"'}, "annotations": {"note": "n"},
            },
            "spec": {"nodeName": "node-1", "containers": list(containers), **spec},
            "status": {"podIPs": [{"ip": "10.16.1.6"}, {"ip": "fd00::6"}]},
        }
    )  # fmt: skip


def around(made: Pod) -> Surroundings:
    return Surroundings(made, OBJECTS_THERE, ("10.140.15.217",))


def workload(made: Pod) -> Workload:
    return Workload(ObjectRef("Pod", "web", "default"), made, "pod/default/web", "node-1", ("10.140.15.217",), "web")


# --- rights ---


ROOT = "--reuid=0 --regid=0 --clear-groups"
DEFAULT = "".join(f",+{name}" for name in RUNTIME_CAPABILITIES)


@pytest.mark.parametrize(
    ("container", "own", "expected"),
    [
        ({}, {}, f"{ROOT} --inh-caps=-all --bounding-set=-all{DEFAULT}"),
        (
            {"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN", "CAP_NET_RAW"]}, "allowPrivilegeEscalation": False},
            {},
            f"{ROOT} --inh-caps=-all --bounding-set=-all,+net_admin,+net_raw --no-new-privs",
        ),
        ({"privileged": True, "runAsUser": 5}, {}, "--reuid=5 --regid=0 --clear-groups"),
        (
            {"capabilities": {"drop": ["ALL"]}},
            {"runAsUser": 7, "runAsGroup": 8, "supplementalGroups": [9], "fsGroup": 10},
            "--reuid=7 --regid=8 --groups=9,10 --inh-caps=-all --bounding-set=-all",
        ),
        (
            {"capabilities": {"add": ["ALL"], "drop": ["NET_RAW"]}},
            {},
            f"{ROOT} --inh-caps=-all --bounding-set=+all,-net_raw",
        ),
    ],
)
def test_a_security_context_becomes_arguments(container: dict[str, Any], own: dict[str, Any], expected: str) -> None:
    made = pod({"name": "c", "securityContext": container}, securityContext=own)
    assert setpriv(made.spec.containers[0], made.spec.security) == ("setpriv", *expected.split(), "--")


def test_the_containers_user_comes_before_the_pods() -> None:
    made = pod({"name": "c", "securityContext": {"runAsUser": 1}}, {"name": "d"}, securityContext={"runAsUser": 2})
    assert [user_of(container, made.spec.security) for container in made.spec.containers] == [1, 2]


def test_root_is_refused_where_it_must_not_be() -> None:
    refused = setpriv(Container("c"), PodSecurityContext(run_as_non_root=True))
    assert isinstance(refused, ConfigFault)
    assert refused.message == "container c: runAsNonRoot is set, but it would run as root: set runAsUser"


# --- environment ---


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("$(A)", "1"),
        ("x$(A)y$(B)", "x1y2"),
        ("$(C)", "$(C)"),
        ("$$(A)", "$(A)"),
        ("$A", "$A"),
        ("$$", "$"),
        ("$(", "$("),
    ],
)
def test_references_are_expanded_as_a_kubelet_does(text: str, expected: str) -> None:
    assert expanded(text, {"A": "1", "B": "2"}) == expected


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("metadata.name", "web"),
        ("metadata.namespace", "default"),
        ("metadata.uid", "u-1"),
        ("spec.nodeName", "node-1"),
        ("spec.serviceAccountName", "default"),
        ("status.podIP", "10.16.1.6"),
        ("status.podIPs", "10.16.1.6,fd00::6"),
        ("status.hostIP", "10.140.15.217"),
        ("metadata.labels['app']", "web"),
        ("metadata.annotations['none']", ""),
        ("metadata.labels", 'app="web"\nb="say \\"x\\""'),
    ],
)
def test_fields_of_the_pod_are_text(path: str, expected: str) -> None:
    assert field(FieldRef(path), around(pod())) == expected


def test_a_field_that_is_not_there_is_refused() -> None:
    assert isinstance(field(FieldRef("spec.none"), around(pod())), ConfigFault)


def test_later_variables_win_and_see_earlier_ones() -> None:
    env = [{"name": "a", "value": "own"}, {"name": "B", "value": "$(a)$(PATH)"}]
    made = pod({"name": "c", "envFrom": [{"configMapRef": {"name": "map"}}], "env": env})
    found = environment(made.spec.containers[0], around(made), [("PATH", "/bin")])
    assert isinstance(found, dict)
    assert (found["a"], found["b"], found["B"]) == ("own", "2", "own/bin")


@pytest.mark.parametrize(
    ("env", "message"),
    [
        ({"configMapKeyRef": {"name": "none", "key": "a"}}, "ConfigMap none not found"),
        ({"configMapKeyRef": {"name": "map", "key": "z"}}, "ConfigMap map has no key 'z'"),
        ({"secretKeyRef": {"name": "none", "key": "a"}}, "Secret none not found"),
        ({"fieldRef": {"fieldPath": "spec.none"}}, "fieldPath 'spec.none' is not one"),
        ({}, "valueFrom names no source"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused_by_name(env: dict[str, Any], message: str) -> None:
    made = pod({"name": "c", "env": [{"name": "V", "valueFrom": env}]})
    found = environment(made.spec.containers[0], around(made))
    assert isinstance(found, ConfigFault)
    assert message in found.message


# --- programs and roots ---


def test_a_program_has_rights_first_and_its_own_words_expanded() -> None:
    made = pod(
        {
            "name": "c",
            "image": "podgate",
            "args": ["run", "$(X)"],
            "env": [{"name": "X", "value": "y"}],
            "workingDir": "/srv",
        }
    )
    found = program(made.spec.containers[0], workload(made), around(made), INSTALLATION)
    assert not isinstance(found, ConfigFault)
    assert found.words[0] == "/usr/bin/setpriv"
    assert found.words[found.words.index("--") + 1 :] == ("/run/podgate-lab/bin/podgate", "run", "y")
    assert (found.folder, found.environment["PODGATE_SOURCE"], found.environment["HOME"]) == ("/srv", OBJECTS, "/root")
    more = command_in(found, ("id",), {"TERM": "x"})
    assert more.words == (*found.words[: found.words.index("--") + 1], "id")
    assert more.environment["TERM"] == "x"


@pytest.mark.parametrize(
    ("mount", "bind"),
    [
        ({"mountPath": "/a"}, ("/volumes/v", "/a", False)),
        ({"mountPath": "/a", "readOnly": True, "subPath": "x/y"}, ("/volumes/v/x/y", "/a", True)),
        ({"mountPath": "/a", "subPathExpr": "$(X)"}, ("/volumes/v/z", "/a", False)),
        ({"mountPath": "/a", "subPath": "../x"}, "subPath '../x' leads out of volume v"),
        ({"name": "none", "mountPath": "/a"}, "no volume named 'none'"),
    ],
)
def test_mounts_lead_to_where_volumes_lie(mount: dict[str, Any], bind: Any) -> None:
    made = pod({"name": "c", "volumeMounts": [{"name": "v"} | mount]})
    steps = root(made.spec.containers[0], workload(made), {"X": "z"}, INSTALLATION, VolumePlaces({"v": "/volumes/v"}))
    if isinstance(steps, ConfigFault):
        assert bind in steps.message
    else:
        source, target, read_only = bind
        assert Bind(f"/.machine{source}", target, read_only) in steps
        assert Bind("/.machine/lab/objects", OBJECTS) in steps


def test_volumes_of_files_are_never_writable() -> None:
    made = pod({"name": "c", "volumeMounts": [{"name": "v", "mountPath": "/a"}]})
    where = VolumePlaces({"v": "/volumes/v"}, frozenset({"v"}))
    steps = root(made.spec.containers[0], workload(made), {}, INSTALLATION, where)
    assert not isinstance(steps, ConfigFault)
    assert Bind("/.machine/volumes/v", "/a", read_only=True) in steps


def test_a_command_on_a_node_sees_the_nodes_own_files(tmp_path: Path) -> None:
    for path in ("run/xtables.lock", "var/lib/podgate/x", "lib/modules/x"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    targets = {step.target for step in node_root(tmp_path, "node-1", INSTALLATION) if isinstance(step, Bind)}
    assert {"/run/xtables.lock", "/var/lib/podgate", "/lib/modules"} <= targets
    assert node_program(("nft",), "node-1", INSTALLATION, {}).environment["NODE_NAME"] == "node-1"


# --- volumes ---


def volume(**source: Any) -> Volume:
    return decode_pod({"metadata": {"name": "x"}, "spec": {"volumes": [{"name": "v", **source}]}}).spec.volumes[0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"configMap": {"name": "map"}}, {"a": Content(b"1"), "b": Content(b"2"), "c": Content(b"\xff")}),
        (
            {
                "configMap": {
                    "name": "map",
                    "defaultMode": 0o400,
                    "items": [{"key": "a", "path": "d/a"}, {"key": "b", "path": "b", "mode": 0o600}],
                }
            },
            {"d/a": Content(b"1", 0o400), "b": Content(b"2", 0o600)},
        ),
        ({"configMap": {"name": "none", "optional": True}}, {}),
        ({"configMap": {"name": "none"}}, "ConfigMap none not found"),
        ({"configMap": {"name": "map", "items": [{"key": "z", "path": "z"}]}}, "ConfigMap map has no key 'z'"),
        ({"configMap": {"name": "map", "optional": True, "items": [{"key": "z", "path": "z"}]}}, {}),
        ({"secret": {"secretName": "secret"}}, {"token": Content(b"hidden"), "plain": Content(b"x")}),
        (
            {"downwardAPI": {"items": [{"path": "n", "fieldRef": {"fieldPath": "metadata.name"}}]}},
            {"n": Content(b"web")},
        ),
        (
            {
                "projected": {
                    "defaultMode": 0o440,
                    "sources": [
                        {"configMap": {"name": "map", "items": [{"key": "a", "path": "a"}]}},
                        {"secret": {"name": "secret", "items": [{"key": "token", "path": "t"}]}},
                    ],
                }
            },
            {"a": Content(b"1", 0o440), "t": Content(b"hidden", 0o440)},
        ),
        ({"emptyDir": {}}, None),
        ({"hostPath": {"path": "/x"}}, None),
    ],
)
def test_volumes_hold_what_the_objects_say(source: dict[str, Any], expected: Any) -> None:
    found = contents(volume(**source), around(pod()))
    assert (found.message if isinstance(found, ConfigFault) else found) == expected


def test_a_projected_token_says_whom_it_stands_for() -> None:
    projected = volume(projected={"sources": [{"serviceAccountToken": {"path": "t", "audience": "me"}}]})
    found = contents(projected, around(pod()))
    assert isinstance(found, dict)
    claims = json.loads(b64decode(found["t"].data.split(b".")[1] + b"=="))
    assert (claims["sub"], claims["aud"]) == ("system:serviceaccount:default:default", ["me"])


def test_some_paths_are_the_machines() -> None:
    assert of_machine(HostPath("/lib/modules"))
    assert of_machine(HostPath("/usr/share/x"))
    assert not of_machine(HostPath("/run/xtables.lock"))
    assert not of_machine(HostPath("/usrlocal"))


def test_the_swap_is_one_rename_and_stale_names_go(tmp_path: Path) -> None:
    writer = VolumeWriter(tmp_path / "v")
    assert writer.write({"a": Content(b"1"), "d/e": Content(b"2", 0o600)})
    first = (tmp_path / "v/..data").readlink()
    assert (tmp_path / "v/a").readlink() == Path("..data/a")
    assert (tmp_path / "v/d/e").read_bytes() == b"2"
    assert (tmp_path / "v/d/e").stat().st_mode & 0o777 == 0o600
    assert not writer.write({"a": Content(b"1"), "d/e": Content(b"2", 0o600)})
    assert writer.write({"a": Content(b"3")})
    assert sorted(path.name for path in (tmp_path / "v").iterdir()) == sorted(
        ["..data", "a", str((tmp_path / "v/..data").readlink())]
    )
    assert not (tmp_path / "v" / first).exists()
    assert (tmp_path / "v/a").read_bytes() == b"3"


@pytest.mark.parametrize(
    ("kind", "before", "works"),
    [
        ("", None, True),
        ("DirectoryOrCreate", None, True),
        ("FileOrCreate", None, True),
        ("FileOrCreate", "file", True),
        ("Directory", None, False),
        ("Directory", "dir", True),
        ("File", "dir", False),
        ("File", "file", True),
        ("DirectoryOrCreate", "file", False),
        ("Socket", "file", False),
    ],
)
def test_host_path_types(tmp_path: Path, kind: str, before: str | None, works: bool) -> None:
    path = tmp_path / "var/lib/x"
    path.parent.mkdir(parents=True)
    if before:
        path.touch() if before == "file" else path.mkdir()
    made = make_host_path(HostPath("/var/lib/x", kind), tmp_path)
    assert (made == path) is works
    assert works or isinstance(made, ConfigFault)


def test_volumes_are_placed_once_their_objects_are_there(tmp_path: Path) -> None:
    made = pod(
        {"name": "c"},
        volumes=[
            {"name": "v", "configMap": {"name": "late"}},
            {"name": "e", "emptyDir": {}},
            {"name": "m", "hostPath": {"path": "/usr"}},
        ],
    )
    volumes = Volumes(workload(made), Places(str(tmp_path), "lab"))
    refused = volumes.prepare(around(made))
    assert isinstance(refused, ConfigFault)
    assert refused.message == "volume v: ConfigMap late not found"
    late = Surroundings(made, {ObjectRef("ConfigMap", "late", "default"): {"data": {"k": "1"}}})
    assert volumes.prepare(late) is None
    assert volumes.places.read_only == {"v", "m"}
    assert volumes.places.paths["m"] == "/usr"
    volumes.write(Surroundings(made, {ObjectRef("ConfigMap", "late", "default"): {"data": {"k": "2"}}}))
    assert Path(volumes.places.paths["v"], "k").read_text() == "2"
    volumes.write(Surroundings(made, {}))
    assert Path(volumes.places.paths["v"], "k").read_text() == "2"  # a missing object takes nothing away
    volumes.remove()
    assert not Path(volumes.places.paths["v"]).exists()


@pytest.mark.parametrize("name", ["", "Upper", "a/b", "-a", "a" * 60])
def test_a_lab_has_a_name_that_fits_everywhere(name: str) -> None:
    with pytest.raises(ValueError, match="use lower-case letters"):
        places(name)


def test_the_directory_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PODGATE_LAB_DIR", "/somewhere")
    assert str(places("x").state) == "/somewhere/x"
    assert str(places("x", "/else").container_log("", "h", "host")) == "/else/x/logs/_hosts/h/host.log"
