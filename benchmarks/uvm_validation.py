"""Every published unified-memory measurement beside what the model says: a table, and a figure.

    PYTHONPATH=. python benchmarks/uvm_validation.py

writes docs/unified_memory_measurements.md and docs/figures/unified_memory.{svg,png}; the text around the tables is
benchmarks/uvm_validation.md.  uvm_before.csv has what was simulated with the programs as they were transcribed first.
"""

from __future__ import annotations

import csv
from collections import Counter, defaultdict
from collections.abc import Collection
from pathlib import Path
from statistics import median

import numpy as np
from matplotlib.figure import Figure
from uvm_rows import Comparison, compare
from uvm_sources import table as sources

from gpusim.calibrate.uvm import read
from gpusim.show.agreement import AXES, ROW, Cloud, panel
from gpusim.show.panels import grid, shape
from gpusim.show.style import BLUE, canvas, headline, save, styled

ROOT = Path(__file__).parent.parent
TEXT = Path(__file__).with_suffix(".md")
TABLE = ROOT / "docs" / "unified_memory_measurements.md"
FIGURE = ROOT / "docs" / "figures" / "unified_memory"
BEFORE = Path(__file__).with_name("uvm_before.csv")
FEW = 8  # rows from which a machine has a panel of its own
WIDEST = 12.0  # ratio up to which the axis reaches


def short(name: str) -> str:
    """The machine, by one name for what different sources call it."""
    name = name.split("(")[0].replace("GeForce ", "").replace("Tesla ", "").replace("NVIDIA ", "")
    for known in ("GTX 1080 Ti", "GTX 1080", "GTX 1060", "RTX 5070 Ti", "RTX 2060", "Titan V", "P100", "T4", "Quadro P4000",
                  "RTX 2080 Super", "GH200", "H100"):  # fmt: skip
        if name.startswith((known, f"Quad {known}")):
            return known
    if "AC922" in name:
        return "V100, POWER9"
    return "V100, x86" if "V100" in name else name.strip()[:24] or "not stated"


def number(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:+.0f} %"


def summary(rows: list[Comparison], fitted: Collection[str] = ()) -> list[str]:
    """A row for each machine; `fitted`: those to which costs were fitted, all others are derived from them."""
    errors, there = defaultdict(list), Counter(short(c.row.hardware) for c in rows)
    for c in rows:
        if c.error is not None:
            errors[short(c.row.hardware)].append((abs(c.error), c.row.id))
    lines = ["| machine | costs | rows | run | median error | p90 | worst error | of row |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: | --- |"]  # fmt: skip
    for name in sorted(there, key=lambda name: (name not in fitted, name.casefold())):
        run = sum(c.simulated is not None for c in rows if short(c.row.hardware) == name)
        known = errors[name]
        mid, worst = (spread([e for e, _ in known]), max(known)) if known else (" | ", None)
        costs = "fitted" if name in fitted else "derived"
        of_worst = " | " if worst is None else f"{100 * worst[0]:.0f} % | {worst[1]}"
        lines.append(f"| {name} | {costs} | {there[name]} | {run} | {mid} | {of_worst} |")
    for costs, of in (("fitted", set(fitted)), ("derived", set(there) - set(fitted))):
        known = [e for name in of for e, _ in errors[name]]
        run = sum(c.simulated is not None for c in rows if short(c.row.hardware) in of)
        if known:
            lines.append(f"| all | {costs} | {sum(there[name] for name in of)} | {run} | {spread(known)} | | |")
    return lines


def spread(errors: Collection[float]) -> str:
    """Median and 90th percentile, two cells of a table."""
    return f"{100 * median(errors):.0f} % | {100 * np.percentile(list(errors), 90):.0f} %"


def table(rows: list[Comparison]) -> list[str]:
    with BEFORE.open(newline="") as file:
        before = {r["row"]: r["simulated"] for r in csv.DictReader(file)}
    lines = ["| row | machine | what | program, conditions | measured | before | simulated | error |",
             "| --- | --- | --- | --- | ---: | ---: | ---: | ---: |"]  # fmt: skip
    for c in rows:
        r = c.row
        program = f"{r.workload[:60]}; {r.conditions[:60]}".replace("|", "/")
        what = r.what[:70].replace("|", "/")
        now, then = number(c.simulated), before.get(r.id, "")
        numbers = f"{number(r.value)} {r.unit} | {'' if now == then else then} | {now} | {percent(c.error)}"
        lines.append(f"| {r.id} | {short(r.hardware)} | {what} | {program} | {numbers} |")
    return lines


def missing(rows: list[Comparison]) -> list[str]:
    reasons = Counter(c.reason for c in rows)
    lines = [f"* {n} rows: {why}" for why, n in reasons.most_common()]
    lines += ["", "| row | machine | what | measured | why not |", "| --- | --- | --- | ---: | --- |"]
    for c in rows:
        what = c.row.what[:70].replace("|", "/")
        lines.append(f"| {c.row.id} | {short(c.row.hardware)} | {what} | {number(c.row.value)} {c.row.unit} | {c.reason} |")
    return lines


@styled
def draw(done: list[Comparison]) -> Figure:
    """Simulated over measured, a panel for each machine; machines of few rows share one."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for c in done:
        if c.simulated and c.row.value:
            groups[short(c.row.hardware)].append((c.row.value, c.simulated))
    many = {name: points for name, points in sorted(groups.items(), key=lambda g: -len(g[1])) if len(points) >= FEW}
    few = {name: points for name, points in groups.items() if name not in many}
    if few:
        many[f"{len(few)} others"] = [pair for points in few.values() for pair in points]
    figure = canvas()
    lines, columns = shape(len(many))
    for index, (axes, (name, points)) in enumerate(zip(grid(figure, len(many), sharey=True), many.items(), strict=True)):
        off = median(abs(simulated / measured - 1) for measured, simulated in points)
        cloud = Cloud([m for m, _ in points], [s for _, s in points], BLUE, "o", 3.2)
        panel(axes, name, [cloud], f"{len(points)} rows, median {off:.0%}", (0.5, 2.0), "row's unit", WIDEST)
        axes.set_ylabel("simulated / measured" if index % columns == 0 else "")
        axes.set_xlabel(axes.get_xlabel() if index + columns >= len(many) else "")
    far = any(not 1 / WIDEST <= simulated / measured <= WIDEST for points in groups.values() for measured, simulated in points)
    note = "Triangles: beyond the axis, so many. " * far + (f"Others: {', '.join(few)}." if few else "")
    said = "Simulated over measured, each row a point, in the row's own unit; the band is a factor of 2."
    headline(figure, "Is the model of unified memory right about what was published?", said, note, body=ROW * lines + AXES)
    return figure


def main() -> None:
    rows = read(ROOT / "tests" / "data" / "uvm_measurements.csv")
    write(compare(rows, "calibrate"), compare(rows, "validate"))


def write(fitted: list[Comparison], compared: list[Comparison]) -> None:
    """The page and its figure."""
    done = [c for c in compared if c.simulated is not None]
    left = [c for c in compared if c.simulated is None]
    machines = {short(c.row.hardware) for c in fitted if c.simulated is not None}
    text = TEXT.read_text()
    parts = {
        "SUMMARY": summary(compared, machines), "FITTED": table([c for c in fitted if c.simulated is not None]),
        "FITTED NOT RUN": missing([c for c in fitted if c.simulated is None]), "ROWS": table(done), "NOT RUN": missing(left),
        "COUNTS": [f"Rows run: {len(done)} of {len(compared)}."], "SOURCES": sources(),
    }  # fmt: skip
    for name, lines in parts.items():
        text = text.replace(f"<!-- {name} -->\n", "\n".join(lines) + "\n")
    TABLE.write_text(text)
    save(draw(done), FIGURE, ("svg", "png"))
    print("\n".join(summary(compared, machines)))


if __name__ == "__main__":
    main()
