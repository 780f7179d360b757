"""Measured collectives, each on a machine of ours, and the rows that cannot be held against any.

Those of `SHIPPED` come with the program; three files with others do not (`FILES`): the caller names the folder that has them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.calibrate import rows as measurements
from gpusim.machine.collectives.passes import Kind
from gpusim.machine.collectives.times import KINDS

FILES = ("collectives_nccl_tests.csv", "collectives_vidur.csv", "collectives_tartan.csv")
SHIPPED = Path(__file__).parents[1] / "data" / "hardware_measured.csv"
RAW = "it is not shipped: name a folder that has the raw files"
FLOOR = 2.0
"""Times of `SHIPPED` up to the shortest of their series, and below so many times that, are the host's: 35 to 360 us."""
SMALLEST = 16
"""Bytes of a message whose latency is told without its size."""
ALIGNED = 16
"""Bytes; where parts of a message are no multiple, NCCL copies them element by element."""


@dataclass(frozen=True)
class CollectiveRow:
    """One measured collective.

    machine  as the source calls it
    on       the machine of ours
    gpus     how many on each of how many nodes
    size     bytes, as in `trace.exchanges`
    us       measured
    """

    machine: str
    on: str
    gpus: int
    nodes: int
    kind: Kind
    size: int
    us: float
    source: str


@dataclass(frozen=True)
class LeftOut:
    """A row that is not compared, and why."""

    machine: str
    what: str
    why: str


@dataclass(frozen=True)
class MeasuredMachine:
    """A machine of the files: ours that stands for it, and whether the fit sees its rows."""

    on: str
    fitted: bool
    gpus: int = 0
    nodes: int = 1
    """Where the rows do not say so themselves."""


MACHINES = {
    "8x A100-SXM4-40GB NVSwitch": MeasuredMachine("dgx-a100-40gb", True, 8),
    "8x RTX 4090, stock driver (P2P off)": MeasuredMachine("8x-rtx-4090", True, 8),
    "1x P6-B200 node, 8x B200 NVLink5": MeasuredMachine("hgx-b200", True, 8),
    "4x P6-B200 nodes, EFA v4 8x50 GB/s": MeasuredMachine("4 x hgx-b200 over roce", False, 32, 4),
    "DGX-1V or DGX-1 (NCCL v2; see paper)": MeasuredMachine("dgx-1-p100", True),
    "Azure NC96ads_A100_v4 (4x A100-80GB PCIe, pairwise NVLink)": MeasuredMachine("4x-a100-pcie-pairs", True),
    "AWS p5.48xlarge, 1 node x 8 H100 (aws-batch page)": MeasuredMachine("hgx-h100", True, 8),
    "Nebius, 2 nodes x 8 H100, InfiniBand": MeasuredMachine("2 x hgx-h100 over infiniband", True, 16, 2),
    "Lambda, 2 nodes x 8 B200": MeasuredMachine("2 x hgx-b200 over infiniband", True, 16, 2),
    "Alps, 2 nodes x 1 GH200, Slingshot 11": MeasuredMachine("2 x gh200-x4 over slingshot", False, 2, 2),
    "GCP A3 High/Edge, 2 nodes x 8 H100, TCPX": MeasuredMachine("2 x a3-high over tcpx", True, 16, 2),
    "2x H100 PCIe, NVLink bridge": MeasuredMachine("2x-h100-pcie-nvlink", False, 2),
    "A100-80GB DGX, 8 GPUs": MeasuredMachine("dgx-a100", False),
    "H100 DGX, 8 GPUs": MeasuredMachine("hgx-h100", False),
    "Azure internal VM (4x H100 NVL 80GB, pairwise NVLink)": MeasuredMachine("4x-h100-nvl-pairs", False),
    "GCP A4, 2 nodes x 8 B200, RoCE 3.2 Tb/s": MeasuredMachine("2 x hgx-b200 over roce", False, 16, 2),
    "Alps, 2 nodes x 4 GH200, Slingshot 11 with OFI plugin": MeasuredMachine("2 x gh200-x4 over slingshot", True, 8, 2),
    "OCI BM.GPU.B4.8, 2 nodes x 8 A100-SXM4-40GB, RoCE": MeasuredMachine("2 x dgx-a100-40gb over roce", False, 16, 2),
}  # fmt: skip
_OUT = {  # a word of the machine or of the row -> why it is left out
    "MI300X": "RCCL",
    "nccl-v1": "NCCL 1",
    "mpi": "MPI",
    "osu_": "MPI",
    "ib_write": "no collective",
    "plugin missing": "TCP without NCCL's plugin for the network",
    "AWS EFA": "GPUs not named",
    "GB10": "no profile of that GPU",
    "SummitDev": "no profile of GPUs on NVLink to POWER8",
}
_RATES_ONLY = ("2x H100 PCIe, NVLink bridge",)
_PARTS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1}
"""Passes over a ring, by which "bus bandwidth" is told: each moves n-1 of n parts; a broadcast moves the message once."""


def shipped() -> tuple[list[CollectiveRow], list[LeftOut]]:
    """Rows that come with the program: those that can be compared, and the others."""
    rows: list[CollectiveRow] = []
    out: list[LeftOut] = []
    for series in measurements.series(measurements.read(SHIPPED)).values():
        if not series[0].metric.startswith("nccl_"):
            continue
        on, kind = MACHINES.get(series[0].system), next(k for k in KINDS if k.replace("_", "") in series[0].metric)
        if on is None:
            out += [LeftOut(each.system, each.metric, "no machine of ours") for each in series]
            continue
        us = [_us(each.unit, each.value, kind, on.gpus, each.size_bytes or 0) for each in series]
        for i, (each, time) in enumerate(zip(series, us, strict=True)):
            if i <= us.index(min(us)) or time < FLOOR * min(us):
                out.append(LeftOut(each.system, each.metric, "one process or a script launches on all GPUs: the host is seen"))
            else:
                rows.append(CollectiveRow(each.system, on.on, on.gpus, on.nodes, kind, each.size_bytes or 0, time, each.source))
    return rows, out


def read(folder: Path) -> tuple[list[CollectiveRow], list[LeftOut]]:
    """These and those of the folder's files.  Raises GpusimError where one of them is not there."""
    rows, out = shipped()
    for name in FILES:
        path = folder / name
        if not path.is_file():
            raise GpusimError(f"there is no '{name}' in '{folder}'", hint=RAW)
        with path.open(newline="") as file:
            for each in csv.DictReader(file):
                found = _row(each)
                if isinstance(found, LeftOut):
                    out.append(found)
                else:
                    rows.append(found)
    return rows, out


def _row(row: dict[str, str]) -> CollectiveRow | LeftOut:
    said = dict(_pair(text) for text in row["parameters"].split(";"))
    why = next((why for word, why in _OUT.items() if word in row["machine"] or word in row["what"] or word in said), "")
    measured = MACHINES.get(row["machine"])
    if why or measured is None:
        return LeftOut(row["machine"], row["what"], why or "no machine of ours")
    kind = _kind(row["what"], said)
    gpus, nodes = int(said.get("workers") or said.get("gpus") or measured.gpus), int(said.get("nodes", measured.nodes))
    size = int(said.get("bytes", 1 << 30 if "1GB" in row["what"] else SMALLEST))
    if "nodes" in said and nodes > 1:
        why = "network between the nodes not named"
    elif kind == "send" and "Azure NC96ads" in row["machine"]:
        why = "sends seem to end before they arrive (339 GB/s over 300)"
    elif row["what"].startswith("nccl_") and row["unit"] == "GB/s" and row["machine"] not in _RATES_ONLY:
        why = "the time is another row"
    elif kind in ("all_gather", "reduce_scatter") and size % (gpus * ALIGNED):
        why = "parts of the message are not aligned: NCCL copies element by element"
    if why:
        return LeftOut(row["machine"], row["what"], why)
    us = _us(row["unit"], float(row["value"]), kind, gpus, size)
    return CollectiveRow(row["machine"], measured.on, gpus, nodes, kind, size, us, row["source"])


def _pair(text: str) -> tuple[str, str]:
    key, _, value = text.partition("=")
    return key, value


def _kind(what: str, said: dict[str, str]) -> Kind:
    return next((kind for kind in KINDS if said.get("op") == kind or f"_{kind}_" in what), "send")


def _us(unit: str, value: float, kind: Kind, gpus: int, size: int) -> float:
    if unit == "GB/s":
        return size * (_PARTS[kind] * (gpus - 1) / gpus if kind in _PARTS else 1.0) / value / 1e3
    return value * {"us": 1.0, "ms": 1e3}[unit]


def bands(rows: list[CollectiveRow]) -> Iterator[tuple[str, str, list[CollectiveRow]]]:
    """(machine, band, rows): below and from 1 MiB."""
    for machine in MACHINES:
        for band, small in (("below 1 MiB", True), ("from 1 MiB", False)):
            if found := [row for row in rows if row.machine == machine and (row.size < 1 << 20) == small]:
                yield machine, band, found
