"""Unified memory: the tables and the figure of docs/gpu_ext.md, from what `gpusim reproduce gpu_ext` comes to; 20 minutes.

    PYTHONPATH=. python benchmarks/gpu_ext.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.files import write_text
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.machine.catalogue import load
from gpusim.programs.managed.text import load as read
from gpusim.show.calibration_tables import replaced
from gpusim.show.gpu_ext import draw
from gpusim.show.style import save
from gpusim.studies.gpu_ext import study

ROOT = Path(__file__).parents[1]
PAGE, FIGURE = ROOT / "docs" / "gpu_ext.md", ROOT / "docs" / "figures" / "gpu_ext"
PROGRAMS = ("stream_sweep", "iterate", "hot_keys", "bfs", "sparse", "vector_add")
WAYS: dict[str, tuple[str, Mapping[str, str]]] = {
    "the driver": ("", {}),
    "`prefetch=forest`": ("Forest", {"prefetch": "forest"}),
    "`advice=static`": ("SUV", {"advice": "static"}),
    "`prefetch=correlation, evict=early`": ("DeepUM", {"prefetch": "correlation", "evict": "early"}),
    "`migrate=hot`": ("access counters", {"migrate": "hot"}),
    "`evict=lru`": ("", {"evict": "lru"}),
    "`evict=s3fifo`": ("", {"evict": "s3fifo"}),
    "`evict=belady`": ("oracle", {"evict": "belady"}),
}


def number(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def cases(made: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| kernel | case | published, ms | its iterations | ours, ms | difference |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for row in made:
        if row["note"] == "given":
            continue
        span = "" if row["from"] == row["to"] else f"{number(row['from'])} to {number(row['to'])}"
        low, high = number(row["ours_low"]), number(row["ours_high"])
        ours = "refused" if row["ours"] is None else low if low == high else f"{low} to {high}"
        off = "" if row["difference"] is None else f"{100 * row['difference']:+.0f} %"
        yield f"| {row['group']} | `{row['case']}` | {number(row['published'])} | {span} | {ours} | {off} |"


def groups(made: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield "| kernel | rows | median | worst | refused |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for row in study.summary(made):
        middle, worst = f"{100 * row['median']:.0f} %", f"{100 * row['worst']:.0f} %"
        yield f"| {row['group']} | {row['rows']} | {middle} | {worst} | {row['refused']} |"


def ways() -> Iterator[str]:
    yield "| | after | " + " | ".join(f"`{name}`" for name in PROGRAMS) + " |"
    yield "| --- | --- |" + " ---: |" * len(PROGRAMS)
    machine = load("a100-pcie-80gb")
    programs = [read(ROOT / "traces" / "programs" / f"{name}.yaml") for name in PROGRAMS]
    for name, (paper, words) in WAYS.items():
        ran = [simulate_unified(p, machine, settings=DriverSettings(**words), capacity_bytes=int(p.footprint / 1.5))
               for p in programs]  # fmt: skip
        yield f"| {name} | {paper} | " + " | ".join(number(r.metrics["makespan_ns"] / 1e6) for r in ran) + " |"


def main() -> None:
    made = study.reproduce(study.published())
    text = PAGE.read_text("utf-8")
    for name, lines in (("cases", cases(made)), ("groups", groups(made)), ("ways", ways())):
        text = replaced(text, name, "\n".join(lines))
    write_text(PAGE, text)
    save(draw(made), FIGURE, ("png",))


if __name__ == "__main__":
    main()
