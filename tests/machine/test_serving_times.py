"""Step times of models: tables of operators, their interpolation, engines, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.machine import catalogue
from gpusim.machine.serving.build import Exchanges, operator_model, step_times
from gpusim.machine.serving.engines import costs
from gpusim.machine.serving.grids import grid
from gpusim.machine.serving.operators import OperatorModel, kin
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.serving.tables import ServingTables, installed, order
from gpusim.machine.topology import build
from gpusim.programs.zoo.served import served

pytestmark = pytest.mark.fast
NOWHERE = Path("no-tables")
SMALL = ServedModel("small", 2, 1024, 8, 2, 128, 2048, 4096)


def write(folder: Path, place: str, rows: list[dict[str, Any]]) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = folder / f"{place}_perf.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(arrow.Table.from_pylist(rows), path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Tables of an H100 in vLLM 0.20 and 0.24: ms that no GPU takes, so that they are told from the form's."""
    for version, slower in (("0.20.0", 2.0), ("0.24.0", 1.0)):
        write(tmp_path, f"h100_sxm/gemm/vllm/{version}/gemm", [
            {"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": slower * 1e-3 * (10 + m / 16 + n * k / 2**20)}
            for m in (1, 16, 256, 4096) for n in (1024, 4096) for k in (512, 4096)
        ])  # fmt: skip
        write(tmp_path, f"h100_sxm/comm/vllm/{version}/custom_allreduce", [
            {"num_gpus": 2, "message_size": n, "backend": f"vllm_{way}", "latency": slower * each * 1e-3 * (4 + n / 2**20)}
            for n in (1024, 2**20) for way, each in (("graph", 1), ("eager", 9))
        ])  # fmt: skip
    for name, length in (("context_attention", "isl"), ("generation_attention", "step")):
        write(tmp_path, f"h100_sxm/attention/vllm/0.24.0/{name}", [
            {
                "batch_size": b, "isl": 1, "step": 0, "num_heads": heads, "num_key_value_heads": 2, "head_dim": 128,
                "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16", "window_size": window,
                "latency": 1e-3 * (12 + b * s * heads / 2**14), length: s,
            }
            for b in (1, 8, 64) for s in (15, 255, 4095) for heads in (4, 8, 16) for window in (0, 128)
        ])  # fmt: skip
    return tmp_path


def h100(folder: Path | None, version: str = "") -> OperatorModel:
    machine = catalogue.load("h100-sxm-80gb")
    return OperatorModel(machine, ServingTables(folder, machine.name, "vllm", version), machine, briefly=True)


def test_gpus_without_bfloat16_serve_in_fp16() -> None:
    """A T4: 16,384 tokens through OPT 6.7B at the 24 TFLOP/s that its power limit leaves, not at a sixth of that."""
    times = step_times(served("opt-6.7b"), catalogue.load("t4"), most_tokens=16384)
    flops = 2 * 16384 * 32 * 12 * 4096**2
    assert times.of([0], [16384]).parts["gemm"] == pytest.approx(flops / 24e12 * 1e9, rel=0.25)


def test_a_measured_shape_has_its_time(folder: Path) -> None:
    model = h100(folder)
    ns = model.gemm("bf16", np.array([1.0, 256.0]), 4096, 512)
    assert ns == pytest.approx([1e3 * (10 + 1 / 16 + 2), 1e3 * (10 + 16 + 2)])
    eight = np.array([8.0])
    assert model.decode("bf16", eight, np.array([256.0]), 8, 2, 128) == pytest.approx([1e3 * (12 + 8 * 255 * 8 / 2**14)])
    assert model.prefill("bf16", eight, np.array([255.0]), 16, 2, 128) == pytest.approx([1e3 * (12 + 8 * 255 * 16 / 2**14)])
    assert model.used["gemm"] == "h100_sxm/gemm/vllm/0.24.0"


def test_versions(folder: Path) -> None:
    """The newest that is not above what was asked for, or the oldest."""
    of = [h100(folder, version).gemm("bf16", np.array([1.0]), 1024, 512)[0] for version in ("", "0.23", "0.24.1", "0.9")]
    assert of == pytest.approx([1e3 * 10.5625, 2e3 * 10.5625, 1e3 * 10.5625, 2e3 * 10.5625])
    assert order("0.5.6.post2") > order("0.5.6") and order("1.3.0rc20") > order("1.3.0rc5")


def test_all_reduces_are_the_median_of_versions_in_graphs(folder: Path) -> None:
    """The tables count elements of two bytes."""
    found = h100(folder).all_reduce(2, np.array([2048.0, 2**21, 2**22]))
    assert found == pytest.approx([1.5e3 * (4 + 2**-10), 1.5e3 * 5, 2 * 1.5e3 * 5])
    assert h100(folder).all_reduce(4, np.array([1024.0])) is None


@pytest.mark.parametrize("machine", ["dgx-a100", "hgx-h100", "hgx-h200", "hgx-b200"])
def test_measured_all_reduces_of_many_bytes_take_as_long_as_nccl_on_the_links(machine: str) -> None:
    """Engines leave large messages to NCCL: half or twice the size would be 50 or 100 % off."""
    if installed() is None:
        pytest.skip("aiconfigurator-core is not installed")
    links, size = build.load(machine), np.array([2.0**28])
    for ways in (2, 4, 8):
        operators = operator_model(links.profile(links.gpus[0]), "vllm", "", installed())
        measured = operators.all_reduce(ways, size)
        assert measured is not None
        assert Exchanges(OperatorModel(operators.machine), ways, links, ()).ns(size) == pytest.approx(measured, rel=0.15)


def test_keys_of_fewer_requests_with_more_heads_are_the_same_work(folder: Path) -> None:
    """8 heads on 8 of keys and values of one request are what 2 on 2 of four requests are."""
    model = h100(folder)
    four = model.decode("bf16", np.array([4.0]), np.array([256.0]), 4, 2, 128)
    assert model.decode("bf16", np.array([1.0]), np.array([256.0]), 16, 8, 128) == pytest.approx(four, rel=0.02)


def test_a_step_has_cold_weights_and_a_warm_gpu(folder: Path) -> None:
    """A small matrix of the benchmark lies in the cache and its large ones are at full clock: both take longer in a step."""
    machine = catalogue.load("h100-sxm-80gb")
    in_step = OperatorModel(machine, ServingTables(folder, machine.name, "vllm"), machine)
    m = np.array([1.0, 4096.0])
    assert (in_step.gemm("bf16", m, 1024, 512) > h100(folder).gemm("bf16", m, 1024, 512)).all()


def test_kin_and_form(folder: Path) -> None:
    """An H200 has the table of an H100; an RTX 3090 the form alone; a B300 is of the kind of a B200."""
    kept = operator_model(catalogue.load("h200-sxm"), "vllm", "", folder)
    kept.gemm("bf16", np.array([1.0]), 1024, 512)
    assert (kept.basis("gemm"), kept.basis("decode")) == ("family", "form")
    alone = operator_model(catalogue.load("rtx-3090"), "vllm", "", folder)
    alone.gemm("bf16", np.array([1.0]), 1024, 512)
    assert alone.basis("gemm") == "form" and alone.tables is None
    assert kin(catalogue.load("b300-sxm"))[0] in ("b200-sxm", "gb200")


def test_grids_are_linear_in_logarithms_and_flat_outside() -> None:
    x, y = np.meshgrid([1.0, 4.0, 16.0], [1.0, 256.0], indexing="ij")
    made = grid([x.reshape(-1), y.reshape(-1)], (np.log2(x) + 10 * np.log2(y)).reshape(-1))
    found = made.at([np.array([2.0, 8.0, 64.0, 0.5]), np.array([16.0, 1.0, 256.0, 512.0])])
    assert found == pytest.approx([41.0, 3.0, 84.0, 80.0])


def test_what_was_not_measured_has_its_neighbour() -> None:
    made = grid([np.array([1.0, 2.0, 4.0, 1.0]), np.array([1.0, 1.0, 1.0, 2.0])], np.array([5.0, 6.0, 7.0, 9.0]))
    assert made.at([np.array([4.0, 2.0]), np.array([2.0, 2.0])]) == pytest.approx([9.0, 9.0])


def test_captured_sizes_are_those_of_the_engines() -> None:
    old, new = costs("vllm@0.11")[0].captured(256), costs("vllm@0.33")[0].captured(256)
    assert old == [1, 2, 4, *range(8, 513, 8)]
    assert new == [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]
    assert costs("vllm@0.11")[0].captured(4) == [1, 2, 4, 8]
    assert costs("vllm@0.33")[0].overlap and not costs("vllm@0.11")[0].overlap


def test_times_of_a_model(folder: Path) -> None:
    machine = catalogue.load("h100-sxm-80gb")
    times = step_times(SMALL, machine, "vllm@0.11", folder=folder, most_tokens=512, most_requests=16)
    one, many = times.of([100], [1]), times.of([100] * 16, [1] * 16)
    assert 0 < one.ns < many.ns and one.low < one.ns < one.high
    assert sum(many.parts.values()) == many.ns
    assert many.parts["host"] == 264_000 + 16 * 9_200 and many.parts["collectives"] == 0
    assert times.sources == {
        "gemm": "h100_sxm/gemm/vllm/0.20.0", "decode": "h100_sxm/attention/vllm/0.24.0",
        "prefill": "h100_sxm/attention/vllm/0.24.0",
    }  # fmt: skip


def test_split_over_two_gpus(folder: Path) -> None:
    """Two all-reduces a layer and one of the embedding, of 1,024 activations for each token; half of one of 4,096 scores."""
    machine = catalogue.load("h100-sxm-80gb")
    times = step_times(SMALL, machine, "vllm", 2, folder=folder, most_tokens=64, most_requests=4, graphs=False)
    two, three = (times.of([0] * n, [1] * n).parts["collectives"] for n in (2, 3))
    reduced, gathered = (h100(folder).all_reduce(2, np.array(sizes)) for sizes in ([4096.0, 6144.0], [16384.0, 24576.0]))
    assert three - two == pytest.approx(5 * np.diff(reduced)[0] + np.diff(gathered)[0] / 2, abs=1)
    assert times.sources["collectives"] == "h100_sxm/comm/vllm"
    links = build.load("hgx-h100")
    nccl = step_times(SMALL, machine, "vllm", 2, topology=links, most_tokens=64, most_requests=4, folder=NOWHERE)
    assert nccl.sources["collectives"] == "NCCL on the machine's links" and nccl.of([0], [1]).parts["collectives"] > 0


def test_experts() -> None:
    """More experts chosen take longer; their weights are held."""
    machine = catalogue.load("h100-sxm-80gb")
    few, more = (ServedModel("moe", 2, 1024, 8, 2, 128, 512, 4096, experts=16, chosen=chosen) for chosen in (1, 4))
    took = [step_times(model, machine, folder=NOWHERE, most_tokens=64, most_requests=4) for model in (few, more)]
    assert took[0].of([0] * 4, [16] * 4).parts["gemm"] < took[1].of([0] * 4, [16] * 4).parts["gemm"]
    assert few.weight_bytes(1) - SMALL.weight_bytes(1) == 2 * 2 * (16 * 3 * 1024 * 512 + 16 * 1024 - 3 * 1024 * 2048)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: ServedModel("m", 2, 64, 4, 4, 16, 64, 100, weights="int4"), "no step times of weights in 'int4'"),
        (lambda: ServedModel("m", 2, 64, 4, 4, 16, 64, 100, cache="fp4"), "no step times of keys and values in 'fp4'"),
        (lambda: SMALL.divides(3), "8 heads on 2 of keys and values cannot be split over 3 GPUs"),
        (lambda: step_times(SMALL, catalogue.load("l40s"), "triton"), "no CPU times of the engine 'triton'"),
        (lambda: step_times(SMALL, catalogue.load("l40s"), "vllm@0.5"), "no CPU times of vllm@0.5"),
        (
            lambda: step_times(SMALL, catalogue.load("rtx-3090"), "vllm", 2, folder=NOWHERE),
            "nothing says over which links 2 GPUs exchange",
        ),
    ],
)  # fmt: skip
def test_refusals(made: Any, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        made()


def test_step_of_unequal_columns(folder: Path) -> None:
    times = step_times(SMALL, catalogue.load("h100-sxm-80gb"), folder=folder, most_tokens=16, most_requests=4)
    with pytest.raises(GpusimError, match="2 requests have tokens before the step, 1 in it"):
        times.of([1, 2], [1])


@pytest.mark.oracle
def test_shipped_tables_say_what_they_measured() -> None:
    """Every tenth product of an H100 in its own table, at its time."""
    root = installed()
    if root is None:
        pytest.skip("aiconfigurator-core is not installed")
    model = h100(root)
    found = model.tables.gemm("bf16")
    some = found.where(np.arange(len(found.ns)) % 10 == 0)
    assert model.gemm("bf16", *(some.dims[axis] for axis in "mnk")) == pytest.approx(some.ns, rel=1e-9)
