"""Compiling again and again: with memory as from scratch, and never weaker for a bad configuration."""

from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Interface, ip_interface

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podgate.features.masquerade.choosing import CONFIG_MAP_REF, file_watch
from podgate.features.masquerade.compile import KEPT, Compiler
from podgate.features.masquerade.config import Config, from_kept, kept_bytes, recover
from podgate.features.masquerade.intent import Intent
from podgate.features.masquerade.prefixes import Span
from podgate.features.masquerade.settings import DEFAULT_CONFIG, Settings
from podgate.joints import Compiled, Inputs
from podgate.model.files import Directory, FileContent, Missing, Present, Unreadable
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.config import ConfigMap
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.kinds.nodes import Node, NodeAddress, NodeSpec, NodeStatus
from podgate.model.kinds.pods import Pod, PodIP, PodSpec, PodStatus
from podgate.model.machine import Address, Machine
from podgate.model.problems import Problem
from podgate.model.snapshot import Absent, Listed, Snapshot
from podgate.model.table import Table

TEXTS = (
    b"",
    b"nonMasqueradeCIDRs: [10.16.0.0/14]\n",
    b"nonMasqueradeCIDRs: [10.16.0.0/14, 10.140.0.0/20]\nmasqLinkLocal: true\n",
    b"nonMasqueradeCIDRs: [10.0.0.1]\n",
    b"a: [\n",
    b"unknown: 1\nresyncInterval: 5s\n",
)
SETTINGS = Settings(node_name="node-1")


def compiler(settings: Settings = SETTINGS) -> Compiler[Intent]:
    return Compiler(settings, lambda intent: intent)


def with_file(text: bytes, kept: Mapping[str, bytes] | None = None) -> Inputs:
    return Inputs(files={DEFAULT_CONFIG: Present(text)}, kept=kept or {})


def kept_spans(compiled: Compiled[Intent]) -> list[Span]:
    return sorted(compiled.states.families[0].keep)


def a_pod(address: str, node: str = "node-1") -> Pod:
    return Pod(spec=PodSpec(node_name=node), status=PodStatus(pod_ips=(PodIP(address),)))


contents: st.SearchStrategy[FileContent] = st.one_of(
    st.sampled_from(TEXTS).map(Present),
    st.just(Missing()),
    st.just(Missing(dangling=True)),
    st.just(Unreadable("I/O error")),
)


@st.composite
def inputs(draw: st.DrawFn) -> Inputs:
    files = {DEFAULT_CONFIG: draw(contents)}
    for name in draw(st.sets(st.sampled_from(("ip-masq-a", "ip-masq-b")))):
        files[f"{DEFAULT_CONFIG}/{name}"] = draw(contents)
        files[DEFAULT_CONFIG] = Directory(
            tuple(sorted(path.rpartition("/")[2] for path in files if path != DEFAULT_CONFIG))
        )
    maps = {CONFIG_MAP_REF: ConfigMap(data={"config": draw(st.sampled_from(TEXTS)).decode()})}
    nodes = {
        ObjectRef("Node", "node-1"): Node(spec=NodeSpec(pod_cidr=draw(st.sampled_from(("10.16.1.0/24", "x", "")))))
    }
    addresses = draw(st.sets(st.sampled_from(("10.16.1.6", "10.16.1.7", "10.99.0.1"))))
    pods = {ObjectRef("Pod", address, "default"): a_pod(address) for address in addresses}
    return Inputs(
        objects=Snapshot(
            {
                "ConfigMap": Listed(Table.of(maps if draw(st.booleans()) else {})),
                "Node": Listed(Table.of(nodes)) if draw(st.booleans()) else Absent("no source"),
                "Pod": Listed(Table.of(pods)),
            }
        ),
        files=files,
        machine=Machine("node-1", addresses=(Address("eth0", draw(st.sampled_from(HOSTS))),)),
        kept=draw(st.sampled_from(({}, {KEPT: b"junk"}, GOOD))),
    )


HOSTS = (ip_interface("10.140.15.217/20"), ip_interface("10.140.15.218/20"))
GOOD = dict(compiler()(with_file(TEXTS[2])).keep)


@given(st.lists(inputs(), min_size=1, max_size=6))
def test_memoised_equals_from_scratch(history: list[Inputs]) -> None:
    remembering = compiler()
    for each in history:
        again, fresh = remembering(each), compiler()(each)
        assert again.states == fresh.states
        assert (again.problems, again.keep, again.degraded) == (fresh.problems, fresh.keep, fresh.degraded)


@given(st.lists(contents, max_size=8))
def test_a_bad_file_never_changes_what_is_enforced(history: list[FileContent]) -> None:
    """The host gives back what was kept; a restart makes a fresh compiler. Both must enforce the last good file."""
    running, kept = compiler(), dict[str, bytes]()
    enforced: list[Span] | None = None
    for content in history:
        now = Inputs(files={DEFAULT_CONFIG: content}, kept=kept)
        compiled, restarted = running(now), compiler()(now)
        bad = any(p.severity == "error" for found in compiled.problems.values() for p in found)
        if bad and enforced is not None:
            assert kept_spans(compiled) == enforced
            assert not compiled.degraded
        assert restarted.states == compiled.states
        assert bool(compiled.degraded) == (bad and enforced is None)
        if not bad:
            enforced = kept_spans(compiled)
        kept = {**kept, **compiled.keep}


def test_states_are_made_only_when_the_intent_differs() -> None:
    made: list[Intent] = []

    def to_states(intent: Intent) -> int:
        made.append(intent)
        return len(made)

    counting = Compiler(SETTINGS, to_states)
    assert counting(with_file(TEXTS[1])).states == 1
    assert counting(with_file(bytes(bytearray(TEXTS[1])))).states == 1
    assert counting(with_file(TEXTS[1] + b"# a comment\n")).states == 1
    assert counting(with_file(TEXTS[2])).states == 2


def test_unchanged_parts_stay_the_same_objects() -> None:
    compile_ = compiler()
    first, second = compile_(with_file(TEXTS[1])), compile_(with_file(TEXTS[1]))
    assert first.states is second.states
    assert first.problems is second.problems
    pods = Snapshot({"Pod": Listed(Table.of({ObjectRef("Pod", "a", "default"): a_pod("10.16.1.6")}))})
    third = compile_(Inputs(objects=pods, files=with_file(TEXTS[1]).files))
    address = int(IPv4Address("10.16.1.6"))
    assert sorted(third.states.families[0].own_pods) == [Span(address, address)]
    assert third.states.families[0].keep is second.states.families[0].keep


def test_kept_bytes_hold_origins_and_are_canonical() -> None:
    good = compiler()(with_file(TEXTS[2]))
    data = good.keep[KEPT]
    assert from_kept(data, ("ip",)) == good.states.config
    assert kept_bytes(good.states.config) == data
    assert compiler()(with_file(TEXTS[2])).keep == good.keep


def test_the_built_in_list_is_kept_too() -> None:
    """A file that was removed and comes back bad must not bring an older list back."""
    kept = dict(compiler()(Inputs(kept=GOOD)).keep)
    after = compiler()(with_file(TEXTS[3], kept))
    assert after.states.in_force == "kept"
    assert kept_spans(after) == kept_spans(compiler()(Inputs()))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"\xff", b'{"version": 1}', GOOD[KEPT].replace(b"/14", b"/1")])
def test_kept_bytes_that_are_not_ours(data: bytes) -> None:
    assert from_kept(data, ("ip",)) is None


def test_a_family_that_is_off_now_is_left_out_of_what_was_kept() -> None:
    data = recover({"ip": [Span(0, 0)], "ip6": [Span(0, 0)]})
    kept = from_kept(data, ("ip",))
    assert kept is not None
    assert [str(entry.network) for entry in kept.entries] == ["0.0.0.0/32"]


@given(st.lists(st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, 1 << 16)), max_size=5))
def test_recovered_rules_are_the_rules_that_were_there(raw: list[tuple[int, int]]) -> None:
    listed = [Span(first, min(first + length, (1 << 32) - 1)) for first, length in raw]
    data = recover({"ip": listed})
    compiled = compiler()(with_file(TEXTS[3], {KEPT: data}))
    addresses = [address for first, last in kept_spans(compiled) for address in (first, last)]
    assert all(any(span.first <= address <= span.last for span in listed) for address in addresses)
    assert compiled.states.in_force == "kept"
    for span in listed:
        assert any(first <= span.first and span.last <= last for first, last in kept_spans(compiled))


def test_recovered_rules_say_where_they_come_from() -> None:
    recovered = from_kept(recover({"ip": [Span(10 << 24, (11 << 24) - 1)]}), ("ip",))
    assert recovered is not None
    assert recovered.link_local("ip") is None
    assert str(recovered.entries[0].origin.ref) == "Kernel/podgate-masquerade"


def test_a_config_map_that_does_not_decode_is_bad_not_absent() -> None:
    fault = Problem(CONFIG_MAP_REF, "error", "Undecodable", "data", "Expected object")
    objects = Snapshot({"ConfigMap": Listed(Table())}, (fault,))
    first = compiler()(Inputs(objects=objects))
    assert first.degraded
    assert first.problems[CONFIG_MAP_REF] == (fault,)
    later = compiler()(Inputs(objects=objects, kept=GOOD))
    assert (later.states.in_force, later.degraded) == ("kept", "")


def test_the_complaints_of_a_source_are_passed_on() -> None:
    fault = Problem(ObjectRef("Pod", "a", "default"), "error", "Invalid", "spec", "…")
    compiled = compiler()(Inputs(objects=Snapshot(faults=(fault,))))
    assert compiled.problems[fault.ref] == (fault,)
    assert not compiled.degraded


def test_a_manifest_that_cannot_be_read_may_hold_the_configuration() -> None:
    fault = Problem(ObjectRef("File", "/manifests/x.yaml"), "error", "Syntax", "", "line 1: …")
    unread = Inputs(objects=Snapshot(faults=(fault,)))
    compiled = compiler()(unread)
    assert compiled.problems[fault.ref] == (fault,)
    assert (compiled.states.in_force, bool(compiled.degraded), compiled.keep) == ("default", True, {})
    kept = compiler()(Inputs(files={DEFAULT_CONFIG: Present(b"nonMasqueradeCIDRs: [192.0.2.0/24]")})).keep
    compiled = compiler()(Inputs(objects=unread.objects, kept=kept))
    assert (compiled.states.in_force, compiled.degraded, compiled.keep) == ("kept", "", kept)


def test_the_node_name_of_the_settings_comes_before_the_machine_s() -> None:
    pods = Snapshot({"Pod": Listed(Table.of({ObjectRef("Pod", "a", "default"): a_pod("10.16.1.6", "node-2")}))})
    named = Inputs(objects=pods, machine=Machine("node-2"))
    assert not compiler()(named).states.families[0].own_pods
    assert compiler(Settings())(named).states.families[0].own_pods


def test_without_machine_addresses_the_node_s_internal_ones_count() -> None:
    status = NodeStatus((NodeAddress("InternalIP", "10.140.15.217"), NodeAddress("ExternalIP", "34.1.2.3")))
    node = Node(metadata=ObjectMeta("node-1"), status=status)
    objects = Snapshot({"Node": Listed(Table.of({ObjectRef("Node", "node-1"): node}))})
    assert compiler()(Inputs(objects=objects)).states.families[0].facts.local == (IPv4Address("10.140.15.217"),)
    machine = Machine("node-1", addresses=(Address("eth0", IPv4Interface("10.0.0.1/8")),))
    known = compiler()(Inputs(objects=objects, machine=machine)).states.families[0].facts
    assert known.local == (IPv4Address("10.0.0.1"),)


def test_the_watch() -> None:
    watch = file_watch(Settings(config="/etc/config/"))
    assert (watch.path, watch.pattern) == ("/etc/config", "ip-masq*")


def test_random_fully_and_the_interval_reach_the_intent() -> None:
    intent = compiler(Settings(node_name="n", random_fully=False))(with_file(b"resyncInterval: 90s")).states
    assert (intent.random_fully, intent.resync_seconds, intent.node_name) == (False, 90.0, "n")
    assert len(intent.digest) == 12
    assert intent.digest != compiler()(Inputs()).states.digest


@settings(max_examples=200)
@given(st.one_of(st.binary(max_size=60), st.text(max_size=60).map(str.encode), st.from_regex(rb"nonMasq\w+: \[.*\]\n")))
def test_any_bytes_give_rules_and_never_an_exception(data: bytes) -> None:
    compiled = compiler()(with_file(data))
    errors = [p for found in compiled.problems.values() for p in found if p.severity == "error"]
    assert bool(errors) == bool(compiled.degraded)
    if errors:
        assert compiled.states.config == Config(entries=compiler()(Inputs()).states.config.entries)
