"""What a snapshot says of its source."""

import pytest

from podgate.model.frozen import ObjectRef
from podgate.model.problems import Problem, Severity
from podgate.model.snapshot import Snapshot


@pytest.mark.parametrize(
    ("kind", "severity", "is_unread"),
    [("File", "error", True), ("File", "warning", False), ("Service", "error", False)],
)
def test_a_file_with_an_error_is_unread_and_an_object_with_one_is_not(
    kind: str, severity: Severity, is_unread: bool
) -> None:
    fault = Problem(ObjectRef(kind, "web.yaml"), severity, "Unreadable", "", "cannot be read")
    assert Snapshot(faults=(fault,)).unread == ((fault,) if is_unread else ())
