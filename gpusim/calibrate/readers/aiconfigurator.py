"""Kernel times measured for NVIDIA's aiconfigurator, from the package `aiconfigurator-core` (Apache-2.0), as a user's table.

Its tables are parquet files in `systems/data/SYSTEM/KIND/FRAMEWORK/VERSION`, times in ms.  Of its serving frameworks vLLM is
taken, which calls PyTorch's own products; of several versions the newest.  Layouts as of version 0.12.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

from gpusim.base.errors import MeasurementError
from gpusim.machine.kernels.user_table import COLUMNS
from gpusim.machine.serving.tables import INSTALL, SYSTEMS, installed

_FRAMEWORK = "vllm"
_TYPES = {"bfloat16": "bfloat16", "fp8": "float8_e4m3fn"}
_SHORTEST = 1.2e-3  # ms: no kernel launched from a graph takes less


def table(machine: str, folder: Path | None = None) -> str:
    """The text of a CSV file with the package's times of a machine; `folder`: its `systems/data` when not that of the package.

    Raises MeasurementError when the package is absent or has no such machine.
    """
    system = SYSTEMS.get(machine)
    folder = folder or (_folder() if system else Path())
    if system is None or not (folder / system).is_dir():
        known = ", ".join(sorted(SYSTEMS))
        raise MeasurementError(f"aiconfigurator-core has no kernel times of '{machine}'", hint=f"it has {known}")
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for operator, dtype, shape, ms in (*_gemm(_rows(folder / system, "gemm/gemm_perf")), *_attention(folder / system)):
        if ms >= _SHORTEST:
            writer.writerow((machine, operator, dtype, shape, f"{ms * 1e3:.4g}"))
    return out.getvalue()


def _folder() -> Path:
    found = installed()
    if found is None:
        raise MeasurementError("needs the package aiconfigurator-core", hint=INSTALL)
    return found


def _rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of the newest version of a table; none where the machine lacks it."""
    import pandas

    kind, name = table.split("/")
    found = sorted((folder / kind / _FRAMEWORK).glob(f"*/{name}.parquet"), key=lambda path: _version(path.parent.name))
    rows: list[dict[str, Any]] = pandas.read_parquet(found[-1]).to_dict("records") if found else []
    return rows


def _version(text: str) -> tuple[int, ...]:
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in text.split("."))


def _gemm(rows: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, str, float]]:
    for row in rows:
        dtype = _TYPES.get(row["gemm_dtype"])
        if dtype:
            m, n, k = row["m"], row["n"], row["k"]
            operator = "aten.mm.default" if dtype == "bfloat16" else "aten._scaled_mm.default"
            yield operator, dtype, f"{m}x{k} {k}x{n} -> {m}x{n}", row["latency"]


def _attention(folder: Path) -> Iterator[tuple[str, str, str, float]]:
    """Of bfloat16 over all keys: prefill of prompts, and one new token for each."""
    for name in ("context_attention_perf", "generation_attention_perf"):
        for row in _rows(folder, f"attention/{name}"):
            if row["attn_dtype"] != "bfloat16" or row["kv_cache_dtype"] != "bfloat16" or row["window_size"]:
                continue
            prefill = name.startswith("context")
            queries, keys = (row["isl"], row["isl"]) if prefill else (1, row["step"] + 1)
            q = f"{row['batch_size']}x{row['num_heads']}x{queries}x{row['head_dim']}"
            kv = f"{row['batch_size']}x{row['num_key_value_heads'] or row['num_heads']}x{keys}x{row['head_dim']}"
            shape = f"{q} {kv} {kv} -> {q} | is_causal={int(prefill)}"
            yield "aten._scaled_dot_product_flash_attention.default", "bfloat16", shape, row["latency"]
