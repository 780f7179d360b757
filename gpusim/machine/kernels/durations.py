"""How long the operators of a trace take on a machine, how that is known, and within which interval.

A time is recorded (of the trace) or modelled (`physics`, with the correction of a measured GPU where there is one).  Its basis:

    recorded   the trace's own
    scaled     the trace's own of another GPU, times the model's ratio of the two
    measured   modelled, with measurements of this class and type on this very GPU, of kernels or of whole steps
    family     the same, of a GPU of its family
    class      modelled from other GPUs, with rates of this one that were measured
    default    modelled from other GPUs with the vendor's numbers, or from a class or type like its own

An interval holds the logarithm of true / stated time four times out of five.  Errors of one class of kernels go together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels import store
from gpusim.machine.kernels.measured import MeasuredGpu, measured_gpu
from gpusim.machine.kernels.numbers import SHORT, Numbers, tf32
from gpusim.machine.kernels.operators import PRODUCTS, Described, KernelGroup, described, kind
from gpusim.machine.kernels.own_times import OwnTimes, as_trace, own_times
from gpusim.machine.kernels.physics import Rates, from_memory, predict, terms
from gpusim.machine.kernels.store import ShippedFit, fits, gpus_of_steps, intervals_of_steps, of_steps, table, vendors
from gpusim.machine.kernels.user_table import UserTable, of_machines, read
from gpusim.machine.product import profile_of
from gpusim.machine.profile import Profile
from gpusim.machine.streaming import streaming_times, streams
from gpusim.machine.transfer_times import transfer_times
from gpusim.trace import recorded_times as said
from gpusim.trace.answers import answers
from gpusim.trace.trace import KERNEL, Trace

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
U8 = npt.NDArray[np.uint8]

RECORDED, SCALED, MEASURED, FAMILY, CLASS, DEFAULT = range(6)
BASIS = ("recorded", "scaled", "measured", "family", "class", "default")
COMPUTE, MEMORY, LAUNCH = range(3)
BOUND = ("compute", "memory", "launch")

_UNSHAPED = {True: (0.1, 0.45), False: (0.05, 0.05)}
"""What an unknown shape adds to the logarithm's interval on either side, of products and of other classes: the measured
products, looked at by flops and bytes alone, were a third to a half slower at the 90th percentile."""
_NEAR = 0.30
"""What it adds that the coefficients are those of another class or type."""
_UNKNOWN = 2.3
"""An operator without shape, flops and bytes: up to ten times the floor that it is given."""
_BY_FACTOR = 0.25
"""The logarithm's interval of recorded times that one factor carries to another GPU: nine of ten measured steps of networks
that a factor carried from an RTX 3090 to three other GPUs were within 23 to 33 %."""
_MOVES, _STREAMS, _CONVERSION = "transfer", "streaming", "conversion"
_LIKE = {  # classes that were not measured -> one whose coefficients they take
    "bmm": "gemm", "attention causal": "attention", "attention backward": "attention causal", "decode": "attention causal",
    "conv dgrad": "conv", "conv wgrad": "conv", "conv backward": "conv", "pointwise": "elementwise mul",
    "special": "elementwise gelu", "layer_norm": "elementwise mul", "softmax": "layer_norm", "group_norm": "layer_norm",
}  # fmt: skip
_SAME = ("pointwise", "special")
"""Classes that the one whose coefficients they take was measured for."""
_STREAMING = "elementwise mul"
_TYPE = {"float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


class OperatorTimes(NamedTuple):
    """(O,) of the operators of a trace; basis, bound and what as indices into BASIS, BOUND and `classes`."""

    ns: I64
    basis: U8
    low: F64
    high: F64
    bound: U8
    what: I32
    classes: tuple[str, ...]


def durations(
    trace: Trace, profile: Profile, recorded_on: Profile | None = None, own: OwnTimes | None = None
) -> OperatorTimes:
    """The times of the operators on the machine; what `own` has measured there, and near it, replaces others.

    Recorded ones are kept; `recorded_on`, or else the trace's meta, names the machine that they are of: on another one each
    kernel's is scaled by the ratio of the model's times, of which the class's error stays.  Operators of which the model knows
    nothing are scaled as all others together.  Raises ProfileError when a profile has no fp32 peak.
    """
    modelled = modelled_durations(trace, profile)
    recorded = trace.duration >= 0
    origin = recorded_on or profile_of(said.recorded_on(trace)) if recorded.any() else None
    if origin is not None and origin.name != profile.name:
        return _scaled(trace, profile, modelled, origin, own)
    if own is not None:
        modelled = _with_own(trace, profile, modelled, own)
    if not recorded.any():
        return modelled
    bar = _BY_FACTOR if said.recorded_factor(trace) else 0.0
    return modelled._replace(
        ns=np.where(recorded, trace.duration, modelled.ns),
        basis=np.where(recorded, SCALED if bar else RECORDED, modelled.basis).astype(np.uint8),
        low=np.where(recorded, -bar, modelled.low),
        high=np.where(recorded, bar, modelled.high),
    )


def _scaled(trace: Trace, profile: Profile, here: OperatorTimes, origin: Profile, own: OwnTimes | None) -> OperatorTimes:
    """Recorded times of another machine as those of this one, but for what was measured here."""
    recorded, blind = trace.duration >= 0, unknown(trace)
    ratio = here.ns / np.maximum(modelled_durations(trace, origin).ns, 1)
    seen = recorded & ~blind & (trace.activity == KERNEL)
    if seen.any():
        ratio[blind] = (trace.duration * ratio)[seen].sum() / max(trace.duration[seen].sum(), 1)
    scaled = np.rint(np.maximum(trace.duration, 0) * ratio).astype(np.int64)
    if own is not None:
        here = _with_own(trace, profile, here, own)
        recorded = recorded & ~_in_table(trace, own)
    return here._replace(
        ns=np.where(recorded, scaled, here.ns), basis=np.where(recorded, SCALED, here.basis).astype(np.uint8)
    )


def load_own_times(path: Path, profile: Profile) -> OwnTimes:
    """A user's measured times from a CSV file (`user_table`).

    Raises ProfileError for a table of another GPU, TraceError for what is no such table.
    """
    return _own_times(read(path, profile), profile)


def own_times_of(path: Path, machines: Sequence[Profile]) -> dict[str, OwnTimes]:
    """Machine -> its times from a file that may be of several.  Raises ProfileError where it is of none of them, TraceError."""
    found = of_machines(path, machines)
    return {machine.name: _own_times(found[machine.name], machine) for machine in machines if machine.name in found}


def _own_times(found: UserTable, profile: Profile) -> OwnTimes:
    trace = as_trace(found)
    return own_times(found, trace, modelled_durations(trace, profile))


def _with_own(trace: Trace, profile: Profile, times: OperatorTimes, own: OwnTimes) -> OperatorTimes:
    first, which, _ = described(trace)
    ns, basis, low, high = times.ns[first], times.basis[first], times.low[first], times.high[first]
    capability = measured_gpu(profile).numbers.capability
    for (what, dtype, _), at, log in own.corrections(trace, first, times):
        fit, _, _ = _fit(what, SHORT.get(dtype.partition("_")[0], dtype), capability)
        ns[at] = np.rint(ns[at] * np.exp(log))
        basis[at], (low[at], high[at]) = MEASURED, fit.intervals[BASIS[MEASURED]]
    for i, row in enumerate(first.tolist()):
        found = _of_table(trace, row, own)
        if found is not None:
            ns[i], low[i], high[i] = round(found[0]), found[1], found[2]
            basis[i] = MEASURED
    return times._replace(ns=ns[which], basis=basis[which], low=low[which], high=high[which])


def _of_table(trace: Trace, row: int, own: OwnTimes) -> tuple[float, float, float] | None:
    """What the table says of one operator: (ns, log low, log high)."""
    if trace.shape[row] < 0:
        return None
    dtype = trace.dtypes[trace.dtype[row]] if trace.dtype[row] >= 0 else "float32"
    return own.table.at(trace.op_names[trace.op[row]], dtype, trace.shapes[trace.shape[row]])


def _in_table(trace: Trace, own: OwnTimes) -> npt.NDArray[np.bool_]:
    """(O,) operators whose own shape was measured."""
    first, which, _ = described(trace)
    found: npt.NDArray[np.bool_] = np.array([_of_table(trace, row, own) is not None for row in first.tolist()], bool)[which]
    return found


def modelled_durations(trace: Trace, profile: Profile) -> OperatorTimes:
    """As `durations`, but from the model alone even where the trace carries times."""
    known = described(trace)
    found = _estimate(trace, known, measured_gpu(profile))
    columns = {name: getattr(found, name)[known.which] for name in ("ns", "basis", "low", "high", "bound", "what")}
    return _with_moves(trace, profile, found._replace(**columns))


def _with_moves(trace: Trace, profile: Profile, times: OperatorTimes) -> OperatorTimes:
    """Kernels that only stream, and what is no kernel, have the profile's own rates, whose bars are the profile's."""
    named = np.flatnonzero([streams(name) for name in trace.op_names])
    rows = np.flatnonzero(np.isin(trace.op, named)) if len(named) else np.zeros(0, np.int64)
    others, took = transfer_times(trace, profile)
    for at, ns, word in ((rows, streaming_times(trace, rows, profile), _STREAMS), (others, took, _MOVES)):
        if len(at):
            times.ns[at], times.basis[at], times.low[at], times.high[at] = ns, CLASS, 0.0, 0.0
            times.bound[at] = MEMORY
            times.what[at] = len(times.classes)
            times = times._replace(classes=(*times.classes, word))
    return times


def _estimate(trace: Trace, of: Described, gpu: MeasuredGpu) -> OperatorTimes:
    """The model's times of the operators that differ.  Of several kernels of one operator the longest says what it is."""
    n = len(of.first)
    ns, low, high, longest = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)
    basis, bound, what = np.full(n, DEFAULT, np.uint8), np.full(n, LAUNCH, np.uint8), np.zeros(n, np.int32)
    classes: dict[str, int] = {}
    for group, dtype, fit, name, near in _fitted(trace, of, gpu):
        rates = Rates.of(gpu.numbers, dtype)
        computing, moving, _ = of_terms = terms(fit.coefficients, group.work, rates)
        time = predict(fit.coefficients, group.work, rates, of_terms)
        known, whose = _basis(dtype, group, fit, near, gpu)
        if name and whose and (points := _points(group, fit)) is not None:
            time = time * np.exp(table(*name, whose).at(points))
        down, up = fit.intervals[BASIS[known]]
        fast, slow = _UNSHAPED[kind(group.what) in PRODUCTS] if group.places is None else (0.0, 0.0)
        more = _NEAR if near else 0.0
        at = group.operator
        np.add.at(ns, at, time)
        np.add.at(low, at, time * (min(down, 0.0) - fast - more))
        np.add.at(high, at, time * (max(up, 0.0) + slow + more))
        most = time > longest[at]
        at, time = at[most], time[most]
        longest[at], basis[at], what[at] = time, known, classes.setdefault(group.what, len(classes))
        computing, moving = computing[most], moving[most]
        bound[at] = np.where(np.maximum(computing, moving) * 2 < time, LAUNCH, np.where(computing > moving, COMPUTE, MEMORY))
    low, high = low / np.maximum(ns, 1e-9), high / np.maximum(ns, 1e-9)
    high[unknown(trace)[of.first]] = _UNKNOWN
    return OperatorTimes(np.rint(ns).astype(np.int64), basis, low, high, bound, what, tuple(classes))


def _fitted(
    trace: Trace, of: Described, gpu: MeasuredGpu
) -> Iterator[tuple[KernelGroup, str, ShippedFit, tuple[str, str] | None, bool]]:
    """The kernels that run, by group, with the type in which they compute and what `_fit` says of them."""
    for group in of.groups:
        dtype = computed_in(group.what, group.dtype, trace.meta, gpu.numbers)
        if kind(group.what) == _CONVERSION and dtype == "fp32":
            continue  # without TF32 no tensor core asks for it
        fit, name, near = _fit(group.what, dtype, gpu.numbers.capability)
        own = _recorded(group.what, dtype, gpu, fit)
        yield (group, dtype, own, None, False) if own else (group, dtype, fit, name, near)


def _recorded(what: str, dtype: str, gpu: MeasuredGpu, fit: ShippedFit) -> ShippedFit | None:
    """The fit with what recorded steps of this very GPU, or of one of its family, say of the class."""
    width = "half" if dtype in ("bf16", "fp16") else "float32"
    for name in (gpu.own, *gpu.kin):
        classes, interval = store.of_recordings(name)
        if numbers := classes.get((what, width)):
            return ShippedFit(replace(fit.coefficients, **numbers), (), (name,), dict.fromkeys(BASIS, interval))
    return None


def fitted_class(what: str, dtype: str, capability: float) -> ShippedFit:
    """What published kernels and steps say of a class, whatever was recorded on single GPUs."""
    return _fit(what, dtype, capability)[0]


def bytes_from_memory(trace: Trace, gpu: MeasuredGpu) -> F64:
    """(O,) bytes that the kernels of each operator move to and from the GPU's memory, past its cache, as the model has it."""
    of = described(trace)
    found = np.zeros(len(of.first))
    for group, dtype, fit, _, _ in _fitted(trace, of, gpu):
        np.add.at(found, group.operator, from_memory(fit.coefficients, group.work, Rates.of(gpu.numbers, dtype)))
    return np.asarray(found[of.which], np.float64)


def unknown(trace: Trace) -> npt.NDArray[np.bool_]:
    """(O,) operators without shape, flops and bytes: they are given what an empty kernel takes."""
    told: npt.NDArray[np.bool_] = trace.shape >= 0
    for column in (trace.flops, trace.read_bytes, trace.written_bytes):
        told = told | (column > 0)
    return ~told


def computed_in(what: str, dtype: str, meta: Mapping[str, Any], gpu: Numbers) -> str:
    """The type in which the GPU computes kernels of a class, as `Numbers.peak` names it.

    dtype  of the operator, as traces name it; meta  of the trace
    """
    name = _TYPE.get(dtype, "fp8" if dtype.startswith("float8") else "fp32")
    if name == "fp32" and kind(what) in (*PRODUCTS, _CONVERSION) and "depthwise" not in what:
        name = "tf32" if tf32(what, meta) else name
    return gpu.rate(name)[1]


def _basis(dtype: str, group: KernelGroup, fit: ShippedFit, near: bool, gpu: MeasuredGpu) -> tuple[int, str]:
    """How the times are known, and the measured GPU whose table corrects them."""
    if not near and gpu.own in fit.gpus:
        return MEASURED, gpu.own
    kin = next((name for name in gpu.kin if name in fit.gpus), "")
    if not near and kin:
        return FAMILY, kin
    rate = dtype if kind(group.what) in PRODUCTS else "bandwidth"
    return (CLASS if not near and rate in gpu.numbers.measured else DEFAULT), ""


def _points(group: KernelGroup, fit: ShippedFit) -> F64 | None:
    """(N, D) places in the correction."""
    if group.places is None or not all(axis in group.places[0] for axis in fit.axes):
        return None
    return np.array([[place.get(axis, 1.0) for axis in fit.axes] for place in group.places], np.float64) * 1024


def _types(dtype: str, capability: float) -> tuple[str, ...]:
    """Element types by how near their kernels are."""
    halves = ("bf16", "fp16") if capability >= 8.0 else ("fp16", "bf16")
    return {"fp32": ("fp32", *halves), "fp64": ("fp32",), "tf32": (*halves, "fp32"), "fp8": ("fp8", *halves, "fp32")}.get(
        dtype, (*halves, "fp32")
    )


@cache
def _fit(what: str, dtype: str, capability: float) -> tuple[ShippedFit, tuple[str, str] | None, bool]:
    """The coefficients of a class and type, whose table corrects them, and whether these are others.

    Measured kernels of GPUs of this generation or of later ones come first, then whole steps, then kernels that are like it.
    Whole steps have no TF32: its kernels have the coefficients of 16 bits, as others that run on tensor cores.
    """
    known = fits()
    candidate = what
    width = "half" if dtype in ("bf16", "fp16", "tf32") else "float32"
    steps = of_steps().get((what, width))
    while True:
        for of in _types(dtype, capability):
            if (candidate, of) in known:
                same = candidate == what or what in _SAME
                alike = kind(what) not in PRODUCTS or of == dtype or {of, dtype} == {"fp16", "bf16"}
                found = known[candidate, of]
                newest = max(int(vendors()[gpu]["capability"]) for gpu in found.gpus)
                exact = same and alike
                measured = same and (of == dtype or {of, dtype} == {"fp16", "bf16"}) and int(capability) <= newest
                if steps and not measured:
                    return ShippedFit(steps, (), gpus_of_steps(width), intervals_of_steps()), None, dtype == "tf32"
                return found, (candidate, of), not exact
        candidate = _LIKE.get(candidate) or candidate.rpartition(" ")[0] or _STREAMING


def shares(times: OperatorTimes) -> dict[str, float]:
    """How much of the kernel time has which basis: fractions by the names of BASIS."""
    total = max(float(times.ns.sum()), 1.0)
    return {name: float(times.ns[times.basis == i].sum()) / total for i, name in enumerate(BASIS)}


def model_error(trace: Trace, profile: Profile) -> dict[str, Any] | None:
    """How far the model is from the trace's own times; None when it carries none, or no flops from which to model them.

    Relative errors: median and p90 of |model / recorded - 1| over operators, total = sum of model / sum of recorded
    - 1, and `worst`: the operator names that contribute most to the difference, [name, recorded ns, modelled ns].
    """
    rows = np.flatnonzero(trace.duration > 0)
    if not len(rows) or not answers(trace).flops:
        return None
    modelled = modelled_durations(trace, profile).ns[rows].astype(np.float64)
    recorded = trace.duration[rows].astype(np.float64)
    error = np.abs(modelled / recorded - 1)
    by_name = [np.bincount(trace.op[rows], weights, len(trace.op_names)) for weights in (recorded, modelled)]
    worst = np.argsort(-np.abs(by_name[1] - by_name[0]), kind="stable")[:5]
    return {
        "operators": len(rows),
        "median": float(np.median(error)),
        "p90": float(np.quantile(error, 0.9)),
        "total": float(modelled.sum() / recorded.sum() - 1),
        "worst": [[trace.op_names[i], float(by_name[0][i]), float(by_name[1][i])] for i in worst if by_name[0][i] > 0],
    }
