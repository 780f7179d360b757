"""python -m gpusim.studies.failures.published: published times of checkpoints beside simulated ones, as Markdown."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.yaml import document
from gpusim.studies.failures.setup import LongRunSpec, prepare

DATA = Path(__file__).with_suffix(".yaml")
STOP = "stop_s"


@cache
def rows() -> list[dict[str, Any]]:
    """What was published; `simulated` where the source says enough."""
    return [{**row, "simulated": _simulated(row)} if "words" in row else row for row in document.read(DATA).data["rows"]]


def _simulated(row: dict[str, Any]) -> float:
    cost = prepare(LongRunSpec(**row["words"])).cost
    return {STOP: cost.stop, "load_s": cost.load[-1]}[row["value"]] / 1e9


def errors(value: str = "") -> list[float]:
    """Simulated over measured, less 1; of one value, or of all."""
    return [row["simulated"] / row["measured"] - 1 for row in rows() if "simulated" in row and value in ("", row["value"])]


def table() -> str:
    """All rows, as Markdown."""
    heads = "| what | measured, s | simulated, s | error | that means | source |"
    lines = [heads, "| --- | ---: | ---: | ---: | --- | --- |"]
    for row in rows():
        said = "|".join(_cells(row))
        lines.append(f"| {row['name']} | {row['measured']:g} |{said}| {row.get('cause', '')} | {row['source']} |")
    median = np.median(np.abs(errors()))
    return "\n".join([*lines, "", f"{len(errors())} rows are scored, with a median error of {median:.0%}."])


def _cells(row: dict[str, Any]) -> tuple[str, str]:
    if "simulated" not in row:
        return f" not scored: {row['why']} ", "  "
    return f" {row['simulated']:.3g} ", f" {row['simulated'] / row['measured'] - 1:+.0%} "


if __name__ == "__main__":
    print(table())
