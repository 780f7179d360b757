"""vLLM's scheduler: recorded answers of the real classes, the classes themselves, and small runs worked out by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import real_classes
from command_line import gpusim
from step_clock import ready
from vllm_cases import FAMILIES, cases
from vllm_compare import AHEAD, RELEASES, compare, recorded, sample_of, version_of
from vllm_simulated import SimulatedCase, answer, running_of

from gpusim.base.errors import GpusimError, PolicyError
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table

ROOT = Path(__file__).parents[2]
AHEAD_SAMPLE = recorded(sample_of(AHEAD, "async-scheduler"))
SAMPLES = {release: recorded(sample_of(release)) for release in RELEASES}
LIMITS = EngineLimits(blocks=20, block_size=4, max_seqs=4, max_tokens=16, max_len=64)


def start(requests: Any, spec: str = "vllm@0.33", limits: EngineLimits = LIMITS) -> Running:
    """A scheduler to which all requests have come."""
    running: Running = get("schedule", spec).start(requests, limits)
    for r in range(requests.arrival.size):
        running.arrive(r)
    return running


def step(running: Running) -> list[tuple[int, int, int]]:
    """The next step: (request, tokens, tokens before) of each, then it is over."""
    rows = running.compose()
    made = running.step
    found = list(zip(made.request[:rows].tolist(), made.tokens[:rows].tolist(), made.before[:rows].tolist(), strict=True))
    running.over()
    return found


@pytest.mark.oracle
@pytest.mark.parametrize("release", RELEASES)
def test_every_family_is_recorded(release: str) -> None:
    sample = SAMPLES[release]
    assert sample["release"] == release
    drawn = Counter(case["family"] for case in cases(sample["cases"], sample["seed"]))
    assert drawn == dict.fromkeys(FAMILIES, 4)


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_each_step_is_that_of_the_real_scheduler(release: str) -> None:
    sample = SAMPLES[release]
    for case, (number, steps, told) in zip(cases(sample["cases"], sample["seed"]), sample["answers"], strict=True):
        found, _, ours = answer(case, version_of(release))
        assert (case["number"], found) == (number, steps)
        assert ours.tolist() == told, f"case {number} of seed {sample['seed']}"


@pytest.mark.oracle
@pytest.mark.slow
def test_each_step_scheduled_ahead_is_that_of_the_real_async_scheduler() -> None:
    sample = AHEAD_SAMPLE
    drawn = list(cases(sample["cases"], sample["seed"], ahead=True))
    assert Counter(case["family"] for case in drawn) == dict.fromkeys(FAMILIES, 4)
    assert {case["eos"] for case in drawn} == {True, False}
    for case, (number, steps, told) in zip(drawn, sample["answers"], strict=True):
        found, _, ours = answer(case, "0.33")
        assert (case["number"], found) == (number, steps)
        assert ours.tolist() == told, f"case {number} of seed {sample['seed']}, scheduled ahead"


@pytest.mark.oracle
def test_versions_differ_where_they_should() -> None:
    older, newer = (SAMPLES[release]["answers"] for release in RELEASES)
    assert sum(a != b for a, b in zip(older, newer, strict=True)) > len(older) // 2


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("release", RELEASES)
def test_no_difference_to_the_real_classes(release: str) -> None:
    if real_classes.folder(release) is None:
        pytest.skip(real_classes.absent(release))
    for ahead in (False, True) if release == AHEAD else (False,):
        found = compare(release, cases(10**9, 77, ahead=ahead), 3000)
        assert not found.different, found.text()
        assert found.busy >= 3000


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize(("version", "ahead"), [("0.11", False), ("0.33", False), ("0.33", True)])
def test_a_compiled_loop_does_the_same(version: str, ahead: bool) -> None:
    for case in cases(2 * len(FAMILIES), 6, ahead=ahead):
        told = SimulatedCase(case, version)
        told.play()
        running = running_of(case, version)
        below = [r["below"] for r in case["requests"]]
        steps, rows, _ = ready(running, below, max(case["load_steps"], 0), case["steps"])()
        assert steps == told.steps
        assert rows >= told.busy > 0
        for mine, theirs in zip(running.step[:7], told.step[:7], strict=True):  # words, and what each request is doing
            assert mine.tolist() == theirs.tolist()


@pytest.mark.agreement
@pytest.mark.slow
def test_plain_python_does_the_same() -> None:
    program = (
        "from vllm_cases import cases\nfrom vllm_simulated import answer\nimport hashlib\n"
        "print(hashlib.sha256(b''.join(answer(c, v)[2].tobytes() for a in (0, 1) for c in cases(18, 9, ahead=a) "
        "for v in ('0.11', '0.33')[a:])).hexdigest())"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")])
    command = [sys.executable, "-c", program]
    compiled, plain = (
        subprocess.run(command, env=os.environ | {"PYTHONPATH": path} | more, capture_output=True, text=True, check=True).stdout
        for more in ({}, {"NUMBA_DISABLE_JIT": "1"})
    )
    assert compiled == plain


@pytest.mark.hand_worked
def test_prompts_fill_the_step_and_what_is_left_is_computed_later() -> None:
    running = start(request_table([0, 0], [10, 12], [2, 2]))
    assert step(running) == [(0, 10, 0), (1, 6, 0)]
    assert step(running) == [(0, 1, 10), (1, 6, 6)]  # the first output token of request 0 is computed beside the rest of 1
    assert step(running) == [(1, 1, 12)]
    assert step(running) == []
    assert running.step.status.tolist() == [t.FINISHED, t.FINISHED]
    assert running.step.word[t.FREE] == running.step.word[t.BLOCKS] == 19


@pytest.mark.hand_worked
def test_a_prefix_is_found_in_the_same_step_and_the_last_token_is_computed() -> None:
    shared = request_table([0, 0], [8, 8], [1, 1], known=8, start=[0, 2, 4], identity=[1, 2, 1, 2], piece=4)
    running = start(shared)
    assert step(running) == [(0, 8, 0), (1, 4, 4)]  # one of its two blocks is found, as a token has to be computed
    assert running.step.cached.tolist() == [0, 4]
    assert running.step.word[t.HIT] == 4 and running.step.word[t.QUERIED] == 16


@pytest.mark.hand_worked
@pytest.mark.parametrize(("spec", "blocks"), [("vllm@0.11", [5, 4]), ("vllm@0.33", [4, 5])])
def test_what_has_been_freed_is_reused_as_the_version_does(spec: str, blocks: list[int]) -> None:
    # Of the blocks 1 to 5 request 0 had 1, 2, 3, which are full, and 4, which can be found by nobody: 0.33 reuses that at once,
    # 0.11 after block 5, which was free all the time.
    running = get("schedule", spec).start(request_table([0, 1], [25, 9], [1, 2]), EngineLimits(6, 8, 2, 64, 40))
    for r in range(2):
        running.arrive(r)
        step(running)
    own = running.tables[0].tables
    assert own.block[own.slot[1], : own.held[1]].tolist() == blocks


@pytest.mark.hand_worked
def test_the_last_request_is_preempted_where_blocks_are_short() -> None:
    limits = EngineLimits(blocks=6, block_size=4, max_seqs=2, max_tokens=16, max_len=20)
    running = start(request_table([0, 0], [8, 8], [8, 8]), limits=limits)
    assert step(running) == [(0, 8, 0), (1, 8, 0)]
    assert step(running) == [(0, 1, 8)]  # the fifth block is the last; request 1 finds none and gives its own up
    assert running.step.preempted[: running.step.word[t.N_PREEMPTED]].tolist() == [1]
    assert running.step.status[1] == t.PREEMPTED and running.step.computed[1] == 0


@pytest.mark.hand_worked
def test_a_client_that_goes_away_frees_its_blocks() -> None:
    running = start(request_table([0, 0], [8, 8], [8, 8]))
    step(running)
    running.leave(0)
    running.leave(0)  # a second time does nothing
    assert running.step.status.tolist() == [t.ABORTED, t.RUNNING]
    assert step(running) == [(1, 1, 8)]
    assert running.step.word[t.FREE] == 19 - 3


@pytest.mark.hand_worked
def test_a_load_holds_its_request_while_others_run() -> None:
    table = request_table([0, 0], [9, 9], [1, 1], known=8, start=[0, 2, 4], identity=[1, 2, 3, 4], piece=4)
    running = start(table)
    running.step.word[t.TIERS] = t.ASYNC_LOADS
    assert running.compose() == t.ASK_TIER
    assert running.step.word[t.ASKED] == 0
    running.step.below[0] = 8
    assert running.compose() == t.ASK_TIER
    running.step.below[1] = 0
    assert running.compose() == 1
    assert running.step.load[: running.step.word[t.N_LOADS]].tolist() == [[0, 0, 8]]
    assert running.step.status.tolist() == [t.LOADING, t.RUNNING]
    running.over()
    assert step(running) == []
    running.loaded(0)
    assert step(running) == [(0, 1, 8)]


@pytest.mark.parametrize(
    ("prompt", "output", "reason"),
    [(0, 1, t.EMPTY), (64, 1, t.LONG_PROMPT), (60, 5, t.LONG_OUTPUT), (60, 4, 0)],
)
def test_an_impossible_request_is_refused_and_counted(prompt: int, output: int, reason: int) -> None:
    running = get("schedule", "vllm@0.33").start(request_table([0], [prompt], [output]), LIMITS)
    assert running.arrive(0) == reason
    assert running.step.word[t.REFUSED] == (reason > 0)
    assert t.REFUSALS[reason] or not reason


def test_a_request_that_all_blocks_cannot_hold_is_refused() -> None:
    running = get("schedule", "vllm@0.33").start(request_table([0], [40], [24]), EngineLimits(16, 4, 4, 16, 64))
    assert running.arrive(0) == t.NO_ROOM


@pytest.mark.slow
def test_a_million_requests_take_little_memory() -> None:
    n = 1_000_000
    table = request_table(np.arange(n), 100, 10)
    running = get("schedule", "vllm@0.33").start(table, EngineLimits(1000))
    arrays = [a for tables in (table, running.step, *(placed.tables for placed in running.tables)) for a in tables]
    assert sum(a.nbytes for a in arrays) < 200e6


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("vllm@0.20", r"vLLM 0.20 is not modelled \(modelled are vllm@0.9, vllm@0.11, vllm@0.33\)"),
        ("vllm@0.11(watermark=0.1)", r"vLLM 0.11 has no option 'watermark'"),
        ("vllm@0.33(policy=lifo)", r"parameter 'policy' of policy 'vllm' is 'lifo' \(one of fcfs, priority\)"),
        ("vllm@0.33(enable_prefix_caching=2)", r"is 2 \(0 or 1\)"),
        ("vlm@0.33", r"there is no schedule policy 'vlm' \(did you mean 'vllm'\?\)"),
        ("vllm@0.33(sliding_window=4)", r"does not model attention within a window"),
    ],
)
def test_what_is_not_modelled_is_refused(spec: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        get("schedule", spec)


@pytest.mark.parametrize(
    ("limits", "spec", "said"),
    [
        ({"blocks": 10, "block_size": 4, "max_len": 64}, "vllm@0.33", "of 64 tokens needs 16 KV blocks, and there are 10"),
        ({"blocks": 20, "max_tokens": 32, "max_len": 64}, "vllm@0.33(enable_chunked_prefill=0)", "of 32 tokens cannot take"),
        ({"blocks": 20, "block_size": 0}, "vllm@0.33", "block_size of a serving engine is 0, which is below 1"),
    ],
)  # fmt: skip
def test_limits_with_which_the_engine_would_not_start_are_refused(limits: dict[str, int], spec: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        get("schedule", spec).start(request_table([0], [8], [8]), EngineLimits(**limits))


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (([5, 3], [1, 1], [1, 1]), "request 1 arrives at 3 ns, before request 0 at 5 ns"),
        (([0, 0], [1, 1], [1, -1]), "request 1 has an output of -1 tokens"),
        (([0, 0], [1], [1, 1]), "there are 2 arrivals, and 1 values of prompt"),
    ],
)
def test_damaged_requests_are_refused(columns: Any, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        request_table(*columns)


def test_identities_that_are_too_few_and_blocks_that_do_not_divide_are_refused() -> None:
    with pytest.raises(GpusimError, match="identities of 1 pieces of 4 tokens, which is less than the 8 tokens"):
        request_table([0], [8], [1], known=8, start=[0, 1], identity=[1], piece=4)
    table = request_table([0, 0], [8, 8], [1, 1], known=8, start=[0, 1, 2], identity=[1, 1], piece=8)
    with pytest.raises(PolicyError, match="identified by 8 tokens, which blocks of 3 do not divide"):
        get("schedule", "vllm@0.33").start(table, EngineLimits(blocks=40, block_size=3, max_len=64))


def test_a_scheduler_is_spelled_with_its_version() -> None:
    assert get("schedule", "vllm").spec == "vllm@0.33"
    assert get("schedule", "vllm@0.11(policy=priority)").spec == "vllm@0.11(policy=priority)"


@pytest.mark.parametrize(
    ("words", "said", "not_said"),
    [(["vllm@0.11"], "vllm (schedule)", "vllm_v0"), (["vllm@0.9"], "vllm_v0 (schedule)", "vllm (schedule)"),
     (["schedule"], "vLLM's v1 scheduler", "belady")],
)  # fmt: skip
def test_the_command_line_explains_a_version_and_lists_a_kind(words: list[str], said: str, not_said: str) -> None:
    out = gpusim("policies", *words).stdout
    assert said in out and not_said not in out
