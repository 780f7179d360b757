"""Write the page of a results folder, alone or against another one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.files import write_text
from gpusim.results.activities import Activities
from gpusim.results.compare import Change, changes
from gpusim.results.metrics import METRICS
from gpusim.results.references import RATIOS
from gpusim.results.result import FINISHED, Result
from gpusim.show.page import content
from gpusim.show.page.charts.durations import MOST as MOST_DURATIONS
from gpusim.show.page.folder import Folder, chosen, read
from gpusim.show.page.html import as_blob, html, plotly
from gpusim.show.page.memory import memory
from gpusim.show.page.pack import packed
from gpusim.show.page.timeline import address_map, metrics, rows_of, timeline
from gpusim.show.programs import programs
from gpusim.show.values.over_time import capacity
from gpusim.show.values.picked import LISTED
from gpusim.show.values.roofline import Roofline, roofline
from gpusim.show.view import human, main_metric, run_name, varying

NAME = "report.html"
WITHOUT = "Figures need Plotly: pip install 'gpusim[report]', and write the page again."
ROOM = 8_000_000  # characters of timelines and maps, where the caller names no runs; the first has room anyway
TOLD = {"timeline": "timelines", "map": "maps"}  # kind of blob -> under which name the page has the keys
MOST_ROOFLINES = 3  # programs on machines
OF_MANY = "; a row of the table has the command that runs it alone"
FOOTER = "Made by gpusim. Everything is in this file; nothing is loaded from elsewhere."


@dataclass(frozen=True)
class Page:
    """What was written: the file, how large it is, how many runs it has, and which of them with a timeline."""

    path: Path
    bytes: int
    runs: int
    timelines: tuple[str, ...]
    left_out: str  # why runs that kept a log have no timeline here; "" where none is left out
    figures: bool  # False without Plotly


def write_page(
    folder: Path, *, against: Path | None = None, out: Path | None = None, timelines: Sequence[str] | None = None
) -> Page:
    """Write the page of these results; by default FOLDER/report.html.

    against    another results folder: both side by side, and what changed from the first to it
    timelines  runs by number or key; None: those that kept a log, as many as there is room for; (): none
    Raises ResultError: no results there, changed since, of another version; no such run; the page cannot be written.
    """
    folders = [read(folder), *([read(against)] if against else [])]
    blobs: dict[str, str] = {}
    told: dict[str, Any] = {"folders": [], "has_plotly": True, "without_plotly": WITHOUT}
    every = [content.with_timelines(one) for one in folders]
    for at, one in enumerate(folders):
        table, numbers = content.table(one)
        told["folders"].append({"told": content.told(one), "table": table})
        blobs[f"numbers-{at}"] = packed({}, {name: np.array(values, np.float64) for name, values in numbers.items()})
    runs = sum(len(one.results) for one in folders)
    script = plotly() if runs else None
    told["has_plotly"] = script is not None
    seen = in_time(folders, timelines)
    others = [{"roofline": rooflines(one), "durations": seen.named[at]} for at, one in enumerate(folders)]
    told["charts"] = content.charts(every, others)
    if series := memory(folders, every):
        blobs["memory"] = series
    if against:
        told["against"] = differences(*folders)
    told |= seen.told
    words = told["folders"][0]["told"]
    text = html(
        {
            "title": words["question"], "name": " against ".join(one.name for one in folders), "question": words["question"],
            "answer": words["answer"] or "There is nothing to compare.", "footer": FOOTER,
        },
        {"content": as_blob(told), **blobs, **seen.blobs, **({"plotly": script} if script else {})},
    )  # fmt: skip
    target = out or folder / NAME
    write_text(target, text)
    shown, left = tuple(seen.told["timelines"]), seen.told["timelines_left"]
    return Page(target, len(text.encode()), runs, shown, left, script is not None or not runs)


@dataclass
class InTime:
    """The runs that a page shows in time."""

    told: dict[str, Any]
    blobs: dict[str, str]
    named: list[list[tuple[str, Activities]]]  # of each folder, as many as a figure of durations shows


def in_time(folders: Sequence[Folder], wanted: Sequence[str] | None) -> InTime:
    """Timelines and address maps: of the runs that are wanted, or of as many as there is room for."""
    told = {"timelines": [], "maps": [], "capacities": {}, "timelines_left": ""}
    found = InTime(told, {}, [[] for _ in folders])
    why, skipped = "", 0
    for one, named in zip(folders, found.named, strict=True):
        room = ROOM // len(folders)
        keys = [key for key in content.ranked(one) if key in set(one.logged)] if wanted is None else chosen(one, wanted)
        by_key, names = {r.key: r for r in one.results}, varying(one.results)
        for key in keys:
            if wanted is None and room <= 0:
                skipped += 1
                continue
            blobs, rows = _one(one, by_key[key])
            if isinstance(rows, str):
                why = why or rows
            elif len(named) < MOST_DURATIONS:
                named.append((run_name(by_key[key], names), rows))
            found.blobs |= blobs
            room -= sum(map(len, blobs.values()))
            found.told["capacities"][key] = capacity(by_key[key])
    for blob in found.blobs:
        kind, _, key = blob.partition("-")
        if kind in TOLD:
            found.told[TOLD[kind]].append(key)
    found.told["timelines_left"] = _left(folders, wanted, skipped, why)
    return found


def _one(folder: Folder, run: Result) -> tuple[dict[str, str], Activities | str]:
    """The blobs of one run, and its rows, or why there is no timeline among them."""
    whole = folder.whole(run, log=True)
    trace = programs([run], folder.path)[0].trace
    rows = rows_of(whole, trace)
    blobs = {}
    if not isinstance(rows, str):
        blobs[f"timeline-{run.key}"] = timeline(rows)
        if over_time := metrics(whole, trace, rows):
            blobs[f"metrics-{run.key}"] = over_time
    if heap := address_map(whole, trace):
        blobs[f"map-{run.key}"] = heap
    return blobs, rows


def rooflines(folder: Folder) -> list[Roofline]:
    """Of the first programs on machines of the folder whose traces are there and have flops."""
    distinct: dict[tuple[str, ...], Result] = {}
    for run in folder.results:
        distinct.setdefault(tuple(str(run.spec.get(key)) for key in ("trace_hash", "transform", "profile")), run)
    ran = programs([*distinct.values()][:MOST_ROOFLINES], folder.path)
    return [roofline(one.trace, one.profile) for one in ran if one.trace and one.profile and (one.trace.flops > 0).any()]


def _left(folders: Sequence[Folder], wanted: Sequence[str] | None, skipped: int, why: str) -> str:
    """The sentence in the place of a timeline that is not there."""
    if why:
        return f"A run has no timeline here: {why}."
    if skipped:
        kept = sum(len(one.logged) for one in folders)
        return (
            f"{kept - skipped} of {kept} runs with an event log are here; "
            f"gpusim report {folders[0].name} --timeline RUN has any other, by its number or key."
        )
    if wanted is None and any(one.results for one in folders) and not any(one.logged for one in folders):
        many = max(len(one.results) for one in folders) > LISTED
        return f"No run kept its event log, from which a timeline is made: gpusim run --log keeps it{OF_MANY if many else ''}."
    return ""


def differences(a: Folder, b: Folder) -> dict[str, Any]:
    """What changed from one folder to the other, run by run, as `gpusim compare A B` has it."""
    found = changes(a.results, b.results, always=())
    changed = {c.metric for c in found}
    metric = next((name for name in (main_metric(a.results), "makespan_ns") if name in changed), main_metric(a.results))
    better = sum(c.better is True and c.metric == metric for c in found)
    worse = sum(c.better is False and c.metric == metric for c in found)
    alone = sum(c.metric == "run" for c in found)
    label = METRICS[metric].label
    said = (
        f"{label.capitalize()} is better in {better} pairs of runs, worse in {worse}, and equal in the others."
        if found else "All numbers of all runs are equal."
    ) + (f" {alone} runs are in one folder only." if alone else "")  # fmt: skip
    return {"changes": [_change(c) for c in found], "compared": metric, "said": said}


def _change(c: Change) -> dict[str, Any]:
    words = c.metric in ("run", "outcome")
    unit = "" if words else "ratio" if c.metric in RATIOS else METRICS[c.metric].unit

    def shown(value: Any) -> str:
        return str(value or "not there") if words else human(c.metric, value)

    ratio = c.ratio if c.ratio is not None and math.isfinite(c.ratio) else None
    return {
        "run": run_name(Result(c.run, FINISHED, {}), list(c.run)), "metric": c.metric, "a": c.a, "b": c.b, "textA": shown(c.a),
        "textB": shown(c.b), "ratio": ratio, "better": c.better, "unit": unit,
    }  # fmt: skip
