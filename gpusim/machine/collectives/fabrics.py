"""What collectives reach of the links of a machine, by generation of the links: calibrated numbers, `data/fabrics.yaml`.

`python -m gpusim.calibrate.collectives fit` makes the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

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
    basis: Literal["measured", "estimated"]
    """measured: fitted to rows of such machines; estimated: by the rule of `source`."""
    source: str
    straight: Positive = 1.0
    """Of a link's rate that sends reach, which need not reduce."""
    reduced: Positive = 1.0
    """Of a port's rate that is reached where NVSwitches reduce."""
    chunk: Annotated[float, Field(ge=0)] = 0.0
    """Bytes of a message that NVSwitches reduce before the first of them go on."""


@checked(frozen=True, config=STRICT)
class FabricsFile:
    """The file."""

    fabrics: dict[str, Fabric]


@cache
def shipped() -> Mapping[str, Fabric]:
    """By name."""
    return validate.build(FabricsFile, document.read(DATA)).fabrics


def fabric_of(machine: Topology, route: TransferRoute) -> str:
    """The name of what a route goes over: nvlink1 to nvlink5, pcie, host (staged in its memory), rdma or tcp."""
    kinds = {link.kind for link in route.links}
    if "network" in kinds:
        return "tcp" if route.staged else "rdma"
    if route.staged:
        return "host"
    return generation(machine) if kinds & set(DIRECT) else "pcie"


def generation(machine: Topology) -> str:
    """Of the NVLinks of a machine's first GPU."""
    capability = float(machine.profile(machine.gpus[0]).gpu.compute_capability)
    return "nvlink" + constants.newest({60: "1", 70: "2", 80: "3", 90: "4", 100: "5"}, round(10 * capability))
