"""The physical form of kernel times, which carries from one GPU to another.

    t = floor * (2 GHz / clock)^(1/2) + first + (a^p + b^p + c^p)^(1/p)      a smooth maximum
    first = the bytes that a kernel before moves, at its share of the bandwidth
    a = flops / (peak * compute) * (1 + fill / loop) * (1 + tile / 2 * (1 / rows + 1 / columns)) / fast^Work.fast
        + special * exponentials / (16 * processors * clock)
    b = moved * ((1 - hit) / (bandwidth * memory) + hit / cache rate)
        hit = 2 - touched / (reach * cache), within 0..1; cache rate by generation, at least the memory's
    c = chain * (loop * 2 * 128^2 * processors / peak)^growth    one tile's loop on one processor, split as growth says

peak and bandwidth are achieved ones (`numbers`); the coefficients are of a class, alike on all GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.shapes import Work

F64 = npt.NDArray[np.float64]

_CLOCK = 2e9  # Hz, at which the floor is stated; half of it follows the clock
_SPECIAL = 16  # exponentials that a processor computes in a clock, since Volta
_TILE = 2 * 128 * 128  # flops of one step of a usual tile


@dataclass(frozen=True)
class ClassCoefficients:
    """One class of kernels; see the module's formula."""

    floor: float = 2000.0
    """ns"""
    compute: float = 1.0
    fill: float = 80.0
    """Steps"""
    tile: float = 64.0
    """Rows or columns"""
    fast: float = 1.0
    special: float = 0.0
    """Share of the exponentials' time that is not hidden behind products"""
    memory: float = 1.0
    before: float = 1.0
    """Share of the bandwidth that the kernel before reaches"""
    reach: float = 0.8
    """Share of the cache"""
    chain: float = 1000.0
    """ns, for a loop of one microsecond on one processor"""
    growth: float = 0.4
    blend: float = 1.5

    def __post_init__(self) -> None:
        for item in fields(self):
            if not getattr(self, item.name) >= 0:
                raise ValueError(f"the coefficient '{item.name}' is negative")


@dataclass(frozen=True)
class Rates:
    """The numbers of the GPUs of (N,) kernels, or of one GPU for all."""

    peak: F64
    bandwidth: F64
    processors: F64
    clock: F64
    cache: F64
    reach: F64

    @staticmethod
    def of(gpu: Numbers, dtype: str) -> Rates:
        """Those of one GPU for kernels of an element type."""
        values = (gpu.rate(dtype)[0], gpu.bandwidth, gpu.processors, gpu.clock, gpu.cache_rate, gpu.reach)
        return Rates(*(np.array([value], np.float64) for value in values))


def predict(c: ClassCoefficients, work: Work, gpu: Rates) -> F64:
    """(N,) ns."""
    a, b, chain = terms(c, work, gpu)
    high = np.maximum(np.maximum(np.maximum(a, b), chain), 1e-9)
    first = c.floor * (_CLOCK / gpu.clock) ** 0.5 + _moving(c, work.before, work.before, gpu, c.before)
    powers = sum((term / high) ** c.blend for term in (a, b, chain))
    return np.asarray(first + high * powers ** (1 / c.blend), np.float64)


def terms(c: ClassCoefficients, work: Work, gpu: Rates) -> tuple[F64, F64, F64]:
    """(N,) ns each: of computing, of memory, of the inner loop."""
    tiles = 1 + c.tile / 2 * (1 / work.rows + 1 / work.columns)
    a = work.flops / (gpu.peak * c.compute) * 1e9 * (1 + c.fill / work.loop) * tiles / c.fast**work.fast
    a = a + work.special * c.special / (_SPECIAL * gpu.processors * gpu.clock) * 1e9
    b = _moving(c, work.moved, work.touched, gpu, c.memory)
    chain = c.chain * (work.loop * _TILE * gpu.processors / gpu.peak * 1e6) ** c.growth if c.chain else np.zeros_like(b)
    return a, b, np.broadcast_to(chain, b.shape)


def _moving(c: ClassCoefficients, moved: F64, touched: F64, gpu: Rates, share: float) -> F64:
    """(N,) ns of moving bytes, from the cache as far as it holds what is touched between two uses."""
    memory = gpu.bandwidth * share
    cached = np.maximum(gpu.cache * min(share, 1.0), memory)
    hit = np.clip(2 - touched / (c.reach * gpu.reach), 0.0, 1.0)
    return np.asarray(moved * 1e9 * ((1 - hit) / memory + hit / cached), np.float64)
