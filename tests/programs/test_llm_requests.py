"""Is a request trace served as the server is described, block by block, and does it reuse what the recording lets it reuse?"""

from __future__ import annotations

import gzip
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.programs.serving.kv_service import MODELS
from gpusim.trace.trace import ALLOC, FREE, OP, Trace

DATA = Path(__file__).parents[1] / "data" / "llm_requests"
MOONCAKE, AZURE = DATA / "mooncake_conversation_400.jsonl.gz", DATA / "AzureLLMInferenceTrace2023_code.csv.gz"
# A token has 4 bytes.
TINY = {"layers": 1, "kv_heads": 1, "head_dim": 1, "dtype": "float16", "prefill": 1000, "decode": 10, "stride": 2}


def imported(tmp_path: Path, text: str, **options: Any) -> Trace:
    path = tmp_path / "requests"
    path.write_text(text)
    return import_trace(path, **options)


def mooncake(*rows: tuple[int, int, int, list[int]]) -> str:
    return "".join(
        json.dumps({"timestamp": ms, "input_length": prompt, "output_length": output, "hash_ids": hashes}) + "\n"
        for ms, prompt, output, hashes in rows
    )


def sides(trace: Trace, side: str) -> list[list[int]]:
    start, ids = getattr(trace, f"{side}_start"), getattr(trace, f"{side}_id")
    return [ids[a:b].tolist() for a, b in pairwise(start)]


@pytest.mark.hand_worked
def test_two_requests_that_share_a_prefix_by_hand(tmp_path: Path) -> None:
    text = mooncake((0, 6, 3, [1, 2]), (1, 8, 1, [1, 3]))
    trace = imported(tmp_path, text, hash_tokens=4, block=2, **TINY)
    # Weights are tensor 0.  Hash 1 is blocks 1 and 2, hash 2 (two tokens) block 3, hash 3 blocks 4 and 5; the output of the
    # first request begins in block 6.  The second request finds hash 1, and its one token is made by its prompt.
    assert trace.kind.tolist() == [ALLOC] * 4 + [OP] + [ALLOC] * 2 + [OP] + [FREE] * 2 + [ALLOC, OP] + [FREE] * 4
    assert trace.arg.tolist() == [0, 1, 2, 3, 0, 4, 5, 1, 4, 5, 6, 2, 6, 1, 2, 3]
    assert sides(trace, "read") == [[0], [0, 1, 2], [0, 1, 2, 3]]
    assert sides(trace, "write") == [[1, 2, 3], [4, 5], [6]]
    assert [trace.op_names[i] for i in trace.op] == ["prefill", "prefill", "decode"]
    assert trace.duration.tolist() == [6_000_000, 4_000_000, 200_000_000]
    assert trace.time[trace.kind == OP].tolist() == [0, 6_000_000, 10_000_000]
    weights = int(trace.size[0])
    assert weights == 16_060_000_000 and trace.size[1:].tolist() == [8] * 6
    assert trace.read_bytes.tolist() == [weights, weights + 4 * 4, 2 * weights + (6 + 7) * 4]
    assert trace.written_bytes.tolist() == [6 * 4, 4 * 4, 2 * 4]
    assert (trace.meta["prompt_tokens"], trace.meta["output_tokens"], trace.meta["reused_tokens"]) == (14, 4, 4)
    # Per token 2 flops a parameter; per pair that attends 4 x 1 layer x 32 heads x 1.
    assert trace.flops.tolist() == [
        6 * 16.06e9 + 128 * 21, 4 * 16.06e9 + 128 * (4 * 4 + 10), 2 * 16.06e9 + 128 * (7 + 8)
    ]  # fmt: skip


def test_without_hashes_the_output_fills_the_last_block_of_the_prompt(tmp_path: Path) -> None:
    text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,3,4\n2023-11-16 18:15:47.6805900,1,1\n"
    trace = imported(tmp_path, text, block=2, **TINY)
    # Blocks 1, 2 hold the prompt and one more token; iterations make 2 and 1 tokens: block 3, then its second half.
    assert sides(trace, "write") == [[1, 2], [3, 2], [3], [4]]
    assert sides(trace, "read") == [[0], [0, 1, 2], [0, 1, 2, 3], [0]]
    assert trace.time[trace.kind == OP].tolist() == [0, 3_000_000, 203_000_000, 1_000_000_000]
    assert trace.arg[trace.kind == FREE].tolist() == [1, 2, 3, 4]
    assert trace.meta["lacks"][-1] == "shared prefixes"


def test_a_prompt_that_is_all_in_the_cache_still_computes_a_token(tmp_path: Path) -> None:
    trace = imported(tmp_path, mooncake((0, 4, 9, [1]), (0, 4, 1, [1])), hash_tokens=4, **TINY)
    assert trace.duration.tolist()[:2] == [4_000_000, 1_000_000] and sides(trace, "write")[1] == []


def test_a_block_behind_a_gap_is_made_again_where_it_lies(tmp_path: Path) -> None:
    text = mooncake((0, 8, 9, [1, 2]), (0, 8, 1, [7, 2]))  # a hash stands for all before it: only a faulty file says this
    trace = imported(tmp_path, text, hash_tokens=4, **TINY)
    assert sides(trace, "write")[:2] == [[1, 2], [3, 2]] and sides(trace, "read")[1] == [0]
    assert trace.meta["reused_tokens"] == 0 and trace.written_bytes[1] == 8 * 4


def test_an_idle_prefix_stays_as_long_as_it_is_told_to(tmp_path: Path) -> None:
    text = mooncake((0, 4, 1, [1]), (5_000, 4, 1, [1]), (50_000, 4, 1, [1]), (50_001, 4, 1, [7]))
    kept = imported(tmp_path, text, hash_tokens=4, **TINY)
    dropped = imported(tmp_path, text, hash_tokens=4, retain=10, **TINY)
    assert kept.tensors == 3 and kept.meta["reused_tokens"] == 3 + 3
    assert dropped.tensors == 4 and dropped.meta["reused_tokens"] == 3


def test_places_and_tokens_limit_what_runs_at_once(tmp_path: Path) -> None:
    text = mooncake(*[(0, 4, 3, [i]) for i in range(4)])
    for limit, together in (({"batch": 2}, 2), ({"tokens": 21}, 3), ({"tokens": 1}, 1), ({}, 4)):
        trace = imported(tmp_path, text, hash_tokens=4, **limit, **TINY)
        reads = sides(trace, "read")
        assert max(len(reads[i]) for i in np.flatnonzero(trace.op == trace.op_names.index("decode"))) == 1 + together


def test_bytes_per_token_follow_the_models_shapes() -> None:
    published = {"gpt2": 36_864, "llama-1b": 32_768, "llama-8b": 131_072, "llama-70b": 327_680, "mistral-7b": 131_072,
                 "qwen2.5-7b": 57_344}  # fmt: skip
    assert {name: shape.token_bytes("bfloat16") for name, shape in MODELS.items()} == published
    assert MODELS["llama-8b"].token_bytes("float8") == 65_536


@pytest.mark.slow
def test_mooncake_reuses_the_prefixes_that_its_hashes_say() -> None:
    rows = [json.loads(line) for line in gzip.decompress(MOONCAKE.read_bytes()).splitlines()]
    seen: set[int] = set()
    reusable = computed = 0
    for row in rows:
        left = row["input_length"]
        cached, leading = 0, True
        for key in row["hash_ids"]:
            leading = leading and key in seen
            cached += min(512, left) if leading else 0
            left -= min(512, left)
        cached = min(cached, row["input_length"] - 1)
        reusable, computed = reusable + cached, computed + row["input_length"] - cached
        seen.update(row["hash_ids"])
    trace = import_trace(MOONCAKE)
    assert trace.meta["requests"] == 400 and trace.meta["reused_tokens"] == reusable > 0
    prefill = trace.op == trace.op_names.index("prefill")
    assert trace.written_bytes[prefill].sum() == computed * 131_072
    # With whole hashes as blocks, each hash is one tensor and each output has blocks of its own.
    outputs = sum(-(-(row["output_length"] - 1) // 512) for row in rows)
    assert trace.tensors == 1 + len(seen) + outputs
    halves = import_trace(MOONCAKE, block=256, requests=40)
    hashes = {key: min(512, row["input_length"] - 512 * i) for row in rows[:40] for i, key in enumerate(row["hash_ids"])}
    outputs = sum(-(-(row["output_length"] - 1) // 256) for row in rows[:40])
    assert halves.tensors == 1 + sum(-(-tokens // 256) for tokens in hashes.values()) + outputs


@pytest.mark.slow
def test_azure_serves_all_requests_and_frees_all_their_blocks() -> None:
    trace = import_trace(AZURE, block=256)
    rows = [list(map(int, line.split(b",")[1:])) for line in gzip.decompress(AZURE.read_bytes()).splitlines()[1:]]
    assert trace.meta["requests"] == len(rows) == 8_819
    assert trace.tensors == 1 + sum(-(-(prompt + output - 1) // 256) for prompt, output in rows)
    assert int((trace.kind == FREE).sum()) == trace.tensors - 1  # the weights stay
    assert trace.written_bytes.sum() == sum(prompt + output - 1 for prompt, output in rows) * 131_072
    assert (np.diff(trace.time[trace.kind == OP]) >= 0).all()
    assert import_trace(AZURE, requests=10).meta["requests"] == 10
    assert import_trace(AZURE, requests=10, instances=3).meta["requests"] == 10


def test_one_sequence_decodes_at_the_speed_of_memory(tmp_path: Path) -> None:
    trace = imported(tmp_path, mooncake((0, 512, 17, [1])))
    ms = trace.duration[1] / 16 / 1e6  # of an iteration: 16.06 GB of weights at an A100's nominal 2,039 GB/s, or less
    assert 16.06e9 / 2.039e9 < ms < 1.35 * 16.06e9 / 2.039e9


@pytest.mark.parametrize(
    ("text", "words", "options"),
    [
        (mooncake((0, 600, 1, [1])), [":1:", "1 hashes do not cover 600 tokens"], {}),
        (mooncake((0, 4, 0, [1])), [":1:", "an output of 0 tokens", "gpusim serve"], {}),
        (mooncake((0, 0, 4, [])), [":1:", "a prompt of 0 tokens", "gpusim serve"], {}),
        (mooncake((5, 4, 1, [1]), (4, 4, 1, [2])), [":2:", "arrives before"], {}),
        (mooncake((5, 4, 1, [1])) + '{"timestamp": 1', [":2:", "not a Mooncake request", "hash_ids"], {}),
        (mooncake((0, 4, 1, [1])), ["no 'llama-9b'", "did you mean 'llama-8b'"], {"model": "llama-9b"}),
        (mooncake((0, 4, 1, [1])), ["300 tokens do not fill", "512"], {"block": 300}),
        (mooncake((0, 4, 1, [1])), ["stride=0 is too small"], {"stride": 0}),
        (mooncake((0, 4, 1, [1])), ["'h900'"], {"profile": "h900"}),
        (mooncake((0, 4, 1, [1])), ["decode=-1 is no rate"], {"decode": -1.0}),
        ("# nothing\n", ["there is no request", "timestamp"], {"format": "mooncake"}),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", ["no requests"], {}),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\nnoon,3,4\n", [":2:", "not a request"], {}),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,3\n", [":2:", "not a request"], {}),
    ],
)  # fmt: skip
def test_mistakes_are_named(tmp_path: Path, text: str, words: list[str], options: dict[str, Any]) -> None:
    with pytest.raises(TraceError) as error:
        imported(tmp_path, text, **options)
    for word in words:
        assert word in str(error.value)
