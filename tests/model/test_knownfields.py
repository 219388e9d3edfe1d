"""Fields that no kind has, by what a user wrote and what is said."""

from typing import Any

import pytest

from podgate.model.knownfields import unknown_fields

END = ": correct or remove it"
LOST = "there is no such field, and an API would drop it"

CASES: list[tuple[str, Any, list[tuple[str, str]]]] = [
    ("Service", {"spec": {"externalIP": []}}, [("spec.externalIP", f'{LOST} (did you mean "externalIPs"?){END}')]),
    (
        "Service",
        {"spec": {"ports": [{"port": 80}, {"port": 81, "protcol": "UDP"}]}},
        [("spec.ports[1].protcol", f'{LOST} (did you mean "protocol"?){END}')],
    ),
    ("Service", {"specs": {"type": "NodePort"}, "zzz": 1}, [
        ("specs", f'{LOST} (did you mean "spec"?){END}'),
        ("zzz", f"{LOST}{END}"),
    ]),
    ("Service", {"metadata": {"labels": {"any": "a"}}, "spec": {"selector": {"protcol": "b"}}}, []),
    (
        "EndpointSlice",
        {"endpoints": [{"adresses": [], "conditions": {"Ready": True}}], "ports": [{"appProtocol": "h2c"}]},
        [
            ("endpoints[0].adresses", f'{LOST} (did you mean "addresses"?){END}'),
            ("endpoints[0].conditions.Ready", f'{LOST} (did you mean "ready"?){END}'),
        ],
    ),
    ("Service", {"spec": "no map"}, []),
    ("Service", None, []),
    ("Pod", {"spce": {}}, []),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "written", "found"), CASES)
def test_unknown_fields_are_named_with_what_was_probably_meant(
    kind: str, written: Any, found: list[tuple[str, str]]
) -> None:
    assert list(unknown_fields(kind, written)) == found
