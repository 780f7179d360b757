"""python -m gpusim.studies.models.published: published times of loads beside simulated ones, as Markdown."""

from __future__ import annotations

import statistics
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.base.yaml import document
from gpusim.machine.serving.loading import load_times, loader_of
from gpusim.machine.topology import build
from gpusim.studies.models.setup import load_ways

DATA = Path(__file__).with_suffix(".yaml")


@cache
def rows() -> list[dict[str, Any]]:
    """The file's rows, each with `said`, simulated seconds."""
    data: dict[str, Any] = document.read(DATA).data
    return [{**row, "said": _seconds(row)} for row in data["rows"]]


def _seconds(row: dict[str, Any]) -> float:
    topology, loader = build.load(row["machine"]), loader_of(row["loader"])
    times = load_times(loader, load_ways(topology, topology.gpus[:1], loader), int(row["bytes"]))
    return (times.copied if row.get("from") == "host" else times.loaded) / 1e9


def error(row: dict[str, Any]) -> float:
    """Simulated over published, less 1."""
    return float(row["said"] / row["seconds"] - 1)


def table() -> str:
    """All rows, as Markdown; medians of those that are scored, and of the others."""
    lines = ["| system | loaded | from | published, s | simulated | error | not said |"]
    lines += ["| --- | --- | --- | ---: | ---: | ---: | --- |"]
    for row in rows():
        head = f"| {row['system']} | {row['what']} | {row.get('from', 'disk')} | {row['seconds']:.4g} | {row['said']:.3g} "
        lines.append(f"{head}| {error(row):+.0%} | {row.get('why', '')} |")
    scored, others = ([abs(error(row)) for row in rows() if bool(row.get("scored")) is wanted] for wanted in (True, False))
    lines += ["", f"Median of the {len(scored)} rows with a stated configuration: {statistics.median(scored):.0%}, the largest "
              f"{max(scored):.0%}; of the {len(others)} others {statistics.median(others):.0%}."]  # fmt: skip
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
