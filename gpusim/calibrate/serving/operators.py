"""How far operators and steps are off that a slice held out: scored, kept as a table, and made into the shipped intervals."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.calibrate.serving import slices, steps, vidur
from gpusim.calibrate.serving.slices import HeldOut
from gpusim.machine.serving.tables import ServingTables

DATA = Path(__file__).parents[1] / "data" / "serving_held_out.csv"
MACHINES = {
    "a100-sxm4-80gb": "dgx-a100", "h100-sxm-80gb": "hgx-h100", "h200-sxm": "hgx-h200", "l40s": "", "b200-sxm": "hgx-b200",
    "gb200": "", "b300-sxm": "",
}  # fmt: skip
"""Machines with tables -> one of several GPUs, where that is known."""
FRAMEWORKS = ("vllm", "sglang")
WITHIN = ("heads", "batch", "matrix")
FROM_KIN, FROM_FORM, LINKS = "GPU, from its kin", "GPU, from the form", "links"
OTHER = ("norm", "activation", "rotation")
PARTS = {"gemm": ("gemm",), "attention": ("decode", "prefill")}


@dataclass(frozen=True)
class SliceError:
    """Slices of one rule, class and machine together: |stated / measured - 1|, and percentiles of log(measured / stated)."""

    rule: str
    framework: str
    machine: str
    kind: str
    dtype: str
    rows: int
    median: float
    p90: float
    signed: float
    low: float
    high: float


def score(folder: Path, measured_by_vidur: Path | None = None) -> Iterator[SliceError]:
    """Every rule on every machine and framework with tables; Vidur's where its folder is given."""
    if measured_by_vidur is not None:
        yield from together(vidur.measured(measured_by_vidur, folder))
    for framework in FRAMEWORKS:
        for machine, several in MACHINES.items():
            tables = ServingTables(folder, machine, framework)
            if tables.gemm("bf16") is None or tables.decode("bf16") is None:
                continue
            found = [slices.within(tables), slices.by_version(tables), slices.by_version_of_exchanges(tables)]
            found += [slices.by_machine(tables)]
            found += [steps.steps_within(tables), steps.steps_of_the_version_before(tables), steps.steps_elsewhere(tables)]
            found += [slices.by_links(tables, several)] if several else []
            yield from together(chain(*found))


def together(held: Iterable[HeldOut]) -> list[SliceError]:
    """Slices of one rule and class as one row, all their rows alike."""
    groups: dict[tuple[str, ...], list[HeldOut]] = {}
    for one in held:
        groups.setdefault((one.rule, one.framework, one.machine, one.kind, one.dtype), []).append(one)
    found = []
    for key, own in groups.items():
        log = np.concatenate([one.log for one in own])
        if len(log):
            off = np.abs(np.expm1(log))
            low, high = np.quantile(-log, [0.1, 0.9])
            median, p90, signed = np.median(off), np.quantile(off, 0.9), np.expm1(np.median(log))
            rule, framework, machine, kind, dtype = key
            found.append(
                SliceError(
                    rule, framework, machine, kind, dtype, len(log), float(median), float(p90), float(signed), float(low),
                    float(high),
                )
            )  # fmt: skip
    return found


def write(scored: Iterable[SliceError], path: Path = DATA) -> None:
    """Keep these."""
    with path.open("w", newline="", encoding="utf-8") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow([f.name for f in fields(SliceError)])
        for one in scored:
            out.writerow([f"{value:.4f}" if isinstance(value, float) else value for value in asdict(one).values()])


def read(path: Path = DATA) -> list[SliceError]:
    """What was kept."""
    found = []
    with path.open(newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            numbers: dict[str, Any] = {name: float(row[name]) for name in ("median", "p90", "signed", "low", "high")}
            rule, framework, machine, kind, dtype = (row[name] for name in ("rule", "framework", "machine", "kind", "dtype"))
            found.append(SliceError(rule, framework, machine, kind, dtype, int(row["rows"]), **numbers))
    return found


def intervals(scored: Iterable[SliceError]) -> str:
    """`machine/serving/data/intervals.yaml`: the widest of machines in the median, by basis and part."""
    rows = list(scored)
    lines = [
        "# 10th and 90th percentile of log(true / stated) of operators that a slice held out, by how a class is known: the",
        "# median over machines and frameworks.  By `python -m gpusim.calibrate.serving intervals`.",
    ]
    rules = {"measured": WITHIN, "family": (FROM_KIN,), "form": (FROM_FORM,)}
    links = _middle([one for one in rows if one.rule == LINKS])
    for basis, of in rules.items():
        lines.append(f"{basis}:")
        for part, kinds in PARTS.items():
            low, high = _middle([one for one in rows if one.rule in of and one.kind in kinds])
            lines.append(f"  {part}: [{low:.3f}, {high:.3f}]")
        low, high = links if basis == "form" else _middle([o for o in rows if o.rule == "version" and o.kind == "all_reduce"])
        lines.append(f"  collectives: [{low:.3f}, {high:.3f}]")
        low, high = _middle([one for one in rows if one.rule == vidur.RULE and one.kind in OTHER])
        lines.append(f"  other: [{low:.3f}, {high:.3f}]")
    return "\n".join(lines)


def _middle(rows: list[SliceError]) -> tuple[float, float]:
    return float(np.median([one.low for one in rows])), float(np.median([one.high for one in rows]))
