"""last_good: which form of each policy is in force.

Here: the last valid form of a policy that an edit broke, and the bytes in which these forms are kept. Not here: what
makes a policy valid (policies.py), the last good ConfigMap (compile.py).
Invariant: an edit that makes a policy invalid changes nothing that is enforced; only removing the policy removes it.

A policy that was never valid decides nothing: nobody knows what it was meant to say, and the others, the ConfigMap and
the built-in list still hold.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from podgate.features.masquerade.policies import PolicyReading, WrittenPolicy, in_order, read_policy
from podgate.features.masquerade.policy import MASQUERADE_POLICY, MasqueradePolicy, policy_ref
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.kinds.meta import ObjectMeta
from podgate.model.machine import Family
from podgate.model.problems import Problem
from podgate.model.remembering import Remembered
from podgate.model.snapshot import Absent, Snapshot
from podgate.model.table import Table, mapped

KEPT_POLICIES: Final = "policies.json"
"""The name under which the last valid form of each policy is kept."""

_KEPT_VERSION: Final = 1


class PoliciesInForce(Frozen, frozen=True):
    """The policies in force.

    Attributes:
        policies: in their order.
        keep: the bytes to keep; None when there is nothing to keep and nothing was kept.
        problems: complaints about policies.
    """

    policies: tuple[WrittenPolicy, ...] = ()
    keep: bytes | None = None
    problems: tuple[Problem, ...] = ()


class _Kept(Frozen, frozen=True):
    version: int
    policies: tuple[tuple[str, str | None, Any], ...]  # name, creation time stamp, spec


class PolicyReader:
    """Reads the policies of a snapshot, again and again; only policies that differ are read again."""

    def __init__(self, families: Sequence[Family]) -> None:
        self._families = tuple(families)
        self._read: mapped[ObjectRef, MasqueradePolicy, PolicyReading] = mapped(
            lambda _ref, policy: read_policy(policy, self._families)
        )
        self._kept = Remembered(_from_kept)
        self._chosen = Remembered(self._choose)

    def __call__(self, snapshot: Snapshot, kept: bytes | None) -> PoliciesInForce:
        """Give the policies in force.

        Args:
            snapshot: where MasqueradePolicy may be absent: then there are none, but a right that was withdrawn takes
                nothing away.
            kept: the bytes that an earlier call gave.
        """
        found = snapshot.kinds.get(MASQUERADE_POLICY.kind)
        if isinstance(found, Absent) and found.why == "forbidden":
            return self._forbidden(kept)
        return self._chosen(snapshot.objects(MASQUERADE_POLICY), kept)

    def _choose(self, objects: Table[ObjectRef, MasqueradePolicy], kept: bytes | None) -> PoliciesInForce:
        readings = self._read(objects)
        earlier = self._kept(kept)
        policies: list[WrittenPolicy] = []
        keep: list[MasqueradePolicy] = []
        problems: list[Problem] = []
        for ref in sorted(readings):
            reading, policy = readings[ref], objects[ref]
            problems += reading.problems
            if reading.written is None:
                stays = earlier.get(ref)
                again = None if stays is None else read_policy(stays, self._families).written
                problems.append(_stand_in(ref, stays=again is not None))
                if stays is None or again is None:
                    continue
                policies.append(again)
                keep.append(stays)
            else:
                policies.append(reading.written)
                keep.append(policy)
        return PoliciesInForce(in_order(policies), _kept_bytes(keep) if keep or kept else None, tuple(problems))

    def _forbidden(self, kept: bytes | None) -> PoliciesInForce:
        earlier = self._kept(kept)
        readings = (read_policy(policy, self._families).written for policy in earlier.values())
        stay = "those seen last stay in force" if earlier else "none is in force"
        message = f"policies may not be listed; {stay}: allow get, list and watch of {MASQUERADE_POLICY.plural}"
        problem = Problem(ObjectRef("Kind", MASQUERADE_POLICY.kind), "warning", "Forbidden", "", message)
        return PoliciesInForce(in_order(written for written in readings if written is not None), kept, (problem,))


def _stand_in(ref: ObjectRef, *, stays: bool) -> Problem:
    if stays:
        message = "the policy stays in force as it was when it was last valid: correct or remove it"
        return Problem(ref, "warning", "LastGoodPolicy", "", message)
    return Problem(ref, "warning", "PolicyIgnored", "", "the policy decides nothing until it is correct")


def _kept_bytes(policies: Sequence[MasqueradePolicy]) -> bytes:
    rows = tuple((each.metadata.name, each.metadata.creation_timestamp, each.spec) for each in policies)
    return msgspec.json.encode(_Kept(_KEPT_VERSION, rows), order="deterministic")


def _from_kept(data: bytes | None) -> Mapping[ObjectRef, MasqueradePolicy]:
    """Read kept bytes back; bytes that are not ours hold no policy."""
    try:
        kept = msgspec.json.decode(data or b"", type=_Kept)
    except msgspec.DecodeError:
        return {}
    if kept.version != _KEPT_VERSION:
        return {}
    return {
        policy_ref(name): MasqueradePolicy(ObjectMeta(name=name, creation_timestamp=created), spec)
        for name, created, spec in kept.policies
    }
