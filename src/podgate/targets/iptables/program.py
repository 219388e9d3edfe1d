"""Running iptables-save and iptables-restore: text in and out, or an error with numbered lines.

Here: which program is run, with which options, and what its messages mean. Not here: the process (linux/running.py),
the texts (render.py, listing.py).
Invariant: iptables takes its own lock and waits for it; podgate holds no lock besides.
"""

import re
from collections.abc import Callable, Sequence
from typing import Final

from podgate.joints import ApplyError
from podgate.linux.running import Ended, excerpt, find_program, run
from podgate.model.machine import Family
from podgate.targets.iptables.state import Binary, TableName, program

LOCK_SECONDS: Final = 5
"""How long iptables waits for another program that holds its lock: as long as ip-masq-agent does."""

SECONDS: Final = 60.0
"""How long one of the programs may take, unless told otherwise."""
_WAIT_SINCE: Final = (1, 6, 2)
"""iptables-restore knows ``-w`` since this version; older ones take no lock."""
_VARIANTS: Final[dict[Binary, str]] = {"nft": "nf_tables", "legacy": "legacy"}
_VERSION: Final = re.compile(r"\bv(\d+)\.(\d+)\.(\d+)(?: \((\w+)\))?")
_LOCKED: Final = re.compile(r"holding the xtables lock")
_NUMBERS: Final = (
    re.compile(r"^Error occurred at line: (\d+)$", re.MULTILINE),
    re.compile(r"^(?:\S+: )?line (\d+)(?:: | failed)", re.MULTILINE),
)
_NOISE: Final = re.compile(r"^(?:Try `.*|Error occurred at line: \d+|# Warning: .*|\s*)$")
_LACKING: Final = re.compile(r"No chain/target/match by that name|can't initialize iptables table|Table does not exist")


class Iptables:
    """The programs of one family and back end.

    Args:
        family: ``ip`` for iptables, ``ip6`` for ip6tables.
        binary: ``nft`` or ``legacy``.
        namespace: an open network namespace to run in, or None for this process's own.
        lock_seconds: how long to wait for the lock.
        seconds: how long a program may take.
    """

    def __init__(
        self,
        family: Family,
        binary: Binary,
        namespace: int | None = None,
        lock_seconds: int = LOCK_SECONDS,
        seconds: float = SECONDS,
    ) -> None:
        self._family: Family = family
        self._binary: Binary = binary
        self._namespace = namespace
        self._lock_seconds = lock_seconds
        self._seconds = seconds
        self._found: tuple[str, str, tuple[str, ...]] | None = None

    async def save(self, table: TableName = "nat") -> str:
        """Give what ``iptables-save -t TABLE`` shows.

        Raises:
            ApplyError: it is missing, not permitted, failed, or shows more than 64 MiB.
        """
        path, _, _ = await self._programs()
        ended = await self._run((path, "-t", table))
        if ended.is_cut:
            raise ApplyError(
                f"{path} shows more than can be read: is the table {table} filled by a mistake?", "TooLarge"
            )
        if ended.code != 0:
            raise failure("", ended.errors, ended.code, path)
        return ended.output

    async def restore(self, text: str, started: Callable[[int], None] = lambda _pid: None) -> None:
        """Have ``iptables-restore --noflush`` load a text in one transaction.

        Raises:
            ApplyError: it is missing, not permitted, refused the text, or another program held the lock too long
                (reason ``LockHeld``); nothing was changed then.
        """
        _, path, wait = await self._programs()
        ended = await self._run((path, *wait, "--noflush"), text, started)
        if ended.code != 0:
            raise failure(text, ended.errors or ended.output, ended.code, path)

    async def _programs(self) -> tuple[str, str, tuple[str, ...]]:
        """Give the paths of both programs, and the options for the lock."""
        if self._found is None:
            name = program(self._family, self._binary)
            plain = name.partition("-")[0]
            save = find_program(f"{name}-save") or await self._plain(f"{plain}-save")
            restore = find_program(f"{name}-restore") or await self._plain(f"{plain}-restore")
            if save is None or restore is None:
                raise ApplyError(
                    f"{name} is not installed: install the package iptables (with {name}-save and {name}-restore)",
                    "IptablesMissing",
                )
            version, _ = await self._version(restore)
            wait = ("-w", str(self._lock_seconds)) if version >= _WAIT_SINCE else ()
            self._found = save, restore, wait
        return self._found

    async def _plain(self, name: str) -> str | None:
        """Find a program without a suffix, if it is of this back end; one that says nothing of it is legacy."""
        path = find_program(name)
        if path is None:
            return None
        _, variant = await self._version(path)
        return path if variant == _VARIANTS[self._binary] else None

    async def _version(self, path: str) -> tuple[tuple[int, ...], str]:
        ended = await self._run((path, "--version"))
        found = _VERSION.search(ended.output)
        if found is None:
            return (), _VARIANTS["legacy"]
        return tuple(int(found[number]) for number in (1, 2, 3)), found[4] or _VARIANTS["legacy"]

    async def _run(
        self, command: Sequence[str], text: str = "", started: Callable[[int], None] = lambda _pid: None
    ) -> Ended:
        try:
            return await run(
                command,
                text,
                namespace=self._namespace,
                seconds=self._seconds,
                keep=("XTABLES_LOCKFILE", "XTABLES_LIBDIR"),
                started=started,
            )
        except TimeoutError as problem:
            raise ApplyError(
                f"{command[0]} did not end in {self._seconds:.0f} s and was killed", "IptablesStuck"
            ) from problem
        except OSError as problem:
            raise ApplyError(f"{command[0]} cannot be started: {problem.strerror}", "IptablesMissing") from problem


def failure(text: str, said: str, code: int, path: str) -> ApplyError:
    """Turn a message of iptables into an error that shows the lines around the failing one.

    The exit code alone says little: 4 is a lock that is held with iptables-legacy, and any refusal of the kernel with
    iptables-nft.
    """
    name = path.rpartition("/")[2]
    if _LOCKED.search(said):
        return ApplyError(
            f"{name}: another program holds the lock of iptables (/run/xtables.lock); it is tried again soon",
            "LockHeld",
        )
    if "Permission denied" in said or "Operation not permitted" in said:
        return ApplyError(
            f"{name} is not permitted: podgate needs CAP_NET_ADMIN and CAP_NET_RAW in this network namespace",
            "NotPermitted",
        )
    message = "; ".join(line.strip() for line in said.splitlines() if not _NOISE.match(line)) or "no message"
    parts = [f"{name} ended with {code}: {message}"]
    lines = text.splitlines()
    number = next((int(found[1]) for pattern in _NUMBERS if (found := pattern.search(said))), 0)
    if 0 < number <= len(lines):
        parts.append(excerpt(lines, number))
    if _LACKING.search(said):
        parts.append("If what the line names exists, the kernel lacks it: load the module (iptable_nat, xt_…).")
        return ApplyError("\n".join(parts), "KernelLacksFeature")
    return ApplyError("\n".join(parts), "IptablesRejected")
