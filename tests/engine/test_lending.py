"""Is memory that devices lend each other had, used and given back when it should be, to the nanosecond?

See `hand_worked` for the devices: a block of 10,240 bytes takes 1280 ns to the host and 1024 from it, beside 1000 of latency.
Between two devices it takes 102.4 ns beside 500 (`lending_programs`).
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from coupled_programs import Together, meeting
from hand_worked import BLOCK, Steps, machine, spans, three_tensors_in_two_blocks
from lending_programs import drawn_lenders, lending, lent, ran
from plain_python import fingerprint, interpreted

from gpusim import policy
from gpusim.referee.report import Report
from gpusim.results import log
from gpusim.trace.trace import COLLECTIVE, COPY_OUT

HOST_ONLY = 8284
"""ns of three_tensors_in_two_blocks over the link to the host: two copies out, 2280 ns each, one in, 2024, and kernels."""


def wants(blocks: float, at: int, ns: int = 100) -> Steps:
    """A program that begins to use so many blocks at this time."""
    steps = Steps()
    steps.until(at)
    steps.kernel(ns, writes=(steps.alloc(blocks),))
    return steps


def right(together: Together) -> Together:
    """The same, after the referee has agreed."""
    reports: list[Report] = together.checked()
    assert [(report.ok, report.violations[:2]) for report in reports] == [(True, ())] * len(reports)
    return together


def makespans(together: Together) -> list[int]:
    return [int(result.metrics["makespan_ns"]) for result in together.results]


pytestmark = pytest.mark.hand_worked


def test_an_idle_neighbour_takes_what_has_to_leave() -> None:
    """a leaves at 1000 and is there at 1602.4; c begins behind b at 2000, b leaves until 2603, a comes until 3206."""
    ran = right(lent(three_tensors_in_two_blocks(), blocks=[2], idle=[10]))
    (result,) = ran.results
    assert spans(result) == {
        "kernel": [(0, 1000), (1000, 2000), (2000, 2500), (3206, 3906)],
        "out": [(1000, 1603), (2000, 2603)], "in": [(2603, 3206)],
    }  # fmt: skip
    assert result.metrics["peer_out_bytes"] == 2 * BLOCK == 2 * result.metrics["peer_in_bytes"]
    assert result.metrics["host_out_bytes"] == 0


def test_a_neighbour_without_room_is_passed_over() -> None:
    """Half a block is no room: both go to the host, as without a neighbour.  One block: the second goes there."""
    assert makespans(right(lent(three_tensors_in_two_blocks(), blocks=[2], idle=[0.5]))) == [HOST_ONLY]
    (result,) = right(lent(three_tensors_in_two_blocks(), blocks=[2], idle=[1])).results
    assert spans(result)["out"] == [(1000, 1603), (2000, 4280)]
    assert (result.metrics["peer_out_bytes"], result.metrics["host_out_bytes"]) == (BLOCK, BLOCK)


def test_a_busy_neighbour_is_of_no_use_and_loses_nothing() -> None:
    """It asks at once for all of its memory: what was promised goes to the host, and nothing waits."""
    for pool in ("none", "local_first", "least_loaded", "interleave", "oracle"):
        together = right(lent(three_tensors_in_two_blocks(), wants(2, at=0), blocks=[2, 2], pool=pool))
        assert makespans(together) == [HOST_ONLY, 100]
    full = right(lent(wants(2, at=0), three_tensors_in_two_blocks(), blocks=[2, 2]))
    assert makespans(full) == [100, HOST_ONLY] and full.results[1].metrics["recalls"] == 0


def test_a_lender_waits_until_others_have_left() -> None:
    """At 1700 a is there: it goes on to the host, 2280 ns over the lender's link, and the lender begins at 3980.

    b has not left yet: it goes to the host at 2000, until 4280, and a comes from there until 6304.
    """
    together = right(lent(three_tensors_in_two_blocks(), wants(2, at=1700), blocks=[2, 2]))
    assert makespans(together) == [7004, 4080]
    borrower, lender = together.results
    assert (borrower.metrics["recalls"], borrower.metrics["recall_bytes"]) == (2, BLOCK)
    assert (lender.metrics["recall_wait_ns"], lender.metrics["lent_peak_bytes"]) == (3980 - 1700, 2 * BLOCK)
    assert borrower.metrics["peer_in_bytes"] == 0 and borrower.metrics["host_in_bytes"] == BLOCK


def test_what_is_on_the_way_back_is_free_when_it_has_left() -> None:
    """From 2603 to 3206 a comes back.  The lender that wants one block at 2700 has it when a has left."""
    together = right(lent(three_tensors_in_two_blocks(), wants(1, at=2700), blocks=[2, 2]))
    assert makespans(together) == [3906, 3306]
    assert together.results[0].metrics["recall_bytes"] == 0


def test_what_its_device_has_too_is_dropped_at_once() -> None:
    """From 3206 on a is on its device as well: of two blocks the lender gets one at once, and waits for b's 2280 ns."""
    together = right(lent(three_tensors_in_two_blocks(), wants(2, at=3300), blocks=[2, 2]))
    assert makespans(together)[1] == 3300 + 2280 + 100
    assert together.results[0].metrics["recall_bytes"] == BLOCK


def test_what_comes_back_shares_the_lenders_link_with_its_own_copies() -> None:
    """The lender sends 10 blocks to its host from 1000 to 13,800 ns alone.  a flows back from 2700 on, at 4 bytes/ns."""
    lender = wants(2, at=1700)
    lender.carry(COPY_OUT, 1, 10)
    first = Steps()
    first.carry(COPY_OUT, 1, 10)
    first.until(1700)
    first.kernel(100, writes=(first.alloc(2),))
    together = right(lent(three_tensors_in_two_blocks(), first, blocks=[2, 2]))
    assert together.results[1].metrics["recall_wait_ns"] == 1000 + BLOCK / 4


def test_swaps_and_a_collective_share_the_link_between_devices() -> None:
    """A collective of 10 blocks flows from 500 on at 60 bytes/ns, a from 1500 on: at 50 each, until a is there at 1704.8.

    By then 70,240 bytes of the collective have arrived; the rest takes 536 ns.
    """
    borrower = Steps()
    borrower.carry(COLLECTIVE, 1, 10)
    a, b = borrower.alloc(), borrower.alloc()
    borrower.kernel(1000, writes=(a,))
    borrower.kernel(1000, writes=(b,))
    borrower.kernel(500, writes=(borrower.alloc(),))
    other = Steps()
    other.carry(COLLECTIVE, 0, 10)
    both = meeting(members=((0, 0), (1, 0)), rate=60.0, route=("0>1",))
    together = right(lent(borrower, other, blocks=[2, 2], meetings=[both]))
    found = spans(together.results[0])
    assert found["out"] == [(1000, 1705)] and found["kernel"][0] == (0, 2241)


def test_a_program_that_has_ended_leaves_nothing_behind() -> None:
    """The borrower ends at 3906 with b in the neighbour's memory: at 4000 that is free, and nothing is copied."""
    together = right(lent(three_tensors_in_two_blocks(), wants(2, at=4000), blocks=[2, 2]))
    assert makespans(together) == [3906, 4100]
    assert together.results[1].metrics["recall_wait_ns"] == 0


def test_a_lender_whose_borrower_has_no_room_evicts_its_own() -> None:
    """Half a block of host memory: a has left at 3206, b stays, and the lender, which has nothing else to evict, fails."""
    together = right(lent(three_tensors_in_two_blocks(), wants(2, at=2610), blocks=[2, 2], host=0.5))
    failure = together.results[1].failure
    assert failure is not None and failure["time_ns"] == 3206
    assert "other devices' programs have 10 KiB of this memory and nowhere else to put it" in failure["advice"]
    own = wants(1, at=2610)
    own.kernel(100, writes=(own.alloc(),))
    assert makespans(right(lent(three_tensors_in_two_blocks(), own, blocks=[2, 2], host=1)))[1] > 3206


# --- policies -------------------------------------------------------------------------------------------------------------


def swapped(blocks: int) -> Steps:
    """So many blocks leave, one after the other, when one more block does not fit."""
    steps = Steps()
    tensors = [steps.alloc() for _ in range(blocks)]
    for tensor in tensors:
        steps.kernel(10_000, writes=(tensor,))
    for _ in range(blocks):
        steps.kernel(10_000, writes=(steps.alloc(),))
    return steps


def taken(together: Together) -> list[int]:
    """The memories that took in what left the first device, in order."""
    records = together.results[0].log
    assert records is not None
    return [int(b) & 255 for kind, b in records[["kind", "b"]].tolist() if kind == log.COPY and b & 255]


def test_lenders_take_turns() -> None:
    assert taken(right(lent(swapped(4), blocks=[4], idle=[9, 9], pool="interleave"))) == [1, 2, 1, 2]
    assert taken(right(lent(swapped(4), blocks=[4], idle=[9, 9]))) == [1, 1, 1, 1]


def test_the_emptiest_lender_is_the_least_loaded() -> None:
    assert taken(right(lent(swapped(4), blocks=[4], idle=[2, 4.5], pool="least_loaded"))) == [2, 2, 2, 1]
    assert taken(right(lent(swapped(4), blocks=[4], idle=[4], pool="least_loaded(reserve=0.5)"))) == [1, 1, 2, 2]


def test_the_nearest_memory_by_its_links_may_be_the_host() -> None:
    """A device that is reached at 5 bytes/ns is farther than the host; one at 100 is not."""
    profiles = [machine()]
    between = lending(profiles, [9 * BLOCK, 9 * BLOCK])
    first, *others = between.tiers[0]
    slow = replace(between, tiers=[(replace(first, read=5.0, write=5.0), *others)])
    choices: dict[str, Any] = {"place": "first_fit", "capacity_bytes": 4 * BLOCK}
    for pool, expected in (("by_topology", [2] * 4), ("none", [1] * 4)):
        assert taken(right(ran([swapped(4).trace()], profiles, slow, [{**choices, "pool": pool}]))) == expected
    only = replace(slow, tiers=[(slow.tiers[0][0], replace(others[-1]))])
    assert taken(right(ran([swapped(4).trace()], profiles, only, [{**choices, "pool": "by_topology"}]))) == [2] * 4


def test_memory_of_other_hosts_comes_last() -> None:
    profiles = [machine()]
    between = lending(profiles, [2 * BLOCK, 1 * BLOCK])
    first, *others = between.tiers[0]
    far = replace(between, tiers=[(replace(first, far=True), *others)])
    choices: dict[str, Any] = {"place": "first_fit", "capacity_bytes": 4 * BLOCK, "pool": "local_first"}
    assert taken(right(ran([swapped(4).trace()], profiles, far, [choices]))) == [2, 3, 3, 3]


def test_an_oracle_takes_no_memory_that_is_wanted_back() -> None:
    """The second program wants all of its memory at once, the third none of it before the first has ended."""
    soon, later = wants(4, at=15_000), wants(4, at=900_000)
    later.kernel(1)
    calm = Steps()
    calm.kernel(1_000_000)
    programs = (swapped(4), soon, calm)
    assert taken(lent(*programs, blocks=[4, 4, 4], pool="oracle"))[:4] == [2, 2, 2, 2]


@policy.pool
def always_host(lender: float) -> float:
    """No neighbour at all."""
    return lender


@policy.pool
def nowhere(lender: float, share: float = 1.0) -> float:
    """Nothing is lent."""
    return float("inf") if lender else share


def test_a_policy_of_ones_own() -> None:
    for own in (always_host, nowhere, partial(nowhere, share=2.0)):
        together = lent(three_tensors_in_two_blocks(), blocks=[2], idle=[10], pool=own, use=(always_host, nowhere))
        assert makespans(together) == [HOST_ONLY]


# --- all of it ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.agreement
def test_random_programs_that_lend_each_other_memory_are_right() -> None:
    recalls = lenders = 0
    for seed in range(60):
        together = drawn_lenders(seed)
        for rank, report in enumerate(together.checked()):
            assert report.ok is True, (seed, rank, report.violations[:3])
            recalls += int(together.results[rank].metrics["recalls"])
            lenders += together.results[rank].metrics["recall_wait_ns"] > 0
    assert recalls > 60 and lenders > 2


def drawn_runs(count: int) -> list[Any]:
    return [[fingerprint(result) for result in drawn_lenders(seed).results] for seed in range(count)]


@pytest.mark.slow
@pytest.mark.agreement
def test_compiled_and_interpreted_runs_agree() -> None:
    assert interpreted("test_lending", "t.drawn_runs(4)") == drawn_runs(4)
