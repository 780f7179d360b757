"""Are another project's kernel times read as they were measured?"""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.readers import aiconfigurator
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.user_table import read

pytestmark = pytest.mark.fast

GEMM = [
    {"gemm_dtype": "bfloat16", "m": 64, "n": 128, "k": 256, "latency": 0.01},
    {"gemm_dtype": "fp8", "m": 64, "n": 128, "k": 256, "latency": 0.005},
    {"gemm_dtype": "int8_wo", "m": 64, "n": 128, "k": 256, "latency": 0.005},
    {"gemm_dtype": "bfloat16", "m": 1, "n": 1, "k": 1, "latency": 0.0004},
]
HEADS = {"num_heads": 8, "num_key_value_heads": 2, "head_dim": 64, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}
PREFILL = [{**HEADS, "batch_size": 3, "isl": 512, "step": 0, "window_size": 0, "latency": 0.2}]
DECODE = [
    {**HEADS, "batch_size": 3, "isl": 1, "step": 511, "window_size": 0, "latency": 0.02},
    {**HEADS, "batch_size": 3, "isl": 1, "step": 511, "window_size": 128, "latency": 0.01},
]


def test_the_rows_of_a_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"gemm/gemm_perf": GEMM, "attention/context_attention_perf": PREFILL}
    tables["attention/generation_attention_perf"] = DECODE
    (tmp_path / "h200_sxm").mkdir()
    monkeypatch.setattr(aiconfigurator, "_rows", lambda folder, table: tables[table])
    text = aiconfigurator.table("h200-sxm", tmp_path)
    (tmp_path / "h200.csv").write_text(text)
    q, kv, one = "3x8x512x64", "3x2x512x64", "3x8x1x64"
    assert read(tmp_path / "h200.csv", load("h200-sxm")).times == {
        ("mm", "bfloat16", "64x256 256x128 -> 64x128"): (10_000,),
        ("_scaled_mm", "float8_e4m3fn", "64x256 256x128 -> 64x128"): (5_000,),
        ("_scaled_dot_product_flash_attention", "bfloat16", f"{q} {kv} {kv} -> {q} | is_causal=1"): (200_000,),
        ("_scaled_dot_product_flash_attention", "bfloat16", f"{one} {kv} {kv} -> {one} | is_causal=0"): (20_000,),
    }


def test_the_newest_version_is_read(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    for version, ms in (("0.9.0", 1.0), ("0.14.0", 2.0)):
        folder = tmp_path / "l40s" / "gemm" / "vllm" / version
        folder.mkdir(parents=True)
        pandas.DataFrame([{**GEMM[0], "latency": ms}]).to_parquet(folder / "gemm_perf.parquet")
    assert aiconfigurator.table("l40s", tmp_path).splitlines()[1:] == [
        "l40s,aten.mm.default,bfloat16,64x256 256x128 -> 64x128,2000"
    ]


def test_a_machine_without_a_table_and_an_absent_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MeasurementError, match="no kernel times of 't4'"):
        aiconfigurator.table("t4", tmp_path)
    monkeypatch.setattr(aiconfigurator, "installed", lambda: None)
    with pytest.raises(MeasurementError, match="needs the package aiconfigurator-core"):
        aiconfigurator.table("h200-sxm")
