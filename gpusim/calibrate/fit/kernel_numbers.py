"""What a fit says to the model of kernel times: achieved peaks of matrix products, and what moves with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gpusim.base.yaml import find
from gpusim.calibrate.fit.estimate import Found, Left, middle
from gpusim.calibrate.rows import Row
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.profile import Profile
from gpusim.trace.files import load_trace

PROGRAMS = ("gpt2-small-train", "resnet50-train", "llama-1b-decode")
"""Shipped programs by which a fit shows what its numbers do."""
_LARGE = 4096  # sides of a product from which it is large
_MOVED = 1e-4  # relative; less is rounding


def products(rows: Sequence[Row], base: Profile) -> Iterator[Found]:
    """The rate of the largest product by a library, for each precision that the GPU has."""
    made = [r for r in rows if r.metric == "gemm_gflops" and r.params.get("by") != "own"]
    for name, peak in base.gpu.peak.items():
        path = f"gpu.achieved.{name}"
        mine = [r for r in made if r.params.get("dtype") == name and _side(r) >= _LARGE]
        largest = [r for r in mine if _side(r) == max(map(_side, mine))]
        rates = [r.value * 1e9 for r in largest]
        if not largest:
            yield Left(path, f"no product of sides from {_LARGE:,} on by a library")
        elif float(np.median(rates)) > peak.value:
            fault = f"the rows say {np.median(rates) / 1e12:.4g} TFLOP/s, above the vendor's {peak.value / 1e12:.4g} TFLOP/s"
            yield Left(path, fault)
        else:
            yield middle(path, largest, rates, "largest square product by a library")
    for name in sorted({r.params.get("dtype", "") for r in made} - set(base.gpu.peak)):
        yield Left(f"gpu.achieved.{name}", f"the GPU has no products in '{name}'")


def _side(row: Row) -> int:
    return int(row.params.get("n", 0))


def moved(base: Profile, fitted: Profile) -> list[dict[str, Any]]:
    """Rows of a table: numbers of the model of kernel times that the fit has moved."""
    before, after = measured_gpu(base).numbers, measured_gpu(fitted).numbers
    pairs = [(f"products in {name}", before.peak[name], after.peak[name], 1e12, "TFLOP/s") for name in before.peak]
    pairs.append(("streaming", before.bandwidth, after.bandwidth, 1e9, "GB/s"))
    return [
        {
            "number": name, "catalogue": f"{old / unit:.4g} {word}", "fitted": f"{new / unit:.4g} {word}",
            "change": f"{new / old - 1:+.1%}",
        }
        for name, old, new, unit, word in pairs if abs(new / old - 1) > _MOVED
    ]  # fmt: skip


def programs(base: Profile, fitted: Profile) -> list[dict[str, Any]]:
    """Rows of a table: the modelled kernel time of a step of each of PROGRAMS, and the class that moves most of it."""
    rows = []
    for name in PROGRAMS:
        trace = load_trace(find.find("trace", name))
        old, new = (modelled_durations(trace, profile) for profile in (base, fitted))
        apart = np.bincount(old.what, new.ns - old.ns, len(old.classes))
        most = int(np.argmax(np.abs(apart)))
        before, after = float(old.ns.sum()), float(new.ns.sum())
        rows.append({
            "program": name, "catalogue": f"{before / 1e6:.4g} ms", "fitted": f"{after / 1e6:.4g} ms",
            "change": f"{after / before - 1:+.1%}", "most of it": old.classes[most] if apart[most] else "",
        })  # fmt: skip
    return rows
