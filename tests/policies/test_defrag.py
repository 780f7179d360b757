"""Is memory that lies in pieces brought into one piece, at the price that the machine says?"""

from __future__ import annotations

import numpy as np
import pytest
from hand_worked import BLOCK, Steps, machine

from gpusim import referee
from gpusim.base.errors import PolicyError
from gpusim.engine.run.simulate import simulate
from gpusim.policies import registry
from gpusim.policies.contract import CALL_LIST, CALLS, HELD, ROUNDED
from gpusim.programs.generate.synth import random_program
from gpusim.results import log
from gpusim.results.heap_over_time import blocks, settled
from gpusim.trace import workload

MIB = 2**20
ABLE = ("first_fit", "next_fit", "best_fit", "worst_fit", "tlsf")


def in_pieces() -> Steps:
    """Four blocks, the second and fourth freed, then one of two blocks' size: 2 blocks are free, 1 in one piece."""
    p = Steps()
    a, b, c, d = (p.alloc() for _ in range(4))
    p.kernel(1000, writes=(a,))
    p.kernel(1000, writes=(c,))
    p.free(b, d)
    e = p.alloc(2)
    p.kernel(500, reads=(a, c), writes=(e,))
    return p


@pytest.mark.hand_worked
@pytest.mark.slow
def test_sliding_by_hand() -> None:
    """c moves from 2 to 1 block: the device is idle at 2000 ns, the copy of 10240 bytes at 20 B/ns (each is read and
    written, 40 B/ns of the memory) takes 512 ns, then the last kernel runs 500."""
    profile = machine({"memory.copy": 40e9})
    done = simulate(in_pieces().trace(), profile, place="first_fit", evict="none", defrag="slide", log=True,
                    capacity_bytes=4 * BLOCK)  # fmt: skip
    moves = done.log[done.log["kind"] == log.MOVE]
    assert [(int(m["a"]), int(m["addr"]), int(m["bytes"]), int(m["t"])) for m in moves] == [(2, BLOCK, BLOCK, 2000)]
    assert done.metrics["makespan_ns"] == 2000 + 512 + 500
    assert (done.metrics["defrags"], done.metrics["moved_bytes"]) == (1, BLOCK)
    assert done.metrics["stall_alloc_ns"] == 512
    assert referee.check(done, in_pieces().trace()).ok


def test_without_it_the_same_program_fails() -> None:
    done = simulate(in_pieces().trace(), machine(), place="first_fit", evict="none", capacity_bytes=4 * BLOCK)
    assert done.outcome == "oom" and done.metrics["frag_failures"] == 1


@pytest.mark.hand_worked
@pytest.mark.slow
def test_remapping_by_hand() -> None:
    """The same with blocks of 4 MiB: two pages go from the hole between a and c, and are taken again at the end."""
    p = Steps()
    mib4 = 4 * MIB / BLOCK
    a, b, c = (p.alloc(mib4) for _ in range(3))
    p.kernel(1000, writes=(a,))
    p.kernel(1000, writes=(c,))
    p.free(b)
    e = p.alloc(2 * mib4)
    p.kernel(500, reads=(a, c), writes=(e,))
    profile = machine({"allocation.malloc": 100.0, "allocation.free": 40.0})
    done = simulate(p.trace(), profile, place="first_fit", evict="none", defrag="remap", log=True, capacity_bytes=16 * MIB)
    assert done.outcome == "finished"
    calls = [(int(r["addr"]) // MIB, int(r["bytes"]) // MIB, int(r["kind"])) for r in done.log
             if r["kind"] in (log.RESERVE, log.RELEASE)]  # fmt: skip
    assert calls == [(0, 4, log.RESERVE), (4, 4, log.RESERVE), (8, 4, log.RESERVE), (4, 4, log.RELEASE), (12, 8, log.RESERVE)]
    # Three calls of 100 ns before the kernels, which end at 2300; then 40 for what goes and 100 for what comes.
    assert done.metrics["makespan_ns"] == 300 + 2000 + 40 + 100 + 500
    assert referee.check(done, p.trace()).ok


@pytest.mark.parametrize(("defrag", "times"), [("slide(before_oom=0)", 0), ("slide(before_oom=0, every=2)", 2),
                                               ("slide(before_oom=0, threshold=0.01)", 1)])  # fmt: skip
def test_occasions(defrag: str, times: int) -> None:
    """Five allocs: after the second and the fourth; only at the fifth is there a hole beside the untouched end."""
    done = simulate(in_pieces().trace(), machine(), place="first_fit", evict="none", defrag=defrag, capacity_bytes=8 * BLOCK)
    assert done.metrics["defrags"] == times


@pytest.mark.conformance
@pytest.mark.slow
@pytest.mark.parametrize("place", ABLE)
@pytest.mark.parametrize("defrag", ["slide", "remap", "slide(threshold=0.1)", "remap(threshold=0.1)", "slide(every=7)",
                                    "remap(every=7)"])  # fmt: skip
def test_the_referee_finds_nothing(place: str, defrag: str) -> None:
    happened = 0
    for seed in range(3):
        trace = random_program(seed, ops=250, largest=16 * MIB, mean_life=40, streams=1 + seed)
        times = np.full(trace.ops, 20_000, np.int64)
        footprint = workload.build(trace, times).live_peak
        for share in (0.5, 1.0):
            done = simulate(trace, machine(), place=place, evict="lru", prefetch="next_k", defrag=defrag, durations=times,
                            capacity_bytes=int(share * footprint) // (2 * MIB) * 2 * MIB, log=True)  # fmt: skip
            report = referee.check(done, trace)
            assert report.ok, report.violations[:3]
            happened += int(done.metrics["defrags"])
    assert happened > 0


@pytest.mark.parametrize("place", ABLE)
def test_after_sliding_there_is_one_hole(place: str) -> None:
    policy = registry.get("place", place)
    rng = np.random.default_rng(3)
    S = policy.state(256 * MIB, 200, 200, policy.params)
    at: dict[int, tuple[int, int]] = {}
    for unit in range(200):
        addr = policy.alloc(S, unit, int(rng.integers(1, MIB)), 0)
        at[unit] = (addr, int(S[2]))
    for unit in range(0, 200, 2):
        policy.free(S, unit, 0)
        del at[unit]
    moved = np.zeros(4 * 201, np.int64)
    for unit, old, new, size in moved[: 4 * policy.compact(S, moved)].reshape(-1, 4).tolist():
        assert at[unit] == (old, size) and new < old
        at[unit] = (new, size)
    end = 0
    for addr, size in sorted(at.values()):
        assert addr == end
        end += size
    assert end == S[ROUNDED] == sum(size for _, size in at.values())


@pytest.mark.parametrize("place", ABLE)
def test_unmapped_pages_lie_in_holes(place: str) -> None:
    policy = registry.get("place", place)
    S = policy.state(64 * MIB, 40, 40, policy.params)
    at = {unit: policy.alloc(S, unit, 3 * MIB // 2, 0) for unit in range(40)}
    for unit in range(40):
        if unit % 4:
            policy.free(S, unit, 0)
    held = int(S[HELD])
    given = policy.remap(S)
    first = int(S[CALL_LIST])
    calls = S[first : first + 2 * int(S[CALLS])].reshape(-1, 2).tolist()
    assert given == -sum(size for _, size in calls) == held - int(S[HELD]) > 0
    for addr, size in calls:
        assert addr % (2 * MIB) == 0 and size % (2 * MIB) == 0
        for unit in range(0, 40, 4):
            assert at[unit] + 3 * MIB // 2 <= addr or addr - size <= at[unit]


def test_an_allocator_that_cannot_is_refused() -> None:
    with pytest.raises(PolicyError, match="'pytorch' cannot be defragmented by 'slide'"):
        simulate(in_pieces().trace(), machine(), place="pytorch", defrag="slide")


def test_a_moved_block_is_two_boxes() -> None:
    done = simulate(in_pieces().trace(), machine(), place="first_fit", evict="none", defrag="slide", log=True,
                    capacity_bytes=4 * BLOCK)  # fmt: skip
    found = blocks(done.log, int(done.metrics["makespan_ns"]))
    mine = found.pick(np.flatnonzero(found.unit == 2))
    assert sorted(zip(mine.addr.tolist(), mine.start.tolist(), strict=True)) == [(BLOCK, 2000), (2 * BLOCK, 0)]
    assert log.MOVE not in settled(done.log)["kind"]
