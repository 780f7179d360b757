"""Does host memory cost what a hand works out: had in a pool or for each copy, near or far, used by the CPU beside copies?

See `hand_worked` for the machine: a block of 10,240 bytes takes 2024 ns to the device and 2280 ns to the host.  Here host
memory is pinned for 100 ns a call and 1 ns for 16 bytes, given back for 1 ns for 32, touched first for 1 ns for 8.  A block of
its own costs 100 + 640 = 740 ns and is given back for 320; one of a pool has 16,384 bytes and costs 100 + 1024 = 1124 ns.  The
CPU reads and writes 20 bytes/ns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hand_worked import BLOCK, GIB, Steps, machine, play, spans, stalls
from plain_python import fingerprint, interpreted
from plan_policies import OWN, Written

from gpusim.engine.run.simulate import simulate
from gpusim.machine.identity import profile_hash
from gpusim.machine.profile import Profile, changed
from gpusim.machine.quantity import Count
from gpusim.machine.transfer_times import ALLOCATED, STAGED
from gpusim.programs.generate.synth import random_program
from gpusim.referee import check
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.trace import COPY_IN, COPY_OUT, HOST_WORK

pytestmark = pytest.mark.hand_worked

COSTS = {
    "allocation.host_alloc": 100.0, "allocation.host_alloc_per_gib": GIB / 16, "allocation.host_free_per_gib": GIB / 32,
    "allocation.first_touch_per_gib": GIB / 8, "host.bandwidth": 20e9, "host.capacity": 64 * BLOCK, "host.numa_remote": 0.5,
    "host.cpu_remote": 0.25,
}  # fmt: skip


def numa(profile: Profile, nodes: int) -> Profile:
    count = Count(value=nodes, basis="estimated", source="by hand")
    return replace(profile, host=replace(profile.host, numa_nodes=count))


HOST = numa(machine(COSTS), 2)


def refereed(steps: Steps, tiers: str = "host", profile: Profile = HOST, **choices: Any) -> Result:
    result: Result = play(steps, profile=profile, tiers=tiers, **{"blocks": 2, **choices})
    assert check(result, steps.trace(), profile).violations == ()
    return result


def as_if_on(profile: Profile, result: Result) -> Result:
    """The result as one that says it is of this machine."""
    return replace(result, spec={**result.spec, "profile_hash": profile_hash(profile)})


def issued(result: Result) -> list[int]:
    """When the host came to each operator."""
    assert result.log is not None
    return [int(r["t"]) for r in result.log if r["kind"] == log.ISSUE]


def two_leave_in_turn(dies: bool) -> Steps:
    """a leaves for c, and may die below; then b leaves for d.  Kernels of stream 1 show when the host got there."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(100, writes=(a,))
    steps.kernel(100, writes=(b,))
    c = steps.alloc()
    steps.kernel(100, stream=1)
    steps.kernel(100, writes=(c,))
    if dies:
        steps.free(a)
    d = steps.alloc()
    steps.kernel(100, stream=1)
    steps.kernel(100, writes=(d,))
    return steps


def test_memory_that_is_had_beforehand_costs_nothing() -> None:
    """out a 100 .. 2380, out b 2380 .. 4660; the host is through at once."""
    result = refereed(two_leave_in_turn(dies=True))
    assert issued(result) == [0] * 6
    assert spans(result)["out"] == [(100, 2380), (2380, 4660)]
    assert stalls(result) == {"swap_out": 4660 - 300}


@pytest.mark.parametrize(("dies", "second"), [(True, 0), (False, 1124)])
def test_a_pool_grows_by_what_it_has_no_free_block_for(dies: bool, second: int) -> None:
    """Placing c allocates a block: 0 .. 1124.  a's copy begins then, 1124 .. 3404, though kernel a ended at 100.  b's copy uses
    a's block again when a is dead, else a second block is had until 2248; it takes its turn after a's: 3404 .. 5684.
    """
    result = refereed(two_leave_in_turn(dies), "host(pool=grow)")
    assert issued(result) == [0, 0, 1124, 1124, 1124 + second, 1124 + second]
    assert spans(result)["out"] == [(1124, 3404), (3404, 5684)]
    later = 1124 + max(100, second)  # the second kernel of stream 1 waits for the first, and for the host
    assert spans(result)["kernel"] == [
        (0, 100), (100, 200), (1124, 1224), (later, later + 100), (3404, 3504), (5684, 5784)
    ]  # fmt: skip


def test_pinned_anew_each_time_and_given_back() -> None:
    """A block of its own for a: 0 .. 740; a dies and its block is given back: 740 .. 1060; one for b: 1060 .. 1800."""
    result = refereed(two_leave_in_turn(dies=True), "host(pool=fresh)")
    assert issued(result) == [0, 0, 740, 740, 1800, 1800]
    assert spans(result)["out"] == [(740, 3020), (3020, 5300)]


@pytest.mark.parametrize(("pool", "cost"), [("ready", 0), ("grow", 16_384 // 8), ("fresh", BLOCK // 8)])
def test_memory_that_is_not_pinned_is_touched_first(pool: str, cost: int) -> None:
    """c is placed by a host that has touched the memory for a's copy; it waits for that copy and is there 2280 ns later.

    The staged rate is the link's here, so that only the waiting differs from pinned memory.
    """
    rates = changed(changed(HOST, "host.pageable_d2h", 8e9), "host.pageable_h2d", 10e9)
    steps = Steps()
    a = steps.alloc()
    steps.kernel(100, writes=(a,))
    c = steps.alloc()
    steps.kernel(100, writes=(c,))
    result = refereed(steps, f"host(pool={pool}, pageable=1)", rates, blocks=1)
    began = max(100, cost)
    assert spans(result)["out"] == [(began, began + 2280)]
    assert issued(result) == [0, began + 2280]


def test_what_begins_in_host_memory_needs_a_block_there() -> None:
    """Zero-copy: the tensor's block is had before its kernel is launched, which then writes 10,240 bytes over the link."""
    steps = Steps()
    a = steps.alloc()
    steps.kernel(100, writes=(a,))
    Written.rows, Written.remote = (), (a,)
    try:
        result = refereed(steps, "host(pool=fresh)", plan="written", use=OWN)
    finally:
        Written.remote = ()
    assert issued(result) == [740]
    assert spans(result)["kernel"] == [(740, 740 + 2280)]


def test_a_kernel_is_launched_after_the_memory_that_its_step_had() -> None:
    """c replaces a, which a kernel that has just ended wrote; stream 1 has nothing to wait for but the host."""
    steps = Steps()
    a = steps.alloc()
    steps.kernel(10, writes=(a,))
    b = steps.alloc(2)
    steps.kernel(10, writes=(b,), stream=1)
    steps.free(b)
    steps.kernel(10, reads=(a,), stream=1)
    steps.alloc(2)
    result = refereed(steps, "host(pool=fresh)")
    assert issued(result) == [0, 740, 740]
    assert result.metrics["stall_alloc_ns"] >= 730


@pytest.mark.parametrize(
    ("placed", "into", "out"),
    [
        ("numa=local", 1024, 1280),
        ("numa=remote", 2048, 2560),
        ("numa=interleave", 1536, 1920),  # half the bytes at half the rate
        ("numa=first_touch", 1536, 1920),  # 64 blocks are twice what the nearer node has
        ("numa=first_touch, capacity=320 KiB", 1024, 1280),  # 32 blocks are what it has
        ("numa=first_touch, capacity=480 KiB", 1024 * 4 // 3, 1707),  # a third of 48 blocks is far
    ],
)
def test_where_host_memory_is_decides_the_rate_of_copies(placed: str, into: int, out: int) -> None:
    """Swaps, and copies that the program makes itself; far bytes at half the rate."""
    steps = two_leave_in_turn(dies=False)
    result = refereed(steps, f"host({placed})")
    assert [end - start for start, end in spans(result)["out"]] == [1000 + out] * 2
    steps = Steps()
    steps.carry(COPY_OUT, stream=0)
    steps.carry(COPY_IN, stream=0)
    done = refereed(steps, f"host({placed})")
    first, second = [end - start for start, end in spans(done)["kernel"]]
    assert (first, second) == (1000 + out, 1000 + into + (1024 * 4 % 3 > 0 and into == 1365))


def test_the_cpu_works_slower_on_memory_of_the_other_socket() -> None:
    """102,400 bytes at 20 bytes/ns, at a quarter of it, and half and half: 5120 ns, 4 times, 2.5 times."""
    steps = Steps()
    steps.carry(HOST_WORK, stream=0, blocks=10)
    took = [refereed(steps, f"host(numa={n})").metrics["host_work_ns"] for n in ("local", "remote", "interleave")]
    assert took == [5120, 20_480, 12_800]


def test_two_works_of_the_host_share_its_memory() -> None:
    """A, 102,400 bytes, alone 0 .. 2000: 40,000 bytes.  B, 51,200 bytes, from 2000 on: 10 bytes/ns each, B ends at 7120.  A has
    11,200 bytes left, alone again: 560 ns.
    """
    steps = Steps()
    steps.carry(HOST_WORK, stream=1, blocks=10)
    steps.kernel(2000)
    steps.carry(HOST_WORK, stream=0, blocks=5)
    result = refereed(steps)
    assert spans(result)["kernel"] == [(0, 7680), (0, 2000), (2000, 7120)]
    assert result.metrics["host_work_ns"] == 7680 + 5120


def test_works_that_do_not_fill_the_memory_run_side_by_side() -> None:
    """What the CPU stages at 5 bytes/ns (then 10 over the link: 10 / 3 in turn) leaves 15 to the other work, of 102,400 bytes.

    staged 0 .. 2048: the other has moved 30,720 bytes; the rest, 71,680, at 20: 3584 ns.
    """
    steps = Steps()
    steps.carry(HOST_WORK, stream=1, blocks=10)
    steps.work(STAGED[0], stream=0)
    result = refereed(steps, profile=changed(HOST, "host.pageable_h2d", 10e9 / 3))
    assert spans(result)["kernel"] == [(0, 5632), (0, 2048)]


def test_a_copy_and_the_cpu_share_host_memory() -> None:
    """The CPU works through 102,400 bytes; after its latency the copy takes 10 bytes/ns and leaves 10 of the 20.

    0 .. 1000 20,000 bytes, 1000 .. 2024 10,240 bytes, the other 72,160 in 3608 ns: 5632.  The copy is not slowed down.
    """
    steps = Steps()
    steps.carry(HOST_WORK, stream=1, blocks=10)
    steps.carry(COPY_IN, stream=0)
    result = refereed(steps)
    assert spans(result)["kernel"] == [(0, 5632), (0, 2024)]


def test_a_swap_and_the_cpu_share_host_memory() -> None:
    """a leaves 1100 .. 2280 at 8 bytes/ns beside the work, which then has 12 of its 20 for 1280 ns: 512 ns more than 5120."""
    steps = Steps()
    steps.carry(HOST_WORK, stream=1, blocks=10)
    a = steps.alloc()
    steps.kernel(100, writes=(a,))
    steps.alloc()
    result = refereed(steps, blocks=1)
    assert spans(result)["out"] == [(100, 2380)]
    assert spans(result)["kernel"][0] == (0, 5120 + 512)


def test_in_a_program_of_one_stream_the_cpu_shares_nothing() -> None:
    """As before, a leaves beside the work, 1100 .. 3380, and both take what they take alone."""
    steps = Steps()
    a = steps.alloc()
    steps.kernel(1100, writes=(a,))
    steps.carry(HOST_WORK, stream=0, blocks=10)
    steps.alloc()
    result = refereed(steps, blocks=1)
    assert spans(result)["out"] == [(1100, 3380)]
    assert spans(result)["kernel"] == [(0, 1100), (1100, 6220)]


def test_work_with_a_recorded_time_takes_that() -> None:
    steps = Steps()
    steps.carry(HOST_WORK, stream=1, blocks=10, ns=3000)
    steps.carry(HOST_WORK, stream=0, blocks=10)
    assert spans(refereed(steps))["kernel"] == [(0, 3000), (0, 5120)]


def test_work_takes_what_its_arithmetic_takes_where_that_is_longer() -> None:
    """10,240 bytes are 512 ns, 100,000 operations at 50 a ns 2000 ns."""
    steps = Steps()
    steps.work("step", flops=100_000.0)
    cores = replace(HOST.gpu.peak["fp32"], value="50 GFLOP/s")
    known = replace(HOST, host=replace(HOST.host, compute=cores))
    assert [refereed(steps, profile=p).metrics["host_work_ns"] for p in (HOST, known)] == [512, 2000]


def test_the_hosts_thread_makes_its_own_calls() -> None:
    """Pinning a block takes the host 740 ns, in which the device goes on: kernels 0 .. 500, 740 .. 840, a copy from 740 on."""
    steps = Steps()
    steps.kernel(500)
    steps.work(ALLOCATED)
    steps.carry(COPY_OUT, stream=1)
    steps.kernel(100)
    result = refereed(steps)
    assert issued(result) == [0, 740, 740, 740]
    assert spans(result)["kernel"] == [(0, 500), (740, 740), (740, 3020), (740, 840)]
    assert stalls(result) == {"alloc": 240}


def test_the_referee_finds_memory_that_was_not_paid() -> None:
    steps = two_leave_in_turn(dies=False)
    result = play(steps, profile=HOST, blocks=2, tiers="host(pool=grow)")
    cheap = changed(HOST, "allocation.host_alloc", 0.0)
    said = [str(v) for v in check(as_if_on(cheap, result), steps.trace(), cheap).violations]
    assert any("at 1124 ns" in line and "1024 ns" in line for line in said)


def test_the_referee_finds_work_that_shared_more_or_less() -> None:
    """Two works side by side take 10,240 ns; in memory twice as fast they would take 5120."""
    steps = Steps()
    steps.carry(HOST_WORK, stream=1, blocks=10)
    steps.carry(HOST_WORK, stream=0, blocks=10)
    result = refereed(steps)
    assert spans(result)["kernel"] == [(0, 10_240)] * 2
    faster = changed(HOST, "host.bandwidth", 40e9)
    said = [str(v) for v in check(as_if_on(faster, result), steps.trace(), faster).violations]
    assert any("takes 10240 ns" in line and "5120 ns" in line for line in said)


CHAINS = ("host(pool=grow)", "host(pool=fresh, numa=interleave)", "host(pool=grow, pageable=1)")


def run(seed: int, tiers: str) -> Result:
    """A random program, a third of which the CPU carries out."""
    trace = random_program(seed, 120, streams=3)
    activity = trace.activity.copy()
    activity[::3] = HOST_WORK
    mixed = replace(trace, activity=activity)
    size = int(trace.size.sum()) // 5
    slow = numa(machine({"allocation.host_alloc": 5e4, "host.capacity": 2.0**40}), 2)
    result = simulate(mixed, slow, capacity_bytes=size, log=True, tiers=tiers, prefetch="next_k")
    assert check(result, mixed, slow).violations == ()
    return result


@pytest.mark.slow
@pytest.mark.agreement
def test_compiled_and_interpreted_runs_agree() -> None:
    said = interpreted("test_host_memory", "[t.fingerprint(t.run(n, c)) for n, c in enumerate(t.CHAINS)]")
    assert said == [fingerprint(run(n, c)) for n, c in enumerate(CHAINS)]
