"""One of the two iptables programs under the plain names, for a program that knows no others, as kube-proxy.

Here: a folder for PATH. Not here: which program a node uses.
Invariant: both families and all three programs of each are there, or nothing is.
"""

import os
import shutil
from pathlib import Path

from podgate.targets.iptables.state import Binary


def path_with(binary: Binary, folder: Path) -> str:
    """Give a PATH whose first ``iptables`` is of this kind; ``folder`` is made, if need be, for links to it."""
    names = [f"{program}{tail}" for program in ("iptables", "ip6tables") for tail in ("", "-save", "-restore")]
    programs = {name: shutil.which(name.replace("tables", f"tables-{binary}", 1)) for name in names}
    missing = [name for name, found in programs.items() if found is None]
    assert not missing, f"no {binary} program for {', '.join(missing)}"
    folder.mkdir(exist_ok=True)
    for name, found in programs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(str(found))
    return f"{folder}:{os.environ['PATH']}"
