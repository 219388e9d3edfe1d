"""descriptors: how many files this process may have open.

Here: the limit. Not here: what the descriptors are for.
Invariant: it is only ever raised: who starts a process sets a low one for programs that use select(2), and no program
here does.
"""

import resource
from typing import Final

_ENDLESS: Final = 1 << 20
"""What counts as no limit: Linux's own upper bound (fs.nr_open)."""


def raised_limit() -> int:
    """Allow as many open descriptors as the hard limit does, and give the number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard if hard != resource.RLIM_INFINITY else _ENDLESS
