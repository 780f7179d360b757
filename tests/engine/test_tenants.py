"""Do several programs on one GPU share its multiprocessors, time and memory as a hand works it out, to 1 ns?

See `hand_worked` for the machine: 108 multiprocessors, 10 bytes/ns to the device behind 1000 ns, a memory of 1329 bytes/ns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from coupled_programs import copies, played
from hand_worked import Steps, machine
from tenant_programs import FREE, S, kernels, slices
from test_coupled import spans

from gpusim.base.errors import GpusimError
from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared
from gpusim.machine.tenancy import BLOCKS, HIGH, LOW, MEDIUM, MPS, SLICES, Switch, Tenancy, Tenant, runlist
from gpusim.machine.topology.connections import Connections
from gpusim.trace.trace import COPY_IN

pytestmark = pytest.mark.hand_worked

Spans = list[tuple[int, int]]


def tenants(tenancy: Tenancy, *each: Steps, **choices: Any) -> list[Spans]:
    return [spans(result) for result in played(Connections(tenancy=tenancy), *each, **choices).results]


def test_two_programs_take_turns_of_a_slice() -> None:
    """Turns of 1000: the first has 0, 2000 and the 500 from 3500 on, when the second has ended after its 1500."""
    assert tenants(slices(), kernels(2500), kernels(1500)) == [[(0, 4000)], [(1000, 3500)]]


def test_a_switch_takes_its_time_from_both() -> None:
    """0-1000, 1100-2100, 2200-3200, 3300-3800 the second's last 500, 3900-4400 the first's."""
    assert tenants(slices(switch=Switch(100.0, 0)), kernels(2500), kernels(1500)) == [[(0, 4400)], [(1100, 3800)]]


def test_state_is_saved_and_restored_through_the_memory() -> None:
    """108 bytes of each of 108 multiprocessors at 108 bytes/ns: 108 ns a side.

    0-1000; 208, as nothing of the second is there to restore; 1208-2208; 316; 2524-3524; 316; 3840-4340; 208; 4548-5048.
    """
    cost = Switch(100.0, 108, bandwidth=108.0)
    assert tenants(slices(switch=cost), kernels(2500), kernels(1500)) == [[(0, 5048)], [(1208, 4340)]]


def test_a_program_without_work_yields_at_once() -> None:
    """The host of the first does nothing from 300 to 5000; the second has the GPU alone, its slices renewed.

    The slice that runs at 5000 ends at 5300, as the first of them began at 300.
    """
    first = kernels(300)
    first.until(5000)
    first.kernel(400)
    assert tenants(slices(), first, kernels(8000)) == [[(0, 300), (5300, 5700)], [(300, 8700)]]


def test_the_gap_behind_a_kernel_is_no_idleness() -> None:
    """Kernels of 400 with a gap of 150: the slice goes on over the first gap, and ends in the second."""
    gpu = machine({"launch.gap": 150.0})
    each = [prepared(s.trace(), gpu, log=True, place="device") for s in (kernels(400, 400, 400), kernels(500))]
    Coupled([run.simulation for run in each], Connections(tenancy=slices())).advance(state.NEVER)
    assert [spans(run.result()) for run in each] == [[(0, 400), (550, 950), (1500, 1900)], [(1000, 1500)]]


def test_the_runlist_interleaves_as_the_driver_says() -> None:
    """L low, M medium: low once, medium L times or once, high (M + 1) * L, M or once."""
    assert runlist([LOW, LOW]) == (0, 1)
    assert runlist([LOW, MEDIUM, HIGH]) == (2, 1, 2, 0)
    for levels in ([LOW] * 2 + [MEDIUM] * 3 + [HIGH] * 2, [MEDIUM] * 2 + [HIGH], [HIGH] * 3, [LOW] * 3 + [HIGH]):
        low, medium = levels.count(LOW), levels.count(MEDIUM)
        times = {LOW: 1, MEDIUM: max(low, 1), HIGH: (medium + 1) * low or medium or 1}
        assert [runlist(levels).count(i) for i in range(len(levels))] == [times[level] for level in levels]


def test_a_higher_level_has_more_turns() -> None:
    """High, low: both once a round.  With two low ones the high one has two of four turns."""
    tenancy = Tenancy(SLICES, (Tenant(S, HIGH), Tenant(S), Tenant(S)), FREE)
    assert tenants(tenancy, kernels(4000), kernels(2000), kernels(2000)) == [[(0, 7000)], [(1000, 6000)], [(3000, 8000)]]


def test_copies_go_on_beside_another_programs_slice() -> None:
    """10,240 bytes at 10 bytes/ns behind 1000 ns; two programs' copies have 5 bytes/ns each."""
    assert tenants(slices(), copies((COPY_IN, 1)), kernels(9000)) == [[(0, 2024)], [(0, 9000)]]
    assert tenants(slices(), copies((COPY_IN, 1)), copies((COPY_IN, 1))) == [[(0, 3048)]] * 2


def mps(count: int = 2, yields: str = BLOCKS) -> Tenancy:
    return Tenancy(MPS, (Tenant(),) * count, yields=yields)


def capped(percentages: tuple[int, ...], *each: Steps, tenancy: Tenancy | None = None) -> list[Spans]:
    runs = [
        prepared(steps.trace(), machine(), log=True, place="device", active_thread_percentage=percentage)
        for steps, percentage in zip(each, percentages, strict=True)
    ]
    Coupled([run.simulation for run in runs], Connections(tenancy=tenancy or mps(len(each)))).advance(state.NEVER)
    return [spans(run.result()) for run in runs]


def test_under_mps_programs_run_at_once_at_half_the_speed() -> None:
    """Half the time of every multiprocessor until 3000; then the first has 1000 left, alone."""
    assert tenants(mps(), kernels(2500), kernels(1500)) == [[(0, 4000)], [(0, 3000)]]


def test_a_cap_reserves_nothing() -> None:
    """54 of 108 each: both have the same 54, half of their time, where partitions would leave each its own.

    Alone a kernel of 1000 takes 2000 on half; beside the other 4000.
    """
    assert capped((50, 50), kernels(1000), kernels(1000)) == [[(0, 4000)], [(0, 4000)]]
    assert capped((50, 100), kernels(1000), Steps()) == [[(0, 2000)], []]


def test_a_small_cap_shares_all_of_its_multiprocessors_and_a_large_one_few() -> None:
    """27 and 108: the small one is at 27/108/2 of its full speed; the large one loses half of a quarter.

    The large one does 7/8 a ns: 7000 in 8000.  By then the small one has done 1000 of 2000, and does the rest alone at 1/4.
    """
    assert capped((25, 100), kernels(2000), kernels(7000)) == [[(0, 12_000)], [(0, 8000)]]


def test_caps_that_lie_apart_share_no_multiprocessor() -> None:
    """54 of 108 each, and 27 and 81: as alone under the cap, at a half, a quarter and three quarters of the speed."""
    apart = Tenancy(MPS, (Tenant(), Tenant()), apart=True)
    assert capped((50, 50), kernels(1000), kernels(1500), tenancy=apart) == [[(0, 2000)], [(0, 3000)]]
    assert capped((25, 75), kernels(1000), kernels(1500), tenancy=apart) == [[(0, 4000)], [(0, 2000)]]


def test_a_client_below_normal_waits_for_what_the_others_leave() -> None:
    """Nothing until 2500 or, where the other's last blocks have begun by 1500, half from then on: until 2500 and 2700."""
    below = Tenancy(MPS, (Tenant(), Tenant(priority=1)))
    assert tenants(replace(below, yields="waves"), kernels(2500), kernels(1500)) == [[(0, 2500)], [(0, 4000)]]
    assert tenants(below, kernels(2000, launch="grid=216 resident=1"), kernels(700)) == [[(0, 2500)], [(0, 2700)]]
    half = "grid=54 resident=1"
    assert tenants(below, kernels(2500, launch=half), kernels(1500)) == [[(0, 2500)], [(0, 2750)]]


def test_a_resident_kernel_keeps_its_multiprocessors_to_its_end() -> None:
    """2000 of a client below normal on all, or half, of them; the normal one comes at 1000 and waits for 2000, or has half.

    In waves the other one gives way at once with `yields=waves`, and at its end with `yields=kernels`.
    """
    below = Tenancy(MPS, (Tenant(), Tenant(priority=1)), yields="waves")
    comes = kernels(500, at=1000)
    assert tenants(below, comes, kernels(2000, launch="grid=108 resident=1")) == [[(1000, 2500)], [(0, 2000)]]
    assert tenants(below, comes, kernels(2000, launch="grid=54 resident=1")) == [[(1000, 2000)], [(0, 2000)]]
    assert tenants(below, comes, kernels(2000)) == [[(1000, 1500)], [(0, 2500)]]
    at_ends = Tenancy(MPS, below.tenants, yields="kernels")
    assert tenants(at_ends, comes, kernels(2000, 400)) == [[(1000, 2500)], [(0, 2000), (2000, 2900)]]


def test_kernels_that_give_way_at_their_ends_come_in_order_of_arrival() -> None:
    """All: 500 come at 1000 and wait for 2000; the first program's 400 come at 2000, behind them.  Half: 800 have half
    until 2000, and all for the 300 that are left.  Three: the third waits for the second.
    """
    in_order, comes, both = Tenancy(MPS, (Tenant(), Tenant()), yields="kernels"), kernels(500, at=1000), kernels(2000, 400)
    assert tenants(in_order, comes, both) == [[(1000, 2500)], [(0, 2000), (2000, 2900)]]
    half = kernels(2000, launch="grid=54 resident=1")
    assert tenants(in_order, kernels(800, at=1000), half) == [[(1000, 2300)], [(0, 2000)]]
    assert capped((50, 100), kernels(800, at=1000), kernels(2000), tenancy=in_order) == [[(1000, 3600)], [(0, 2000)]]
    three = Tenancy(MPS, (Tenant(),) * 3, yields="kernels")
    assert tenants(three, kernels(2000), comes, kernels(300, at=1500)) == [[(0, 2000)], [(1000, 2500)], [(1500, 2800)]]


def test_a_kernel_in_waves_gives_way_when_its_last_blocks_have_begun() -> None:
    """2000 in two waves: the last blocks begin after a wave and a half of work, at 1500, and those that run are half done.

    300 come at 1000, have half from then on and end at 2100, with 200 of the first left.  In three waves of 2400 it is 2000;
    with one wave the end; without a launch 208 / 108 waves, 1481.  A client below normal does not give way earlier.
    """
    comes, two, three = kernels(300, at=1000), "grid=216 resident=1", "grid=324 resident=1"
    both = [[(1000, 2100)], [(0, 2300)]]
    assert tenants(mps(), comes, kernels(2000, launch=two)) == both
    assert tenants(Tenancy(MPS, (Tenant(), Tenant(priority=1))), comes, kernels(2000, launch=two)) == both
    assert tenants(mps(), comes, kernels(2400, launch=three)) == [[(1000, 2600)], [(0, 2700)]]
    assert tenants(mps(), comes, kernels(2000, launch="grid=108 resident=1")) == [[(1000, 2300)], [(0, 2000)]]
    assert tenants(mps(), comes, kernels(2000)) == [[(1000, 2081)], [(0, 2300)]]


def test_programs_whose_blocks_have_all_begun_share_with_the_first_in_line() -> None:
    """Two waves each: the second's last blocks have begun after 225 at half the speed, at 1950; then all three have a third.

    275, 75 and 300 are left: the second ends at 2175, the first and the third have half, until 2575 and 2600.
    """
    two = "grid=216 resident=1"
    second, third = kernels(300, at=1000, launch=two), kernels(300, at=1200, launch=two)
    found = tenants(mps(3), kernels(2000, launch=two), second, third)
    assert found == [[(0, 2575)], [(1000, 2175)], [(1200, 2600)]]


@pytest.mark.parametrize("yields", ["kernels", "blocks"])
def test_what_floats_leave_of_a_full_gpu_is_nothing(yields: str) -> None:
    """1, 96 and 11 of 108 are all, but 1 - 1/108 - 96/108 - 11/108 is 1.4e-17: the fourth does not run for ages at that."""
    assert 1.0 - 1 / 108 - 96 / 108 - 11 / 108 > 0.0
    each = [kernels(2000 - at, launch=f"grid={many} resident=1", at=at) for many, at in ((1, 0), (96, 100), (11, 200))]
    assert tenants(mps(4, yields), *each, kernels(500, at=300))[3] == [(300, 2500)]


@pytest.mark.parametrize("yields", ["waves", "kernels", "blocks"])
def test_a_level_at_which_a_program_has_all_it_wants_is_found(yields: str) -> None:
    """20 and 44 of 108 leave 44 for the one that wants 93: 473 of its 1000 in 1000, the rest alone.  By floats the level at
    which 44 is enough is below and above 44 / 108 in turn."""
    each = [kernels(1000, launch=f"grid={many} resident=1") for many in (44, 20, 93)]
    assert tenants(mps(3, yields), *each) == [[(0, 1000)], [(0, 1000)], [(0, 1527)]]


def test_stream_priorities_go_across_clients() -> None:
    """A kernel of a better stream takes all at once with `yields=waves`; else it goes before the other client's that waits.

    From 1500 on it has half beside the last blocks of 2000.  Its own have begun after 300 of 400, at 2100; then the one of 900
    has a third beside 100 and 200 that are left, and half from 2400 to 2600.
    """
    better, two = kernels(500, at=1000), "grid=216 resident=1"
    better._builder.meta["stream_priority"] = {"0": -1}
    assert tenants(mps(yields="waves"), better, kernels(2500)) == [[(1000, 1500)], [(0, 3000)]]
    first = kernels(400, at=1000, launch=two)
    first._builder.meta["stream_priority"] = {"0": -1}
    found = tenants(mps(3), first, kernels(2000, launch=two), kernels(500, at=900))
    assert found == [[(1000, 2400)], [(0, 2600)], [(900, 2900)]]


def memory_bound(ns: int, need: float) -> Steps:
    steps = Steps()
    read, launch = round(need * ns), "grid=1 resident=1"
    steps._builder.op("aten.add.Tensor", [], [], read_bytes=read, written_bytes=0, duration=ns, launch=launch)
    return steps


def test_the_memory_is_shared_among_programs() -> None:
    """1000 and 1000 of 1329 bytes/ns: 664.5 each; 1000 and 300 have what they need; in turns each has all of it."""
    d = 1_000_000
    slowed = -(-1000 * d * 2 // 1329)
    assert tenants(mps(), memory_bound(d, 1000), memory_bound(d, 1000)) == [[(0, slowed)], [(0, slowed)]]
    assert tenants(mps(), memory_bound(d, 1000), memory_bound(d, 300)) == [[(0, d)], [(0, d)]]
    turns = Tenancy(SLICES, (Tenant(slice=d),) * 2, FREE)
    assert tenants(turns, memory_bound(d, 1000), memory_bound(d, 1000)) == [[(0, d)], [(d, 2 * d)]]


def test_programs_that_together_do_not_fill_the_gpu_run_side_by_side() -> None:
    """54 and 54 of 108; 54 and 81: of each multiprocessor half and three quarters are wanted, and half is what each gets.

    The second goes at 2/3 until 1000, then alone: 333 of its 1000 are left.
    """
    half, most = "grid=54 resident=1", "grid=81 resident=1"
    assert tenants(mps(), kernels(1000, launch=half), kernels(1000, launch=half)) == [[(0, 1000)], [(0, 1000)]]
    assert tenants(mps(), kernels(1000, launch=half), kernels(1000, launch=most)) == [[(0, 1000)], [(0, 1334)]]


def test_what_the_driver_does_not_offer_is_refused() -> None:
    with pytest.raises(GpusimError, match="49 programs are more than the 48 clients of an MPS server"):
        mps(49)
    with pytest.raises(GpusimError, match="yields is 'warps'"):
        Tenancy(MPS, (Tenant(),), yields="warps")
    with pytest.raises(GpusimError, match="tenant 0 has a time slice of 0 ns"):
        Tenancy(SLICES, (Tenant(slice=0),))
    with pytest.raises(GpusimError, match="'slices' is no way to share a GPU"):
        Tenancy("slices", (Tenant(),))
    with pytest.raises(GpusimError, match="program 0 shares its GPU with others, but not its multiprocessors"):
        tenants(slices(), kernels(1), kernels(1), share="none")
