"""Measured kernels are read as they were measured, and what is kept back is refused."""

import gzip
from pathlib import Path

import numpy as np
import pytest

from gpusim.base.errors import GpusimError
from gpusim.calibrate.kernel_times.fit import fit, measured_numbers
from gpusim.calibrate.kernel_times.gpus import nominal
from gpusim.calibrate.kernel_times.held_out import shape_held_out
from gpusim.calibrate.kernel_times.least_squares import minimise
from gpusim.calibrate.kernel_times.rows import Rows, gather
from gpusim.calibrate.kernel_times.score import errors, kin
from gpusim.machine.kernels.physics import Rates, predict
from gpusim.machine.kernels.shapes import work
from gpusim.machine.kernels.store import fits, packed, rates, table

pytestmark = pytest.mark.fast

HEAD = "gpu,op,dtype,m,n,k,time_us_sglang-0.5.14,time_us_trtllm-1.3.0rc20,time_us_vllm-0.24.0"


def folder(path: Path, name: str, *lines: str) -> Path:
    with gzip.open(path / f"{name}.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    return path


def test_a_gemm_table_gives_one_column_and_no_impossible_row(tmp_path: Path) -> None:
    rows = ("l40s,gemm,bf16,8,64,128,1.5,1.6,2.5", "l40s,gemm,bf16,9,64,128,9,9,", "l40s,gemm,bf16,7,64,128,3,3,0.45")
    (read,) = gather(folder(tmp_path, "aic_gemm_l40s_bf16", HEAD, *rows))
    assert (read.what, read.dtype, read.source) == ("gemm", "bf16", "aiconfigurator")
    assert read.time.tolist() == [2500.0]
    assert {name: values.tolist() for name, values in read.dims.items()} == {"m": [8.0], "n": [64.0], "k": [128.0]}
    assert read.held.tolist() == [shape_held_out("gemm", (64, 128))]


def test_rows_of_a_gpu_that_is_kept_back_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GpusimError, match="'h200-sxm' are kept back"):
        gather(folder(tmp_path, "aic_gemm_h200-sxm_bf16", HEAD, "h200-sxm,gemm,bf16,8,64,128,3,3,3"))


def test_short_rows_of_a_source_that_times_the_launch_are_left_out(tmp_path: Path) -> None:
    head = "gpu,op,dtype,B,H,time_us,set"
    lines = [head, "t4,add,fp32,223,114,27.2,train", "t4,add,fp32,9000,4000,1800,train"]
    (read,) = gather(folder(tmp_path, "neusight_vec_fp32", *lines))
    assert (read.what, read.time.tolist()) == ("elementwise add", [1.8e6])


def test_deepbench_names_m_what_the_model_names_n(tmp_path: Path) -> None:
    head = "source,gpu,op,dtype,mode,params,what,time_us,algo"
    line = "deepbench,v100-sxm2-16gb,Dense Matrix Multiplication,fp32,train,M=512;N=24000;K=2816,Time (msec),5000,"
    (read,) = gather(folder(tmp_path, "deepbench", head, line))
    assert [read.dims[name][0] for name in "mnk"] == [24000, 512, 2816]


def made_up(gpu: str = "v100-pcie-32gb", count: int = 1500) -> tuple[Rows, float]:
    rng = np.random.default_rng(0)
    dims = {name: np.exp2(rng.uniform(8, 13, count)).round() for name in "mnk"}
    numbers, wanted = nominal(gpu), 0.8
    flops = 2 * dims["m"] * dims["n"] * dims["k"]
    time = 5000 * (2e9 / numbers.clock) ** 0.5 + flops / (numbers.peak["fp32"] * wanted) * 1e9
    held = np.zeros(count, bool)
    return Rows("gemm", "fp32", "deepbench", ("deepbench.csv.gz",), np.full(count, gpu), dims, time, held), wanted


def test_the_fit_finds_what_made_the_rows() -> None:
    rows, _ = made_up()
    gpus = {"v100-pcie-32gb": nominal("v100-pcie-32gb")}
    done = fit([rows], gpus)
    assert errors(done.predict(rows, gpus), rows.time)[1] < 0.06
    assert errors(done.predict(rows, gpus, {"v100-pcie-32gb": "v100-pcie-32gb"}), rows.time)[1] < 0.03


def test_a_peak_is_that_of_large_gemms() -> None:
    rows, share = made_up()
    found = measured_numbers([rows])["v100-pcie-32gb"]
    assert found.peak["fp32"] == pytest.approx(share * nominal("v100-pcie-32gb").peak["fp32"], rel=0.05)
    assert "fp32" in found.measured and "bandwidth" not in found.measured


def test_kin_has_the_same_capability_and_kind_of_memory() -> None:
    gpus = {name: nominal(name) for name in ("a100-sxm4-80gb", "a100-pcie-40gb", "l40s", "h100-sxm-80gb")}
    assert kin("a100-sxm4-80gb", ("a100-pcie-40gb", "l40s", "h100-sxm-80gb"), gpus) == "a100-pcie-40gb"
    assert kin("l40s", ("a100-pcie-40gb", "h100-sxm-80gb"), gpus) == ""


def test_least_squares_are_robust_and_stay_in_bounds() -> None:
    x = np.arange(50.0)
    y = 2 * x + 1
    y[7] = 1000
    found, _ = minimise(lambda p: p[0] * x + p[1] - y, np.zeros(2), np.full(2, -9.0), np.full(2, 9.0), 200)
    assert found == pytest.approx([2, 1], abs=1e-2)
    bound, _ = minimise(lambda p: p[0] * x - y, np.zeros(1), np.zeros(1), np.ones(1))
    assert bound.tolist() == [1.0]


def test_what_is_shipped_is_within_its_size_and_complete() -> None:
    assert {"bf16", "bandwidth"} <= set(rates()["h100-sxm-80gb"])
    for (what, dtype), entry in fits().items():
        assert list(entry.intervals) == ["measured", "family", "class", "default"]
        assert all(low < high for low, high in entry.intervals.values())
        for gpu in entry.gpus:
            assert table(what, dtype, gpu).levels, (what, dtype, gpu)


def test_a_shipped_table_gives_a_large_gemm_its_measured_rate() -> None:
    entry = fits()["gemm", "bf16"]
    dims = {"m": np.array([4096.0]), "n": np.array([8192.0]), "k": np.array([8192.0])}
    gpu = nominal("h100-sxm-80gb")
    known = {**gpu.peak, **{name: rate for name, rate in rates()[gpu.name].items() if name != "bandwidth"}}
    measured = Rates.of(type(gpu)(**{**vars(gpu), "peak": known, "bandwidth": rates()[gpu.name]["bandwidth"]}), "bf16")
    point = np.stack([dims[name] * 1024 for name in entry.axes], axis=1)
    time = predict(entry.coefficients, work("gemm", dims, 2, 6), measured) * np.exp(table("gemm", "bf16", gpu.name).at(point))
    assert 2 * 4096 * 8192 * 8192 / time[0] / 1e3 == pytest.approx(788, rel=0.05)  # TFLOP/s in the table of vLLM 0.24


def test_packing_loses_less_than_its_step() -> None:
    rows, _ = made_up()
    done = fit([rows], {"v100-pcie-32gb": nominal("v100-pcie-32gb")})
    lattice = done.tables["v100-pcie-32gb"]
    arrays = packed("x", lattice)
    assert sum(a.nbytes for a in arrays.values()) < sum(level.keys.nbytes + level.values.nbytes for level in lattice.levels)
    assert arrays["x/0/values"].dtype == np.int8
