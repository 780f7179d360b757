"""What is kept of long trainings: the log of a run with its page, and the figure of a question."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpusim.base.errors import UnitError
from gpusim.base.files import write_json, write_text
from gpusim.base.units import TIME, parse
from gpusim.engine.failures import tables as t
from gpusim.engine.failures.run import FailingRun
from gpusim.show.over_axis import Rows, save_rows_and
from gpusim.show.page.single import write_single_page
from gpusim.show.panels import logarithmic
from gpusim.show.style import canvas, headline, looks, styled
from gpusim.show.values.failures_in_time import failures_in_time
from gpusim.studies.failures.answer import LongRunAnswer
from gpusim.studies.failures.questions import TrainingQuestion

EFFECTIVE = "effective [%]"
PANELS = 3
TICKS = (0.1, 1, 5, 30, 180, 1440, 10080)
_UNITS = ((1440.0, "d"), (60.0, "h"), (1.0, "min"), (1 / 60, "s"))


def save_rows_and_figure(asked: TrainingQuestion, rows: Rows, folder: Path) -> list[Path]:
    """summary.csv and, where any combination could be run, the figure, into a folder."""
    return save_rows_and(lambda there: draw(asked, there), rows, EFFECTIVE, folder / "failures")


def save_answer(found: LongRunAnswer, answer: str, folder: Path) -> list[Path]:
    """failures.json, and of the first run log.csv (s; what happened) and report.html (over time), into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    run, values = found.first(), found.values()
    write_json(folder / "failures.json", values)
    write_text(folder / "log.csv", "\n".join(["seconds,record,node,cause,progress_s,nodes,lost_s", *_lines(run)]) + "\n")
    rows, left = failures_in_time(run)
    spec = found.run.spec
    question = f"How long does {spec.work} of training take on {spec.machine}, which fails?"
    table = [{"of the time [h]": name, "mean": f"{values[f'{name}_h']:,.5g}"} for name in ("total", *t.PHASES, "lost")]
    page = write_single_page(folder, "long run", question, answer, {"": table}, rows, title="Where the time goes", left=left)
    return [folder / "failures.json", folder / "log.csv", page]


def _lines(run: FailingRun) -> Iterator[str]:
    """A record each: when, what, of which node, why or where to, work done so far, nodes in use, work lost."""
    for row in run.records():
        kind, value, node = int(row["kind"]), float(row["value"]), int(row["node"])
        nodes = f"{value:.0f}" if kind in (t.BEGAN, t.SHRUNK, t.GROWN) else ""
        lost = f"{value / 1e9:.9f}" if kind == t.RECOVERED else ""
        cause = _cause(kind, int(row["cause"]), run)
        yield (f"{row['t'] / 1e9:.9f},{t.RECORDS[kind]},{node if node >= 0 else ''},{cause},{row['progress'] / 1e9:.9f},"
               f"{nodes},{lost}")  # fmt: skip


def _cause(kind: int, cause: int, run: FailingRun) -> str:
    """In words: the kind of a failure, a phase, or a level."""
    if cause < 0:
        return ""
    if kind == t.FAILED:
        return f'"{run.kinds[cause].name}"'
    return t.PHASES[cause] if kind == t.BEGAN else t.LEVELS[cause]


@styled
def draw(asked: TrainingQuestion, rows: Rows) -> Figure:
    """A panel for each value of an axis, lines over checkpoint intervals; diamonds: a policy chose the interval."""
    axes = asked.axes()
    lines = next((name for name in ("checkpoint", *axes) if name in axes and name != "every"), "")
    panels = next((name for name in axes if name not in ("every", lines)), "")
    values = list(axes.get(panels, ("",)))[:PANELS]
    figure = canvas()
    drawn = figure.subplots(1, len(values), squeeze=False, sharey=True)[0]
    look = looks(str(value) for value in axes.get(lines, ("",)))
    best = []
    for panel, value in zip(drawn, values, strict=True):
        mine = [row for row in rows if row.get(panels, "") == value]
        for name, each in look.items():
            _line(panel, [row for row in mine if str(row.get(lines, "")) == name], name, each.colour, each.marker)
        panel.set_title(f"{panels} {value}" if panels else "")
        _intervals(panel, [row["interval [min]"] for row in rows])
        if mine:
            best.append(_said(mine, lines, str(value)))
    lost = [100 - row[EFFECTIVE] for row in rows]
    logarithmic(drawn[0], max(0.01, min(lost) / 1.5), min(100.0, max(lost) * 1.5), lambda share: f"{share:.3g} %", upright=True)
    drawn[0].set_ylabel("share of time lost")
    chosen = "" if all(map(_fixed, rows)) else "  Diamonds: a policy chose the interval."
    headline(figure, asked.question, f"Best: {'; '.join(best)}.{chosen}", strip=drawn[0].get_legend_handles_labels()[0])
    return figure


def _said(rows: Rows, lines: str, panel: str) -> str:
    """The best row, and the other lines whose best is as good as that within its interval."""
    best = max(rows, key=lambda row: row[EFFECTIVE])
    as_good = [row for row in rows if row[EFFECTIVE] >= best[EFFECTIVE] - best["+-"]]
    names = " or ".join(dict.fromkeys(str(row[lines]) for row in as_good)) if lines else ""
    parts = [panel, names, f"every {_minutes(best['interval [min]'])}"]
    return f"{', '.join(filter(None, parts))}: {best[EFFECTIVE]:.4g} % effective"


def _line(panel: Axes, rows: Rows, name: str, colour: str, marker: Any) -> None:
    """Fixed intervals joined, each with its interval of the mean; those that a policy chose beside them."""
    fixed = sorted(filter(_fixed, rows), key=lambda row: float(row["interval [min]"]))
    x, y = [row["interval [min]"] for row in fixed], [100 - row[EFFECTIVE] for row in fixed]
    panel.errorbar(x, y, yerr=[row["+-"] for row in fixed], color=colour, marker=marker, capsize=2,
                   elinewidth=0.8, label=name or None, gid="points")  # fmt: skip
    for row in rows:
        if not _fixed(row):
            panel.plot(row["interval [min]"], 100 - row[EFFECTIVE], marker="D", markersize=8, color=colour, fillstyle="none",
                       gid="policy")  # fmt: skip


def _intervals(panel: Axes, minutes: list[float]) -> None:
    low, high = min(minutes) / 1.5, max(minutes) * 1.5
    logarithmic(panel, low, high, _minutes, 2)
    inside = [tick for tick in TICKS if low <= tick <= high]
    if len(inside) > 1:
        panel.set_xticks(inside)
    panel.set_xlabel("work between checkpoints")


def _fixed(row: dict[str, Any]) -> bool:
    try:
        parse(row.get("every", "1 h"), TIME)
    except UnitError:
        return False
    return True


def _minutes(value: float) -> str:
    size, unit = next((each for each in _UNITS if value >= each[0]), _UNITS[-1])
    return f"{value / size:.3g} {unit}"
