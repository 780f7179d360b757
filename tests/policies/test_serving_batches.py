"""Batches of classic models and SGLang's scheduler, steps worked out by hand."""

from __future__ import annotations

import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_sglang_steps

from gpusim.base.errors import PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table
from gpusim.policies.schedule.parts.sglang_tables import FULL, OVERLAPS, PAGES_FREE, UNDER_WAY

SAMPLES = Path(__file__).parents[1] / "data" / "serving"
SGLANG = "sglang@0.5(disable_overlap_schedule=1)"
pytestmark = pytest.mark.hand_worked


def start(spec: str, prompt: Any, output: Any, arrival: Any = None, limits: Any = None, **columns: Any) -> Running:
    arrival = np.zeros(len(prompt), np.int64) if arrival is None else arrival
    given = {"blocks": 1000, "block_size": 1, "max_seqs": 8, "max_tokens": 64, "max_len": 100} | (limits or {})
    return get("schedule", spec).start(request_table(arrival, prompt, output, **columns), EngineLimits(**given))


def step(run: Running, now: int = 0) -> list[tuple[int, int, int]]:
    """(request, tokens, tokens before) of each row of the next step."""
    rows = run.compose(now)
    s = run.step
    return list(zip(s.request[:rows].tolist(), s.tokens[:rows].tolist(), s.before[:rows].tolist(), strict=True))


def ended(run: Running, now: int = 0) -> list[int]:
    return run.step.ended[: run.over(now)].tolist()


def test_a_static_batch_runs_to_its_longest_output() -> None:
    run = start("static", [5, 7, 2], [1, 3, 1], limits={"max_seqs": 2})
    for r in range(3):
        run.arrive(r)
    assert step(run) == [(0, 5, 0), (1, 7, 0)]
    assert ended(run) == []
    assert step(run) == [(0, 1, 5), (1, 1, 7)]
    assert ended(run) == []
    assert step(run) == [(0, 1, 6), (1, 1, 8)]
    assert ended(run) == [0, 1]
    assert step(run) == [(2, 2, 0)]
    assert ended(run) == [2]
    assert step(run) == []


def test_static_answers_may_be_returned_as_they_are_made() -> None:
    run = start("static(together=0)", [5, 7], [1, 3])
    for r in range(2):
        run.arrive(r)
    step(run)
    assert ended(run) == [0]
    assert run.step.made.tolist() == [1, 1]


def test_each_row_of_a_batch_holds_the_longest_sequence() -> None:
    run = start("static", [5, 5, 5], [1, 1, 1], limits={"blocks": 15, "block_size": 16, "max_len": 100})  # 7 blocks each
    for r in range(3):
        run.arrive(r)
    assert step(run) == [(0, 5, 0), (1, 5, 0)]
    assert run.step.word[t.FREE] == 1


SIZES = "dynamic_batching(preferred_batch_size=4,2,max_queue_delay_us=10)"


def test_a_batch_of_a_preferred_size_does_not_wait() -> None:
    run = start(SIZES, [1] * 5, [1] * 5, arrival=np.arange(5) * 1000)
    run.arrive(0, 0)
    assert step(run, 0) == []
    assert run.step.word[t.WAKE] == 10_000
    run.arrive(1, 1000)
    assert [r for r, _, _ in step(run, 1000)] == [0, 1]
    for r in range(2, 5):  # while the batch runs
        run.arrive(r, r * 1000)
    assert ended(run, 5000) == [0, 1]
    assert [r for r, _, _ in step(run, 5000)] == [2, 3]  # the largest preferred size that is there
    assert ended(run, 6000) == [2, 3]
    assert step(run, 6000) == []
    assert run.step.word[t.WAKE] == 14_000
    assert [r for r, _, _ in step(run, 14_000)] == [4]  # it has waited as long as it may


def test_after_the_delay_all_go_that_are_there() -> None:
    run = start(SIZES, [1] * 3, [1] * 3)
    for r in range(3):
        run.arrive(r)
    assert [r for r, _, _ in step(run, 10_000)] == [0, 1, 2]


def test_without_a_delay_nobody_waits() -> None:
    run = start("dynamic_batching(preferred_batch_size=4)", [1] * 3, [1] * 3)
    for r in range(3):
        run.arrive(r)
    assert [r for r, _, _ in step(run)] == [0, 1, 2]


def test_a_client_that_goes_away_leaves_its_row_to_the_batch() -> None:
    run = start("static", [3, 3], [2, 2])
    for r in range(2):
        run.arrive(r)
    step(run)
    run.leave(0)
    run.over()
    assert [r for r, _, _ in step(run)] == [0, 1]
    assert ended(run) == [1]
    assert run.step.status.tolist() == [t.ABORTED, t.FINISHED]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("ahead", [False, True])
def test_each_step_is_that_of_sglangs_scheduler(ahead: bool, mixed: bool) -> None:
    file = SAMPLES / f"sglang-0.5.23-{'mixed-' * mixed}{'overlap-' * ahead}scheduler.json.xz"
    kept = json.loads(lzma.decompress(file.read_bytes()))["cases"]
    assert len(kept) == 2 * len(real_sglang_steps.FAMILIES)
    for recorded in kept:
        c = real_sglang_steps.case(recorded["seed"], recorded["family"], ahead, mixed)
        told, _ = real_sglang_steps.play(c, [real_sglang_steps.SimulatedSglang(c)])
        assert json.loads(json.dumps(told)) == recorded["steps"], (recorded["family"], recorded["seed"])


@pytest.mark.hand_worked
def test_what_is_prefilled_into_an_empty_batch_does_not_know_that_it_was_full() -> None:
    """Beside request 0 there is no room for request 1, which marks the batch as full: the one that was empty. The next pass
    looks at those that wait again."""
    run = start(SGLANG, [20, 9], [4, 16], limits={"blocks": 40})
    for r in range(2):
        run.arrive(r)
    assert step(run) == [(0, 20, 0)]
    run.over()
    assert run.tables[0].tables.word[FULL] == 0


def test_sglang_prefills_first_and_keeps_a_chunk() -> None:
    run = start(SGLANG, [10, 30], [3, 2], limits={"max_tokens": 16})
    for r in range(2):
        run.arrive(r)
    assert step(run) == [(0, 10, 0), (1, 6, 0)]
    assert ended(run) == []
    assert step(run) == [(1, 16, 6)]  # the chunk goes on alone; nobody decodes meanwhile
    run.over()
    assert step(run) == [(1, 8, 22)]
    run.over()
    assert step(run) == [(0, 1, 10), (1, 1, 30)]
    assert ended(run) == [1]
    assert step(run) == [(0, 1, 11)]
    assert ended(run) == [0]
    assert run.step.word[t.FREE] == run.step.word[t.BLOCKS]


def test_with_mixed_chunks_running_requests_make_a_token_in_the_step_of_a_prefill() -> None:
    """The chunk of the second request is 15 tokens beside one of the first: 16 tokens a step."""
    run = start("sglang@0.5(disable_overlap_schedule=1,enable_mixed_chunk=1)", [10, 30], [4, 2], limits={"max_tokens": 16})
    for r in range(2):
        run.arrive(r)
    assert step(run) == [(0, 10, 0), (1, 6, 0)]
    run.over()
    assert step(run) == [(1, 15, 6), (0, 1, 10)]
    run.over()
    assert step(run) == [(1, 9, 21), (0, 1, 11)]
    run.over()
    assert step(run) == [(1, 1, 30), (0, 1, 12)]  # the prompt's row is first in the batch
    assert ended(run) == [1, 0]


def test_sglang_without_chunks_computes_a_long_prompt_whole_and_alone() -> None:
    spec = "sglang@0.5(disable_overlap_schedule=1,chunked_prefill=0,max_prefill_tokens=20)"
    run = start(spec, [30, 8, 8, 8], [1] * 4, limits={"max_tokens": 16})
    for r in range(4):
        run.arrive(r)
    assert step(run) == [(0, 30, 0)]
    run.over()
    assert step(run) == [(1, 8, 0), (2, 8, 0)]  # 4 tokens are left of 20
    run.over()
    assert step(run) == [(3, 8, 0)]


def test_sglang_finds_what_another_has_computed() -> None:
    same = {"known": 32, "start": [0, 2, 4], "identity": [7, 8, 7, 9], "piece": 16}
    run = start(SGLANG, [32, 32], [1, 1], **same)
    run.arrive(0)
    step(run)
    run.over()
    run.arrive(1)
    assert step(run) == [(1, 16, 16)]
    assert run.step.cached.tolist() == [0, 16]
    assert run.step.word[t.HIT] == 16


def test_sglang_retracts_the_shortest_output() -> None:
    # 30 pages for prompts of 8 and outputs of 9, of which hardly any is expected: both start, and 30 < 2 * (8 + 8).
    run = start(
        "sglang@0.5(disable_overlap_schedule=1,enable_radix_cache=0,schedule_conservativeness=0.001)", [8, 8], [9, 9],
        limits={"blocks": 30},
    )  # fmt: skip
    run.arrive(0)
    assert step(run) == [(0, 8, 0)]
    run.over()
    assert step(run) == [(0, 1, 8)]
    run.over()
    run.arrive(1)
    assert step(run) == [(1, 8, 0)]  # 17 pages are held
    run.over()
    for before in range(9, 15):  # 2 pages a step
        assert step(run) == [(0, 1, before), (1, 1, before - 1)]
        run.over()
    assert step(run) == [(0, 1, 15)]  # one page is left: the request with 7 tokens gives its pages up, not that with 8
    assert run.step.preempted[: run.step.word[t.N_PREEMPTED]].tolist() == [1]
    assert ended(run) == [0]
    assert step(run) == [(1, 15, 0)]
    assert run.step.preemptions.tolist() == [0, 1]


def test_lpm_lets_one_of_those_that_begin_alike_go_first() -> None:
    alike = {"known": 48, "start": [0, 3, 6, 9], "identity": [1, 2, 3, 1, 2, 4, 5, 6, 7], "piece": 16}
    spec = "sglang@0.5(disable_overlap_schedule=1,schedule_policy=lpm)"
    run = start(spec, [48] * 3, [1] * 3, limits={"max_tokens": 96}, **alike)
    for r in range(3):
        run.arrive(r)
    assert [r for r, _, _ in step(run)] == [0, 2]
    run.over()
    assert step(run) == [(1, 16, 32)]


@pytest.mark.parametrize(
    ("spec", "limits", "said"),
    [
        ("sglang@0.4", {}, "SGLang 0.4 is not modelled"),
        ("vllm@", {}, "'vllm@' names no version"),
        ("sglang(schedule_policy=hrrn)", {}, "schedule_policy=hrrn of SGLang is not modelled"),
        ("sglang(radix_eviction_policy=lur)", {}, "is 'lur'"),
        ("sglang(ignore_eos=1,enable_radix_cache=0)", {}, "which is not modelled"),
        ("sglang(speculative_algorithm=EAGLE)", {}, "does not model speculation .leave out speculative_algorithm"),
        ("sglang(enable_hierarchical_cache=1)", {}, "does not model HiCache's pool in host memory"),
        ("vllm(num_speculative_tokens=3)", {}, "policy 'vllm' does not model speculation"),
        ("vllm(sliding_window=4096)", {}, "does not model attention within a window"),
        ("sglang", {"block_size": 64, "max_tokens": 32}, "is less than a page"),
        ("sglang(enable_mixed_chunk=1)", {"max_tokens": 8}, "a chunk of 8 tokens has no room beside those of 8 running"),
        ("static", {"blocks": 5, "block_size": 16}, "needs 7 KV blocks"),
        ("dynamic_batching(preferred_batch_size=16)", {}, "a batch of 16 is preferred"),
        ("dynamic_batching(preferred_batch_size=4;8)", {}, "is '4;8'"),
    ],
)
def test_what_does_not_go_is_refused(spec: str, limits: dict[str, int], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        start(spec, [4], [4], limits=limits)


@pytest.mark.parametrize("spec", ["static", "dynamic_batching", "sglang@0.5"])
def test_impossible_requests_are_refused_and_counted(spec: str) -> None:
    run = start(spec, [0, 200, 5], [4, 4, 4])
    assert [run.arrive(r) for r in range(3)] == [t.EMPTY, t.LONG_PROMPT, 0]
    assert run.step.word[t.REFUSED] == 2
    while run.compose():
        run.over()
    assert run.step.status.tolist() == [t.REJECTED, t.REJECTED, t.FINISHED]


SPECS = [
    "sglang@0.5", "sglang@0.5(schedule_policy=lpm)", "sglang@0.5(schedule_policy=lof,radix_eviction_policy=slru)",
    "sglang@0.5(enable_radix_cache=0)", "sglang@0.5(ignore_eos=1,radix_eviction_policy=tlru,tlru_threshold=50)",
    "sglang@0.5(match_all_waiting=1,radix_eviction_policy=priority)", "sglang@0.5(schedule_conservativeness=0.3)",
    "sglang@0.5(max_new_tokens=90,schedule_conservativeness=0.1)", SGLANG, "sglang@0.5(enable_mixed_chunk=1)",
]  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("page", [1, 4, 16])
def test_every_page_of_sglang_is_somewhere_and_every_request_ends(spec: str, page: int) -> None:
    rng = np.random.default_rng(page)
    prompt, output = rng.integers(1, 150, 60), rng.integers(1, 80, 60)
    pieces = (prompt + 15) // 16
    start_ = np.concatenate([[0], np.cumsum(pieces)])
    alike = rng.integers(0, 4, 60)
    identity = np.concatenate([
        [a * 100 + k if k < 3 else 10_000 + r * 100 + k for k in range(n)]
        for r, (a, n) in enumerate(zip(alike, pieces, strict=True))
    ])  # fmt: skip
    run = start(
        spec, prompt, output, known=prompt, start=start_, identity=identity, piece=16,
        limits={"blocks": 400 // page, "block_size": page, "max_seqs": 8, "max_tokens": 64, "max_len": 300},
    )  # fmt: skip
    for r in range(60):
        run.arrive(r)
    own, tree = run.tables[0].tables, run.tables[1].tables
    steps = under_way = 0
    while run.compose() or under_way:
        if under_way or not own.option[OVERLAPS]:  # of two steps the older one is over
            run.over()
        under_way = own.word[UNDER_WAY]
        steps += 1
        held = int((own.held - own.kept)[own.slot >= 0].sum()) * page
        cached = int(tree.tree["evictable"][0] + tree.tree["protected"][0])
        assert int(own.word[PAGES_FREE]) * page + cached + held == 400 // page * page
        if steps == 40:
            run.leave(int(np.flatnonzero(run.step.status == t.RUNNING)[0]))
            run.leave(int(np.flatnonzero(run.step.status == t.WAITING)[0]))
    assert np.bincount(run.step.status, minlength=9)[[t.FINISHED, t.ABORTED]].tolist() == [58, 2]
    assert run.step.word[t.FREE] == run.step.word[t.BLOCKS]
