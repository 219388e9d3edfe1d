"""What earlier programs leave on a node, and podgate under the old agent's name as a process.

Here: the rules of ip-masq-agent and of GKE's boot script as they restore them; starting ``ip-masq-agent`` with a file
at the path that it reads; listing the table nat. Not here: podgate's own reading of iptables, which these tests must
not trust.
Invariant: the process sees an /etc and a /var/lib of its own, so that nothing of the machine is read or written.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.support.agent import Agent
from tests.support.netns import NetNamespace

DROPIN: Final = (sys.executable, "-m", "podgate.features.masquerade.dropin")
_LIST: Final = ("169.254.0.0/16", "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16")
_LIST_IPV6: Final = ("fe80::/10",)
_OWN_FILES: Final = 'mount --bind "$0/etc" /etc && mount --bind "$0/lib" /var/lib && exec "$@"'


def agents_rules(chain: str = "IP-MASQ-AGENT", kept: tuple[str, ...] = _LIST, *, ipv6: bool = False) -> str:
    """Give what ip-masq-agent restores, version 2.12, in its own words."""
    kept = _LIST_IPV6 if ipv6 and kept is _LIST else kept
    local = '-m comment --comment "ip-masq-agent: local traffic is not subject to MASQUERADE"'
    last = '-m comment --comment "ip-masq-agent: outbound traffic is subject to MASQUERADE (must be last in chain)"'
    lines = [f":{chain} - [0:0]", *(f"-A {chain} {local} -d {each} -j RETURN" for each in kept)]
    return "\n".join(("*nat", *lines, f"-A {chain} {last} -j MASQUERADE --random-fully", "COMMIT", ""))


def jump(chain: str = "IP-MASQ-AGENT", who: str = "ip-masq-agent", *, quoted: bool = False) -> str:
    """Give the old rule in POSTROUTING; versions 2.10.0 to 2.12.1 wrote quotes into the comment."""
    quote = '\\"' if quoted else ""
    text = f"{who}: ensure nat POSTROUTING directs all non-LOCAL destination traffic to our custom {chain} chain"
    return f'-A POSTROUTING -m comment --comment "{quote}{text}{quote}" -m addrtype ! --dst-type LOCAL -j {chain}'


def old_agent(chain: str = "IP-MASQ-AGENT", *jumps: str, ipv6: bool = False) -> str:
    """Give all that an old agent leaves, as one text."""
    rules = agents_rules(chain, ipv6=ipv6).removesuffix("COMMIT\n")
    return rules + "\n".join((*(jumps or (jump(chain),)), "COMMIT", ""))


def boot_script() -> str:
    """Give what GKE's nodes have from their start: chain IP-MASQ with comments of its own, without --random-fully."""
    names = {each: f"ip-masq: RFC {number} reserved range is not subject to MASQUERADE" for each, number in _BOOT}
    names["169.254.0.0/16"] = "ip-masq: local traffic is not subject to MASQUERADE"
    last = "ip-masq: outbound traffic is subject to MASQUERADE (must be last in chain)"
    return "\n".join(
        (
            *("*nat", ":IP-MASQ - [0:0]", jump("IP-MASQ", "ip-masq")),
            *(f'-A IP-MASQ -d {each} -m comment --comment "{why}" -j RETURN' for each, why in names.items()),
            f'-A IP-MASQ -m comment --comment "{last}" -j MASQUERADE',
            *("COMMIT", ""),
        )
    )


_BOOT: Final = (
    *(("10.0.0.0/8", 1918), ("172.16.0.0/12", 1918), ("192.168.0.0/16", 1918), ("240.0.0.0/4", 5735)),
    *(("192.0.2.0/24", 5737), ("198.51.100.0/24", 5737), ("203.0.113.0/24", 5737), ("100.64.0.0/10", 6598)),
    *(("198.18.0.0/15", 6815), ("192.0.0.0/24", 6890), ("192.88.99.0/24", 7526)),
)


def restore(namespace: NetNamespace, program: str, text: str) -> None:
    """Load a text; ``program`` as ``ip6tables-legacy``."""
    namespace.run(f"{program}-restore", "--noflush", text=text)


def listed(namespace: NetNamespace, program: str) -> list[str]:
    """List the rules and own chains of table nat, as the program shows them, without counters."""
    lines = namespace.run(f"{program}-save", "-t", "nat").splitlines()
    return [line.split(" ")[0] if line.startswith(":") else line for line in lines if line.startswith((":", "-A"))]


def ours(namespace: NetNamespace, program: str) -> list[str]:
    """List rules, and chains that are not built in."""
    built_in = {f":{name}" for name in ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")}
    return [line for line in listed(namespace, program) if line not in built_in]


class OldName:
    """A folder that stands for a node: its /etc/config/ip-masq-agent, and /var/lib."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.config = directory / "etc" / "config" / "ip-masq-agent"
        self.config.parent.mkdir(parents=True)
        (directory / "lib").mkdir()

    @property
    def state(self) -> Path:
        """Where the agent keeps things."""
        return self._directory / "lib" / "podgate" / "masquerade"

    @contextmanager
    def started(self, namespace: NetNamespace, *flags: str) -> Iterator[Agent]:
        """Run ``ip-masq-agent`` with flags for the body, without waiting for anything."""
        log = self._directory / "agent.log"
        own = ("unshare", "--mount", "sh", "-c", _OWN_FILES, str(self._directory))
        environ = {name: value for name, value in os.environ.items() if name not in ("PODGATE_SOURCE", "NODE_NAME")}
        log.unlink(missing_ok=True)
        agent = Agent.start(namespace, [*own, *DROPIN, *flags], log, environ)
        try:
            yield agent
        finally:
            agent.end(signal.SIGKILL)
