"""Access patterns as a program's text names them: `strided(stride=16)`, `stencil(points=5)`, ... laid over an array.

A pattern is a function here: its parameters are what the text may give, its docstring is its help.  It answers with accesses,
and with the grid and the steps that take it over the whole array once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import BYTES, parse
from gpusim.base.yaml.values import PolicySpec
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError
from gpusim.programs.managed import patterns
from gpusim.programs.managed.patterns import I64
from gpusim.programs.managed.steps import Access

PAGE = 4096
MOST = 1 << 27  # entries of an index table


@dataclass(frozen=True)
class Target:
    """What a pattern is laid over: an array as the threads of a kernel see it."""

    array: str
    bytes: int
    size: int                      # of an access
    write: bool
    shape: tuple[int, int] | None  # rows, and elements of a row, where the array is a matrix
    block: tuple[int, int]
    threads: int                   # of the grid, which walks over the array; 0: as many as it takes
    folder: Path                   # that paths are relative to

    @property
    def elements(self) -> int:
        return self.bytes // self.size

    @property
    def flat(self) -> int:
        """Threads of a block, in a row."""
        return self.block[0] * self.block[1]


@dataclass(frozen=True)
class Laid:
    accesses: list[Access]
    grid: tuple[int, int]  # 0: the pattern does not say
    steps: tuple[int, int] = (1, 1)


def _line(t: Target, access: Access, count: int, reach: int = 1) -> Laid:
    """An access for each of `count` things in a row; a step of the grid is `threads` things of `reach` elements further on."""
    if not t.threads:
        return Laid([replace(access, inner=0)], patterns.grid_for(count, t.flat))
    return Laid([replace(access, inner=t.threads * reach)], patterns.grid_for(t.threads, t.flat), (-(-count // t.threads), 1))


def _indexed(t: Target, index: I64) -> Laid:
    if len(index) > MOST:
        raise UvmError(f"an index of {len(index):,} entries is more than {MOST:,}", hint="a smaller array, or larger accesses")
    return _line(t, patterns.gather(t.array, index, t.flat, write=t.write, size=t.size), len(index))


def _matrix(t: Target) -> tuple[int, int]:
    if t.shape is None:
        raise UvmError(f"the pattern needs a matrix, and '{t.array}' is none", hint="give the array a shape: [rows, columns]")
    return t.shape


def _count(value: int | float | str, size: int) -> int:
    """Elements, from their number or from a size."""
    if isinstance(value, str):
        value = int(parse(value, BYTES)) / size
    if value != int(value) or value < 1:
        raise UvmError(f"{value:g} elements of {size} bytes are no whole number above 0")
    return int(value)


# The patterns.


def streaming(t: Target) -> Laid:
    """Thread t touches element t; in blocks of two dimensions, thread (x, y) element (x, y) of a matrix."""
    if t.block[1] > 1:
        return _tiled(t, [(0, 0)])
    return _line(t, patterns.streaming(t.array, t.flat, write=t.write, size=t.size), t.elements)


def strided(t: Target, stride: int | str) -> Laid:
    """Thread t touches element t * stride; the stride in elements, or as a size."""
    n = _count(stride, t.size)
    return _line(t, patterns.strided(t.array, n, t.flat, write=t.write, size=t.size), -(-t.elements // n), n)


def block_strided(t: Target, chunk: int | str = 0) -> Laid:
    """Each thread block walks through a chunk of its own, in elements or as a size; without one all get the same."""
    if chunk and t.threads:
        raise UvmError("chunks and threads together say twice how many thread blocks there are", hint="leave one of them out")
    if not chunk and not t.threads:
        raise UvmError("how many chunks?", hint="give the pattern a chunk, or the kernel threads or a grid")
    n = _count(chunk, t.size) if chunk else -(-t.elements // -(-t.threads // t.flat))
    access = patterns.block_strided(t.array, n, t.flat, write=t.write, size=t.size)
    return Laid([access], (-(-t.elements // n), 1), (-(-n // t.flat), 1))


def random(t: Target, seed: int = 1) -> Laid:
    """Every thread touches random elements, as many in all as the array has."""
    return _line(t, patterns.scattered(t.array, seed, t.flat, write=t.write, size=t.size), t.elements)


def shuffled(t: Target, unit: int | str = 1, seed: int = 1) -> Laid:
    """The first element of every unit of the array, each once, in random order; the unit in elements, or as a size (4 KiB)."""
    n = _count(unit, t.size)
    return _indexed(t, np.random.default_rng(seed).permutation(-(-t.elements // n)).astype(np.int64) * n)


def zipf(t: Target, seed: int = 1, alpha: float = 1.0, accesses: int = 0) -> Laid:
    """Elements of Zipf's law: the k-th most popular 1 / k^alpha as often as the first; popular ones lie anywhere."""
    rng = np.random.default_rng(seed)
    weights = np.cumsum(np.arange(1, t.elements + 1, dtype=np.float64) ** -alpha)
    ranks = np.searchsorted(weights, rng.random(accesses or t.elements) * weights[-1])
    return _indexed(t, rng.permutation(t.elements).astype(np.int64)[ranks])


def sparse(t: Target, pages: int = 1, seed: int = 1) -> Laid:
    """Blocks of 2 MiB in random order, in each the first element of some random pages of 4 KiB."""
    if pages > BLOCK_BYTES // PAGE:
        raise UvmError(f"a block of 2 MiB has {BLOCK_BYTES // PAGE} pages, not {pages:,}")
    rng = np.random.default_rng(seed)
    blocks = rng.permutation(-(-t.bytes // BLOCK_BYTES))
    chosen = np.stack([rng.permutation(BLOCK_BYTES // PAGE)[:pages] for _ in blocks])
    index = ((blocks[:, None] * BLOCK_BYTES + chosen * PAGE) // t.size).ravel().astype(np.int64)
    return _indexed(t, index[index < t.elements])


def gather(t: Target, path: str) -> Laid:
    """Thread t touches element index[t]; the index is a file of NumPy (.npy), relative to the program's."""
    file = t.folder / path
    try:
        index = np.load(file, allow_pickle=False)
    except OSError as error:
        raise UvmError(f"{file} cannot be read: {error.strerror or error}") from None
    except ValueError as error:
        raise UvmError(f"{file} is no array of NumPy: {str(error).splitlines()[0]}") from None
    if not isinstance(index, np.ndarray) or index.ndim != 1 or index.dtype.kind not in "iu" or not len(index):
        raise UvmError(f"{file} is no row of whole numbers")
    return _indexed(t, index.astype(np.int64))


def stencil(t: Target, points: int = 5) -> Laid:
    """An element of a matrix and its neighbours: 5 points, or 9 with the corners."""
    if points not in (5, 9):
        raise UvmError(f"a stencil has 5 or 9 points here, not {points}")
    around = [(dy, dx) for dy in (-1, 0, 1) for dx in (-1, 0, 1) if points == 9 or dy == 0 or dx == 0]
    return _tiled(t, around)


def _tiled(t: Target, shifts: list[tuple[int, int]]) -> Laid:
    rows, width = _matrix(t)
    bx, by = t.block
    at = [
        patterns.tile2d(t.array, width, bx, by, shift=dy * width + dx, write=t.write, size=t.size) for dy, dx in shifts
    ]  # fmt: skip
    return Laid(at, (-(-width // bx), -(-rows // by)))


def transposed(t: Target) -> Laid:
    """Thread (x, y) touches the element in row x and column y of a matrix."""
    rows, width = _matrix(t)
    bx, by = t.block
    access = Access(t.array, t.write, t.size, tx=width, ty=1, bx=width * bx, by=by)
    return Laid([access], (-(-rows // bx), -(-width // by)))


def tiles(t: Target, walk: str = "none", depth: int = 8) -> Laid:
    """Of a product by tiles as wide as a block: its tile (walk=none), or a walk `right` or `down`, `depth` elements a step."""
    rows, width = _matrix(t)
    tile, lanes = t.block
    inner = max(tile // lanes, 1)  # steps in which a block's threads pass over a tile
    if walk == "none":
        access = Access(t.array, t.write, t.size, tx=1, ty=inner * width, bx=tile, by=tile * width, inner=width)
        return Laid([access], (-(-width // tile), -(-rows // tile)), (inner, 1))
    if walk == "right":
        along = Access(t.array, t.write, t.size, tx=width, ty=depth // lanes, by=tile * width, inner=depth, outer=inner * depth)
        return Laid([along], (0, -(-rows // tile)), (inner, -(-width // (depth * inner))))
    if walk == "down":
        skip = depth * width
        along = Access(t.array, t.write, t.size, tx=1, ty=skip // lanes, bx=tile, inner=skip, outer=inner * skip)
        return Laid([along], (-(-width // tile), 0), (inner, -(-rows // (depth * inner))))
    raise UvmError(f"tiles do not walk '{walk}'", hint=suggest(walk, ("none", "right", "down")))


PATTERNS: dict[str, Callable[..., Laid]] = {
    f.__name__: f
    for f in (streaming, strided, block_strided, random, shuffled, zipf, sparse, gather, stencil, transposed, tiles)
}  # fmt: skip


def check(spec: PolicySpec, more: tuple[str, ...] = ()) -> PolicySpec:
    """The same, if there is such a pattern with such parameters.  more: names that are known besides."""
    if spec.name in more and not spec.params:
        return spec
    if spec.name not in PATTERNS:
        raise UvmError(f"there is no pattern '{spec.name}'", hint=suggest(spec.name, (*PATTERNS, *more)))
    known = list(inspect.signature(PATTERNS[spec.name]).parameters.values())[1:]
    for name, _ in spec.params:
        if name not in (p.name for p in known):
            hint = suggest(name, [p.name for p in known]) or "it has none"
            raise UvmError(f"the pattern '{spec.name}' has no parameter '{name}'", hint=hint)
    for p in known:
        if p.name in dict(spec.params):
            _check_value(spec.name, p, dict(spec.params)[p.name])
        elif p.default is p.empty:
            raise UvmError(f"the pattern '{spec.name}' needs its {p.name}", hint=f"write {spec.name}({p.name}=...)")
    return spec


def _check_value(pattern: str, p: inspect.Parameter, value: int | float | str) -> None:
    """Is a parameter of the kind that its pattern declares?  Sizes are read with the array that they are of."""
    least = 0 if p.name in ("seed", "alpha") or p.default == 0 else 1
    wanted = {"int": "a whole number", "float": "a number", "str": "text"}.get(str(p.annotation))
    fits = {"int": isinstance(value, int), "float": isinstance(value, int | float), "str": isinstance(value, str)}
    if wanted and not fits[p.annotation]:
        raise UvmError(f"{p.name} of the pattern '{pattern}' must be {wanted}, not {value!r}")
    if isinstance(value, int | float) and value < least:
        raise UvmError(f"{p.name} of the pattern '{pattern}' is {value}, which is below {least}")


def lay(spec: PolicySpec, target: Target) -> Laid:
    """The pattern over the array.  Raises GpusimError for parameters that it cannot have."""
    params: dict[str, Any] = dict(spec.params)
    try:
        return PATTERNS[spec.name](target, **params)
    except (TypeError, ValueError) as error:
        raise GpusimError(f"{spec}: {error}") from None
