"""How kernels are compiled: each function once, for all its callers, and linked with what Python calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numba import config, njit, types
from unified_by_hand import BLOCK, run

from gpusim.base.compiled import kept, kernel, outlined
from gpusim.engine.pages.door import door
from gpusim.engine.pages.prefetchers import PREFETCHERS
from gpusim.engine.pages.victims import EVICT
from gpusim.programs.managed.steps import Access, Advise, Array, Discard, Free, HostTouch, Kernel, Prefetch

compiled = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")


@outlined
def total(a: Any, n: int) -> int:
    s = 0
    for i in range(n):
        s += a[i]
    return s


@kernel
def both(a: Any) -> int:
    return int(total(a, len(a)) + max(a[0], 3))


def twice(a: Any) -> int:
    return int(both(a) * 2)


@pytest.mark.slow
@compiled
@pytest.mark.parametrize("decorate", [njit, kept(types.int64(types.int64[::1]), _nrt=False)])
def test_a_function_is_linked_with_all_that_it_calls(decorate: Any) -> None:
    assert decorate(twice)(np.arange(5)) == 26


@compiled
def test_what_a_kernel_calls_first_is_not_inlined_for_that() -> None:
    njit(twice)(np.arange(5))
    assert [c.fndesc.inline for c in total.overloads.values()] == [False]
    assert [c.fndesc.inline for c in both.overloads.values()] == [True]


@compiled
def test_entries_of_unified_memory_have_one_signature() -> None:
    """Under every policy, for one GPU and for two, with and without a log, for indices and without."""
    index = np.arange(64, dtype=np.int64) * 1024
    touch = Kernel("k", [Access("a", True, tx=1, index=index), Access("a", tx=1)], (1, 1), (64, 1), ns=0.0)
    hints = [Advise("a", "read_mostly"), Advise("a", "accessed_by"), Advise("a", "preferred_location")]
    steps = [HostTouch("a"), touch, Prefetch("a"), *hints, HostTouch("a", write=True), Discard("a"), Free("a")]
    for k, evict in enumerate(EVICT):
        run(steps, [Array("a", BLOCK)], evict=evict, log=k % 2 * 100, gpus=1 + k % 2)
    for prefetcher in PREFETCHERS:
        run(steps, [Array("a", BLOCK)], prefetcher=prefetcher)
    assert len(door.signatures) == 1
