"""Makes the tables of `docs/calibration.md`, its figure and the fitted profiles anew (a developer's tool):

    python -m gpusim.show.calibration_tables

Everything between the marks of the document is written by this; the words around them are not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpusim.base.files import write_text
from gpusim.calibrate.compare.effects import MEDIAN, P90, effect
from gpusim.calibrate.compare.score import ENOUGH, FITTED, PARTS, UNFITTED, Comparison, Series, compare, quantile
from gpusim.calibrate.fit.fitting import Fitted, difference, fit
from gpusim.calibrate.meaning import LOOPS, full, launch, local, shared
from gpusim.calibrate.rows import Row, gpus, held_out, read
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile
from gpusim.show.calibration import draw
from gpusim.show.style import save

ROOT = Path(__file__).parents[2]
DATA = ROOT / "gpusim" / "calibrate" / "data"
DOCUMENT = ROOT / "docs" / "calibration.md"
FIGURE = ROOT / "docs" / "figures" / "calibration"
_BEGIN, _END = "<!-- begin: {} -->", "<!-- end: {} -->"


def main() -> None:
    rows = read(DATA / "hardware_measured.csv")
    known = [g for g in gpus(rows) if g.lower() in catalogue.names()]
    every = sorted((_machine(rows, gpu) for gpu in known), key=lambda m: -m[1].rows)
    machines = [(fitted, found) for fitted, found in every if fitted is not None and found.rows >= ENOUGH]
    others = Counter(r.gpu for r in rows if r.gpu not in {found.machine for _, found in machines})
    for fitted, found in machines:
        if fitted.estimates:
            write_text(DATA / "fitted" / f"{fitted.base.name}.yaml", fitted.text)
        print(found.machine, found.score())
    compared = [comparison for _, comparison in machines]
    text = DOCUMENT.read_text(encoding="utf-8")
    for name, part in (
        ("scores", scores(compared)), ("kinds", kinds([found for _, found in every], rows)), ("rules", rules(compared, rows)),
        ("misses", misses(compared)), ("series", series_of(compared)), ("lacks", lacks(compared)),
        ("numbers", numbers([fitted for fitted, _ in machines])), ("others", left_out(others)),
    ):  # fmt: skip
        text = replaced(text, name, part)
    write_text(DOCUMENT, text)
    drawn = [c for c in compared if sum(len(s.points) for s in c.compared) >= ENOUGH]
    save(draw(drawn), FIGURE, ("png",))


def _machine(rows: Sequence[Row], gpu: str) -> tuple[Fitted | None, Comparison]:
    mine, base = [r for r in rows if r.gpu == gpu], catalogue.load(gpu.lower())
    if all(held_out(r.series_id) for r in mine):
        return None, compare(mine, base, (), gpu)
    fitted = fit(mine, base)
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
        others = [found.score(part) for part in PARTS[1:]]
        cells += [f"{_share(o[0])} / {_share(o[1])}" if o else "–" for o in others]
        lines.append(cells)
    header = ["GPU", "rows", "held out", "scored", "median", "p90", "worst", "5 % / 15 % met"]
    return _table([*header, *PARTS[1:]], lines, 1)


def kinds(machines: Sequence[Comparison], rows: Sequence[Row]) -> str:
    """A line for each kind of measurement: how many rows run, and the errors of each part, of all machines."""
    lines = []
    total = simulated = 0
    for name in (*(name for name, _ in _KINDS), _OTHERS):
        mine = [r for r in rows if _kind(r) == name]
        wanted = {r.series_id for r in mine}
        found = [s for m in machines for s in m.compared if s.name in wanted]
        points = sum(len(s.points) for s in found)
        total, simulated = total + len(mine), simulated + points
        cells = [name, f"{len(mine):,}", f"{points:,}", str(len(found))]
        lines.append([*cells, *_by_part(found)])
    found = [s for m in machines for s in m.compared]
    share = f"{simulated:,} ({simulated / total * 100:.1f} %)"
    lines.append(["all", f"{total:,}", share, str(len(found)), *_by_part(found)])
    return _table(["kind", "rows", "simulated", "series", *_SHOWN], lines, 1)


_KINDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("chains of loads", ("load_latency", "l1_latency", "l2_latency", "hbm_latency", "host_access", "peer_access")),
    ("kernels in a row, loops", ("queued_kernel",)), ("sweeps of L2", ("l2_or_dram",)), ("L1 and L2 in step", ("l1_or_l2",)),
    ("memory of the device", ("hbm_",)), ("multiply-adds", ("fp32_fma",)),
    ("link to the host", ("h2d_", "d2h_", "host_to_all", "all_to_host")), ("between GPUs", ("p2p_", "nccl_")),
)  # fmt: skip
_OTHERS = "others"
_SHOWN = (FITTED, PARTS[0], PARTS[1], UNFITTED)


def _kind(row: Row) -> str:
    return next((name for name, starts in _KINDS if row.metric.startswith(starts)), _OTHERS)


def rules(machines: Sequence[Comparison], rows: Sequence[Row]) -> str:
    """A line for each machine: what the rules by generation say alone, without the numbers that they stand for."""
    lines = []
    for found in machines:
        alone = _without_rows(found.profile)
        mine = [r for r in rows if r.gpu == found.machine and (r.metric in _RULED or _few(r))]
        series = compare(mine, alone, (), found.machine, seen=()).compared if mine else []
        cells = []
        for wanted, own in _RULES.values():
            of = [s for s in series if wanted(s.points[0].row)]
            cells.append(_errors(of) + (" *" if of and found.machine in own else ""))
        if series:
            lines.append([found.machine, *cells])
    return _table(["GPU", *_RULES], lines, 1)


def _few(row: Row) -> bool:
    return local(row) is not None and not full(row)


_RULED = ("load_latency_ns", "l1_or_l2_read_bw", "l2_or_dram_read_bw", "l2_or_dram_scale_bw", "fp32_fma_gflops",
          "queued_kernel_scale_bw")  # fmt: skip
_RULES: dict[str, tuple[Callable[[Row], bool], tuple[str, ...]]] = {
    "chains of loads": (
        lambda r: r.metric == "load_latency_ns", ("A100-SXM4-40GB", "GH200-96GB", "H100-PCIE-80GB", "V100-PCIE-16GB"),
    ),
    "L1 and L2 in step": (lambda r: r.metric == "l1_or_l2_read_bw", ("A100-SXM4-80GB", "H100-PCIE-80GB", "H200-NVL")),
    "L2, shared": (lambda r: r.metric == "l2_or_dram_read_bw" and shared(r), ("GB200", "GH200-96GB", "H100-PCIE-80GB")),
    "L2, a part each": (lambda r: r.metric.startswith("l2_or_dram") and not shared(r), ("A100-SXM4-80GB",)),
    "kernels in a row": (lambda r: r.metric == "queued_kernel_scale_bw" and launch(r) not in LOOPS, ("A100-SXM4-80GB",)),
    "loops": (lambda r: r.metric == "queued_kernel_scale_bw" and launch(r) in LOOPS, ("A40",)),
    "few threads": (_few, ("A100-SXM4-40GB", "A100-SXM4-80GB", "GH200-96GB", "H100-PCIE-80GB", "V100-PCIE-16GB")),
    "multiply-adds": (lambda r: r.metric == "fp32_fma_gflops", ("A100-SXM4-40GB", "GH200-96GB")),
}  # fmt: skip
"""Which rows a rule is about, and the GPUs whose own rows it is from."""


def _without_rows(profile: Profile) -> Profile:
    """Without the numbers of which a rule by generation says what they are where they are not known."""
    memory = replace(
        profile.memory, copy_curve=(), read_curve=(), shared_curve=(), in_step_curve=(), latency_curve=(), turnaround=None
    )
    return replace(profile, memory=memory, gpu=replace(profile.gpu, fma=None), launch=replace(profile.launch, barrier=None))


def _by_part(series: Sequence[Series]) -> list[str]:
    return [_errors([s for s in series if s.part == part]) for part in _SHOWN]


def _errors(series: Sequence[Series]) -> str:
    """Signed median, median and p90 over the points, each series with equal weight."""
    if not series:
        return "–"
    errors = np.concatenate([s.signed for s in series])
    weights = np.concatenate([np.full(len(s.points), 1 / len(s.points)) for s in series])
    signed = quantile(errors, weights, 0.5)
    size = np.abs(errors)
    return f"{signed * 100:+.1f} %, {_share(quantile(size, weights, 0.5))} / {_share(quantile(size, weights, 0.9))}"


def _lines(machines: Sequence[Comparison], wanted: Callable[[Series], bool]) -> list[tuple[Comparison, Series]]:
    return [(found, s) for part in PARTS for found in machines for s in found.compared if s.part == part and wanted(s)]


def misses(machines: Sequence[Comparison]) -> str:
    """What is above the target, and why."""
    lines = []
    for found, s in _lines(machines, lambda s: True):
        if why := effect(s, found.profile):
            errors = [f"{s.bias * 100:+.1f} %", _share(s.median), _share(s.p90)]
            lines.append([found.machine, f"`{s.name}`", s.part, str(len(s.points)), *errors, why])
    return _table(["GPU", "series", "", "rows", "signed median", "median", "p90", "effect"], lines, 9)


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
    named = catalogue.names()
    few = [(g, n) for g, n in others.most_common() if n < ENOUGH or g.lower() in named]
    many = [(g, n) for g, n in others.most_common() if n >= ENOUGH and g.lower() not in named]
    lines = [f"- No profile of that name in the catalogue: {', '.join(f'{g} ({n})' for g, n in many)}."]
    lines.append(f"- Too few rows (below {ENOUGH}): {', '.join(f'{g} ({n})' for g, n in few)}.")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
