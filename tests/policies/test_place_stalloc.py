"""Does STAlloc serve repeating iterations from its plan, and other requests without harm?"""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numba import types
from place_programs import Watched

from gpusim.policies import registry
from gpusim.policies.compiled import verb
from gpusim.policies.contract import CAPACITY, HELD
from gpusim.policies.place.parts import planned
from gpusim.policies.place.parts.packing.plan import static_bounds
from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import Trace

ROOT = Path(__file__).parents[2]
PAGE = 2 << 20
KIB = 1024
Request = tuple[int, int, int]  # unit, bytes (-1 frees), iteration


def shown(program: list[Request], spec: str = "stalloc", capacity: int = 1 << 30) -> Watched:
    """The allocator, watched, after it has prepared for this program."""
    policy = registry.get("place", spec)
    unit, size, iteration = (np.array(column, np.int64) for column in zip(*program, strict=True))
    kind = (size >= 0).astype(np.int64)
    first: dict[int, int] = {u: s for u, s, _ in reversed(program) if s >= 0}
    ahead = policy.module.prepare(kind, unit, np.array([first[u] for u in unit.tolist()]), iteration, policy.params)
    told = replace(policy, state=lambda *given: policy.state(*given, ahead))
    return Watched(told, capacity, max(first) + 1)


def served(heap: Watched, program: list[Request]) -> list[int]:
    """Addresses of the allocs, in KiB."""
    return [addr // KIB for addr, _ in heap.run([(unit, size, 0) for unit, size, _ in program])]


# Two iterations of the same: 8 KiB that stay, then 4 + 2 together, 6 after the 4 has gone.
STEPS: list[Request] = [
    (0, 8 * KIB, -1),
    (1, 4 * KIB, 0), (2, 2 * KIB, 0), (1, -1, 0), (3, 6 * KIB, 0), (2, -1, 0), (3, -1, 0),
    (4, 4 * KIB, 1), (5, 2 * KIB, 1), (4, -1, 1), (6, 6 * KIB, 1), (5, -1, 1), (6, -1, 1),
]  # fmt: skip


@pytest.mark.hand_worked
def test_a_repeating_iteration_by_hand() -> None:
    # Live peak 8 + 2 + 6.  The 8 lies at the bottom, the 6 on it (the larger first), the 2 on that, the 4 below the 2.
    heap = shown(STEPS)
    assert served(heap, STEPS) == [0, 8, 14, 8, 8, 14, 8]
    assert heap.S[HELD] == PAGE  # 16 KiB, in pages of the device


def test_a_request_that_was_not_recorded_gets_a_gap_of_the_plan_or_the_pool() -> None:
    steps = STEPS.copy()
    steps[7] = (4, 3 * KIB, 1)   # instead of 4 KiB: its place is free as long as that of the 4
    steps[10] = (6, 7 * KIB, 1)  # instead of 6 KiB: only 6 are free beside the 2
    heap = shown(steps)
    assert served(heap, steps) == [0, 8, 14, 8, 8, 14, 16]


def test_a_slot_that_is_in_use_is_not_given_again() -> None:
    steps = STEPS.copy()
    del steps[9]  # the 4 of the second iteration stays where the 6 should lie: no gap, so the pool
    heap = shown(STEPS)
    assert served(heap, steps) == [0, 8, 14, 8, 8, 14, 16]


def test_what_an_iteration_leaves_behind_is_not_in_the_way_of_the_next() -> None:
    # The 2 KiB that are made last and stay (an optimizer's state) may not lie where the next iteration's 4 KiB shall.
    steps: list[Request] = []
    for i in range(3):
        steps += [(10 * i + 1, 4 * KIB, i), (10 * i + 2, 4 * KIB, i), (10 * i + 1, -1, i), (10 * i + 2, -1, i)]
        steps += [(3, 2 * KIB, 0)] if i == 0 else []
    heap = shown(steps)
    first, second, stays, *rest = served(heap, steps)
    assert {first, second, stays} == {0, 4, 8} and rest == [first, second] * 2


def test_a_plan_that_does_not_fit_leaves_all_to_the_pool() -> None:
    heap = shown(STEPS, capacity=12 * KIB)
    assert heap.alloc(0, 8 * KIB) == 0 and heap.alloc(1, 4 * KIB) == 8 * KIB and heap.alloc(2, 2 * KIB) == -1
    heap.free(0)
    heap.free(1)
    heap.S[CAPACITY] = 1 << 20
    assert served(heap, STEPS) == [0, 8, 14, 8, 8, 14, 8]  # once there is room, and nothing in the way


@pytest.mark.parametrize("seed", range(12))
def test_whatever_the_iterations_do_nothing_overlaps(seed: int) -> None:
    rng = random.Random(seed)
    step = [rng.choice([512, 1500, 4096, 30_000]) for _ in range(30)]
    program: list[Request] = []
    live: list[int] = []
    unit = 0
    for i in range(-1, 5):
        for size in step:
            if rng.random() < 0.1:
                size = rng.randrange(60_000)
            program.append((unit, size, i))
            live.append(unit)
            unit += 1
            while live and rng.random() < 0.45:
                program.append((live.pop(rng.randrange(len(live))), -1, i))
    heap = shown(program, f"stalloc(iteration={seed % 3})", 1 << (19 + seed % 3))
    heap.run([(u, s, 0) for u, s, _ in program])
    for u in live:
        heap.free(u)
    assert not heap.live and (heap.S[int(heap.S[heap.policy.module.PLAN]) + planned.TREE] > 0)


@pytest.mark.parametrize("name", ["gpt2-small-train", "bert-large-train", "llama-1b-train", "resnet50-train"])
def test_a_recorded_training_step_repeats_in_exactly_the_planned_bytes(name: str) -> None:
    """The second step follows the plan of the first; pages of 2 MiB and small requests of the pool are all that is on top."""
    trace = load_trace(ROOT / f"traces/{name}.npz")
    peak, _, top, proven = static_bounds(trace) or (0, 0, 0, False)
    done = replay(of_trace(trace), registry.get("place", "stalloc"))
    assert proven and top == peak
    assert peak <= done.held_peak <= -(-peak // PAGE) * PAGE + PAGE
    assert done.held_peak < replay(of_trace(trace), registry.get("place", "best_fit")).held_peak


def stepping(phases: list[str]) -> Trace:
    build = TraceBuilder("steps")
    for phase in phases:
        build.begin_phase(phase)
        build.free(build.alloc(8))
    return build.finish()


def test_iterations_are_the_numbered_phases() -> None:
    names = ["load", "step0.fwd", "step0.bwd", "step1.fwd", "save", "step2.fwd", "step10"]
    trace = stepping(names)
    assert iterations(trace)[::3].tolist() == [-1, 0, 0, 1, -1, 2, 3]
    assert iterations(stepping(["fwd", "bwd"])).tolist() == [0] * 6


# --- the tree ---------------------------------------------------------------------------------------------------------

_S = types.Array(types.int64, 1, "C")


@verb(types.int64(_S, types.int64, types.int64, types.int64, types.int64))
def look(S: Any, at: int, first: int, end: int, change: int) -> int:
    if change != 0:
        planned.mark(S, at, first, end, change)
        return 0
    return 1 if planned.free(S, at, first, end) else 0


@pytest.mark.slow
def test_the_tree_knows_what_is_free() -> None:
    for pieces in (1, 2, 5, 16, 23):
        rng = random.Random(pieces)
        offset = np.arange(pieces, dtype=np.int64)
        S = np.concatenate([[7, 7], planned.build(2, offset, offset * 0 + 1, offset, offset + 1)]).astype(np.int64)
        count, blocks = [0] * pieces, []
        for _ in range(300):
            first = rng.randrange(pieces)
            end = rng.randrange(first, pieces) + 1
            free = not any(count[first:end])
            assert look(S, 2, first, end, 0) == free
            change = (first, end, 1)
            if blocks and (not free or rng.random() < 0.5):
                first, end, _ = blocks.pop(rng.randrange(len(blocks)))
                change = (first, end, -1)
            elif free:
                blocks.append(change)
            look(S, 2, *change)
            for k in range(change[0], change[1]):
                count[k] += change[2]
