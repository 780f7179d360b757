"""The programs of the study, written down from their sources: eunomia-bpf/gpu_ext @3f4cc2d, microbench/memory.

Kernels stand in kernels/synthetic.cuh, gemm.cuh, hotspot.cuh and kmeans.cuh, sizes and defaults in main.cu.  A size factor is
a share of the total that cudaMemGetInfo says.  Each program runs its warm-ups, then `Start`, then what is timed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel, Start, Step

TOTAL = 33_669_316_608  # bytes: working_set_bytes at size factor 1.0 in the published files
PAGE, FLOAT = 4096, 4
BLOCKS, BLOCK = 256, 256  # thread blocks and threads of the synthetic kernels
THREADS = BLOCKS * BLOCK
WRITERS = 2048  # thread blocks that write the nodes of the pointer chase


@dataclass(frozen=True)
class StudyProgram:
    """times, scale: of a program of which a part is simulated, how often that counts, and the share of the memory for it."""

    arrays: list[Array]
    steps: list[Step]
    times: float = 1.0
    scale: float = 1.0


def sequential(factor: float, sector_ns: float, warm: int = 2, timed: int = 3) -> StudyProgram:
    """seq_chunk_kernel<<<256, 256>>>: each thread reads and writes a float in page after page of a chunk of its own."""
    half, pages = _halves(factor)
    walk: dict[str, Any] = {"tx": pages * PAGE // FLOAT, "bx": pages * PAGE // FLOAT * BLOCK, "inner": PAGE // FLOAT}
    n = half // FLOAT
    accesses = [Access("in", **walk, elements=n), Access("out", True, **walk, elements=n)]
    kernel = Kernel("seq", accesses, (BLOCKS, 1), (BLOCK, 1), (pages, 1), ns=2 * half / PAGE * sector_ns)
    return _streams(half, kernel, warm, timed)


def scattered(factor: float, sector_ns: float, warm: int = 2, timed: int = 3) -> StudyProgram:
    """rand_chunk_kernel<<<256, 256>>>: the same chunks, pages in steps of an odd number drawn by each thread.

    A step that shares a divisor with the number of pages comes to a part of them again and again: the source says that each
    page is visited once, which holds only where the two are coprime.
    """
    half, pages = _halves(factor)
    thread = np.arange(THREADS, dtype=np.uint64)
    low = np.uint64(0xFFFFFFFF)
    drawn = _lcg(np.uint64(0x12345678) ^ thread)
    step, offset = drawn | np.uint64(1), _lcg(drawn ^ np.uint64(0xDEADBEEF)) % np.uint64(pages)
    assert int(step.max()) <= int(low)
    visit = np.arange(pages, dtype=np.uint64)
    page = (offset[:, None] + visit[None, :] * step[:, None]) % np.uint64(pages)
    element = (thread[:, None] * np.uint64(pages) + page) * np.uint64(PAGE // FLOAT)
    index = np.where(element < half // FLOAT, element, np.uint64(0)).astype(np.int64)
    index[element >= half // FLOAT] = -1
    walk: dict[str, Any] = {"tx": pages, "bx": pages * BLOCK, "inner": 1, "index": index.ravel()}
    kernel = Kernel(
        "rand", [Access("in", **walk), Access("out", True, **walk)], (BLOCKS, 1), (BLOCK, 1), (pages, 1),
        ns=2 * half / PAGE * sector_ns,
    )  # fmt: skip
    return _streams(half, kernel, warm, timed)


def pointer_chase(factor: float, step_ns: float, warm: int = 2, timed: int = 3) -> StudyProgram:
    """pointer_chunk_kernel<<<256, 256>>>: each thread follows eight nodes of 12 bytes in a chunk of its own.

    init_chunks_kernel<<<2048, 256>>> has written all nodes on the GPU before, with the stride of its grid.  Half of its thread
    blocks run at once, so that the array is gone over twice: in which order blocks come first decides which are missing later.
    """
    node, hops = 12, 8
    each = -(-int(int(TOTAL * factor) * 0.9) // node // THREADS)
    each = -(-each // (PAGE // node)) * (PAGE // node)
    n = each * THREADS
    at = np.arange(THREADS, dtype=np.uint64) * np.uint64(each)
    first, path = at.copy(), []
    for _ in range(hops):
        path.append(at)
        at = first + _lcg(at & np.uint64(0xFFFFFFFF)) % np.uint64(each)
    index = np.stack(path, axis=1).astype(np.int64).ravel()
    walk: dict[str, Any] = {"tx": hops, "bx": hops * BLOCK, "inner": 1, "index": index}
    chase = Kernel(
        "chase", [Access("nodes", bytes=node, **walk, waits=True)], (BLOCKS, 1), (BLOCK, 1), (hops, 1), ns=hops * step_ns
    )
    store = Kernel("store", [Access("out", True, tx=1, bx=BLOCK)], (BLOCKS, 1), (BLOCK, 1), ns=0.0)
    pages = -(-n * node // PAGE)
    stride = WRITERS * BLOCK
    wrote = Access("nodes", True, bytes=node, tx=1, bx=BLOCK, inner=stride)
    init = Kernel("init", [wrote], (WRITERS, 1), (BLOCK, 1), (-(-n // stride), 1), ns=pages * 2.0)
    run: list[Step] = [chase, store]
    arrays = [Array("nodes", n * node), Array("out", THREADS * FLOAT)]
    return StudyProgram(arrays, [init, *run * warm, Start(), *run * timed], 1 / timed)


DIM, HIDDEN, TOKENS = 4096, 11008, 10
LAYER = DIM * HIDDEN * FLOAT
MOST_LAYERS = 200


def layers(factor: float) -> int:
    return min(int(TOTAL * factor) // LAYER, MOST_LAYERS)


def gemm(factor: float, layer_ns: float, simulated: int, warm: int = 1, timed: int = 1) -> StudyProgram:
    """gemm_kernel<<<43, 256>>> once for each layer and token: thread j goes down column j of 4096 x 11008 floats.

    Of the layers `simulated` are, in as much less memory; of ten tokens `timed`, after `warm`.
    """
    steps: list[Step] = [HostTouch("w"), HostTouch("x")]
    token = []
    for layer in range(simulated):
        first, end = layer * DIM * HIDDEN, (layer + 1) * DIM * HIDDEN
        column = Access("w", tx=1, bx=BLOCK, inner=HIDDEN, start=first, elements=end, waits=True)
        token.append(Kernel("gemm", [column], (HIDDEN // BLOCK, 1), (BLOCK, 1), (DIM, 1), ns=layer_ns))
    share = simulated / layers(factor)
    arrays = [Array("w", simulated * LAYER), Array("x", DIM * FLOAT)]
    return StudyProgram(arrays, [*steps, *token * warm, Start(), *token * timed], TOKENS / timed / share, share)


def hotspot(factor: float, pass_ns: float, part: int, warm: int = 1, timed: int = 1) -> StudyProgram:
    """calculate_temp<<<n / 14, 16 x 16>>>: tiles of 16 x 16 floats of the temperature and the power, of which the inner 14 x 14
    are written; source and target change places.

    A matrix of a `part`-th of the rows and columns in as much less memory; of five pairs of passes `timed`, after `warm`.
    """
    side = int((int(TOTAL * factor) // (3 * FLOAT)) ** 0.5) // 16 * 16 // part // 16 * 16
    tiles = -(-side // 14)
    whole = int((int(TOTAL * factor) // (3 * FLOAT)) ** 0.5) // 16 * 16
    share = side * side / (whole * whole)

    def one_pass(source: str, target: str) -> Kernel:
        at: dict[str, Any] = {"tx": 1, "ty": side, "bx": 14, "by": 14 * side}
        reads = [Access(source, **at), Access("power", **at)]
        return Kernel("hotspot", [*reads, Access(target, True, **at)], (tiles, tiles), (16, 16), ns=pass_ns * share)

    arrays = [Array(name, side * side * FLOAT) for name in ("t0", "t1", "power")]
    pair: list[Step] = [one_pass("t0", "t1"), one_pass("t1", "t0")]
    touch: list[Step] = [
        Kernel(f"memset {a.name}", [Access(a.name, True, bytes=PAGE, bx=1)], (a.bytes // PAGE, 1), (1, 1), ns=1e6)
        for a in arrays
    ]
    return StudyProgram(arrays, [*touch, *pair * warm, Start(), *pair * timed], 5 / timed / share, share)


CLUSTERS, PASSES = 1600, 10  # of k-means


def kmeans(factor: float, pass_ns: float, part: int, warm: int = 2, timed: int = 2) -> StudyProgram:
    """regroup_sparse<<<n, 1>>>: thread block i finds the nearest of 1600 clusters in a row of distances, and writes its number
    to a page of its own.

    Of the five kernels of a pass only this one runs: the others have 1600 threads in a block, and a GPU has at most 1024.  The
    source says 200 clusters; with 1600 its bytes (207.81 GB an iteration) and blocks (8,112 a pass) are those published.
    A `part`-th of the points in as much less memory; of ten passes `timed`, after `warm`.
    """
    whole = int(TOTAL * factor) // (3 * PAGE + CLUSTERS * FLOAT)
    points, steps = whole // part, 4
    row = Access("dst", bytes=CLUSTERS * FLOAT // steps, bx=steps, inner=1, waits=True)
    own = Access("group", True, bx=PAGE // FLOAT, waits=False)
    share = points / whole
    kernel = Kernel("regroup", [row, own], (points, 1), (1, 1), (steps, 1), ns=pass_ns * share)
    arrays = [Array("dst", points * CLUSTERS * FLOAT), Array("group", points * PAGE)]
    return StudyProgram(arrays, [*[kernel] * warm, Start(), *[kernel] * timed], PASSES / timed / share, share)


def _halves(factor: float) -> tuple[int, int]:
    """Bytes of an array, and pages of a thread's chunk."""
    half = int(TOTAL * factor) // 2
    pages = -(-(half // FLOAT) // THREADS)
    return half // FLOAT * FLOAT, -(-pages * FLOAT // PAGE)


def _streams(half: int, kernel: Kernel, warm: int, timed: int) -> StudyProgram:
    arrays = [Array("in", half), Array("out", half)]
    return StudyProgram(arrays, [HostTouch("in"), *[kernel] * warm, Start(), *[kernel] * timed], 1 / timed)


def _lcg(x: Any) -> Any:
    return (np.uint64(1664525) * x + np.uint64(1013904223)) & np.uint64(0xFFFFFFFF)
