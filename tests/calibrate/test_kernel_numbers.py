"""Does a fit give the model of kernel times what large products say, and tell what it does to programs?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_calibrate_fit import BASE, row
from typer.testing import CliRunner

from gpusim.calibrate import rows as files
from gpusim.calibrate.compare.score import compare
from gpusim.calibrate.fit.estimate import Left
from gpusim.calibrate.fit.fitting import fit
from gpusim.calibrate.fit.kernel_numbers import PROGRAMS, moved, programs
from gpusim.cli.app import app
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.profile import load_file


def product(dtype: str, side: int, tflops: float, by: str = "cublas") -> files.Row:
    return row("gemm_gflops", tflops * 1e3, None, f"dtype={dtype};by={by};n={side}")


def test_the_largest_product_of_a_library_is_the_achieved_peak(tmp_path: Path) -> None:
    """250 of 312 Tflop/s; the smaller one, the own kernel and types that were not measured change nothing."""
    fitted = fit([product("bf16", 8192, 250), product("bf16", 4096, 230), product("fp32", 4096, 12, by="own")], BASE)
    assert fitted.profile.gpu.achieved is not None and set(fitted.profile.gpu.achieved) == {"bf16"}
    before, after = measured_gpu(BASE).numbers, measured_gpu(fitted.profile).numbers
    assert after.peak == {**before.peak, "bf16": 250e12} and "bf16" in after.measured
    path = tmp_path / "mine.yaml"
    path.write_text(fitted.text, encoding="utf-8")
    assert load_file(path).gpu.achieved == fitted.profile.gpu.achieved


@pytest.mark.parametrize(
    ("one", "path", "why"),
    [
        (product("bf16", 8192, 313), "gpu.achieved.bf16", "the rows say 313 TFLOP/s, above the vendor's 312 TFLOP/s"),
        (product("bf16", 2048, 250), "gpu.achieved.bf16", "no product of sides from 4,096 on by a library"),
        (product("fp8", 8192, 500), "gpu.achieved.fp8", "the GPU has no products in 'fp8'"),
    ],
)
def test_products_that_say_nothing_are_left_with_the_reason(one: files.Row, path: str, why: str) -> None:
    fitted = fit([one], BASE)
    assert fitted.profile.gpu.achieved is None
    assert Left(path, why) in fitted.left


def test_what_moved_and_what_programs_take() -> None:
    """Streaming at half its rate: no kernel is faster, programs take longer by less than twice; products stand."""
    slow = fit([row("hbm_copy_bw", BASE.memory.copy.value / 2e9, 1 << 31)], BASE).profile
    (streaming,) = moved(BASE, slow)
    assert (streaming["number"], streaming["change"]) == ("streaming", "-50.0%")
    found = programs(BASE, slow)
    assert [one["program"] for one in found] == list(PROGRAMS)
    assert all(0 < float(one["change"].rstrip("%")) < 100 for one in found)
    assert moved(BASE, BASE) == [] and {one["change"] for one in programs(BASE, BASE)} == {"+0.0%"}


def test_a_product_of_the_fit_is_compared_with_the_model() -> None:
    """The model's kernel reaches the peak that it is told, but for its fill and what of its class is faster."""
    said = [product("bf16", 8192, 200)] * 20
    series = compare(said, fit(said, BASE).profile).series[0]
    assert series.uses == ("gpu.achieved.bf16", "memory.copy") and series.median < 0.25


@pytest.mark.slow
def test_the_verb_says_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    files.write(path, [product("bf16", 8192, 250)])
    words = ["calibrate", "fit", str(path), "--all", "--base", "a100-sxm4-80gb"]
    found = CliRunner().invoke(app, [*words, "--json"])
    said = json.loads(found.stdout)
    assert [one["number"] for one in said["kernel_times"]] == ["products in bf16"]
    assert [one["program"] for one in said["programs"]] == list(PROGRAMS)
    shown = CliRunner().invoke(app, words).stdout
    assert "250 TFLOP/s" in shown and "gpt2-small-train" in shown
    files.write(path, [row("cudamalloc_us", 100.0, 1 << 20)])
    assert "Kernel times take none of these" in CliRunner().invoke(app, words).stdout
