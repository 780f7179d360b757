"""The host's memory: copies by one and by all threads, near and across NUMA nodes.  Needs no GPU."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, KiB, MiB, free_host, nodes, on_cpus
from gpusim.calibrate.measure.gpu import Bytes
from gpusim.calibrate.measure.recorder import sizes


def run(bench: Bench) -> None:
    out, found = bench.out, nodes()
    largest = min(64 * MiB if out.quick else 512 * MiB, 1 << (max(free_host() // 8, MiB).bit_length() - 1))
    first = next(iter(found))
    for node in found:
        placement = f"local{node}" if node == first else f"cpu{first}mem{node}"
        with on_cpus(found[node]):  # memory lies where it is first touched
            source = np.full(largest, 1, np.uint8)
            target = np.full(largest, 2, np.uint8)
        with on_cpus(found[first]):
            every = 8 if out.quick else 4
            for threads in sorted({1, len(found[first])}):
                with ThreadPoolExecutor(threads) as pool:
                    for size in sizes(64 * KiB, largest, every) if node == first else [largest]:
                        if out.time_for(f"copy {size} {placement}"):
                            _copy(bench, pool, threads, source, target, size, placement)
    if len(found) == 1:
        out.left_out["host: remote memory"] = "what this process may use is one NUMA node"


def _copy(
    bench: Bench, pool: ThreadPoolExecutor, threads: int, source: Bytes, target: Bytes, size: int, placement: str
) -> None:
    """Each thread copies its part; a round is over when all are."""
    part = max(1, size // threads)
    pieces = [slice(i * part, (i + 1) * part) for i in range(threads)]
    count = max(1, 16 * MiB // size)

    def piece(s: slice) -> None:
        for _ in range(count):
            np.copyto(target[s], source[s])

    def once() -> float:
        if threads == 1:
            return bench.out.timed(partial(piece, pieces[0])) / count
        return bench.out.timed(lambda: list(pool.map(piece, pieces))) / count

    source[:size] = size % 251 + 1
    times = bench.out.repeat(once)
    if not np.array_equal(target[: part * threads], source[: part * threads]):
        raise MeasurementError("a copy in host memory arrived wrong; nothing of this is trusted")
    cpus = len(os.sched_getaffinity(0))
    method = f"numpy copyto (memcpy), {count} passes a repeat, host clock; read and written bytes counted"
    bench.out.add(
        "host_copy_bw", times, case="copy", size=size, work=2 * part * threads, method=method, host=True,
        param={"placement": placement, "threads": threads, "cpus": cpus},
    )  # fmt: skip
