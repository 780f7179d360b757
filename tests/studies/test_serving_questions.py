"""The shipped questions about services: golden numbers, and what has to hold whatever the numbers are.

`python tests/studies/test_serving_questions.py [NAME ...]` makes the golden files anew.
"""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from command_line import gpusim

from gpusim.api.serving import serve_question
from gpusim.base.errors import ConfigError
from gpusim.base.yaml import find
from gpusim.programs.serving.requests import file_of, requests_of
from gpusim.studies.serving.questions import read

GOLDEN = Path(__file__).parents[1] / "golden" / "serving"
NAMES = find.names("serving question")


@cache
def rows(name: str) -> list[dict[str, Any]]:
    asked = read(find.find("serving question", name))
    if absent := [word for word in asked.requests if word.endswith(".gz") and not file_of(word).is_file()]:
        pytest.skip(f"GPUSIM_REQUESTS does not name the folder of {absent[0]}")
    return serve_question(name)[1]


def by(name: str, *axes: str) -> dict[Any, dict[str, Any]]:
    return {tuple(row[axis] for axis in axes) if len(axes) > 1 else row[axes[0]]: row for row in rows(name)}


@pytest.mark.slow
@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_golden_numbers(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [list(row) for row in rows(name)] == [list(row) for row in expected]
    for found, wanted in zip(rows(name), expected, strict=True):
        assert {k: v for k, v in found.items() if isinstance(v, str)} == {k: v for k, v in wanted.items() if isinstance(v, str)}
        numbers = [k for k, v in wanted.items() if not isinstance(v, str)]
        assert [found[k] for k in numbers] == pytest.approx([wanted[k] for k in numbers], rel=1e-3, nan_ok=True)


@pytest.mark.slow
def test_larger_tiers_find_more_and_answer_sooner() -> None:
    found = by("kv_tiers", "machine", "tiers")
    for machine in ("a100-pcie-40gb", "h100-sxm-80gb"):
        tiers = [found[machine, tier] for tier in ("", "host(32 GiB)", "host(128 GiB)", "host(32 GiB) > nvme(512 GiB)")]
        shares = [row["from tiers"] for row in tiers]
        assert shares == sorted(shares) and shares[0] == 0
        assert tiers[2]["TTFT p50 [ms]"] < tiers[0]["TTFT p50 [ms]"]
    assert found["a100-pcie-40gb", "host(128 GiB)"]["preemptions"] == 0 < found["a100-pcie-40gb", ""]["preemptions"]


@pytest.mark.slow
def test_half_of_the_memory_costs_nothing_until_the_load_fills_it() -> None:
    found = by("shared_memory", "engine", "memory", "rate")
    dynamic = "dynamic_batching(preferred_batch_size='4,6', max_queue_delay_us=100000)"

    def worse(engine: str, rate: float, which: str = "TTFT p50 [ms]") -> float:
        return float(found[engine, 0.45, rate][which] / found[engine, 0.9, rate][which])

    assert worse(dynamic, 0.5) < 1.15 < 6 < worse(dynamic, 1.5)
    assert worse("static", 1.5) == pytest.approx(worse(dynamic, 1.5), rel=0.05)
    assert worse("vllm@0.33", 1.5) == 1 < 7 < worse("vllm@0.33", 3) < 8
    assert worse(dynamic, 0.5, "TTFT p99 [ms]") < 1.15 < 7 < worse(dynamic, 1.5, "TTFT p99 [ms]")
    assert worse("vllm@0.33", 1.5, "TTFT p99 [ms]") == 1 < 25 < worse("vllm@0.33", 3, "TTFT p99 [ms]")


@pytest.mark.slow
def test_a_split_over_two_kinds_bears_what_its_weaker_side_does() -> None:
    """Prompts of eight A100 and of four H100, tokens of eight A100 and of four H100, each from a split that they limit."""
    found = by("two_kinds", "machine", "prefill")
    first, second = "hgx-h100 + dgx-a100", "dgx-a100 + hgx-h100"
    rate, cost = ({key: row[name] for key, row in found.items()} for name in ("rate [1/s]", "cost of 1 M tokens"))
    prompts = rate[second, 8] + rate["2 x hgx-h100", 4]
    assert rate[second, 12] == pytest.approx(min(prompts, rate["2 x hgx-h100", 12]), rel=0.05)
    assert rate[second, 12] > 1.5 * max(rate[first, 8], rate[first, 0]) and rate[second, 8] < rate[first, 8]
    assert min(cost, key=lambda key: cost[key]) == (second, 12)
    # Of equally busy replicas the first takes a request: it pays to name the faster machine first, a little.
    assert 1.0 <= rate[first, 0] / rate[second, 0] < 1.1
    assert all(row["handed over"] == 1 for (_, prefill), row in found.items() if prefill)


@pytest.mark.slow
def test_in_a_burst_tiers_help_and_a_second_model_costs_more_than_its_half() -> None:
    found = by("burst_shared", "engine", "tiers", "beside")
    company = next(row["beside"] for row in rows("burst_shared") if row["beside"])
    dynamic = "dynamic_batching(preferred_batch_size='4,8', max_queue_delay_us=100000)"
    first = {key: row["TTFT p99 [ms]"] for key, row in found.items() if "why not" not in row}
    for tiers in ("", "host(48 GiB)"):
        assert first["vllm@0.33", tiers, company] > 2 * first["vllm@0.33", tiers, ""]
    assert first["vllm@0.33", "host(48 GiB)", ""] < first["vllm@0.33", "", ""] / 5
    assert 0.9 < first[dynamic, "", ""] / first["static", "", ""] < 1.1
    assert first[dynamic, "", company] > 2 * first[dynamic, "", ""]
    others = [row["beside TTFT p99 [ms]"] for row in found.values() if "beside TTFT p99 [ms]" in row]
    assert max(others) < 1.05 * min(others)


@pytest.mark.slow
def test_a_batch_that_waits_for_its_last_is_worst_in_a_burst() -> None:
    found = by("burst", "machine", "engine")
    for machine in ("l40s", "2 x l40s"):
        others = [found[machine, engine]["TTFT p99 [ms]"] for engine in ("vllm@0.33", "sglang@0.5")]
        assert found[machine, "static"]["TTFT p99 [ms]"] > 5 * max(others)
    assert found["2 x l40s", "vllm@0.33"]["TTFT p99 [ms]"] < found["l40s", "vllm@0.33"]["TTFT p99 [ms]"] / 10


@pytest.mark.slow
def test_short_steps_keep_tokens_coming_and_first_ones_waiting() -> None:
    found = [row for _, row in sorted(by("chunks", "max_tokens").items())]
    assert [row["TPOT p99 [ms]"] for row in found] == sorted(row["TPOT p99 [ms]"] for row in found)
    assert [row["TTFT p50 [ms]"] for row in found] == sorted((row["TTFT p50 [ms]"] for row in found), reverse=True)


@pytest.mark.slow
def test_fewer_bits_bear_more() -> None:
    found = by("quantised", "tensor", "weights", "cache")
    for tensor in (4, 8):
        rates = [found[tensor, w, c]["rate [1/s]"] for w, c in (("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "fp8"))]
        assert rates == sorted(rates)


@pytest.mark.slow
def test_engines_that_compute_no_prompts_keep_tokens_coming() -> None:
    found = by("prefill", "prefill")
    for count in (3, 4, 5):
        assert found[count]["TPOT p99 [ms]"] < found[0]["TPOT p99 [ms]"]
        assert found[count]["TTFT p50 [ms]"] > found[0]["TTFT p50 [ms]"] and found[count]["handed over"] == 1


@pytest.mark.slow
def test_what_is_swapped_need_not_be_computed_again() -> None:
    found = by("preemption", "machine", "engine")
    for machine in ("a100-pcie-40gb", "h100-sxm-80gb", "gh200-96gb"):
        recomputed, swapped = (row for (m, _), row in found.items() if m == machine)
        assert swapped["output [tokens/s]"] > recomputed["output [tokens/s]"] and recomputed["preemptions"] > 50


@pytest.mark.slow
def test_too_few_slots_double_the_first_token_and_enough_do_not() -> None:
    found, word = by("adapters", "lora", "requests"), "drawn(prompt=512, output=128, requests=1000, adapters={})"
    few, many = dict.fromkeys(lora for lora, _ in found)
    counts = (1, 8, 16, 32, 64, 256, 1000)
    first = {lora: [found[lora, word.format(n)]["TTFT p99 [ms]"] for n in counts] for lora in (few, many)}
    for values in first.values():
        assert values == sorted(values)
    assert first[few][1] < 2 * first[few][0] < first[few][2] and first[many][4] < 2 * first[many][0] < first[many][5]


@pytest.mark.slow
def test_layers_on_the_cpu_suit_one_user_and_copied_ones_many() -> None:
    found = by("larger_than_the_card", "tensor", "offload", "at_once")
    held = found[4, "", 1]["TPOT p50 [ms]"]
    for tensor, layers in ((1, 64), (2, 64), (2, 40), (4, 40)):
        split, stream = (f"{how}(layers={layers})" for how in ("split", "stream"))
        assert 5 * held < found[tensor, split, 1]["TPOT p50 [ms]"] < found[tensor, stream, 1]["TPOT p50 [ms]"]
    assert found[2, "stream(layers=40)", 64]["output [tokens/s]"] > found[2, "split(layers=40)", 64]["output [tokens/s]"]
    assert "leaves no room" in found[1, "", 1]["why not"] and "leaves no room" in found[2, "", 1]["why not"]


def test_conversations_repeat_what_was_said() -> None:
    """The second turn's prompt is the first one's, its answer, and something new; two users have nothing in common."""
    drawn = requests_of("chats(users=2, turns=2, prompt=64, output=32, spread=0, think=1000, seconds=1)")
    own = [tuple(drawn.identity[drawn.start[r] : drawn.start[r + 1]]) for r in range(4)]
    assert sorted(drawn.prompt.tolist()) == [64, 64, 160, 160] and (drawn.known == drawn.prompt).all()
    assert sum(set(a[:4]) == set(b[:4]) for i, a in enumerate(own) for b in own[:i]) == 2


def test_a_burst_is_as_dense_as_it_says() -> None:
    drawn = requests_of("burst(rate=5, peak=50, begins=100, lasts=100, seconds=300)")
    within = ((drawn.arrival >= 100e9) & (drawn.arrival < 200e9)).sum()
    assert within == pytest.approx(5000, rel=0.05) and len(drawn.arrival) - within == pytest.approx(1000, rel=0.1)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("question: q\nservice: {model: llama-8b, machine: l40s, tensr: 2}\nrequests: drawn\n", ":2:43: unknown key 'tensr'"),
        ("question: q\nservice: {model: a, machine: b}\nrequests: drawn\nfind: rate\n", ":4:7: there is no objective"),
        ("question: q\nservice: {model: llama-8b}\nrequests: drawn\n", "key 'machine' is missing"),
        ("question: q\nservice: {model: a, machine: b}\nrequests: drawn\nslo: ttft 5\n", "slo"),
        ("question: q\nservice: {model: a, machine: b}\nrequests: drawn\nslo: ttft 1 s\nfind: rate\nrate: 3\n", "searched for"),
    ],
)
def test_a_file_that_is_wrong_is_told(tmp_path: Path, text: str, told: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        serve_question(str(path))
    assert told in str(error.value)


def test_what_cannot_be_served_is_a_row(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("question: Does it fit?\nservice: {model: llama-70b, machine: [l40s, hgx-h100], tensor: 1}\n"
                    "requests: drawn(prompt=20, output=2, requests=3)\n")  # fmt: skip
    done = gpusim("serve", path, "-o", tmp_path / "out")
    assert "Does it fit?" in done.stdout and "leaves no room for keys and values" in done.stdout
    assert (tmp_path / "out" / "summary.csv").read_text().startswith("machine,why not")


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for chosen in sys.argv[1:] or NAMES:
        (GOLDEN / f"{chosen}.json").write_text(json.dumps(rows(chosen), indent=1) + "\n")
