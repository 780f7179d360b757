"""Do programs whose memory does not suffice for all move it as a hand works it out, to 1 ns?

See `hand_worked` for the machine: 10 bytes/ns to the device, 8 from it.  Switches are free.
"""

from __future__ import annotations

from typing import Any

import pytest
from hand_worked import BLOCK, Steps, machine
from tenant_programs import FREE, kernels, slices, three_tensors
from test_coupled import spans

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.engine import state
from gpusim.engine.run.claims import Claim, claim_of
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.simulate import prepared
from gpusim.machine.tenancy import Switch
from gpusim.machine.topology.connections import Connections
from gpusim.policies import decorators as policy
from gpusim.policies import registry
from gpusim.policies.tenant_memory import TenantTurn
from gpusim.trace.workload import build

pytestmark = pytest.mark.hand_worked


def memory_turns(word: Any, claims: tuple[Any, ...], *each: Steps, capacity: int = 10_000, switch: Switch = FREE) -> Any:
    """(spans of each program, the memory)"""
    memory = MemoryTurns(registry.get("tenants", word), capacity, claims)
    runs = [prepared(steps.trace(), machine(), log=True, place="device") for steps in each]
    Coupled([run.simulation for run in runs], Connections(tenancy=slices(len(each), switch)), memory).advance(state.NEVER)
    return [spans(run.result()) for run in runs], memory


def test_a_program_without_memory_waits_for_the_end_of_others() -> None:
    """6000 and 3000 fit and take turns of 1000; the third has 5000 when the first ends at 3000; then turns with the second."""
    each, memory = memory_turns("first_come(slice_ms=0.001)", (6000, 3000, 5000), kernels(2000), kernels(1500), kernels(900))
    assert each == [[(0, 3000)], [(1000, 3500)], [(3500, 4400)]]
    assert (memory.copied, memory.moves) == (0, 0)


def test_a_quantum_and_only_what_is_missing_leaves() -> None:
    """Quanta of 1000.  The second lacks 2000 at 1000: 250 ns, 1250-2250.  2000 of it leave, 250, and the first's come, 200.

    2700-3700 the first's last 1000.  It has ended, so that nothing leaves: 2000 bytes come in 200, 3900-4400.
    """
    each, memory = memory_turns("nvshare(quantum=1e-6)", (6000, 6000), kernels(2000), kernels(1500))
    assert each == [[(0, 3700)], [(1250, 4400)]]
    assert memory.copied == 2000 + 2000 + 2000 + 2000 and memory.moves == 4


def test_a_gap_between_kernels_does_not_end_a_quantum() -> None:
    """0-500, and again 2000-2500 after work of the host; it has ended, and the other one's turn begins."""
    gap = kernels(500)
    gap.until(2000)
    gap.kernel(500)
    each, _ = memory_turns("nvshare(quantum=5e-6)", (5000, 5000), gap, kernels(1000))
    assert each == [[(0, 500), (2000, 2500)], [(2500, 3500)]]


def test_a_whole_program_leaves() -> None:
    """6000 bytes leave in 750 and come in 600: 0-1000, 1750-2750, 4100-5100, and as the first has ended, 5700-6200."""
    each, memory = memory_turns("suspend_resume(quantum=1e-6)", (6000, 6000), kernels(2000), kernels(1500))
    assert each == [[(0, 5100)], [(1750, 6200)]]
    assert memory.copied == 4 * 6000


def test_of_three_that_leaves_which_was_there_last() -> None:
    """Two of 5000 fit.  0-1000, 1000-2000; the first leaves for the third, 625: 2625-3625; then the second for the first,
    625 out and 500 in: 4750-5250; ended, so that the second's 5000 come in 500: 5750-6250; the third is there: 6250-6750.
    """
    each, memory = memory_turns("nvshare(quantum=1e-6)", (5000,) * 3, kernels(1500), kernels(1500), kernels(1500))
    assert each == [[(0, 5250)], [(1000, 6250)], [(2625, 6750)]]
    assert memory.copied == 4 * 5000


def test_switches_cost_their_time_behind_the_copies() -> None:
    """0-1000, 750 and 100, 1850-2350; the second has ended: 600 and 100, 3050-3550."""
    each, _ = memory_turns("suspend_resume(quantum=1e-6)", (6000, 6000), kernels(1500), kernels(500), switch=Switch(100.0, 0))
    assert each == [[(0, 3550)], [(1850, 2350)]]


def test_programs_that_fit_together_move_nothing() -> None:
    each, memory = memory_turns("nvshare(quantum=1e-6)", (5000, 5000), kernels(2000), kernels(1500))
    assert each == [[(0, 3000)], [(1000, 3500)]] and memory.moves == 0


def test_the_first_program_takes_the_gpu_at_once() -> None:
    """It comes at 700 and lacks 2000: 250 ns, 950-1450.  The other's 2000 come in 200, and it has its last 1300."""
    each, memory = memory_turns("priority(slice_ms=1)", (6000, 6000), kernels(500, at=700), kernels(2000))
    assert each == [[(950, 1450)], [(0, 2950)]]
    assert memory.copied == 4000


def test_copies_of_a_program_share_the_link_with_memory_that_leaves() -> None:
    """The second's own copy of 10,240 bytes is on its way into the GPU, memory leaves the other way: both at 10 bytes/ns."""
    from coupled_programs import copies

    from gpusim.trace.trace import COPY_IN

    third = copies((COPY_IN, 1))
    each, _ = memory_turns("suspend_resume(quantum=1e-6)", (6000, 6000, 0), kernels(1500), kernels(500), third)
    assert each[2] == [(0, 2024)]


@policy.tenants
def stubborn(view, which=0):  # type: ignore[no-untyped-def]
    """Only one program ever runs."""
    one = view.of(int(which))
    return TenantTurn(one.number, 1e9) if one else None


def test_a_standstill_is_told_by_name() -> None:
    with pytest.raises(GpusimError, match=r"policy 'stubborn' lets the programs wait for memory for ever.*program 1 needs"):
        memory_turns(stubborn, (6000, 6000), kernels(500), kernels(500))


@policy.tenants
def greedy(view):  # type: ignore[no-untyped-def]
    """Programs take turns, whatever memory there is."""
    return TenantTurn(view.in_turn()[0].number, 1000)


@policy.tenants
def takes_what_is_not_there(view):  # type: ignore[no-untyped-def]
    """Memory of the other program leaves, which has none."""
    return TenantTurn(0, 1000, {1: 10})


def test_turns_that_memory_does_not_allow_are_refused() -> None:
    with pytest.raises(PolicyError, match=r"has 10 bytes of tenant 1 leave for tenant 0; it has 0 B there"):
        memory_turns(takes_what_is_not_there, (6000, 6000), kernels(500), kernels(500))
    with pytest.raises(PolicyError, match=r"gives the GPU to tenant 1, which needs .* more than are free"):
        memory_turns(greedy, (6000, 6000), kernels(5000), kernels(500))


def test_a_program_that_is_larger_than_the_gpu_is_refused() -> None:
    with pytest.raises(GpusimError, match=r"program 1 needs .*, and the GPU has"):
        memory_turns("nvshare", (6000, 16_000), kernels(500), kernels(500))


TWO_OF_FOUR, THREE_OF_FOUR = Claim(2 * BLOCK, BLOCK, 2 * BLOCK), Claim(3 * BLOCK, BLOCK, 3 * BLOCK)


def test_a_program_goes_on_with_a_part_of_its_memory_away() -> None:
    """The first comes at 3500 and needs two of four blocks; the other has three.

    Its kernel runs until 4000, when its host goes on and its second block leaves in 2280: the first has the GPU from 6280 on.
    The other reads what has left: the third block makes room, 6280-8560, and its kernel runs then, 8560-9560.  Then the third
    comes back in 2024, without a copy out, as the second is in host memory unchanged: 11584-12584.
    """
    each, memory = memory_turns(
        "antman(slice_ms=0.001)", (TWO_OF_FOUR, THREE_OF_FOUR), kernels(500, at=3500), three_tensors(), capacity=4 * BLOCK
    )
    assert each[0] == [(6280, 6780)]
    kernels_of = [span for span in each[1] if span[1] - span[0] == 1000]
    assert kernels_of == [(0, 1000), (1000, 2000), (2000, 3000), (3000, 4000), (8560, 9560), (11584, 12584)]
    assert (memory.copied, memory.moves, memory.limits) == (0, 0, [2 * BLOCK, 3 * BLOCK])


def test_the_first_program_loses_no_more_than_its_share() -> None:
    """Kernels without memory: turns of 1000 for the first until it has lost less than a tenth of what it has had."""
    tiny = (Claim(0), Claim(0))
    each, memory = memory_turns("tgs(slice_ms=0.001, loss=0.1)", tiny, kernels(25_000), kernels(9000))
    assert each == [[(0, 28_000)], [(1000, 34_000)]] and memory.lost[0] == 3000
    each, _ = memory_turns("antman(slice_ms=0.001)", tiny, kernels(25_000), kernels(9000))
    assert each == [[(0, 25_000)], [(25_000, 34_000)]]


def test_a_gap_of_the_first_program_is_filled_when_it_has_lasted_to_the_end_of_a_slice() -> None:
    """0-500; idle at 1000: the other one has the GPU until the first comes back at 2700."""
    gap = kernels(500)
    gap.until(2700)
    gap.kernel(500)
    each, _ = memory_turns("antman(slice_ms=0.001)", (Claim(0), Claim(0)), gap, kernels(4000))
    assert each == [[(0, 500), (2700, 3200)], [(1000, 5500)]]


def test_turns_end_with_iterations() -> None:
    """Three of two kernels of 1000, three of two of 300: the second has had less after each of its own.

    Of three blocks each one lasts; four are there.
    """

    def steps(ns: int) -> Steps:
        made = Steps()
        for i in range(3):
            made._builder.begin_phase(f"step{i}")
            made.kernel(ns)
            made.kernel(ns)
        return made

    claim = Claim(3 * BLOCK, BLOCK, BLOCK, (0, 2, 4))
    each, memory = memory_turns("salus", (claim, claim), steps(1000), steps(300), capacity=4 * BLOCK)
    assert each[1] == [(2000 + 300 * k, 2300 + 300 * k) for k in range(6)]
    assert each[0] == [(0, 1000), (1000, 2000), (2000, 4800), (4800, 5800), (5800, 6800), (6800, 7800)]
    assert memory.copied == 0


def test_what_lasts_of_all_has_to_fit_beside_one_program() -> None:
    """Two blocks of the first last, and the second needs three of four: it waits for the first one's end at 6000."""
    claim = Claim(3 * BLOCK, BLOCK, 2 * BLOCK, (0, 3))
    each, _ = memory_turns("salus", (claim, claim), three_tensors(), three_tensors(), capacity=4 * BLOCK)
    assert each[0][-1] == (5000, 6000) and each[1][0] == (6000, 7000)


@policy.tenants
def too_little(view):  # type: ignore[no-untyped-def]
    """The second has a byte."""
    return TenantTurn(view.in_turn()[0].number, 1e9, limits={1: 1})


def test_a_limit_below_the_largest_operator_is_refused() -> None:
    with pytest.raises(PolicyError, match=r"limits tenant 1 to 1 bytes; it takes 10 KiB, its largest operator, to 30 KiB"):
        memory_turns(too_little, (TWO_OF_FOUR, THREE_OF_FOUR), kernels(500), three_tensors(), capacity=4 * BLOCK)


def test_what_a_program_claims() -> None:
    """Its largest operator reads one block and writes another; a weight of half a block lasts."""
    steps = Steps()
    weight = steps.alloc(0.5)
    for i in range(2):
        steps._builder.begin_phase(f"step{i}")
        one, other = steps.alloc(), steps.alloc()
        steps.kernel(100, reads=(weight,), writes=(one,))
        steps.kernel(100, reads=(one,), writes=(other,))
        steps.free(one, other)
    claim = claim_of(build(steps.trace(), steps.trace().duration), 3 * BLOCK)
    assert claim == Claim(3 * BLOCK, 2 * BLOCK, 2 * BLOCK, (0, 2))


def test_the_policy_is_asked_when_a_program_ends() -> None:
    """The first has 6000 of 10,000, runs until 500 and ends with its host's work at 3000: only then has the other one room."""
    first = kernels(500)
    first.until(3000)
    each, _ = memory_turns("first_come(slice_ms=0.001)", (6000, 6000), first, kernels(1500))
    assert each == [[(0, 500)], [(3000, 4500)]]
