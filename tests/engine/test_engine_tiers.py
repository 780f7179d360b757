"""Do swaps to and from other memories than the host's take the time, the links and the room that a hand works out?

See `hand_worked` for the machine.  The disk here reads 2 bytes/ns and writes 1, each after 5000 ns: a block of 10,240 bytes
takes 5000 + 10240 = 15,240 ns to it and 5000 + 5120 = 10,120 ns back; from and to the host 2024 and 2280 ns.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hand_worked import BLOCK, Steps, machine, play, stalls, three_tensors_in_two_blocks
from plain_python import fingerprint, interpreted
from plan_policies import OWN, Written
from test_engine_agreement import program

from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile
from gpusim.policies.planning import EVICT, PREFETCH
from gpusim.referee import check
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.codec import Codec
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.hand_worked

DISK = {"nvme.read": 2e9, "nvme.write": 1e9, "nvme.latency": 5000.0, "nvme.capacity": 2**30}
PEER = {"peer.rate": 20e9, "peer.latency": 500.0}


def refereed(steps: Steps, tiers: str, changes: dict[str, float] | None = None, **choices: Any) -> Result:
    result = play(steps, {**DISK, **(changes or {})}, tiers=tiers, **{"blocks": 2, **choices})
    assert check(result, steps.trace()).violations == ()
    return result


def copies(result: Result) -> list[tuple[int, int, int, int]]:
    """(from memory, to memory, start, end) of the swaps, in the order of submission."""
    assert result.log is not None
    times: dict[int, list[int]] = {}
    for r in result.log:
        if r["kind"] in (log.START, log.END):
            times.setdefault(int(r["a"]), []).append(int(r["t"]))
    return [(int(r["b"]) >> 8 & 255, int(r["b"]) & 255, *times[int(r["addr"])]) for r in result.log if r["kind"] == log.COPY]


def kernels(result: Result) -> list[tuple[int, int]]:
    """(start, end) of the kernels."""
    assert result.log is not None
    starts = {int(r["a"]): int(r["t"]) for r in result.log if r["kind"] == log.START and r["b"] >= 0}
    return [(starts[int(r["a"])], int(r["t"])) for r in result.log if r["kind"] == log.END and r["b"] >= 0]


def test_a_disk_beside_the_host_takes_its_own_time() -> None:
    """As in `test_engine_swaps`, with copies of 15,240 and 10,120 ns.

    out a 1000 .. 16,240, kernel c 16,240 .. 16,740, out b 16,240 .. 31,480, in a 31,480 .. 41,600, kernel a .. 42,300
    """
    result = refereed(three_tensors_in_two_blocks(), "nvme(direct=1)")
    assert copies(result) == [(0, 1, 1000, 16_240), (0, 1, 16_240, 31_480), (1, 0, 31_480, 41_600)]
    assert kernels(result) == [(0, 1000), (1000, 2000), (16_240, 16_740), (41_600, 42_300)]
    assert stalls(result) == {"swap_out": 14_240 + 14_740, "swap_in": 10_120}
    assert [result.metrics[f"nvme_{way}_bytes"] for way in ("in", "out", "peak")] == [BLOCK, 2 * BLOCK, 2 * BLOCK]
    assert result.metrics["host_peak_bytes"] == 0


def test_a_bounce_through_the_host_costs_the_link_once_more() -> None:
    """Requests of 1 KiB: the last one crosses the link after the disk is done, 1000 + 1024 / 8 = 1128 ns out, 1102 ns in."""
    result = refereed(three_tensors_in_two_blocks(), "nvme(request=1 KiB)")
    assert [end - start for *_, start, end in copies(result)] == [16_368, 16_368, 11_222]


def test_what_the_host_has_no_room_for_goes_on_to_the_disk() -> None:
    """Host memory for one block: a goes there, b to the disk.

    out a 1000 .. 3280, kernel c 3280 .. 3780; out b waits only for kernel b: 2000 .. 17,240; in a .. 19,264
    """
    result = refereed(three_tensors_in_two_blocks(), "host > nvme(direct=1)", {"host.capacity": BLOCK})
    assert copies(result) == [(0, 1, 1000, 3280), (0, 2, 2000, 17_240), (1, 0, 17_240, 19_264)]
    assert kernels(result)[2:] == [(3280, 3780), (19_264, 19_964)]
    found = {name: result.metrics[f"{name}_bytes"] for name in ("host_in", "host_out", "nvme_in", "nvme_out", "h2d", "d2h")}
    assert found == {"host_in": BLOCK, "host_out": BLOCK, "nvme_in": 0, "nvme_out": BLOCK, "h2d": BLOCK, "d2h": 2 * BLOCK}
    assert [tier["name"] for tier in result.spec["memories"]] == ["host", "nvme"]


def test_a_clean_copy_in_the_host_gives_way_before_anything_spills() -> None:
    """One block of host memory.  a goes out and comes back; its copy below is dropped for b, which goes to the host too."""
    steps = Steps()
    a, b = steps.alloc(), steps.alloc()
    steps.kernel(10, writes=(a,))
    steps.kernel(10, writes=(b,))
    c = steps.alloc()
    steps.kernel(10, writes=(c,))
    steps.free(c)
    steps.kernel(10, reads=(a,))
    steps.alloc()
    result = refereed(steps, "host > nvme(direct=1)", {"host.capacity": BLOCK})
    assert [(src, dst) for src, dst, *_ in copies(result)] == [(0, 1), (1, 0), (0, 1)]
    assert result.metrics["nvme_out_bytes"] == 0


@pytest.mark.parametrize(
    ("tiers", "room", "memory", "said"),
    [
        ("host > nvme", {"host.capacity": BLOCK, "nvme.capacity": BLOCK - 1}, "nvme", "the disk is full"),
        ("nvme > host", {"host.capacity": BLOCK, "nvme.capacity": BLOCK - 1}, "host", "Linux would kill the program"),
        ("nvme", {"nvme.capacity": BLOCK}, "nvme", "the disk is full"),
    ],
)
def test_full_tiers_end_the_run_by_name(tiers: str, room: dict[str, float], memory: str, said: str) -> None:
    result = refereed(three_tensors_in_two_blocks(), tiers, room)
    assert result.outcome == "host_oom" and result.failure is not None
    assert result.failure["memory"] == memory and said in result.failure["advice"]


def test_the_host_takes_part_in_copies_of_memory_that_is_not_pinned() -> None:
    """Staged at 4 bytes/ns out and 5 in, 3000 ns each; the host waits for each copy before it goes on.

    out a 1000 .. 1000 + 3000 + 2560 = 6560; kernel c is submitted then: 6560 .. 7060
    out b 6560 .. 12,120, in a .. 12,120 + 3000 + 2048 = 17,168; kernel a 17,168 .. 17,868
    """
    slow = {"host.pageable_d2h": 4e9, "host.pageable_h2d": 5e9, "link.latency_synchronised": 3000.0}
    result = refereed(three_tensors_in_two_blocks(), "host(pageable=1)", slow)
    assert copies(result) == [(0, 1, 1000, 6560), (0, 1, 6560, 12_120), (1, 0, 12_120, 17_168)]
    assert kernels(result)[2:] == [(6560, 7060), (17_168, 17_868)]
    assert stalls(result) == {"sync": 4560 + 5048, "swap_out": 12_120 - 7060}  # kernel a needs b's block, then the host


def test_memory_of_the_other_socket_is_slower_by_its_share() -> None:
    """Half of 8 and of 10 bytes/ns: 1000 + 2560 and 1000 + 2048 ns."""
    result = refereed(three_tensors_in_two_blocks(), "host(numa=remote)", {"host.numa_remote": 0.5})
    assert [end - start for *_, start, end in copies(result)] == [3560, 3560, 3048]


def test_a_peer_over_its_own_link() -> None:
    """20 bytes/ns after 500 ns: 1012 ns each way."""
    profile = machine(PEER, base="a100-sxm4-80gb")
    result = refereed(three_tensors_in_two_blocks(), "peer", profile=profile)
    assert [end - start for *_, start, end in copies(result)] == [1012, 1012, 1012]
    assert result.metrics["peer_out_bytes"] == 2 * BLOCK and result.metrics["h2d_busy_share"] == 0.0


def test_a_disk_and_the_host_share_the_link_to_the_device() -> None:
    """A disk as fast as the link, 10 bytes/ns after 1000 ns.  b and a come back at once, from the host and from the disk.

    Four blocks; a leaves to the disk at 1 byte/ns, 1000 .. 12,240; b to the host at the 7 that this leaves of the link's 8,
    2000 .. 3000 + 10,240 / 7 = 4463; kernel c 2000 .. 32,000; the host waits, then both come back: 32,000 + 1000, then
    10,240 bytes at 5 bytes/ns each: 35,048.
    """
    steps = Steps()
    a, b, c = steps.alloc(), steps.alloc(), steps.alloc()
    steps.kernel(1000, writes=(a,))
    steps.kernel(1000, writes=(b,))
    steps.kernel(30_000, writes=(c,))
    steps.sync()
    steps.kernel(10, reads=(a, b))
    Written.rows = ((2, EVICT, a, 2), (2, EVICT, b, 1), (3, PREFETCH, b), (3, PREFETCH, a))
    fast = {"nvme.read": 10e9, "nvme.latency": 1000.0}
    result = refereed(steps, "host > nvme(direct=1)", fast, blocks=4, plan="written", use=OWN, evict="none")
    assert copies(result) == [(0, 2, 1000, 12_240), (0, 1, 2000, 4463), (1, 0, 32_000, 35_048), (2, 0, 32_000, 35_048)]


def test_a_plan_names_the_tier_and_a_full_one_is_skipped() -> None:
    steps = three_tensors_in_two_blocks()
    Written.rows = ((1, EVICT, 0, 2),)
    result = refereed(steps, "host > nvme(direct=1)", plan="written", use=OWN)
    assert copies(result)[0][:2] == (0, 2)
    result = refereed(steps, "host > nvme(direct=1)", {"nvme.capacity": 10}, plan="written", use=OWN)
    assert result.metrics["plan_skipped"] == 1


@pytest.mark.slow
def test_compressed_swaps_pass_their_codec_on_the_way_to_any_tier() -> None:
    """Half of the bytes go to the disk: 5000 + 5120 ns out, 5000 + 2560 in."""
    steps = three_tensors_in_two_blocks()
    trace = steps.trace()
    packed = replace(trace, meta={**trace.meta, **Codec(2.0, 1e15, 1e15, "gpu").meta()})
    result = simulate(packed, machine(DISK), place="first_fit", capacity_bytes=2 * BLOCK, tiers="nvme(direct=1)", log=True)
    assert check(result, packed).violations == ()
    assert [end - start for *_, start, end in copies(result)] == [10_120, 10_120, 7560]
    assert result.metrics["nvme_peak_bytes"] == BLOCK


def test_the_host_written_out_is_the_default() -> None:
    steps = three_tensors_in_two_blocks()
    plain, written = play(steps, blocks=2), play(steps, blocks=2, tiers="host(pageable=0)")
    assert plain.log is not None and written.log is not None and np.array_equal(plain.log, written.log)
    assert written.metrics == plain.metrics | {"host_in_bytes": BLOCK, "host_out_bytes": 2 * BLOCK}


# --- the referee -----------------------------------------------------------------------------------------------------------


def story() -> tuple[Result, Trace]:
    steps = three_tensors_in_two_blocks()
    return refereed(steps, "host > nvme(direct=1)", {"host.capacity": BLOCK}), steps.trace()


def said_of(result: Result, trace: Trace) -> str:
    report = check(result, trace)
    assert report.ok is False
    return "; ".join(str(violation) for violation in report.violations)


def with_tier(result: Result, number: int, **changed: Any) -> Result:
    said = [dict(tier) for tier in result.spec["memories"]]
    said[number - 1].update(changed)
    return replace(result, spec={**result.spec, "memories": said})


def test_the_referee_sees_a_full_tier() -> None:
    result, trace = story()
    assert f"memory 2 holds {BLOCK} bytes, more than its capacity" in said_of(
        with_tier(result, 2, capacity=BLOCK - 1), trace
    )


def test_the_referee_sees_a_copy_from_where_nothing_is() -> None:
    result, trace = story()
    assert result.log is not None
    rows = result.log.copy()
    at = np.flatnonzero((rows["kind"] == log.COPY) & (rows["b"] == 1 << 8))[0]
    rows["b"][at] = 2 << 8
    assert "queue" in said_of(replace(result, log=rows), trace)  # it waits in another tier's queue
    number = rows["addr"][at]
    rows["b"][np.isin(rows["kind"], (log.START, log.END)) & (rows["a"] == number)] = -3
    assert "a copy of tensor 0 from or to memory 2, where it has no block" in said_of(replace(result, log=rows), trace)


def test_the_referee_knows_the_links_of_each_tier() -> None:
    result, trace = story()
    rates = {**result.spec["rates"], "nvme_write": 0.5e9}
    assert "(nvme_write)" in said_of(replace(result, spec={**result.spec, "rates": rates}), trace)


# --- agreement -------------------------------------------------------------------------------------------------------------

CHAINS = ("host > nvme", "peer > host(pageable=1) > nvme(direct=1)", "host(pageable=1, numa=remote)", "nvme > host")
SETS = (("first_fit", "lru", "next_k"), ("pytorch", "belady", "oracle"), ("device", "lru", "none"), ("tlsf", "arc", "stride"))


def profile_of(host: int) -> Profile:
    return machine({"host.capacity": host, "peer.rate": 20e9}, base="a100-sxm4-80gb")


def run(seed: int) -> tuple[Result, Trace]:
    trace, durations, capacity = program(seed)
    place, evict, prefetch = SETS[seed % len(SETS)]
    result = simulate(
        trace, profile_of(30 << 20), durations=durations, capacity_bytes=capacity, place=place, evict=evict, prefetch=prefetch,
        plan=f"scatter(seed={seed}, actions=300)", use=OWN, tiers=CHAINS[seed % len(CHAINS)], log=True,
    )  # fmt: skip
    return result, trace


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(8))
def test_chains_are_right_under_any_policies(seed: int) -> None:
    result, trace = run(seed)
    assert result.outcome in ("finished", "host_oom")
    assert check(result, trace).violations == ()
    assert result.metrics["d2h_bytes"] > 0


@pytest.mark.agreement
@pytest.mark.slow
def test_compiled_and_interpreted_chains_agree() -> None:
    said = interpreted("test_engine_tiers", "[t.fingerprint(t.run(seed)[0]) for seed in range(4)]")
    assert said == [fingerprint(run(seed)[0]) for seed in range(4)]


def test_shipped_machines_take_a_chain() -> None:
    """A disk on every machine; where the GPU shares the CPU's memory it is the only tier."""
    steps = three_tensors_in_two_blocks()
    for name, tiers in (("jetson-orin-nano-8gb", "nvme"), ("gh200-96gb", "host > nvme"), ("rtx-4090", "peer > host > nvme")):
        result = play(steps, blocks=2, tiers=tiers, profile=catalogue.load(name))
        assert result.finished and check(result, steps.trace()).ok
