"""A whole machine as its YAML file says it: nodes, the wires between them, and which devices reach each other directly.

Numbers have a unit, a basis and a source as those of a profile; what the profile of a GPU says is not repeated.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml.fields import STRICT
from gpusim.machine.profile import Word
from gpusim.machine.quantity import Count, Rate, Share, Size, Time

NodeKind = Literal["gpu", "switch", "socket", "nvswitch", "nic", "network", "nvme", "cxl"]
WireKind = Literal["nvlink", "pcie", "c2c", "socket", "network", "cxl", "optical"]
Reach = Literal["none", "switch", "socket", "all"]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class NodeSpec:
    """A part of the machine."""

    kind: NodeKind
    """gpu, switch (of PCIe), socket, nvswitch, nic, network (its switches), nvme or cxl (a pool of memory)."""
    profile: Word | None = None
    """Of a gpu: its profile by name."""
    capacity: Size | None = None
    """Of a socket, a disk or a pool: its memory."""
    bandwidth: Rate | None = None
    """Of a socket's or a pool's memory, for all that read and write it together; absent: its wires limit it."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class WireSpec:
    """Wires of one kind and rate."""

    kind: WireKind
    """nvlink, pcie, c2c (of a coherent CPU and GPU), socket (between sockets), network, cxl or optical."""
    nominal: Rate | None = None
    """Per direction; for the picture."""
    rate: Rate | None = None
    """Reached in one direction; absent: at a GPU's end as its profile says."""
    both: Rate | None = None
    """Reached in both directions together when both are busy; absent: each has its own rate."""
    latency: Time | None = None
    """What a copy over such a wire costs beside its bytes; absent: as the profile of the GPU at an end says, or nothing."""
    between: Annotated[tuple[Word, ...], Field(min_length=1)]
    """Pairs of nodes: "gpu0 - gpu1", "2 x gpu0 - gpu3", "gpu{0..7} - switch{0..3}" (two GPUs at each switch)."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Peers:
    """Which GPUs without links of their own may copy to each other past the host's memory."""

    pcie: Reach
    """none, those below one switch, those below one socket, or all of a host."""
    source: Word
    """A key of the table `sources`."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Staging:
    """How the driver copies between GPUs that do not reach each other: to pinned host memory and from there, in chunks."""

    chunk: Size
    """So many bytes arrive before they leave again; the next chunk arrives meanwhile."""
    hop: Rate
    """Of one of the two copies, alone."""
    rate: Rate
    """Of both when they overlap."""
    latency: Time
    """Beside the bytes."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Rdma:
    """Network cards that read and write the memory of GPUs."""

    across_sockets: Share
    """Share of the rate that is left when the card is below another socket."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class NetworkSpec:
    """A network to which the machine's cards may be wired, several machines of one kind being a cluster."""

    nominal: Rate | None = None
    """Per card and direction."""
    rate: Rate
    """Reached per card and direction."""
    latency: Time
    """A small message, one way."""
    rdma: Rdma | None = None
    """Absent: the hosts' CPUs copy through their memory, as over TCP."""


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Distances:
    """NUMA distances between sockets, as the firmware tells them."""

    rows: tuple[tuple[int, ...], ...]
    source: Word


@dataclass(frozen=True, config=STRICT, kw_only=True)
class MachineFile:
    """A machine of several devices."""

    name: Word
    summary: Word
    """One line."""
    sources: dict[str, Word]
    """Key -> author, machine, method, where to read it; or the rule of an estimate."""
    estimate: bool = False
    """No such machine was measured, or it does not exist: all that is said of it is an estimate."""
    wiring: Word
    """The source of what is wired to what: a key of the table `sources`."""
    cpu: Literal["intel", "amd", "arm", "power"]
    """Maker or kind of the hosts' processors."""
    nodes: Annotated[dict[str, NodeSpec], Field(min_length=1)]
    """Name, or names as in gpu{0..7} -> what they are."""
    wires: dict[str, WireSpec] = Field(default_factory=dict)
    """Any name -> wires of one kind."""
    peers: Peers
    staging: Staging | None = None
    """Absent: by the rules for machines with that GPU (`gpusim/machine/peers.py`)."""
    networks: dict[str, NetworkSpec] = Field(default_factory=dict)
    """Name (infiniband, roce, tcp) -> what a cluster is wired with; the first where none is named."""
    numa: Distances | None = None
    """Absent: unknown."""
    channels: Count | None = None
    """Most channels of a collective; absent: as the library's search finds."""
