"""Reproduces `data/roofline.yaml` from measured operator times (a developer's tool; the product only reads its result).

    python -m gpusim.calibrate.fit_roofline FOLDER

FOLDER holds the `mlp.csv` files of microsoft/vidur, `data/profiling/compute/GPU/MODEL/mlp.csv`, as GPU_MODEL_mlp.csv or
.csv.gz.  Each line times the layers of one decoder block in fp16 for a number of tokens and of tensor parallel workers,
in ms with a resolution of 1 us; flops and bytes follow from the layers' shapes.  One fifth of the points, chosen by a
hash of what they are, is held out and only used for the errors.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.profile import Profile, load_file
from gpusim.machine.roofline import DATA, Coefficients

F64 = npt.NDArray[np.float64]

GPUS = {"a100": "a100-sxm4-80gb", "h100": "h100-sxm-80gb", "a40": "a40"}  # as in the file names -> profile
_START = Coefficients(floor=2500.0, compute=0.7, memory=0.6, cached=0.5, cache_share=0.8, blend=0.5)
KINDS = ("gemm", "norm", "add", "act", "rope", "embedding")
_HALF = 2  # bytes of an fp16 element
_HEADER = """\
# Efficiencies of the roofline in gpusim/machine/roofline.py, made by `python -m gpusim.calibrate.fit_roofline`.
# Errors are of points that the fit did not see: |model / measured - 1|, and of the sum of all times.  Only gemm has
# flops: compute and blend of the other classes are not fitted, nor are cached and cache_share of gemm.

source: "operator times of decoder layers in fp16 (Llama-2-7b, Llama-3-8B): microsoft/vidur @ 7d475133, data/profiling"
licence: "MIT, Copyright (c) Microsoft Corporation"

gpus:"""


class MeasuredOperator(NamedTuple):
    """One measured operator: ns, flops and bytes, and what tells it apart."""

    gpu: str
    kind: str  # operator class
    key: str
    flops: float
    moved: float
    time: float


def points(path: Path) -> Iterator[MeasuredOperator]:
    """The measured operators of one file."""
    gpu = path.name.split("_")[0]
    raw = path.read_bytes()
    text = gzip.decompress(raw).decode() if path.name.endswith(".gz") else raw.decode()
    for row in csv.DictReader(io.StringIO(text)):
        tokens, workers, width, inner = (
            int(row[c]) for c in ("num_tokens", "num_tensor_parallel_workers", "n_embd", "n_expanded_embd")
        )
        queries = width // workers
        keys = max(int(row["n_kv_head"]) // workers, 1) * width // int(row["n_head"])
        inner //= workers
        matrices = {
            "attn_pre_proj": (queries + 2 * keys, width),
            "attn_post_proj": (width, queries),
            "mlp_up_proj": (2 * inner, width),  # gate and up in one
            "mlp_down_proj": (width, inner),
        }
        streams = {  # elements read and written per token
            "input_layernorm": ("norm", 2 * width),
            "post_attention_layernorm": ("norm", 2 * width),
            "add": ("add", 3 * width),
            "mlp_act": ("act", 3 * inner),
            "attn_rope": ("rope", 2 * (queries + keys)),
            "emb": ("embedding", 2 * width),
        }
        label = f"{path.name.split('.')[0]},{tokens},{workers}"
        for name, (out, inside) in matrices.items():
            moved = _HALF * (tokens * inside + inside * out + tokens * out)
            yield MeasuredOperator(gpu, "gemm", f"{label},{name}", 2.0 * tokens * inside * out, moved, _ns(row, name))
        for name, (kind, elements) in streams.items():
            yield MeasuredOperator(gpu, kind, f"{label},{name}", 0.0, _HALF * tokens * elements, _ns(row, name))


def _ns(row: dict[str, str], name: str) -> float:
    text = row[f"time_stats.{name}.median"]
    return float(text) * 1e6 if text else 0.0


def held_out(key: str) -> bool:
    return hashlib.sha256(key.encode()).digest()[0] % 5 == 0


@dataclass(frozen=True)
class RooflineFit:
    """Coefficients of one class on one GPU with the errors on held-out points."""

    coefficients: Coefficients
    median_error: float
    p90_error: float
    total_error: float
    fitted: int
    held_out: int


def errors(coefficients: Coefficients, measured: list[MeasuredOperator], profile: Profile) -> tuple[float, float, float]:
    """(median, p90) of |model / measured - 1| and the sum's relative error."""
    model, time = _predict(coefficients, measured, profile), np.array([p.time for p in measured])
    off = np.abs(model / time - 1)
    return float(np.median(off)), float(np.quantile(off, 0.9)), float(model.sum() / time.sum() - 1)


def _predict(coefficients: Coefficients, measured: list[MeasuredOperator], profile: Profile) -> F64:
    flops, moved = np.array([p.flops for p in measured]), np.array([p.moved for p in measured], np.float64)
    return coefficients.predict(
        flops, moved, profile.gpu.peak["fp16"].value, profile.memory.bandwidth.value, profile.gpu.l2.value
    )


def fit(measured: list[MeasuredOperator], profile: Profile) -> RooflineFit:
    """Least mean |log(model / measured)|, so that slow and fast kernels count alike."""
    train = [p for p in measured if not held_out(p.key)]
    test = [p for p in measured if held_out(p.key)]
    time = np.array([p.time for p in train])
    # Matrix products do not gain from L2 in these data; the others have no flops and so no blend.
    free = ("floor", "compute", "memory", "blend") if train[0].flops else ("floor", "memory", "cached", "cache_share")
    start = {**vars(_START), **({"cache_share": 0.0} if train[0].flops else {"compute": 1.0, "blend": 2.0})}

    def at(x: F64) -> Coefficients:
        values = {**start, **dict(zip(free, np.exp(x).tolist(), strict=True))}
        if "blend" in free:
            values["blend"] += 1  # a norm
        if "cached" in free:
            values["cached"] = values["memory"] * (1 + values["cached"])  # no slower than memory
            values["cache_share"] = min(values["cache_share"], 1.5)
        else:
            values["cached"] = values["memory"]
        return Coefficients(**values)

    def loss(x: F64) -> float:
        return float(np.abs(np.log(_predict(at(x), train, profile) / time)).mean())

    # The share of the cache has several local minima: start from each of three.
    starts = [
        np.log([start[name] * (scale if name == "cache_share" else 1) for name in free]) for scale in (0.5, 1, 1.6)
    ]
    best = min((minimise(loss, minimise(loss, first)) for first in starts), key=loss)
    found = at(best)
    found = Coefficients(round(found.floor), *(round(v, 3) for v in list(vars(found).values())[1:]))
    return RooflineFit(found, *errors(found, test, profile), len(train), len(test))


def minimise(loss: Callable[[F64], float], start: F64, steps: int = 2000) -> F64:
    """Nelder and Mead's simplex (Computer Journal 7, 1965), deterministic, bounded by steps."""
    simplex = [start, *(start + 0.3 * np.eye(len(start))[i] for i in range(len(start)))]
    value = [loss(x) for x in simplex]
    for _ in range(steps):
        order = np.argsort(value, kind="stable")
        simplex, value = [simplex[i] for i in order], [value[i] for i in order]
        if value[-1] - value[0] < 1e-9:
            break
        centre = np.mean(simplex[:-1], axis=0)
        mirrored = 2 * centre - simplex[-1]
        at_mirrored = loss(mirrored)
        if at_mirrored < value[0]:
            further = 3 * centre - 2 * simplex[-1]
            at_further = loss(further)
            better = at_further < at_mirrored
            simplex[-1], value[-1] = (further, at_further) if better else (mirrored, at_mirrored)
        elif at_mirrored < value[-2]:
            simplex[-1], value[-1] = mirrored, at_mirrored
        else:
            inner = (centre + (simplex[-1] if at_mirrored >= value[-1] else mirrored)) / 2
            at_inner = loss(inner)
            if at_inner < min(at_mirrored, value[-1]):
                simplex[-1], value[-1] = inner, at_inner
            else:
                simplex = [simplex[0], *((simplex[0] + x) / 2 for x in simplex[1:])]
                value = [value[0], *(loss(x) for x in simplex[1:])]
    best: F64 = simplex[int(np.argmin(value))]
    return best


def main(folder: Path, profiles: Path) -> str:
    """The text of `data/roofline.yaml`."""
    measured = [p for path in sorted(folder.glob("*_mlp.csv*")) for p in points(path) if p.time > 0]
    lines = [_HEADER]
    for gpu, name in GPUS.items():
        profile = load_file(profiles / f"{name}.yaml")
        lines += [
            f"  {name}:",
            f'    compute_capability: "{profile.gpu.compute_capability}"',
            f"    peak: {profile.gpu.peak['fp16'].value / 1e12:g} TFLOP/s",
            f"    bandwidth: {profile.memory.bandwidth.value / 1e9:g} GB/s",
            f"    l2: {profile.gpu.l2.value / 2**20:g} MiB",
            "    classes:",
        ]
        for kind in KINDS:
            done = fit([p for p in measured if p.gpu == gpu and p.kind == kind], profile)
            c = done.coefficients
            lines += [
                f"      {kind}:",
                f"        {{floor: {c.floor:g} ns, compute: {c.compute:g}, memory: {c.memory:g}, cached: {c.cached:g},",
                f"         cache_share: {c.cache_share:g}, blend: {c.blend:g}, median_error: {done.median_error:.3f},",
                f"         p90_error: {done.p90_error:.3f}, total_error: {done.total_error:.3f},",
                f"         fitted: {done.fitted}, held_out: {done.held_out}}}",
            ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    DATA.write_text(main(Path(sys.argv[1]), Path(__file__).parents[2] / "hardware_profiles"))
