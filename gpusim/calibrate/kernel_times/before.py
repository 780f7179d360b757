"""The model of kernel times before this one, to compare with: one roofline per class, fitted on a decoder's layers.

    t = floor + (a^p + b^p)^(1/p)
    a = flops / (peak of the element type * compute)
    b = bytes / bandwidth * (hit / cached + (1 - hit) / memory)
    hit = 2 - bytes / (cache_share * L2), within 0..1

Its coefficients (`before.yaml`) are of three GPUs and six classes; other GPUs took those of the nearest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import ProfileError
from gpusim.base.units import BYTES, FLOPS, RATE, TIME, parse
from gpusim.base.yaml import document
from gpusim.machine.profile import Profile
from gpusim.machine.streaming import streaming_times, streams
from gpusim.machine.transfer_times import transfer_times
from gpusim.trace.trace import Trace

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

DATA = Path(__file__).parent / "before.yaml"

# Operator name -> class, first match wins; True where the class was measured on this very kind of operator.
_CLASSES: tuple[tuple[str, str, bool], ...] = (
    (r"^(mm|addmm|linear|matmul|gemm)$", "gemm", True),
    (r"bmm|attention|conv|einsum|linear|matmul|gemm", "gemm", False),
    (r"layer_norm|rms_norm", "norm", True),
    (r"batch_norm", "act", False),  # streams as well as an activation on the V100 of docs/traces.md, better than rms_norm
    (r"norm|softmax|sum|mean|max|min\b|var|loss|argm|pool|topk|sort", "norm", False),
    (r"^add_?$", "add", True),
    (r"gelu|silu|swiglu", "act", True),
    (r"rope|rotary", "rope", True),
    (r"^embedding$", "embedding", True),
    (r"embedding|index|gather|scatter", "embedding", False),
    (r"", "add", False),
)
_GATHERS = re.compile(r"\b(embedding|gather|index|index_select)\b")  # read only the rows they write, not the whole table
_PEAK_OF = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64"}


@dataclass(frozen=True)
class FormerCoefficients:
    """One operator class on one GPU; see the module's formula."""

    floor: float  # ns
    compute: float
    memory: float
    cached: float
    cache_share: float
    blend: float

    def predict(self, flops: F64, moved: F64, peak: float, bandwidth: float, l2: float) -> F64:
        """Durations in ns (N,) of kernels of `flops` and `moved` bytes; peak flop/s, bandwidth bytes/s, l2 bytes."""
        a = flops / (peak * self.compute) * 1e9
        reach = self.cache_share * l2
        hit = np.clip(2 - moved / reach, 0.0, 1.0) if reach > 0 else np.zeros(len(moved))
        b = moved / bandwidth * 1e9 * (hit / self.cached + (1 - hit) / self.memory)
        high, low = np.maximum(a, b), np.minimum(a, b)
        ratio = np.divide(low, high, out=np.zeros_like(high), where=high > 0)
        return np.asarray(self.floor + high * (1 + ratio**self.blend) ** (1 / self.blend), np.float64)


@dataclass(frozen=True)
class FormerGpu:
    """One measured GPU: the rates that its efficiencies are shares of, the coefficients, and their held-out errors."""

    name: str
    compute_capability: str
    peak: float
    bandwidth: float
    l2: float
    classes: dict[str, FormerCoefficients]
    errors: dict[str, dict[str, float]]  # class -> median, p90, total (held out), rows

    def is_of(self, profile: Profile) -> bool:
        """The profile describes this very GPU: same generation, same peak and bandwidth within 2 %."""
        near = abs(profile.memory.bandwidth.value / self.bandwidth - 1) < 0.02
        peak = profile.gpu.peak.get("fp16")
        return (
            profile.gpu.compute_capability == self.compute_capability
            and near
            and (peak is not None and abs(peak.value / self.peak - 1) < 0.02)
        )


@cache
def references() -> dict[str, FormerGpu]:
    """The measured GPUs by name."""
    found = {}
    for name, entry in document.read(DATA).data["gpus"].items():
        classes, errors = {}, {}
        for what, row in entry["classes"].items():
            classes[what] = FormerCoefficients(
                float(parse(row["floor"], TIME)),
                row["compute"],
                row["memory"],
                row["cached"],
                row["cache_share"],
                row["blend"],
            )
            errors[what] = {key: float(row[key]) for key in ("median_error", "p90_error", "total_error", "held_out")}
        found[name] = FormerGpu(
            name,
            entry["compute_capability"],
            float(parse(entry["peak"], FLOPS)),
            float(parse(entry["bandwidth"], RATE)),
            float(parse(entry["l2"], BYTES)),
            classes,
            errors,
        )
    return found


def reference_of(profile: Profile) -> tuple[FormerGpu, bool]:
    """The measured GPU whose efficiencies apply, and whether the profile is that GPU."""
    known = references()
    for reference in known.values():
        if reference.is_of(profile):
            return reference, True
    # Efficiencies follow the kind of memory more than the model: HBM with large caches, or GDDR and LPDDR.
    recent = float(profile.gpu.compute_capability) >= 9.0
    name = "a40" if not profile.memory.kind.startswith("HBM") else "h100-sxm-80gb" if recent else "a100-sxm4-80gb"
    return known[name], False


def operator_class(name: str) -> tuple[str, bool]:
    """The operator's class, and whether that class was measured on this kind of operator."""
    plain = name.removeprefix("aten.").split(".")[0]
    for pattern, what, measured in _CLASSES:
        if re.search(pattern, plain):
            return what, measured and "backward" not in plain
    raise AssertionError("the last pattern matches everything")


def modelled_before(trace: Trace, profile: Profile) -> I64:
    """(O,) ns of the trace's operators on the machine."""
    reference, same_gpu = reference_of(profile)
    out = np.zeros(trace.ops, np.int64)
    flops, moved = trace.flops, _moved(trace)
    # Operators alike in name and type share class and peak: few groups, each one vector operation.
    pairs = trace.op.astype(np.int64) * (len(trace.dtypes) + 1) + trace.dtype + 1
    order = np.argsort(pairs, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(pairs[order])) + 1) if trace.ops else ():
        name, dtype = trace.op_names[trace.op[rows[0]]], _dtype(trace, rows[0])
        if streams(name):
            out[rows] = streaming_times(trace, rows, profile)
            continue
        what, measured = operator_class(name)
        if not measured and flops[rows].any():
            what = "gemm"  # whatever else computes: no streaming class knows how fast
        time = _adapted(reference.classes[what], profile, same_gpu).predict(
            flops[rows],
            moved[rows],
            _peak(profile, dtype, _uses_tf32(trace, name)),
            profile.memory.bandwidth.value,
            profile.gpu.l2.value,
        )
        out[rows] = np.rint(time).astype(np.int64)
    others, took = transfer_times(trace, profile)
    out[others] = took
    return out


def _moved(trace: Trace) -> F64:
    """(O,) bytes between memory and kernel."""
    gathers = np.array([bool(_GATHERS.search(name)) for name in trace.op_names] + [False])[trace.op]
    read = np.where(gathers, np.minimum(trace.read_bytes, trace.written_bytes), trace.read_bytes)
    return read.astype(np.float64) + trace.written_bytes


def _dtype(trace: Trace, row: int) -> str:
    return trace.dtypes[trace.dtype[row]] if trace.dtype[row] >= 0 else "float32"


def _uses_tf32(trace: Trace, name: str) -> bool:
    stated = trace.meta.get("tf32")
    return "conv" in name if stated is None else stated is True


def _adapted(fitted: FormerCoefficients, profile: Profile, same_gpu: bool) -> FormerCoefficients:
    """Another machine's coefficients: never faster from memory than the profile says copies are."""
    if same_gpu:
        return fitted
    reached = profile.memory.copy.value / profile.memory.bandwidth.value
    memory = min(fitted.memory, reached)
    return replace(fitted, memory=memory, cached=max(fitted.cached, memory))


def _peak(profile: Profile, dtype: str, tf32: bool) -> float:
    """flop/s of the element type; a type that the profile does not list runs at the fp32 rate."""
    peak = profile.gpu.peak
    name = _PEAK_OF.get(dtype, "fp32")
    if name == "fp32" and tf32 and "tf32" in peak:
        name = "tf32"
    if name == "bf16" and "bf16" not in peak and float(profile.gpu.compute_capability) >= 8.0:
        name = "fp16"  # since Ampere both run at the same rate; before, bf16 is computed in fp32
    found = peak.get(name) or peak.get("fp32")
    if found is None:
        raise ProfileError(f"the profile '{profile.name}' has no fp32 peak, which kernel times need")
    return float(found.value)


def former() -> dict[str, dict[str, FormerCoefficients]]:
    """By GPU and class."""
    return {name: gpu.classes for name, gpu in references().items()}
