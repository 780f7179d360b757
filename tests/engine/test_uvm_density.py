"""Does the density prefetcher answer as the driver's own?

The 100 cases of data/uvm_prefetch_cases.jsonl hold what the unmodified uvm_perf_prefetch.c of NVIDIA's open kernel modules,
release 595.45.04 (MIT), compiled in user space with stub types, answers to generated inputs.  The six sequences are transfers
that nvprof recorded on a GTX 1080 Ti for the micro-benchmarks of UVMSmart (DebashisGanguly/gpgpu-sim_UVMSmart).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.compiled import entry
from gpusim.engine.pages import density
from gpusim.engine.pages.bits import WORDS

pytestmark = pytest.mark.oracle

DATA = Path(__file__).parents[1] / "data"
CASES = [json.loads(line) for line in (DATA / "uvm_prefetch_cases.jsonl").read_text().splitlines()]
F, R, T, C, OUT, LEAVES = range(6)


@entry()
def advise(W: Any, offset: int, pages: int, big: int, threshold: int, preferred: int, first_touch: bool, to_cpu: bool) -> None:
    density.advise(W, 0, 1, 2, 3, 4, 5, offset, pages, big, threshold, preferred, first_touch, to_cpu)


@entry()
def ats(W: Any, first: int, outer: int, threshold: int) -> None:
    density.ats(W, 0, 1, 2, 4, 5, first, outer, threshold)


def table(**rows: list[list[int]]) -> Any:
    W = np.zeros((6, WORDS), np.uint64)
    for row, ranges in rows.items():
        for first, outer in ranges:
            for page in range(first, outer):
                W["FRTC".index(row), page >> 6] |= np.uint64(1) << np.uint64(page & 63)
    return W


def pages(W: Any, row: int) -> set[int]:
    return {p for p in range(64 * WORDS) if int(W[row, p >> 6]) >> (p & 63) & 1}


def flat(ranges: list[list[int]]) -> set[int]:
    return {p for first, outer in ranges for p in range(first, outer)}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=[c["id"] for c in CASES])
def test_answers_as_the_driver(case: dict[str, Any]) -> None:
    W = table(F=case["faulted"], R=case["resident"], T=case["thrashing"], C=case["cpu_mapped"])
    expected = case["expected"]
    if case["path"] == "ats":
        ats(W, *case["max_region"], case["threshold"])
        assert pages(W, OUT) == flat(expected["prefetch_mask"])
        return
    preferred = density.ANYWHERE
    if case["preferred_location"] is not None:
        preferred = density.HERE if case["preferred_location"] == case["destination"] else density.ELSEWHERE
    advise(W, case["block_offset_pages"], case["block_pages"], 65536 // case["page_size"], case["threshold"], preferred,
           not case["block_resident_anywhere"], case["destination"] == "cpu")  # fmt: skip
    assert pages(W, OUT) == flat(expected["prefetch_mask"])
    before = case["fault_migrations_before"] if case["last_destination"] == case["destination"] else 0
    assert before + len(flat(case["faulted"])) == expected["fault_migrations_after"]
    valid = expected["fault_migrations_after"] >= case["min_faults"] and bool(pages(W, OUT))
    assert valid == expected["hint_valid"]
    migrate = flat(case["faulted"]) | (pages(W, OUT) if valid else set())
    assert migrate == flat(expected["migrate"])
    assert migrate - flat(case["resident"]) == flat(expected["newly_resident"])


def serve(touches: list[int], threshold: int = 51, length: int = 512, offset: int = 0, big: int = 16) -> list[set[int]]:
    """What each touch of a page moves, each fault served alone, in a block that is elsewhere."""
    W, moved = table(), []
    for page in touches:
        if page in pages(W, R):
            continue
        W[F] = 0
        W[F, page >> 6] |= np.uint64(1) << np.uint64(page & 63)
        advise(W, offset, length, big, threshold, density.ANYWHERE, False, False)
        moved.append((pages(W, OUT) | {page}) - pages(W, R))
        W[R] |= W[F] | W[OUT]
    return moved


SEQUENCES = [
    ([0, 1, 2, 4, 8, 16], "0 1 2-3 4-7 8-15 16-31"),
    ([1, 3, 0, 4, 8, 16], "1 3 0,2 4-7 8-15 16-31"),
    ([1, 3, 5, 7, 0, 8, 16], "1 3 5 7 0,2,4,6 8-15 16-31"),
    ([16, 8, 4, 2, 1, 0], "16 8 4 2 1 0,3"),
    ([16, 8, 4, 0, 3, 1], "16 8 4 0 3 1-2"),
    ([16, 8, 0, 7, 5, 3, 1], "16 8 0 7 5 3 1-2,4,6"),
]


def units(text: str) -> set[int]:
    """64 KiB units, as pages of 4 KiB."""
    out: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        out |= set(range(16 * int(first), 16 * (int(last or first) + 1)))
    return out


@pytest.mark.parametrize(("touches", "recorded"), SEQUENCES, ids=[r for _, r in SEQUENCES])
def test_moves_what_a_gpu_was_seen_to_move(touches: list[int], recorded: str) -> None:
    assert serve([16 * t for t in touches]) == [units(u) for u in recorded.split()]


@pytest.mark.slow
@pytest.mark.parametrize("descending", [False, True])
def test_six_faults_bring_a_block(descending: bool) -> None:
    touches = list(range(511, -1, -1) if descending else range(512))
    assert [len(m) for m in serve(touches)] == [16, 16, 32, 64, 128, 256]


@pytest.mark.slow
def test_threshold_75_needs_twenty_faults() -> None:
    moved = [(min(m), len(m)) for m in serve(list(range(512)), 75)]
    assert moved == [
        (0, 16), (16, 16), (32, 16), (48, 16), (64, 16), (80, 16), (96, 32), (128, 16), (144, 16), (160, 16), (176, 16),
        (192, 64), (256, 16), (272, 16), (288, 16), (304, 16), (320, 16), (336, 16), (352, 32),
        (384, 128),
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("threshold", "faults"), [(0, 1), (1, 1), (50, 6), (51, 6), (100, 512)])
def test_faults_of_a_block_by_threshold(threshold: int, faults: int) -> None:
    assert len(serve(list(range(512)), threshold)) == faults


def test_every_second_big_page_first() -> None:
    assert [len(m) for m in serve([*range(0, 512, 32), 16])] == [16] * 16 + [256]


@pytest.mark.slow
def test_random_order_takes_as_many_faults_as_the_driver() -> None:
    rng = np.random.default_rng(5)
    faults = [len(serve(list(rng.permutation(512)))) for _ in range(60)]
    assert abs(np.mean(faults) - 13.7) < 4 * 1.5 / 60**0.5
