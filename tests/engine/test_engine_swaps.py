"""Do swaps and prefetches take exactly the time that a hand works out?  See `hand_worked` for the machine.

A block of 10,240 bytes takes 1000 + 10240 / 10 = 2024 ns to the device and 1000 + 10240 / 8 = 2280 ns to the host.
"""

from __future__ import annotations

import pytest
from hand_worked import BLOCK, Steps, begin, machine, play, spans, stalls, three_tensors_in_two_blocks

from gpusim.engine import state
from gpusim.results import log

pytestmark = pytest.mark.hand_worked


def test_a_swap_is_worked_out_to_the_nanosecond() -> None:
    """Memory for two, LRU; everything is issued at 0.

    kernel a  0 .. 1000, kernel b 1000 .. 2000
    out a     waits for its last user: 1000 .. 1000 + 2280 = 3280
    kernel c  gets a's block, waits until it is empty: 3280 .. 3780
    out b     leaves for a, engine free at 3280: 3280 .. 5560
    in a      gets b's block, waits until it is empty: 5560 .. 5560 + 2024 = 7584
    kernel a  7584 .. 8284
    stalls    kernel c: 2000 .. 3280 on the copy out; kernel a: 3780 .. 5560 on the copy out, .. 7584 on the copy in
    """
    result = play(three_tensors_in_two_blocks(), blocks=2)
    found = spans(result)
    assert found["out"] == [(1000, 3280), (3280, 5560)]
    assert found["in"] == [(5560, 7584)]
    assert found["kernel"] == [(0, 1000), (1000, 2000), (3280, 3780), (7584, 8284)]
    assert stalls(result) == {"swap_out": 1280 + 1780, "swap_in": 2024}
    assert result.metrics["stall_ns"] == result.metrics["makespan_ns"] - result.metrics["compute_busy_ns"]
    assert [result.metrics[k] for k in ("h2d_bytes", "d2h_bytes", "swap_ins", "swap_outs")] == [BLOCK, 2 * BLOCK, 1, 2]


def test_copies_keep_time_after_a_year() -> None:
    """A simulation that begins late gives the same times, later: no float counts all the nanoseconds so far."""
    late, rates = 365 * 86_400 * 10**9, {"link.h2d": 3e9, "link.d2h": 7e9, "link.both": 8e9}
    found = []
    for begin_at in (0, late):
        steps = three_tensors_in_two_blocks(begin_at)
        found.append(spans(play(steps, rates, blocks=2)))
    assert found[0]["out"][0] == (1000, 1000 + 1000 + 1463)  # 10240 / 7 = 1462.86
    assert {k: [(a - late, b - late) for a, b in v] for k, v in found[1].items()} == found[0]


def test_each_copy_costs_the_host_a_submission() -> None:
    """Submission 100.  kernel a: paid at 100.  b's alloc pushes a out, its copy is paid at 200; kernel b: 300."""
    steps = Steps()
    steps.kernel(10, writes=(steps.alloc(),))
    steps.kernel(10, writes=(steps.alloc(),))
    result = play(steps, {"launch.submit": 100.0}, blocks=1)
    assert result.log is not None
    issued = result.log[(result.log["kind"] == log.ISSUE) | (result.log["kind"] == log.COPY)]
    assert [(int(r["t"]), log.KINDS[r["kind"]]) for r in issued] == [(100, "issue"), (100, "copy"), (300, "issue")]


def test_a_copy_ends_at_the_first_tick_at_which_its_bytes_are_there() -> None:
    """At 3 bytes/ns 10,240 bytes take 3413.33 ns: after 1000 + 3413 ns they are not there, after 1000 + 3414 they are."""
    steps = Steps()
    tensor = steps.alloc()
    steps.kernel(100, reads=(tensor,))  # read before written: it comes with data
    steps.kernel(100, writes=(steps.alloc(),))
    simulation = begin(steps.trace(), machine({"link.d2h": 3e9}), BLOCK)
    engine = simulation.island.queues[int(simulation.island.memories[1]["q_out"])]
    simulation.advance(100 + 1000 + 3413 + 1)  # up to, not including, this tick
    assert (engine["started"], engine["done"]) == (1, 0)
    simulation.advance(100 + 1000 + 3414 + 1)
    assert engine["done"] == 1
    assert simulation.advance(state.NEVER) == state.FINISHED
    assert simulation.now == 100 + 1000 + 3414 + 100


def test_a_clean_tensor_leaves_without_a_copy_and_a_written_one_does_not() -> None:
    """Two tensors take turns in one block.  a is written and leaves (copy 1), comes back, is only read and leaves (no
    copy), comes back, is written and leaves (copy 2); b is read only, but came with data: it leaves once by copy, then clean.
    """
    steps = Steps()
    a = steps.alloc()
    steps.kernel(10, writes=(a,))
    b = steps.alloc()                  # a leaves: copy
    steps.kernel(10, reads=(b,))
    steps.kernel(10, reads=(a,))       # b leaves: copy
    steps.kernel(10, reads=(b,))       # a leaves: clean
    steps.kernel(10, reads=(a,), writes=(a,))  # b leaves: clean
    steps.kernel(10, reads=(b,))       # a leaves: copy
    result = play(steps, blocks=1)
    assert (result.metrics["swap_outs"], result.metrics["clean_drops"], result.metrics["swap_ins"]) == (3, 2, 4)


def test_a_tensor_that_nothing_has_written_yet_is_not_moved() -> None:
    """Both tensors are made before either is written; one block: the first leaves and returns without data."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.free(a)
    steps.kernel(1000, writes=(b,))
    result = play(steps, blocks=1)
    assert result.metrics["makespan_ns"] == 2000
    assert result.metrics["h2d_bytes"] == result.metrics["d2h_bytes"] == 0
    assert result.metrics["clean_drops"] == 2


def test_both_directions_share_the_link() -> None:
    """Both directions together reach 12 bytes/ns: 6 each, although each alone reaches 10 and 8.

    Memory for three blocks: a (0.6), b and d (1.2 each) are there; c pushes a out: 0 .. 1000 + 6144 / 8 = 1768.  The host
    waits for that, and d is freed.  Then at once
    in a    into d's block: 2768 .. 2768 + 6144 / 6 = 3792
    out b   12,288 bytes for e: 2768 .. 3792 at 6 bytes/ns, the other 6144 at 8 bytes/ns: .. 4560
    """
    steps = Steps()
    a, b, d = steps.alloc(0.6), steps.alloc(1.2), steps.alloc(1.2)
    steps.alloc(0.6)
    steps.sync()
    steps.free(d)
    steps.kernel(10, reads=(a,))
    steps.alloc(1.2)
    steps.kernel(10, reads=(b,))
    found = spans(play(steps, {"link.both": 12e9}, blocks=3))
    assert found["out"][:2] == [(0, 1768), (1768, 4560)]
    assert found["in"][0] == (1768, 3792)


# --- prefetching ----------------------------------------------------------------------------------------------------------


def a_tensor_that_comes_back(kernel_ns: int, synchronise: bool) -> Steps:
    """Memory for two.  c pushes a out, 0 .. 2280; the host waits for that; b's block is free; a kernel runs; a is read."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    c = steps.alloc()
    steps.free(b)
    steps.sync()
    steps.kernel(kernel_ns, writes=(c,))
    if synchronise:
        steps.sync()
    steps.kernel(100, reads=(a,))
    return steps


def test_prefetch_hides_the_whole_copy_behind_a_kernel() -> None:
    """The kernel runs 2280 .. 5280 and the host waits for it.  On demand: in 5280 .. 7304; prefetched: in 2280 .. 4304."""
    steps = a_tensor_that_comes_back(3000, synchronise=True)
    demand, ahead = (play(steps, blocks=2, prefetch=name) for name in ("none", "next_k(k=1)"))
    assert spans(demand)["kernel"][1] == (7304, 7404)
    assert spans(ahead)["in"] == [(2280, 4304)]
    assert spans(ahead)["kernel"][1] == (5280, 5380)
    assert [ahead.metrics[k] for k in ("prefetches", "prefetch_hits", "prefetch_late", "swap_ins")] == [1, 1, 0, 1]
    assert demand.metrics["stall_swap_in_ns"] - ahead.metrics["stall_swap_in_ns"] == 2024


def test_a_late_prefetch_hides_its_head_start() -> None:
    """Submissions cost 500.  Kernel c: paid 2280 .. 2780, runs 2780 .. 3280.

    On demand: the reader is paid at 3280, in 3280 .. 5304, it starts at 5304.
    Prefetched: in 2780 .. 4804; its submission ends at 3280, the reader's at 3780: late by 1024, 500 ns are hidden.
    """
    steps = a_tensor_that_comes_back(500, synchronise=False)
    demand, ahead = (play(steps, {"launch.submit": 500.0}, blocks=2, prefetch=name) for name in ("none", "next_k(k=1)"))
    assert spans(demand)["kernel"] == [(2780, 3280), (5304, 5404)]
    assert spans(ahead)["kernel"] == [(2780, 3280), (4804, 4904)]
    assert [ahead.metrics[k] for k in ("prefetches", "prefetch_hits", "prefetch_late")] == [1, 1, 1]
    assert ahead.metrics["stall_swap_in_ns"] == 1024
