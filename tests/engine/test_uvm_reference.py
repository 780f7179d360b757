"""Does the compiled model serve the same faults, in the same order, as the same rules written plainly?"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, PAGE, TINY
from uvm_reference import Reference

from gpusim.engine.pages.events import pages
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel
from gpusim.results.page_log import COPY, GONE, READ, WRITE

pytestmark = pytest.mark.agreement


def both(seed: int) -> tuple[Any, Reference]:
    """A few kernels that gather pages: in a row, at random, clustered, twice the same."""
    rng = np.random.default_rng(seed)
    blocks, chunks, sms = int(rng.integers(3, 9)), int(rng.integers(2, 6)), int(rng.integers(1, 5))
    gpcs = int(rng.integers(1, sms + 1))
    limit, batch = int(rng.choice([3, 56])), int(rng.choice([5, 64, 256]))
    threshold, warps = int(rng.choice([0, 25, 51, 75, 100])), int(rng.choice([4, 16]))
    n = blocks * 512
    kernels = []
    for _ in range(3):
        block = int(rng.choice([32, 64, 128]))
        threads = block * int(rng.integers(1, 13))
        touched = rng.integers(0, n, threads)
        if rng.random() < 0.4:
            touched = (rng.integers(0, n) + np.arange(threads) * int(rng.integers(1, 40))) % n
        kernels.append((touched, block, [bool(w) for w in rng.integers(0, 2, int(rng.integers(1, 4)))]))
    plain = Reference(blocks, chunks, sms, warps, limit, batch, threshold, gpcs)
    program: list[Any] = [HostTouch("a")]
    for touched, block, writes in kernels:
        plain.run(touched.tolist(), block, writes)
        index = touched.astype(np.int64) * PAGE
        accesses = [Access("a", w, tx=1, bx=block, index=index, waits=w) for w in writes]
        program.append(Kernel("k", accesses, (len(index) // block, 1), (block, 1), ns=0.0))
    platform = replace(TINY, sms=sms, gpcs=gpcs, memory=chunks * BLOCK, warps=warps, outstanding=limit)
    settings = {"uvm_perf_prefetch_threshold": threshold, "uvm_perf_fault_batch_count": batch}
    return simulate_uvm([Array("a", blocks * BLOCK)], program, platform, settings, log=100_000), plain


def story(log: Any) -> list[tuple[str, int, frozenset[int]]]:
    """Faults of the GPU, what it got and what it lost; records of one kind, one after the other in one block, are one."""
    names = {READ: "fault", WRITE: "fault", COPY: "copy", GONE: "gone"}
    out: list[tuple[str, int, frozenset[int]]] = []
    log = log[(log["processor"] == 1) & np.isin(log["kind"], list(names))]
    for r, mask in zip(log, pages(log), strict=True):
        kind, block, which = names[int(r["kind"])], int(r["block"]), frozenset(np.flatnonzero(mask).tolist())
        if out and out[-1][:2] == (kind, block):
            which |= out.pop()[2]
        out.append((kind, block, which))
    return out


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_serves_the_same_faults_in_the_same_order(seed: int) -> None:
    compiled, plain = both(seed)
    assert story(compiled.log) == plain.log
    gpu = compiled.counts[1]
    assert (gpu["batches"], gpu["fetched"], gpu["duplicates"], gpu["faults"], gpu["touches"]) == (
        plain.batches, plain.fetched, plain.duplicates, plain.faults, plain.touches,
    )  # fmt: skip
