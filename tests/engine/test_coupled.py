"""Do programs on the devices of one machine share its links, and meet where they have to?

See `hand_worked` for the machine: 10 bytes/ns to a device, 8 from it, 1000 ns of latency.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from coupled_programs import copies, drawn, meeting, played, working
from hand_worked import BLOCK, Steps
from plain_python import fingerprint, interpreted
from test_side_by_side import programs

from gpusim.base.errors import GpusimError
from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.simulate import prepared, simulate
from gpusim.machine.topology.connections import Connections, Meeting
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.grain import TENSOR
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT


def together(between: Connections, *each: Steps, **choices: Any) -> list[Result]:
    """The results of programs on one machine."""
    return played(between, *each, **choices).results


def spans(result: Result) -> list[tuple[int, int]]:
    """(start, end) of each activity in the order of submission, ns."""
    assert result.log is not None
    at = {kind: dict(result.log[result.log["kind"] == kind][["a", "t"]].tolist()) for kind in (log.START, log.END)}
    return [(start, at[log.END][number]) for number, start in sorted(at[log.START].items())]


@pytest.mark.agreement
@pytest.mark.slow
def test_programs_that_share_no_link_are_each_as_it_is_alone() -> None:
    each = [prepared(**run) for run in programs(40)]
    Coupled([run.simulation for run in each], Connections()).advance(state.NEVER)
    for run, alone in zip(each, (simulate(**run) for run in programs(40)), strict=True):
        assert fingerprint(run.result()) == fingerprint(alone)


@pytest.mark.hand_worked
def test_copies_of_two_devices_share_the_uplink_of_their_switch() -> None:
    """10 blocks at 5 bytes/ns each: 20,480 ns, where one device alone takes half of that."""
    between = Connections({"up": 10.0}, [{"h2d": ("up",)}, {"h2d": ("up",)}])
    assert [spans(r) for r in together(between, copies((COPY_IN, 10)), copies((COPY_IN, 10)))] == [[(0, 21_480)]] * 2
    assert [spans(r) for r in together(between, copies((COPY_IN, 10)), copies((COPY_OUT, 8)))] == [[(0, 11_240)], [(0, 11_240)]]
    apart = Connections({"up": 10.0, "other": 10.0}, [{"h2d": ("up",)}, {"h2d": ("other",)}])
    assert [spans(r) for r in together(apart, copies((COPY_IN, 10)), copies((COPY_IN, 10)))] == [[(0, 11_240)]] * 2


@pytest.mark.hand_worked
def test_what_ends_first_leaves_its_share_to_the_other() -> None:
    """5 blocks at 5 bytes/ns: 10,240 ns; the other has moved 5 of its 10 by then and takes 5,120 ns for the rest."""
    between = Connections({"up": 10.0}, [{"h2d": ("up",)}, {"h2d": ("up",)}])
    results = together(between, copies((COPY_IN, 10)), copies((COPY_IN, 5)))
    assert [spans(r) for r in results] == [[(0, 1000 + 10_240 + 5_120)], [(0, 1000 + 10_240)]]


@pytest.mark.hand_worked
def test_bytes_of_others_flow_beside_the_programs() -> None:
    """A checkpoint's copy of 4 bytes/ns leaves 6 of the uplink's 10; from 2500 ns on it wants 8, and each has half."""
    def beside(rate: float, since: int, size: float = 1e9) -> list[tuple[int, int]]:
        others = Meeting((), since, size, rate, ("up",), "others")
        return spans(together(Connections({"up": 10.0}, [{"h2d": ("up",)}], [others]), copies((COPY_IN, 10)))[0])

    bytes_ = 10 * BLOCK
    assert beside(4.0, 0) == [(0, 1000 + -(-bytes_ // 6))]
    assert beside(8.0, 2500) == [(0, 2500 + (bytes_ - 15_000) // 5)]
    assert beside(8.0, 2500, 5000.0) == [(0, 2500 + 1000 + (bytes_ - 15_000 - 5000) // 10)]  # 5000 bytes are gone at 3500


@pytest.mark.hand_worked
def test_a_collective_starts_when_the_last_of_its_members_has_come() -> None:
    results = together(Connections({"between": 20.0}, meetings=[meeting()]), working(3000), working(7000))
    end = 7000 + 500 + 10_240
    assert [spans(r) for r in results] == [[(0, 3000), (3000, end)], [(0, 7000), (7000, end)]]
    assert [r.metrics.get("collective_wait_ns", 0) for r in results] == [4000, 0]


@pytest.mark.hand_worked
def test_waiting_for_other_members_is_the_collectives_time_and_no_stall() -> None:
    """The stream of the collective never stands still; the one that waits for its end does, from the start to 17,740 ns."""
    steps = working(3000)
    steps.record(0, 0)
    steps.wait(0, 1)
    steps.kernel(100, stream=1)
    end = 7000 + 500 + 10_240
    first, second = together(Connections({"between": 20.0}, meetings=[meeting()]), steps, working(7000))
    assert first.log is not None and second.log is not None
    assert spans(first)[2:] == [(end, end + 100)]
    stalls = first.log[first.log["kind"] == log.STALL][["t", "a", "b", "addr", "bytes"]]
    assert stalls.tolist() == [(end, 2, log.BY_EVENT, 1, end)]
    assert (first.metrics["stall_event_ns"], first.metrics["stall_ns"], first.metrics["collective_wait_ns"]) == (end, end, 4000)
    assert second.metrics["stall_ns"] == 0 and not (second.log["kind"] == log.STALL).any()


def beside_a_collective(blocks: int, **choices: Any) -> list[tuple[int, int]]:
    """Spans of a collective to 10,740 ns, of so many multiprocessors, and of a kernel that would take 10,800 on all 108."""
    first, second = copies((COLLECTIVE, 10)), copies((COLLECTIVE, 10))
    first.kernel(10_800, stream=1)
    met = meeting(members=((0, 0), (1, 0)), blocks=blocks)
    return spans(together(Connections({"between": 20.0}, meetings=[met]), first, second, **choices)[0])


@pytest.mark.hand_worked
def test_a_collective_takes_its_multiprocessors_from_kernels() -> None:
    """A quarter of them for 10,740 ns, in which the kernel does 8055 of its 10,800."""
    assert beside_a_collective(27) == [(0, 10_740), (0, 10_740 + 10_800 - 8055)]
    assert beside_a_collective(0) == beside_a_collective(27, share="memory") == [(0, 10_740), (0, 10_800)]
    assert beside_a_collective(27, active_thread_percentage=50)[1] == (0, 10_740 + 10_800 * 2 - 10_740 // 2)


@pytest.mark.hand_worked
def test_a_collective_waits_for_multiprocessors_that_a_kernel_keeps_and_so_do_the_others() -> None:
    """A grid that is resident at once keeps all of them for 2000 ns."""
    first, second = Steps(), copies((COLLECTIVE, 10))
    first.kernel(2000, stream=1, launch="grid=108 block=1024 shared=100000")
    first.carry(COLLECTIVE, 0, 10)
    met = meeting(members=((0, 1), (1, 0)), blocks=1)
    results = together(Connections({"between": 20.0}, meetings=[met]), first, second)
    assert [spans(r)[-1] for r in results] == [(2000, 12_740), (0, 12_740)]
    assert results[1].metrics["collective_wait_ns"] == 2000


@pytest.mark.hand_worked
def test_a_link_that_is_passed_twice_has_half_its_rate() -> None:
    results = together(Connections({"between": 8.0}, meetings=[meeting(route=("between", "between"))]), working(1), working(1))
    assert spans(results[0])[1] == (1, 1 + 500 + 25_600)


@pytest.mark.hand_worked
def test_a_copy_and_a_collective_over_one_link_slow_each_other_down() -> None:
    """The copy flows from 1000 ns on, the collective from 1500: at 5 bytes/ns each, until 14,340 when the copy has ended."""
    between = Connections({"up": 10.0}, [{"h2d": ("up",)}, {}], [meeting(route=("up",))])
    first, second = together(between, working(1000, beside=7), working(500))
    copied = 1000 + 500 + round((7 * BLOCK - 500 * 10) / 5)
    moved = (copied - 1500) * 5
    end = copied + round((10 * BLOCK - moved) / 10)
    assert spans(first) == [(0, 1000), (1000, end), (0, copied)] and spans(second) == [(0, 500), (500, end)]


@pytest.mark.hand_worked
def test_copies_of_a_program_that_runs_out_of_memory_stop() -> None:
    """At 5000 ns the first asks for more than there is; the other has moved 4000 ns at 5 bytes/ns, and goes on at 10."""
    full = copies((COPY_IN, 10))
    full.until(5000)
    full.alloc(3)
    between = Connections({"up": 10.0}, [{"h2d": ("up",)}, {"h2d": ("up",)}])
    first, second = together(between, full, copies((COPY_IN, 10)), capacity_bytes=2 * BLOCK)
    assert first.log is not None and first.outcome == "oom" and first.metrics["makespan_ns"] == 5000
    assert first.log[["t", "kind"]].tolist()[-2:] == [(5000, log.CREATE), (5000, log.OOM)]
    assert spans(second) == [(0, 5000 + (10 * BLOCK - 20_000) // 10)]


@pytest.mark.hand_worked
def test_what_all_have_begun_together_goes_on_when_one_of_them_runs_out_of_memory() -> None:
    full = working(1000)
    full.until(2000)
    full.alloc(3)
    first, second = together(Connections({"between": 20.0}, meetings=[meeting()]), full, working(500), capacity_bytes=2 * BLOCK)
    assert first.outcome == "oom" and first.metrics["makespan_ns"] == 2000
    assert spans(second) == [(0, 500), (500, 1000 + 500 + 10_240)]


@pytest.mark.hand_worked
@pytest.mark.parametrize("grain", [TENSOR, BLOCK])
def test_a_program_that_waits_for_one_that_ran_out_of_memory_fails(grain: int) -> None:
    full, other = Steps(), working(500)
    full.kernel(100, writes=(full.alloc(3),))
    full.carry(COLLECTIVE, 0, 10)
    other.alloc()
    between = Connections({"between": 20.0}, meetings=[meeting()])
    first, second = together(between, full, other, capacity_bytes=2 * BLOCK, grain=grain)
    assert [first.outcome, second.outcome] == ["oom", "failed"]
    assert second.failure == {"time_ns": 500, "advice": "a rank that it waits for ran out of memory"}
    assert second.log is not None and second.log[["t", "kind", "a"]].tolist()[-1] == (500, log.START, 1)


def test_members_that_never_come_are_named() -> None:
    """The first program comes to one collective first, the second to the other."""
    two = [meeting(members=((0, 0), (1, 1))), meeting(members=((0, 1), (1, 0)))]
    both = Steps()
    for _ in range(2):
        both.carry(COLLECTIVE, 0, 10)
    with pytest.raises(GpusimError, match=r"rank 0 waits in an exchange \(its operator 0\) for rank 1 \(its operator 1\)"):
        together(Connections({"between": 20.0}, meetings=two), both, both)


def shared_runs(count: int) -> list[Any]:
    """Random programs whose copies share the uplinks of two switches."""
    each = [prepared(**run) for run in programs(count)]
    beyond = [{"h2d": (f"up {p % 2}",), "d2h": (f"up {p % 2}",)} for p in range(count)]
    Coupled([run.simulation for run in each], Connections({"up 0": 20.0, "up 1": 30.0}, beyond)).advance(state.NEVER)
    return [fingerprint(run.result()) for run in each]


def drawn_runs(count: int) -> list[Any]:
    """Random programs that meet, on as many machines."""
    return [[fingerprint(result) for result in drawn(seed).results] for seed in range(count)]


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize(("runs", "count"), [(shared_runs, 6), (drawn_runs, 3)])
def test_compiled_and_interpreted_runs_agree(runs: Callable[[int], list[Any]], count: int) -> None:
    assert interpreted("test_coupled", f"t.{runs.__name__}({count})") == runs(count)


@pytest.mark.slow
def test_what_is_shared_makes_nothing_faster_and_something_slower() -> None:
    shared, alone = shared_runs(12), [fingerprint(simulate(**run)) for run in programs(12)]
    assert shared != alone
