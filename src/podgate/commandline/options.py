"""Options: how a feature's frozen settings become flags and file keys.

Here: the annotation that a settings field carries, those that several features share, the specs read off a settings
class, and the checked way from a mapping to settings. Not here: argparse and printing (cli.py), and the options of any
one feature.
Invariant: flags, help and file keys come from the fields alone, so an option exists exactly once.
"""

import re
import typing
from collections.abc import Iterable, Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Final, Literal, TypeVar, Union

import msgspec

from podgate.model.frozen import Frozen
from podgate.model.spelling import did_you_mean

SettingsT = TypeVar("SettingsT", bound=Frozen)

_FLAG: Final = re.compile(r"--[a-z][a-z0-9-]*")


class Option(Frozen, frozen=True):
    """What a field says about itself beside its type: ``Annotated[str, Option(help="…", metavar="PATH")]``.

    Attributes:
        help: one phrase for ``--help``, without a full stop.
        metavar: what stands for the value in ``--help``; empty for the type's own word.
        verbs: the verbs that it changes something for; empty for all.
        many: a text that lists several things; the flag may be given again instead of a comma.
    """

    help: str
    metavar: str = ""
    verbs: tuple[str, ...] = ()
    many: bool = False


def listed(text: str) -> tuple[str, ...]:
    """Give the items of a list with commas, without the space around them; empty ones are none."""
    return tuple(item for part in text.split(",") if (item := part.strip()))


DECIDING: Final = ("run", "render", "plan", "explain", "check")
"""The verbs that look at the inputs: all but clean."""

SOURCE: Final = Option(
    "read Kubernetes objects from this folder or file; without it --kubeconfig, else $PODGATE_SOURCE",
    metavar="DIR|FILE",
    verbs=DECIDING,
)
"""For the field ``source: str | None`` of a feature that can do without objects."""

KUBECONFIG: Final = Option(
    "read Kubernetes objects from the API that this kubeconfig names; without it all verbs but run read $KUBECONFIG; "
    "inside a Pod its own account serves too",
    metavar="FILE",
    verbs=DECIDING,
)
"""For the field ``kubeconfig: str | None`` of every feature that reads objects."""

KUBECONFIG_OF_AGENT: Final = Option(
    "read Kubernetes objects from the API that this kubeconfig names; without it the API of the Pod's own account",
    metavar="FILE",
)
"""The same for what only runs as an agent, which does not read $KUBECONFIG."""

CONTEXT: Final = Option("the context in the kubeconfig; without it the current one", metavar="NAME", verbs=DECIDING)
"""For the field ``context: str | None`` beside it."""

NODE_NAME: Final = Option("this node's name; without it $NODE_NAME, else the host name", metavar="NAME", verbs=DECIDING)
"""For the field ``node_name: str | None``."""

METRICS_ADDR: Final = Option("where /metrics is served; empty for nowhere", metavar="ADDR:PORT", verbs=("run",))
"""For the field ``metrics_addr: str`` where health has an address of its own."""

ALL_PAGES_ADDR: Final = Option(
    "where /metrics, /healthz and /readyz are served; empty for nowhere", metavar="ADDR:PORT", verbs=("run",)
)
"""For the field ``metrics_addr: str`` where it has not."""

ONCE: Final = Option("write the rules once, then exit", verbs=("run",))
"""For the field ``once: bool``."""

CLEAN_ON_EXIT: Final = Option("remove the rules when stopped; without it they stay and keep working", verbs=("run",))
"""For the field ``clean_on_exit: bool``."""


def empty_mistakes(given: Mapping[str, str | None]) -> Iterator[str]:
    """Give the flags, by their names, whose value is an empty text; None is a flag that was left out."""
    for flag, value in given.items():
        if value == "":
            yield f"{flag} is empty: give a value, or leave the flag out"


def kube_mistakes(kubeconfig: str | None, context: str | None) -> Iterator[str]:
    """Give what is wrong with these two options."""
    yield from empty_mistakes({"--kubeconfig": kubeconfig, "--context": context})
    if context and not kubeconfig:
        yield f"--context {context}: it names a context in a kubeconfig: give --kubeconfig too"


class OptionSpec(Frozen, frozen=True):
    """One option as a command line needs it.

    Attributes:
        name: the field's name, which is also the key in a settings file.
        flag: as ``--node-name``.
        type: ``str``, ``int``, ``float`` or ``bool``; a field of ``X | None`` has type X.
        default: the field's default; None where the field has none or None itself.
        required: the field has no default.
        choices: the values of a Literal; empty for any value.
        verbs: the verbs that it changes something for; empty for all.
        many: the flag may be given several times, which is the same as once with commas between the values.
    """

    name: str
    flag: str
    type: type
    default: Any
    required: bool
    help: str
    metavar: str = ""
    choices: tuple[str, ...] = ()
    verbs: tuple[str, ...] = ()
    many: bool = False


class SettingsError(Exception):
    """Settings that cannot be used.

    Attributes:
        problems: one message per mistake, all of them, in the order of the mapping.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


def options_of(cls: type[Frozen]) -> tuple[OptionSpec, ...]:
    """Read the options off a settings class, in the order of its fields.

    Raises:
        TypeError: a field carries no Option, or its type is none that a flag can have. Both are bugs.
    """
    hints = typing.get_type_hints(cls, include_extras=True)
    return tuple(_spec(cls, field, hints[field.name]) for field in msgspec.structs.fields(cls))


def _spec(cls: type[Frozen], field: msgspec.structs.FieldInfo, hint: Any) -> OptionSpec:
    options = [item for item in getattr(hint, "__metadata__", ()) if isinstance(item, Option)]
    if not options:
        raise TypeError(f"{cls.__name__}.{field.name} carries no Option(help=…)")
    plain, choices = _plain(typing.get_args(hint)[0])
    if plain not in (str, int, float, bool):
        raise TypeError(f"{cls.__name__}.{field.name}: no flag can have the type {hint}")
    required = field.default is msgspec.NODEFAULT
    return OptionSpec(
        name=field.name,
        flag="--" + field.name.replace("_", "-"),
        type=plain,
        default=None if required else field.default,
        required=required,
        help=options[0].help,
        metavar=options[0].metavar,
        choices=choices,
        verbs=options[0].verbs,
        many=options[0].many,
    )


def _plain(hint: Any) -> tuple[Any, tuple[str, ...]]:
    """Give the type that a flag's value has, and its choices."""
    if typing.get_origin(hint) in (Union, UnionType):
        members = [each for each in typing.get_args(hint) if each is not NoneType]
        return _plain(members[0]) if len(members) == 1 else (hint, ())
    if typing.get_origin(hint) is Literal:
        return str, tuple(str(each) for each in typing.get_args(hint))
    return hint, ()


def settings_from(cls: type[SettingsT], values: Mapping[str, Any]) -> SettingsT:
    """Make settings from option names and values; names that are absent keep their defaults.

    A class may have a method ``mistakes() -> Iterable[str]`` for what types cannot say.

    Raises:
        SettingsError: with every mistake at once: unknown names, wrong types, missing options, ``mistakes()``.
    """
    specs = {spec.name: spec for spec in options_of(cls)}
    hints = typing.get_type_hints(cls, include_extras=True)
    problems: list[str] = []
    wrong: set[str] = set()
    good: dict[str, Any] = {}
    for name, value in values.items():
        if name not in specs:
            problems.append(f'unknown option "{name}"{did_you_mean(name, specs)}')
            continue
        try:
            good[name] = msgspec.convert(value, hints[name])
        except msgspec.ValidationError:
            problems.append(_wrong_value(specs[name], value))
            wrong.add(specs[name].flag)
    problems += [f"{spec.flag} is required" for spec in specs.values() if spec.required and spec.name not in values]
    if any(spec.required and spec.name not in good for spec in specs.values()):
        raise SettingsError(problems)
    settings = cls(**good)
    # What is said beside an option of a wrong type is said of its default.
    problems += (each for each in getattr(settings, "mistakes", tuple)() if wrong.isdisjoint(_FLAG.findall(each)))
    if problems:
        raise SettingsError(problems)
    return settings


def _wrong_value(spec: OptionSpec, value: Any) -> str:
    if spec.choices:
        near = did_you_mean(value, spec.choices) if isinstance(value, str) else ""
        return f'{spec.flag} "{value}": must be one of {", ".join(spec.choices)}{near}'
    words = {str: "a text", int: "a whole number", float: "a number", bool: "true or false"}
    return f"{spec.flag} {value!r}: must be {words[spec.type]}"
