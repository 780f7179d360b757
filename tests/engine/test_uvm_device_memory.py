"""Do arrays by cudaMalloc take memory, and never fault?"""

from __future__ import annotations

from dataclasses import replace

import pytest
from unified_by_hand import BLOCK, TINY, blocks, simulate_uvm

from gpusim.machine.driver_parameters import UvmError
from gpusim.programs.managed.steps import Advise, Array, Free, HostTouch, Prefetch, Start

pytestmark = pytest.mark.hand_worked

DEVICE = Array("d", 2 * BLOCK, kind="device")
BOTH = [Array("a", 4 * BLOCK), DEVICE]


def test_they_never_fault_and_leave_the_driver_the_rest_of_the_memory() -> None:
    ran = simulate_uvm(BOTH, [HostTouch("a"), Start(), blocks(0, 1, array="d", write=True)], TINY)
    assert int(ran.counts[1]["faults"]) == 0 and int(ran.counts[1]["touches"]) == 2
    # Two of four chunks are left: the third block of `a` evicts the first, the fourth the second.
    sweep = [HostTouch("a"), Start(), blocks(0, 1, 2, 3), blocks(0, 1, array="d")]
    assert int(simulate_uvm(BOTH, sweep, TINY).counts[1]["evictions"]) == 2
    assert int(simulate_uvm([BOTH[0], replace(DEVICE, kind="managed")], sweep, TINY).counts[1]["evictions"]) == 2
    assert int(simulate_uvm([BOTH[0]], sweep[:-1], TINY).counts[1]["evictions"]) == 0


@pytest.mark.parametrize(("blocks_", "words"), [(5, "more than there is"), (4, "no chunk of 2 MiB")])
def test_what_does_not_fit_is_refused(blocks_: int, words: str) -> None:
    with pytest.raises(UvmError, match=words):
        simulate_uvm([Array("a", BLOCK), Array("d", blocks_ * BLOCK, kind="device")], [blocks(0)], TINY)


@pytest.mark.parametrize(
    "step", [HostTouch("d"), Prefetch("d"), Advise("d", "read_mostly"), Free("d"), blocks(0, array="d", gpu=2)], ids=str
)
def test_what_is_for_managed_memory_is_refused(step: object) -> None:
    with pytest.raises(UvmError, match=r"kind device|memory of GPU 1"):
        simulate_uvm(BOTH, [step], TINY, gpus=2)


def test_another_gpu_reaches_them_over_nvlink() -> None:
    ran = simulate_uvm(BOTH, [Start(), blocks(0, array="d", gpu=2)], replace(TINY, peer_rate=1e9), gpus=2)
    assert int(ran.counts[2]["faults"]) == 0 and int(ran.counts[2]["remote_bytes"]) == 32 and ran.ns == 32
