"""What should run: from the objects to the network's topology and to workloads.

Here: Nodes, Pods and Hosts -> ``Wanted``; when a container is restarted. Pure.
Not here: who gets which address or node (lab/controllers/), running it (lab/daemon.py).
Invariant: one object that makes no sense is a fault by name and stops no other.
"""

from collections.abc import Collection, Iterable, Mapping
from ipaddress import ip_address, ip_interface, ip_network
from typing import Any, Final

import msgspec

from podgate.lab.clouds import IMAGE as CLOUD_IMAGE
from podgate.lab.clouds import addresses_of, cloud_of, host_name
from podgate.lab.fields import unhonoured
from podgate.lab.images import with_echo_probe
from podgate.lab.network import CloudNet, HostNet, NodeNet, PodNet, Topology, pod_namespace
from podgate.lab.podenv import Objects
from podgate.lab.podspec import (
    Capabilities,
    Container,
    EnvVar,
    Metadata,
    Pod,
    PodSpec,
    PodStatus,
    Probe,
    SecurityContext,
    TcpSocket,
    decode_pod,
)
from podgate.lab.shapes import Shape
from podgate.model.frozen import Frozen, ObjectRef
from podgate.model.machine import IPAddress, IPInterface

PREFIX_LENGTH: Final = "lab.podgate.dev/prefix-length"
SECONDARY: Final = "lab.podgate.dev/secondary-addresses"
_FINISHED: Final = ("Succeeded", "Failed")
_FIRST_DELAY: Final = 0.25
_LONGEST_DELAY: Final = 10.0
_FORGIVEN_AFTER: Final = 30.0


class HostRoute(Shape, frozen=True):
    """A route of a Host: to a range, via an address that is taken as directly reachable."""

    to: str
    via: str


class HostSpec(Shape, frozen=True):
    """What a Host asks for; without a command it is the echo server."""

    addresses: tuple[str, ...] = ()
    gateway: str = ""
    routes: tuple[HostRoute, ...] = ()
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None


class Workload(Frozen, frozen=True):
    """A Pod or Host that should run.

    Attributes:
        ref: its object.
        pod: the Pod; a Host is one of a single container.
        sandbox: the network namespace that it runs in.
        node: the node whose folders its hostPaths lie in; empty for a Host.
        host_ips: the node's addresses.
        hostname: the name that its processes see.
    """

    ref: ObjectRef
    pod: Pod
    sandbox: str
    node: str = ""
    host_ips: tuple[str, ...] = ()
    hostname: str = ""

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """Tells one life of an object from the next one of the same name."""
        return self.ref.kind, self.ref.namespace, self.ref.name, self.pod.metadata.uid


class Wanted(Frozen, frozen=True):
    """What should be there.

    Attributes:
        workloads: by identity.
        faults: objects that make no sense, with why.
        warnings: fields that change behaviour in a cluster and not here.
    """

    topology: Topology = Topology()
    workloads: Mapping[tuple[str, str, str, str], Workload] = {}
    faults: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()


def node_addresses(node: Mapping[str, Any]) -> tuple[IPInterface, ...]:
    """Give a Node's addresses with prefix lengths: its InternalIPs, then its secondary addresses.

    Raises ValueError for an address or annotation that is none.
    """
    annotations = (node.get("metadata") or {}).get("annotations") or {}
    lengths = {4: 24, 6: 64}
    given = [int(part) for part in annotations.get(PREFIX_LENGTH, "").split(",") if part.strip()]
    lengths |= dict(zip((4, 6), given, strict=False))
    found: list[IPInterface] = []
    for entry in (node.get("status") or {}).get("addresses") or ():
        if entry.get("type") == "InternalIP":
            address = ip_address(entry["address"])
            found.append(ip_interface(f"{address}/{lengths[address.version]}"))
    for text in filter(None, (part.strip() for part in annotations.get(SECONDARY, "").split(","))):
        address = ip_address(text.split("/")[0])
        found.append(ip_interface(text if "/" in text else f"{address}/{lengths[address.version]}"))
    return tuple(dict.fromkeys(found))


def _node(node: Mapping[str, Any]) -> NodeNet:
    spec = node.get("spec") or {}
    cidrs = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    return NodeNet(node["metadata"]["name"], node_addresses(node), tuple(ip_network(cidr) for cidr in cidrs))


def _host(value: Mapping[str, Any], ref: ObjectRef) -> tuple[HostNet, Workload]:
    spec = msgspec.convert(value.get("spec") or {}, HostSpec)
    addresses = tuple(ip_interface(text).ip for text in spec.addresses)
    net = HostNet(
        ref.name,
        addresses,
        tuple(ip_address(text) for text in spec.gateway.split(",") if text),
        tuple((ip_network(route.to), ip_address(route.via)) for route in spec.routes),
    )
    container = Container(
        name="host",
        command=spec.command,
        args=spec.args,
        env=spec.env,
        security_context=SecurityContext(capabilities=Capabilities(add=("ALL",))),
    )
    container = with_echo_probe(container)
    metadata = Metadata(name=ref.name, uid=str((value.get("metadata") or {}).get("uid", "")))
    status = PodStatus(pod_ip=str(addresses[0]) if addresses else "")
    pod = Pod(metadata, PodSpec(containers=(container,), termination_grace_period_seconds=2), status)
    return net, Workload(ref, pod, f"host/{ref.name}", hostname=ref.name)


def _cloud(value: Mapping[str, Any], ref: ObjectRef) -> tuple[CloudNet, Workload] | None:
    """Give the metadata server that a Node asks for; None when it asks for none. It is a machine without an object."""
    cloud = cloud_of(value)
    if not cloud:
        return None
    net = CloudNet(host_name(ref.name), ref.name, addresses_of(cloud))
    everything = SecurityContext(capabilities=Capabilities(add=("ALL",)))
    probe = Probe(tcp_socket=TcpSocket(80))
    container = Container(
        name="host", image=CLOUD_IMAGE, args=(cloud,), security_context=everything, readiness_probe=probe
    )
    spec = PodSpec(containers=(container,), termination_grace_period_seconds=2)
    pod = Pod(Metadata(name=net.name), spec, PodStatus(pod_ip=str(net.addresses[0])))
    return net, Workload(ObjectRef("Host", net.name), pod, net.namespace, hostname=net.name)


def _pod(
    value: Mapping[str, Any], ref: ObjectRef, nodes: Mapping[str, NodeNet]
) -> tuple[PodNet | None, Workload] | None:
    """Give a Pod's place; None when it should not run (yet, or any more)."""
    pod = decode_pod(value)
    containers = tuple(with_echo_probe(container) for container in pod.spec.containers)
    pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, containers=containers))
    node = nodes.get(pod.spec.node_name)
    phase = (value.get("status") or {}).get("phase")
    leaving = (value.get("metadata") or {}).get("deletionTimestamp")
    if node is None or phase in _FINISHED or leaving:
        return None
    host_ips = tuple(str(address.ip) for address in node.addresses)
    if pod.spec.host_network:
        return None, Workload(ref, pod, node.namespace, node.name, host_ips, node.name)
    if not pod.status.addresses:
        return None
    net = PodNet(*pod.key, node.name, tuple(ip_address(text) for text in pod.status.addresses))
    hostname = pod.spec.hostname or pod.metadata.name
    return net, Workload(ref, pod, pod_namespace(*pod.key), node.name, host_ips, hostname)


class _Addresses:
    """Who has which address."""

    def __init__(self) -> None:
        self._owners: dict[IPAddress, ObjectRef] = {}

    def take(self, ref: ObjectRef, addresses: Iterable[IPAddress]) -> None:
        """Note an object's addresses; ValueError when another one has one of them."""
        own = tuple(addresses)
        for address in own:
            if address in self._owners:
                raise ValueError(f"{address} is the address of {self._owners[address]} already; choose another one")
        self._owners |= dict.fromkeys(own, ref)


def wanted(objects: Objects, enforced: Collection[str] = ()) -> Wanted:
    """Give what should be there; limits of resources other than ``enforced`` ones are warnings."""
    nodes: dict[str, NodeNet] = {}
    pods: list[PodNet] = []
    hosts: list[HostNet] = []
    clouds: list[CloudNet] = []
    workloads: dict[tuple[str, str, str, str], Workload] = {}
    faults: list[str] = []
    warnings: list[str] = []
    taken = _Addresses()
    order = {"Node": 0, "Host": 1, "Pod": 2}
    for ref in sorted((ref for ref in objects if ref.kind in order), key=lambda ref: (order[ref.kind], ref)):
        value = objects[ref]
        try:
            if ref.kind == "Node":
                node = _node(value)
                taken.take(ref, (address.ip for address in node.addresses))
                nodes[ref.name] = node
                if (found := _cloud(value, ref)) is not None:
                    cloud, workload = found
                    clouds.append(cloud)
                    workloads[workload.identity] = workload
            elif ref.kind == "Host":
                host, workload = _host(value, ref)
                taken.take(ref, host.addresses)
                hosts.append(host)
                workloads[workload.identity] = workload
            elif (placed := _pod(value, ref, nodes)) is not None:
                pod, workload = placed
                if pod is not None:
                    taken.take(ref, pod.addresses)
                    pods.append(pod)
                workloads[workload.identity] = workload
                warnings += [f"{ref}: {text}" for text in unhonoured(value, enforced)]
        except (ValueError, KeyError, TypeError) as error:  # msgspec's ValidationError is a ValueError
            faults.append(f"{ref}: {error}")
    topology = Topology(tuple(nodes.values()), tuple(pods), tuple(hosts), tuple(clouds))
    return Wanted(topology, workloads, tuple(faults), tuple(warnings))


def restarts(policy: str, exit_code: int) -> bool:
    """Whether a container that ended is started again."""
    return policy == "Always" or (policy == "OnFailure" and exit_code != 0)


def restart_delay(failures: int) -> float:
    """Give the seconds before the next start after so many ends in a row.

    A kubelet begins with 10 s and ends with 300 s; a lab is there to be watched, so the same doubling is quicker.
    """
    return float(min(_FIRST_DELAY * 2 ** max(failures - 1, 0), _LONGEST_DELAY))


def failures_after(failures: int, ran_for: float) -> int:
    """Count an end; one that came after a long run starts the count anew."""
    return 1 if ran_for > _FORGIVEN_AFTER else failures + 1
