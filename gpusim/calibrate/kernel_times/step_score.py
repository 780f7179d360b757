"""The errors of whole steps: model / measured - 1, beside three models that know less.

    runs        what runs take, from what is shipped; inside: steps within its interval, which is meant to hold 80 %
    model       coefficients of measured kernels, then the second-level fit on visible steps; families left out were not fitted
    kernels     the same before any step was fitted
    other GPUs  fitted on the steps of the other GPUs, with no rate of this GPU from a step
    two numbers the same with a peak and a bandwidth that this GPU's visible steps show
    before      the model before this one
    nominal     each operator's larger side at the vendor's numbers
    two features  a * products + b * activations + c, fitted on the visible steps of the same table
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.calibrate.kernel_times.before import modelled_before
from gpusim.calibrate.kernel_times.gpus import PROFILES, SAME, nominal
from gpusim.calibrate.kernel_times.least_squares import minimise
from gpusim.calibrate.kernel_times.score import errors
from gpusim.calibrate.kernel_times.step_fit import (
    HALF,
    HOST,
    Key,
    ReadySteps,
    StepModel,
    as_shipped,
    base,
    fit,
    numbers_of,
    rates_of,
    refit,
)
from gpusim.calibrate.kernel_times.steps import PublishedStep, StepPrograms
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.machine.kernels.store import of_steps
from gpusim.machine.profile import load_file
from gpusim.trace.build import TraceBuilder

F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StepScore:
    """One line of the table."""

    source: str
    gpu: str
    group: str
    """Mode, layout and version of PyTorch, or all"""
    held: bool
    rows: int
    errors: dict[str, tuple[float, float, float]]
    inside: float
    """Share of the steps within the interval that runs state."""


@dataclass(frozen=True, eq=False)
class StepTimes:
    """(N,) ns of the steps of one GPU: measured, as runs have them, and by the roofline that was before; nan: no profile."""

    source: str
    gpu: str
    measured: F64
    runs: F64
    before: F64
    held: npt.NDArray[np.bool_]
    """Left out of every fit"""


def simulated(programs: StepPrograms, steps: Sequence[PublishedStep]) -> list[StepTimes]:
    """What is shipped, without a fit; the sources with the most steps first."""
    ready = ReadySteps(programs, steps, {gpu: numbers_of(gpu) for gpu in {step.gpu for step in steps}})
    runs, old = shipped(programs, ready)[0], before(programs, ready)
    held = np.array([step.held for step in ready.steps])
    found = []
    for source, gpu in sorted({(step.source, step.gpu) for step in ready.steps}):
        own = np.array([(step.source, step.gpu) == (source, gpu) for step in ready.steps])
        found.append(StepTimes(source, gpu, ready.measured[own], runs[own], old[own], held[own]))
    return sorted(found, key=lambda each: -len(each.measured))


def evaluate(programs: StepPrograms, steps: Sequence[PublishedStep]) -> tuple[list[StepScore], str, StepModel]:
    """All lines, which steps each fit used, and the fitted model."""
    gpus = {gpu: numbers_of(gpu) for gpu in {step.gpu for step in steps}}
    ready = ReadySteps(programs, steps, gpus)
    model, visible = fit_all(programs, steps)
    used = ["| fit | steps | networks | GPUs |", "| --- | ---: | ---: | --- |", _used("model", visible)]
    found = {"model": ready.predict(model), "kernels": ready.predict(base(ready.keys))}
    found |= {name: np.full(len(ready.steps), np.nan) for name in ("other GPUs", "two numbers")}
    for gpu in sorted(set(ready.gpu.tolist())):
        here = ready.gpu == gpu
        others = thinned([step for step in ready.steps if not step.held and step.gpu != gpu])
        own = [step for step in visible if step.gpu == gpu]
        elsewhere = StepModel(fit(ReadySteps(programs, others, gpus), ready.keys).classes)
        found["other GPUs"][here] = ready.predict(elsewhere)[here]
        found["two numbers"][here] = ready.predict(rates_of(ReadySteps(programs, own, gpus), elsewhere, gpu))[here]
        used += [_used(f"other GPUs than {gpu}", others), _used(f"two numbers of {gpu}", own)]
    held = np.array([step.held for step in ready.steps])
    groups = np.array([f"{s.mode} {s.config if s.source == 'timm' else ''}".strip() for s in ready.steps])
    found["two features"] = two(programs, ready, groups, held)
    found |= {"before": before(programs, ready), "nominal": roofline(programs, ready)}
    found["runs"], low, high = shipped(programs, ready)
    log = np.log(ready.measured / found["runs"])
    within = np.where(np.isnan(log), np.nan, (log >= low) & (log <= high))
    lines = []
    for source, gpu in sorted({(step.source, step.gpu) for step in ready.steps}, reverse=True):
        own_rows = np.array([(step.source, step.gpu) == (source, gpu) for step in ready.steps])
        for group in (*sorted(set(groups[own_rows].tolist())), "all"):
            for left in (False, True):
                rows = own_rows & (held == left) & ((groups == group) | (group == "all"))
                if rows.any():
                    e = {name: errors(time[rows], ready.measured[rows]) for name, time in found.items()}
                    lines.append(StepScore(source, gpu, group, left, int(rows.sum()), e, float(within[rows].mean())))
    return lines, "\n".join(used), model


def fit_all(programs: StepPrograms, steps: Sequence[PublishedStep]) -> tuple[StepModel, list[PublishedStep]]:
    """The fit on visible steps of all GPUs, and these steps."""
    gpus = {gpu: numbers_of(gpu) for gpu in {step.gpu for step in steps}}
    ready = ReadySteps(programs, steps, gpus)
    visible = thinned([step for step in ready.steps if not step.held])
    return fit(ReadySteps(programs, visible, gpus), ready.keys), visible


def refit_classes(
    programs: StepPrograms, steps: Sequence[PublishedStep], classes: Sequence[str]
) -> tuple[StepModel, list[Key], list[PublishedStep]]:
    """What is shipped with some classes fitted anew, on the visible steps that run them; their keys, and these steps."""
    if unknown := set(classes) - {what for what, _ in of_steps()}:
        raise GpusimError(f"{', '.join(sorted(unknown))}: no class that whole steps were fitted for", hint="see steps.yaml")
    gpus = {gpu: numbers_of(gpu) for gpu in {step.gpu for step in steps}}
    ready = ReadySteps(programs, [step for step in steps if not step.held], gpus)
    now = as_shipped(ready.keys)
    keys = sorted(key for key in of_steps() if key[0] in classes)
    time = sum((ns for key, ns in ready.by_class(now).items() if key in keys), np.zeros(len(ready.steps)))
    own = thinned([step for step, runs in zip(ready.steps, time > 0, strict=True) if runs])
    return refit(ReadySteps(programs, own, gpus), now, keys), keys, own


MOST = 500
"""Steps that a fit looks at: networks drawn evenly, with all their rows."""


def thinned(steps: list[PublishedStep]) -> list[PublishedStep]:
    """At most about MOST steps of one GPU."""
    out: list[PublishedStep] = []
    for gpu in sorted({step.gpu for step in steps}):
        own = [step for step in steps if step.gpu == gpu]
        share = -(-len(own) // MOST)
        networks = sorted({step.network for step in own})
        keep = set(networks[::share])
        out += [step for step in own if step.network in keep]
    return out


def intervals(programs: StepPrograms, steps: Sequence[PublishedStep]) -> dict[str, tuple[float, float]]:
    """By basis, from visible steps that a fit did not see: of other families of networks, and of other GPUs.

    Errors of one step's classes go together: each class has the interval of the steps.
    """
    gpus = {gpu: numbers_of(gpu) for gpu in {step.gpu for step in steps}}
    ready = ReadySteps(programs, thinned([step for step in steps if not step.held and step.program in programs.names]), gpus)
    log: dict[str, list[F64]] = {"measured": [], "class": [], "default": []}

    def left(basis: str, model: StepModel, where: npt.NDArray[np.bool_]) -> None:
        log[basis].append(np.log(ready.measured / ready.predict(model))[where])

    def fitted(where: npt.NDArray[np.bool_]) -> StepModel:
        return fit(ReadySteps(programs, [s for s, of in zip(ready.steps, where, strict=True) if of], gpus), ready.keys)

    families = sorted({step.family for step in ready.steps})
    odd = np.array([families.index(step.family) % 2 == 1 for step in ready.steps])
    left("measured", fitted(odd), ~odd)
    left("measured", fitted(~odd), odd)
    for gpu in sorted({step.gpu for step in ready.steps if step.source == "timm"}):
        here = ready.gpu == gpu
        elsewhere = StepModel(fitted(~here).classes)
        left("default", elsewhere, here)
        own = [step for step in ready.steps if step.gpu == gpu]
        left("class", rates_of(ReadySteps(programs, own, gpus), elsewhere, gpu), here)
    found = {}
    for basis, parts in log.items():
        low, high = np.quantile(np.concatenate(parts), (0.1, 0.9))
        found[basis] = (float(low), float(high))
    return {**found, "family": found["class"]}


def shipped(programs: StepPrograms, ready: ReadySteps) -> tuple[F64, F64, F64]:
    """(N,) ns as runs have it, and the ends of its interval as logarithms; nan where the catalogue lacks the GPU."""
    build = TraceBuilder("operators")
    build.begin_phase("fwd")
    for name, dtype, shape, flops, read, written in programs.operators:
        build.op(name, [], [], read_bytes=read, written_bytes=written, flops=flops, dtype=dtype, shape=shape or None)
    trace = build.finish()
    out = [np.full(len(ready.steps), np.nan) for _ in range(3)]
    for gpu in sorted(set(ready.gpu.tolist())):
        path, here = PROFILES / f"{SAME.get(gpu, gpu)}.yaml", ready.gpu == gpu
        if path.exists():
            found = modelled_durations(trace, load_file(path))
            time = found.ns.astype(np.float64)
            ns, low, high = (_summed(programs, ready, value) for value in (time, time * found.low, time * found.high))
            for column, value in zip(out, (np.maximum(ns, ready.operators * HOST), low / ns, high / ns), strict=True):
                column[here] = value[here]
    return out[0], out[1], out[2]


def _used(name: str, steps: Sequence[PublishedStep]) -> str:
    return f"| {name} | {len(steps)} | {len({s.network for s in steps})} | {', '.join(sorted({s.gpu for s in steps}))} |"


def before(programs: StepPrograms, ready: ReadySteps) -> F64:
    """(N,) ns by the roofline that the product has had."""
    build = TraceBuilder("operators")
    build.meta = {"tf32": False}
    build.begin_phase("fwd")
    for name, dtype, _, flops, read, written in programs.operators:
        plain = name.removeprefix("aten.").split(".")[0]
        build.op(plain, [], [], read_bytes=read, written_bytes=written, flops=flops, dtype=dtype)
    trace = build.finish()
    out = np.zeros(len(ready.steps))
    for gpu in sorted(set(ready.gpu.tolist())):
        path = PROFILES / f"{SAME.get(gpu, gpu)}.yaml"
        if not path.exists():
            out[ready.gpu == gpu] = np.nan
            continue
        time = modelled_before(trace, load_file(path)).astype(np.float64)
        out += np.where(ready.gpu == gpu, _summed(programs, ready, time), 0.0)
    return out


def roofline(programs: StepPrograms, ready: ReadySteps) -> F64:
    """(N,) ns by the vendor's peak and bandwidth."""
    flops = np.array([o[3] for o in programs.operators])
    moved = np.array([float(o[4] + o[5]) for o in programs.operators])
    half = np.array([o[1] in HALF for o in programs.operators])
    out = np.zeros(len(ready.steps))
    for gpu in sorted(set(ready.gpu.tolist())):
        known = nominal(gpu)
        peaks = known.nominal_peak
        fast = peaks.get(known.rate("float16")[1], peaks["fp32"])
        time = np.maximum(flops / np.where(half, fast, peaks["fp32"]), moved / known.nominal_bandwidth) * 1e9
        out += np.where(ready.gpu == gpu, _summed(programs, ready, time), 0.0)
    return out


def two(programs: StepPrograms, ready: ReadySteps, groups: npt.NDArray[np.str_], held: npt.NDArray[np.bool_]) -> F64:
    """(N,) ns by products and activations, with three numbers for each GPU and group."""
    product = np.array([o[3] > 0 for o in programs.operators])
    flops = _summed(programs, ready, np.array([o[3] for o in programs.operators]))
    written = _summed(programs, ready, np.where(product, np.array([float(o[5]) for o in programs.operators]), 0.0))
    features = np.stack([flops, written, np.full(len(flops), 1e6)], axis=1)
    out = np.full(len(flops), np.nan)
    for gpu in sorted(set(ready.gpu.tolist())):
        for group in sorted(set(groups[ready.gpu == gpu].tolist())):
            here = (ready.gpu == gpu) & (groups == group)
            seen = here & ~held
            if seen.sum() < 6:
                continue
            x, log = features[seen], np.log(ready.measured[seen])
            first = np.log(np.median(ready.measured[seen, None] / x, axis=0) / np.array([3, 3, 30]))
            wide = np.full(3, 12.0)
            a, _ = minimise(lambda p, x=x, log=log: np.log(x @ np.exp(p)) - log, first, first - wide, first + wide)  # type: ignore[misc]
            out[here] = features[here] @ np.exp(a)
    return out


def _summed(programs: StepPrograms, ready: ReadySteps, value: F64) -> F64:
    """(N,) of a value of each operator."""
    index = {name: i for i, name in enumerate(programs.names)}
    total = np.bincount(programs.line_program, programs.line_count * value[programs.line_operator], len(programs.names))
    return np.asarray(total[[index[step.program] for step in ready.steps]], np.float64)


COLUMNS = ("runs", "model", "kernels", "other GPUs", "two numbers", "two features", "before", "nominal")


def text(lines: list[StepScore], used: str) -> str:
    """The table in Markdown: per cent, median / p90 (signed median)."""
    out = [
        f"| rows | GPU | mode | networks | steps | inside, % | {' | '.join(COLUMNS)} |",
        f"| --- | --- | --- | --- | ---: | ---: |{' --- |' * len(COLUMNS)}",
    ]
    for line in lines:
        cells = []
        for name in COLUMNS:
            m, p, s = (100 * e for e in line.errors[name])
            cells.append("-" if np.isnan(m) else f"{m:.1f} / {p:.0f} ({s:+.1f})")
        which = "left out" if line.held else "seen"
        out.append(
            f"| {line.source} | {line.gpu} | {line.group} | {which} | {line.rows} | "
            f"{'-' if np.isnan(line.inside) else f'{100 * line.inside:.0f}'} | {' | '.join(cells)} |"
        )
    return "\n".join([*out, "", used])
