"""The end of a help: its form. That the texts are true: tests/test_help.py and tests/test_exit_codes.py."""

from podgate.commandline.guidance import Guidance


def test_examples_then_codes_then_the_page() -> None:
    guide = Guidance("docs/x.md", {0: "fine", 2: "wrong use"}, {"a b": "do it", "a b --now": "at once"})
    assert str(guide).splitlines() == [
        "examples:",
        "  podgate a b        # do it",
        "  podgate a b --now  # at once",
        "",
        "exit codes:",
        "  0  fine",
        "  2  wrong use",
        "",
        "documentation: docs/x.md",
    ]


def test_a_long_example_stands_below_what_it_is_for() -> None:
    long = "a " + "b" * 60
    assert str(Guidance("d", {}, {long: "why"})).splitlines()[:3] == ["example:", "  # why", f"  podgate {long}"]


def test_nothing_but_the_page_is_one_line() -> None:
    assert str(Guidance("docs/x.md")) == "documentation: docs/x.md"
