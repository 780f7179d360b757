"""SplitwiseSim's scheduler of one machine: steps worked out by hand, and recorded answers of the real classes."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from real_splitwise import SECONDS, drawn, ours

from gpusim.base.errors import PolicyError
from gpusim.machine.serving.given import GivenStepTimes
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table

DATA = Path(__file__).parents[1] / "data" / "serving" / "splitwise-sim-8f99e7dc.json"
pytestmark = pytest.mark.hand_worked


def start(prompt: Any, output: Any, spec: str = "splitwise", **limits: int) -> Running:
    given = {"blocks": 1000, "block_size": 1, "max_seqs": 8, "max_tokens": 64, "max_len": 1000} | limits
    return get("schedule", spec).start(request_table(np.zeros(len(prompt)), prompt, output), EngineLimits(**given))


def step(run: Running) -> list[tuple[int, int, int]]:
    """(request, tokens, tokens before) of each row of the next step."""
    rows = run.compose()
    s = run.step
    return list(zip(s.request[:rows].tolist(), s.tokens[:rows].tolist(), s.before[:rows].tolist(), strict=True))


def ended(run: Running) -> list[int]:
    return run.step.ended[: run.over()].tolist()


def preempted(run: Running) -> list[int]:
    return run.step.preempted[: run.step.word[t.N_PREEMPTED]].tolist()


def test_a_prompt_begins_at_once_and_its_tokens_follow() -> None:
    run = start([5], [3])
    assert run.arrive(0) == 0
    assert step(run) == [(0, 5, 0)] and ended(run) == []
    assert step(run) == [(0, 1, 5)] and ended(run) == []
    assert step(run) == [(0, 1, 6)] and ended(run) == [0]
    assert step(run) == [] and run.step.word[t.FREE] == 1000


def test_memory_is_taken_for_a_prompt_and_a_token_then_for_all_others() -> None:
    run = start([5], [3])
    run.arrive(0)
    step(run)
    assert run.step.word[t.FREE] == 994
    ended(run)
    step(run)
    assert run.step.word[t.FREE] == 992


def test_the_first_to_come_runs_alone_the_next_two_together() -> None:
    """The engine begins with the first prompt before the others are there; then prompts go before its tokens, beside them."""
    run = start([5, 6, 7], [3, 2, 2])
    for r in range(3):
        run.arrive(r)
    assert step(run) == [(0, 5, 0)]
    ended(run)
    assert step(run) == [(1, 6, 0), (2, 7, 0), (0, 1, 5)]
    ended(run)
    # Those that run are first, then the tokens of those whose prompts have ended, by arrival.
    assert step(run) == [(0, 1, 6), (1, 1, 6), (2, 1, 7)]
    assert ended(run) == [0, 1, 2]


def test_a_prompt_above_the_tokens_of_a_step_runs_first_and_alone() -> None:
    run = start([5, 100], [9, 2])
    run.arrive(0)
    step(run)
    run.arrive(1)
    ended(run)
    assert step(run) == [(1, 100, 0)]


def test_a_prompt_takes_the_place_of_tokens_which_keep_their_memory() -> None:
    """64 tokens of a step: a prompt of 64 leaves none for the token of request 0, which is preempted and comes back."""
    run = start([5, 64], [9, 2])
    run.arrive(0)
    step(run), ended(run), step(run)
    run.arrive(1)
    ended(run)
    assert step(run) == [(1, 64, 0)] and preempted(run) == [0]
    assert run.step.status[0] == t.PREEMPTED and run.step.word[t.FREE] == 1000 - 14 - 65
    ended(run)
    assert step(run) == [(0, 1, 6), (1, 1, 64)]
    assert run.step.preemptions.tolist() == [1, 0]


def test_a_prompt_that_does_not_fit_waits_until_a_request_ends() -> None:
    """65 tokens are more than a step's, and may not take the place of others: the batch goes on to its first end."""
    run = start([5, 5, 65], [3, 5, 2])
    run.arrive(0), run.arrive(1)
    assert step(run) == [(0, 5, 0)] and ended(run) == []
    assert step(run) == [(1, 5, 0), (0, 1, 5)] and ended(run) == []
    assert step(run) == [(0, 1, 6), (1, 1, 5)]
    run.arrive(2)
    assert ended(run) == [0]
    assert step(run) == [(2, 65, 0)] and preempted(run) == [1]


def test_a_request_passed_over_often_goes_before_prompts() -> None:
    """With max_preemptions=2 request 0 is passed over for two prompts of 64, then runs before the third."""
    run = start([5, 64, 64, 64], [9, 1, 1, 1], "splitwise(max_preemptions=2)")
    run.arrive(0)
    step(run), ended(run), step(run)
    for r in (1, 2, 3):
        run.arrive(r)
    assert ended(run) == [] and step(run) == [(1, 64, 0)]
    assert ended(run) == [1] and step(run) == [(2, 64, 0)]
    assert ended(run) == [2] and step(run) == [(0, 1, 6)]
    assert ended(run) == []  # request 0 goes on alone, as if nobody waited: until it ends, or another request comes


def test_a_request_without_room_waits_and_one_that_never_has_is_refused() -> None:
    run = start([50, 60, 200], [10, 3, 1], blocks=100)
    assert [run.arrive(r) for r in range(3)] == [0, 0, t.NO_ROOM]
    assert step(run) == [(0, 50, 0)]
    ended(run)
    for _ in range(9):  # 60 of 100 tokens are held: no room for 61
        assert [row[0] for row in step(run)] == [0]
        gone = ended(run)
    assert gone == [0]
    assert step(run) == [(1, 60, 0)]


def test_prompts_may_take_the_room_that_tokens_need_and_then_nobody_runs() -> None:
    """97 of 100 tokens are held by two prompts; the tokens of the first need 9, and those of the second wait behind them."""
    run = start([50, 45], [10, 3], blocks=100)
    run.arrive(0), run.arrive(1)
    step(run), ended(run)
    assert step(run) == [(1, 45, 0)]
    ended(run)
    assert step(run) == [] and run.step.word[t.N_WAITING] == 2


def test_requests_that_can_never_run_are_refused() -> None:
    run = start([0, 1000, 990], [1, 1, 20])
    assert [run.arrive(r) for r in range(3)] == [t.EMPTY, t.LONG_PROMPT, t.LONG_OUTPUT]


def test_tokens_alone_wait_for_what_comes_and_prompts_alone_stay_until_it_has_gone() -> None:
    """Two machines: one computes the prompt, and keeps it until the other has it."""
    first, second = start([5], [3]), start([5], [3], blocks=10)
    first.step.part[0], second.step.part[0] = t.PROMPT_ONLY, t.TOKENS_ONLY
    first.arrive(0)
    assert step(first) == [(0, 5, 0)] and ended(first) == [0]
    assert step(first) == [] and first.step.word[t.FREE] == 994
    assert second.arrive(0) == 0 and step(second) == [] and second.step.word[t.FREE] == 4
    first.leave(0), second.loaded(0)
    assert first.step.word[t.FREE] == 1000
    assert step(second) == [(0, 1, 5)] and ended(second) == []
    assert step(second) == [(0, 1, 6)] and ended(second) == [0]
    assert second.step.word[t.FREE] == 10


def test_tokens_that_come_without_room_try_again() -> None:
    run = start([5, 5], [3, 3], blocks=10)
    run.step.part[:] = t.TOKENS_ONLY
    assert [run.arrive(0), run.arrive(1)] == [0, t.NOT_NOW]
    run.loaded(0)
    step(run), ended(run), step(run), ended(run)
    assert run.arrive(1) == 0


@pytest.mark.parametrize("when", ["waits", "runs", "preempted", "between", "comes"])
def test_a_client_goes_away(when: str) -> None:
    """All that it held is free, and others run on."""
    run = start([5, 64, 7], [9, 4, 2])
    if when == "comes":
        run.step.part[0] = t.TOKENS_ONLY
    run.arrive(0)
    if when == "waits":
        step(run)
        run.arrive(1), run.arrive(2), run.leave(1)
        ended(run)
        assert step(run) == [(2, 7, 0), (0, 1, 5)]
    elif when == "runs":
        step(run), run.leave(0)
        assert ended(run) == [] and step(run) == []
    elif when == "between":
        step(run), ended(run), run.leave(0)
        assert [row[0] for row in step(run)] == [0]  # its row is computed, then it is gone
        ended(run)
    elif when == "preempted":
        step(run), ended(run), step(run), run.arrive(1), ended(run), step(run)
        run.leave(0)
        ended(run)
        assert step(run) == [(1, 1, 64)]
        run.leave(1), ended(run)
    else:
        run.leave(0)
    if when == "waits":
        run.leave(0), run.leave(2), ended(run)
    assert step(run) == [] and run.step.word[t.FREE] == 1000 and run.step.word[t.N_WAITING] == 0


def test_parts_are_passed_over_at_least_once() -> None:
    with pytest.raises(PolicyError, match="at least 1"):
        start([5], [3], "splitwise(max_preemptions=0)")


@pytest.mark.oracle
def test_recorded_answers_of_the_real_classes() -> None:
    kept = json.loads(DATA.read_text("utf-8"))
    times = {gpu: GivenStepTimes(**{name: np.array(x) for name, x in of.items()}) for gpu, of in kept["step_times_ns"].items()}
    families, seen = set(), Counter[str]()
    for seed, answer in kept["cases"].items():
        case = drawn(int(seed))
        found, did, happened = ours(case, times)
        np.testing.assert_allclose(found, np.array(answer["times"], float), rtol=0, atol=SECONDS)
        assert did.tolist() == answer["did"]
        families.add(case.family)
        seen += happened
    assert len(families) == 4
    assert min(seen[what] for what in ("preempted", "handed over", "second tries", "machines that joined others")) > 0
