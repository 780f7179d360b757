"""LoRA adapters of a service: bytes, slots, loads and times worked out by hand; words that are wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.engine.serving.adapters import AdaptedCost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.machine import catalogue
from gpusim.machine.serving.adapters import AdapterShape
from gpusim.machine.serving.build import step_times
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.programs.serving.requests import at_rate, requests_of
from gpusim.programs.zoo.served import served
from gpusim.studies.serving.lora import lora_of
from gpusim.studies.serving.setup import ServiceSpec, prepare

H100 = "h100-sxm-80gb"


def test_bytes_of_an_adapter() -> None:
    """Llama 2 7B, rank 16, all linear layers: 39,976,960 parameters, as PEFT counts them."""
    shape = AdapterShape(served("llama2-7b"), 16)
    assert shape.bytes == 2 * 39_976_960
    assert shape.copies == 2 * 32 * 7


def test_slots_are_taken_from_keys_and_values() -> None:
    spec = ServiceSpec(model="llama-8b", machine=H100)
    plain = prepare(spec)
    found = prepare(ServiceSpec(model="llama-8b", machine=H100, lora="rank=16, max_loras=8"))
    room = 8 * AdapterShape(found.model, 16).bytes / (16 * found.model.token_bytes(1))
    assert plain.blocks - found.blocks == pytest.approx(room, abs=1)


def test_adapters_take_turns_in_a_slot() -> None:
    """One slot: adapters 1, 2, 1 one after the other; the host holds both, so that the disk is read twice."""
    requests = request_table([0, 0, 0], 8, 2, adapter=[1, 2, 1])
    times = step_times(served("llama-1b"), catalogue.load(H100))
    cost = AdaptedCost(times, requests, 1, 2, 1e6, 1e9, np.zeros((2, 2)))
    scheduler = get("schedule", "vllm@0.33(max_loras=1)").start(requests, EngineLimits(20, 4, 4, 16, 64))
    run = ServiceRun(requests, [Engine("one", scheduler, cost)])
    run.advance()
    found, counts = run.result(), cost.adapter_counts()
    # 1 and 3 share adapter 1 and run at once; 2 waits until both have ended.
    assert counts["loads"] == 2 and counts["reads"] == 2 and counts["load_ns"] == 2 * (1_000_000 + 1_000_000_000)
    assert found.admitted[0] == found.admitted[2] == 0 < found.admitted[1]
    assert found.admitted[1] == max(found.ended[0], found.ended[2])


def test_what_leaves_the_host_leaves_its_slot() -> None:
    """Two places in the host, one slot: 1, 2, 3, 1 are each read from the disk, the last again."""
    requests = request_table(np.arange(4) * 10**12, 8, 1, adapter=[1, 2, 3, 1])
    times = step_times(served("llama-1b"), catalogue.load(H100))
    cost = AdaptedCost(times, requests, 1, 2, 1.0, 1.0, np.zeros((2, 2)))
    scheduler = get("schedule", "vllm@0.33(max_loras=1)").start(requests, EngineLimits(20, 4, 4, 16, 64))
    ServiceRun(requests, [Engine("one", scheduler, cost)]).advance()
    assert cost.adapter_counts()["reads"] == cost.adapter_counts()["loads"] == 4


def test_prompts_are_shared_under_one_adapter_only() -> None:
    table = request_table([0] * 3, 8, 1, adapter=[1, 1, 2], known=8, start=[0, 2, 4, 6], identity=[5, 7] * 3, piece=4)
    own = table.identity.reshape(3, 2).tolist()
    assert own[0] == own[1] and not set(own[0]) & set(own[2])


def test_drawn_adapters_change_nothing_else() -> None:
    plain, found = (requests_of(f"drawn(requests=2000, adapters={n})") for n in (0, 10))
    assert (plain.prompt == found.prompt).all() and (plain.output == found.output).all() and not plain.adapter.any()
    counts = np.bincount(at_rate(found, 5.0).adapter, minlength=11)
    assert counts[0] == 0 and counts[1] / counts[2] == pytest.approx(2, rel=0.2)
    flat = np.bincount(requests_of("drawn(requests=2000, adapters=4, skew=0)").adapter)
    assert flat[1:] == pytest.approx([500] * 4, rel=0.15)


def test_files_of_requests_name_adapters(tmp_path: Path) -> None:
    """Names are counted in the order in which they come; nothing and 0 are no adapter."""
    table = tmp_path / "requests.csv"
    rows = ("law", "", "chat", "0", "law")
    lines = [f"2024-01-01 00:00:0{i},10,2,{name}" for i, name in enumerate(rows)]
    table.write_text("\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens,Adapter", *lines]))
    assert requests_of(str(table)).adapter.tolist() == [1, 0, 2, 0, 1]
    mooncake = tmp_path / "requests.jsonl"
    plain = '{"timestamp": 0, "input_length": 4, "output_length": 2, "hash_ids": [1]'
    mooncake.write_text("\n".join([plain + ', "adapter": "law"}', plain + "}", plain + ', "adapter": 7}']))
    assert requests_of(str(mooncake)).adapter.tolist() == [1, 0, 2]
    mooncake.write_text(plain + ', "adapter": [1]}')
    with pytest.raises(GpusimError, match="an adapter is named"):
        requests_of(str(mooncake))


def test_an_adapter_beside_attention_takes_cells_of_the_pool() -> None:
    """Llama 2 7B, rank 16: 4 x 16 cells of 2 x 4,096 numbers in each of 32 layers."""
    model = served("llama2-7b")
    assert AdapterShape(model, 16, attention=True).bytes == 64 * model.token_bytes(1)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("rnk=4", "no 'rnk'"), ("rank=0", "rank=0"), ("rank=x", "rank=x"), ("max_loras=8, max_cpu_loras=4", "fewer than the 8"),
    ],
)  # fmt: skip
def test_a_word_that_is_wrong_is_told(word: str, told: str) -> None:
    with pytest.raises(GpusimError, match=told):
        lora_of(word)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({}, "the service has none"),
        ({"lora": "rank=8", "engine": "sglang@0.5"}, "not modelled with 'sglang@0.5'"),
        ({"lora": "rank=512, max_loras=64"}, "of adapters"),
    ],
)
def test_a_service_that_cannot_be_is_told(words: dict[str, str], told: str) -> None:
    with pytest.raises(GpusimError, match=told):
        gpusim.serve("llama-8b", H100, "drawn(requests=3, adapters=2)", **words)


@pytest.mark.parametrize("adapter", [[-1, 0], [0]])
def test_adapters_that_are_none(adapter: list[int]) -> None:
    with pytest.raises(GpusimError, match="adapter"):
        request_table([0, 0], 8, 1, adapter=adapter)
