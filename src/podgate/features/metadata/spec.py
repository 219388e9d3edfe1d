"""spec: what a metadata policy says, in a file or in an object: subjects and rules. Pure.

Here: the structs, reading a file's JSON, and what is wrong with one. Not here: the kind around it (policy.py),
matching a Pod (clients.py) or a request (filter.py).
Invariant: msgspec alone reads it, so the proxy's process needs no YAML; a key that means nothing is a mistake, since a
policy with a misspelled key would say less than its author thinks.
"""

from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

import msgspec

from podgate.features.metadata import globs
from podgate.model.converting import worded
from podgate.model.frozen import Frozen
from podgate.model.selectors import OPERATORS, Operator

MAX_RULES: Final = 256
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE")


class Rule(Frozen, frozen=True, forbid_unknown_fields=True):
    """One rule: it matches when path, method and query do.

    Attributes:
        paths: globs (globs.py).
        verdict: ``deny`` covers all that is below a path too, in any case of letters; ``allow`` covers exactly what
            is written.
        methods: empty for any that gets this far.
        query: a glob for the value of each named key. ``deny`` matches if any value of the key does, ``allow`` if the
            key is there and all its values do; an allow rule that names ``recursive`` permits recursion.
    """

    paths: tuple[str, ...]
    verdict: Literal["allow", "deny"]
    methods: tuple[str, ...] = ()
    query: Mapping[str, str] = {}


class Expression(Frozen, frozen=True, forbid_unknown_fields=True):
    """One of a selector's ``matchExpressions``."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Say whether it holds; ``NotIn`` holds for a label that is not there."""
        return OPERATORS[self.operator](labels.get(self.key), self.values)


class PodSelector(Frozen, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The API's LabelSelector; empty selects every Pod."""

    match_labels: Mapping[str, str] = {}
    match_expressions: tuple[Expression, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Say whether it selects labels."""
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            expression.holds(labels) for expression in self.match_expressions
        )


class Subjects(Frozen, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which Pods: all that is given must hold.

    Attributes:
        namespaces: names; None for any.
        service_accounts: ``NAME`` or ``NAMESPACE/NAME``; None for any.
        pod_selector: by labels; None for any.
    """

    namespaces: tuple[str, ...] | None = None
    service_accounts: tuple[str, ...] | None = None
    pod_selector: PodSelector | None = None

    @property
    def everybody(self) -> bool:
        """Whether nothing is asked for, so that nobody need be looked up."""
        return self.namespaces is None and self.service_accounts is None and self.pod_selector is None

    def match(self, namespace: str, service_account: str, labels: Mapping[str, str]) -> bool:
        """Say whether a Pod is meant."""
        if self.namespaces is not None and namespace not in self.namespaces:
            return False
        accounts = self.service_accounts
        if accounts is not None and not {service_account, f"{namespace}/{service_account}"} & set(accounts):
            return False
        return self.pod_selector is None or self.pod_selector.matches(labels)


class PolicySpec(Frozen, frozen=True, forbid_unknown_fields=True):
    """A policy. Of several rules that match, deny wins; where none does, the profile decides."""

    rules: tuple[Rule, ...]
    subjects: Subjects = Subjects()


class Mistake(NamedTuple):
    """What is wrong with one field: its path below the spec, a reason for metrics, and the words."""

    field: str
    reason: str
    message: str


class _Whole(Frozen, frozen=True):
    """A file that holds the whole object: only its spec counts."""

    spec: PolicySpec


def read_spec(data: bytes) -> PolicySpec | Mistake:
    """Read a policy file: JSON, the spec alone or the object around it."""
    if data.lstrip()[:1] != b"{":
        return Mistake(
            "",
            "NotJson",
            "is not a JSON object: write JSON, or restart podgate metadata run: it starts a process that reads YAML",
        )
    try:
        outer = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        return msgspec.json.decode(data, type=_Whole).spec if "spec" in outer else _spec(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return from_msgspec(str(error))


def _spec(data: bytes) -> PolicySpec:
    return msgspec.json.decode(data, type=PolicySpec)


def from_msgspec(text: str) -> Mistake:
    """Turn msgspec's words (``… - at `$.rules[0].verdict` ``) into a mistake with its field."""
    field, message = worded(text)
    message = f"{message}: see docs/guide/metadata for the fields of a policy"
    return Mistake(field.removeprefix("spec").lstrip("."), "BadPolicy", message)


def mistakes(spec: PolicySpec) -> Iterator[Mistake]:
    """Give what the types cannot say."""
    if len(spec.rules) > MAX_RULES:
        yield Mistake("rules", "BadPolicy", f"{len(spec.rules)} rules are more than {MAX_RULES}: use wildcards")
    for index, rule in enumerate(spec.rules):
        at = f"rules[{index}]"
        if not rule.paths:
            yield Mistake(f"{at}.paths", "BadPath", "a rule without a path never matches: write /** for all paths")
        for number, path in enumerate(rule.paths):
            wrong = globs.mistake(path)
            if wrong:
                yield Mistake(f"{at}.paths[{number}]", "BadPath", f'"{path}": {wrong}')
        for number, method in enumerate(rule.methods):
            if method not in METHODS:
                known = ", ".join(METHODS)
                yield Mistake(f"{at}.methods[{number}]", "BadMethod", f'"{method}" is none of {known}')
        for key in rule.query:
            if not key or not key.isascii() or not key.isprintable():
                yield Mistake(f"{at}.query", "BadQuery", f'"{key}" is no query key')
