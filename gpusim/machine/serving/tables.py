"""Operators as serving frameworks run them, measured for NVIDIA's aiconfigurator (package `aiconfigurator-core`, Apache-2.0).

Its tables are parquet files `systems/data/SYSTEM/KIND/FRAMEWORK/VERSION/NAME_perf.parquet`, times in ms.  Layouts as of 0.12.
Nothing of the package is imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError

F64 = npt.NDArray[np.float64]

SYSTEMS = {
    "a100-sxm4-80gb": "a100_sxm", "h100-sxm-80gb": "h100_sxm", "h200-sxm": "h200_sxm", "l40s": "l40s", "b200-sxm": "b200_sxm",
    "b300-sxm": "b300_sxm", "gb200": "gb200",
}  # fmt: skip
"""Machine -> the package's name of it."""
FRAMEWORKS = ("vllm", "sglang", "trtllm")
SHORTEST = 1.2e3
"""ns: no kernel launched from a graph takes less."""
INSTALL = "pip install 'gpusim[kernels]'"
_OF_BF16 = 2.0  # bytes: messages are counted in elements (collector/network/collect_all_reduce.py)
_TYPES = {"bf16": "bfloat16", "fp8": "fp8", "fp8_block": "fp8_block"}


@dataclass(frozen=True, eq=False)
class MeasuredOperators:
    """(N,) measured kernels of one class: dimensions by name, and ns."""

    dims: Mapping[str, F64]
    ns: F64
    source: str

    def where(self, chosen: npt.NDArray[np.bool_]) -> MeasuredOperators:
        """Some of them."""
        return MeasuredOperators({name: values[chosen] for name, values in self.dims.items()}, self.ns[chosen], self.source)


def installed() -> Path | None:
    """The folder of the package's tables; None where it is not installed."""
    found = find_spec("aiconfigurator_core")
    return None if found is None or found.origin is None else Path(found.origin).parent / "systems" / "data"


@dataclass(frozen=True)
class ServingTables:
    """The tables of one machine and framework, of the versions nearest to the one that was asked for.

    folder   `systems/data`
    version  "" for the newest
    """

    folder: Path
    machine: str
    framework: str
    version: str = ""

    def gemm(self, dtype: str) -> MeasuredOperators | None:
        """Products by m, n and k; None where there is no such table, here and below."""
        return _read(self._file("gemm", "gemm"), ("m", "n", "k"), (("gemm_dtype", _TYPES[dtype]),))

    def decode(self, cache: str) -> MeasuredOperators | None:
        """One query against `kv` keys, by b, kv, heads, kv_heads and dim."""
        columns = ("batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim")
        found = _read(self._file("attention", "generation_attention"), columns, _of_cache(cache))
        if found is None:
            return None
        d = found.dims
        return MeasuredOperators({**_attention(d), "kv": d["isl"] + d["step"]}, found.ns, found.source)

    def prefill(self, cache: str) -> MeasuredOperators | None:
        """Prompts of `q` tokens that see themselves, by b, q, heads, kv_heads and dim."""
        columns = ("batch_size", "isl", "num_heads", "num_key_value_heads", "head_dim")
        found = _read(self._file("attention", "context_attention"), columns, _of_cache(cache))
        if found is None:
            return None
        return MeasuredOperators({**_attention(found.dims), "q": found.dims["isl"]}, found.ns, found.source)

    def moe(self, dtype: str, routing: str) -> MeasuredOperators | None:
        """Experts on one GPU, by tokens, hidden, inner, topk, experts and ways (GPUs that divide each expert)."""
        columns = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size")
        chosen = (("moe_dtype", _TYPES[dtype]), ("distribution", routing), ("moe_ep_size", 1))
        found = _read(self._file("moe", "moe"), columns, chosen)
        if found is None:
            return None
        d = found.dims
        dims = {
            "tokens": d["num_tokens"], "hidden": d["hidden_size"], "inner": d["inter_size"], "topk": d["topk"],
            "experts": d["num_experts"], "ways": d["moe_tp_size"],
        }  # fmt: skip
        return MeasuredOperators(dims, found.ns, found.source)

    def all_reduce(self) -> MeasuredOperators | None:
        """All-reduces in CUDA graphs, by ranks and bytes; of several versions the median, whatever was asked for.

        A collective waits for what else its machine does: versions with the same kernels are up to twice apart.
        """
        found = self.all_reduces()
        return median_of(found) if found else None

    def all_reduces(self) -> list[MeasuredOperators]:
        """Those of each version, in order."""
        found = []
        for version in self.versions("comm", "custom_allreduce"):
            path = self._at("comm", version, "custom_allreduce")
            rows = _read(path, ("num_gpus", "message_size", "backend"), ())
            if rows is not None:
                d = rows.dims
                eager = np.char.endswith(d["backend"].astype(str), "eager") if "backend" in d else np.zeros(len(rows.ns), bool)
                dims = {"ranks": d["num_gpus"], "bytes": _OF_BF16 * d["message_size"]}
                found.append(MeasuredOperators(dims, rows.ns, f"{SYSTEMS[self.machine]}/comm/{self.framework}").where(~eager))
        return found

    def versions(self, kind: str, name: str) -> list[str]:
        """Of which a table is there, in order."""
        base = self.folder / SYSTEMS.get(self.machine, "none") / kind / self.framework
        return sorted((path.parent.name for path in base.glob(f"*/{name}_perf.parquet")), key=order)

    def _file(self, kind: str, name: str) -> Path | None:
        found = self.versions(kind, name)
        if not found:
            return None
        below = [v for v in found if not self.version or order(v) <= order(self.version)]
        chosen = below[-1] if below else found[0]
        return self._at(kind, chosen, name)

    def _at(self, kind: str, version: str, name: str) -> Path:
        return self.folder / SYSTEMS[self.machine] / kind / self.framework / version / f"{name}_perf.parquet"


def median_of(tables: list[MeasuredOperators]) -> MeasuredOperators:
    """The places that any of the tables has, each with the median of their times."""
    names = tuple(tables[0].dims)
    places = np.concatenate([np.stack([of.dims[name] for name in names], axis=1) for of in tables])
    ns = np.concatenate([of.ns for of in tables])
    found, which = np.unique(places, axis=0, return_inverse=True)
    medians = np.array([np.median(ns[which.reshape(-1) == i]) for i in range(len(found))])
    return MeasuredOperators({name: found[:, i] for i, name in enumerate(names)}, medians, tables[0].source)


def order(version: str) -> tuple[int, ...]:
    """A version as numbers: 0.5.6.post2, 1.3.0rc20."""
    digits = "".join(c if c.isdigit() else " " for c in version).split()
    return tuple(int(d) for d in digits)


def _of_cache(cache: str) -> tuple[tuple[str, Any], ...]:
    return (("attn_dtype", "bfloat16"), ("kv_cache_dtype", _TYPES[cache]), ("window_size", 0))


def _attention(d: Mapping[str, F64]) -> dict[str, F64]:
    return {"b": d["batch_size"], "heads": d["num_heads"], "kv_heads": d["num_key_value_heads"], "dim": d["head_dim"]}


@cache
def _read(path: Path | None, columns: tuple[str, ...], chosen: tuple[tuple[str, Any], ...]) -> MeasuredOperators | None:
    """Columns of the rows with these values; a value whose column is not there chooses all."""
    if path is None:
        return None
    try:
        from pyarrow import parquet
    except ImportError:
        raise GpusimError("tables of measured operators need pyarrow", hint=INSTALL) from None
    names = set(parquet.read_schema(path).names)
    conditions = [(column, "=", value) for column, value in chosen if column in names]
    wanted = [c for c in columns if c in names]
    table = parquet.read_table(path, columns=[*wanted, "latency"], filters=conditions or None, partitioning=None)
    ns = table.column("latency").to_numpy().astype(np.float64) * 1e6
    dims = {}
    for name in wanted:
        values = table.column(name).to_numpy(zero_copy_only=False)
        dims[name] = values if values.dtype == object else values.astype(np.float64)
    kept = ns >= SHORTEST
    found = MeasuredOperators(dims, ns, "/".join(path.parts[-5:-1])).where(kept)
    return found if len(found.ns) else None
