"""What recorded steps of one GPU say of kernels that move bytes: the share of the bandwidth that a class reaches, its floor.

Of each model with two recordings that of the larger batch is fitted (FITTED), whose kernels lie beyond the cache; the others
are held out, and show the error.  Products are left as they are: those of steps of less than a second are not of a warm GPU.
But for the backward pass of attention, of which nothing was published: its share of the peak is fitted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.kernel_times.least_squares import minimise
from gpusim.calibrate.steps.recording import RESIDENT, read
from gpusim.machine.kernels.durations import computed_in, fitted_class
from gpusim.machine.kernels.measured import MeasuredGpu, measured_gpu
from gpusim.machine.kernels.operators import PRODUCTS, described, kind
from gpusim.machine.kernels.physics import ClassCoefficients, Rates, predict
from gpusim.machine.kernels.shapes import Work
from gpusim.machine.profile import Profile
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

F64 = npt.NDArray[np.float64]

FITTED = (
    "gpt2-small(batch=16)", "bert-large(batch=32)", "resnet50(batch=128)", "llama-8b(mode=infer, batch=16, decode=16)",
)  # fmt: skip
LEAST_NS = 50_000
"""Of a class in the fitted recordings: of less nothing is said."""
_SHAPES = 4  # from which on the floor is fitted as well
_HOLD = 0.05  # weight of what the class had before
_SHARES, _FLOORS = (0.05, 1.1), (800.0, 4000.0)
_OTHERS = (*PRODUCTS, "rnn", "conversion", "scatter", "gather")  # the last two: the order of indices decides
_BACKWARD = "attention backward"
_KINDS = {"fp16": "half", "bf16": "half", "fp32": "float32"}

HEADER = """\
# Coefficients of classes that move bytes, of single GPUs, by `python -m gpusim.calibrate.kernel_times fit-recorded`: the
# first recorded step of each model (gpusim/calibrate/kernel_times/recorded.py).  "half": float16, bfloat16.
"""


class Kernels(NamedTuple):
    """Distinct kernels of one class and type, each alone in its operator."""

    work: Work
    took: F64
    """(N,) ns, medians"""
    total: F64
    """(N,) ns of all that are alike"""


def recordings(folder: Path) -> dict[str, Trace]:
    """Program -> its recorded step."""
    _, steps = read(folder)
    return {step.program: load_trace(folder / step.trace) for step in steps if step.trace and step.way == RESIDENT}


def moving(traces: Sequence[Trace], gpu: MeasuredGpu) -> dict[tuple[str, str], Kernels]:
    """The recorded kernels that move bytes, by class and type as the GPU computes it."""
    found: dict[tuple[str, str], list[Kernels]] = defaultdict(list)
    for trace in traces:
        of = described(trace)
        alone = sum((np.bincount(g.operator, minlength=len(of.first)) for g in of.groups), np.zeros(len(of.first), int)) == 1
        took, total = _times(trace, of.which, len(of.first))
        for group in of.groups:
            if kind(group.what) in _OTHERS and group.what != _BACKWARD:
                continue
            keep = alone[group.operator] & (took[group.operator] > 0)
            at = group.operator[keep]
            width = _KINDS.get(computed_in(group.what, group.dtype, trace.meta, gpu.numbers))
            if len(at) and width:
                found[group.what, width].append(Kernels(_taken(group.work, keep), took[at], total[at]))
    return {key: _joined(parts) for key, parts in found.items()}


def _times(trace: Trace, which: npt.NDArray[np.int64], n: int) -> tuple[F64, F64]:
    """(n,) medians and sums of what those that are alike took."""
    order = np.argsort(which, kind="stable")
    parts = np.split(trace.duration[order].astype(np.float64), np.flatnonzero(np.diff(which[order])) + 1)
    assert len(parts) == n
    return np.array([np.median(p) for p in parts]), np.array([p.sum() for p in parts])


def _taken(work: Work, keep: npt.NDArray[np.bool_]) -> Work:
    return Work(**{f.name: np.broadcast_to(getattr(work, f.name), keep.shape)[keep] for f in fields(Work)})


def _joined(parts: Sequence[Kernels]) -> Kernels:
    work = {f.name: np.concatenate([getattr(p.work, f.name) for p in parts]) for f in fields(Work)}
    return Kernels(Work(**work), np.concatenate([p.took for p in parts]), np.concatenate([p.total for p in parts]))


def fit(traces: Sequence[Trace], profile: Profile) -> dict[tuple[str, str], ClassCoefficients]:
    """The coefficients of each class that takes long enough."""
    gpu = measured_gpu(profile)
    return {key: _fitted(key, of, gpu) for key, of in sorted(moving(traces, gpu).items()) if of.total.sum() >= LEAST_NS}


def _fitted(key: tuple[str, str], of: Kernels, gpu: MeasuredGpu) -> ClassCoefficients:
    dtype = {"half": "bf16", "float32": "fp32"}[key[1]]
    before, rates = fitted_class(key[0], dtype, gpu.numbers.capability).coefficients, Rates.of(gpu.numbers, dtype)
    weight = np.sqrt(of.total / of.total.sum() * len(of.total))
    floors = len(of.took) >= _SHAPES and key[0] != _BACKWARD
    share = "compute" if key[0] == _BACKWARD else "memory"
    start = np.log([getattr(before, share), *([before.floor] if floors else [])])

    def made(x: F64) -> ClassCoefficients:
        found = replace(before, **{share: float(np.exp(x[0]))})
        return replace(found, floor=float(np.exp(x[1]))) if floors else found

    def residual(x: F64) -> F64:
        return np.concatenate([weight * np.log(predict(made(x), of.work, rates) / of.took), _HOLD * (x - start)])

    bounds = np.log(np.array([_SHARES, _FLOORS][: len(start)]))
    return made(minimise(residual, start, bounds[:, 0], bounds[:, 1])[0])


def errors(traces: Sequence[Trace], profile: Profile, fitted: dict[tuple[str, str], ClassCoefficients]) -> F64:
    """Log of measured over modelled time of the kernels of fitted classes, each as often as it takes a thousandth of all."""
    gpu = measured_gpu(profile)
    found, weight = [], []
    for key, of in moving(traces, gpu).items():
        if key in fitted:
            rates = Rates.of(gpu.numbers, {"half": "bf16", "float32": "fp32"}[key[1]])
            found.append(np.log(of.took / predict(fitted[key], of.work, rates)))
            weight.append(of.total)
    share = np.concatenate(weight) / sum(w.sum() for w in weight)
    return np.repeat(np.concatenate(found), np.ceil(share * 1000).astype(int))


def text(folder: Path, profile: Profile) -> Iterator[str]:
    """The lines of `recorded.yaml`, with the interval that the held-out recordings give."""
    traces = recordings(folder)
    fitted = fit([traces[name] for name in FITTED], profile)
    low, high = np.quantile(errors([t for name, t in traces.items() if name not in FITTED], profile, fitted), (0.1, 0.9))
    yield HEADER
    yield f"{profile.name}:"
    yield f'  source: "gpusim/calibrate/data/{folder.parent.name}/{folder.name}: {", ".join(FITTED)}"'
    yield f"  interval: [{low:.3f}, {high:.3f}]  # 10th and 90th percentile of log(measured / model) on the other recordings"
    yield "  classes:"
    for (what, width), c in fitted.items():
        share = "compute" if what == _BACKWARD else "memory"
        yield f"    - {{what: {what}, type: {width}, coefficients: {{floor: {c.floor:.4g}, {share}: {getattr(c, share):.4g}}}}}"
