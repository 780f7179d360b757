"""Weights below the GPU: bytes, blocks and step times worked out by hand; words that are wrong."""

from __future__ import annotations

import csv
import os
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.machine.quantity import Compute
from gpusim.policies.schedule.parts.running import request_table
from gpusim.studies.serving import weights_further
from gpusim.studies.serving.flexgen import FlexgenOffload
from gpusim.studies.serving.offload import OffloadWord, offload_of
from gpusim.studies.serving.setup import PreparedService, ServiceSpec, prepare
from gpusim.studies.serving.weights_published import errors, lines, published, simulated

CARD = "t4(host.bandwidth=80 GB/s, link.h2d=10 GB/s, link.d2h=8 GB/s, host.pageable_h2d=5 GB/s, host.pageable_d2h=4 GB/s)"
LAYER = 12 * 4096**2 * 2  # bytes of a layer of OPT 6.7B: 402.7 MB
HEAD = 2 * 50272 * 4096
KEPT = 2 * 4096 * 2  # bytes of a token's keys and values in one layer


def service(offload: str, machine: str = CARD, **words: Any) -> PreparedService:
    words = {"max_tokens": 2048, "max_seqs": 4, "weights": "bf16"} | words
    return prepare(ServiceSpec(model="opt-6.7b", machine=machine, offload=offload, **words))


def parts(prepared: PreparedService, prompt: int, output: int) -> dict[str, int]:
    """ns by part of all steps of one request."""
    run = prepared.start(request_table([0], prompt, output))
    run.advance()
    return run.engines[0].cost.spent().parts  # type: ignore[attr-defined]


def test_a_split_by_hand() -> None:
    """20 of 32 layers on the CPU, a prompt of 8 and 3 tokens: steps of 8, 1 and 1 tokens, 0, 8 and 9 before them."""
    prepared = service("split(layers=20)")
    found = parts(prepared, 8, 3)
    moved = [20 * LAYER + 20 * KEPT * (before + 2 * tokens) for before, tokens in ((0, 8), (8, 1), (9, 1))]
    assert found["cpu"] == sum(round(size / 80) for size in moved)
    assert found["copies"] == sum(round(2600 + tokens * 2 * 4096 / 5) for tokens in (8, 1, 1))
    assert prepared.offload is not None and prepared.offload.near is not None
    near = prepared.offload.near  # the GPU's 12 layers
    assert near.model.layers == 12
    on_gpu = sum(near.of([before], [tokens]).ns for before, tokens in ((0, 8), (8, 1), (9, 1)))
    assert sum(found[name] for name in ("gemm", "attention", "other", "host", "collectives")) == on_gpu


@pytest.mark.parametrize(("pinned", "up", "down"), [("no", 5, 4), ("yes", 10, 8)])
def test_large_steps_of_a_split_are_copied_by_hand(pinned: str, up: float, down: float) -> None:
    """32 tokens: the GPU computes all 32 layers when 20 have come, and sends 20 layers' keys and values back."""
    prepared = service(f"split(layers=20, pinned={pinned})")
    found = parts(prepared, 32, 1)
    assert found["cpu"] == 0
    assert found["copies"] == round(20 * (2600 + LAYER / up) + 32 * 20 * KEPT / down)
    assert sum(found.values()) - found["copies"] == prepared.times.of([0], [32]).ns
    assert parts(prepared, 31, 1)["cpu"] == round((20 * LAYER + 20 * KEPT * 62) / 80)


def test_a_stream_by_hand() -> None:
    """20 of 32 layers come in each step: 8.05 GB at 10 GB/s are longer than a decoding step, and beside it."""
    for ahead, pinned, rate in (("yes", "yes", 10), ("no", "no", 5)):
        prepared = service(f"stream(layers=20, ahead={ahead}, pinned={pinned})")
        found = parts(prepared, 1024, 2)
        gpu = [prepared.times.of([0], [1024]).ns, prepared.times.of([1024], [1]).ns]
        copies = 20 * (2600 + LAYER / rate)
        assert sum(found.values()) == sum(round(max(ns, copies)) if ahead == "yes" else ns + round(copies) for ns in gpu)
        assert found["cpu"] == 0


def test_a_stream_from_disk_goes_at_its_rate() -> None:
    """A layer is read into host memory and copied then."""
    prepared = service("stream(layers=20, from=nvme)", machine="t4(nvme.read=2 GB/s, nvme.latency=100 us)")
    rate = prepared.topology.profile("gpu0").link.h2d.value / 1e9
    copies = round(20 * (2600 + 100_000 + LAYER / 2 + LAYER / rate))
    assert parts(prepared, 8, 1)["copies"] + prepared.times.of([0], [8]).ns == copies


def test_freed_memory_holds_keys_and_values() -> None:
    """OPT 6.7B takes 13.7 GB of a T4's 15.5: what leaves is room for tokens of all 32 layers, or of those that stay."""
    plain = service("", memory=0.97)
    room = plain.blocks * 16 * 32 * KEPT
    streamed = service("stream(layers=20)", memory=0.97)
    assert streamed.blocks * 16 * 32 * KEPT == pytest.approx(room + 18 * LAYER, abs=32 * 16 * 32 * KEPT)
    one = service("stream(layers=20, ahead=no)", memory=0.97)
    assert (one.blocks - streamed.blocks) * 16 * 32 * KEPT == pytest.approx(LAYER, abs=16 * 32 * KEPT)
    split = service("split(layers=20)", memory=0.97)  # 20 layers and the embedding leave, room for one stays
    assert split.blocks * 16 * 12 * KEPT == pytest.approx(room + 19 * LAYER + HEAD, abs=32 * 16 * 32 * KEPT)


def test_the_host_bounds_the_blocks_of_a_split() -> None:
    host = 20 * LAYER + HEAD + 100 * 16 * 20 * KEPT
    assert service("split(layers=20)", machine=f"t4(host.capacity={host / 1e9} GB)").blocks == 100
    with pytest.raises(GpusimError, match="of weights do not fit the host memory at socket0, which has 5 GB"):
        service("split(layers=20)", machine="t4(host.capacity=5 GB)")
    with pytest.raises(GpusimError, match="of weights do not fit the disk, which has 5 GB"):
        service("stream(layers=20, from=nvme)", machine="t4(nvme.capacity=5 GB)")


def test_replicas_share_the_host() -> None:
    """Two T4 on one socket: the CPU's memory is shared; 80 GB/s carry two streams at 10 each, 15 GB/s do not."""
    one, two = (service("split(layers=20)", machine=f"{n}t4(host.bandwidth=80 GB/s)") for n in ("", "2 x "))
    assert parts(two, 8, 1)["cpu"] == pytest.approx(2 * parts(one, 8, 1)["cpu"], abs=1)
    for bandwidth, rate in ((80, 12.3), (15, 7.5)):
        found = parts(service("stream(layers=32)", machine=f"2 x t4(host.bandwidth={bandwidth} GB/s)"), 8, 1)
        assert sum(found.values()) == round(32 * (2600 + LAYER / rate))


def test_two_gpus_stream_their_halves() -> None:
    found = parts(service("stream(layers=32)", machine="2 x t4(host.bandwidth=80 GB/s)", tensor=2), 8, 1)
    assert sum(found.values()) == round(32 * (2600 + LAYER / 2 / 12.3))


def test_the_cpus_arithmetic_bounds_where_it_is_known() -> None:
    prepared = service("split(layers=20)")
    known = prepared.topology.profile("gpu0")
    host = replace(known.host, compute=Compute(value="1 TFLOP/s", basis="measured", source="given"))  # type: ignore[arg-type]
    object.__setattr__(prepared.topology.nodes["gpu0"], "profile", replace(known, host=host))
    assert parts(prepared, 31, 1)["cpu"] == round(20 * 31 * 2 * 12 * 4096**2 / 1e3)


def test_a_split_reads_the_experts_that_are_chosen() -> None:
    """Mixtral: two of eight experts for one token; of two tokens that choose alike, 1 - (3/4)^2 of all."""
    prepared = prepare(ServiceSpec(
        model="mixtral-8x7b", machine="a100-sxm4-80gb(host.bandwidth=100 GB/s)", offload="split(layers=16)", max_tokens=2048
    ))  # fmt: skip
    model = prepared.model
    kept, experts = 16 * 2 * 8 * 128 * 2, 16 * 8 * 3 * 4096 * 14336 * 2
    plain = 16 * 2 * 4096 * ((32 + 16) * 128 + 32 * 128 + 8)
    assert 16 * model.layer_bytes(1) == plain + experts
    for tokens, share in ((1, 1 / 4), (2, 7 / 16)):
        assert parts(prepared, tokens, 1)["cpu"] == round((plain + experts * share + 2 * tokens * kept) / 100)


def test_one_memory_has_nothing_below_it() -> None:
    with pytest.raises(GpusimError, match="have one memory"):
        service("stream(layers=8)", machine="jetson-agx-orin-64gb")


def test_fast_and_slow_are_ends_of_the_interval() -> None:
    prepared = service("split(layers=20)")
    times = {bound: parts(prepared.paced(bound), 8, 3) for bound in ("fast", "slow")}
    usual = parts(prepared, 8, 3)
    assert times["fast"]["cpu"] == usual["cpu"] and times["slow"]["cpu"] == pytest.approx(1.24 * usual["cpu"], rel=1e-6)
    assert times["fast"]["gemm"] < usual["gemm"] < times["slow"]["gemm"]


def test_what_the_words_say() -> None:
    assert offload_of(" ") is None
    assert offload_of("split(layers=3)") == OffloadWord("split", 3, False)
    assert offload_of("stream(layers=3)") == OffloadWord("stream", 3, True)
    assert offload_of("stream(layers=3, from=nvme, ahead=no, pinned=no)") == OffloadWord("stream", 3, False, "nvme", False)


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("splt(layers=3)", "not offloaded by 'splt'"), ("split(layer=3)", "has no 'layer'"), ("split", "of no layers"),
        ("stream(layers=0)", "of 0 layers"), ("stream(layers=4, from=tape)", "not streamed from 'tape'"),
        ("stream(layers=4, ahead=maybe)", "neither yes nor no"), ("split(layers=4, from=nvme)", "has no 'from'"),
        ("split(layers=32)", "32 of 32 layers of opt-6.7b"), ("stream(layers=33)", "33 of 32 layers"),
    ],
)  # fmt: skip
def test_a_word_that_is_wrong_is_told(word: str, told: str) -> None:
    with pytest.raises(GpusimError, match=told):
        service(word)


@pytest.mark.parametrize(("words", "told"), [({"tiers": "host(1 GiB)"}, "tiers"), ({"lora": "rank=8"}, "adapters")])
def test_what_is_not_modelled_together_is_refused(words: dict[str, str], told: str) -> None:
    with pytest.raises(GpusimError, match=f"not modelled together with {told}"):
        gpusim.serve("opt-6.7b", "t4", "drawn(requests=3)", offload="stream(layers=8)", max_tokens=2048, **words)


WORDS = "flexgen(batches=3, weights=20/80, cache=0/100, activations=0/100, attention=cpu)"


def test_a_service_under_flexgens_plan_is_the_plan() -> None:
    """144 requests of 512 + 32 tokens take as long as the plan says, but for decoding at each token's own context."""
    prepared = prepare(ServiceSpec(
        model="opt-30b", machine="t4(host.capacity=208 GiB)", engine="static", max_seqs=144, max_tokens=73728, offload=WORDS
    ))  # fmt: skip
    found = prepared.offload
    assert isinstance(found, FlexgenOffload)
    run = prepared.start(request_table([0] * 144, 512, 32))
    run.advance()
    assert run.result().summary()["makespan_ns"] == pytest.approx(found.model.ns(found.plan, 512, 32), rel=2e-3)
    assert prepared.blocks == int(found.model.room_for(found.plan, 512) // 16)
    spent = run.engines[0].cost.spent()  # type: ignore[attr-defined]
    assert list(spent.parts) == ["gpu", "cpu", "copies"] and spent.low == pytest.approx(0.92 * spent.ns)
    slow = prepared.paced("slow").start(request_table([0] * 144, 512, 32))
    slow.advance()
    assert slow.result().summary()["makespan_ns"] == pytest.approx(1.5 * run.result().summary()["makespan_ns"], rel=1e-6)


def test_flexgen_chooses_cpu_or_gpu_for_attention() -> None:
    """Given neither shares nor who attends: on a T4 the CPU does, as reading keys and values is slower over the link."""
    found = prepare(ServiceSpec(model="opt-30b", machine="t4(host.capacity=208 GiB)", engine="static", max_seqs=144,
                                offload="flexgen(batches=3)")).offload  # fmt: skip
    assert isinstance(found, FlexgenOffload) and found.plan.on_cpu and found.plan.cache[0] < 100
    assert "the fastest for 512 + 32 tokens" in found.said({"gpu": 1, "cpu": 1, "copies": 0})


@pytest.mark.parametrize(
    ("word", "words", "told"),
    [
        ("flexgen", {"engine": "vllm@0.33"}, "starts together, which 'vllm@0.33' does not"),
        ("flexgen(batches=3)", {}, "4 requests at once are no 3 equal batches"),
        ("flexgen(batch=3)", {}, "has no 'batch'"), ("flexgen(batches=0)", {}, "batches=0 of flexgen"),
        ("flexgen(weights=20/80)", {}, "says where weights lie, and not the rest"),
        ("flexgen(weights=20, cache=0/100, activations=0/100)", {}, "weights=20 are no per cent"),
        ("flexgen(attention=tpu)", {}, "attention=tpu of flexgen"), ("flexgen(bits=8)", {}, "bits=8 of flexgen"),
        ("flexgen(attention=cpu, cache_bits=4)", {}, "attends to keys and values of 16 bits"),
        ("flexgen", {"machine": "2 x t4"}, "on one GPU"), ("flexgen", {"model": "llama-8b"}, "modelled of OPT"),
        ("flexgen", {"tensor": 2, "machine": "2 x t4"}, "on one GPU"),
        ("flexgen(weights=100/0, cache=100/0, activations=100/0)", {"model": "opt-30b"}, "more than the GPU has"),
    ],
)  # fmt: skip
def test_a_plan_that_cannot_be_is_told(word: str, words: dict[str, Any], told: str) -> None:
    given: dict[str, Any] = {"model": "opt-6.7b", "machine": "t4", "engine": "static", "max_seqs": 4, "offload": word} | words
    with pytest.raises(GpusimError, match=told):
        prepare(ServiceSpec(**given))


@pytest.mark.oracle
@pytest.mark.slow
def test_published_throughput() -> None:
    """The document has the table; no row of FlexGen in 16 bits is off by more than a tenth."""
    found = [(row, simulated(row)) for row in published() if row.offload]
    text = (Path(__file__).parents[2] / "docs" / "serving_offload.md").read_text("utf-8")
    assert "\n".join(lines(found)) in text
    assert statistics.median(errors(found)) < 0.25
    for row, value in found:
        if row.system == "FlexGen":
            assert value == pytest.approx(float(row.published), rel=0.1)


@pytest.mark.slow
@pytest.mark.oracle
def test_further_published_throughput() -> None:
    """The document has this table, too; a tenth in the median."""
    found = [(row, weights_further.simulated(row)) for row in weights_further.further()]
    text = (Path(__file__).parents[2] / "docs" / "serving_offload.md").read_text("utf-8")
    assert "\n".join(weights_further.lines(found)) in text
    assert statistics.median(weights_further.errors(found)) < 0.1 and max(weights_further.errors(found)) < 0.3


def test_the_published_rows_are_all_there() -> None:
    """Against the shared list of published numbers, where its folder is named."""
    rows = published()
    assert len(rows) == 16 and sum(bool(row.offload) for row in rows) == 12
    folder = os.environ.get("GPUSIM_SERVING", "")
    if not folder:
        pytest.skip("GPUSIM_SERVING names no folder with published_serving.csv")
    with (Path(folder) / "published_serving.csv").open(encoding="utf-8") as file:
        told = [r["value"] for r in csv.DictReader(file) if "FlexLLMGen@004ffef README" in r["source"]]
    assert [float(row.published) for row in rows if row.model] == [float(value) for value in told]
