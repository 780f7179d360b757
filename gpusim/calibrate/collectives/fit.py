"""What collectives reach of the links of each generation, fitted to the rows of some machines.

A number that no row decides is taken from the generation next to it (`ESTIMATED`), and said to be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import NamedTuple

import numpy as np

from gpusim.calibrate.collectives.rows import MACHINES, CollectiveRow
from gpusim.calibrate.collectives.simulated import SimulatedRows
from gpusim.calibrate.kernel_times.least_squares import F64, minimise
from gpusim.machine.collectives.fabrics import SMALL, CollectiveFabric

HEADER = """\
# What collectives reach of the links of a machine (gpusim/machine/collectives/fabrics.py), by
# `python -m gpusim.calibrate.collectives fit FOLDER`: share, pair, straight and reduced of a link's rate; quick and wait:
# latencies as multiples of those of NCCL's estimate.  Rows: nccl-tests on machines of AWS, Google, Nebius, Lambda and CSCS
# (their public pages), github.com/microsoft/vidur (MIT) and github.com/uuudown/Tartan (MIT); docs/collectives_tables.md has
# the errors.
"""


class FittedNumber(NamedTuple):
    """A number to be fitted: where it begins, and is kept by few rows, and between which bounds it is."""

    fabric: str
    name: str
    start: float
    low: float
    high: float


_SHARE, _WAITS = (0.5, 1.0), (0.3, 20.0)
UNKNOWNS = (
    FittedNumber("nvlink1", "share", 0.9, *_SHARE), FittedNumber("nvlink1", "pair", 0.9, *_SHARE),
    FittedNumber("nvlink1", "quick", 1.0, *_WAITS), FittedNumber("nvlink1", "wait", 1.0, *_WAITS),
    FittedNumber("nvlink3", "share", 0.8, *_SHARE), FittedNumber("nvlink3", "pair", 0.8, *_SHARE),
    FittedNumber("nvlink1", "relay", 1.0, 0.001, 1.0), FittedNumber("nvlink3", "relay", 0.1, 0.001, 1.0),
    FittedNumber("nvlink3", "wait", 1.0, *_WAITS),
    FittedNumber("nvlink4", "reduced", 0.8, *_SHARE), FittedNumber("nvlink4", "chunk", 1.0, 0.05, 4.0),
    FittedNumber("nvlink4", "quick", 1.0, *_WAITS), FittedNumber("nvlink4", "wait", 1.0, *_WAITS),
    FittedNumber("nvlink5", "reduced", 0.8, *_SHARE), FittedNumber("nvlink5", "chunk", 1.0, 0.05, 4.0),
    FittedNumber("nvlink5", "quick", 1.0, *_WAITS), FittedNumber("nvlink5", "wait", 1.0, *_WAITS),
    FittedNumber("pcie", "share", 0.9, *_SHARE), FittedNumber("pcie", "wait", 1.0, *_WAITS),
    FittedNumber("host", "share", 0.6, 0.2, 1.0),
    FittedNumber("rdma", "share", 0.95, *_SHARE), FittedNumber("rdma", "quick", 1.0, *_WAITS),
    FittedNumber("rdma", "wait", 1.0, *_WAITS),
    FittedNumber("slingshot", "share", 0.95, *_SHARE), FittedNumber("slingshot", "quick", 1.0, *_WAITS),
    FittedNumber("slingshot", "wait", 1.0, *_WAITS),
    FittedNumber("tcpx", "share", 0.6, 0.3, 1.0), FittedNumber("tcpx", "wait", 1.0, 0.3, 90.0),
)  # fmt: skip
HELD = 0.05
"""Weight of a number's distance from its start: where rows tell two latencies apart badly, they stay with NCCL's estimate."""
UNIT = {"chunk": 1e7, "relay": 1e7}
"""Of numbers that are not near one."""
ESTIMATED = {  # fabric -> its numbers -> whose they are, and of which name where that is another
    "nvlink3": {"quick": "nvlink4"},
    "nvlink2": dict.fromkeys(("share", "pair", "quick", "wait", "relay"), "nvlink3"),
    "nvlink4": {"pair": "nvlink3", "relay": "nvlink3"},
    "nvlink5": {"share": "nvlink4", "pair": "nvlink3", "relay": "nvlink3"},
    "pcie": {"straight": "pcie.share", "relay": "nvlink3"},
    "host": {"straight": "host.share", "quick": "nvlink1", "wait": "pcie", "relay": "nvlink3"},
    "rdma": {"straight": "rdma.share"},
    "slingshot": {"straight": "slingshot.share"},
    "tcpx": {"straight": "tcpx.share", "quick": "rdma"},
    "tcp": {"share": "rdma", "straight": "rdma.share", "quick": "rdma", "wait": "rdma", "latency": "rdma"},
}  # fmt: skip
NEXT = {
    "nvlink1": "nvlink3", "nvlink3": "nvlink4", "nvlink4": "nvlink5", "nvlink5": "nvlink4", "slingshot": "rdma", "tcpx": "rdma",
}  # fmt: skip
"""CollectiveFabric -> the one whose numbers it gets where no row decides its own."""
_NVLINKS = ("nvlink1", "nvlink2", "nvlink3", "nvlink4", "nvlink5")
STATED = {
    ("nvlink4", "share"): (370 / 376.27, "rings of H100s reach 370 GB/s (NVIDIA in github.com/NVIDIA/nccl-tests/issues/212)"),
    ("pcie", "quick"): (1.0, "NCCL's estimate"),
    ("rdma", "latency"): (1.83, "InfiniBand of the machines whose small messages were measured (hgx-h100, hgx-b200)"),
    ("slingshot", "latency"): (2.0, "the measured machine's (gh200-x4)"),
    ("tcpx", "latency"): (10.0, "the measured machine's (a3-high)"),
    **{(name, "straight"): (1.0, "sends of A100s on NVSwitch reach 254 of 274 GB/s with their latency") for name in _NVLINKS},
}
"""Numbers that a publication states -> the number and where."""
_DEFAULTS = {"pair": None, "latency": None, "straight": 1.0, "reduced": 1.0, "chunk": 0.0, "relay": 0.0}
NOISY = "vidur"
"""Of a source: three times each, of which many below 1 MiB fall while the message grows; the fit does not see these."""


def seen(rows: Sequence[CollectiveRow]) -> list[CollectiveRow]:
    """The rows that the fit sees."""
    return [row for row in rows if MACHINES[row.machine].fitted and not (row.size < SMALL and NOISY in row.source)]


def fit(rows: Sequence[CollectiveRow]) -> dict[str, CollectiveFabric]:
    """Numbers of all fabrics from the rows that the fit may see; what they do not decide is that of `NEXT`."""
    shown = seen(rows)
    groups = Counter((row.machine, row.size < SMALL) for row in shown)
    weight = np.sqrt([len(shown) / len(groups) / groups[row.machine, row.size < SMALL] for row in shown])
    simulated = SimulatedRows({})
    measured = np.log([row.us for row in shown])

    def residual(x: F64) -> F64:
        simulated.known.clear()
        simulated.known.update(fabrics(x))
        found = np.log([simulated.of(row).ns / 1e3 for row in shown])
        return np.concatenate([weight * (found - measured), HELD * (x - start)])

    start, low, high = (np.log([each[i] for each in UNKNOWNS]) for i in (2, 3, 4))
    best, _ = minimise(residual, start, low, high)
    at = {(unknown.fabric, unknown.name): i for i, unknown in enumerate(UNKNOWNS)}
    for (fabric, name), i in at.items():
        if np.isclose(best[i], start[i], rtol=0, atol=1e-9) and (other := at.get((NEXT.get(fabric, ""), name))) is not None:
            best[i] = best[other]
    return fabrics(best)


def in_turn(rows: Sequence[CollectiveRow]) -> Iterator[tuple[str, dict[str, CollectiveFabric]]]:
    """Each machine of the fit, and what the fit says without it."""
    for machine, measured in MACHINES.items():
        if measured.fitted:
            yield machine, fit([row for row in rows if row.machine != machine])


def fabrics(x: F64) -> dict[str, CollectiveFabric]:
    """The fabrics that logarithms of the unknown numbers make."""
    found: dict[str, dict[str, float]] = {}
    for unknown, value in zip(UNKNOWNS, np.exp(x), strict=True):
        found.setdefault(unknown.fabric, {})[unknown.name] = float(value) * UNIT.get(unknown.name, 1.0)
    for (fabric, name), (value, _) in STATED.items():
        found.setdefault(fabric, {})[name] = value
    for fabric, numbers in ESTIMATED.items():
        for name, other in numbers.items():
            whose, _, which = other.partition(".")
            found.setdefault(fabric, {})[name] = found[whose][which or name]
    return {name: CollectiveFabric(**numbers, estimated=_not_fitted(name)) for name, numbers in sorted(found.items())}


def _not_fitted(fabric: str) -> dict[str, str]:
    return ESTIMATED.get(fabric, {}) | {name: where for (whose, name), (_, where) in STATED.items() if whose == fabric}


def spread(rows: Sequence[CollectiveRow], found: Mapping[str, CollectiveFabric]) -> dict[str, tuple[float, float]]:
    """10th and 90th percentile of measured / simulated on machines that the fit does not see, by size."""
    simulated = SimulatedRows(found)
    ratios: dict[str, list[float]] = {"small": [], "large": []}
    for row in rows:
        if not MACHINES[row.machine].fitted:
            ratios["small" if row.size < SMALL else "large"].append(row.us * 1e3 / simulated.of(row).ns)
    return {name: (float(np.quantile(each, 0.1)), float(np.quantile(each, 0.9))) for name, each in ratios.items()}


def text(found: Mapping[str, CollectiveFabric], apart: Mapping[str, tuple[float, float]]) -> str:
    """The file of these numbers."""
    lines = [HEADER + "fabrics:"]
    for name, fabric in found.items():
        lines.append(f"  {name}:")
        for key, value in asdict(fabric).items():
            if key != "estimated" and value != _DEFAULTS.get(key):
                lines.append(f"    {key}: {value:.0f}" if key in UNIT else f"    {key}: {value:.3f}")
        if fabric.estimated:
            lines += ["    estimated:", *(f'      {key}: "{value}"' for key, value in fabric.estimated.items())]
    lines += ["spread:", *(f"  {name}: [{low:.2f}, {high:.2f}]" for name, (low, high) in apart.items())]
    return "\n".join(lines) + "\n"
