"""proxy_unasked: the options that kube-proxy has another default for than ``podgate services``. Pure.

Here: these defaults, in each of its modes. Not here: those of its configuration's fields (proxy_fields.py).
Invariant: under the old name, flags and files that leave a field out mean the same as one that says the default.
"""

from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from podgate.features.services.proxy_fields import FIELDS, SECOND
from podgate.features.services.settings import Settings

UNASKED: Final[Mapping[str, Any]] = {
    "min_sync_period": FIELDS["iptables.minSyncPeriod"].default / SECOND,
    "oom_score_adj": FIELDS["oomScoreAdj"].default,
}
"""Option to its default under the old name."""


def with_unasked(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """Put the old program's defaults where nothing is given; what was given is judged before, and by itself."""
    return replace(settings, **{option: value for option, value in UNASKED.items() if option not in given})
