"""The options of the watching process: what is wrong is said, all of it."""

from typing import Any

import pytest

from podgate.commandline.options import SettingsError, settings_from
from podgate.features.metadata.watcher.settings import WatchSettings

BAD = [
    ({"source": ""}, "--source is empty"),
    ({"policy": ""}, "--policy is empty"),
    ({"node_name": ""}, "--node-name is empty"),
    ({"context": "c"}, "--context c"),
    ({"socket": "relative"}, "write an absolute path"),
    ({"socket": "/" + 107 * "x"}, "write an absolute path"),
    ({"metrics_addr": ":1"}, "--metrics-addr"),
]


@pytest.mark.parametrize(("values", "message"), BAD)
def test_mistakes(values: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        settings_from(WatchSettings, values)


def test_a_folder_of_policies_is_itself_with_a_slash_too() -> None:
    assert [WatchSettings(policy=path).policy_path for path in (None, "/p/", "/")] == [None, "/p", "/"]
