"""What collectives reach of the links of a machine, by generation of the links: calibrated numbers, `data/fabrics.yaml`.

`python -m gpusim.calibrate.collectives fit` makes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Annotated

from pydantic import Field
from pydantic.dataclasses import dataclass as checked

from gpusim.base.yaml import document, validate
from gpusim.base.yaml.fields import STRICT
from gpusim.machine.collectives import nccl_constants as constants
from gpusim.machine.topology.routes import TransferRoute
from gpusim.machine.topology.topology import DIRECT, Topology

DATA = Path(__file__).parent / "data" / "fabrics.yaml"
Positive = Annotated[float, Field(gt=0)]


@checked(frozen=True, config=STRICT)
class Fabric:
    """Links of one generation."""

    share: Positive
    """Of a link's rate that rings and trees reach."""
    quick: Positive
    """Latency in protocol LL, as a multiple of what NCCL's estimate says of steps over such links (and of the start)."""
    wait: Positive
    """The same in the other protocols."""
    pair: Positive | None = None
    """The same of two GPUs; None: as of more."""
    straight: Positive = 1.0
    """Of a link's rate that sends reach, which need not reduce."""
    reduced: Positive = 1.0
    """Of a port's rate that is reached where NVSwitches reduce."""
    chunk: Annotated[float, Field(ge=0)] = 0.0
    """Bytes of a message that NVSwitches reduce before the first of them go on."""
    estimated: dict[str, str] = field(default_factory=dict)
    """Numbers that no measurement decided -> whose they are; all others were fitted."""


@checked(frozen=True, config=STRICT)
class FabricsFile:
    """The file."""

    fabrics: dict[str, Fabric]


@cache
def shipped() -> Mapping[str, Fabric]:
    """By name."""
    return validate.build(FabricsFile, document.read(DATA)).fabrics


def fabric_of(machine: Topology, route: TransferRoute, known: Mapping[str, Fabric]) -> str:
    """The name of what a route goes over: nvlink1 to nvlink5, pcie, host (staged in its memory), or a network."""
    kinds = {link.kind for link in route.links}
    if "network" in kinds:
        return of_network(machine, known)
    if route.staged:
        return "host"
    return generation(machine) if kinds & set(DIRECT) else "pcie"


def of_network(machine: Topology, known: Mapping[str, Fabric]) -> str:
    """Of the network between the hosts: its own name where that is known, else rdma or tcp."""
    if machine.network_name in known:
        return machine.network_name
    return "rdma" if machine.network is None or machine.network.rdma else "tcp"


def generation(machine: Topology) -> str:
    """Of the NVLinks of a machine's first GPU."""
    capability = float(machine.profile(machine.gpus[0]).gpu.compute_capability)
    return "nvlink" + constants.newest({60: "1", 70: "2", 80: "3", 90: "4", 100: "5"}, round(10 * capability))
