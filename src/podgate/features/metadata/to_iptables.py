"""to_iptables: the redirect as rules of iptables, with the words and the comment of the cluster scripts' own rules.

Here: the two rules of ``config-ip-firewall`` (kube-up's configure-helper.sh), and whose rules are taken over.
Not here: refusals. REJECT exists in the table filter alone, which network policy agents overwrite, so they are
nftables' with either back end (to_nftables.py).
Invariant: on a node with one uplink the text is the boot script's, so that whatever looks for its rules finds them.
"""

from typing import Final

from msgspec.structs import replace

from podgate.features.metadata.intent import NodeRules, Redirect
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import Binary, Placed, State

COMMENT: Final = "metadata-concealment: bridge traffic to metadata server goes to metadata proxy"
OWNERS: Final = ("metadata-concealment: ", "podgate: metadata: ")
"""How comments begin on rules that are the boot script's, which are taken over, or ours."""


def redirect_rules(rules: NodeRules, binary: Binary) -> State:
    """Give the rules in PREROUTING of table nat; none unless the rules are open."""
    if rules.phase != "open":
        return State("ip", binary)
    # One rule names one device; packets from a second uplink are redirected, and refused by the proxy.
    uplink = f"! -i {rules.uplinks[0]} " if rules.uplinks else ""
    # Each goes in front of all others, so the last one ends up first, as after the script's two commands.
    return State("ip", binary, placed=tuple(_placed(each, uplink) for each in rules.redirects))


def _placed(redirect: Redirect, uplink: str) -> Placed:
    """Give a rule as the script writes it; what is compared is what iptables-save shows of it."""
    text = (
        f"-p tcp {uplink}-d {redirect.address} --dport {redirect.port} -m comment --comment "
        f'"{COMMENT}" -j DNAT --to-destination {redirect.to_address}:{redirect.to_port}'
    )
    shown = text.replace(f"-d {redirect.address} --dport", f"-d {redirect.address}/32 -m tcp --dport")
    return Placed("PREROUTING", replace(read_rule(shown, "ip"), text=text), is_first=True)
