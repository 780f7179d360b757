"""Step times from a user's table: medians, lines between and beyond, and what is no such table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tabled import TabledCost
from gpusim.machine.serving.given import GivenStepTimes, given_step_times
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table

HEAD = "model,hardware,prompt_size,batch_size,prompt_time,token_time\n"
ROWS = "m,h100,100,1,10,2\nm,h100,100,1,14,4\nm,h100,100,1,11,3\nm,h100,100,2,21,5\nm,h100,200,1,23,7\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "times.csv"
    path.write_text(text, "utf-8")
    return path


def test_rows_of_one_size_are_their_median(tmp_path: Path) -> None:
    found = given_step_times(str(write(tmp_path, HEAD + ROWS)))
    assert found.tokens.tolist() == [100, 200]
    assert (found.prompt / 1e6).tolist() == [11, 22] and (found.token / 1e6).tolist() == [3, 6]


def test_rows_are_chosen(tmp_path: Path) -> None:
    path = write(tmp_path, HEAD + ROWS + ROWS.replace("h100", "a100").replace(",10,2", ",30,2").replace(",11,3", ",33,3"))
    assert given_step_times(f"{path}(hardware=h100)").prompt[0] == 11e6
    assert given_step_times(f"{path}( model = m, hardware=a100 )").prompt[0] == 30e6


@pytest.mark.parametrize(
    ("text", "word", "told"),
    [
        ("", "", "no file of step times"),
        ("prompt_size,batch_size,prompt_time\n", "", "needs the column 'token_time'"),
        (HEAD + ROWS + ROWS.replace("h100", "a100"), "", "rows of 2 values of 'hardware': h100 and a100"),
        (HEAD + ROWS, "(hardware=b200)", "no rows of hardware 'b200'"),
        (HEAD + ROWS, "(hardware)", "'hardware' in .* chooses no rows"),
        (HEAD + ROWS + "m,h100,100,1,x,2\n", "", "times.csv:7: 'x' is no prompt time"),
        (HEAD + ROWS + "m,h100,100,1,0,2\n", "", "'0' is no prompt time"),
        (HEAD + ROWS + "m,h100\n", "", "'None' is no prompt size"),
        (HEAD + "m,h100,100,1,10,2\n", "", "times of one size"),
        (HEAD, "", "no rows"),
    ],
)
def test_what_is_no_table_is_told(tmp_path: Path, text: str, word: str, told: str) -> None:
    path = write(tmp_path, text) if text else tmp_path / "none.csv"
    with pytest.raises(GpusimError, match=told):
        given_step_times(f"{path}{word}")


def served(requests: Any, times: GivenStepTimes, scheduler: str) -> Any:
    limits = EngineLimits(blocks=1000, block_size=1, max_seqs=8, max_tokens=300, max_len=900)
    run = ServiceRun(requests, [Engine("0", get("schedule", scheduler).start(requests, limits), TabledCost(times))])
    run.advance()
    return run


@pytest.mark.hand_worked
@pytest.mark.parametrize("scheduler", ["splitwise", "vllm@0.33(enable_prefix_caching=0, async_scheduling=0)"])
def test_lines_between_and_beyond_by_hand(scheduler: str) -> None:
    """Prompts: 1000 ns + 10 a token to 100, then 20 a token.  Tokens: 100 ns + 1 a token.  Both: 1.1 of prompts."""
    times = GivenStepTimes(np.array([50.0, 100, 200]), np.array([1500.0, 2000, 4000]), np.array([150.0, 200, 300]))
    found = served(request_table([0, 10], [20, 250], [3, 2]), times, scheduler).result()
    # 20 tokens: 1200.  251 tokens, a prompt beside a token: 1.1 (4000 + 51 x 20) = 5522.  Then two tokens: 102.
    assert found.first.tolist() == [1200, 6722] and found.ended.tolist() == [6824, 6824]


def test_parts_of_a_ns_are_not_lost() -> None:
    times = GivenStepTimes(np.array([1.0, 2]), np.array([10.4, 10.4]), np.array([10.4, 10.4]))
    run = served(request_table([0], 20, 100), times, "splitwise")
    assert run.now == 1040 and run.engines[0].cost.spent().ns == 1040


def test_times_that_fall_below_nothing_are_refused() -> None:
    times = GivenStepTimes(np.array([100.0, 200]), np.array([10.0, 200]), np.array([10.0, 10]))
    with pytest.raises(GpusimError, match="prompts, a step of one token takes"):
        TabledCost(times)
