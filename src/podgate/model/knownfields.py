"""knownfields: keys of a written object that its kind does not have, and an API would drop. Pure.

Here: the fields of Services and EndpointSlices, and the search. Not here: the structs, which hold what is read
(model/kinds), and where written objects come from (sources/).
Invariant: what is under a field of free form (labels, selectors) is never looked at.

The fields are those of Kubernetes 1.36 (api/openapi-spec, v1 and discovery.k8s.io/v1), and older ones that a cluster
may still write.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from podgate.model.fieldpath import Part, field_path
from podgate.model.spelling import did_you_mean

_Fields = Mapping[str, "_Fields | None"]
"""Fields by name, with theirs; those of the items where it is a list; None where anything may follow."""


def _any(words: str) -> dict[str, _Fields | None]:
    return dict.fromkeys(words.split())


_HEAD: Final = {
    **_any("apiVersion kind"),
    "metadata": _any(
        "annotations clusterName creationTimestamp deletionGracePeriodSeconds deletionTimestamp finalizers generateName"
        " generation labels managedFields name namespace ownerReferences resourceVersion selfLink uid"
    ),
}

FIELDS: Final[Mapping[str, _Fields]] = {
    "Service": {
        **_HEAD,
        "spec": {
            **_any(
                "allocateLoadBalancerNodePorts clusterIP clusterIPs externalIPs externalName externalTrafficPolicy"
                " healthCheckNodePort internalTrafficPolicy ipFamilies ipFamilyPolicy loadBalancerClass loadBalancerIP"
                " loadBalancerSourceRanges publishNotReadyAddresses selector sessionAffinity topologyKeys"
                " trafficDistribution type"
            ),
            "ports": _any("appProtocol name nodePort port protocol targetPort"),
            "sessionAffinityConfig": {"clientIP": _any("timeoutSeconds")},
        },
        "status": {
            **_any("conditions"),
            "loadBalancer": {
                "ingress": {**_any("hostname ip ipMode"), "ports": _any("error port protocol")},
            },
        },
    },
    "EndpointSlice": {
        **_HEAD,
        **_any("addressType"),
        "endpoints": {
            **_any("addresses deprecatedTopology hostname nodeName targetRef zone"),
            "conditions": _any("ready serving terminating"),
            "hints": {"forNodes": _any("name"), "forZones": _any("name")},
        },
        "ports": _any("appProtocol name port protocol"),
    },
}
"""By kind, of those whose written form is looked at."""


class UnknownField(NamedTuple):
    """A field that its kind does not have, and what to do."""

    field: str
    message: str


def unknown_fields(kind: str, written: Any) -> Iterator[UnknownField]:
    """Give the fields of an object as it was written that its kind does not have; none of a kind not in FIELDS."""
    if kind in FIELDS:
        yield from _below(written, FIELDS[kind], ())


def _below(value: Any, fields: _Fields, path: tuple[Part, ...]) -> Iterator[UnknownField]:
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _below(item, fields, (*path, index))
    elif isinstance(value, dict):
        for key, inner in value.items():
            if key not in fields:
                meant = did_you_mean(str(key), fields)
                message = f"there is no such field, and an API would drop it{meant}: correct or remove it"
                yield UnknownField(field_path((*path, str(key))), message)
            elif (known := fields[key]) is not None:
                yield from _below(inner, known, (*path, key))
