"""Do a program's own copies, collectives and work on the CPU take the time that a hand works out?  See `hand_worked`.

A block of 10,240 bytes takes 1000 + 10240 / 10 = 2024 ns to the device and 1000 + 10240 / 8 = 2280 ns to the host.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hand_worked import BLOCK, Steps, machine, play, spans, stalls, three_tensors_in_two_blocks

from gpusim.engine.run.simulate import simulate
from gpusim.machine.profile import Collective
from gpusim.referee import check
from gpusim.results.result import Result
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, COPY_PEER, HOST_WORK, NVME_READ, NVME_WRITE, Trace

pytestmark = pytest.mark.hand_worked

PEERS = machine({"peer.rate": 20e9, "peer.latency": 500.0, "host.bandwidth": 20e9}, base="a100-sxm4-80gb")
ALONE = machine()  # it has no links to other GPUs
IN, OUT = 2024, 2280


def refereed(result: Result, trace: Trace) -> Result:
    assert check(result, trace).violations == ()
    return result


@pytest.mark.slow
def test_a_kernel_waits_for_a_copy_on_another_stream() -> None:
    """in 0 .. 2024 on stream 1; the kernel waits for its event: 2024 .. 2524.  The copy's stream waits for nothing."""
    steps = Steps()
    a = steps.alloc()
    steps.carry(COPY_IN, stream=1, reads=(a,))
    steps.record(0, stream=1)
    steps.wait(0, stream=0)
    steps.kernel(500, reads=(a,))
    result = refereed(play(steps, blocks=2), steps.trace())
    assert spans(result)["kernel"] == [(0, IN), (IN, IN + 500)]
    assert stalls(result) == {"event": IN}
    names = ("program_h2d_bytes", "program_d2h_bytes", "collective_bytes", "program_transfer_ns", "compute_busy_ns")
    assert [result.metrics[name] for name in names] == [BLOCK, 0, 0, IN, 500]
    assert result.metrics["h2d_bytes"] == 0
    assert result.metrics["compute_idle_share"] == pytest.approx(IN / (IN + 500))


def test_a_copy_of_the_program_shares_the_link_with_a_swap() -> None:
    """With an engine for each.  The program's copy flows from 1000 on, the swap that kernel a's end allows from 2000 on.

    program   alone 1000 .. 2000: 8000 bytes; then half the link, 4 bytes/ns: the other 2240 in 560, ends 2560
    swap      2000 .. 2560: 2240 bytes; then alone: the other 8000 in 1000, ends 3560
    """
    steps = Steps()
    steps.carry(COPY_OUT, stream=1)
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    c = steps.alloc()
    steps.kernel(500, writes=(c,))
    result = refereed(play(steps, blocks=2, share="none"), steps.trace())
    found = spans(result)
    assert found["kernel"][:1] == [(0, 2560)]
    assert found["out"] == [(1000, 3560)]
    assert found["kernel"][-1] == (3560, 4060)


def test_gpus_meet_over_their_own_links_and_disturb_no_swap() -> None:
    """500 + 10240 / 20 = 1012 ns; the swaps are those of `test_engine_swaps`."""
    steps = three_tensors_in_two_blocks()
    steps.carry(COLLECTIVE, stream=1)
    result = refereed(play(steps, profile=PEERS, blocks=2), steps.trace())
    found = spans(result)
    assert (0, 1012) in found["kernel"]
    assert (found["out"], found["in"]) == ([(1000, 3280), (3280, 5560)], [(5560, 7584)])
    assert result.metrics["collective_bytes"] == BLOCK


@pytest.mark.parametrize(("both", "rate"), [(18e9, 8.0), (10e9, 5.0)])
def test_gpus_without_links_meet_over_the_link_to_the_host(both: float, rate: float) -> None:
    """What goes out comes in from the others at once: the slower direction rules, or half of both together."""
    steps = Steps()
    steps.carry(COLLECTIVE, stream=0)
    result = refereed(play(steps, profile=machine({"link.both": both}), blocks=2), steps.trace())
    assert spans(result)["kernel"] == [(0, 1000 + int(BLOCK / rate))]


def test_memory_over_time_is_by_the_clock_of_the_device() -> None:
    """The host asks for all of the above at 0.  On the device a leaves from the start of kernel b, at 1000, to that of c."""
    steps = Steps()
    steps.carry(COPY_OUT, stream=1)
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    c = steps.alloc()
    steps.kernel(500, writes=(c,))
    timeline = play(steps, blocks=2).timeline
    gone = int((timeline["host_bytes"] == BLOCK).argmax())
    assert timeline["time_ns"].tolist() == [0] * len(timeline["time_ns"])
    assert timeline["device_ns"][[gone - 1, gone, -1]].tolist() == [1000, 4560, 4560]


def test_copies_of_the_program_that_share_a_direction_are_counted() -> None:
    def counted(*copies: tuple[int, int]) -> int:
        steps = Steps()
        for activity, stream in copies:
            steps.carry(activity, stream=stream)
        return int(play(steps, share="none").metrics.get("program_copies_shared", 0))

    assert counted((COPY_IN, 0), (COPY_IN, 1), (COPY_IN, 2)) == 2
    assert counted((COPY_OUT, 0), (COPY_OUT, 1)) == 1
    assert counted((COPY_IN, 0), (COPY_IN, 0), (COPY_OUT, 1)) == 0


def test_a_collective_over_the_host_link_leaves_less_for_a_copy() -> None:
    """What comes in has 10 bytes/ns for both, 5 each (both directions together would allow 18 / 3 = 6): 2048 ns."""
    steps = Steps()
    steps.carry(COLLECTIVE, stream=0)
    steps.carry(COPY_IN, stream=1)
    result = refereed(play(steps, profile=ALONE), steps.trace())
    assert spans(result)["kernel"] == [(0, 1000 + 2048), (0, 1000 + 2048)]


def test_copies_start_without_the_gap_that_kernels_and_collectives_leave() -> None:
    """in 0 .. 2024, out 2024 .. 4304, kernel 4354 .. 4854, in 4854 .. 6878, collective 6928 .. 7940."""
    steps = Steps()
    for activity in (COPY_IN, COPY_OUT):
        steps.carry(activity, stream=0)
    steps.kernel(500)
    for activity in (COPY_IN, COLLECTIVE):
        steps.carry(activity, stream=0)
    profile = machine({"peer.rate": 20e9, "peer.latency": 500.0, "launch.gap": 50.0}, base="a100-sxm4-80gb")
    result = refereed(play(steps, profile=profile), steps.trace())
    assert spans(result)["kernel"] == [(0, IN), (IN, 4304), (4354, 4854), (4854, 6878), (6928, 7940)]


def test_a_host_that_waits_for_a_copy_goes_on_later_than_the_copy_ends() -> None:
    """5 us from call to return beside the bytes; the copy's start took 1 and the call 0.1: 3.9 us more.  Kernels: 0.

    call 100, in 100 .. 2124, return 6024; call 6124, kernel 6124 .. 6624; call 6724, kernel 6724 .. 7224.
    """
    steps = Steps()
    steps.carry(COPY_IN, stream=0)
    steps.sync()
    for _ in range(2):
        steps.kernel(500)
        steps.sync()
    result = refereed(play(steps, {"link.latency_synchronised": 5000.0, "launch.submit": 100.0}), steps.trace())
    assert spans(result)["kernel"] == [(100, 2124), (6124, 6624), (6724, 7224)]
    assert stalls(result) == {"launch": 100, "sync": 4100}, "the launch after a wait is behind the wait"
    last = Steps()
    last.carry(COPY_OUT, stream=0)
    last.sync()
    result = play(last, {"link.latency_synchronised": 5000.0})
    assert result.metrics["makespan_ns"] == OUT + 4000
    late = Steps()
    late.carry(COPY_IN, stream=0)
    late.until(9000)
    late.sync()
    late.kernel(500)
    result = refereed(play(late, {"link.latency_synchronised": 5000.0}), late.trace())
    assert spans(result)["kernel"] == [(0, 2024), (9000, 9500)], "all has long been there"


def test_each_direction_and_collectives_have_a_curve_of_their_own() -> None:
    """At a block 5, 4 and 10 bytes/ns, start included: 2048, 2560 and 1024 ns; copies to a peer 500 + 10240 / 20 ns."""
    assert PEERS.peer is not None
    inward, outward = (("10 KiB", "5 GB/s"),), (("1 KiB", "1 GB/s"), ("10 KiB", "4 GB/s"))
    link = replace(PEERS.link, size_curve=inward, size_curve_d2h=outward)
    flat = (("10 KiB", "10 GB/s"), ("40 KiB", "10 GB/s"))
    together = Collective(rate=PEERS.peer.rate, latency=PEERS.peer.latency, size_curve=flat)
    steps = Steps()
    for activity in (COPY_IN, COPY_OUT, COLLECTIVE, COPY_PEER):
        steps.carry(activity, stream=0)
    result = refereed(play(steps, profile=replace(PEERS, link=link, collective=together)), steps.trace())
    assert [end - start for start, end in spans(result)["kernel"]] == [2048, 2560, 1024, 1012]
    assert result.metrics["collective_bytes"] == 2 * BLOCK
    plain = Steps()
    plain.carry(COPY_OUT, stream=0)
    one_way = replace(PEERS, link=replace(PEERS.link, size_curve=inward))
    assert spans(play(plain, profile=one_way))["kernel"] == [(0, 2280)], "the other direction's curve has 2048, the link not"


def test_the_disk_reads_and_writes_at_its_own_rates() -> None:
    """Reading 100 + 10240 / 4 = 2660 ns, writing 100 + 10240 / 2 = 5220, beside each other."""
    disk = {"nvme.latency": 100.0, "nvme.read": 4e9, "nvme.write": 2e9}
    steps = Steps()
    steps.carry(NVME_READ, stream=0)
    steps.carry(NVME_WRITE, stream=1)
    result = refereed(play(steps, disk), steps.trace())
    assert sorted(spans(result)["kernel"]) == [(0, 2660), (0, 5220)]
    assert [result.metrics[f"nvme_{word}_bytes"] for word in ("read", "written")] == [BLOCK, BLOCK]


def test_the_cpu_works_beside_the_gpu() -> None:
    """10240 bytes through host memory at 20 bytes/ns: 512 ns, which no kernel and no stall counts."""
    steps = Steps()
    steps.carry(HOST_WORK, stream=1)
    steps.kernel(700, writes=(steps.alloc(),))
    result = refereed(play(steps, {"host.bandwidth": 20e9}, durations=[512, 700]), steps.trace())
    assert sorted(spans(result)["kernel"]) == [(0, 512), (0, 700)]
    assert [result.metrics[name] for name in ("host_work_ns", "compute_busy_ns", "stall_ns")] == [512, 700, 0]


def test_a_recorded_copy_takes_its_recorded_time() -> None:
    steps = Steps()
    steps.carry(COPY_IN, stream=0, ns=77)
    result = refereed(play(steps, blocks=1), steps.trace())
    assert spans(result)["kernel"] == [(0, 77)]
    assert result.metrics["program_h2d_bytes"] == BLOCK


def test_a_copy_of_nothing_takes_no_time() -> None:
    steps = Steps()
    steps.carry(COPY_IN, stream=0, blocks=0, ns=0)
    steps.carry(COLLECTIVE, stream=0, blocks=0)
    result = refereed(play(steps, profile=PEERS, durations=[0, 500], blocks=1), steps.trace())
    assert spans(result)["kernel"] == [(0, 0), (0, 500)]


@pytest.mark.parametrize(("blocks", "outcome"), [(3, "finished"), (2, "host_oom"), (0.5, "host_oom")])
def test_what_the_program_keeps_on_the_host_is_no_room_for_swaps(blocks: float, outcome: str) -> None:
    """One block is the program's own, two tensors are swapped out; with half a block nothing even begins."""
    trace = three_tensors_in_two_blocks().trace()
    trace = replace(trace, meta={"host_bytes": BLOCK})
    result = simulate(
        trace, machine({"host.capacity": blocks * BLOCK}), place="first_fit", log=True, capacity_bytes=int(2.5 * BLOCK)
    )
    assert result.outcome == outcome
    assert check(result, trace).violations == ()
    if outcome == "host_oom":
        assert result.failure is not None
        assert "own 10 KiB" in result.failure["advice"]


def test_times_without_others_are_those_of_the_links() -> None:
    from gpusim.machine.transfer_times import transfer_times

    steps = Steps()
    steps.kernel(5)
    for activity in (COPY_IN, COPY_OUT, COLLECTIVE, HOST_WORK):
        steps.carry(activity, stream=0)
    rows, took = transfer_times(steps.trace(), PEERS)
    assert rows.tolist() == [1, 2, 3, 4]
    assert took.tolist() == [IN, OUT, 1012, 512]
