"""Running nft: text in, success or an error with numbered lines out.

Here: what nft's messages mean. Not here: the process (linux/running.py), the text (render.py), elements alone
(apply.py).
Invariant: nft ends before the call does, also when the call is cancelled; it either made one whole transaction or none.
"""

import re
from collections.abc import Callable
from typing import Final

from podgate.joints import ApplyError
from podgate.linux.running import excerpt, find_program, run

_SECONDS: Final = 60.0
_SHOWN_FAILURES: Final = 3

_PLACE: Final = re.compile(r"^(?:/dev/stdin|<stdin>|stdin|-):(\d+):[\d:-]+: (?:Error: )?(.*)$", re.MULTILINE)

_LACKING: Final = ("No such file or directory", "not supported", "Protocol not available")

_FEATURES: Final = (
    (r"\bfib\b", "the fib expression (CONFIG_NFT_FIB_IPV4, CONFIG_NFT_FIB_IPV6)"),
    (r"\bmasquerade\b", "masquerading (CONFIG_NFT_MASQ)"),
    (r"\b(?:s|d)nat\b", "address translation (CONFIG_NFT_NAT)"),
    (r"type nat hook", "NAT chains (CONFIG_NF_NAT and CONFIG_NFT_NAT)"),
    (r"\bnumgen\b", "the numgen expression (CONFIG_NFT_NUMGEN)"),
    (r"\breject\b", "the reject statement (CONFIG_NFT_REJECT)"),
    (r"\bct\b", "connection tracking (CONFIG_NFT_CT)"),
)


async def load(program: str, text: str, namespace: int | None, started: Callable[[int], None]) -> None:
    """Have nft load ``text`` in one transaction.

    Args:
        program: ``nft``, or a path.
        text: what to load; it must end with a line break.
        namespace: an open network namespace, or None for this process's own.
        started: called with nft's process id before nft can have done anything that is noticed.

    Raises:
        ApplyError: nft is missing, not permitted, refused the text, or did not end in 60 s.
    """
    path = _find(program)
    try:
        ended = await run((path, "-f", "-"), text, namespace=namespace, seconds=_SECONDS, started=started)
    except TimeoutError as problem:
        raise ApplyError(f"{path} did not end in {_SECONDS:.0f} s and was killed", "NftStuck") from problem
    except OSError as problem:
        raise ApplyError(f"{path} cannot be started: {problem.strerror}", "NftMissing") from problem
    if ended.code != 0:
        raise failure(text, ended.output + ended.errors, ended.code)


def _find(program: str) -> str:
    path = find_program(program)
    if path is None:
        raise ApplyError(
            f"{program} is not installed: install the package nftables (Debian, Ubuntu, Fedora, Alpine)", "NftMissing"
        )
    return path


def failure(text: str, said: str, code: int) -> ApplyError:
    """Turn nft's message into an error that shows the lines around each failing one."""
    if "Operation not permitted" in said:
        return ApplyError("nft is not permitted: podgate needs CAP_NET_ADMIN in this network namespace", "NotPermitted")
    lines = text.splitlines()
    places = [(int(number), message) for number, message in _PLACE.findall(said) if 0 < int(number) <= len(lines)]
    if not places:
        return ApplyError(f"nft ended with {code}: {said.strip() or 'no message'}", "NftRejected")
    parts, reason = [], "NftRejected"
    for number, message in places[:_SHOWN_FAILURES]:
        parts.append(f"nft refused line {number}: {message}\n{excerpt(lines, number)}")
        feature = _feature(lines[number - 1]) if any(words in message for words in _LACKING) else ""
        if feature:
            reason = "KernelLacksFeature"
            parts.append(f"If what the line names exists, the kernel lacks {feature}.")
    if len(places) > _SHOWN_FAILURES:
        parts.append(f"and {len(places) - _SHOWN_FAILURES} more")
    return ApplyError("\n".join(parts), reason)


def _feature(line: str) -> str:
    return next((feature for pattern, feature in _FEATURES if re.search(pattern, line)), "")
