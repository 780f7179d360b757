"""The second-level fit: what whole steps say of classes for which no kernel was measured, and of two rates of a GPU.

Each coefficient is drawn towards where the kernels' own fit, or a guess, has it: `_FREE` says which are free, between which
bounds, and how far from their start one unit of penalty lets them go.  ReadySteps of left-out networks are never here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gpusim.calibrate.kernel_times.gpus import nominal
from gpusim.calibrate.kernel_times.least_squares import minimise
from gpusim.calibrate.kernel_times.score import kin
from gpusim.calibrate.kernel_times.steps import PublishedStep, StepPrograms
from gpusim.machine.kernels import store
from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.physics import ClassCoefficients, Rates, predict
from gpusim.machine.kernels.shapes import Work

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

HALF = ("float16", "bfloat16")
HOST = 6e3
"""ns that an eager operator takes to submit"""

_STREAM = ClassCoefficients(floor=1669, fill=0, tile=0, chain=0, memory=1.0, blend=2)
_ALIKE = {"pointwise": "elementwise mul", "special": "elementwise gelu"}
"""Classes, and the measured operator whose kernels are theirs."""
_NORMALISED = {"batch_norm train": 0.97, "batch_norm backward": 0.89}
"""Shares of the bandwidth that 38 kernels of ResNet-50 (fp32, batch 32, above 20 us) reach on a V100 and an A100, beside the
longest thread block that `limits` has for them (facebookresearch/HolisticTraceAnalysis @ f4d0062c38, MIT)."""
_NORMALISED_BLEND = 3.0
"""Of the powers 1.5, 2, 3, 4 and 8 the one that leaves those kernels the least error."""
_CONV = ClassCoefficients(floor=1669, compute=1.0, fill=50, tile=30, memory=0.95, chain=100, growth=0.8, blend=3.0)


def start(what: str, dtype: str) -> ClassCoefficients:
    """Coefficients of a class before any whole step was seen: of measured kernels where there are any, else a guess."""
    fits = store.fits()
    kind = what.split()[0]
    short = "bf16" if dtype in HALF else "fp32"
    if kind in ("gemm", "bmm", "rnn"):
        found = fits.get((kind, short)) or fits["gemm", short]
        return found.coefficients
    if kind == "attention":
        return fits["attention", "bf16"].coefficients
    if kind == "conv":
        if "depthwise" in what:
            return replace(_CONV, compute=0.2, tile=0, chain=0, fill=9)
        if short == "fp32":
            return fits[" ".join(what.split()[: 2 if "grad" in what else 1]), "fp32"].coefficients
        return _CONV
    if kind in _ALIKE and short == "fp32":
        return fits[_ALIKE[kind], "fp32"].coefficients
    if kind in ("layer_norm", "softmax"):
        return fits[kind, "fp32"].coefficients
    if what in _NORMALISED:
        return replace(_STREAM, memory=_NORMALISED[what], blend=_NORMALISED_BLEND)
    if kind in ("strided", "gather", "scatter", "sort", "resize", "group_norm", "batch_norm"):
        return replace(_STREAM, memory=0.8)
    if kind == "conversion":
        return replace(_STREAM, memory=1.5)  # some convolutions read NCHW as it is
    return _STREAM


Key = tuple[str, str]
"""Class, and "half" or "float32" """


@dataclass
class StepModel:
    """Coefficients of all classes, and factors on the achieved peak and bandwidth of a GPU."""

    classes: dict[Key, ClassCoefficients]
    rates: dict[str, tuple[float, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class _ClassPart:
    """The kernels of one class that one GPU's steps launch."""

    key: Key
    gpu: str
    work: Work
    dtypes: npt.NDArray[np.str_]
    corrected: F64
    """What measured kernels of this GPU, or of its kin, say beyond the physical form"""
    row: I64
    kernel: I64
    count: F64


class ReadySteps:
    """The steps of some GPUs, ready to be predicted often."""

    def __init__(self, programs: StepPrograms, steps: Sequence[PublishedStep], gpus: Mapping[str, Numbers]) -> None:
        index = {name: i for i, name in enumerate(programs.names)}
        self.steps = [step for step in steps if step.program in index and step.gpu in gpus]
        self.measured = np.array([step.ns for step in self.steps])
        self.gpus, self.gpu = gpus, np.array([step.gpu for step in self.steps])
        program, kernel, count = programs.entries()
        at = np.argsort(program, kind="stable")
        program, kernel, count = program[at], kernel[at], count[at]
        bounds = np.searchsorted(program, np.arange(len(programs.names) + 1))
        of = np.array([index[step.program] for step in self.steps], np.int64)
        self.operators = np.bincount(programs.line_program, programs.line_count, len(programs.names))[of]
        kinds = np.where(np.isin(programs.dtype, HALF), "/half", "/float32")
        keys = np.char.add(programs.what, kinds)
        names, key_of = np.unique(keys, return_inverse=True)
        self._parts: list[_ClassPart] = []
        for gpu in sorted(set(self.gpu.tolist())):
            here = np.flatnonzero(self.gpu == gpu)
            n = (bounds[1:] - bounds[:-1])[of[here]]
            row = np.repeat(here, n)
            entry = np.concatenate([np.arange(bounds[p], bounds[p + 1]) for p in of[here]])
            which = key_of[kernel[entry]]
            for i in np.unique(which):
                mine = which == i
                used, local = np.unique(kernel[entry[mine]], return_inverse=True)
                work = Work(**{name: column[used] for name, column in programs.work.items()})
                what, half = str(names[i]).split("/")
                factor = _correction((what, half), gpus[gpu], work)
                self._parts.append(
                    _ClassPart((what, half), gpu, work, programs.dtype[used], factor, row[mine], local, count[entry[mine]])
                )
        self._known: dict[tuple[Key, str], list[tuple[object, F64]]] = {}

    @property
    def keys(self) -> list[Key]:
        return sorted({part.key for part in self._parts})

    def by_class(self, model: StepModel) -> dict[Key, F64]:
        """(N,) ns of each class in each step."""
        out: dict[Key, F64] = {}
        for part in self._parts:
            out.setdefault(part.key, np.zeros(len(self.steps)))
            out[part.key] += self._sum(part, model)
        return out

    def predict(self, model: StepModel, host: float = HOST) -> F64:
        """(N,) ns."""
        total = np.zeros(len(self.steps))
        for part in self._parts:
            total += self._sum(part, model)
        return np.asarray(np.maximum(total, self.operators * host), np.float64)

    def _sum(self, part: _ClassPart, model: StepModel) -> F64:
        c, scale = model.classes[part.key], model.rates.get(part.gpu, (1.0, 1.0))
        known = self._known.setdefault((part.key, part.gpu), [])
        for i, (made_of, sums) in enumerate(known):
            if made_of == (c, scale):
                known.insert(0, known.pop(i))
                return sums
        time = predict(c, part.work, self._rates(part, scale)) * part.corrected
        new = np.bincount(part.row, part.count * time[part.kernel], len(self.steps)).astype(np.float64)
        known.insert(0, ((c, scale), new))
        del known[3:]
        return new

    def _rates(self, part: _ClassPart, scale: tuple[float, float]) -> Rates:
        gpu = self.gpus[part.gpu]
        types, inverse = np.unique(part.dtypes, return_inverse=True)
        peak = np.array([gpu.rate(t if t in (*HALF, "float64") else "float32")[0] for t in types.tolist()])[inverse] * scale[0]
        same = np.ones(len(peak))
        return Rates(
            peak, same * gpu.bandwidth * scale[1], same * gpu.processors, same * gpu.clock,
            same * gpu.cache_rate, same * gpu.reach,
        )  # fmt: skip


_TABLES = {("gemm", "float32"): ("m", "n", "k"), ("bmm", "float32"): ("b", "m", "n", "k")}
_SIDES = {"b": "batch", "m": "rows", "n": "columns", "k": "loop"}


def _correction(key: Key, gpu: Numbers, work: Work) -> F64:
    out = np.ones(len(work.moved))
    if key not in _TABLES:
        return out
    with_table = store.fits()[key[0], "fp32"].gpus
    like = gpu.name
    if like not in with_table:
        like = kin(gpu.name, with_table, {name: nominal(name) for name in (gpu.name, *with_table)})
    if like:
        place = np.stack([getattr(work, _SIDES[axis]) * 1024 for axis in _TABLES[key]], axis=1)
        out = np.exp(store.table(key[0], "fp32", like).at(place))
    return out


def numbers_of(gpu: str) -> Numbers:
    """The GPU with the rates that its kernels were measured to reach, where they were."""
    known = {name: rate for name, rate in store.rates().get(gpu, {}).items() if name != "sustained"}
    plain = nominal(gpu)
    bandwidth = known.pop("bandwidth", plain.bandwidth)
    return replace(plain, peak={**plain.peak, **known}, bandwidth=bandwidth, measured=frozenset(known))


def base(keys: Sequence[Key]) -> StepModel:
    """The model before any step was seen."""
    return StepModel({key: start(key[0], "float16" if key[1] == "half" else "float32") for key in keys})


def as_shipped(keys: Sequence[Key]) -> StepModel:
    """The model as `steps.yaml` has it, with `base` for what is not there."""
    known, rates = store.of_steps(), dict[str, tuple[float, float]]()
    for gpu, found in store.rates_of_steps().items():
        numbers = numbers_of(gpu)
        peak = next(kind for kind in found if kind != "bandwidth")
        rates[gpu] = found[peak] / numbers.peak[peak], found["bandwidth"] / numbers.bandwidth
    return StepModel({key: known.get(key, c) if free(key) else c for key, c in base(keys).classes.items()}, rates)


_SPREAD = {"compute": 0.35, "memory": 0.35, "fill": 1.0, "tile": 1.0, "special": 1.0, "blend": 0.7}
_BOUNDS = {
    "compute": (0.02, 1.25), "memory": (0.05, 1.1),
    "fill": (1, 2e3), "tile": (1, 2e3), "special": (0.01, 30), "blend": (1.1, 8),
}


def _bounds(key: Key, name: str) -> tuple[float, float]:
    """Conversions are guessed for all convolutions, and some need none: there, memory may seem faster than it is."""
    return (0.3, 10.0) if key[0].startswith("conversion") else _BOUNDS[name]


_RATES_SPREAD = 0.1
_PEAK_FACTOR, _BANDWIDTH_FACTOR = (0.67, 1.5), (0.86, 1.06)
_PENALTY = 0.02
"""Weight of all penalties against the mean row."""


def free(key: Key) -> tuple[str, ...]:
    """The coefficients of a class that whole steps may move."""
    kind = key[0].split()[0]
    if kind in ("gemm", "bmm", "attention") or (key[1] == "float32" and key[0] in (*_ALIKE, "layer_norm", "softmax", "conv")):
        return ()  # such kernels were measured on GPUs of these generations
    if kind == "conv":
        return ("compute", "memory", "fill") if "depthwise" in key[0] else ("compute", "memory", "fill", "tile", "blend")
    if kind == "rnn":
        return ("compute", "memory")
    return ("memory",)


def fit(steps: ReadySteps, keys: Sequence[Key], penalty: float = _PENALTY) -> StepModel:
    """Coefficients of all classes `keys` and two factors for each GPU, fitted on steps none of which is held out."""
    return _fitted(steps, base(keys), steps.keys, sorted(set(steps.gpu.tolist())), penalty)


def refit(steps: ReadySteps, model: StepModel, keys: Sequence[Key], penalty: float = _PENALTY) -> StepModel:
    """The model with the coefficients of the classes `keys` alone fitted anew, from where no step was seen."""
    return _fitted(steps, replace(model, classes={**model.classes, **base(keys).classes}), keys, [], penalty)


def _fitted(steps: ReadySteps, model: StepModel, keys: Sequence[Key], gpus: Sequence[str], penalty: float) -> StepModel:
    """The free coefficients of `keys` and the factors of `gpus`, drawn to where `model` has them; what else it has stays."""
    _refuse_held(steps)
    places = [(key, name) for key in keys for name in free(key)]
    begin = np.array([np.log(getattr(model.classes[key], name)) for key, name in places] + [0.0] * 2 * len(gpus))
    spread = np.array([_SPREAD[name] for _, name in places] + [_RATES_SPREAD] * 2 * len(gpus))
    bounds = [_bounds(key, name) for key, name in places] + [_PEAK_FACTOR, _BANDWIDTH_FACTOR] * len(gpus)
    low, high = np.log(np.array(bounds)).T
    measured, weight = np.log(steps.measured), np.sqrt(penalty * len(steps.steps) / max(len(begin), 1))

    def at(x: F64) -> StepModel:
        classes = dict(model.classes)
        for (key, name), value in zip(places, np.exp(x[: len(places)]).tolist(), strict=True):
            classes[key] = replace(classes[key], **{name: value})
        factors = np.exp(x[len(places) :]).reshape(-1, 2).tolist()
        return StepModel(classes, {**model.rates, **{gpu: (a, b) for gpu, (a, b) in zip(gpus, factors, strict=True)}})

    def residual(x: F64) -> F64:
        off = np.log(steps.predict(at(x))) - measured
        return np.concatenate([off, weight * 0.1 * (x - begin) / spread])

    x, _ = minimise(residual, np.clip(begin, low, high), low, high, steps=30)
    return at(x)


def rates_of(steps: ReadySteps, model: StepModel, gpu: str) -> StepModel:
    """The model with two numbers of one GPU, its peak and its bandwidth, as its steps show them; no class is fitted."""
    _refuse_held(steps)
    measured = np.log(steps.measured)

    def at(x: F64) -> StepModel:
        return StepModel(model.classes, {**model.rates, gpu: (float(np.exp(x[0])), float(np.exp(x[1])))})

    def residual(x: F64) -> F64:
        return np.asarray(np.log(steps.predict(at(x))) - measured, np.float64)

    x, _ = minimise(residual, np.zeros(2), np.full(2, -0.7), np.full(2, 0.7), steps=15)
    return at(x)


def _refuse_held(steps: ReadySteps) -> None:
    if any(step.held for step in steps.steps):
        raise ValueError("held-out steps are never fitted")
