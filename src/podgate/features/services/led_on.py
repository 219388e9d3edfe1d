"""led_on: where UDP flows are first sent to that rules, as they were read back, lead on to endpoints.

Here: the destinations in a table of nftables, and in chains of iptables. Not here: which endpoints they led to, which
flows go (to_conntrack.py).
Invariant: what is not in the form of our rules, or of kube-proxy's in the same chains, is no destination of a Service.
"""

import re
from typing import Final

from podgate.features.services.addresses import packed
from podgate.features.services.intent import PackedDestination
from podgate.features.services.iptables_names import NODE_PORTS, SERVICES
from podgate.features.services.layout import LAST, PROTOCOLS
from podgate.targets.iptables.state import State as IptablesState
from podgate.targets.nftables.state import State as NftablesState

_SERVICE_BYTES: Final = 8
"""What ends the key of a map that dispatches: the protocol, and the port, each padded to four bytes."""

_LEADS_UDP: Final = re.compile(r"(?:-d (\S+)/\d+ )?-p udp .*-m udp --dport (\d+) -[jg] KUBE-(?:SVC|SVL|EXT|FW|XLB)-\S+")
"""A rule that leads to the chain of a Service's port, as iptables-save shows it."""


def led_on_by_table(state: NftablesState) -> frozenset[PackedDestination]:
    """Give what a table leads on: the keys of its maps that dispatch."""
    keys = (key for name in LAST for key in state.elements_of(name))
    return frozenset(
        (key[:-_SERVICE_BYTES], int.from_bytes(key[-4:-2]))
        for key in keys
        if key[-_SERVICE_BYTES:-4] == PROTOCOLS["udp"]
    )


def led_on_by_chains(state: IptablesState) -> frozenset[PackedDestination]:
    """Give what table nat leads on."""
    rules = (*state.named.get(SERVICES, ()), *state.named.get(NODE_PORTS, ()))
    leading = (found for words in rules if (found := _LEADS_UDP.fullmatch(words)) is not None)
    return frozenset((packed(found[1] or "") or b"", int(found[2])) for found in leading)
