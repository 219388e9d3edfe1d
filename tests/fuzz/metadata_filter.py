"""A fuzzer of metadata's request path: raw bytes through head, target and filter, with the oracle behind them.

    python -m tests.fuzz.metadata_filter [REQUESTS] [SEED]

Here: the mutations, and what must hold of each request. Not here: the oracle (tests/features/metadata/oracle.py).
Invariant: a finding is printed with the bytes that it takes, so that it can become a case.

Mutated further is whatever reaches a new branch of the request path (reached.py), or gets a new combination of reason,
rule and spelling.
"""

import importlib
import os
import random
import re
import sys
import time
from functools import partial
from typing import Final

from podgate.features.metadata.filter import Decider, Filter
from podgate.features.metadata.head import Head, NeedMore, read_head
from podgate.features.metadata.profiles import PROFILES
from tests.features.metadata.oracle import bad_bytes, finding
from tests.features.metadata.tricks import INSERTED, PATHS, QUERIES
from tests.fuzz.reached import Reached

GCE = Decider(Filter())
DECIDERS = tuple(Decider(Filter(profile=profile, opened=())) for profile in PROFILES.values())
PATH: Final = ("fields", "filter", "globs", "head", "rules", "target", "verdict")
"""The modules of the request path."""
LONGEST = 3_000
LARGEST_POOL = 50_000
_TOLD_EVERY: Final = 100_000


def one_request(data: bytes) -> tuple[object, ...]:
    """Try one input; give what came of it, for the search. Raises AssertionError on a finding."""
    head = read_head(data)
    if not isinstance(head, Head):
        return ("more",) if isinstance(head, NeedMore) else (head.status, head.reason, head.message)
    request = head.request("10.64.0.2")
    verdict = GCE.decide(request)
    for decider in DECIDERS:
        other = decider.decide(request)
        assert other.action == "deny" or not bad_bytes(other.target), data
    if verdict.action == "deny":
        assert verdict.target == b"", data
        assert verdict.status in (403, 405, 413), data
    else:
        found = finding(verdict.target) or bad_bytes(verdict.target)
        assert not found, f"{found}: {data!r}"
        again = GCE.decide(request.__class__(b"GET", verdict.target, verdict.headers))
        assert again.target == verdict.target, f"two spellings: {data!r}"
        names = [re.sub(rb"[^a-z0-9]", b"", name.lower()) for name, _ in verdict.headers]
        assert b"xforwardedfor" not in names, data
    marks = re.sub(rb"[A-Za-z0-9]+", b"a", request.target)[:40]
    return (verdict.reason, verdict.rule, head.keep_alive, marks)


def seeds() -> list[bytes]:
    """Give the inputs to begin with."""
    heads = (
        b"Host: metadata\r\nMetadata-Flavor: Google\r\n",
        b"Host: metadata.google.internal:80\r\nConnection: close, X-A\r\nX-A: b\r\n",
        b"Host: metadata\r\nContent-Length: 0\r\nX-Forwarded-Host: a\r\n",
    )
    lines = [(path + query).encode() for path in PATHS for query in QUERIES]
    return [b"GET " + line + b" HTTP/1.1\r\n" + heads[number % 3] + b"\r\n" for number, line in enumerate(lines)]


TOKENS = (
    *(each.encode() for each in INSERTED),
    *(b"\r\n", b"\n", b"\r", b": ", b"X-Forwarded-For: a\r\n", b"X_Forwarded_For: a\r\n", b"Content-Length: 3\r\n"),
    *(
        b"Transfer-Encoding: chunked\r\n",
        b"kube-env",
        b"recursive",
        b"identity",
        b"GET ",
        b"HTTP/1.0",
        b"http://metadata",
    ),
)


def mutated(data: bytes, chance: random.Random, pool: list[bytes]) -> bytes:
    """Give an input that differs in one to four places."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(data) + 1) if chance.random() < 0.3 else chance.randrange(min(len(data), 120) + 1)
        kind = chance.randrange(7)
        if kind <= 2:
            data = data[:at] + chance.choice(TOKENS) + data[at:]
        elif kind == 3 and at < len(data):
            data = data[:at] + b"%%%02x" % data[at] + data[at + 1 :]
        elif kind == 4:
            data = data[:at] + data[at + chance.randint(1, 8) :]
        elif kind == 5 and at < len(data):
            data = data[:at] + data[at : at + 1].swapcase() + data[at + 1 :]
        else:
            other = chance.choice(pool)
            data = data[:at] + other[chance.randrange(len(other) + 1) :]
    return data[:LONGEST]


def search(count: int, seed: int) -> tuple[int, int]:
    """Try ``count`` inputs; give how many kinds of outcome there were, and how many places were reached."""
    chance = random.Random(seed)
    pool = seeds()
    seen = {one_request(data) for data in pool}
    modules = [importlib.import_module(f"podgate.features.metadata.{name}") for name in PATH]
    tell_at = _TOLD_EVERY
    with Reached(modules) as reached:
        for number in range(count):
            data = mutated(chance.choice(pool), chance, pool)
            outcome: list[tuple[object, ...]] = []
            grew = reached.grew(partial(_into, outcome, data))
            if (grew or outcome[0] not in seen) and len(pool) < LARGEST_POOL:
                seen.add(outcome[0])
                pool.append(data)
            if number == tell_at:
                print(f"{number} requests, {len(seen)} kinds of outcome, {len(reached.places)} places", flush=True)
                tell_at += _TOLD_EVERY
        return len(seen), len(reached.places)


def _into(outcome: list[tuple[object, ...]], data: bytes) -> None:
    outcome.append(one_request(data))


def main(arguments: list[str]) -> None:
    """Search, and say what came of it."""
    count = int(arguments[0]) if arguments else 1_000_000
    seed = int(arguments[1]) if len(arguments) > 1 else int.from_bytes(os.urandom(4))
    print(f"{count} requests, seed {seed}", flush=True)
    start = time.monotonic()
    kinds, places = search(count, seed)
    spent = time.monotonic() - start
    print(f"no findings in {count} requests: {kinds} kinds of outcome, {places} places reached, {spent:.0f} s")


if __name__ == "__main__":
    main(sys.argv[1:])
