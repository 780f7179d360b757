"""The GPUs of the rows: a profile of the catalogue, or the vendor's numbers where it has none."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from gpusim.calibrate.kernel_times.rows import Rows
from gpusim.machine.kernels.numbers import BANDWIDTH, SHARE, Numbers, numbers
from gpusim.machine.profile import load_file

PROFILES = Path(__file__).parents[3] / "hardware_profiles"
SAME = {"gtx-1080ti": "gtx-1080-ti", "v100-sxm2-16gb": "v100-sxm2-32gb", "p100": "p100-sxm2-16gb"}
"""Names in the rows -> profile of the same processor and memory."""

_T, _G, _M = 1e12, 1e9, 2.0**20
_OTHERS = {  # capability, processors, clock, cache, HBM, watts, fp32, bandwidth: the vendor's specifications
    "p4": (6.1, 20, 1.063 * _G, 2 * _M, False, 75, 5.5 * _T, 192 * _G),
    "p100-pcie-16gb": (6.0, 56, 1.303 * _G, 4 * _M, True, 250, 9.3 * _T, 732 * _G),
    "titan-x-pascal": (6.1, 28, 1.531 * _G, 3 * _M, False, 250, 10.97 * _T, 480 * _G),
    "titan-x-maxwell": (5.2, 24, 1.075 * _G, 3 * _M, False, 250, 6.6 * _T, 336.5 * _G),
}


@cache
def nominal(name: str) -> Numbers:
    """The GPU's numbers without any measured rate."""
    name = SAME.get(name, name)
    if name in _OTHERS:
        capability, processors, clock, cached, hbm, power, fp32, bandwidth = _OTHERS[name]
        return Numbers(
            name, capability, processors, clock, cached, hbm, power,
            {"fp32": fp32 * SHARE["fp32"]}, bandwidth * BANDWIDTH, {"fp32": fp32}, bandwidth,
        )  # fmt: skip
    return numbers(load_file(PROFILES / f"{name}.yaml"))


def measured_peak(rows: Rows, gpu: str) -> float | None:
    """flop/s of one large GEMM: the median of the ten nearest to 4096^3, held-out shapes apart; of batches the ten largest."""
    own = rows.take((rows.gpu == gpu) & ~rows.held)
    if not len(own):
        return None
    m, n, k = own.dims["m"], own.dims["n"], own.dims["k"]
    if rows.what == "bmm":
        flops = 2 * own.dims["b"] * m * n * k
        largest = np.argsort(-flops, kind="stable")[:10]
        return float(np.median((flops / own.time)[largest]) * 1e9)
    away = np.abs(np.log2(np.stack([m, n, k]) / 4096)).max(axis=0)
    near = np.argsort(away, kind="stable")[:10]
    time = own.time
    if rows.dtype == "fp8":  # the activations are quantised first, at three quarters of the bandwidth
        time = np.maximum(time - 4e9 * m * k / nominal(gpu).bandwidth, 0.5 * time)
    return float(np.median((2e9 * m * n * k / time)[near]))
