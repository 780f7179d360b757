"""A metric over two axes at once: which combinations are good, and where runs fail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import grouped, mean, ranked
from gpusim.show.interval import interval
from gpusim.show.view import POLICIES, ending, layout, line_name, main_metric, number, text, varying

LINES = "policies"  # the axis on which policies stand together
LEAST = 6  # cells of a panel from which it says more than bars


@dataclass(frozen=True)
class HeatCell:
    """The repetitions of one combination; None where none finished, and how the first ended that did not."""

    value: float | None
    interval: tuple[float, float] | None
    ending: str
    oracle: bool = False


@dataclass(frozen=True)
class HeatPanel:
    """What is left apart from the two axes: rows of cells, None where a combination was not run; per column the best rows."""

    name: str
    cells: tuple[tuple[HeatCell | None, ...], ...]
    best: tuple[int | None, ...]


@dataclass(frozen=True)
class HeatMap:
    """Columns are values of `across`, rows those of `down`, each a key of the experiment or LINES."""

    metric: str
    across: str
    down: str
    columns: tuple[str, ...]
    rows: tuple[str, ...]
    panels: tuple[HeatPanel, ...]


def axes_of(results: Sequence[Result]) -> tuple[str, str]:
    """The key along the columns and that down the rows, "" where fewer than two axes vary.

    Memory or another number goes along the columns, policies down the rows; else the axes with most values do.
    """
    plan = layout(results)
    keys = [key for key in varying(results) if key not in POLICIES]
    counts = {key: len({text(key, r.spec.get(key)) for r in results}) for key in keys}
    if set(plan.lines) & set(POLICIES):
        counts[LINES] = len({line_name(r, plan.lines) for r in results})
    across = plan.across or max((key for key in counts if key != LINES), key=lambda key: counts[key], default="")
    rest = [key for key in counts if key != across]
    down = LINES if LINES in rest else max(rest, key=lambda key: counts[key], default="")
    return (across, down) if across and down else ("", "")


def heat(results: Sequence[Result], metric: str = "") -> HeatMap:
    """The metric, by default the main one, by two axes; the other axes make panels."""
    metric = metric or main_metric(results)
    across, down = axes_of(results)
    plan = layout(results)
    rest = [k for k in varying(results) if k not in (across, down) and not (down == LINES and k in plan.lines)]
    columns = _values(results, across)
    rows = tuple(ranked(results, metric)) if down == LINES else _values(results, down)
    panels = []
    for name, runs in grouped(results, rest).items():
        there: dict[tuple[str, str], list[Result]] = {}
        for run in runs:
            row = line_name(run, plan.lines) if down == LINES else text(down, run.spec.get(down))
            there.setdefault((row, text(across, run.spec.get(across))), []).append(run)
        cells = tuple(tuple(_cell(there.get((r, c), ()), metric) for c in columns) for r in rows)
        panels.append(HeatPanel(name, cells, tuple(_best(cells, i, metric) for i in range(len(columns)))))
    return HeatMap(metric, across, down, columns, rows, tuple(panels))


def _values(results: Sequence[Result], key: str) -> tuple[str, ...]:
    """The values of a key in words: numbers rising, others in order of appearance."""
    found = {text(key, r.spec.get(key)): number(r.spec.get(key)) for r in results}
    if all(v is not None for v in found.values()):
        return tuple(sorted(found, key=lambda name: found[name] or 0.0))
    return tuple(found)


def _cell(runs: Sequence[Result], metric: str) -> HeatCell | None:
    if not runs:
        return None
    how = next((e for r in runs if (e := ending(r))), "")
    return HeatCell(mean(runs, metric), interval(runs, metric), how, all(r.oracle for r in runs))


def _best(cells: Sequence[Sequence[HeatCell | None]], column: int, metric: str) -> int | None:
    """The row of the best that is no oracle."""
    sign = -1.0 if declared(metric).better == "higher" else 1.0
    known = [(sign * c.value, i) for i, row in enumerate(cells) if (c := row[column]) and c.value is not None and not c.oracle]
    return min(known)[1] if known else None


def telling(results: Sequence[Result]) -> bool:
    """Whether two axes vary and have cells enough, of which at least two thirds were run."""
    if not all(axes_of(results)):
        return False
    found = heat(results)
    cells = [cell for row in found.panels[0].cells for cell in row] if found.panels else []
    return len(cells) >= LEAST and sum(c is not None for c in cells) >= 2 / 3 * len(cells)


def label_of(key: str) -> str:
    """An axis in words."""
    return {"memory": "device memory", "memory_share": "device memory", "profile": "machine", "trace": "program",
            LINES: ""}.get(key, key.replace("_", " "))  # fmt: skip

