"""`gpusim serve`: words of a service, its largest rate, its sentences; and hit rates of public traces against exact counts.

The traces are Mooncake's (github.com/kvcache-ai/Mooncake, FAST25-release/traces, Apache-2.0): GPUSIM_REQUESTS names the folder.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import gpusim

from gpusim.api.serving import serve
from gpusim.base.errors import GpusimError
from gpusim.engine.serving.hit_rates import hit_rate
from gpusim.policies.registry import get
from gpusim.programs.serving.requests import at_rate, rate_of, requests_of
from gpusim.studies.serving.answer import objective
from gpusim.studies.serving.choices import smallest
from gpusim.studies.serving.setup import ServiceSpec, prepare
from gpusim.studies.serving.tier_words import tiers_of

TRACES = Path(os.environ.get("GPUSIM_REQUESTS", "GPUSIM_REQUESTS"))
DRAWN = "drawn(prompt=512, output=32, requests=60)"

# Percent of blocks that a cache of so many blocks of 512 tokens finds under LRU: leading prefix only, tail inserted first.
# Counted once, exactly, from the files.
COUNTED = {
    "conversation": {1000: 4.453, 3000: 6.534, 5859: 13.608, 10000: 21.160, 19531: 28.518, 30000: 32.575, 50000: 35.456,
                     97656: 36.350, 100000: 36.369, 10**6: 36.641},
    "synthetic": {1000: 8.412, 3000: 19.057, 5859: 30.935, 10000: 42.394, 19531: 56.663, 30000: 62.421, 50000: 63.960},
}  # fmt: skip


@pytest.mark.oracle
@pytest.mark.parametrize("name", COUNTED)
def test_a_cache_finds_in_public_traces_what_was_counted(name: str) -> None:
    path = TRACES / f"mooncake_{name}_trace.jsonl.gz"
    if not path.is_file():
        pytest.skip("GPUSIM_REQUESTS does not name the folder of Mooncake's traces")
    requests = requests_of(str(path))
    found = {room: round(100 * hit_rate(requests, room, get("evict", "lru")).share, 3) for room in COUNTED[name]}
    assert found == COUNTED[name]


def test_drawn_requests_have_the_means_that_are_asked_for() -> None:
    drawn = requests_of("drawn(prompt=1000, output=100, requests=20000, spread=0.7, seed=3)")
    assert drawn.prompt.mean() == pytest.approx(1000, rel=0.02) and drawn.output.mean() == pytest.approx(100, rel=0.02)
    assert drawn.prompt.std() / 1000 == pytest.approx(0.7, rel=0.05)
    assert (drawn.prompt == requests_of("drawn(prompt=1000, output=100, requests=20000, spread=0.7, seed=3)").prompt).all()


def test_requests_by_name_have_the_quantiles_that_were_recorded() -> None:
    """Median and 90th percentile of Azure's code trace of 2023 (AzurePublicDataset @ b469a113): 1,469 and 5,188 tokens."""
    asked = requests_of("azure-code(requests=200000)")
    assert np.quantile(asked.prompt, [0.5, 0.9]) == pytest.approx([1469, 5188], rel=0.02)
    assert np.median(asked.output) == pytest.approx(13, abs=1)
    assert not asked.arrival.any() and abs(np.corrcoef(asked.prompt, asked.output)[0, 1]) < 0.01


def test_objectives_alone_ask_for_the_largest_rate() -> None:
    words = {"model": "llama-8b", "machine": "h100-sxm-80gb", "requests": "azure-conv(requests=60)", "slo": "tpot 60 ms"}
    found, plain = serve(**words), serve(**words, find="none")  # type: ignore[arg-type]
    assert found.search is not None and found.search.best > 0 and plain.search is None
    assert len(found.search.points) < 15 and found.searched().startswith("Every rate keeps the objectives")
    assert serve(**words, rate=2.0).search is None  # type: ignore[arg-type]


def test_what_limits_the_largest_rate_is_always_said() -> None:
    found = serve("llama-8b", "4 x l40s", "azure-conv(requests=300)", slo="ttft 500 ms, tpot 50 ms")
    assert found.limit.startswith("compute: steps take too long, and spend most of their time with products")


def test_drawn_prefixes_are_shared() -> None:
    drawn = requests_of("drawn(prompt=500, output=10, requests=300, spread=0, prefix=160, prefixes=2)")
    own = [tuple(drawn.identity[drawn.start[r] : drawn.start[r + 1]]) for r in range(300)]
    assert len(set(own)) == 2 and {len(ids) for ids in own} == {10} and (drawn.known == 160).all()


def test_a_rate_is_kept_and_repeats_what_is_there() -> None:
    asked = requests_of("drawn(prompt=50, output=5, requests=100, prefix=32)")
    drawn = at_rate(asked, 20.0, count=5000)
    assert rate_of(drawn) == pytest.approx(20.0, rel=0.05)
    assert (drawn.prompt[100:200] == asked.prompt).all() and np.diff(drawn.start)[0] == np.diff(drawn.start)[100] == 2
    assert len(set(np.diff(at_rate(asked, 20.0, seed=None).arrival).tolist())) == 1


def test_a_service_answers() -> None:
    found = serve("llama-8b", "h100-sxm-80gb", DRAWN, rate=5.0, slo="ttft 1 s, tpot 100 ms", price=2.0)
    numbers = found.metrics()
    assert numbers["finished"] == 60 and numbers["attainment"] == 1.0
    assert numbers["cost_per_million_tokens"] == pytest.approx(2.0 / (numbers["output_tokens_per_s"] * 3600) * 1e6)
    assert sum(found.times.values()) == pytest.approx(sum(e.busy_ns for e in found.served.engines), rel=0.01)


def test_the_largest_rate_keeps_the_objectives_and_the_next_does_not() -> None:
    found = serve("llama-8b", "h100-sxm-80gb", DRAWN, slo="ttft 300 ms, tpot 20 ms", find="rate", attainment=0.9)
    assert found.search is not None
    kept = [p.attainment >= 0.9 for p in found.search.points if p.rate <= found.search.best]
    fails = [p for p in found.search.points if p.rate > found.search.best]
    assert kept[-1] and fails[0].attainment < 0.9 and fails[0].rate <= found.search.best * 1.03


def test_a_request_longer_than_the_model_takes_is_rejected() -> None:
    found = serve("llama2-7b", "h100-sxm-80gb", "drawn(prompt=5000, output=2, requests=3, spread=0)")
    assert found.metrics()["rejected"] == 3
    assert found.served.reasons[found.served.refused[0]].startswith("the prompt leaves no room")
    told = serve("llama-8b", "h100-sxm-80gb", "drawn(prompt=500, output=20, requests=3, spread=0)", max_len=510)
    assert {told.served.reasons[r] for r in told.served.refused} == {"prompt and output are longer than the longest sequence"}


def test_requests_that_wait_are_told_however_few_they_are() -> None:
    found = serve("llama-8b", "h100-sxm-80gb", "drawn(prompt=60000, output=2, requests=3, spread=0)")
    assert found.limit.startswith("compute: requests wait")


def test_objectives_that_no_rate_keeps() -> None:
    found = serve("llama-8b", "l40s", "drawn(prompt=8000, output=4, requests=10, spread=0)", slo="ttft 1 ms", find="rate")
    assert found.search is not None and (found.search.best, found.search.alone) == (0.0, 0.0)


def test_four_replicas_bear_about_four_times_as_much() -> None:
    drawn, slo = "drawn(prompt=512, output=32, requests=400)", "ttft 500 ms, tpot 60 ms"
    one, four = (serve("llama-8b", machine, drawn, slo=slo, find="rate").search for machine in ("l40s", "4 x l40s"))
    assert one is not None and four is not None and 3.0 < four.best / one.best < 6.0


def test_blocks_are_what_weights_and_a_step_leave() -> None:
    service = prepare(ServiceSpec(model="llama-8b", machine="h100-sxm-80gb"))
    left = 0.9 * 85.5e9 - service.model.weight_bytes(1)
    assert 0.85 * left < service.cached_tokens * service.model.token_bytes(1) < left


def test_prompts_that_another_gpu_computes_come_over_its_links() -> None:
    """The first token is the prompt's step, the copy of its keys and values over NVLink, and the last token's step."""
    words = {"machine": "hgx-h100", "replicas": 2, "requests": "drawn(prompt=4000, output=3, requests=1, spread=0)"}
    whole, split = (serve("llama-8b", prefill=n, **words).served for n in (0, 1))
    size = split.prompt[0] * 131072
    copy = split.ttft_ns()[0] - whole.ttft_ns()[0]
    step = split.tpot_ns()[0]
    assert split.handed[0] == split.prompt[0] and split.engine[0] == 1
    assert size / 480 < copy - step < size / 300  # GB/s that NVLink's 450 to 480 reach, and its latency


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"model": "llama-70b", "machine": "l40s"}, "leaves no room for keys and values on l40s"),
        ({"tensor": 3}, "cannot be split over 3 GPUs"),
        ({"tensor": 2}, "has 1 GPU, too few for 1 replica of 2 GPUs"),
        ({"engine": "vllm@0.5"}, "0.33"),
        ({"engine": "triton"}, "dynamic_batching"),
        ({"tiers": "host"}, "is no tier of keys and values"),
        ({"tiers": "disk(3 GB)"}, "there is no tier 'disk'"),
        ({"tiers": "nvme(1 TB) > host(3 GB)"}, "cannot lie below 'nvme'"),
        ({"tiers": "host(300 TB)"}, "do not fit the host"),
        ({"tiers": "host(64 GB)", "engine": "sglang@0.5"}, "tiers are not modelled with 'sglang@0.5'"),
        ({"tiers": "host(64 GB)", "engine": "vllm@0.9"}, "tiers are not modelled with 'vllm@0.9'"),
        ({"prefill": 1, "machine": "hgx-h100", "engine": "sglang@0.5"}, "another engine are not modelled with"),
        ({"prefill": 1}, "none is left to go on with them"),
        ({"tiers": "host(64 GB)", "when": "never"}, "are not written 'never'"),
        ({"requests": "nowhere.csv"}, "there is no file of requests 'nowhere.csv'"),
        ({"requests": "drawn(prompts=5)"}, "have no 'prompts'"),
        ({"requests": "drawn(prompt=0)"}, "cannot have prompt=0"),
        ({"slo": "ttft"}, "is no objective"),
        ({"find": "rate"}, "there is no objective to keep"),
        ({"find": "gpu"}, "is not searched for"),
        ({"rate": 2.0, "at_once": 3}, "leave one of both out"),
        ({"blocks": 3}, "a service has no 'blocks'"),
    ],
)
def test_what_cannot_be_served_is_told(given: dict[str, Any], told: str) -> None:
    words = {"model": "llama-8b", "machine": "h100-sxm-80gb", "requests": DRAWN} | given
    with pytest.raises(GpusimError) as error:
        serve(**words)
    assert told in f"{error.value} {error.value.hint}"


def test_words() -> None:
    assert (objective("TTFT 500 ms, tpot 50 us").ttft_ns, objective("tpot 50 us").tpot_ns) == (5e8, 5e4)
    assert [(t.name, t.size, t.policy) for t in tiers_of("host(1 GiB) > nvme(2 TB, s3fifo)")] == [
        ("host", 1 << 30, "lru"), ("nvme", 2 * 10**12, "s3fifo"),
    ]  # fmt: skip


def test_the_verb(tmp_path: Path) -> None:
    rows = "\n".join(f"2024-01-01 00:00:{i:02d}.0,{400 + i},{10 + i}" for i in range(40))
    path = tmp_path / "arrivals.csv.gz"
    path.write_bytes(gzip.compress(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{rows}\n".encode()))
    words = ("--model", "llama-8b", "--machine", "h100-sxm-80gb", "--slo", "ttft 1 s", "--find", "rate")
    done = gpusim("serve", *words, "--requests", path)
    assert "Largest rate: " in done.stdout and "time to first token" in done.stdout and "requests finished" in done.stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "llama2-7b takes 4,096 tokens"), (("--max-len", 100), "--max-len is 100 tokens"),
        (("--memory", 0.19), "all blocks of a replica hold"),
    ],
)
def test_a_rejection_tells_the_longest_sequence(words: tuple[Any, ...], told: str) -> None:
    words = ("--requests", "drawn(prompt=4500, output=2, requests=1, spread=0)", *words)
    done = gpusim("serve", "--model", "llama2-7b", "--machine", "h100-sxm-80gb", *words)
    assert f"1 request was rejected: the prompt leaves no room for an output within the longest sequence ({told}" in done.stdout


EMPTY = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,374,4\n2023-11-16 18:15:47,0,9\n"
EMPTY += "2023-11-16 18:15:48,90,0\n2023-11-16 18:15:48,80,5\n"


@pytest.mark.parametrize(
    ("engine", "no_output"),
    [
        ("vllm@0.33", "it asks for an output of no token"),  # SamplingParams: max_tokens must be at least 1
        ("vllm@0.9", "it asks for an output of no token"),
        ("sglang@0.5", ""),  # SamplingParams: max_new_tokens must be at least 0
        ("static", "it asks for an output of no token"),
    ],
)
def test_an_empty_prompt_and_an_empty_output_of_a_file_are_rejected_as_the_engine_does(
    tmp_path: Path, engine: str, no_output: str
) -> None:
    file = tmp_path / "requests.csv"
    file.write_text(EMPTY, encoding="utf-8")
    found = serve("llama-8b", "h100-sxm-80gb", str(file), engine=engine)
    numbers, served = found.metrics(), found.served
    assert (numbers["finished"], numbers["rejected"]) == ((2, 2) if no_output else (3, 1))
    assert [served.reasons[why] for why in served.refused] == ["", "the prompt is empty", no_output, ""]


def test_an_empty_prompt_with_tiers_below_is_rejected(tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    rows = ((0, 0, []), (1, 600, [1, 2]))
    lines = (f'{{"timestamp": {at}, "input_length": {n}, "output_length": 3, "hash_ids": {ids}}}\n' for at, n, ids in rows)
    file.write_text("".join(lines), encoding="utf-8")
    for tier in ("host(10 GB)", "host(10 GB, lmcache_lru)"):
        numbers = serve("llama-8b", "h100-sxm-80gb", str(file), tiers=tier).metrics()
        assert (numbers["finished"], numbers["rejected"]) == (1, 1)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"block": 0}, "block of a service is 0 .a whole number from 1 on"),
        ({"max_seqs": 2.5}, "max_seqs of a service is 2.5"),
        ({"prefill": -1}, "prefill of a service is -1"),
        ({"memory": 1.5}, "memory of a service is 1.5 .from 0.01 to 1"),
        ({"rate": float("nan")}, "rate of a service is nan"),
        ({"block": 10**8}, "has room for 4[0-9]{2},[0-9]{3} tokens of keys and values, less than two blocks of 100,000,000"),
        ({"requests": "drawn(prompt=10"}, "has no closing parenthesis .write drawn.prompt=...."),
        ({"requests": "drwn(prompt=10)"}, "no requests are drawn by 'drwn' .did you mean 'drawn'"),
    ],
)
def test_words_out_of_bounds_are_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        serve(**({"model": "llama-8b", "machine": "h100-sxm-80gb", "requests": DRAWN} | words))


def test_a_scheduler_of_ones_own_serves(tmp_path: Path) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from gpusim import policy\n\n@policy.schedule\ndef as_they_came(view):\n    return view.requests\n", encoding="utf-8"
    )
    found = serve("llama-8b", "h100-sxm-80gb", DRAWN, rate=20.0, engine="as_they_came", use=(str(mine),))
    usual = serve("llama-8b", "h100-sxm-80gb", DRAWN, rate=20.0, engine="vllm@0.33(async_scheduling=0)")
    assert found.metrics() == usual.metrics()
    with pytest.raises(GpusimError, match="there is no schedule policy 'as_they_came'"):
        serve("llama-8b", "h100-sxm-80gb", DRAWN, rate=20.0, engine="as_they_came")


@pytest.mark.slow
def test_the_largest_rate_has_an_interval_of_step_times_and_arrivals() -> None:
    found = serve("llama-8b", "l40s", DRAWN, slo="ttft 2 s, tpot 60 ms", find="rate")
    search = found.search
    assert search is not None and search.slow < search.best < search.fast
    assert len(search.seeds) == 2 and all(0.8 < rate / search.best < 1.25 for rate in search.seeds)
    assert "Four times out of five it is between" in found.searched()
    assert found.metrics()["slow_rate_per_s"] == search.slow


def test_steps_at_the_ends_of_their_interval_take_those_multiples() -> None:
    service = prepare(ServiceSpec(model="llama-8b", machine="l40s"))
    for before, tokens in (([900] * 20, [1] * 20), ([0], [1500]), ([10, 0], [1, 700])):
        plain = service.times.of(before, tokens)
        slow, fast = (service.paced(bound).times.of(before, tokens) for bound in ("slow", "fast"))
        for part in ("gemm", "attention", "other"):
            assert fast.parts[part] <= plain.parts[part] <= slow.parts[part]
        assert slow.ns == pytest.approx(plain.high, rel=0.02) and fast.ns == pytest.approx(plain.low, rel=0.02)


@pytest.mark.hand_worked
def test_the_smallest_number_is_found_by_halving() -> None:
    for wanted in range(1, 12):
        asked: list[int] = []
        assert smallest(lambda n, w=wanted, a=asked: a.append(n) or n >= w, 1, 11) == wanted  # type: ignore[misc]
        assert len(asked) <= 5
    assert smallest(lambda n: False, 1, 11) == 0


def test_gpus_and_tiers_are_found_for_a_rate() -> None:
    found = serve("llama-8b", "8 x l40s", DRAWN, rate=6.0, slo="ttft 2 s, tpot 60 ms", find="gpus")
    gpus = [row["GPUs"] for row in found.tried]
    best = next(row for row in found.tried if row[""] == "<-")
    assert best["attainment"] >= 0.9 and gpus[-1] == 8 and found.service.spec.replicas == best["GPUs"]
    assert all(row["attainment"] < 0.9 for row in found.tried if row["GPUs"] < best["GPUs"])
    assert found.searched() == f"{best['GPUs']} GPU{'s' * (best['GPUs'] > 1)}: the fewest that keep the objectives."
    none = serve("llama-8b", "2 x l40s", DRAWN, rate=6.0, slo="ttft 1 ms", find="gpus")
    assert none.searched().startswith("None of them keeps the objectives")
    chats = "chats(users=20, turns=3, seconds=20, think=5)"
    tiers = serve("llama-8b", "a100-pcie-40gb", chats, find="kv_tier", tiers="host(64 GiB)")
    assert [row["tiers"] for row in tiers.tried] == ["", "host(4 GiB, lru)", "host(16 GiB, lru)", "host(64 GiB, lru)"]
    assert tiers.chosen


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"find": "gpu"}, "'gpu' is not searched for"),
        ({"find": "gpus"}, "there is no objective to keep"),
        ({"find": "kv_tier"}, "there are no tiers to choose from"),
        ({"find": "rate", "rate": 3.0, "slo": "ttft 1 s"}, "the rate is what is searched for"),
        ({"find": "gpus", "at_once": 3, "slo": "ttft 1 s"}, "a search for gpus needs requests"),
    ],
)
def test_searches_that_cannot_be_are_refused(words: dict[str, Any], said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        serve("llama-8b", "l40s", DRAWN, **words)
