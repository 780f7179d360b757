"""Makes the tables of `docs/calibration.md`, its figure and the fitted profiles anew (a developer's tool):

    python -m gpusim.show.calibration_tables

Everything between the marks of the document is written by this; the words around them are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from gpusim.base.files import write_text
from gpusim.calibrate.compare.effects import MEDIAN, P90, effect
from gpusim.calibrate.compare.score import ENOUGH, FITTED, PARTS, Comparison, Series, compare
from gpusim.calibrate.fit.fitting import Fitted, difference, fit
from gpusim.calibrate.rows import Row, gpus, held_out, read
from gpusim.machine import catalogue
from gpusim.show.calibration import draw
from gpusim.show.style import save

ROOT = Path(__file__).parents[2]
DATA = ROOT / "gpusim" / "calibrate" / "data"
DOCUMENT = ROOT / "docs" / "calibration.md"
FIGURE = ROOT / "docs" / "figures" / "calibration"
_BEGIN, _END = "<!-- begin: {} -->", "<!-- end: {} -->"


def main() -> None:
    rows = read(DATA / "hardware_measured.csv")
    names = [g for g in gpus(rows) if sum(r.gpu == g for r in rows) >= ENOUGH]
    known = [g for g in names if g.lower() in catalogue.names()]
    machines = sorted((_machine(rows, gpu) for gpu in known), key=lambda m: -m[1].rows)
    for fitted, found in machines:
        if fitted.estimates:
            write_text(DATA / "fitted" / f"{fitted.base.name}.yaml", fitted.text)
        print(found.machine, found.score())
    compared = [comparison for _, comparison in machines]
    text = DOCUMENT.read_text(encoding="utf-8")
    others = Counter(r.gpu for r in rows if r.gpu not in known)
    for name, part in (
        ("scores", scores(compared)), ("misses", misses(compared)), ("series", series_of(compared)), ("lacks", lacks(compared)),
        ("numbers", numbers([fitted for fitted, _ in machines])), ("others", left_out(others)),
    ):  # fmt: skip
        text = replaced(text, name, part)
    write_text(DOCUMENT, text)
    drawn = [c for c in compared if sum(len(s.points) for s in c.compared) >= ENOUGH]
    save(draw(drawn), FIGURE, ("png",))


def _machine(rows: Sequence[Row], gpu: str) -> tuple[Fitted, Comparison]:
    mine = [r for r in rows if r.gpu == gpu]
    if all(held_out(r.series_id) for r in mine):
        raise SystemExit(f"{gpu}: all held out")
    fitted = fit(mine, catalogue.load(gpu.lower()))
    return fitted, compare(mine, fitted.profile, fitted.paths, gpu)


def replaced(text: str, name: str, part: str) -> str:
    """The document with what stands between the marks `name` replaced."""
    begin, end = _BEGIN.format(name), _END.format(name)
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{part}\n{end}{tail}"


def _table(header: Sequence[str], lines: Sequence[Sequence[str]], right: int) -> str:
    """Markdown, the columns from `right` on to the right."""
    rule = ["---" if i < right else "---:" for i in range(len(header))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (header, rule, *lines))


def _share(value: float) -> str:
    return f"{value * 100:.1f} %"


def scores(machines: Sequence[Comparison]) -> str:
    """A line for each machine."""
    lines = []
    for found in machines:
        held = sum(s.part != FITTED for s in found.series)
        cells = [found.machine, f"{found.rows:,}", str(held), str(sum(s.part == PARTS[0] for s in found.compared))]
        score = found.score(PARTS[0])
        cells += [_share(v) for v in score] if score else ["–"] * 3
        cells.append(("yes" if score[0] <= MEDIAN and score[1] <= P90 else "no") if score else "nothing predicted")
        others = [found.score(part) for part in PARTS[1:4]]  # each machine here has a fit
        cells += [f"{_share(o[0])} / {_share(o[1])}" if o else "–" for o in others]
        lines.append(cells)
    header = ["GPU", "rows", "held out", "scored", "median", "p90", "worst", "5 % / 15 % met"]
    return _table([*header, "catalogue's number", "another host", "fitted"], lines, 1)


def _lines(machines: Sequence[Comparison], wanted: Callable[[Series], bool]) -> list[tuple[Comparison, Series]]:
    return [(found, s) for part in PARTS for found in machines for s in found.compared if s.part == part and wanted(s)]


def misses(machines: Sequence[Comparison]) -> str:
    """What is above the target, and why."""
    lines = [
        [found.machine, f"`{s.name}`", s.part, str(len(s.points)), _share(s.median), _share(s.p90), why]
        for found, s in _lines(machines, lambda s: True)
        if (why := effect(s, found.profile))
    ]
    return _table(["GPU", "series", "", "rows", "median", "p90", "effect"], lines, 9)


def series_of(machines: Sequence[Comparison]) -> str:
    """All held-out series that were simulated, with one row each."""
    lines = []
    for found, s in _lines(machines, lambda s: s.part != FITTED):
        p = s.points[len(s.points) // 2]
        size = f"{p.row.size_bytes:,} B" if p.row.size_bytes else ""
        cells = [found.machine, f"`{s.name}`", s.part, str(len(s.points)), size]
        lines.append([*cells, f"{p.row.value:.4g} {p.row.unit}", f"{p.simulated:.4g}", _share(s.median), _share(s.p90)])
    header = ["GPU", "series", "", "rows", "for example", "measured", "simulated", "median", "p90"]
    return _table(header, lines, 3)


def lacks(machines: Sequence[Comparison]) -> str:
    """What the engine cannot run."""
    rows: Counter[str] = Counter()
    series: Counter[str] = Counter()
    held: Counter[str] = Counter()
    for found in machines:
        for one in found.series:
            rows.update(one.cannot)
            series.update(list(one.cannot))
            held.update(list(one.cannot) if one.part != FITTED else [])
    lines = [[why, f"{n:,}", str(series[why]), str(held[why])] for why, n in rows.most_common()]
    return _table(["why not", "rows", "series", "of them held out"], lines, 1)


def numbers(fits: Sequence[Fitted]) -> str:
    """What the fits say otherwise than the catalogue."""
    lines = []
    for fitted in fits:
        for row in difference(fitted):
            if row["change"] and abs(float(row["change"].rstrip("%"))) >= 5:
                bar = f"{row['low']} – {row['high']}" if row["low"] else "one row"
                cells = [fitted.base.name, f"`{row['number']}`", row["catalogue"], row["fitted"]]
                lines.append([*cells, row["change"], bar, str(row["rows"])])
    return _table(["profile", "number", "catalogue", "fitted", "change", "bar", "rows"], lines, 2)


def left_out(others: Counter[str]) -> str:
    """Machines about which nothing is said."""
    few = [(g, n) for g, n in others.most_common() if n < ENOUGH]
    many = [(g, n) for g, n in others.most_common() if n >= ENOUGH]
    lines = [f"- No profile of that name in the catalogue: {', '.join(f'{g} ({n})' for g, n in many)}."]
    lines.append(f"- Too few rows (below {ENOUGH}): {', '.join(f'{g} ({n})' for g, n in few)}.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
