"""to_iptables: rules of iptables, with the words and the comment of the cluster scripts' own rules.

Here: the three rules of ``config-ip-firewall`` (kube-up's configure-helper.sh), and whose rules are taken over.
Not here: refusals. REJECT exists in the table filter alone, which network policy agents overwrite, so they are
nftables' with either back end (to_nftables.py).
Invariant: the text of these rules is the boot script's, so that whatever looks for its rules finds them.
"""

from typing import Final

from podgate.features.metadata.intent import NodeRules, Redirect
from podgate.targets.iptables.grammar import read_rule
from podgate.targets.iptables.state import Binary, BuiltinRule, State

COMMENT: Final = "metadata-concealment: bridge traffic to metadata server goes to metadata proxy"
OWN: Final = "podgate: metadata: "
OWNERS: Final = ("metadata-concealment: ", OWN)
"""How comments begin on rules that are the boot script's, which are taken over, or ours."""


def redirect_rules(rules: NodeRules, binary: Binary) -> State:
    """Give the rules in PREROUTING of table nat; none unless the rules are open."""
    if rules.phase != "open":
        return State("ip", binary)
    first, others = rules.uplinks[:1], rules.uplinks[1:]
    # Each goes in front of all others, so the last one ends up first, as after the script's two commands.
    redirecting = [_redirecting(each, "".join(f"! -i {name} " for name in first)) for each in rules.redirects]
    # One rule names one device: what comes in by the others turns back before.
    leaving = [_leaving_alone(each, name) for name in others for each in rules.redirects]
    return State("ip", binary, placed=(*redirecting, *leaving))


def forged_rules(rules: NodeRules, binary: Binary) -> State:
    """Give the rule in OUTPUT of table mangle against packets in the metadata server's name.

    It has no comment, so one of ours cannot be told from the boot script's, which makes it on every node: it is made
    where it is missing, and stays.
    """
    addresses = () if rules.phase == "none" else rules.spoofed
    dropping = (f"-s {address} -j DROP" for address in addresses)
    placed = tuple(BuiltinRule("OUTPUT", read_rule(text, "ip"), is_first=True) for text in dropping)
    return State("ip", binary, placed=placed, table="mangle")


def _redirecting(redirect: Redirect, uplink: str) -> BuiltinRule:
    return _placed(redirect, uplink, COMMENT, f"DNAT --to-destination {redirect.to_address}:{redirect.to_port}")


def _leaving_alone(redirect: Redirect, uplink: str) -> BuiltinRule:
    return _placed(redirect, f"-i {uplink} ", f"{OWN}what comes in by {uplink} is no Pod's", "RETURN")


def _placed(redirect: Redirect, device: str, comment: str, target: str) -> BuiltinRule:
    match = f"-p tcp {device}-d {redirect.address} --dport {redirect.port} -m comment --comment"
    return BuiltinRule("PREROUTING", read_rule(f'{match} "{comment}" -j {target}', "ip"), is_first=True)
