"""The physical form of kernel times, which carries from one GPU to another.

    t = floor * (2 GHz / clock)^(1/2) + first + (a^p + b^p + c^p)^(1/p)      a smooth maximum, p = blend
    first = the bytes that a kernel before moves, at its share of the bandwidth
    a = flops / (peak * compute) * (1 + fill / loop) * (1 + tile / 2 * (1 / rows + 1 / columns))
        + special * exponentials / (16 * processors * clock)
        at least flops / (issue * processors * clock), and longest / clock, which is one thread block
    b = moved * ((1 - hit) / (bandwidth * memory) + hit / cache rate)
        hit = 2 - touched / (reach * cache), within 0..1; cache rate by generation, at least the memory's
    c = chain * (loop * 2 * 128^2 * processors / peak)^growth    one tile's loop on one processor, split as growth says

Where an algorithm with fewer multiplications applies, the shorter of both counts: of that one a has its flops at the share
`fast` of the peak and its loop, b its bytes as well.

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
    fast: float = 0.0
    """Share of the peak that the products of the algorithm with fewer multiplications reach; 0: it is not used"""
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


Terms = tuple[F64, F64, F64]


def predict(c: ClassCoefficients, work: Work, gpu: Rates, known: Terms | None = None) -> F64:
    """(N,) ns; `known`: the kernels' `terms`."""
    first = c.floor * (_CLOCK / gpu.clock) ** 0.5 + _moving(c, work.before, work.before, gpu, c.before)
    return np.asarray(first + _blended(c, known or terms(c, work, gpu)), np.float64)


def terms(c: ClassCoefficients, work: Work, gpu: Rates) -> Terms:
    """(N,) ns each: of computing, of memory, of the inner loop; of the algorithm that is the shorter."""
    plain, fast, shorter = _algorithms(c, work, gpu)
    if not shorter.any():
        return plain
    a, b, chain = (np.where(shorter, x, y) for x, y in zip(fast, plain, strict=True))
    return a, b, chain


def from_memory(c: ClassCoefficients, work: Work, gpu: Rates) -> F64:
    """(N,) bytes that the kernels move to and from memory, past the cache."""
    _, _, shorter = _algorithms(c, work, gpu)
    moved = np.where(shorter, work.moved + work.transformed, work.moved)
    return np.asarray(moved * (1 - _hit(c, np.where(shorter, moved, work.touched), gpu)), np.float64)


def _algorithms(c: ClassCoefficients, work: Work, gpu: Rates) -> tuple[Terms, Terms, npt.NDArray[np.bool_]]:
    """Terms of the plain algorithm, of the one with fewer multiplications, and (N,) where the latter is the shorter."""
    plain = _terms(c, work, gpu, work.flops / c.compute, work.loop, work.moved, work.touched)
    if not c.fast or not work.fast.any():
        return plain, plain, np.zeros(work.moved.shape, bool)
    moved = work.moved + work.transformed
    fast = _terms(c, work, gpu, work.fast / c.fast, work.fast_loop, moved, moved)
    return plain, fast, (work.fast > 0) & (_blended(c, fast) < _blended(c, plain))


def _terms(c: ClassCoefficients, work: Work, gpu: Rates, flops: F64, loop: F64, moved: F64, touched: F64) -> Terms:
    tiles = 1 + c.tile / 2 * (1 / work.rows + 1 / work.columns)
    a = flops / gpu.peak * 1e9 * (1 + c.fill / loop) * tiles
    a = np.maximum(a, work.flops * 1e9 / (np.where(work.issue > 0, work.issue, np.inf) * gpu.processors * gpu.clock))
    a = np.maximum(a, work.longest / gpu.clock * 1e9)
    a = a + work.special * c.special / (_SPECIAL * gpu.processors * gpu.clock) * 1e9
    b = _moving(c, moved, touched, gpu, c.memory)
    chain = c.chain * (loop * _TILE * gpu.processors / gpu.peak * 1e6) ** c.growth if c.chain else np.zeros_like(b)
    return a, b, np.broadcast_to(chain, b.shape)


def _blended(c: ClassCoefficients, of: Terms) -> F64:
    """(N,) the smooth maximum."""
    high = np.maximum(np.maximum(np.maximum(of[0], of[1]), of[2]), 1e-9)
    return np.asarray(high * sum((term / high) ** c.blend for term in of) ** (1 / c.blend), np.float64)


def _moving(c: ClassCoefficients, moved: F64, touched: F64, gpu: Rates, share: float) -> F64:
    """(N,) ns of moving bytes, from the cache as far as it holds what is touched between two uses."""
    memory = gpu.bandwidth * share
    cached = np.maximum(gpu.cache * min(share, 1.0), memory)
    hit = _hit(c, touched, gpu)
    return np.asarray(moved * 1e9 * ((1 - hit) / memory + hit / cached), np.float64)


def _hit(c: ClassCoefficients, touched: F64, gpu: Rates) -> F64:
    """(N,) share of the bytes that is found in the cache when so many are touched between two uses."""
    return np.clip(2 - touched / (c.reach * gpu.reach), 0.0, 1.0)
