"""How long do kernels take, by hand and against measured operators, and is what is only estimated marked so?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.calibrate import fit_roofline
from gpusim.machine import roofline
from gpusim.machine.profile import Profile, load_file
from gpusim.machine.roofline import BASIS, ESTIMATED, FITTED, RECORDED, Coefficients
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.formulas

ROOT = Path(__file__).parents[2]
MEASURED = ROOT / "tests" / "data" / "vidur"


def profile(name: str) -> Profile:
    return load_file(ROOT / "hardware_profiles" / f"{name}.yaml")


def one_op(name: str, *, flops: float = 0, read: int = 0, written: int = 0, dtype: str = "float16", duration: int = -1,
           **meta: bool) -> Trace:  # fmt: skip
    build = TraceBuilder("t")
    build.op(name, [], [], flops=flops, read_bytes=read, written_bytes=written, dtype=dtype, duration=duration)
    build.meta.update(meta)
    return build.finish()


@pytest.mark.hand_worked
def test_the_formula_by_hand() -> None:
    # 1e12 flop at 1e15 * 0.5 flop/s: 2 ms.  1e9 bytes at 1e12 * 0.25 B/s: 4 ms.  (2^2 + 4^2)^(1/2) = 4.4721 ms, + 1 us.
    c = Coefficients(floor=1000, compute=0.5, memory=0.25, cached=0.25, cache_share=0, blend=2)
    time = c.predict(np.array([1e12, 0.0, 0.0]), np.array([1e9, 1e9, 0.0]), 1e15, 1e12, 4e6)
    assert time == pytest.approx([1000 + 20**0.5 * 1e6, 1000 + 4e6, 1000], abs=1e-3)


def test_the_cache_serves_what_fits_and_half_of_what_is_half_too_large() -> None:
    # L2 reach 0.5 * 8 MB = 4 MB.  At 1e12 B/s: 4 MB wholly from cache (share 2): 2 us; 6 MB half: 1.5 + 6 us; 8 MB: 16 us.
    c = Coefficients(floor=0, compute=1, memory=0.5, cached=2.0, cache_share=0.5, blend=2)
    moved = np.array([4e6, 6e6, 8e6])
    assert c.predict(np.zeros(3), moved, 1e15, 1e12, 8e6) == pytest.approx([2000, 1500 + 6000, 16000])


def test_more_work_never_takes_less_time() -> None:
    steps = np.arange(0, 200e6, 1e5)
    for reference in roofline.references().values():
        for name, c in reference.classes.items():
            by_bytes = c.predict(np.zeros(len(steps)), steps, reference.peak, reference.bandwidth, reference.l2)
            by_flops = c.predict(steps * 1e4, np.full(len(steps), 1e6), reference.peak, reference.bandwidth, reference.l2)
            assert (np.diff(by_bytes) >= 0).all() and (np.diff(by_flops) >= 0).all(), (reference.name, name)


def test_recorded_times_are_kept_and_nothing_costs_the_floor() -> None:
    a100 = profile("a100-sxm4-80gb")
    time, basis = roofline.durations(one_op("aten.mm.default", flops=1e12, duration=77), a100)
    assert time.tolist() == [77] and basis.tolist() == [RECORDED]
    time, _ = roofline.durations(one_op("aten.add.Tensor"), a100)
    assert time.tolist() == [roofline.references()["a100-sxm4-80gb"].classes["add"].floor]


def test_how_much_of_the_time_is_only_estimated() -> None:
    time, basis = np.array([10, 20, 70]), np.array([RECORDED, FITTED, ESTIMATED], np.uint8)
    assert roofline.shares(time, basis) == {"recorded": 0.1, "fitted": 0.2, "estimated": 0.7}
    assert set(roofline.shares(time[:0], basis[:0]).values()) == {0.0}


@pytest.mark.parametrize(
    ("name", "dtype", "machine", "expected"),
    [
        ("aten.mm.default", "bfloat16", "a100-sxm4-80gb", FITTED),
        ("aten.addmm.default", "float16", "h100-sxm-80gb", FITTED),
        ("aten.native_layer_norm.default", "float16", "a40", FITTED),
        ("aten.add.Tensor", "bfloat16", "a40", FITTED),
        ("aten.mm.default", "float32", "a100-sxm4-80gb", ESTIMATED),
        ("aten.native_layer_norm_backward.default", "float16", "a40", ESTIMATED),
        ("aten.convolution.default", "float16", "a100-sxm4-80gb", ESTIMATED),
        ("aten._scaled_dot_product_flash_attention.default", "float16", "h100-sxm-80gb", ESTIMATED),
        ("aten.bmm.default", "float16", "h100-sxm-80gb", ESTIMATED),
        ("aten.mm.default", "bfloat16", "rtx-4090", ESTIMATED),
        ("aten.mm.default", "bfloat16", "a100-sxm4-40gb", ESTIMATED),
        ("my_own_kernel", "float16", "a40", ESTIMATED),
    ],
)
def test_only_what_was_measured_is_called_fitted(name: str, dtype: str, machine: str, expected: int) -> None:
    _, basis = roofline.durations(one_op(name, flops=1e9, read=10**6, dtype=dtype), profile(machine))
    assert BASIS[basis[0]] == BASIS[expected]


def test_the_nearest_measured_gpu_by_memory_and_generation() -> None:
    nearest = {"v100-sxm2-32gb": "a100-sxm4-80gb", "b200-sxm": "h100-sxm-80gb", "rtx-4090": "a40", "t4": "a40",
               "jetson-agx-orin-64gb": "a40", "h200-sxm": "h100-sxm-80gb"}  # fmt: skip
    for machine, reference in nearest.items():
        found, same = roofline.reference_of(profile(machine))
        assert (found.name, same) == (reference, False)
    for machine in roofline.references():
        found, same = roofline.reference_of(profile(machine))
        assert (found.name, same) == (machine, True)


def test_an_estimate_streams_no_faster_than_the_profile_copies() -> None:
    for machine in ("rtx-4090", "jetson-agx-orin-64gb", "t4", "v100-sxm2-32gb", "b200-sxm"):
        of = profile(machine)
        moved = 100 * int(of.gpu.l2.value)  # far beyond the cache
        time, _ = roofline.durations(one_op("aten.add.Tensor", read=moved // 2, written=moved // 2), of)
        assert time[0] >= moved / of.memory.copy.value * 1e9


def test_float32_follows_pytorchs_defaults_unless_told() -> None:
    a100 = profile("a100-sxm4-80gb")
    work = 1e14

    def rate(name: str, **meta: bool) -> float:
        time, _ = roofline.durations(one_op(name, flops=work, dtype="float32", **meta), a100)
        return work / (time[0] * 1e-9) / roofline.references()["a100-sxm4-80gb"].classes["gemm"].compute

    fp32, tf32 = a100.gpu.peak["fp32"].value, a100.gpu.peak["tf32"].value
    assert rate("aten.mm.default") == pytest.approx(fp32, rel=1e-3)
    assert rate("aten.mm.default", tf32=True) == pytest.approx(tf32, rel=1e-3)
    assert rate("aten.convolution.default") == pytest.approx(tf32, rel=1e-3)
    assert rate("aten.convolution_backward.default", tf32=False) == pytest.approx(fp32, rel=1e-3)


def test_a_lookup_reads_the_rows_it_writes_not_the_table() -> None:
    a100 = profile("a100-sxm4-80gb")
    small, _ = roofline.durations(one_op("aten.embedding.default", read=10**9, written=10**6), a100)
    large, _ = roofline.durations(one_op("aten.embedding.default", read=10**6, written=10**6), a100)
    assert small[0] == large[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpt2-small-train", "llama-1b-decode", "resnet50-train"])
def test_shipped_traces_get_a_time_on_every_machine(name: str) -> None:
    trace = load_trace(ROOT / "traces" / f"{name}.npz")
    for path in sorted((ROOT / "hardware_profiles").glob("*.yaml")):
        of = load_file(path)
        time, basis = roofline.durations(trace, of)
        assert time.shape == basis.shape == (trace.ops,) and (time > 0).all() and (basis != RECORDED).all()
        # No machine beats its own peaks: all flops at the fastest listed rate, all bytes at the pins or from L2.
        fastest = max(peak.value for peak in of.gpu.peak.values())
        assert time.sum() * 1e-9 > trace.flops.sum() / fastest


def test_the_error_on_a_trace_with_times_is_told() -> None:
    a40 = profile("a40")
    build = TraceBuilder("t")
    for name in ("aten.mm.default", "aten.add.Tensor"):
        for size in (10**6, 10**7, 10**8):
            build.op(name, [], [], flops=size * 100, read_bytes=size, written_bytes=size, dtype="float16")
    model, _ = roofline.durations(build.finish(), a40)
    for slow, said in ((1.0, 0.0), (2.0, 0.5)):
        build = TraceBuilder("t")
        sizes = [s for _ in range(2) for s in (10**6, 10**7, 10**8)]
        for i, size in enumerate(sizes):
            build.op(("aten.mm.default", "aten.add.Tensor")[i // 3], [], [], flops=size * 100, read_bytes=size,
                     written_bytes=size, dtype="float16", duration=int(model[i] * slow))  # fmt: skip
        error = roofline.model_error(build.finish(), a40)
        assert error is not None and error["operators"] == 6
        assert (error["median"], error["p90"], error["total"]) == pytest.approx((said, said, -said), abs=1e-3)
        assert error["worst"][0][0] in ("aten.mm.default", "aten.add.Tensor")
    assert roofline.model_error(one_op("aten.mm.default"), a40) is None
    unknown = build.finish()
    unknown.meta["lacks"] = ["flops"]
    assert roofline.model_error(unknown, a40) is None  # most imports: a roofline without flops says nothing


# --- against measurements ---


@pytest.fixture(scope="module")
def points() -> list[fit_roofline.MeasuredOperator]:
    return [p for path in sorted(MEASURED.glob("*.csv.gz")) for p in fit_roofline.points(path) if p.time > 0]


def test_flops_and_bytes_follow_from_the_layers_shapes(points: list[fit_roofline.MeasuredOperator]) -> None:
    label = "a100_Llama-2-7b_mlp,4096,1"
    found = {p.key.rsplit(",", 1)[1]: p for p in points if p.key.startswith(label + ",")}
    assert found["attn_pre_proj"].flops == 2 * 4096 * 4096 * 3 * 4096
    assert found["mlp_down_proj"].moved == 2 * (4096 * 11008 + 11008 * 4096 + 4096 * 4096)
    assert found["add"].moved == 2 * 3 * 4096 * 4096 and found["add"].time == 55_000
    # 32 query heads and 8 key-value heads of width 128, over 2 workers.
    llama3 = next(p for p in points if "Llama-3" in p.key and p.key.endswith(",2,attn_pre_proj"))
    tokens = int(llama3.key.split(",")[1])
    assert llama3.flops == 2 * tokens * 4096 * (2048 + 2 * 4 * 128)


@pytest.mark.oracle
@pytest.mark.parametrize("gpu", sorted(fit_roofline.GPUS))
@pytest.mark.parametrize("kind", fit_roofline.KINDS)
def test_the_model_is_as_near_to_unseen_measurements_as_it_says(
    points: list[fit_roofline.MeasuredOperator], gpu: str, kind: str
) -> None:
    reference = roofline.references()[fit_roofline.GPUS[gpu]]
    of_kind = [p for p in points if p.gpu == gpu and p.kind == kind and fit_roofline.held_out(p.key)]
    median, p90, total = fit_roofline.errors(reference.classes[kind], of_kind, profile(fit_roofline.GPUS[gpu]))
    said = reference.errors[kind]
    assert len(of_kind) >= 30 and median < 0.10 and p90 < 0.30 and abs(total) < 0.08
    assert abs(median - said["median_error"]) < 0.04  # a quarter of the points: near, not equal


@pytest.mark.slow
def test_the_fit_recovers_a_machine_that_obeys_the_formula() -> None:
    a40 = profile("a40")
    truth = Coefficients(floor=3000, compute=0.6, memory=0.7, cached=0.7, cache_share=0, blend=1.7)
    sizes = [(64 << (i % 12), 1024 << (i % 3)) for i in range(120)]
    made = []
    for i, (m, k) in enumerate(sizes):
        flops, moved = 2.0 * m * k * k, 2.0 * (2 * m * k + k * k)
        time = truth.predict(np.array([flops]), np.array([moved]), a40.gpu.peak["fp16"].value,
                             a40.memory.bandwidth.value, a40.gpu.l2.value)[0]  # fmt: skip
        made.append(fit_roofline.MeasuredOperator("a40", "gemm", f"{i}", flops, moved, time))
    done = fit_roofline.fit(made, a40)
    assert done.median_error < 0.01 and done.coefficients.compute == pytest.approx(0.6, rel=0.02)
    assert done.coefficients.floor == pytest.approx(3000, rel=0.1)


def test_the_shipped_rates_are_those_of_the_profiles() -> None:
    for name, reference in roofline.references().items():
        of = profile(name)
        assert reference.peak == of.gpu.peak["fp16"].value and reference.l2 == of.gpu.l2.value
        assert reference.bandwidth == of.memory.bandwidth.value


def test_an_unknown_operator_that_computes_is_bound_by_the_peak() -> None:
    a40 = profile("a40")
    time, basis = roofline.durations(one_op("my_kernel", flops=1e12), a40)
    assert time[0] > 1e12 / a40.gpu.peak["fp16"].value * 1e9 and basis[0] == ESTIMATED


@pytest.mark.oracle
def test_a_resnet_step_on_a_v100_is_within_a_tenth_of_its_recorded_kernels() -> None:
    # github.com/pytorch/kineto, tb_plugin/samples/resnet50_num_workers_0: batch 32, V100, fp32; 6 steps, sums of kernels:
    # convolutions 394.3 ms, batch normalisation 96.2, all 591.5.  The trace has batch 64.
    trace = load_trace(ROOT / "traces" / "resnet50-train.npz")
    time, _ = roofline.durations(trace, profile("v100-sxm2-32gb"))
    second = np.array([trace.phases[p].startswith("step1") for p in trace.phase])

    def per_step(*names: str) -> float:
        chosen = np.array([any(name in trace.op_names[o] for name in names) for o in trace.op])
        return float(time[second & chosen].sum()) / 2e6

    assert per_step("") == pytest.approx(591.5 / 6, rel=0.1)
    assert per_step("convolution") == pytest.approx(394.3 / 6, rel=0.1)
    assert per_step("batch_norm") == pytest.approx(96.2 / 6, rel=0.1)
