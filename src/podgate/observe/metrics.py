"""Metrics as Prometheus reads them: text exposition format 0.0.4.

Here: the writer, and ``Counters``, the values that grow while a process runs.
Not here: which metrics there are, and serving them (pages.py).
Invariant: equal samples give equal bytes, in whatever order they came; a page is either valid as a whole or not made.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Final, Protocol

import msgspec

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""What an exposition is served as."""

SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Bucket bounds for durations, in seconds: from one netlink transaction to a loaded node."""

Labels = tuple[tuple[str, str], ...]
"""Label names and values; their order has no meaning."""

_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*", re.ASCII)
_LABEL: Final = re.compile(r"(?!__)[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_OLDER: Final = frozenset(
    {
        "request_count",
        "kubeproxy_sync_proxy_rules_no_local_endpoints_total",
        "kubeproxy_sync_proxy_rules_iptables_total",
    }
)
"""Names that other programs chose against the convention, and dashboards know: of metadata-proxy and kube-proxy."""

_KINDS: Final = ("counter", "gauge", "histogram")


class Distribution(msgspec.Struct, frozen=True):
    """A histogram's value: observations per bucket (one more than bounds: the last is above all), and their sum."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    sum: float


class Reading(Protocol):
    """One sample. Any value with these attributes is one, so that its maker needs to know nothing of this module."""

    @property
    def name(self) -> str:
        """The metric's name; a counter's ends in ``_total``."""
        ...

    @property
    def value(self) -> "float | Distribution":
        """The number, or a histogram's Distribution."""
        ...

    @property
    def labels(self) -> Labels:
        """What tells this sample from others of its name."""
        ...

    @property
    def kind(self) -> str:
        """``counter``, ``gauge`` or ``histogram``."""
        ...

    @property
    def help(self) -> str:
        """One sentence; equal, or empty, in all samples of a name."""
        ...


class Measured(msgspec.Struct, frozen=True):
    """A Reading of our own."""

    name: str
    value: float | Distribution
    labels: Labels = ()
    kind: str = "gauge"
    help: str = ""


def exposition(samples: Iterable[Reading]) -> bytes:
    """Write a page.

    Raises:
        ValueError: a bug of the caller: a bad name, kind or label, a counter without ``_total``, a name with two kinds
            or two helps, a sample twice, or a histogram whose parts do not fit together.
    """
    families: dict[str, dict[Labels, Reading]] = {}
    for sample in samples:
        labels = _checked_labels(sample)
        family = families.setdefault(sample.name, {})
        if labels in family:
            raise ValueError(
                f"metric {sample.name}: two samples with the labels {dict(labels)}; tell them apart or add them up"
            )
        family[labels] = sample
    taken: dict[str, str] = {}
    lines: list[str] = []
    for name in sorted(families):
        kind, text = _checked_family(name, families[name].values())
        for series in _series_names(name, kind):
            if series in taken:
                raise ValueError(f"metrics {taken[series]} and {name} both write {series}; rename one")
            taken[series] = name
        if text:
            lines.append(f"# HELP {name} {_escaped_help(text)}")
        lines.append(f"# TYPE {name} {kind}")
        for labels, sample in sorted(families[name].items()):
            lines += _lines(name, labels, sample.value)
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _checked_labels(sample: Reading) -> Labels:
    labels = tuple(sorted(sample.labels))
    names = [name for name, _ in labels]
    for name in names:
        if not _LABEL.fullmatch(name) or (name == "le" and sample.kind == "histogram"):
            raise ValueError(f"metric {sample.name}: {name!r} cannot name a label; use letters, digits and _, not le")
    if len(set(names)) != len(names):
        raise ValueError(f"metric {sample.name}: a label is given twice in {names}")
    return labels


def _checked_family(name: str, samples: Iterable[Reading]) -> tuple[str, str]:
    """Give the kind and the help that all samples of one name share."""
    samples = list(samples)
    kinds = sorted({sample.kind for sample in samples})
    helps = sorted({sample.help for sample in samples} - {""})
    if not _NAME.fullmatch(name):
        raise ValueError(f"metric {name!r}: not a name; use letters, digits, _ and :")
    if len(kinds) > 1 or len(helps) > 1:
        raise ValueError(f"metric {name}: one name has the kinds {kinds} and the helps {helps}; make them one each")
    kind = kinds[0]
    if kind not in _KINDS:
        raise ValueError(f"metric {name}: unknown kind {kind!r}; use one of {', '.join(_KINDS)}")
    if (kind == "counter") != name.endswith("_total") and name not in _OLDER:
        raise ValueError(f"metric {name} is a {kind}: names of counters, and only theirs, end in _total")
    if any(isinstance(sample.value, Distribution) != (kind == "histogram") for sample in samples):
        raise ValueError(f"metric {name}: a histogram's value is a Distribution, any other's a number")
    return kind, helps[0] if helps else ""


def _series_names(name: str, kind: str) -> tuple[str, ...]:
    return (name, f"{name}_bucket", f"{name}_count", f"{name}_sum") if kind == "histogram" else (name,)


def _lines(name: str, labels: Labels, value: float | Distribution) -> list[str]:
    if not isinstance(value, Distribution):
        return [f"{name}{_label_text(labels)} {_number(value)}"]
    if len(value.counts) != len(value.bounds) + 1 or any(
        a >= b for a, b in zip(value.bounds, value.bounds[1:], strict=False)
    ):
        raise ValueError(f"metric {name}: bounds rise and there is one count more than bounds, not {value}")
    lines = [
        f"{name}_bucket{_label_text((*labels, ('le', _number(bound))))} {count}"
        for bound, count in zip((*value.bounds, math.inf), accumulate(value.counts), strict=True)
    ]
    return [
        *lines,
        f"{name}_sum{_label_text(labels)} {_number(value.sum)}",
        f"{name}_count{_label_text(labels)} {sum(value.counts)}",
    ]


def _label_text(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped_label(value)}"' for name, value in labels) + "}" if labels else ""


def _escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped_label(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    """Write a number as Go's ParseFloat reads it; a whole number without a fraction."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if float(value).is_integer() and abs(value) < 2**53 else repr(float(value))


class Counter(msgspec.Struct, frozen=True):
    """Declares a counter: its name, its help, and the names of its labels."""

    name: str
    help: str
    labels: tuple[str, ...] = ()


class Histogram(msgspec.Struct, frozen=True):
    """Declares a histogram. ``bounds`` are upper bounds, inclusive and rising; +Inf is added."""

    name: str
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = SECONDS


class Counters:
    """Values that only grow, owned by the process that counts. A counter without labels starts at 0: seen at once."""

    __slots__ = ("_counts", "_declared", "_distributions")

    def __init__(self, declared: Sequence[Counter | Histogram]) -> None:
        self._declared = {metric.name: metric for metric in declared}
        if len(self._declared) != len(declared):
            raise ValueError(f"a metric is declared twice: {sorted(metric.name for metric in declared)}")
        self._counts: dict[tuple[str, Labels], float] = {}
        self._distributions: dict[tuple[str, Labels], Distribution] = {}
        for metric in declared:
            if isinstance(metric, Counter) and not metric.labels:
                self._counts[metric.name, ()] = 0.0

    def add(self, name: str, by: float = 1.0, /, **labels: str) -> None:
        """Let a counter grow.

        Raises:
            ValueError: a bug: not declared as a counter with these labels, or ``by`` is negative.
        """
        if by < 0:
            raise ValueError(f"counter {name} cannot shrink by {-by}")
        key = self._key(name, Counter, labels)
        self._counts[key] = self._counts.get(key, 0.0) + by

    def observe(self, name: str, value: float, /, **labels: str) -> None:
        """Put one observation into a histogram.

        Raises:
            ValueError: a bug: not declared as a histogram with these labels.
        """
        key = self._key(name, Histogram, labels)
        metric = self._declared[name]
        assert isinstance(metric, Histogram)  # noqa: S101 - _key saw to it; this tells mypy
        have = self._distributions.get(key) or Distribution(metric.bounds, (0,) * (len(metric.bounds) + 1), 0.0)
        counts = list(have.counts)
        counts[bisect_left(metric.bounds, value)] += 1
        self._distributions[key] = Distribution(metric.bounds, tuple(counts), have.sum + value)

    def samples(self) -> tuple[Measured, ...]:
        """Give all values as they are now."""
        counts = [
            Measured(name, value, labels, "counter", self._declared[name].help)
            for (name, labels), value in self._counts.items()
        ]
        distributions = [
            Measured(name, value, labels, "histogram", self._declared[name].help)
            for (name, labels), value in self._distributions.items()
        ]
        return (*counts, *distributions)

    def _key(self, name: str, kind: type[Counter | Histogram], labels: dict[str, str]) -> tuple[str, Labels]:
        metric = self._declared.get(name)
        if not isinstance(metric, kind) or set(labels) != set(metric.labels):
            raise ValueError(f"no {kind.__name__.lower()} {name} with the labels {sorted(labels)} was declared")
        return name, tuple(sorted(labels.items()))
