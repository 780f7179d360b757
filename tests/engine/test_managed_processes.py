"""Do processes with managed memory on one GPU share its driver, its memory and its turns as a hand works it out, to 1 ns?

See `unified_by_hand` for the machine: a copy of 64 KiB takes 65,536 ns into the GPU and 32,768 out of it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from unified_by_hand import BLOCK, TINY, blocks

from gpusim.base.yaml.find import find
from gpusim.engine.pages.processes import ManagedProcess, simulate_processes
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.run.tenants import Program, Together, simulate_tenants
from gpusim.machine import platforms
from gpusim.machine.catalogue import load
from gpusim.machine.driver_parameters import UvmError
from gpusim.machine.kernels.durations import durations
from gpusim.machine.profile import changed
from gpusim.machine.tenancy import MPS, SLICES, Switch, Tenancy, Tenant
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel, ManagedProgram, Start, Wait
from gpusim.trace.files import load_trace
from gpusim.trace.workload import build

pytestmark = [pytest.mark.hand_worked, pytest.mark.slow]

# A fault of a block whose pages the host has: pass and batch, the fault, the block, its first touch and 16 pages, the copy, the
# replay.  One pass serves 20 batches, of whatever process.
LATER = 1000 + 10 + 100 + 5000 + 16 + 300 + 65_536 + 50
FIRST = 10_000 + LATER
# A chunk leaves before: the driver unmaps 16 pages, and they go to the host, for longer than it takes to begin again.  What
# comes waits for them, and not for the 5016 of its first touch and its pages.
EVICTS = 100 + 16 + 200 + 32_768 - 5000 - 16
AT_ONCE = Tenancy(MPS, (Tenant(), Tenant()))
FREE = Switch(0.0, 0)


def busy(ns: float) -> Kernel:
    """A kernel that touches nothing."""
    return Kernel("busy", [], (64, 1), (256, 1), ns=ns)


def program(*steps: Any) -> ManagedProgram:
    """Its eight blocks are in host memory; the clock counts from there."""
    return ManagedProgram("p", [Array("a", 8 * BLOCK)], [HostTouch("a"), Start(), *steps])


def ran(tenancy: Tenancy | None, chunks: int, *programs: ManagedProgram, percentages: tuple[int, ...] = (100, 100)) -> Together:
    profile = load("a100-pcie-80gb")
    each = zip(programs, percentages, strict=False)
    return simulate_processes([ManagedProcess(one, profile, chunks * BLOCK, percentage) for one, percentage in each], tenancy)


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platforms, "of", lambda profile, memory=64 * BLOCK: replace(TINY, memory=memory))


def ends(together: Together) -> list[int]:
    return [int(result.metrics["makespan_ns"]) for result in together.results]


def counted(together: Together, name: str) -> list[int]:
    return [int(result.metrics[name]) for result in together.results]


def test_the_driver_serves_two_processes_in_turn_and_what_fits_does_not_page() -> None:
    """Both fault at once, and again as soon as they are served: whose fault is older is next."""
    four = program(blocks(0, 1, 2, 3))
    both = ran(AT_ONCE, 16, four, four)
    assert ends(both) == [FIRST + 6 * LATER, FIRST + 7 * LATER]
    assert counted(both, "evictions") == [0, 0] and counted(both, "gpu_faults") == [4, 4]
    assert ends(ran(AT_ONCE, 16, four, program(busy(10.0))))[0] == FIRST + 3 * LATER, "as if it were alone"


def test_what_does_not_fit_evicts_the_pages_of_the_other() -> None:
    """Four chunks; the fifth service takes the chunk of the first process' first block, and so on."""
    four = program(blocks(0, 1, 2, 3))
    both = ran(AT_ONCE, 4, four, four)
    assert ends(both) == [FIRST + 6 * LATER + 3 * EVICTS, FIRST + 7 * LATER + 4 * EVICTS]
    assert counted(both, "evictions") == [2, 2]
    lost = [sum(a.went["eviction"] for a in result.faults.allocations) for result in both.results]
    assert lost == [2 * 65_536, 2 * 65_536], "two chunks of each have left"


def test_the_end_of_a_process_frees_its_chunks() -> None:
    """The second comes when the first has ended: three chunks for three blocks, after four for four."""
    both = ran(AT_ONCE, 4, program(blocks(0, 1, 2, 3)), program(busy(2 * (FIRST + 3 * LATER)), blocks(0, 1, 2)))
    assert counted(both, "evictions") == [0, 0]


def test_a_turn_ends_when_its_faults_are_served() -> None:
    """A slice of 50,000 ns is over while a fault is served: state is saved behind that, the next fault is of the next turn."""
    slices = Tenancy(SLICES, (Tenant(slice=50_000), Tenant(slice=50_000)), FREE)
    both = ran(slices, 16, program(blocks(0, 1)), program(busy(60_000.0)))
    # 0 to FIRST; the other's 50,000; the second fault; the other's last 10,000; the first needs a turn to end.
    assert ends(both) == [FIRST + 50_000 + LATER + 10_000] * 2
    assert both.switches == 4


def test_a_process_that_waits_for_faults_keeps_its_turn() -> None:
    slices = Tenancy(SLICES, (Tenant(slice=10**6), Tenant(slice=10**6)), FREE)
    both = ran(slices, 16, program(blocks(0, 1)), program(busy(60_000.0)))
    assert ends(both) == [FIRST + LATER, FIRST + LATER + 60_000]


def test_slices_of_mig_have_memory_of_their_own_and_one_thread_that_serves() -> None:
    four = program(blocks(0, 1, 2, 3))
    both = ran(None, 4, four, four)
    assert counted(both, "evictions") == [0, 0], "four chunks each"
    assert ends(both) == [FIRST + 6 * LATER, FIRST + 7 * LATER]


def test_the_hosts_of_processes_go_side_by_side() -> None:
    """Both write eight blocks on the CPU before `start`: neither waits for the other, nor the GPU for any of them."""
    late = ManagedProgram("late", [Array("a", 8 * BLOCK)], [blocks(0), Wait(), HostTouch("a"), blocks(0)])
    alone = ran(Tenancy(MPS, (Tenant(),)), 16, late)
    both = ran(AT_ONCE, 16, late, program(busy(10.0)))
    assert ends(both)[0] == ends(alone)[0]


@pytest.mark.agreement
@pytest.mark.parametrize("way", [SLICES, MPS])
def test_with_all_memory_populated_traces_beside_each_other_take_what_they_take_without_unified_memory(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    profile = changed(changed(load("h100-sxm-80gb"), "memory.capacity", 1e12), "host.capacity", 1e12)
    traces = [load_trace(find("trace", name)) for name in ("gpt-medium-infer", "resnet50-sgd")]
    works = [build(trace, durations(trace, profile)[0]) for trace in traces]
    tenancy = Tenancy(way, (Tenant(), Tenant()))
    plain = simulate_tenants([Program(work, profile, 10**12) for work in works], tenancy, evict="none")
    pages = [ManagedProcess(work, profile, 10**12) for work in works]
    driven = simulate_processes(pages, tenancy, settings=DriverSettings(advice="populate"))
    assert counted(driven, "gpu_faults") == [0, 0] and driven.switches == plain.switches
    assert ends(driven) == ends(plain)


def kernel(grid: int) -> Kernel:
    return Kernel("k", [Access("a", tx=1, bx=256, elements=1024)], (grid, 1), (256, 1), ns=100_000.0)


def test_a_cap_holds_for_kernels_that_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight multiprocessors, of which the program may use half: its work takes twice the time, its faults what they take."""
    monkeypatch.setattr(platforms, "of", lambda profile, memory=64 * BLOCK: replace(TINY, sms=8, hbm=1e12, memory=memory))
    whole, half = (ends(ran(AT_ONCE, 16, program(kernel(64)), program(busy(1.0)), percentages=(p, 100)))[0] for p in (100, 50))
    assert half == whole + 100_000


def test_what_is_evicted_by_turn_is_of_the_process_that_waits() -> None:
    """Four sweeps of four blocks each in six chunks, by turns that four faults fill.

    The driver's order: each sweep finds nothing of the one before.  By turn: 4 faults of the first; 4 of the second, which take
    2 chunks of the first; 2 of the first, which come back at the cost of 2 of the second; these 2.
    """
    turns = Tenancy(SLICES, (Tenant(slice=4 * LATER), Tenant(slice=4 * LATER)), FREE)
    sweeps = program(*[blocks(0, 1, 2, 3)] * 4)
    profile, each = load("a100-pcie-80gb"), {}
    for evict in ("driver", "by_turn"):
        pair = [ManagedProcess(sweeps, profile, 6 * BLOCK)] * 2
        each[evict] = simulate_processes(pair, turns, settings=DriverSettings(evict=evict))
    moved = {evict: sum(counted(together, "gpu_faults")) for evict, together in each.items()}
    assert moved == {"driver": 32, "by_turn": 12}


def test_advice_names_allocations_of_any_of_the_processes() -> None:
    """Zero-copy of the second one's array leaves it nothing to fault, and the first, alone too, what it had."""
    mine = program(blocks(0, 1))
    second = [HostTouch("b"), Start(), replace(blocks(0, 1, array="b"), stream=0)]
    other = ManagedProgram("q", [Array("b", 8 * BLOCK)], second)
    profile, told = load("a100-pcie-80gb"), DriverSettings(advice="b:zero_copy")
    both = [ManagedProcess(one, profile, 16 * BLOCK) for one in (mine, other)]
    assert counted(simulate_processes(both, AT_ONCE, settings=told), "gpu_faults") == [2, 0]
    alone = simulate_processes(both[:1], None, settings=told, others=[other])
    assert counted(alone, "gpu_faults") == [2]
    with pytest.raises(UvmError, match="no allocation of p is called 'c'"):
        simulate_processes(both, AT_ONCE, settings=DriverSettings(advice="c:zero_copy"))
