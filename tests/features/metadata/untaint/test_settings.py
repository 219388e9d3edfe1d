"""The options of the untainting agent: what is wrong is said."""

from typing import Any

import pytest

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.metadata.untaint.settings import UntaintSettings


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
