"""Every published unified-memory measurement beside what the model says: a table, and a figure.

    PYTHONPATH=. python benchmarks/uvm_validation.py

writes docs/unified_memory_measurements.md and docs/figures/unified_memory.svg.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from statistics import median

from uvm_programs import Comparison, compare

from gpusim.uvm.calibration import fit, read

ROOT = Path(__file__).parent.parent
TABLE = ROOT / "docs" / "unified_memory_measurements.md"
FIGURE = ROOT / "docs" / "figures" / "unified_memory.svg"
HEAD = """# Unified memory: measured and simulated

Written by `benchmarks/uvm_validation.py` from `tests/data/uvm_measurements.csv`: published measurements, each with its source
there. Constants were fitted on the rows marked `calibrate` (GTX 1080 Ti, T4, GH200); all other machines are derived from
their links, or estimated (`gpusim/uvm/platforms.py`). Rows marked `validate` are below, every one. Error: simulated /
measured - 1.

One choice was made with results in sight: that each SM has a uTLB of its own. With one for two SMs the sparse kernel of one
page a block (`bench_sparse`, K=1, oversubscribed) faults 1.2 times for each block instead of twice, as measured.
"""


def short(name: str) -> str:
    return name.split("(")[0].replace("GeForce ", "").strip()[:34] or "not stated"


def number(x: float | None) -> str:
    return "" if x is None else f"{x:.4g}"


def percent(x: float | None) -> str:
    return "" if x is None else f"{100 * x:+.0f} %"


def summary(done: list[Comparison]) -> list[str]:
    groups = defaultdict(list)
    for c in done:
        if c.error is not None:
            groups[short(c.row.hardware)].append(abs(c.error))
    lines = ["| machine | rows run | median error | worst error |", "| --- | ---: | ---: | ---: |"]
    for name, errors in sorted(groups.items()):
        lines.append(f"| {name} | {len(errors)} | {100 * median(errors):.0f} % | {100 * max(errors):.0f} % |")
    return lines


def table(rows: list[Comparison]) -> list[str]:
    lines = ["| row | machine | what | program, conditions | measured | simulated | error |",
             "| --- | --- | --- | --- | ---: | ---: | ---: |"]  # fmt: skip
    for c in rows:
        r = c.row
        program = f"{r.workload[:60]}; {r.conditions[:60]}".replace("|", "/")
        what = r.what[:70].replace("|", "/")
        numbers = f"{number(r.value)} {r.unit} | {number(c.simulated)} | {percent(c.error)}"
        lines.append(f"| {r.id} | {short(r.hardware)} | {what} | {program} | {numbers} |")
    return lines


def missing(c: Comparison) -> str:
    what = c.row.what[:70].replace("|", "/")
    return f"| {c.row.id} | {short(c.row.hardware)} | {what} | {number(c.row.value)} {c.row.unit} | {c.reason} |"


def draw(done: list[Comparison]) -> None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "gpusim"
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 6))
    groups = defaultdict(list)
    for c in done:
        if c.simulated and c.row.value:
            groups[short(c.row.hardware)].append((c.row.value, c.simulated))
    for name, points in sorted(groups.items()):
        axes.scatter(*zip(*points, strict=True), s=12, label=name, alpha=0.7)
    ends = [1e-3, 1e7]
    axes.plot(ends, ends, color="black", linewidth=0.8)
    for factor in (2, 0.5):
        axes.plot(ends, [factor * e for e in ends], color="grey", linewidth=0.5, linestyle=":")
    axes.set(xscale="log", yscale="log", xlabel="measured", ylabel="simulated (dotted: a factor of 2)", xlim=ends, ylim=ends)
    axes.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(FIGURE, metadata={"Date": None})


def main() -> None:
    rows = read(ROOT / "tests" / "data" / "uvm_measurements.csv")
    compared = compare(rows)
    done = [c for c in compared if c.simulated is not None]
    left = [c for c in compared if c.simulated is None]
    f = fit(rows)
    reasons = Counter(c.reason for c in left)
    text = [
        HEAD,
        f"Fit on the GTX 1080 Ti: a copy in takes {f.in_start / 1e3:.2f} us and {1 / f.in_byte:.2f} GB/s, out "
        f"{f.out_start / 1e3:.2f} us and {1 / f.out_byte:.2f} GB/s; a fault {f.fault / 1e3:.2f} us, "
        f"{f.page / 1e3:.3f} us for each page moved, {f.first_touch / 1e3:.2f} us more for the first of a block.\n",
        "![measured against simulated](figures/unified_memory.svg)\n",
        "## Summary\n", *summary(done), "",
        f"## Rows run: {len(done)} of {len(compared)}\n",
        *table(done),
        "",
        f"## Rows not run: {len(left)}\n", *(f"* {n} rows: {why}" for why, n in reasons.most_common()), "",
        "| row | machine | what | measured | why not |", "| --- | --- | --- | ---: | --- |",
        *(missing(c) for c in left),
    ]  # fmt: skip
    TABLE.write_text("\n".join(text) + "\n")
    draw(done)
    print("\n".join(summary(done)))


if __name__ == "__main__":
    main()
