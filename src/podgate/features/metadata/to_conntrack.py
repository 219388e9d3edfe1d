"""to_conntrack: which connections from before the rules must not go on.

Here: whom they were opened to. Not here: listing and deleting (targets/conntrack), refusing what they send later
(to_nftables.py).
Invariant: what goes to the proxy's own address stays, as all does that the node opened itself.

The refusals cut what the node forwards. What another agent's rules translated before, as kube2iam's to a port of its
own, is not forwarded, and the kernel asks no NAT rule twice about a connection: forgetting it is what makes it new.
Who opened a connection is told by its address alone: one that another machine opened through this node is forgotten
too, and as no rule is about it, goes on as it was.
"""

from ipaddress import ip_address

from podgate.features.metadata.intent import NodeRules, closed
from podgate.targets.conntrack.state import Barred


def barred(rules: NodeRules) -> tuple[Barred, ...]:
    """Give what must not be tracked when the rules are in."""
    if rules.phase == "none":
        return ()
    proxy = frozenset({ip_address(rules.local_address)})
    return tuple(
        Barred(ip_address(each.address), frozenset(each.ports), proxy) for each in closed(rules).refusals if each.ports
    )
