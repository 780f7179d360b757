"""What collectives reach of the links of each generation, fitted to the rows of some machines.

A number that no row decides is taken from the generation next to it (`ESTIMATED`), and said to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from gpusim.calibrate.collectives.rows import MACHINES, CollectiveRow
from gpusim.calibrate.collectives.simulated import SimulatedRows
from gpusim.calibrate.kernel_times.least_squares import F64, minimise
from gpusim.machine.collectives.fabrics import Fabric

HEADER = """\
# What collectives reach of the links of a machine (gpusim/machine/collectives/fabrics.py), by
# `python -m gpusim.calibrate.collectives fit FOLDER`: share, straight and reduced of a link's rate, latencies as multiples of those of
# NCCL's estimate.  Rows: github.com/NVIDIA/nccl-tests on machines of AWS, Nebius, Lambda and CSCS, github.com/microsoft/vidur (MIT),
# github.com/uuudown/Tartan (MIT); docs/collectives.md says how far off they are, and others that the fit did not see.
"""


class Unknown(NamedTuple):
    """A number to be fitted: where it begins, and between which bounds it is."""

    fabric: str
    name: str
    start: float
    low: float
    high: float


_WAITS = (0.3, 12.0)
UNKNOWNS = (
    Unknown("nvlink1", "pair", 0.9, 0.5, 1.0), Unknown("nvlink3", "pair", 0.8, 0.5, 1.0),
    Unknown("nvlink1", "share", 0.9, 0.5, 1.0), Unknown("nvlink1", "quick", 2.0, *_WAITS), Unknown("nvlink1", "wait", 1.5, *_WAITS),
    Unknown("nvlink3", "share", 0.8, 0.5, 1.0), Unknown("nvlink3", "straight", 0.9, 0.5, 1.0),
    Unknown("nvlink3", "quick", 1.0, *_WAITS), Unknown("nvlink3", "wait", 2.0, *_WAITS),
    Unknown("nvlink4", "reduced", 0.8, 0.5, 1.0), Unknown("nvlink4", "chunk", 1.0, 0.05, 4.0),
    Unknown("nvlink4", "quick", 1.0, *_WAITS), Unknown("nvlink4", "wait", 1.2, *_WAITS),
    Unknown("nvlink5", "quick", 1.4, *_WAITS), Unknown("nvlink5", "wait", 1.2, *_WAITS), Unknown("nvlink5", "chunk", 1.0, 0.05, 4.0),
    Unknown("pcie", "share", 0.9, 0.5, 1.0), Unknown("pcie", "quick", 1.0, *_WAITS), Unknown("pcie", "wait", 1.0, *_WAITS),
    Unknown("host", "share", 0.6, 0.2, 1.0), Unknown("host", "quick", 2.0, *_WAITS),
    Unknown("rdma", "share", 0.95, 0.5, 1.0), Unknown("rdma", "quick", 1.5, *_WAITS), Unknown("rdma", "wait", 2.0, *_WAITS),
    Unknown("slingshot", "share", 0.95, 0.5, 1.0), Unknown("slingshot", "quick", 1.5, *_WAITS),
    Unknown("slingshot", "wait", 5.0, *_WAITS),
)  # fmt: skip
UNIT = {"chunk": 1e7}
"""Of numbers that are not near one."""
ESTIMATED = {  # fabric -> its numbers -> whose they are, and of which name where that is another
    "nvlink1": {"straight": "nvlink3"},
    "nvlink2": {"share": "nvlink3", "pair": "nvlink3", "straight": "nvlink3", "quick": "nvlink3", "wait": "nvlink3"},
    "nvlink4": {"pair": "nvlink3", "straight": "nvlink3"},
    "nvlink5": {"share": "nvlink4", "pair": "nvlink3", "straight": "nvlink3", "reduced": "nvlink4"},
    "pcie": {"straight": "pcie.share"},
    "host": {"straight": "host.share", "wait": "pcie"},
    "rdma": {"straight": "rdma.share"},
    "slingshot": {"straight": "slingshot.share"},
    "tcp": {"share": "rdma", "straight": "rdma.share", "quick": "rdma", "wait": "rdma"},
}  # fmt: skip
STATED = {("nvlink4", "share"): (370 / 376.27, "rings of H100s reach 370 GB/s (NVIDIA in github.com/NVIDIA/nccl-tests/issues/212)")}
"""Numbers that somebody states -> the number and where."""
_DEFAULTS = {"pair": None, "straight": 1.0, "reduced": 1.0, "chunk": 0.0}
SMALL = 1 << 20
NOISY = "vidur"
"""Of a source: three times each, of which many below 1 MiB fall while the message grows; the fit does not see these."""


def seen(rows: Sequence[CollectiveRow]) -> list[CollectiveRow]:
    """The rows that the fit sees."""
    return [row for row in rows if MACHINES[row.machine].fitted and not (row.size < SMALL and NOISY in row.source)]


def fit(rows: Sequence[CollectiveRow]) -> dict[str, Fabric]:
    """Numbers of all fabrics from the rows that the fit may see."""
    shown = seen(rows)
    groups = Counter((row.machine, row.size < SMALL) for row in shown)
    weight = np.sqrt([len(shown) / len(groups) / groups[row.machine, row.size < SMALL] for row in shown])
    simulated = SimulatedRows({})
    measured = np.log([row.us for row in shown])

    def residual(x: F64) -> F64:
        simulated.known.clear()
        simulated.known.update(fabrics(x))
        found = np.log([simulated.of(row).ns / 1e3 for row in shown])
        return np.asarray(weight * (found - measured))

    start, low, high = (np.log([each[i] for each in UNKNOWNS]) for i in (2, 3, 4))
    best, _ = minimise(residual, start, low, high)
    return fabrics(best)


def fabrics(x: F64) -> dict[str, Fabric]:
    """The fabrics that logarithms of the unknown numbers make."""
    found: dict[str, dict[str, float]] = {}
    for unknown, value in zip(UNKNOWNS, np.exp(x), strict=True):
        found.setdefault(unknown.fabric, {})[unknown.name] = float(value) * UNIT.get(unknown.name, 1.0)
    for (fabric, name), (value, _) in STATED.items():
        found[fabric][name] = value
    for fabric, numbers in ESTIMATED.items():
        for name, other in numbers.items():
            whose, _, which = other.partition(".")
            found.setdefault(fabric, {})[name] = found[whose][which or name]
    return {name: Fabric(**numbers, estimated=_not_fitted(name)) for name, numbers in sorted(found.items())}


def _not_fitted(fabric: str) -> dict[str, str]:
    return ESTIMATED.get(fabric, {}) | {name: where for (whose, name), (_, where) in STATED.items() if whose == fabric}


def text(found: Mapping[str, Fabric]) -> str:
    """The file of these numbers."""
    lines = [HEADER + "fabrics:"]
    for name, fabric in found.items():
        numbers = {key: value for key, value in asdict(fabric).items() if key != "estimated" and value != _DEFAULTS.get(key)}
        shown = [f"{key}: {value:.0f}" if key == "chunk" else f"{key}: {value:.3f}" for key, value in numbers.items()]
        estimated = ", ".join(f'{key}: "{value}"' for key, value in fabric.estimated.items())
        lines.append(f"  {name}: {{{', '.join(shown)}" + (f", estimated: {{{estimated}}}" if estimated else "") + "}")
    return "\n".join(lines) + "\n"
