"""questions: what a user calls a destination, read.

Here: addresses and names of Services, with a port, or with all of theirs. Not here: what happens there (explain.py).
Invariant: a name leads to a Service that is there, and each destination that is given has a port of it; an address
may be anybody's.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from podgate.features.services.addresses import address_text, packed, with_port
from podgate.features.services.intent import FAMILIES, Intent, Protocol, ServicePort
from podgate.features.services.whose import is_ours
from podgate.joints import Inputs, QuestionError
from podgate.model.frozen import ObjectRef
from podgate.model.kinds.services import PROXY_NAME_LABEL, SERVICE
from podgate.model.problems import Problems
from podgate.model.spelling import did_you_mean

FORMS: Final = "ADDRESS[:PORT[/PROTOCOL]] or [NS/]SERVICE[:PORT[/PROTOCOL]], as 10.96.0.10:53/udp or kube-system/dns"

_PROTOCOLS: Final[Mapping[str, Protocol]] = {"tcp": "tcp", "udp": "udp", "sctp": "sctp"}
_FORM: Final = re.compile(
    r"(?:\[(?P<v6>[^\]]+)\]|(?P<v4>[0-9.]+)|(?:(?P<namespace>[a-z0-9-]+)/)?(?P<name>[a-z0-9][a-z0-9-]*))"
    r"(?::(?P<port>[a-z0-9-]+)(?:/(?P<protocol>\w+))?)?",
    re.ASCII,
)


class NothingDoneError(QuestionError):
    """A Service is there that no proxy does anything for, as a headless one; ``service`` is its namespace and name."""

    def __init__(self, service: str, reason: str) -> None:
        super().__init__(reason)
        self.service = service


class Destination(NamedTuple):
    """Where a packet goes. Port 0 stands for all of an address that no Service has a port of."""

    address: bytes
    port: int
    protocol: Protocol

    def __str__(self) -> str:
        """Show ``10.96.0.10:53/udp``, or the address alone."""
        if not self.port:
            return address_text(self.address)
        return f"{with_port(self.address, self.port)}/{self.protocol}"


def destinations_of(
    text: str, intent: Intent, inputs: Inputs, own: frozenset[bytes], problems: Problems
) -> tuple[Destination, ...]:
    """Read a destination; without a port it is all that Services have there.

    Args:
        text: as FORMS says; TCP where a number is given without a protocol.
        intent: the Services' ports.
        inputs: the Services.
        own: this node's addresses, whose ports are node ports.
        problems: what is wrong with Services.

    Raises:
        NothingDoneError: no proxy does anything for the Service.
        QuestionError: it is none of these, or there is no such Service, or port of it.
    """
    found = _FORM.fullmatch(text)
    if found is None:
        raise _none(text)
    if found["name"]:
        ports = _named(text, found, intent, inputs, problems)
        return tuple(dict.fromkeys(Destination(port.cluster_ip, port.port, port.protocol) for port in ports))
    address = packed(found["v6"] or found["v4"])
    if address is None or bool(found["v6"]) != (len(address) == 16):
        raise _none(text)
    if found["port"]:
        return (_at(text, address, found),)
    return tuple(sorted(_all(address, intent, own))) or (Destination(address, 0, "tcp"),)


def _none(text: str) -> QuestionError:
    return QuestionError(f'"{text}" is no destination: write {FORMS}')


def _protocol(text: str, given: str | None) -> Protocol | None:
    protocol = _PROTOCOLS.get((given or "tcp").lower())
    if protocol is None:
        raise QuestionError(f'"{text}": write tcp, udp or sctp after the slash')
    return protocol if given else None


def _at(text: str, address: bytes, found: re.Match[str]) -> Destination:
    if not found["port"].isdecimal():
        raise _none(text)
    protocol, port = _protocol(text, found["protocol"]) or "tcp", int(found["port"])
    if not 0 < port < 65536:
        raise QuestionError(f'"{text}": {port} is no port: write 1 to 65535')
    return Destination(address, port, protocol)


def _all(address: bytes, intent: Intent, own: frozenset[bytes]) -> Iterator[Destination]:
    """Give what Services have at an address."""
    part = intent.of("ip" if len(address) == 4 else "ip6")
    for port in (each for ports in (part.ports.values() if part else ()) for each in ports):
        if address == port.cluster_ip or address in port.external:
            yield Destination(address, port.port, port.protocol)
        elif port.node_port and address in own:
            yield Destination(address, port.node_port, port.protocol)


def _named(text: str, found: re.Match[str], intent: Intent, inputs: Inputs, problems: Problems) -> list[ServicePort]:
    """Give the ports that a Service's name means, in each family."""
    ref = ObjectRef(SERVICE.kind, found["name"], found["namespace"] or "default")
    services = inputs.objects.objects(SERVICE)
    if ref not in services:
        elsewhere = sorted(f"{each.namespace}/{each.name}" for each in services if each.name == ref.name)
        beside = (each.name for each in services if each.namespace == ref.namespace)
        meant = f" (there is {', '.join(elsewhere)})" if elsewhere else did_you_mean(ref.name, beside)
        raise QuestionError(f'"{text}": there is no Service {ref.namespace}/{ref.name}{meant}: write {FORMS}')
    if not is_ours(services[ref], intent.proxy_name):
        name = services[ref].metadata.labels.proxy_name
        raise QuestionError(f'"{text}": {ref} is for another proxy, "{name}" ({PROXY_NAME_LABEL}): ask that one')
    ports = [port for family in FAMILIES if (part := intent.of(family)) for port in part.ports.get(ref, ())]
    wrong = "; ".join(problem.message for problem in problems.get(ref, ()) if problem.severity == "error")
    if not ports and wrong:
        raise QuestionError(f'"{text}": nothing is done for {ref}: {wrong}')
    if not ports:
        raise NothingDoneError(
            f"{ref.namespace}/{ref.name}", "it has no cluster IP with a port, so no proxy does anything for it"
        )
    if not found["port"]:
        return ports
    protocol = _protocol(text, found["protocol"])
    meant_ports = [
        port
        for port in ports
        if found["port"] in {str(port.port), port.name.rpartition(":")[2]} and protocol in {None, port.protocol}
    ]
    if not meant_ports:
        more = wrong and f"; {wrong}"
        offered = sorted({f"{port.name.rpartition(':')[2]} ({port.port}/{port.protocol})" for port in ports})
        raise QuestionError(f'"{text}": {ref} has no such port: write one of {", ".join(offered)}{more}')
    return meant_ports
