"""What packets see while a large set changes: the old list or the new one, never a part of either."""

import random
import threading
from pathlib import Path

import pytest

from tests.support.agent import elements, running
from tests.support.packet_lab import POD, packet_lab
from tests.support.poll import poll

pytestmark = [pytest.mark.kernel, pytest.mark.slow]

STARTS = [f"10.{100 + number // 64}.{number % 64 * 4}" for number in range(1000)]
LISTS = [[f"{start}.0/{length}" for start in STARTS] for length in (24, 23)]
"""A thousand networks, and the same ones twice as large: every element differs, and .1 of each is in both lists."""


def test_a_destination_on_both_lists_is_never_masqueraded_while_a_thousand_elements_change(tmp_path: Path) -> None:
    path = tmp_path / "ip-masq-agent"
    texts = ["cidrLimit: 2000\nnonMasqueradeCIDRs:\n" + "".join(f"- {cidr}\n" for cidr in cidrs) for cidrs in LISTS]
    path.write_text(texts[0])
    stop = threading.Event()
    seen: list[str] = []
    with packet_lab() as lab, running(lab.node, tmp_path, "--config", path):
        lab.ext.run("ip", "route", "add", "local", "10.96.0.0/11", "dev", "lo")
        assert lab.seen("pod", "10.127.0.1").address != POD[4]

        def send() -> None:
            chosen = random.Random(1)
            while not stop.is_set():
                seen.append(lab.seen("pod", f"{chosen.choice(STARTS)}.1").address)

        thread = threading.Thread(target=send)
        thread.start()
        try:
            for number in range(1, 10):
                path.write_text(texts[number % 2])
                wanted = frozenset((*LISTS[number % 2], "169.254.0.0/16"))
                poll(lambda: elements(lab.node) == wanted)  # noqa: B023 - called at once
        finally:
            stop.set()
            thread.join()
    assert set(seen) == {POD[4]}
    assert len(seen) > 200
