"""What collectives reach of the links of a machine, by generation of the links: calibrated numbers, `data/fabrics.yaml`.

`python -m gpusim.calibrate.collectives fit` makes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.machine.collectives import nccl_constants as constants
from gpusim.machine.topology.routes import TransferRoute
from gpusim.machine.topology.topology import DIRECT, Topology

DATA = Path(__file__).parent / "data" / "fabrics.yaml"
SMALL = 1 << 20
"""Bytes of a message below which errors are told apart."""
Positive = Annotated[float, Field(gt=0)]


@dataclass(frozen=True, config=STRICT, kw_only=True)
class CollectiveFabric:
    """Links of one generation."""

    share: Positive
    """Of a link's rate that rings and trees reach."""
    pair: Positive | None = None
    """The same of two GPUs; None: as of more."""
    straight: Positive = 1.0
    """Of a link's rate that a send reaches."""
    reduced: Positive = 1.0
    """Of a port's rate that is reached where NVSwitches reduce."""
    quick: Positive
    """Time of a step in protocol LL, as a multiple of what NCCL's estimate says."""
    wait: Positive
    """Time of the start and of a step in the other protocols, likewise."""
    latency: Positive | None = None
    """us of the network over which its steps were measured: on one of another latency each takes longer or shorter by that."""
    chunk: Annotated[float, Field(ge=0)] = 0.0
    """Bytes of a message that NVSwitches reduce before the first of them go on."""
    relay: Annotated[float, Field(ge=0)] = 0.0
    """Bytes of a broadcast or reduce that a GPU has before the first of them go on."""
    estimated: dict[str, str] = field(default_factory=dict)
    """Numbers that no measured row decides -> whose they are; all others were fitted."""


@dataclass(frozen=True, config=STRICT)
class FabricsFile:
    """The file."""

    fabrics: dict[str, CollectiveFabric]
    spread: dict[Literal["small", "large"], tuple[float, float]]
    """10th and 90th percentile of measured / simulated on machines that the fit did not see; small: below `SMALL` bytes."""


@cache
def _file() -> FabricsFile:
    return validate.build(FabricsFile, document.read(DATA))


def shipped() -> Mapping[str, CollectiveFabric]:
    """By name."""
    return _file().fabrics


def spread(size: int) -> tuple[float, float]:
    """Between which multiples of a simulated time eight of ten measured ones of such a size are."""
    return _file().spread["small" if size < SMALL else "large"]


def fabric_of(machine: Topology, route: TransferRoute, known: Mapping[str, CollectiveFabric]) -> str:
    """The name of what a route goes over: nvlink1 to nvlink5, pcie, host (staged in its memory), or a network."""
    kinds = {link.kind for link in route.links}
    if "network" in kinds:
        return of_network(machine, known)
    if route.staged:
        return "host"
    gpu = next((end for end in route.ends if machine.nodes[end].profile), machine.gpus[0])
    return generation(machine, gpu) if kinds & set(DIRECT) else "pcie"


def of_network(machine: Topology, known: Mapping[str, CollectiveFabric]) -> str:
    """Of the network between the hosts: its own name where that is known, else rdma or tcp."""
    if machine.network_name in known:
        return machine.network_name
    return "rdma" if machine.network is None or machine.network.rdma else "tcp"


def generation(machine: Topology, gpu: str) -> str:
    """Of the NVLinks of a GPU."""
    capability = float(machine.profile(gpu).gpu.compute_capability)
    return "nvlink" + constants.newest({60: "1", 70: "2", 80: "3", 90: "4", 100: "5"}, round(10 * capability))
