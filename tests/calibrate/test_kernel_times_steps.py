"""Whole steps: programs as they are kept, their times by hand, and what no fit may see."""

import gzip
import json
from dataclasses import replace

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.calibrate.kernel_times.networks import NetworkProgram, program_of, timm_programs
from gpusim.calibrate.kernel_times.step_fit import ReadySteps, StepModel, as_shipped, base, fit, numbers_of, rates_of, refit
from gpusim.calibrate.kernel_times.step_score import MOST, refit_classes, roofline, shipped, thinned, two
from gpusim.calibrate.kernel_times.steps import PublishedStep, load, pack
from gpusim.calibrate.kernel_times.write import write_classes
from gpusim.machine.catalogue import load as load_profile
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.store import DATA, of_steps

SIZES = range(1, 9)


def _lines(n):
    """`n` products, and an addition of 3 * `n` MB that runs four times."""
    product = [
        "aten.mm.default", "float16", f"{1024 * n}x4096 4096x4096 -> {1024 * n}x4096",
        2.0 * 1024 * n * 4096 * 4096, 8_000_000 * n, 8_000_000 * n, 1,
    ]  # fmt: skip
    return [product, ["aten.add.Tensor", "float16", "", 0.0, 200_000_000 * n, 100_000_000 * n, 4]]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("programs")
    found = {f"net{n}": _lines(n) for n in SIZES} | {"missing": "RuntimeError: Unknown model"}
    (folder / "all.json.gz").write_bytes(gzip.compress(json.dumps(found).encode()))
    count, failed = pack(folder, folder / "programs.npz")
    assert (count, failed) == (8, {"missing": "RuntimeError: Unknown model"})
    return load(folder / "programs.npz")


def _steps(times, held=False):
    return [
        PublishedStep("timm", "rtx-3090", f"net{n}", "infer", "nchw 113", f"net{n}", t, held)
        for n, t in zip(SIZES, times, strict=True)
    ]


def _ready(programs, steps):
    return ReadySteps(programs, steps, {"rtx-3090": numbers_of("rtx-3090")})


def test_programs_are_kept_whole(programs):
    assert programs.names == [f"net{n}" for n in SIZES]
    assert len(programs.operators) == 16
    program, kernel, count = programs.entries()
    moved = np.bincount(program, count * programs.work["moved"][kernel], 8)
    np.testing.assert_allclose(moved, [16e6 * n + 4 * 300e6 * n for n in SIZES])


def test_a_step_is_the_sum_of_its_kernels(programs):
    ready = _ready(programs, _steps([1.0] * 8))
    plain = base(ready.keys)
    free = replace(plain.classes["pointwise", "half"], floor=0.0, memory=0.5)
    model = StepModel({**plain.classes, ("pointwise", "half"): free})
    each = ready.by_class(model)
    bandwidth = numbers_of("rtx-3090").bandwidth
    np.testing.assert_allclose(each["pointwise", "half"], [4 * 300e6 * n / (0.5 * bandwidth) * 1e9 for n in SIZES], rtol=1e-6)
    np.testing.assert_allclose(ready.predict(model), sum(each.values()))
    np.testing.assert_allclose(ready.predict(model, host=1e12), 5e12)  # five operators, each waits for the host


def test_a_fit_finds_the_class_that_is_slow(programs):
    ready = _ready(programs, _steps([1.0] * 8))
    plain = base(ready.keys)
    slow = StepModel({**plain.classes, ("pointwise", "half"): replace(plain.classes["pointwise", "half"], memory=0.6)})
    measured = ready.predict(slow)
    seen = _ready(programs, _steps(measured.tolist()))
    before = np.abs(seen.predict(plain) / measured - 1).max()
    after = np.abs(seen.predict(fit(seen, seen.keys)) / measured - 1).max()
    assert before > 0.15
    assert after < 0.05


def test_one_class_is_fitted_anew_and_nothing_else(programs):
    ready = _ready(programs, _steps([1.0] * 8))
    key, shipped_now = ("pointwise", "half"), as_shipped(ready.keys)
    slow = StepModel({**shipped_now.classes, key: replace(shipped_now.classes[key], memory=0.6)}, shipped_now.rates)
    seen = _ready(programs, _steps(ready.predict(slow).tolist()))
    found = refit(seen, shipped_now, [key])
    assert found.classes[key].memory == pytest.approx(0.6, rel=0.05)
    assert found.rates == shipped_now.rates
    assert {k: c for k, c in found.classes.items() if k != key} == {k: c for k, c in shipped_now.classes.items() if k != key}


def test_classes_that_are_fitted_anew_replace_their_lines(programs, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    text = (DATA / "steps.yaml").read_text()
    (folder / "steps.yaml").write_text(text)
    model, keys, steps = refit_classes(programs, _steps([1e7 * n for n in SIZES]), ["pointwise"])
    assert keys == [("pointwise", "half")] and len(steps) == 8
    for _ in range(2):  # the second time writes the same
        told = write_classes(model, keys, steps, folder)
        now = (folder / "steps.yaml").read_text()
        changed = [line for line in now.splitlines() if line not in text.splitlines()]
        assert [line.partition(",")[0] for line in changed] == [f'refitted: "{told}"'.partition(",")[0], "  - {what: pointwise"]
        assert len(now.splitlines()) == len(text.splitlines())
    with pytest.raises(GpusimError, match="no class that whole steps"):
        refit_classes(programs, steps, ["pointless"])


def test_two_numbers_of_a_gpu_are_found(programs):
    ready = _ready(programs, _steps([1.0] * 8))
    plain = base(ready.keys)
    measured = ready.predict(StepModel(plain.classes, {"rtx-3090": (1.2, 0.8)}))
    seen = _ready(programs, _steps(measured.tolist()))
    found = rates_of(seen, plain, "rtx-3090").rates["rtx-3090"]
    assert found == pytest.approx((1.2, 0.8), rel=0.02)


def test_runs_take_what_the_fit_has_for_a_step(programs):
    gpu = measured_gpu(load_profile("rtx-3090")).numbers
    ready = ReadySteps(programs, _steps([1.0] * 8), {"rtx-3090": gpu})
    model = StepModel({**base(ready.keys).classes, **{key: c for key, c in of_steps().items() if key in ready.keys}})
    took, low, high = shipped(programs, ready)
    np.testing.assert_allclose(took, ready.predict(model), rtol=1e-4)
    assert (low < 0).all() and (high > 0).all()


def test_held_out_steps_are_refused(programs):
    held = _ready(programs, _steps([1e6] * 8, held=True))
    with pytest.raises(ValueError, match="never fitted"):
        fit(held, held.keys)
    with pytest.raises(ValueError, match="never fitted"):
        rates_of(held, base(held.keys), "rtx-3090")


def test_baselines_by_hand(programs):
    ready = _ready(programs, _steps([1e6 * n for n in SIZES]))
    gpu = numbers_of("rtx-3090")
    products = [max(2.0 * 1024 * n * 4096 * 4096 / gpu.nominal_peak["fp16"], 16e6 * n / 936e9) for n in SIZES]
    expected = 1e9 * (np.array(products) + 4 * 300e6 * np.array(SIZES) / 936e9)
    np.testing.assert_allclose(roofline(programs, ready), expected)
    linear = two(programs, ready, np.array(["infer"] * 8), np.zeros(8, bool))
    np.testing.assert_allclose(linear, ready.measured, rtol=0.02)  # time grows with products: two features say it all
    assert np.isnan(two(programs, ready, np.array(["infer"] * 8), np.arange(8) > 3)).all()  # four seen steps are too few


def test_thinning_keeps_networks_whole():
    steps = [
        PublishedStep("timm", "rtx-3090", f"net{n}", "infer", config, "", 1.0, False)
        for n in range(MOST)
        for config in ("nchw 113", "nhwc 113")
    ]
    kept = thinned(steps)
    assert len(kept) == MOST
    assert len({s.network for s in kept}) == MOST // 2


def test_rows_name_their_programs():
    row = {"network": "vit_tiny", "mode": "infer", "layout": "nchw", "torch": "113", "batch": "1024.0", "img": "224"}
    assert program_of(row) == NetworkProgram("vit_tiny", "infer", "nchw", False, 1024, 224)
    newer = {**row, "torch": "240"}
    assert program_of(newer).name == "vit_tiny/infer/nchw/fused/1024/224"
    others = [{**row, "network": name} for name in ("vit_small", "resnet18")]
    order = list(timm_programs([row, newer, newer, *others]))
    assert {order[0], order[1]} & {"resnet18"}  # one network of each name family before the second of any
    assert len(timm_programs([row, newer, newer])["vit_tiny"]) == 2
