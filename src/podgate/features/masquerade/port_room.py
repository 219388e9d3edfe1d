"""port_room: whether ranges of source ports are wide enough, and clear of NodePorts.

Here: complaints about ranges, in the light of how many Pods share them. Not here: what makes a text of ranges invalid
(ports.py), the ranges of a single policy against NodePorts (policies.py).
Invariant: a complaint does not change with each Pod that comes or goes.
"""

from collections.abc import Iterator
from typing import Final

from podgate.features.masquerade.intent import Intent, PolicyIntent
from podgate.features.masquerade.policies import node_port_warning
from podgate.features.masquerade.ports import Ports, ports_text
from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem
from podgate.model.tally import tally

PORTS_PER_POD: Final = 64
"""Connections of one Pod to one destination at one time that there should be room for. Cloud NAT services reserve as
many for one machine. A connection for which no port is left is dropped by the kernel, not passed on."""

OPTION: Final = ObjectRef("Option", "--to-ports")


def port_problems(intent: Intent, pods: int) -> tuple[Problem, ...]:
    """Give the complaints about --to-ports and about policies' ports.

    Args:
        intent: what is wanted.
        pods: how many Pods of this node are known; 0 where no object tells.
    """
    return tuple(_problems(intent, max(pods, 1)))


def _problems(intent: Intent, pods: int) -> Iterator[Problem]:
    if intent.ports:
        message = node_port_warning(intent.ports)
        if message:
            yield Problem(OPTION, "warning", "NodePortOverlap", "", message)
        if _too_few(intent.ports, pods):
            yield Problem(OPTION, "warning", "FewPorts", "", _few(intent.ports))
    seen: set[ObjectRef] = set()
    for part in intent.families:
        for policy in part.policies:
            ports = policy.translation.ports
            if ports and ports != intent.ports and policy.ref not in seen and _too_few(ports, _senders(policy, pods)):
                seen.add(policy.ref)
                yield Problem(policy.ref, "warning", "FewPorts", "spec.ports", _few(ports))


def _senders(policy: PolicyIntent, pods: int) -> int:
    return max(len(policy.sources), 1) if policy.pods is not None and policy.sources is not None else pods


def _too_few(ports: Ports, pods: int) -> bool:
    return sum(each.size for each in ports) < PORTS_PER_POD * pods


def _few(ports: Ports) -> str:
    count = sum(each.size for each in ports)
    what = f"{tally({'port': count})} for all Pods that share {ports_text(ports)}"
    why = "at one destination each connection needs its own, and one without is dropped"
    return f"{what}; {why}: give at least {PORTS_PER_POD} for each Pod"
