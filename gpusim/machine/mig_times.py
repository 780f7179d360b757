"""What it takes to make GPU instances of MIG, and to take them away.

Measured on an A100: wall time of one `nvidia-smi mig -cgi` and of one `nvidia-smi mig -dgi`, for all 18 cuts of the GPU, the
means of 300 each, read from the bars of the vector figure.  MIG mode is on before, and compute instances are not part of it.
Source: spcl/gpuless-thesis @c2434d85, benchmark-results/mig-reconfiguration (results/mig-reconfig.pdf, its script beside).
"""

from __future__ import annotations

from typing import NamedTuple

MEASURED_ON = "a100"
# ms by the number of instances of a cut, a cut each; the only one of a single instance is the whole GPU
_MAKING = (
    (56.6,), (107.2,), (108.0, 111.3, 111.3), (113.5, 117.2, 119.1, 120.2, 123.9), (129.2, 134.4, 135.1),
    (128.1, 129.3, 131.7, 137.6), (134.2,),
)  # fmt: skip
_TAKING_AWAY = (
    (124.4,), (157.1,), (153.1, 156.8, 157.9), (154.1, 156.5, 160.8, 169.2, 174.1), (174.8, 176.6, 179.0),
    (165.4, 166.0, 168.4, 172.1), (167.7,),
)  # fmt: skip


class RecutTime(NamedTuple):
    """ns, with the least and the most that cuts of so many instances took."""

    ns: float
    low: float
    high: float


def recut_time(gone: int, made: int) -> RecutTime:
    """Of one command that takes so many instances away, and one that makes so many."""
    found = [RecutTime(sum(of) / len(of), of[0], of[-1]) for of in _of(gone, _TAKING_AWAY) + _of(made, _MAKING)]
    return RecutTime(*(1e6 * sum(column) for column in zip(*found, strict=True))) if found else RecutTime(0.0, 0.0, 0.0)


def _of(count: int, table: tuple[tuple[float, ...], ...]) -> list[tuple[float, ...]]:
    return [table[count - 1]] if count else []
