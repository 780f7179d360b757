"""Nodes and directed links of a machine, ready to be asked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from gpusim.machine.profile import Profile
from gpusim.machine.topology.spec import MachineFile, NetworkSpec, NodeKind, WireKind

DIRECT: tuple[WireKind, ...] = ("nvlink", "optical")
"""Wires over which a GPU reaches another's memory without the host."""
INSIDE: tuple[WireKind, ...] = ("pcie", "c2c", "socket")
"""Wires of one host."""


@dataclass(frozen=True)
class TopologyNode:
    """A node of a machine; of a gpu with its profile, of a memory with bytes and bytes/s (None: unknown or not limited)."""

    name: str
    kind: NodeKind
    profile: Profile | None = None
    capacity: int | None = None
    bandwidth: float | None = None


@dataclass(frozen=True)
class TopologyLink:
    """One direction of the wires between two nodes: bytes/s of all together, ns, and what both directions have together."""

    a: str
    b: str
    kind: WireKind
    count: int
    rate: float
    latency: float
    both: float | None = None
    nominal: float | None = None
    own: bool = False  # the link that the profile of the GPU at one end has for its host

    @property
    def name(self) -> str:
        return f"{self.a}>{self.b}"

    @property
    def pair(self) -> str:
        """Name of what both directions share."""
        return "=".join(sorted((self.a, self.b)))


@dataclass(frozen=True)
class Topology:
    """A machine: nodes by name, links by (from, to), and the file that says the rest.

    network  the one that wires a cluster's hosts; None: there is one host, or they share another wire
    others   files of nodes whose hosts are of another kind than the first
    """

    name: str
    file: MachineFile
    nodes: Mapping[str, TopologyNode]
    links: Mapping[tuple[str, str], TopologyLink]
    network: NetworkSpec | None = None
    network_name: str = ""
    others: Mapping[str, MachineFile] = field(default_factory=dict)

    def file_of(self, node: str) -> MachineFile:
        """The file of the host of a node."""
        return self.others.get(node, self.file)

    @cached_property
    def gpus(self) -> tuple[str, ...]:
        """Names of the GPUs, in the order in which the file has them: the devices of programs."""
        return self.of_kind("gpu")

    @cached_property
    def neighbours(self) -> dict[str, tuple[TopologyLink, ...]]:
        """Links from each node."""
        found: dict[str, list[TopologyLink]] = {name: [] for name in self.nodes}
        for link in self.links.values():
            found[link.a].append(link)
        return {name: tuple(links) for name, links in found.items()}

    @cached_property
    def host(self) -> dict[str, int]:
        """The number of each node's host, which is what wires of a host join; networks, NVSwitches and pools have none."""
        number: dict[str, int] = {}
        for name, node in self.nodes.items():
            if name in number or node.kind in ("network", "nvswitch", "cxl"):
                continue
            number[name], todo = max(number.values(), default=-1) + 1, [name]
            while todo:
                for link in self.neighbours[todo.pop()]:
                    if link.kind in INSIDE and link.b not in number:
                        number[link.b] = number[link.a]
                        todo.append(link.b)
        return number

    @cached_property
    def cards(self) -> dict[str, str | None]:
        """The network cards of GPUs that `routes.card` has looked up."""
        return {}

    def host_memory(self, gpu: str) -> int:
        """Bytes of memory of the host of a GPU, of all its sockets; where the file does not say them, as its profile has."""
        sockets = [self.nodes[name] for name in self.of_kind("socket") if self.host[name] == self.host[gpu]]
        return sum(node.capacity or 0 for node in sockets) or int(self.profile(gpu).host.capacity.value)

    @property
    def hosts(self) -> int:
        """Hosts that have GPUs."""
        return len({self.host[gpu] for gpu in self.gpus})

    def of_kind(self, kind: NodeKind) -> tuple[str, ...]:
        return self._kinds.get(kind, ())

    @cached_property
    def _kinds(self) -> dict[NodeKind, tuple[str, ...]]:
        found: dict[NodeKind, list[str]] = {}
        for name, node in self.nodes.items():
            found.setdefault(node.kind, []).append(name)
        return {kind: tuple(names) for kind, names in found.items()}

    @cached_property
    def of_host(self) -> dict[tuple[int, NodeKind], tuple[str, ...]]:
        """Names by host and kind."""
        found: dict[tuple[int, NodeKind], list[str]] = {}
        for name, number in self.host.items():
            found.setdefault((number, self.nodes[name].kind), []).append(name)
        order = {name: i for i, name in enumerate(self.nodes)}
        return {key: tuple(sorted(names, key=order.__getitem__)) for key, names in found.items()}

    def profile(self, gpu: str) -> Profile:
        found = self.nodes[gpu].profile
        assert found is not None
        return found


@dataclass
class Draft:
    """Nodes and links as they are collected."""

    nodes: dict[str, TopologyNode] = field(default_factory=dict)
    links: dict[tuple[str, str], TopologyLink] = field(default_factory=dict)
