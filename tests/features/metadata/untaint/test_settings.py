"""The options of the untainting agent: what is wrong is said."""

from typing import Any

import pytest

from podgate.features.metadata.untaint.settings import UntaintSettings
from podgate.model.options import SettingsError, settings_from


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"taint": ""}, "--taint is empty"),
        ({"namespace": ""}, "--namespace is empty"),
        ({"selector": ""}, "--selector is empty"),
        ({"context": "c"}, "--context c"),
        ({"metrics_addr": ":1"}, "--metrics-addr"),
    ],
)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings_from(UntaintSettings, values)
