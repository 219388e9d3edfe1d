"""globs: many anchored path patterns, tried at once. Pure.

Here: the grammar of patterns, and the structure that finds which of them a path meets. Not here: verdicts.
Invariant: a pattern covers a path from its first byte to its last; the work is bounded by the segments of the path
times the nodes of the patterns, whatever both are.

Grammar: a pattern begins with ``/``. A segment is literal text in which ``*`` stands for any characters (none, too, but
``*`` alone for one at least); the segment ``**`` stands for any number of segments, also none. A slash at the end of a
path or pattern makes no difference: the metadata servers redirect from one to the other.
"""

from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_IN_PATTERN: Final = frozenset("-._~!$&'()*+,=:@/0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def mistake(pattern: str) -> str:
    """Say what is wrong with a pattern; empty when nothing is."""
    if not pattern.startswith("/"):
        return "a path begins with /"
    bad = sorted(set(pattern) - _IN_PATTERN)
    if bad:
        return f"no path that is let through holds {bad[0]!r}: write the decoded path, with * and ** alone as wildcards"
    segments = segments_of(pattern)
    if "" in segments:
        return "it has an empty segment, and no path that is let through has one"
    if any("**" in segment and segment != "**" for segment in segments):
        return "** stands for whole segments: write it between slashes"
    if any(segment.endswith(".") for segment in segments):
        return "no path that is let through has a segment that ends in a dot"
    return ""


def segments_of(path: str) -> list[str]:
    """Split a path that begins with a slash; one slash at the end makes no difference."""
    segments = path[1:].split("/")
    if not segments[-1]:
        segments.pop()
    return segments


class _Node(Generic[T]):
    """What may follow the segments up to here."""

    __slots__ = ("deep", "literal", "loops", "value", "wild")

    def __init__(self, *, loops: bool = False) -> None:
        self.literal: dict[str, _Node[T]] = {}
        self.wild: list[tuple[Wild, _Node[T]]] = []
        self.deep: _Node[T] | None = None
        self.loops = loops
        self.value: T | None = None


class Wild:
    """A segment with wildcards, matched without backtracking: each part at its first place after the one before."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._first, *rest = text.split("*")
        self._exact = not rest
        *self._middle, self._last = rest or [""]
        self._shortest = max(1, len(text) - text.count("*"))

    def matches(self, segment: str) -> bool:
        """Say whether a whole segment matches."""
        if self._exact:
            return segment == self.text
        if len(segment) < self._shortest or not segment.startswith(self._first) or not segment.endswith(self._last):
            return False
        at, end = len(self._first), len(segment) - len(self._last)
        for part in self._middle:
            found = segment.find(part, at, end)
            if found < 0:
                return False
            at = found + len(part)
        return at <= end


class Globs(Generic[T]):
    """Patterns, each with a value; of two equal ones the first counts.

    Args:
        patterns: patterns without mistakes, and their values.
        any_case: whether upper and lower case are the same.
        below: whether a pattern covers all that is below it too.
    """

    def __init__(self, patterns: Iterable[tuple[str, T]], *, any_case: bool = False, below: bool = False) -> None:
        self._any_case, self._below = any_case, below
        self._root: _Node[T] = _Node()
        self.empty = True
        for pattern, value in patterns:
            self.empty = False
            self._add(segments_of(pattern.lower() if any_case else pattern), value)

    def _add(self, segments: Sequence[str], value: T) -> None:
        node = self._root
        for segment in segments:
            if segment == "**":
                if not node.loops:
                    node.deep = node.deep or _Node(loops=True)
                    node = node.deep
            elif "*" in segment:
                known = next((child for wild, child in node.wild if wild.text == segment), None)
                if known is None:
                    known = _Node()
                    node.wild.append((Wild(segment), known))
                node = known
            else:
                node = node.literal.setdefault(segment, _Node())
        if node.value is None:
            node.value = value

    def all_of(self, path: str) -> list[T]:
        """Give the values of all patterns that cover a path."""
        found: list[T] = []
        if self.empty:
            return found
        nodes = self._closure([self._root])
        for segment in segments_of(path.lower() if self._any_case else path):
            if self._below:
                for node in nodes:
                    if node.value is not None and not node.loops:
                        found.append(node.value)  # noqa: PERF401 - a list made for each segment costs twice the time
            nodes = self._next(nodes, segment)
            if not nodes:
                return found
        return found + [node.value for node in nodes if node.value is not None]

    def first(self, path: str) -> T | None:
        """Give the value of a pattern that covers a path."""
        found = self.all_of(path)
        return found[0] if found else None

    def beneath(self, path: str) -> bool:
        """Say whether some pattern covers the path or may cover a path below it."""
        nodes = self._closure([self._root])
        for segment in segments_of(path.lower() if self._any_case else path):
            if self._below and any(node.value is not None for node in nodes):
                return True
            nodes = self._next(nodes, segment)
        return bool(nodes)

    def _next(self, nodes: list[_Node[T]], segment: str) -> list[_Node[T]]:
        after = []
        for node in nodes:
            child = node.literal.get(segment)
            if child is not None:
                after.append(child)
            for wild, matching in node.wild:
                if wild.matches(segment):
                    after.append(matching)
            if node.loops:
                after.append(node)
        return self._closure(after)

    @staticmethod
    def _closure(nodes: list[_Node[T]]) -> list[_Node[T]]:
        """Add what ``**`` reaches with no segment at all; each node once."""
        nodes += [node.deep for node in nodes if node.deep is not None]
        return nodes if len(nodes) < 2 else list(dict.fromkeys(nodes))
