"""to_conntrack: which tracked connections a change of the intent concerns.

Here: the judge. Not here: listing and deleting (targets/conntrack).
Invariant: an entry is named only if its decision changed, or it may have begun while others had taken the rules away,
and its present translation is the one that was made then: what others translated stays as it is.
"""

from collections.abc import Callable

from podgate.features.masquerade.deciding import decide, is_local
from podgate.features.masquerade.intent import Intent, Translation
from podgate.model.machine import Family, IPAddress
from podgate.targets.conntrack.state import WITH_CONNECTIONS, Flow


def judge_of(
    before: Intent, after: Intent, family: Family, *, cut_tcp: bool = False, gap: bool = False
) -> Callable[[Flow], bool] | None:
    """Give the judge of a change; None where nothing changed that a decision depends on.

    Args:
        before: what was committed.
        after: what is committed now.
        family: whose entries are judged.
        cut_tcp: judge TCP, SCTP and DCCP too. Deleting a live TCP entry resets the connection: its next packet is taken
            for a new connection with another source, which the server does not know (nf_conntrack_tcp_loose).
        gap: others had changed the rules: what began meanwhile may have been left as it came.
    """
    old, new = before.of(family), after.of(family)
    if old is None or new is None or (old == new and before.ports == after.ports and not gap):
        return None
    facts = new.facts
    known: dict[tuple[IPAddress, IPAddress, str], tuple[Translation, Translation]] = {}

    def judge(flow: Flow) -> bool:
        if flow.protocol in WITH_CONNECTIONS and not cut_tcp:
            return False
        key = (flow.source, flow.answerer, flow.protocol)
        if key not in known:
            known[key] = (decide(before, *key).translation, decide(after, *key).translation)
        was, is_ = known[key]
        if gap and is_.action != "keep" and flow.seen_as == flow.source:
            return True
        return _who(was) != _who(is_) and _made_by(was, flow, lambda address: is_local(facts, address))

    return judge


def _who(translation: Translation) -> tuple[str, IPAddress | None]:
    """Give whom a server sees; ports alone are no reason to cut a flow."""
    return translation.action, translation.address


def _made_by(was: Translation, flow: Flow, local: Callable[[IPAddress], bool]) -> bool:
    match was.action:
        case "keep":
            return flow.seen_as == flow.source
        case "masquerade":
            return flow.seen_as != flow.source and local(flow.seen_as)
        case _:
            return flow.seen_as == was.address
