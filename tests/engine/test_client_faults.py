"""What is lost when one of several programs on a GPU has a fatal fault: worked out by hand, to 1 ns."""

from __future__ import annotations

from typing import Any

import pytest
from hand_worked import machine
from tenant_programs import kernels, slices

from gpusim.base.errors import GpusimError
from gpusim.engine.run.simulate import prepared
from gpusim.engine.run.tenants import Program, limited, with_fault
from gpusim.machine import catalogue
from gpusim.machine.tenancy import MPS, Tenancy, Tenant

pytestmark = pytest.mark.hand_worked
MPS_OF_TWO = Tenancy(MPS, (Tenant(),) * 2)


def faulted(tenancy: Tenancy | None, at: int, mine: tuple[int, ...] = (2500,), theirs: tuple[int, ...] = (1500,)) -> Any:
    """(makespans of all but the second, ns that are lost)"""
    gpu = machine()
    works = [prepared(kernels(*ns).trace(), gpu).planned.work for ns in (mine, theirs)]
    together, lost = with_fault([Program(work, gpu, 1 << 30) for work in works], tenancy, at, place="device")
    return [int(result.metrics["makespan_ns"]) for result in together.results], lost


def test_all_clients_of_an_mps_server_end() -> None:
    """The first begins again at 1700, and has 2500 ns of kernels alone; what it had done is lost."""
    free, _ = faulted(None, 1, theirs=(10,))
    alone = free[0]
    assert faulted(MPS_OF_TWO, 1700) == ([1700 + alone], 1700)


def test_in_time_slices_only_the_faulting_program_ends() -> None:
    """0-1000 the first, from 1000 on the second, which is gone at 1700: the first goes on at once with its 1500."""
    (ends,), lost = faulted(slices(), 1700)
    assert (ends, lost) == (3200, 0)


def test_a_slice_of_ones_own_loses_nothing() -> None:
    assert faulted(None, 1400)[1] == 0


def test_a_program_that_has_ended_cannot_fault() -> None:
    with pytest.raises(GpusimError, match="the program beside has ended"):
        faulted(MPS_OF_TWO, 10_000)


def test_memory_limits_hold_contexts_and_are_not_promised_twice() -> None:
    """16 GiB, contexts of 300 MB."""
    gpu = catalogue.load("t4")
    context, memory, gib = int(gpu.context.value), int(gpu.memory.capacity.value), 1 << 30
    assert limited(gpu, [10 * gib, 4 * gib]) == [10 * gib - context, 4 * gib - context]
    assert limited(gpu, [10 * gib, 0, 0]) == [10 * gib - context, *[(memory - 10 * gib) // 2 - context] * 2]
    with pytest.raises(GpusimError, match=r"limits of 10 GiB \+ 8 GiB: 't4' has"):
        limited(gpu, [10 * gib, 8 * gib])
    with pytest.raises(GpusimError, match="the context of program 0 takes"):
        limited(gpu, [1 << 20, 4 * gib])
