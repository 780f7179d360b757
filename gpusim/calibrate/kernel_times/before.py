"""The model of kernel times before this one, to compare with: one roofline per class, fitted on a decoder's layers.

    t = floor + (a^p + b^p)^(1/p)
    a = flops / (peak of the element type * compute)
    b = bytes / bandwidth * (hit / cached + (1 - hit) / memory)
    hit = 2 - bytes / (cache_share * L2), within 0..1

Its coefficients (`before.yaml`) are of three GPUs and six classes; other GPUs took those of the nearest.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.units import TIME, parse
from gpusim.base.yaml import document

F64 = npt.NDArray[np.float64]

_DATA = Path(__file__).parent / "before.yaml"


@dataclass(frozen=True)
class FormerCoefficients:
    """One class on one GPU; see the module's formula."""

    floor: float  # ns
    compute: float
    memory: float
    cached: float
    cache_share: float
    blend: float

    def predict(self, flops: F64, moved: F64, peak: float, bandwidth: float, l2: float) -> F64:
        """(N,) ns of kernels of `flops` and `moved` bytes; peak flop/s, bandwidth bytes/s, l2 bytes."""
        a = flops / (peak * self.compute) * 1e9
        reach = self.cache_share * l2
        hit = np.clip(2 - moved / reach, 0.0, 1.0) if reach > 0 else np.zeros(len(moved))
        b = moved / bandwidth * 1e9 * (hit / self.cached + (1 - hit) / self.memory)
        high, low = np.maximum(a, b), np.minimum(a, b)
        ratio = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
        return np.asarray(self.floor + high * (1 + ratio**self.blend) ** (1 / self.blend), np.float64)


@cache
def former() -> dict[str, dict[str, FormerCoefficients]]:
    """By GPU and class."""
    names = ("compute", "memory", "cached", "cache_share", "blend")
    return {
        gpu: {
            what: FormerCoefficients(float(parse(row["floor"], TIME)), *(float(row[name]) for name in names))
            for what, row in entry["classes"].items()
        }
        for gpu, entry in document.read(_DATA).data["gpus"].items()
    }
