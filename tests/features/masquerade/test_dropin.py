"""ip-masq-agent's command line: which words it takes, what they mean here, and what is said about the others.

The rows are facts of version 2.12.6 and of Go's package flag, observed by running them.
"""

import json
from ipaddress import ip_address

import pytest

from podgate.commandline.goflags import FlagError
from podgate.commandline.options import settings_from
from podgate.features.masquerade.compile import Compiler
from podgate.features.masquerade.deciding import decide
from podgate.features.masquerade.dropin import environment, main, notes_on, settings_of
from podgate.features.masquerade.goflags import AGENT_FLAGS, KLOG_FLAGS, Flags, read_flags
from podgate.features.masquerade.settings import Settings
from podgate.features.masquerade.to_iptables import Writer
from podgate.joints import Inputs
from podgate.lab.images import ENTRIES
from podgate.model.files import Present
from tests.support.iptables_states import chain_text

OLD = {"backend": "iptables", "rules": "ip-masq-agent"}

TAKEN = [
    ("", {}),
    (
        "--masq-chain=IP-MASQ --nomasq-all-reserved-ranges",
        {"masq-chain": "IP-MASQ", "nomasq-all-reserved-ranges": True},
    ),
    ("-masq-chain IP-MASQ", {"masq-chain": "IP-MASQ"}),
    ("--masq-chain --v=2", {"masq-chain": "--v=2"}),  # a flag that needs a value takes the next word, whatever it is
    ("-masq-chain=", {"masq-chain": ""}),
    ("-masq-chain=a=b", {"masq-chain": "a=b"}),
    ("--masq-chain A -masq-chain B", {"masq-chain": "B"}),
    ("-enable-ipv6", {"enable-ipv6": True}),
    ("--enable-ipv6=1 -random-fully=F", {"enable-ipv6": True, "random-fully": False}),
    *((f"-random-fully={word}", {"random-fully": True}) for word in ("1", "t", "T", "true", "TRUE", "True")),
    *((f"-random-fully={word}", {"random-fully": False}) for word in ("0", "f", "F", "false", "FALSE", "False")),
    ("--to-ports 1024-29999,32768-65535", {"to-ports": "1024-29999,32768-65535"}),
    # a bool takes no second word, so that flags end there
    ("--random-fully false --enable-ipv6", {"random-fully": True}),
    ("-- --enable-ipv6", {}),
    ("- --enable-ipv6", {}),
    ("agent --enable-ipv6", {}),
    ("--logtostderr --v=2 -stderrthreshold INFO --enable-ipv6", {"enable-ipv6": True}),
    ("--log_file_max_size 0x10 -v -1 --vmodule=a=1,b=2 --log_dir= ", {}),
]


@pytest.mark.parametrize(("line", "given"), TAKEN)
def test_what_is_taken(line: str, given: dict[str, str | bool]) -> None:
    assert read_flags(line.split()).given == given


REFUSED = [
    ("--version", "flag provided but not defined: -version"),
    ("--enable-ip6", 'flag provided but not defined: -enable-ip6 (did you mean "enable-ipv6"?)'),
    ("---v", "bad flag syntax: ---v"),
    ("--=x", "bad flag syntax: --=x"),
    ("-=x", "bad flag syntax: -=x"),
    ("--masq-chain", "flag needs an argument: -masq-chain"),
    ("--enable-ipv6=yes", 'invalid boolean value "yes" for -enable-ipv6: write true or false'),
    ("--enable-ipv6=", 'invalid boolean value "" for -enable-ipv6: write true or false'),
    ("--v=many", 'invalid value "many" for flag -v: write a whole number'),
    ("--log_file_max_size=-1", 'invalid value "-1" for flag -log_file_max_size: write a whole number'),
    ("--enable-ipv6 --resync-interval=60", "flag provided but not defined: -resync-interval"),
]


@pytest.mark.parametrize(("line", "message"), REFUSED)
def test_what_is_refused_with_usage_and_exit_code_2(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(FlagError):
        read_flags(line.split())
    assert main(line.split()) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == f"ip-masq-agent: {message}"
    assert lines[1].startswith("Usage of ip-masq-agent")


@pytest.mark.parametrize("word", ["-h", "--help", "-help"])
def test_help_names_every_flag_and_is_no_failure(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([word]) == 0
    text = capsys.readouterr().err
    assert [name for name in (*AGENT_FLAGS, *KLOG_FLAGS) if f"-{name}" not in text] == []


UNUSABLE = [
    ("--to-ports=10-5", '--to-ports "10-5": "10-5" is reversed: write "5-10"'),
    ("--to-ports=70000", '--to-ports "70000": "70000" goes beyond the last port: end with 65535 or less'),
    ("--to-ports=0-10", '"0-10" holds port 0'),
    ("--to-ports=1-3,2-4", "1-3 and 2-4 overlap"),
    ("--to-ports=-5", '"-5" is neither a port nor a range'),
    ("--masq-chain=", "--masq-chain: the name of the chain is empty"),
    (f"--masq-chain={'A' * 29}", "has 29 bytes, the kernel takes 28"),
    ("--masq-chain=POSTROUTING", "POSTROUTING is a built-in chain"),
    ("--masq-chain=MASQUERADE", "MASQUERADE is the name of an iptables target"),
    ("--masq-chain=-x", "begins with -"),
]


@pytest.mark.parametrize(("line", "message"), UNUSABLE)
def test_values_that_cannot_be_used_exit_with_1_before_anything_is_touched(
    line: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """T23, T24."""
    assert main(line.split()) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("ip-masq-agent: --")
    assert message in said


def test_both_mistakes_are_said_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--to-ports=1-2,", "--masq-chain=!x"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2


def test_a_name_of_28_characters_is_taken() -> None:
    assert settings_of(Flags({"masq-chain": "A" * 28})).masq_chain == "A" * 28


def test_the_old_flags_as_settings() -> None:
    words = [
        "--masq-chain=IP-MASQ",
        "--nomasq-all-reserved-ranges",
        "--enable-ipv6",
        "--random-fully=false",
        "--to-ports=5-9",
    ]
    assert settings_of(read_flags(words)) == settings_from(
        Settings,
        {
            **OLD,
            "masq_chain": "IP-MASQ",
            "nomasq_all_reserved_ranges": True,
            "enable_ipv6": True,
            "random_fully": False,
            "to_ports": "5-9",
        },
    )
    assert settings_of(Flags({})) == settings_from(Settings, OLD)


def test_what_has_no_effect_is_said_once() -> None:
    notes = notes_on(read_flags(["--v=2", "--logtostderr", "--v=3", "here", "--enable-ipv6", "more"]))
    assert [note.partition(":")[0] for note in notes] == ["-v, -logtostderr", "--enable-ipv6"]
    assert notes_on(read_flags(["--enable-ipv6", "words", "without", "dashes"])) == []


def test_no_kubernetes_objects_are_read_as_before() -> None:
    found = environment({"PODGATE_SOURCE": "/objects", "KUBERNETES_SERVICE_HOST": "10.0.0.1", "NODE_NAME": "n"})
    assert found == {"NODE_NAME": "n"}


def test_the_lab_starts_it_by_the_images_name() -> None:
    assert ENTRIES["ip-masq-agent"] == main.__module__


# What the old rules say about packets, so that explain and conntrack say it too.

MACHINE_ADDRESS = "192.0.2.1"
DECISIONS = [
    # from, to, action
    ("10.244.1.2", "203.0.113.5", "masquerade"),
    ("10.244.1.2", "10.1.2.3", "keep"),
    ("10.244.1.2", "224.0.0.251", "masquerade"),
    ("10.244.1.2", "255.255.255.255", "masquerade"),
    (MACHINE_ADDRESS, "203.0.113.5", "masquerade"),
    ("fd00::2", "fd00::3", "masquerade"),
    ("fd00::2", "fe80::1", "keep"),
    ("fd00::2", "2001:db8::1", "masquerade"),
]


@pytest.mark.parametrize(("source", "destination", "action"), DECISIONS)
def test_what_the_old_rules_decide(source: str, destination: str, action: str) -> None:
    settings = settings_from(Settings, {**OLD, "enable_ipv6": True})
    compiled = Compiler(settings, lambda intent: intent)(Inputs())
    asked = (ip_address(source), ip_address(destination))
    assert decide(compiled.states, *asked).translation.action == action
    assert [problem.reason for problems in compiled.problems.values() for problem in problems] == []


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        ("nonMasqueradeCIDRs: [10.0.0.0/8]\nmasqLinkLocal: true", ["10.0.0.0/8"]),
        ("nonMasqueradeCIDRs: []", ["169.254.0.0/16"]),
        (json.dumps({"nonMasqueradeCIDRs": ["0.0.0.0/0"]}), ["169.254.0.0/16", "0.0.0.0/0"]),
    ],
)
def test_the_file_of_the_old_program_is_read(config: str, kept: list[str]) -> None:
    settings = settings_of(Flags({}))
    inputs = Inputs(files={"/etc/config/ip-masq-agent": Present(config.encode())})
    state = Writer("ip", "nft", settings.masq_chain, "agent")(Compiler(settings, lambda i: i)(inputs).states)
    assert [line.partition(" -d ")[2].split()[0] for line in chain_text(state).splitlines() if " -d " in line] == kept
