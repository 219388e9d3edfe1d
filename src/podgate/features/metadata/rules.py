"""rules: a profile and policies as matchers, ready to be asked about paths. Pure.

Here: the profile's part (what is concealed, the keys and methods of a path) and the policies' (allow, deny).
Not here: the order in which they are asked (filter.py), the grammar of paths (globs.py).
Invariant: a matcher is built once and never changes; asking it costs no more than the path's length allows.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple

from podgate.features.metadata.globs import Globs, Wild
from podgate.features.metadata.profiles import AtPaths, Profile, Switch
from podgate.features.metadata.spec import Rule
from podgate.features.metadata.target import Pairs, form

_NOTHING: Final[frozenset[str]] = frozenset()
_DECODINGS: Final = 4
EVERYWHERE: Final = ("GET", "HEAD")
"""The methods that read."""


_DELIMITERS: Final = "!$&'()*+,=:"
_AS_SLASH: Final = str.maketrans(_DELIMITERS, "/" * len(_DELIMITERS))


def readings(path: str) -> tuple[str, ...]:
    """Give a path as it is, and as servers would read it that take other delimiters for separators or trim dots, too.

    Denials look at all: ``kube-env,x``, ``attributes:kube-env`` and ``.kube-env`` name nothing that anybody asks for.
    """
    other = path.translate(_AS_SLASH)
    if other == path:
        return (path, _joined(path.split("/"))) if "/." in path else (path,)
    ends = [
        part for segment in path.split("/") if (parts := segment.translate(_AS_SLASH).split("/")) for part in parts[-1:]
    ]
    return path, _joined(other.split("/")), _joined(ends)


def _joined(segments: Iterable[str]) -> str:
    return "/" + "/".join(plain for segment in segments if (plain := segment.lstrip(".")))


def _by_path(profile: Profile, entries: Iterable[AtPaths], opened: Collection[Switch]) -> Globs[tuple[str, ...]]:
    wanted = [at for at in entries if not at.switch or at.switch in opened]
    return Globs(((path, at.words) for at in wanted for path in at.paths), any_case=profile.any_case)


class ProfileRules:
    """A profile with its switches set.

    Args:
        profile: the cloud's.
        opened: the switches that are open.
    """

    def __init__(self, profile: Profile, opened: Collection[Switch]) -> None:
        self.profile = profile
        self._keys = frozenset(profile.query_keys)
        self._keys_at = _by_path(profile, profile.query_keys_at, opened)
        self._methods_at = _by_path(profile, profile.methods_at, opened)
        self._redacted = _by_path(profile, profile.redacted, opened)
        self._roots = Globs(((path, True) for path in profile.roots), any_case=profile.any_case)
        self._recursion = Globs((path, True) for path in profile.recursion)
        self._header_at = Globs(((path, True) for path in profile.header_at), any_case=True)
        self._concealed = Globs(
            (
                (path, f"{profile.name}/{concealed.name}")
                for concealed in profile.concealed
                if not concealed.switch or concealed.switch not in opened
                for path in concealed.paths
            ),
            any_case=True,
            below=True,
        )

    def unknown_key(self, path: str, pairs: Pairs, also: Collection[str]) -> str | None:
        """Give the first query key that this path does not take."""
        rest = [key for key, _ in pairs if key not in self._keys and key not in also]
        if not rest:
            return None
        here = self._keys_at.first(path) or ()
        return next((key for key in rest if key not in here), None)

    def hides_recursion(self, pairs: Pairs) -> bool:
        """Say whether a value would be a recursive query for a server that decodes it again. None needs that word."""
        if self._recursion.empty:
            return False
        return any(value and "recursive" in _decoded_again(value).lower() for _, value in pairs)

    def recursion_at(self, path: str) -> bool:
        """Say whether ``recursive`` may stand at a path: the directory that it is, or that it is in, must be open."""
        return self._recursion.first(path[: path.rfind("/") + 1]) is not None

    def concealing(self, path: str) -> str | None:
        """Give the rule that conceals a path."""
        rule = next((rule for each in readings(path) if (rule := self._concealed.first(each)) is not None), None)
        if rule is None and self.profile.answers_with_children and self._concealed.beneath(path):
            return f"{self.profile.name}/parents"
        return rule

    def known(self, path: str) -> bool:
        """Say whether a path is below a root."""
        return self._roots.first(path) is not None

    def methods(self, path: str) -> tuple[str, ...]:
        """Give the methods that a path takes."""
        return EVERYWHERE + (self._methods_at.first(path) or ())

    def needs_header(self, path: str) -> bool:
        """Say whether a path gives nothing without the profile's header."""
        return self._header_at.first(path) is not None

    def redacted(self, path: str) -> str:
        """Give the field to take out of the answer; empty for none."""
        return "".join(self._redacted.first(path) or ())


def _decoded_again(value: str) -> str:
    """Decode a value as often as anybody would."""
    for _ in range(_DECODINGS):
        plain = form(value.encode("ascii")) if "%" in value else value
        if plain == value or not isinstance(plain, str):
            break
        value = plain
    return value


class _Ready(NamedTuple):
    """A rule with its values compiled."""

    name: str
    methods: frozenset[str]
    query: tuple[tuple[str, Wild | None], ...]


class Ruling(NamedTuple):
    """What the policies say: a verdict of theirs and the rule, or neither."""

    verdict: str
    rule: str


class PolicyRules:
    """The rules of all policies that apply to a client.

    Args:
        rules: each with the name that logs show.
    """

    def __init__(self, rules: Sequence[tuple[str, Rule]]) -> None:
        self.empty = not rules
        self._deny = _grouped((rule for rule in rules if rule[1].verdict == "deny"), denies=True)
        self._allow = _grouped((rule for rule in rules if rule[1].verdict == "allow"), denies=False)

    def keys_at(self, path: str, method: str, pairs: Pairs) -> Collection[str]:
        """Give the query keys that allow rules name, of those that match a request."""
        matching = [
            ready for group in self._allow.all_of(path) for ready in group if _matches(ready, method, pairs, every=True)
        ]
        return {key for ready in matching for key, _ in ready.query} if matching else _NOTHING

    def outcome(
        self, path: str, method: str, pairs: Pairs, *, recursive: bool = False, children: bool = False
    ) -> Ruling | None:
        """Say what the policies want.

        Args:
            path: the checked path.
            method: of the request.
            pairs: its query.
            recursive: whether it asks for recursion, which an allow rule must name.
            children: whether the answer holds what is below the path, so that a denial there counts here too.
        """
        for group in (group for each in readings(path) for group in self._deny.all_of(each)):
            for ready in group:
                if _matches(ready, method, pairs, every=False):
                    return Ruling("deny", ready.name)
        if (children or recursive) and self._deny.beneath(path):
            return Ruling("deny", "what is below it is denied")
        for group in self._allow.all_of(path):
            for ready in group:
                named = not recursive or any(key == "recursive" for key, _ in ready.query)
                if named and _matches(ready, method, pairs, every=True):
                    return Ruling("allow", ready.name)
        return None


def _grouped(rules: Iterable[tuple[str, Rule]], *, denies: bool) -> Globs[tuple[_Ready, ...]]:
    groups: dict[str, tuple[_Ready, ...]] = {}
    for name, rule in rules:
        query = tuple((key, None if value == "*" else Wild(value)) for key, value in sorted(rule.query.items()))
        methods = frozenset(rule.methods)
        if denies and "GET" in methods:
            methods |= {"HEAD"}  # whose answer tells whether it is there, and how long it is
        ready = _Ready(name, methods, query)
        for path in rule.paths:
            key = path.lower() if denies else path
            groups[key] = (*groups.get(key, ()), ready)
    return Globs(groups.items(), any_case=denies, below=denies)


def _matches(ready: _Ready, method: str, pairs: Pairs, *, every: bool) -> bool:
    if ready.methods and method not in ready.methods:
        return False
    for key, wild in ready.query:
        fits = [wild is None or wild.matches(value or "") for name, value in pairs if name == key]
        if not fits or not (all(fits) if every else any(fits)):
            return False
    return True
