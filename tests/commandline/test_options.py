"""Options read off a settings class: flags, defaults, and every mistake at once."""

from typing import Annotated, Literal

import pytest

from podgate.commandline.options import Option, OptionSpec, SettingsError, listed, options_of, settings_from
from podgate.model.frozen import Frozen


class Sample(Frozen, frozen=True):
    target: Annotated[str, Option("what to reach", metavar="ADDR")]
    back_end: Annotated[Literal["nftables", "iptables"], Option("what is written to")] = "nftables"
    folder: Annotated[str | None, Option("where objects are")] = None
    tries: Annotated[int, Option("how often")] = 3
    pause: Annotated[float, Option("seconds between two tries")] = 0.5
    once: Annotated[bool, Option("stop then")] = False

    def mistakes(self) -> list[str]:
        found = ["--tries must be more than 0"] if self.tries <= 0 else []
        return [*found, "--pause: must be less than --tries"] if self.pause >= self.tries else found


def test_options_are_read_off_the_fields_in_order() -> None:
    assert options_of(Sample) == (
        OptionSpec("target", "--target", str, None, required=True, help="what to reach", metavar="ADDR"),
        OptionSpec(
            "back_end",
            "--back-end",
            str,
            "nftables",
            required=False,
            help="what is written to",
            choices=("nftables", "iptables"),
        ),
        OptionSpec("folder", "--folder", str, None, required=False, help="where objects are"),
        OptionSpec("tries", "--tries", int, 3, required=False, help="how often"),
        OptionSpec("pause", "--pause", float, 0.5, required=False, help="seconds between two tries"),
        OptionSpec("once", "--once", bool, default=False, required=False, help="stop then"),
    )


def test_a_field_without_an_option_is_a_bug() -> None:
    class Bare(Frozen, frozen=True):
        name: str = ""

    class Odd(Frozen, frozen=True):
        names: Annotated[tuple[str, ...], Option("several")] = ()

    with pytest.raises(TypeError, match=r"Bare\.name carries no Option"):
        options_of(Bare)
    with pytest.raises(TypeError, match=r"Odd\.names: no flag"):
        options_of(Odd)


def test_absent_names_keep_their_defaults() -> None:
    assert settings_from(Sample, {"target": "a"}) == Sample("a")
    assert settings_from(Sample, {"target": "a", "folder": None, "pause": 2}) == Sample("a", pause=2.0)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from(Sample, {"backend": "nftables", "back_end": "nftable", "tries": "3", "once": 1})
    assert caught.value.problems == (
        'unknown option "backend" (did you mean "back_end"?)',
        '--back-end "nftable": must be one of nftables, iptables (did you mean "nftables"?)',
        "--tries '3': must be a whole number",
        "--once 1: must be true or false",
        "--target is required",
    )


def test_a_class_adds_what_types_cannot_say() -> None:
    with pytest.raises(SettingsError, match="--tries must be more than 0"):
        settings_from(Sample, {"target": "a", "tries": 0})


def test_what_types_cannot_say_is_told_beside_wrong_types_but_not_about_them() -> None:
    with pytest.raises(SettingsError) as caught:
        settings_from(Sample, {"target": "a", "tries": 0, "pause": "x"})
    assert caught.value.problems == ("--pause 'x': must be a number", "--tries must be more than 0")


def test_items_of_a_list_stand_between_commas() -> None:
    assert listed(" 10.0.0.1 ,, fd00::1") == ("10.0.0.1", "fd00::1")
    assert listed("") == ()
