"""How long do a trace's operators take, how is that known, and within which interval?"""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim.machine.catalogue import load, names
from gpusim.machine.kernels import bars
from gpusim.machine.kernels.durations import BASIS, SCALED, durations, model_error, modelled_durations, shares, unknown
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.operators import distinct, is_product
from gpusim.machine.kernels.physics import Rates, predict
from gpusim.machine.kernels.shapes import work
from gpusim.machine.kernels.store import fits, intervals_of_steps, rates, table
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import KERNEL, Trace

pytestmark = pytest.mark.formulas

ROOT = Path(__file__).parents[2]


def one_op(
    name: str, *, flops: float = 0, read: int = 0, written: int = 0, dtype: str = "bfloat16", duration: int = -1,
    shape: str = "", **meta: bool,
) -> Trace:  # fmt: skip
    build = TraceBuilder("t")
    build.op(name, [], [], flops=flops, read_bytes=read, written_bytes=written, dtype=dtype, duration=duration)
    build.meta.update(meta)
    made = build.finish()
    return replace(made, shape=np.zeros(1, np.int32), shapes=(shape,)) if shape else made


def gemm(m: int, n: int, k: int, **more: bool) -> Trace:
    return one_op(
        "aten.mm.default", flops=2.0 * m * n * k, read=2 * (m * k + n * k), written=2 * m * n,
        shape=f"{m}x{k} {k}x{n} -> {m}x{n}", **more,
    )  # fmt: skip


def test_a_product_of_known_shape_is_the_class_with_the_table_of_its_gpu() -> None:
    profile, dims = load("h100-sxm-80gb"), {"m": np.array([4096.0]), "n": np.array([8192.0]), "k": np.array([1024.0])}
    gpu = measured_gpu(profile)
    assert gpu.own == "h100-sxm-80gb" and {"bf16", "bandwidth"} <= gpu.numbers.measured
    fit = fits()["gemm", "bf16"]
    plain = predict(fit.coefficients, work("gemm", dims, 2), Rates.of(gpu.numbers, "bf16"))
    points = np.array([[4096, 8192, 1024]]) * 1024.0
    by_hand = plain * np.exp(table("gemm", "bf16", "h100-sxm-80gb").at(points))
    found = durations(gemm(4096, 8192, 1024), profile)
    assert found.ns[0] == pytest.approx(by_hand[0], rel=0.02) and BASIS[found.basis[0]] == "measured"
    low, high = fit.intervals["measured"]
    assert (found.low[0], found.high[0]) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("machine", "dtype", "basis"),
    [
        ("a100-sxm4-80gb", "bfloat16", "measured"), ("a100-sxm4-40gb", "bfloat16", "family"),
        ("h200-sxm", "bfloat16", "family"), ("rtx-a6000", "bfloat16", "default"),
        ("rtx-3090", "bfloat16", "class"), ("rtx-3090", "float32", "default"),
        ("v100-pcie-32gb", "float32", "measured"),
    ],
)  # fmt: skip
def test_the_basis_says_where_such_kernels_were_measured(machine: str, dtype: str, basis: str) -> None:
    trace = replace(gemm(4096, 4096, 4096), dtypes=(dtype,))
    assert BASIS[durations(trace, load(machine)).basis[0]] == basis


def test_an_interval_is_wider_the_less_is_known() -> None:
    wide = []
    for trace, machine in (
        (gemm(4096, 4096, 4096), "h100-sxm-80gb"), (gemm(4096, 4096, 4096), "h200-sxm"),
        (replace(gemm(4096, 4096, 4096), shape=np.full(1, -1, np.int32)), "h200-sxm"),
    ):  # fmt: skip
        found = durations(trace, load(machine))
        wide.append(found.high[0] - found.low[0])
    assert wide == sorted(wide) and len(set(wide)) == 3


def test_an_operator_of_which_nothing_is_known_is_named() -> None:
    trace = one_op("my_kernel")
    found = durations(trace, load("a100-sxm4-80gb"))
    assert unknown(trace).tolist() == [True] and found.high[0] > 2 and 0 < found.ns[0] < 10_000
    assert unknown(gemm(8, 8, 8)).tolist() == unknown(one_op("my_kernel", read=1)).tolist() == [False]


def test_recorded_times_are_kept_and_scaled_from_another_gpu() -> None:
    trace = replace(gemm(8192, 8192, 8192), duration=np.array([5_000_000]))
    slow, fast = load("a100-sxm4-80gb"), load("h100-sxm-80gb")
    kept = durations(trace, fast)
    assert (kept.ns[0], BASIS[kept.basis[0]], kept.low[0], kept.high[0]) == (5_000_000, "recorded", 0.0, 0.0)
    assert durations(trace, slow, recorded_on=slow).ns[0] == 5_000_000
    scaled = durations(trace, fast, recorded_on=slow)
    ratio = modelled_durations(trace, fast).ns[0] / modelled_durations(trace, slow).ns[0]
    assert scaled.ns[0] == round(5_000_000 * ratio) and scaled.basis[0] == SCALED
    assert 0.25 < ratio < 0.5 and scaled.high[0] > 0  # 255 and 789 TFLOP/s were measured


def test_float32_in_nchw_is_converted_only_for_tf32() -> None:
    shape = "64x64x56x56 64x64x3x3 - -> 64x64x56x56 | stride=1x1 padding=1x1 groups=1 layout="

    def ns(layout: str, machine: str, **meta: bool) -> int:
        build = TraceBuilder("conv")
        build.meta = dict(meta)
        flops = 2.0 * 64 * 56**2 * 64 * 64 * 9
        build.op("aten.convolution.default", [], [], flops=flops, dtype="float32", shape=shape + layout)
        return int(durations(build.finish(), load(machine)).ns[0])

    assert ns("nchw", "a100-sxm4-80gb") > ns("nhwc", "a100-sxm4-80gb")
    assert ns("nchw", "a100-sxm4-80gb", cudnn_tf32=False) == ns("nhwc", "a100-sxm4-80gb", cudnn_tf32=False)
    assert ns("nchw", "v100-sxm2-32gb") == ns("nhwc", "v100-sxm2-32gb")


def test_weights_come_from_memory_even_where_the_cache_could_hold_them() -> None:
    profile = load("rtx-4090")  # 72 MiB of L2
    matrix = 4096 * 4096 * 2
    decode = gemm(1, 4096, 4096)
    program = replace(decode, size=np.array([10**9]))  # among much else
    assert durations(program, profile).ns[0] > 0.9 * matrix / profile.memory.bandwidth.value * 1e9


def test_float32_follows_pytorchs_defaults_unless_told() -> None:
    a100, flops = load("a100-sxm4-80gb"), 1e14

    def rate(name: str, **meta: bool) -> float:
        return flops / durations(one_op(name, flops=flops, dtype="float32", **meta), a100).ns[0] * 1e9

    fp32 = a100.gpu.peak["fp32"].value
    assert rate("aten.mm.default") < fp32 < rate("aten.mm.default", tf32=True)
    assert rate("aten.convolution.default", cudnn_tf32=False) < fp32 < rate("aten.convolution.default", tf32=False)


def test_a_lookup_reads_the_rows_it_writes_not_the_table() -> None:
    a100 = load("a100-sxm4-80gb")
    times = [durations(one_op("aten.embedding.default", read=read, written=10**6), a100).ns[0] for read in (10**9, 10**6)]
    assert times[0] == times[1]


def test_a_changed_number_changes_the_measured_rate_in_proportion() -> None:
    from gpusim.machine.sampling import with_numbers

    profile = load("a100-sxm4-80gb")
    half = with_numbers(profile, {"memory.copy": profile.memory.copy.value / 2})
    rates = [measured_gpu(p).numbers.bandwidth for p in (profile, half)]
    assert rates[1] == pytest.approx(rates[0] / 2)


def test_operators_alike_are_looked_at_once() -> None:
    build = TraceBuilder("t")
    for flops in (1.0, 2.0, 1.0, 1.0):
        build.op("aten.mm.default", [], [], flops=flops, read_bytes=8, written_bytes=8, dtype="float16")
    trace = build.finish()
    first, which = distinct(trace)
    assert len(first) == 2 and (trace.flops[first][which] == trace.flops).all()


def test_bars_of_one_class_do_not_cancel_and_the_widest_decides() -> None:
    trace, profile = load_trace(ROOT / "traces" / "gpt2-small-train.npz"), load("a100-sxm4-80gb")
    times = durations(trace, profile)
    found = bars.bars(times)
    assert sum(bar.ns for bar in found) == times.ns.sum() and sum(bar.count for bar in found) == trace.ops
    low, high = bars.interval(found)
    by_hand = sum(bar.ns * bar.high for bar in found) / times.ns.sum()
    assert low < 1 < high == pytest.approx(by_hand)
    decides = bars.decides(found)
    assert decides is not None and decides.what == max(found, key=lambda bar: bar.ns * (bar.high - bar.low)).what
    doubled = bars.scaled(times, {decides.path: 2.0})
    of = times.what == times.classes.index(decides.what)
    assert (doubled[of] == 2 * times.ns[of]).all() and (doubled[~of] == times.ns[~of]).all()


def test_products_are_told_by_name() -> None:
    assert all(map(is_product, ("aten.mm.default", "aten.bmm.default", "aten.convolution_backward.default", "linear")))
    assert not any(map(is_product, ("aten.add.Tensor", "aten.upsample_bilinear2d.default", "aten.native_layer_norm.default")))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-small-train", "llama-1b-decode", "resnet50-sgd"])
def test_shipped_traces_get_a_time_on_every_machine(name: str) -> None:
    trace = load_trace(ROOT / "traces" / f"{name}.npz")
    for machine in names():
        profile = load(machine)
        found = durations(trace, profile)
        assert (found.ns[trace.activity == KERNEL] > 0).all() and (found.low <= 0).all() and (found.high >= 0).all()
        assert sum(shares(found).values()) == pytest.approx(1)
        fastest = max(peak.value for peak in profile.gpu.peak.values())
        assert found.ns.sum() * 1e-9 > trace.flops.sum() / fastest


def test_the_error_on_a_trace_with_times_is_told() -> None:
    a40, trace = load("a40"), gemm(4096, 4096, 4096)
    model = int(durations(trace, a40).ns[0])
    error = model_error(replace(trace, duration=np.array([2 * model])), a40)
    assert error is not None and (error["median"], error["total"]) == pytest.approx((0.5, -0.5), abs=1e-3)
    assert model_error(trace, a40) is None


# --- against measurements that no fit saw ---

_VIDUR = ROOT / "tests" / "data" / "vidur"  # microsoft/vidur @ 7d475133, fp16, resolution 1 us


def decoder_products(file: Path) -> tuple[Trace, np.ndarray]:
    """The products of a decoder's layers by shape, with their measured ns."""
    build, shapes, times = TraceBuilder("t"), [], []
    for row in csv.DictReader(io.StringIO(gzip.decompress(file.read_bytes()).decode())):
        m, workers, width, inner = (
            int(row[name]) for name in ("num_tokens", "num_tensor_parallel_workers", "n_embd", "n_expanded_embd")
        )
        queries, keys = width // workers, max(int(row["n_kv_head"]) // workers, 1) * width // int(row["n_head"])
        for name, (n, k) in {
            "attn_pre_proj": (queries + 2 * keys, width), "attn_post_proj": (width, queries),
            "mlp_up_proj": (2 * inner // workers, width), "mlp_down_proj": (width, inner // workers),
        }.items():  # fmt: skip
            time = float(row[f"time_stats.{name}.median"] or 0) * 1e6
            if time > 20e3:  # above launches and their resolution
                build.op("aten.mm.default", [], [], flops=2.0 * m * n * k, read_bytes=2 * k * (m + n), written_bytes=2 * m * n,
                         dtype="float16")  # fmt: skip
                shapes.append(f"{m}x{k} {k}x{n} -> {m}x{n}")
                times.append(time)
    made = build.finish()
    return replace(made, shape=np.arange(len(shapes), dtype=np.int32), shapes=tuple(shapes)), np.array(times)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("file", "machine", "median", "p90"),
    [
        # No fit saw a product on an A40.
        ("a100_Llama-2-7b_mlp", "a100-sxm4-80gb", 0.11, 0.24), ("a100_Llama-3-8B_mlp", "a100-sxm4-80gb", 0.07, 0.18),
        ("h100_Llama-2-7b_mlp", "h100-sxm-80gb", 0.12, 0.29), ("a40_Llama-2-7b_mlp", "a40", 0.07, 0.18),
    ],
)  # fmt: skip
def test_a_decoders_products_take_what_another_source_measured(file: str, machine: str, median: float, p90: float) -> None:
    trace, measured = decoder_products(_VIDUR / f"{file}.csv.gz")
    off = np.abs(durations(trace, load(machine)).ns / measured - 1)
    assert len(off) > 100 and np.median(off) < median and np.quantile(off, 0.9) < p90


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("machine", "name", "ms", "within"),
    [
        # github.com/pytorch/kineto, tb_plugin/samples/resnet50_num_workers_0: batch 32, fp32, sums of kernels over 6 steps
        ("v100-sxm2-32gb", "", 591.5 / 6, 0.10), ("v100-sxm2-32gb", "convolution", 394.3 / 6, 0.10),
        ("v100-sxm2-32gb", "batch_norm", 96.2 / 6, 0.06),
        # github.com/stanford-futuredata/gavel @ c4fa4009, simulation_throughputs.json: batch 128, a quarter of the step
        ("v100-sxm2-32gb", "", 1000 / 2.4968 / 4, 0.10), ("p100-sxm2-16gb", "", 1000 / 1.5844 / 4, 0.10),
    ],
)  # fmt: skip
def test_a_resnet_step_in_fp32_takes_what_was_published(machine: str, name: str, ms: float, within: float) -> None:
    trace = load_trace(ROOT / "tests" / "data" / "traces" / "resnet50-b32-fp32.npz")
    second = np.array([trace.phases[p].startswith("step1") for p in trace.phase])
    named = np.array([name in trace.op_names[o] for o in trace.op])
    assert durations(trace, load(machine)).ns[second & named].sum() / 1e6 == pytest.approx(ms, rel=within)


@pytest.mark.oracle
@pytest.mark.parametrize(
    ("machine", "way", "within", "us"),
    [
        # facebookresearch/HolisticTraceAnalysis @ f4d0062c38 (MIT): ResNet-50 in fp32 at batch 32, by channels and side
        ("v100-sxm2-32gb", "", 0.08, {(64, 112): 459.8, (64, 56): 114.1, (128, 56): 211.5, (256, 56): 420.9, (512, 28): 216.2}),
        ("v100-sxm2-32gb", "_backward", 0.07,
         {(64, 112): 955.1, (64, 56): 246.4, (128, 56): 375.9, (256, 56): 794.9, (512, 28): 380.2}),
        ("a100-sxm4-40gb", "", 0.16, {(64, 112): 386.1, (64, 56): 99.3, (128, 56): 146.7, (256, 56): 248.3, (512, 28): 115.7}),
        ("a100-sxm4-40gb", "_backward", 0.06,
         {(64, 112): 803.7, (64, 56): 206.7, (128, 56): 271.0, (256, 56): 423.3, (512, 28): 219.4}),
    ],
)  # fmt: skip
def test_few_channels_are_normalised_as_slowly_as_was_measured(
    machine: str, way: str, within: float, us: dict[tuple[int, int], float]
) -> None:
    for (channels, side), measured in us.items():
        x, weights = f"32x{channels}x{side}x{side}", " ".join([str(channels)] * (5 if way else 4))
        inputs = f"{x} {x} {weights} 0" if way else f"{x} {weights}"
        size = 4 * 32 * channels * side * side
        trace = one_op(
            f"aten.cudnn_batch_norm{way}.default", flops=0, read=size * (2 if way else 1), written=size, dtype="float32",
            shape=f"{inputs} -> {x}" + ("" if way else " | training=1"),
        )  # fmt: skip
        assert durations(trace, load(machine)).ns[0] / 1e3 == pytest.approx(measured, rel=within), (channels, side)


def test_whole_steps_say_how_convolutions_of_16_bits_run_where_none_was_measured() -> None:
    shape = "64x256x28x28 256x256x3x3 - -> 64x256x28x28 | stride=1x1 padding=1x1 dilation=1x1 transposed=0 groups=1 layout=nhwc"
    trace = one_op("aten.convolution.default", flops=5.9e10, read=27_000_000, written=26_000_000, dtype="float16", shape=shape)
    ampere, volta = (durations(trace, load(machine)) for machine in ("rtx-3090", "v100-sxm2-32gb"))
    assert BASIS[ampere.basis[0]] == BASIS[volta.basis[0]] == "measured"
    assert (ampere.low[0], ampere.high[0]) == pytest.approx(intervals_of_steps()["measured"])
    of_volta = fits()["conv", "fp16"].intervals["measured"]  # kernels of this generation were measured
    assert (volta.low[0], volta.high[0]) == pytest.approx(of_volta)
    as_tf32 = durations(replace(trace, dtypes=("float32",)), load("rtx-3090"))
    assert as_tf32.ns[0] > 1.5 * ampere.ns[0] and as_tf32.high[0] > ampere.high[0]


def test_products_on_tensor_cores_run_at_the_rate_of_a_warm_gpu() -> None:
    profile = load("a100-sxm4-80gb")
    known, warm = rates()["a100-sxm4-80gb"], measured_gpu(profile).numbers
    assert 0.8 < known["sustained"] < 0.95
    assert warm.peak["bf16"] == pytest.approx(known["bf16"] * known["sustained"])
