"""Is `gpusim.environment` an environment as Gymnasium has them, and is its run the one that `simulate` has?"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import GpusimError

pytest.importorskip("gymnasium")
ON, MEMORY = "a100-pcie-40gb", "60 %"
MADE: dict[str, dict[str, Any]] = {
    "victim": {"memory": MEMORY, "observe": ("need", "free", "size", "last_use", "uses")},
    "prefetch": {"memory": MEMORY, "decide": "prefetch", "depth": 4},
    "batch": {"memory": "8 GiB", "decide": "batch", "batches": (32, 64, 96), "rounds": 3, "of": 64},
    "share": {"decide": "share", "beside": "resnet50-sgd", "shares": (25, 75), "rounds": 3},
}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("decide", MADE)
def test_it_passes_gymnasiums_checks(decide: str) -> None:
    from gymnasium.utils.env_checker import check_env

    check_env(gpusim.environment("resnet50-sgd", on=ON, **MADE[decide]))


def test_a_seed_decides_the_episode() -> None:
    env = gpusim.environment("resnet50-sgd", on=ON, memory=MEMORY, evict="random")
    ways = []
    for seed in (1, 1, 2):
        seen, _ = env.reset(seed=seed)
        rows, ended = [seen], False
        while not ended:
            seen, _, ended, _, _ = env.step(0)
            rows.append(seen)
        ways.append(np.concatenate(rows).tobytes())
    assert ways[0] == ways[1] != ways[2]


def test_rewards_sum_up_to_the_time_over_the_programs_own() -> None:
    env = gpusim.environment("resnet50-sgd", on=ON, memory=MEMORY, log=True)
    env.reset()
    before, sum_, ended = env.episode.simulation.now, 0.0, False
    while not ended:
        _, reward, ended, _, told = env.step(0)
        sum_ += reward
    result = env.result()
    assert told["outcome"] == "finished" and told["makespan_ns"] == result.makespan_ns
    assert sum_ * env.episode.ends == pytest.approx(before - result.makespan_ns)
    assert gpusim.check(result).ok
    assert result.makespan_ns == gpusim.simulate("resnet50-sgd", on=ON, memory=MEMORY, bounds=False).makespan_ns


def test_steps_outside_of_an_episode_and_numbers_that_are_no_action_are_told() -> None:
    env = gpusim.environment("resnet50-sgd", on=ON, memory=MEMORY, candidates=4)
    with pytest.raises(GpusimError, match="a step outside of an episode"):
        env.step(0)
    env.reset()
    for action in (-1, 4):
        with pytest.raises(GpusimError, match=f"{action} is not an action"):
            env.step(action)
    with pytest.raises(GpusimError, match="there is no result before the episode has ended"):
        env.result()
    while not env.step(0)[2]:
        pass
    with pytest.raises(GpusimError, match="a step outside of an episode"):
        env.step(0)
    assert env.result().finished


def test_rounds_of_a_training() -> None:
    env = gpusim.environment("resnet50-train", on=ON, **MADE["batch"])
    env.reset()
    rows = [env.step(action) for action in (0, 1, 2)]
    facts = [dict(zip(env.names, observed, strict=True)) for observed, *_ in rows]
    assert [f["batch"] for f in facts] == [32, 64, 96] and [f["finished"] for f in facts] == [1, 1, 0]
    assert rows[0][1] == pytest.approx(32 / (facts[0]["time_ns"] / 1e6)) and rows[2][1] == 0
    assert [ended for _, _, _, ended, _ in rows] == [False, False, True]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"decide": "victims"}, "no environment decides 'victims' (did you mean 'victim'?)"),
        ({"observe": ("sise",)}, "'sise' is no fact that can be observed where 'victim' is decided (did you mean 'size'?)"),
        ({}, "nothing is decided: resnet50-sgd needs no room"),
        ({"decide": "share"}, "a share is divided between two programs"),
        ({"decide": "batch"}, "a batch has at least one sample"),
        ({"memory": "1 MiB"}, "nothing is decided: resnet50-sgd runs out of memory before"),
    ],
)
def test_refusals(asked: dict[str, Any], said: str) -> None:
    with pytest.raises(GpusimError) as error:
        gpusim.environment("resnet50-sgd", on=ON, **asked).reset()
    assert said in str(error.value)


@pytest.mark.documents
@pytest.mark.slow
def test_the_examples_of_the_documentation_run(capsys: pytest.CaptureFixture[str]) -> None:
    """One run is told; a score that is learned in twenty episodes takes less time than LRU."""
    page = Path(__file__).parents[2] / "docs" / "learned.md"
    for block in re.findall(r"^```python\n(.*?)^```", page.read_text("utf-8"), re.S | re.M):
        exec(compile(block, str(page), "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("finished") and lines[1].endswith("tensors left")
    assert float(lines[2].split()[0]) < 1.0


def test_without_gymnasium(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gymnasium", None)
    monkeypatch.delitem(sys.modules, "gpusim.api.gym", raising=False)
    monkeypatch.delattr("gpusim.api.gym", raising=False)
    with pytest.raises(GpusimError, match=r"an environment needs Gymnasium.*gpusim\[learn\]"):
        gpusim.environment("resnet50-sgd", on=ON)
