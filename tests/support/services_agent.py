"""``podgate services run`` for tests: objects in a folder, one agent, and what nft says the kernel holds.

Here: Services and slices as plain values, the folder, starting an agent. Not here: the agent's pages and log
(agent.py), a network with endpoints (service_lab.py).
Invariant: a file of the folder is replaced at once, so no agent reads half of it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from podgate.lab.kinds import Object
from podgate.linux.netlink import NETLINK_NETFILTER, Connection
from podgate.linux.nftables import generation
from tests.support.agent import Agent, nft, started
from tests.support.netns import NetNamespace
from tests.support.slices import endpoint_slice

TABLE: Final = "podgate-services"
PROXY_NAME: Final = "service.kubernetes.io/service-proxy-name"
PAGES: Final = ("--metrics-addr", "127.0.0.1:10350", "--health-addr", "")
"""Where tests of agents look for pages."""


def service(
    name: str, address: str, *ports: Mapping[str, Any], labels: Mapping[str, str] | None = None, **spec: Any
) -> Object:
    """Give a Service of one family; without ``ports`` it has port 80 of TCP."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default", "labels": dict(labels or {})},
        "spec": {"clusterIP": address, "ports": list(ports) or [{"port": 80}], **spec},
    }


def slice_of(
    name: str, *addresses: str, port: int = 80, protocol: str = "TCP", labels: Mapping[str, str] | None = None
) -> Object:
    """Give the slice of a Service with one port; each endpoint is ready, and on node-1."""
    address_type = "IPv6" if any(":" in each for each in addresses) else "IPv4"
    return endpoint_slice(
        name, address_type, [(each, "node-1") for each in addresses], ("", port, protocol), labels=labels
    )


class Folder:
    """A folder of manifests, as an agent's ``--source``."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir()

    def write(self, objects: Iterable[Object], name: str = "objects") -> None:
        """Make these the only objects of one file."""
        lines = "".join(f"{json.dumps(each)}\n" for each in objects)
        fresh = self.path.with_name(f"{self.path.name}-{name}.new")
        fresh.write_text(lines)
        fresh.rename(self.path / f"{name}.jsonl")


@contextmanager
def serving(namespace: NetNamespace, directory: Path, folder: Folder, *arguments: str) -> Iterator[Agent]:
    """Start an agent and wait until it is ready."""
    words = ("--source", str(folder.path), *PAGES, *arguments)
    with started(namespace, directory, *words, feature="services") as agent:
        agent.until_ready()
        yield agent


def counted(agent: Agent, name: str) -> float:
    """Give one metric by its name without prefix, with labels as they are printed; 0 where it is not."""
    return agent.metrics().get(f"podgate_services_{name}", 0.0)


Held = Mapping[str, frozenset[str]]
"""Elements by set, and rules by chain, numbered."""


def held(namespace: NetNamespace, table: str = TABLE) -> Held:
    """Give what the IPv4 table holds, but for what packets wrote into it; empty where there is none."""
    found: dict[str, set[str]] = {}
    for item in nft(namespace, "table", "ip", table):
        for kind in ("set", "map"):
            if kind in item and "timeout" not in item[kind].get("flags", ()):
                found[item[kind]["name"]] = {json.dumps(each) for each in item[kind].get("elem", ())}
        if "chain" in item:
            found[f"chain {item['chain']['name']}"] = set()
        if "rule" in item:
            rules = found[f"chain {item['rule']['chain']}"]
            rules.add(f"{len(rules)} {json.dumps([item['rule']['expr'], item['rule'].get('comment')])}")
    return {name: frozenset(each) for name, each in found.items()}


def generation_of(namespace: NetNamespace) -> int:
    """Give the number of the kernel's ruleset, which each transaction raises."""

    def asked() -> int:
        with Connection(NETLINK_NETFILTER) as connection:
            return generation(connection)

    return namespace.call(asked)
