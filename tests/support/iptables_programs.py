"""The two programs of iptables: what each shows and takes in a namespace, and one of them under the plain names.

Here: saving and restoring table nat, a folder for PATH. Not here: which program a node uses.
Invariant: in such a folder are both families and all three programs of each, or nothing is.
"""

import os
import shutil
from pathlib import Path

from podgate.model.machine import Family
from podgate.targets.iptables.state import Binary, program
from tests.support.netns import NetNamespace


def saved(namespace: NetNamespace, family: Family = "ip", binary: Binary = "nft", *options: str) -> str:
    """Give what iptables-save shows, without its remarks."""
    lines = namespace.run(f"{program(family, binary)}-save", "-t", "nat", *options).splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def restored(namespace: NetNamespace, text: str, family: Family = "ip", binary: Binary = "nft") -> None:
    """Load a text beside what is there."""
    namespace.run(f"{program(family, binary)}-restore", "--noflush", text=text)


def path_with(binary: Binary, folder: Path) -> str:
    """Give a PATH whose first ``iptables`` is of this kind; ``folder`` is made, if need be, for links to it."""
    names = [f"{plain}{tail}" for plain in ("iptables", "ip6tables") for tail in ("", "-save", "-restore")]
    programs = {name: shutil.which(name.replace("tables", f"tables-{binary}", 1)) for name in names}
    missing = [name for name, found in programs.items() if found is None]
    assert not missing, f"no {binary} program for {', '.join(missing)}"
    folder.mkdir(exist_ok=True)
    for name, found in programs.items():
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(str(found))
    return f"{folder}:{os.environ['PATH']}"
