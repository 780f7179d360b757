"""`gpusim serve` with step times that are given, the splitwise engine, and a mixed pool: words, sentences, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import gpusim

from gpusim.api.serving import serve
from gpusim.base.errors import GpusimError

TIMES = """hardware,prompt_size,batch_size,prompt_time,token_time
a,1000,1,100,20
a,2000,1,200,30
b,1000,1,50,10
b,2000,1,90,12
"""
DRAWN = "drawn(prompt=512, output=32, requests=60)"
BOX: dict[str, Any] = {"model": "llama-8b", "machine": "4 x l40s"}


@pytest.fixture
def times(tmp_path: Path) -> Path:
    path = tmp_path / "times.csv"
    path.write_text(TIMES, "utf-8")
    return path


@pytest.mark.parametrize("engine", ["vllm@0.33", "splitwise", "sglang@0.5", "static"])
def test_any_engine_takes_given_step_times(times: Path, engine: str) -> None:
    """Prompts and tokens of table a take more than those of b; the time of all steps is what engines were busy."""
    slow, fast = (serve(**BOX, requests=DRAWN, rate=2.0, engine=engine, step_times=f"{times}(hardware={h})") for h in "ab")
    assert slow.metrics()["finished"] == fast.metrics()["finished"] == 60
    assert slow.metrics()["ttft_p50_ns"] > 1.1 * fast.metrics()["ttft_p50_ns"]
    assert slow.times["step"] == sum(account.busy_ns for account in slow.served.engines) and slow.spread == (1.0, 1.0)


def test_a_model_without_modelled_steps_is_served_with_given_ones(times: Path) -> None:
    with pytest.raises(GpusimError, match="layers of bloom"):
        serve("bloom-176b", "hgx-h100", DRAWN, tensor=8)
    found = serve("bloom-176b", "hgx-h100", DRAWN, tensor=8, step_times=f"{times}(hardware=a)")
    assert found.metrics()["finished"] == 60


def test_a_largest_rate_has_no_interval_of_given_step_times(times: Path) -> None:
    found = serve(**BOX, requests=DRAWN, slo="ttft 1 s, tpot 60 ms", find="rate", step_times=f"{times}(hardware=a)")
    assert found.search is not None and found.search.slow == found.search.fast
    assert "of given step times no error is known" in found.searched()


def test_a_mixed_pool_hands_prompts_over() -> None:
    """All that has come back home owes and holds nothing; what is handed over is less than all only where kinds were mixed."""
    found = serve(**BOX, requests=DRAWN, rate=5.0, engine="splitwise", prefill=2, routing="mixed_pool")
    assert found.metrics()["finished"] == 60
    assert 0.5 < found.metrics()["handed_share"] <= 1.0
    assert {int(e) for e in found.served.engine} <= {0, 1, 2, 3}


def test_preempted_tokens_are_no_lack_of_memory() -> None:
    found = serve(**BOX, requests="drawn(prompt=3000, output=64, requests=60)", rate=6.0, engine="splitwise", max_tokens=2048)
    assert found.metrics()["preemptions"] > 0 and "memory" not in found.limit


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"routing": "mixed_pool", "prefill": 1}, "mixed pool is not modelled with 'vllm@0.33'"),
        ({"routing": "mixed_pool", "engine": "splitwise"}, "no replica of the mixed pool is for prompts"),
        ({"routing": "mixed_pool", "engine": "splitwise", "prefill": 4}, "none is left to go on with them"),
        ({"routing": "mixed_pool", "engine": "splitwise", "prefill": 1, "tiers": "host(1 GiB)"}, "tiers are not modelled"),
        ({"engine": "splitwise", "prefill": 1}, "hands prompts over within a mixed pool"),
        ({"routing": "nearest"}, "there is no routing 'nearest'"),
        ({"step_times": "none.csv"}, "no file of step times"),
    ],
)
def test_what_cannot_be_is_told(words: dict[str, Any], told: str) -> None:
    with pytest.raises(GpusimError, match=told):
        serve(**BOX, requests=DRAWN, **words)


def test_adapters_are_not_part_of_given_step_times(times: Path) -> None:
    with pytest.raises(GpusimError, match="adapters are not part of given step times"):
        serve(**BOX, requests=DRAWN, lora="rank=8, max_loras=2", step_times=f"{times}(hardware=a)")


def test_the_verb_says_whose_step_times_they_are(times: Path) -> None:
    told = gpusim(
        "serve", "--model", "llama-8b", "--machine", "l40s", "--requests", DRAWN, "--rate", "2", "--engine", "splitwise",
        "--routing", "least_tokens", "--step-times", f"{times}(hardware=a)",
    )  # fmt: skip
    assert "times.csv(hardware=a)" in told.output and "modelled:" not in told.output
