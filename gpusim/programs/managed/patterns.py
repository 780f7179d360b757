"""Access patterns by name, and the classic kernels made of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from gpusim.programs.managed.steps import Access, Kernel

I64 = npt.NDArray[np.int64]


def grid_for(threads: int, block: int) -> tuple[int, int]:
    return max(-(-threads // block), 1), 1


def streaming(array: str, block: int = 256, *, threads: int = 0, write: bool = False, size: int = 4, start: int = 0) -> Access:
    """Thread t touches element t; with `threads` in the grid, t, t + threads, ... one a step."""
    return Access(array, write, size, start, tx=1, bx=block, inner=threads)


def strided(array: str, stride: int, block: int = 256, *, write: bool = False, size: int = 4) -> Access:
    """Thread t touches element t * stride."""
    return Access(array, write, size, tx=stride, bx=stride * block)


def block_strided(array: str, chunk: int, block: int = 256, *, write: bool = False, size: int = 4) -> Access:
    """Each thread block walks through `chunk` elements of its own, its threads side by side."""
    return Access(array, write, size, tx=1, bx=chunk, inner=block)


def scattered(array: str, seed: int, block: int = 256, *, threads: int = 0, write: bool = False, size: int = 4) -> Access:
    """Every thread touches random elements."""
    return Access(array, write, size, tx=1, bx=block, inner=threads, random=seed)


def gather(array: str, index: I64, block: int = 256, *, write: bool = False, size: int = 4) -> Access:
    """Thread t touches element index[t]; as many threads as there are indices."""
    return Access(array, write, size, tx=1, bx=block, index=index)


def transposed(array: str, rows: int, tile: int = 32, *, write: bool = False, size: int = 4) -> Access:
    """Thread (x, y) touches element (x, y) of a matrix stored by columns of `rows` elements."""
    return Access(array, write, size, tx=rows, ty=1, bx=rows * tile, by=tile)


def tile2d(array: str, width: int, bx: int, by: int, *, shift: int = 0, write: bool = False, size: int = 4) -> Access:
    """Thread (x, y) touches element (x, y) of a matrix stored by rows of `width` elements, `shift` elements further."""
    return Access(array, write, size, shift, tx=1, ty=width, bx=bx, by=by * width)


def stencil(array: str, width: int, bx: int, by: int) -> list[Access]:
    """An element and its four neighbours."""
    return [tile2d(array, width, bx, by, shift=s) for s in (-width, -1, 0, 1, width)]


# Kernels.


def triad(a: str, b: str, c: str, n: int, block: int = 256) -> Kernel:
    """a[i] = b[i] + s * c[i]"""
    return Kernel("triad", [streaming(b, block), streaming(c, block), streaming(a, block, write=True)], grid_for(n, block),
                  (block, 1))  # fmt: skip


def vector_add(a: str, b: str, c: str, n: int, block: int = 256) -> Kernel:
    """c[i] = a[i] + b[i]"""
    return triad(c, a, b, n, block)


def sweep(array: str, n: int, *, stride: int = 1, block: int = 256, write: bool = False, name: str = "sweep") -> Kernel:
    """Each of n threads touches one element; stride 1024 is one a page."""
    return Kernel(name, [strided(array, stride, block, write=write)], grid_for(n, block), (block, 1))


def random_access(array: str, elements: int, threads: int, steps: int = 1, *, write: bool = True, seed: int = 1) -> Kernel:
    """GUPS: every thread reads and writes a random element in every step."""
    at = scattered(array, seed, threads=threads)
    accesses = [at, scattered(array, seed, threads=threads, write=True)] if write else [at]
    return Kernel("random", accesses, grid_for(threads, 256), (256, 1), (steps, 1))


def conv2d(a: str, b: str, n: int, bx: int = 32, by: int = 8) -> Kernel:
    """B = a 3 x 3 filter over A, n x n."""
    rows = [tile2d(a, n, bx, by, shift=dy * n) for dy in (-1, 0, 1)]
    return Kernel("conv2d", [*rows, tile2d(b, n, bx, by, write=True)], (-(-n // bx), -(-n // by)), (bx, by))


def stencil2d(a: str, b: str, n: int, bx: int = 32, by: int = 8) -> Kernel:
    """B = the five-point average of A, n x n."""
    return Kernel("stencil", [*stencil(a, n, bx, by), tile2d(b, n, bx, by, write=True)], (-(-n // bx), -(-n // by)), (bx, by))


def sgemm(a: str, b: str, c: str, n: int, *, tile: int = 128, depth: int = 8, ns: float | None = None) -> Kernel:
    """C = A B, n x n by columns: thread blocks of tile x tile, `depth` columns of A and rows of B a step."""
    lanes = 2
    steps = -(-n // depth)
    # Threads go down a tile's column of A; two of its columns, and of B's, stand for a step's: small depths touch all pages.
    load_a = Access(a, tx=1, ty=n * depth // lanes, bx=tile, inner=n * depth)
    load_b = Access(b, tx=n, ty=depth // lanes, by=tile * n, inner=depth)
    store = Access(c, True, tx=1, ty=n * tile // lanes, bx=tile, by=tile * n, wraps=True)
    blocks = -(-n // tile)
    return Kernel("sgemm", [load_a, load_b, store], (blocks, blocks), (tile, lanes), (steps, 1), ns,
                  flops=2.0 * n**3)  # fmt: skip


def sparse(array: str, blocks: Sequence[int] | I64, pages: I64, name: str = "sparse", block: int = 256) -> Kernel:
    """One thread a page reads and then writes it: pages[k] of each of `blocks`, in their order."""
    index = (np.asarray(blocks, np.int64)[:, None] * 512 + pages).ravel() * 1024
    at = gather(array, index, block)
    store = gather(array, index, block, write=True)
    return Kernel(name, [at, store], grid_for(len(index), block), (block, 1), ns=0.0)


def frontier(nodes: str, edges: str, seen: str, level: I64, start: I64, to: I64, name: str) -> Kernel:
    """One level of a breadth-first search: a thread per node of the frontier, its edges, the nodes that they lead to."""
    block = 256
    threads = len(level)
    return Kernel(
        name,
        [gather(nodes, level, block), gather(edges, start, block), gather(seen, to, block, write=True)],
        grid_for(threads, block), (block, 1),
    )  # fmt: skip
