"""Writes what the product reads: `gpusim/machine/kernels/data/kernels.yaml` and `tables.npz`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.calibrate.kernel_times.fit import FittedClass, fit, measured_numbers, rounded
from gpusim.calibrate.kernel_times.gpus import PROFILES, SAME, nominal
from gpusim.calibrate.kernel_times.rows import LONGEST_LAUNCH, Rows, source_of
from gpusim.calibrate.kernel_times.score import groups, kin
from gpusim.calibrate.kernel_times.step_fit import Key, StepModel, free, numbers_of
from gpusim.calibrate.kernel_times.steps import PublishedStep
from gpusim.machine.kernels.numbers import Numbers
from gpusim.machine.kernels.physics import ClassCoefficients
from gpusim.machine.kernels.store import packed, rates_of_steps
from gpusim.machine.profile import load_file

HEADER = """\
# Coefficients of kernel times (see gpusim/machine/kernels/physics.py) by `python -m gpusim.calibrate.kernel_times fit FOLDER`.
# Intervals: 10th and 90th percentile of log(measured / model) on rows that the fit did not see, by basis: measured (a table of
# this GPU), family (a table of its kin), class (another GPU's, with its own rates), default (rates from the vendor's numbers).
"""
_FEW = 1000  # rows of kin, whose interval is then that of other GPUs' rows as well
FLOOR = ("gemm", "bf16")
"""Whose floor, of kernels launched from graphs, replaces floors that have the launch in them."""


def write(tables: list[Rows], warm: dict[str, float], folder: Path) -> str:
    """Fit all classes and write both files; what was fitted on which rows, as text.  `warm`: see `rows.sustained`."""
    gpus = measured_numbers(tables)
    done: dict[tuple[str, str], tuple[list[Rows], FittedClass]] = {
        (group[0].what, group[0].dtype): (group, fit(group, gpus)) for group in groups(tables)
    }
    floor = done[FLOOR][1].coefficients.floor if FLOOR in done else None
    lines, arrays, report = [HEADER, "classes:"], dict[str, Any](), []
    for (what, dtype), (group, fitted) in done.items():
        sources = {source_of(rows) for rows in group}
        origins = (*sorted({s.origin for s in sources}), *sorted({name for rows in group for name in rows.files}))
        c = fitted.coefficients
        if floor is not None and any(source.least >= LONGEST_LAUNCH for source in sources):
            c = replace(c, floor=floor)
        lines += [
            f"  - what: {what}",
            f"    type: {dtype}",
            f'    source: "{", ".join(origins)}"',
            f"    licence: {'; '.join(sorted({s.licence for s in sources}))}",
            f"    rows: {fitted.rows}",
            f"    axes: [{', '.join(fitted.axes)}]",
            f"    tables: [{', '.join(sorted(SAME.get(gpu, gpu) for gpu in fitted.tables))}]",
            f"    coefficients: {{{_flow(c)}}}",
            "    intervals:",
            *(f"      {basis}: [{low:.3f}, {high:.3f}]" for basis, (low, high) in intervals(group, fitted, gpus).items()),
        ]
        for gpu, lattice in fitted.tables.items():
            arrays |= packed(f"{what}/{dtype}/{SAME.get(gpu, gpu)}", lattice)
        report.append(f"{what} {dtype}: {fitted.rows} rows of {', '.join(fitted.gpus)}, held-out shapes apart")
    lines.append("rates:  # in short runs: flop/s of a large GEMM by type, bytes/s of streaming; sustained: share when warm")
    for name, numbers in gpus.items():
        known = {kind: rate for kind, rate in numbers.peak.items() if kind in numbers.measured}
        if "bandwidth" in numbers.measured:
            known["bandwidth"] = numbers.bandwidth
        if name in warm:
            known["sustained"] = warm[name]
        if known and name not in SAME:
            lines.append(f"  {name}: {{{', '.join(f'{kind}: {rate:.4g}' for kind, rate in known.items())}}}")
    lines += vendors(tuple(sorted({SAME.get(name, name) for name in gpus} | set(rates_of_steps()))))
    (folder / "kernels.yaml").write_text("\n".join(lines) + "\n")
    np.savez_compressed(folder / "tables.npz", **arrays)
    return "\n".join(report)


def vendors(names: tuple[str, ...]) -> list[str]:
    """The lines that say by which numbers the measured GPUs are known again."""
    lines = ["gpus:  # the vendor's numbers, and bytes/s of copies as the profile has them"]
    for name in names:
        gpu = nominal(name)
        copy = load_file(path).memory.copy.value if (path := PROFILES / f"{name}.yaml").is_file() else gpu.bandwidth
        entry = {
            "capability": gpu.capability, "processors": gpu.processors, "hbm": int(gpu.hbm), "bandwidth": gpu.nominal_bandwidth,
            "copy": copy, "power": gpu.power, **gpu.nominal_peak,
        }  # fmt: skip
        lines.append(f"  {name}: {{{', '.join(f'{key}: {value:.6g}' for key, value in entry.items())}}}")
    return lines


STEPS_HEADER = """\
# Coefficients of classes by `python -m gpusim.calibrate.kernel_times fit-steps FOLDER PROGRAMS`: what whole steps of eager
# PyTorch say (gpusim/calibrate/kernel_times/step_fit.py), drawn towards what measured kernels say.  "half": float16, bfloat16.
"""
STEPS_SOURCE = (
    "huggingface/pytorch-image-models @ aa4b5850c1, results (Apache-2.0); trsharm25/NeuSight @ db1fdc9666, label (MIT); "
    "name families left out by gpusim/calibrate/kernel_times/held_out.py"
)


def write_steps(
    model: StepModel, steps: Sequence[PublishedStep], bars: dict[str, tuple[float, float]], folder: Path
) -> str:
    """Write the second-level fit as `steps.yaml`; what was fitted, as text."""
    lines = [STEPS_HEADER, f'source: "{STEPS_SOURCE}"', f"steps: {len(steps)}", f"networks: {len({s.network for s in steps})}"]
    half = sorted({step.gpu for step in steps if step.source == "timm"})
    lines += ["gpus:", f"  half: [{', '.join(half)}]", f"  float32: [{', '.join(sorted({step.gpu for step in steps}))}]"]
    lines.append("intervals:  # 10th and 90th percentile of log(measured / model) of whole steps that were not fitted")
    lines += [f"  {basis}: [{low:.3f}, {high:.3f}]" for basis, (low, high) in bars.items()]
    lines.append("classes:")
    lines += [_class_line(key, model) for key in sorted(model.classes) if free(key)]
    lines.append("rates:  # flop/s of large products by element type, bytes/s of streaming, as whole steps show them")
    for gpu, (peak, bandwidth) in sorted(model.rates.items()):
        numbers = numbers_of(gpu)
        kind = "fp16" if any(step.gpu == gpu and step.source == "timm" for step in steps) else "fp32"
        lines.append(f"  {gpu}: {{{kind}: {numbers.peak[kind] * peak:.4g}, bandwidth: {numbers.bandwidth * bandwidth:.4g}}}")
    (folder / "steps.yaml").write_text("\n".join(lines) + "\n")
    return f"{sum(map(bool, map(free, model.classes)))} classes from {len(steps)} steps"


def write_classes(model: StepModel, keys: Sequence[Key], steps: Sequence[PublishedStep], folder: Path) -> str:
    """Replace the coefficients of the classes `keys` in `steps.yaml`, and tell there which steps show them; that, as text."""
    path, said = folder / "steps.yaml", "refitted: "
    names, gpus = (", ".join(sorted(set(words))) for words in ([what for what, _ in keys], [step.gpu for step in steps]))
    told = f"{names} alone, on {len(steps)} steps of {len({s.network for s in steps})} networks ({gpus}), all else as it was"
    own = {_class_line(key, model).partition(" coefficients")[0]: _class_line(key, model) for key in keys}
    lines = [line for line in path.read_text().splitlines() if not line.startswith(said)]
    lines = [own.get(line.partition(" coefficients")[0], line) for line in lines]
    at = next(i for i, line in enumerate(lines) if line.startswith("networks:")) + 1
    path.write_text("\n".join([*lines[:at], f'{said}"{told}"', *lines[at:]]) + "\n")
    return told


def _class_line(key: Key, model: StepModel) -> str:
    return f"  - {{what: {key[0]}, type: {key[1]}, coefficients: {{{_flow(rounded(model.classes[key]))}}}}}"


def intervals(group: list[Rows], fitted: FittedClass, gpus: dict[str, Numbers]) -> dict[str, tuple[float, float]]:
    """By basis, from rows that the fit did not see; a basis that no row can show has the next worse one's."""
    left: dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]] = {"measured": [], "family": [], "class": [], "default": []}
    for rows in group:
        held = rows.take(rows.held)
        if len(held):
            own = {name: name for name in fitted.tables}
            left["measured"].append(np.log(held.time / fitted.predict(held, gpus, own)))
    for name in fitted.gpus if len(fitted.gpus) > 1 else ():
        others = fit(group, gpus, {name: False})
        like = kin(name, tuple(others.tables), gpus)
        unknown = {**gpus, name: nominal(name)}
        for rows in group:
            here = rows.take(rows.gpu == name)
            if not len(here):
                continue
            if like:
                left["family"].append(np.log(here.time / others.predict(here, gpus, {name: like})))
            left["class"].append(np.log(here.time / others.predict(here, gpus)))
            left["default"].append(np.log(here.time / others.predict(here, unknown)))
    found: dict[str, tuple[float, float]] = {}
    if sum(map(len, left["family"])) < _FEW:
        left["family"] += left["class"]
    worse = (-0.7, 0.7)  # where nothing was left out: a factor of two
    for basis in ("default", "class", "family", "measured"):
        if left[basis]:
            low, high = np.quantile(np.concatenate(left[basis]), (0.1, 0.9))
            worse = (float(low), float(high))
        found[basis] = worse
    return dict(reversed(found.items()))


def _flow(c: ClassCoefficients) -> str:
    return ", ".join(f"{f.name}: {getattr(c, f.name):g}" for f in fields(ClassCoefficients))
