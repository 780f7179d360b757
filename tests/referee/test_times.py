"""Does the referee name each wrong time, with the time that a hand works out and its cause?

The machines are those of `hand_worked`: 10 bytes/ns to the device and 8 from it after a latency of 1000 ns, so that a block
takes 2024 ns in and 2280 ns out, one copy a direction at a time; 108 multiprocessors, 1329 bytes/ns of memory; nothing else
costs time unless a story says so.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from fault_tools import untold
from hand_worked import Steps, machine, three_tensors_in_two_blocks

from gpusim.engine.run.simulate import simulate
from gpusim.machine.profile import Profile, changed
from gpusim.referee import check
from gpusim.results.log import (
    BY_SWAP_IN,
    BY_SWAP_OUT,
    COPY,
    DECIDE,
    DEFRAG,
    END,
    ISSUE,
    PLANNED_IN,
    STALL,
    STALLS,
    START,
    VERSION,
)
from gpusim.results.result import Result
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN, Trace

pytestmark = pytest.mark.hand_worked

D = 1_000_000
BW = 1329
HALF, FULL = "grid=54 resident=1", "grid=108 resident=1"


class Story:
    """A program that ran, and its log with some records changed."""

    def __init__(self, trace: Trace, changes: dict[str, float] | None = None, blocks: float = 100, **choices: Any) -> None:
        self.trace, self.profile = trace, machine(changes)
        choices = {"place": "first_fit", **choices}
        self.result = simulate(trace, self.profile, capacity_bytes=int(blocks * 10_240), log=True, **choices)
        assert check(self.result, trace, self.profile).ok is True, self.said(self.result)

    def said(self, result: Result, profile: Profile | None = None) -> list[str]:
        return [str(violation) for violation in check(result, self.trace, profile or self.profile).violations]

    def record(self, kind: int, a: int) -> int:
        """The record of this kind of this operator, activity or tensor."""
        log = self.result.log
        assert log is not None
        return int(np.flatnonzero((log["kind"] == kind) & (log["a"] == a))[0])

    def at(self, *times: tuple[int, int, int]) -> list[str]:
        """What is said when these records (kind, a) are made at another time."""
        assert self.result.log is not None
        log = self.result.log.copy()
        for kind, a, ns in times:
            log["t"][self.record(kind, a)] = ns
        return self.said(dataclasses.replace(self.result, log=log[np.argsort(log["t"], kind="stable")]))

    def with_(self, record: int, **columns: int) -> list[str]:
        """What is said when a record has other numbers."""
        assert self.result.log is not None
        log = self.result.log.copy()
        for name, value in columns.items():
            log[name][record] = value
        return self.said(dataclasses.replace(self.result, log=log))


def says(told: list[str], *texts: str) -> None:
    for text in texts:
        assert any(text in each for each in told), (text, told)


def kernels(*ns: int, stream: int = 0) -> Trace:
    steps = Steps()
    for each in ns:
        steps.kernel(each, stream=stream)
    return steps.trace()


def beside(*launches: str, need: float = 0.0) -> Trace:
    """Kernels of D ns on a stream each, which need so many bytes/ns of the memory."""
    build = TraceBuilder("side by side")
    for stream, launch in enumerate(launches):
        build.op("aten.add.Tensor", [], [], read_bytes=round(need * D), duration=D, stream=stream, launch=launch)
    return build.finish()


def copies(streams: int) -> Trace:
    steps = Steps()
    for stream in range(streams):
        steps.carry(COPY_IN, stream=stream)
    return steps.trace()


def test_a_kernel_takes_its_duration() -> None:
    told = Story(kernels(1000)).at((END, 0, 900))
    says(told, "activity 0, operator 0, takes 900 ns; expected 1000 ns: its duration on this machine")


def test_a_swap_takes_its_latency_and_its_bytes() -> None:
    """The first tensor leaves from 1000, when it is written, to 3280."""
    story = Story(three_tensors_in_two_blocks().trace(), blocks=2)
    assert story.result.log is not None
    out = int(story.result.log["addr"][story.result.log["kind"] == COPY][0])
    told = story.at((END, out, 3000))
    says(told, f"activity {out}, a swap of 10240 bytes, takes 2000 ns; expected 2280 ns: its latency and its bytes on these")


def test_kernels_that_share_the_memory_take_longer() -> None:
    """Two that need all of its bandwidth get half of it each."""
    told = Story(beside(HALF, HALF, need=BW)).at((END, 0, D))
    says(told, f"takes {D} ns; expected {2 * D} ns: its duration on this machine beside what runs with it")


def test_a_kernel_with_half_of_its_multiprocessors_takes_twice_as_long() -> None:
    told = Story(kernels(D), active_thread_percentage=50).at((END, 0, D))
    says(told, f"takes {D} ns; expected {2 * D} ns: its duration on this machine beside what runs with it")


@pytest.mark.parametrize(("ns", "when"), [(D // 2, "a later start: those before it leave no multiprocessors"),
                                          (D + 7, f"{D} ns, when it gets them")])  # fmt: skip
def test_a_kernel_starts_when_it_gets_multiprocessors(ns: int, when: str) -> None:
    """Both kernels can use all, and the first has them until it ends."""
    told = Story(beside(FULL, FULL)).at((START, 1, ns), (END, 1, ns + D))
    says(told, f"activity 1, operator 1, starts at {ns} ns; expected {when}")


@pytest.mark.parametrize(("ns", "when"), [(1500, "its turn in the copy engine"),
                                          (2030, "2024 ns, when it is its turn in the copy engine")])  # fmt: skip
def test_a_copy_starts_when_it_is_its_turn(ns: int, when: str) -> None:
    told = Story(copies(2)).at((START, 1, ns), (END, 1, ns + 2024))
    says(told, f"activity 1 of stream 1 starts at {ns} ns; expected {when}")


def test_a_kernel_starts_when_the_one_before_it_ends() -> None:
    told = Story(kernels(1000, 500)).at((START, 1, 1050), (END, 1, 1550))
    says(told, "activity 1 of stream 0 starts at 1050 ns; expected 1000 ns, when activity 0 ends")


def test_a_kernel_starts_when_it_is_submitted() -> None:
    told = Story(kernels(1000)).at((START, 0, 10), (END, 0, 1010))
    says(told, "activity 0 of stream 0 starts at 10 ns; expected 0 ns, when it is submitted")


def test_a_kernel_starts_after_the_gap() -> None:
    told = Story(kernels(1000, 500), {"launch.gap": 100.0}).at((START, 1, 1000), (END, 1, 1500))
    says(told, "activity 1 of stream 0 starts at 1000 ns; expected 1100 ns, after the gap between two launches")


def test_the_host_pays_for_each_launch() -> None:
    """100 ns for each: the second is submitted at 200."""
    told = Story(kernels(50, 50), {"launch.submit": 100.0, "launch.eager": 100.0}).at((ISSUE, 1, 150), (START, 1, 150))
    says(told, "the host makes issue 1 at 150 ns; expected 200 ns, when its calls before that are done")


def test_the_host_waits_for_the_device_at_a_sync() -> None:
    steps = Steps()
    steps.kernel(1000)
    steps.sync()
    steps.kernel(500)
    told = Story(steps.trace()).at((ISSUE, 1, 990))
    says(told, "the host makes issue 1 at 990 ns; expected 1000 ns, when the device is idle (activity 0 ends)")


def test_the_host_waits_for_room_in_a_queue() -> None:
    told = Story(kernels(1000, 1000, 500), {"launch.queue": 2.0}).at((ISSUE, 2, 1010))
    says(told, "the host makes issue 2 at 1010 ns; expected 1000 ns, when there is room in the queue (activity 0 ends)")


def test_the_host_waits_for_copies_of_memory_that_is_not_pinned() -> None:
    """The tensor that leaves is copied from 1000 on; the next one's operator is submitted when that is there, at 3280."""
    told = Story(three_tensors_in_two_blocks().trace(), blocks=2, tiers="host(pageable=1)").at((ISSUE, 2, 3275))
    says(told, "the host makes issue 2 at 3275 ns; expected 3280 ns, when its copies are there (activity 2 ends)")


def test_the_host_waits_for_a_recorded_time() -> None:
    steps = Steps()
    steps.until(5000)
    steps.kernel(500)
    told = Story(steps.trace()).at((ISSUE, 0, 4000))
    says(told, "the host makes issue 0 at 4000 ns; expected 5000 ns, at the recorded time")


def test_recorded_times_hold_for_what_comes_behind_a_phase() -> None:
    steps = Steps()
    steps.until(10)
    x = steps.alloc()
    steps.until(5000)
    steps.kernel(500, writes=(x,))
    told = Story(steps.trace()).at((ISSUE, 0, 4000))
    says(told, "the host makes issue 0 at 4000 ns; expected 5000 ns, at the recorded time")


def leaving(**choices: Any) -> Story:
    """A release policy has tensors leave, or a plan, before their room is needed."""
    return Story(three_tensors_in_two_blocks().trace(), blocks=3.2, **choices)


def test_what_a_release_policy_evicts_has_left() -> None:
    story = leaving(release="watermark(high=0.5, low=0.1)")
    log = story.result.log
    assert log is not None
    at = int(np.flatnonzero(log["kind"] == DECIDE)[0])
    assert story.result.metrics["release_evictions"] > 0
    says(story.with_(at, a=2), "a policy has tensor 2 leave; expected its block given back just before")
    says(story.with_(at, b=PLANNED_IN), f"the plan has tensor {log['a'][at]} come; expected its block or its copy just before")
    fewer = dataclasses.replace(story.result, metrics={**story.result.metrics, "release_evictions": 0})
    says(story.said(fewer), "metric release_evictions is 0; expected")


def rearranged() -> Story:
    """Three blocks of four hold a tensor; the first and the third leave two holes, in which a tensor of two does not fit."""
    steps = Steps()
    a, b, c = steps.alloc(), steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a, b, c))
    steps.free(a)
    d = steps.alloc(2)
    steps.kernel(500, reads=(b, c), writes=(d,))
    return Story(steps.trace(), blocks=4, defrag="slide")


def test_blocks_move_only_when_memory_is_rearranged() -> None:
    """The second and the third block move down by one when the device is idle, at 1000."""
    story = rearranged()
    log = story.result.log
    assert log is not None
    at = int(np.flatnonzero(log["kind"] == DEFRAG)[0])
    assert (log["t"][at], log["a"][at], story.result.metrics["defrags"]) == (1000, 2, 1)
    says(story.with_(at, a=1), "the block of tensor 2 moves; expected a defragmentation")
    says(story.with_(at, a=3), "a defragmentation does something else; expected moves or device calls")
    says(story.with_(at, a=len(log) - 1), f"a defragmentation of {len(log) - 1} records; expected as many after it")
    says(story.at((DEFRAG, 2, 900)), "the host makes defrag 2 at 900 ns; expected 1000 ns, when the device is idle")
    fewer = dataclasses.replace(story.result, metrics={**story.result.metrics, "defrags": 0})
    says(story.said(fewer), "metric defrags is 0; expected 1")


def test_a_metric_that_is_gone_is_named() -> None:
    story = Story(kernels(1000))
    for name in ("makespan_ns", "stall_launch_ns", "frag_external", "kernels"):
        metrics = {key: value for key, value in story.result.metrics.items() if key != name}
        if story.result.metrics[name] or name == "frag_external":
            says(story.said(dataclasses.replace(story.result, metrics=metrics)), f"there is no metric {name}")


def test_another_machine_and_another_version_of_the_log_are_said_as_such() -> None:
    story = Story(kernels(1000))
    other = changed(story.profile, "link.h2d", 11e9)
    assert story.said(story.result, other) == [
        f"the profile {other.name} is not that of the machine that ran; expected the same numbers"
    ]
    spec = {**story.result.spec, "log_version": 1}
    assert story.said(dataclasses.replace(story.result, spec=spec)) == [
        f"the event log is of version 1; expected 2 or {VERSION}, which this program reads: run again"
    ]


def test_a_log_that_is_cut_lacks_what_the_trace_has() -> None:
    story = Story(kernels(1000, 500))
    assert story.result.log is not None
    for kept, text in ((1, "the run finished without issue 1"), (3, "never ends though the run finished")):
        says(story.said(dataclasses.replace(story.result, log=story.result.log[:kept])), text)


def test_a_stall_has_its_cause_its_length_and_what_was_waited_for() -> None:
    steps = three_tensors_in_two_blocks()
    story = Story(steps.trace(), blocks=2)
    log = story.result.log
    assert log is not None
    at = np.flatnonzero(log["kind"] == STALL)  # of the copy out 2, then of the copies out 4 and in 5
    assert log[["a", "b", "addr", "bytes"]][at].tolist() == [
        (3, BY_SWAP_OUT, 2, 1280), (6, BY_SWAP_OUT, 4, 1780), (6, BY_SWAP_IN, 5, 2024)
    ]  # fmt: skip
    says(story.with_(int(at[0]), bytes=1279), "activity 3 has stalled 1279 ns by swap_out; expected 1280 ns",
         "metric stall_swap_out_ns is 3060; expected 3059, the sum of such stalls")  # fmt: skip
    says(story.with_(int(at[0]), b=BY_SWAP_IN), "activity 3 has stalled 0 ns by swap_out; expected 1280 ns")
    says(story.with_(int(at[2]), addr=4), "activity 6 stalls by swap_in for activity 4; "
         "expected one of what it says that is done at 7584 ns")  # fmt: skip
    says(story.with_(int(at[2]), addr=-1), "activity 6 stalls by swap_in for activity -1")
    says(story.with_(int(at[0]), a=6), "activity 6 stalls; expected its start behind that")
    says(story.with_(int(at[0]), b=len(STALLS)), f"stall of cause {len(STALLS)}")
    swapped = log.copy()
    swapped[at[1:]] = log[at[:0:-1]]
    says(story.said(dataclasses.replace(story.result, log=swapped)), "activity 6 stalls by swap_in for activity 5")
    says(story.said(dataclasses.replace(story.result, log=np.delete(log, at[0]))), "activity 3 has stalled 0 ns by swap_out")
    without = untold(story.result)  # as older logs, which are read as well
    assert story.said(without) == []
    spec = {**without.spec, "log_version": VERSION}
    says(story.said(dataclasses.replace(without, spec=spec)), "metric stall_swap_in_ns is 2024; expected 0")
