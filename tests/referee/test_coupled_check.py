"""Does the referee pass runs on the devices of one machine that are right, and find every mistake in what they share?

See `hand_worked` for the machine, and `coupled_programs` for the programs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from coupled_programs import Together, copies, drawn, meeting, played, working
from fault_tools import Case, Edit
from hand_worked import BLOCK

from gpusim.machine.topology.connections import Connections
from gpusim.referee import check
from gpusim.referee.report import Report
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.trace import COLLECTIVE, COPY_IN

BETWEEN = Connections({"between": 20.0}, meetings=[meeting()])
UPLINK = Connections({"up": 10.0}, [{"h2d": ("up",)}, {"h2d": ("up",)}])
END = 7000 + 500 + 10_240


def waiting() -> Together:
    """The first comes to a collective at 3000 ns, the second at 7000: it ends at 17,740 ns."""
    return played(BETWEEN, working(3000), working(7000))


def copying() -> Together:
    """10 blocks each over one uplink, at 5 bytes/ns: both end at 21,480 ns.  Kernels run beside them."""
    both = copies((COPY_IN, 10))
    both.kernel(1000, stream=1)
    return played(UPLINK, both, both)


def ended(ran: Together, rank: int, activity: int, end: int) -> Result:
    """The result of a rank of which an activity ends at another time, with all that follows from that in itself."""
    case = Case(ran.results[rank], ran.traces[rank], ran.traces[rank], ran.profiles[rank])
    edit = Edit(case)
    edit.span(next(one for one in case.activities if one.number == activity), end=end)
    found = edit.finish()
    assert found is not None
    return found


def said(reports: list[Report]) -> list[str]:
    """What is wrong, of each."""
    assert all(report.ok is not None for report in reports)
    return ["; ".join(map(str, report.violations)) for report in reports]


def alone(ran: Together, results: list[Result]) -> list[bool | None]:
    """What the referee says of each as if it had run by itself, of those that need nothing of others."""
    return [check(*one).ok for one in zip(results, ran.traces, ran.profiles, strict=True)]


@pytest.mark.slow
@pytest.mark.agreement
def test_a_hundred_machines_of_random_programs_are_right() -> None:
    outcomes, met, shared = Counter[str](), 0, 0
    for seed in range(100):
        ran = drawn(seed)
        for rank, report in enumerate(ran.checked()):
            assert report.ok is True, (seed, rank, report.violations[:3])
            outcomes[ran.results[rank].outcome] += 1
            met += report.facts["members of meetings"]
            shared += report.facts["copies against shared links"]
    assert outcomes["finished"] > 300 and outcomes["oom"] > 5 and outcomes["failed"] > 5
    assert met > 2000 and shared > 5000


def test_one_run_without_a_log_leaves_all_unchecked() -> None:
    ran = waiting()
    assert [report.ok for report in ran.checked(results=[ran.results[0], replace(ran.results[1], log=None)])] == [None, None]


def test_a_log_that_cannot_be_followed_leaves_no_rank_right() -> None:
    ran = waiting()
    assert ran.results[1].log is not None
    first, second = said(ran.checked(results=[ran.results[0], replace(ran.results[1], log=ran.results[1].log[:-1])]))
    assert "activity 1 never ends though the run finished" in second
    assert first == "when it ends follows from all ranks, of which another is wrong; expected ranks that can be followed"


def test_what_is_right_alone_is_right_on_a_machine_without_shared_links() -> None:
    ran = played(Connections(), copies((COPY_IN, 10)), working(1000, beside=7))
    assert alone(ran, ran.results) == [True, True] == [report.ok for report in ran.checked()]


def test_a_run_on_a_machine_with_others_is_not_right_alone() -> None:
    for ran in (waiting(), copying()):
        assert alone(ran, ran.results) == [False, False]
        assert [report.ok for report in ran.checked()] == [True, True]


# --- planted mistakes -----------------------------------------------------------------------------------------------------


def test_a_collective_that_takes_other_multiprocessors_than_its_meeting_says_is_found() -> None:
    first, second = copies((COLLECTIVE, 10)), copies((COLLECTIVE, 10))
    first.kernel(10_800, stream=1)

    def between(blocks: int) -> Connections:
        return Connections({"between": 20.0}, meetings=[meeting(members=((0, 0), (1, 0)), blocks=blocks)])

    ran = played(between(27), first, second)
    assert said(ran.checked()) == ["", ""]
    found = said(ran.checked(between=between(0)))[0]
    assert "operator 1, takes 13485 ns; expected 10800 ns: its duration on this machine" in found


def test_a_meeting_that_ends_later_in_one_log_is_found() -> None:
    ran = waiting()
    for rank in (0, 1):
        results = list(ran.results)
        results[rank] = ended(ran, rank, 1, END + 2)
        found = said(ran.checked(results=results))
        assert f"operator 1, ends at {END + 2} ns; expected {END} ns: operator 1 of rank 1 comes last" in found[rank]


def test_a_meeting_that_ends_within_rounding_but_not_for_all_at_once_is_found() -> None:
    ran = waiting()
    found = said(ran.checked(results=[ended(ran, 0, 1, END + 1), ran.results[1]]))
    assert f"{END + 1} ns; expected one end of all that meet, not {END + 1} ns of rank 0, {END} ns of rank 1" in found[0]


@pytest.mark.parametrize("by", [-2, 2])
def test_a_meeting_that_ends_at_another_time_in_all_logs_is_found(by: int) -> None:
    ran = waiting()
    for found in said(ran.checked(results=[ended(ran, rank, 1, END + by) for rank in (0, 1)])):
        assert f"ends at {END + by} ns; expected {END} ns" in found


def test_a_copy_that_is_faster_than_the_shared_link_lets_it_is_found() -> None:
    """11,240 ns is what it takes alone; then the link carries both at once, and the other would have had more of it."""
    ran = copying()
    found = said(ran.checked(results=[ended(ran, 0, 0, 11_240), ran.results[1]]))
    assert "activity 0, operator 0, takes 11240 ns; expected 21480 ns" in found[0]
    found = said(ran.checked(results=[ended(ran, rank, 0, 11_240) for rank in (0, 1)]))
    assert any("the link up has carried 102400 bytes too many by here; expected at most 10 bytes/ns" in one for one in found)


def test_a_copy_that_is_slower_than_it_has_to_be_is_found() -> None:
    ran = copying()
    found = said(ran.checked(results=[ended(ran, 0, 0, 21_482), ran.results[1]]))
    assert "takes 21482 ns; expected 21480 ns" in found[0] and not found[1]


def test_a_meeting_that_is_faster_than_its_links_is_found() -> None:
    ran = played(Connections({"between": 5.0}, meetings=[meeting()]), working(1), working(1))
    assert [report.ok for report in ran.checked()] == [True, True]
    found = "; ".join(said(ran.checked(results=[ended(ran, rank, 1, 501 + 10_240) for rank in (0, 1)])))
    assert "activity 1 moves 102400 bytes in 10240 ns; expected at most 5 bytes/ns (between)" in found


def test_a_meeting_over_links_of_the_devices_slows_their_copies_and_is_slowed() -> None:
    over = Connections(meetings=[meeting(route=((0, "h2d"), (1, "d2h")))])
    ran = played(over, working(1000, beside=7), working(500))
    assert [report.ok for report in ran.checked()] == [True, True]
    elsewhere = replace(over, meetings=[meeting(route=((1, "h2d"), (1, "d2h")))])
    assert [report.ok for report in ran.checked(between=elsewhere)] == [False, False]


def test_an_omitted_member_is_found() -> None:
    """Without the second, the first need not have waited; the second is a collective by itself, which takes another time."""
    ran = waiting()
    lacking = replace(BETWEEN, meetings=[meeting(members=((0, 1),))])
    found = said(ran.checked(between=lacking))
    assert f"ends at {END} ns; expected {3000 + 500 + 10_240} ns: operator 1 of rank 0 comes last" in found[0]
    assert "activity 1, operator 1, takes 10740 ns" in found[1]


def test_a_meeting_that_ends_though_a_member_never_came_is_found() -> None:
    ran = waiting()
    assert ran.results[1].log is not None
    until = ran.results[1].log[ran.results[1].log["t"] < 7000]
    results = [ran.results[0], replace(ran.results[1], log=until, outcome="failed")]
    found = said(ran.checked(results=results))
    assert f"operator 1, ends at {END} ns; expected no end: operator 1 of rank 1, which it meets, has not started" in found[0]


def test_a_member_that_never_ends_though_the_run_goes_on_is_found() -> None:
    """The first runs out of memory at 30,000 ns: its collective and its copy were over long before."""
    full = working(3000, beside=1)
    full.until(30_000)
    full.alloc(3)
    ran = played(BETWEEN, full, working(7000), capacity_bytes=2 * BLOCK)
    assert [report.ok for report in ran.checked()] == [True, True]
    whole = ran.results[0].log
    assert whole is not None and ran.results[0].outcome == "oom"
    for activity, words in ((1, f"operator 1, never ends; expected {END} ns"), (2, "activity 2 never ends, though the run")):
        kept = whole[(whole["kind"] != log.END) | (whole["a"] != activity)]
        assert words in said(ran.checked(results=[replace(ran.results[0], log=kept), ran.results[1]]))[0]


@pytest.mark.parametrize(("rank", "waited"), [(0, 4001), (0, 0), (1, 4000)])
def test_a_wrong_time_of_waiting_is_found(rank: int, waited: int) -> None:
    ran = waiting()
    results = list(ran.results)
    results[rank] = replace(results[rank], metrics={**results[rank].metrics, "collective_wait_ns": waited})
    found = said(ran.checked(results=results))[rank]
    assert found == f"metric collective_wait_ns is {waited}; expected {(4000, 0)[rank]}, as the starts of all members add up"


def test_swapped_starts_are_found() -> None:
    """Two collectives of one stream start in the other order: the later one first."""
    both = working(1000)
    both.carry(COLLECTIVE, 0, 5)
    two = replace(BETWEEN, meetings=[meeting(), meeting(members=((0, 2), (1, 2)), size=5 * BLOCK)])
    ran = played(two, both, both)
    assert [report.ok for report in ran.checked()] == [True, True]
    results = []
    for result in ran.results:
        assert result.log is not None
        swapped = result.log.copy()
        runs = np.isin(swapped["kind"], (log.START, log.END)) & (swapped["a"] > 0)
        swapped["a"][runs] = 3 - swapped["a"][runs]
        results.append(replace(result, log=swapped))
    assert all("overtakes another" in found for found in said(ran.checked(results=results)))


def test_starts_that_are_another_ranks_are_found() -> None:
    """Each result is right, and stands where the other's should be."""
    ran = waiting()
    assert [report.ok for report in ran.checked(results=ran.results[::-1])] == [False, False]


def moved_earlier(result: Result, by: int) -> Result:
    """The run as if its kernel had been shorter and its member had come earlier."""
    assert result.log is not None
    moved = result.log.copy()
    moved["t"][(moved["t"] >= 7000) & (moved["t"] < END)] -= by
    metrics: dict[str, Any] = dict(result.metrics)
    metrics["compute_busy_ns"] -= by
    metrics["program_transfer_ns"] += by
    metrics["compute_idle_share"] = 1 - metrics["compute_busy_ns"] / metrics["makespan_ns"]
    return replace(result, log=moved, metrics=metrics)


def test_a_member_that_came_earlier_than_the_others_say_is_found() -> None:
    ran = waiting()
    found = said(ran.checked(results=[ran.results[0], moved_earlier(ran.results[1], 100)]))
    assert f"ends at {END} ns; expected {END - 100} ns: operator 1 of rank 1 comes last, at 6900 ns" in found[0]
    assert "collective_wait_ns is 4000; expected 3900" in found[0]


@pytest.mark.parametrize(("between", "words"), [
    (replace(BETWEEN, meetings=[meeting(), meeting()]), "operator 1 is in meeting 1; expected one meeting of each operator"),
    (replace(BETWEEN, meetings=[meeting(members=((0, 0), (1, 1)))]), "operator 0 is in meeting 0; expected an operator that"),
    (replace(BETWEEN, meetings=[meeting(members=((0, 1), (1, 2)))]), "operator 2 of rank 1 meets others; expected an operator"),
    (replace(BETWEEN, meetings=[meeting(members=((0, 1), (2, 1)))]), "operator 1 of rank 2 meets others; expected an operator"),
    (replace(BETWEEN, meetings=[meeting(route=("ether",))]), "bytes pass ether; expected a link of the machine"),
    (replace(BETWEEN, meetings=[meeting(route=((1, "nvlink"),))]), "bytes pass nvlink of rank 1; expected a link"),
    (replace(BETWEEN, beyond=[{"h2d": ("up",)}, {}]), "bytes pass up; expected a link of the machine"),
])  # fmt: skip
def test_connections_that_cannot_be_are_found(between: Connections, words: str) -> None:
    assert words in "; ".join(said(waiting().checked(between=between)))


CHANGES = {
    "a faster uplink": lambda b: replace(b, rates={**b.rates, "up 0": 14.0}),
    "a slower fabric": lambda b: replace(b, rates={**b.rates, "fabric": 30.0}),
    "no way beyond": lambda b: replace(b, beyond=()),
    "a longer latency": lambda b: replace(b, meetings=[replace(m, latency=m.latency + 2) for m in b.meetings]),
    "more bytes": lambda b: replace(b, meetings=[replace(m, size=m.size * 1.1 + 1000) for m in b.meetings]),
    "a meeting less": lambda b: replace(b, meetings=b.meetings[1:]),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", CHANGES)
def test_random_programs_are_not_right_on_another_machine(name: str) -> None:
    """Where something that they share plays a part; it does for most."""
    runs = [drawn(seed) for seed in range(12)]
    refused = [any(report.ok is False for report in ran.checked(between=CHANGES[name](ran.between))) for ran in runs]
    assert sum(refused) >= (6 if "fabric" in name or "uplink" in name else 11)


def ends_with_room(ran: Together) -> list[tuple[int, int, int]]:
    """Rank, operator and record of the ends of members behind which nothing happens for 2 ns."""
    found = []
    for rank, operator in (member for each in ran.between.meetings for member in each.members):
        whole = ran.results[rank].log
        assert whole is not None
        activity = whole["addr"][(whole["kind"] == log.ISSUE) & (whole["a"] == operator)]
        records = np.flatnonzero((whole["kind"] == log.END) & np.isin(whole["a"], activity)).tolist()
        found += [(rank, operator, i) for i in records if i + 1 == len(whole) or whole["t"][i + 1] >= whole["t"][i] + 2]
    return found


@pytest.mark.slow
def test_ends_that_move_by_two_ns_are_found_among_random_programs() -> None:
    planted, missed = 0, []
    for seed in range(15):
        ran = drawn(seed)
        for rank, operator, record in ends_with_room(ran)[::5]:
            whole = ran.results[rank].log
            assert whole is not None
            moved = whole.copy()
            moved["t"][record] += 2
            results = [replace(one, log=moved) if one is ran.results[rank] else one for one in ran.results]
            planted += 1
            if f"operator {operator}, ends at {moved['t'][record]} ns" not in said(ran.checked(results=results))[rank]:
                missed.append((seed, rank, operator))
    assert planted > 30 and missed == []
