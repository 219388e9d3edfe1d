"""serving: what this process itself answers: kube-proxy's pages, health check node ports, node ports on loopback.

Here: the pages by address, and what they look at. Not here: what they say (health.py), sockets (targets/listeners).
Invariant: a page is made of what was committed last, of what the host knows, and of what the kernel counts at once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Final

import msgspec

from podgate.features.services.addresses import address_text
from podgate.features.services.backends import States
from podgate.features.services.health import JSON, is_healthy, proxy_page, service_page
from podgate.features.services.intent import FAMILIES, HealthCheck, Intent
from podgate.features.services.loopback_ports import LoopbackPorts
from podgate.features.services.old_metrics import IptablesRules, WithoutLocal, failures
from podgate.features.services.server.listening import NodePortListeners
from podgate.features.services.server.loopback import Loopback
from podgate.features.services.server.passes import Passes
from podgate.features.services.server.progress import Progress
from podgate.features.services.server.room import Room
from podgate.features.services.settings import Settings
from podgate.joints import Served
from podgate.model.machine import Family
from podgate.model.table import Table
from podgate.observe.accepting import Factory
from podgate.observe.answers import TEXT, Answer, Page
from podgate.observe.metrics import CONTENT_TYPE, Counter, Counters, Measured, exposition
from podgate.observe.page_connection import PageConnection
from podgate.observe.pages import Crowd, PageServer
from podgate.observe.process import process_readings
from podgate.targets.cell.apply import Cell
from podgate.targets.cell.state import State as CellState
from podgate.targets.listeners.state import ListenAddress
from podgate.targets.listeners.state import State as ListenersState

_HEALTH_CHECK: Final[Mapping[Family, str]] = {"ip": "IPv4 health check", "ip6": "IPv6 health check"}
"""How names of what is served begin, before the number."""


class Serving:
    """What the pages of one process look at."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.cell = Cell()
        room = Room()
        self._loopback, self._loopback_ports = Loopback(self.cell, room), LoopbackPorts()
        self.target = NodePortListeners(_Protocols(self, self._loopback, room), room)
        self.progress, self.passes = Progress(proxy_name=settings.service_proxy_name), Passes(settings.backend)
        self._without_local, self._iptables = WithoutLocal(), IptablesRules()
        self.served: Served | None = None
        self.packets: Callable[[], Iterable[Measured]] = tuple
        text = "Answers of a health page."
        self._counters = Counters(
            (
                Counter("kubeproxy_proxy_healthz_total", text, ("code",)),
                Counter("kubeproxy_proxy_livez_total", text, ("code",)),
            )
        )

    def pages(self, served: Served) -> Mapping[str, Mapping[str, Page]]:
        """Give kube-proxy's pages, by address and path."""
        self.served = served
        settings = self._settings
        pages: dict[str, dict[str, Page]] = {}
        if settings.metrics_addr:
            pages.setdefault(settings.metrics_addr, {}).update(
                {"/metrics": self._metrics, "/proxyMode": self._mode, "/configz": self._configz}
            )
        health = settings.health_addr or settings.metrics_addr
        if health:
            pages.setdefault(health, {}).update({"/healthz": self._healthz, "/livez": self._livez})
        return pages

    def listeners(self, intent: Intent) -> ListenersState:
        """Say where this process listens, beside its pages."""
        return ListenersState(listeners_of(intent).addresses | self._loopback_ports.addresses(intent))

    def health_check(self, family: Family, port: int) -> Answer:
        """Answer at a health check node port, to who asked by an address of a family."""
        checks: Table[int, HealthCheck] = self.cell.value.health_checks if self.cell.value else Table()
        return service_page(checks.get(port), family, healthy=self._healthy())

    def _healthy(self) -> bool:
        return self.served is None or is_healthy(self.served.behind(), self._settings.sync_period)

    def _page(self, name: str, *, asks_eligible: bool) -> Answer:
        served = self.served
        now, behind = (served.now(), served.behind()) if served else (0.0, 0.0)
        eligible = self.cell.value is None or self.cell.value.node_eligible
        answer = proxy_page(now, behind, healthy=self._healthy(), eligible=eligible, asks_eligible=asks_eligible)
        self._counters.add(f"kubeproxy_proxy_{name}_total", code=str(answer[0]))
        return answer

    def _healthz(self) -> Answer:
        return self._page("healthz", asks_eligible=True)

    def _livez(self) -> Answer:
        return self._page("livez", asks_eligible=False)

    def _metrics(self) -> Answer:
        served = self.served
        ours = tuple(served.readings()) if served else ()
        states: States | None = self.progress.states
        of_rules = (
            *failures(ours, self._settings.backend),
            *self._without_local(self.cell.value or Intent()),
            *self._iptables(states.iptables if states else {}),
            *self.passes.readings(),
            *self.packets(),
            *(self.target.readings() if self._settings.backend == "nftables" else ()),
        )
        of_process = (*self.progress.readings(), *self._counters.samples(), *process_readings())
        return 200, CONTENT_TYPE, exposition((*ours, *of_rules, *of_process))

    def _mode(self) -> Answer:
        return 200, TEXT, self._settings.backend.encode()

    def _configz(self) -> Answer:
        shown = {"podgate.dev/services": msgspec.to_builtins(self._settings)}
        return 200, JSON, msgspec.json.encode(shown)


class _Protocols(Mapping[str, Factory]):
    """Makes the protocol of a health check node port, or of a node port on loopback, when its address is opened."""

    def __init__(self, serving: Serving, loopback: Loopback, room: Room) -> None:
        self._serving = serving
        self._loopback = loopback
        self._room = room

    @cached_property
    def _probes(self) -> Crowd:
        return Crowd(self._room.shares.probes)

    def __getitem__(self, name: str) -> Factory:
        passing_on = self._loopback.protocol(name)
        if passing_on is not None:
            return passing_on
        family = next(family for family, begins in _HEALTH_CHECK.items() if name.startswith(begins))
        port = int(name.rpartition(" ")[2])
        server = PageServer({"*": lambda: self._serving.health_check(family, port)}, crowd=self._probes)
        return lambda: PageConnection(server)

    def __iter__(self) -> Iterator[str]:
        checks: Table[int, HealthCheck] = (
            self._serving.cell.value.health_checks if self._serving.cell.value else Table()
        )
        return (f"{begins} {port}" for begins in _HEALTH_CHECK.values() for port in checks)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def listeners_of(intent: Intent) -> ListenersState:
    """Say where health check node ports listen: where node ports are open."""
    found = set()
    for family in FAMILIES:
        part = intent.of(family)
        if part is None:
            continue
        everywhere = "0.0.0.0" if family == "ip" else "::"  # noqa: S104 - as kube-proxy: where node ports are open
        own = part.node.node_port_ips
        addresses = [everywhere] if own is None else [address_text(each) for each in own]
        found |= {
            ListenAddress(address, port, f"{_HEALTH_CHECK[family]} {port}")
            for port, check in intent.health_checks.items()
            if check.of(family) is not None
            for address in addresses
        }
    return ListenersState(frozenset(found))


def cell_of(intent: Intent) -> CellState:
    """Give what the pages look at."""
    return CellState(intent, "pages answer by the configuration in force")
