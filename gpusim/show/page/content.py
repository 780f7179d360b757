"""The values of a page: sentences, the table, figures, what repeats it; each comes from where the other reports have it."""

from __future__ import annotations

import importlib
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from shlex import quote
from typing import Any

from gpusim.base.units import BYTES, FRACTION, write
from gpusim.experiment.spec import KINDS
from gpusim.results.metrics import METRICS, in_order
from gpusim.results.references import RATIOS
from gpusim.results.result import Result
from gpusim.show import picked as overview
from gpusim.show.answer import answer, sureness
from gpusim.show.basis import basis
from gpusim.show.figures import FIGURES
from gpusim.show.interval import drawn
from gpusim.show.page.beside import advised, tuned
from gpusim.show.page.charts.fault_map import MOST as MOST_MAPS
from gpusim.show.page.charts.fragmentation import MOST as MOST_ALLOCATORS
from gpusim.show.page.charts.parts import PlotChart
from gpusim.show.page.folder import Folder
from gpusim.show.report import doubts
from gpusim.show.standing import standings
from gpusim.show.table import Column, Listing, caption, listing, metric_column
from gpusim.show.values.over_time import MOST as MOST_OVER_TIME
from gpusim.show.values.picked import LISTED, picked
from gpusim.show.view import POLICIES, ending, main_metric, pick, run_name, text, varying

LOADS = ("gpusim.show.page.charts",)  # packages whose modules are imported by name
OWN = ("memory_over_time", "address_map", "swimlane")  # figures that the page draws from columns, the last as its timeline


def told(folder: Folder) -> dict[str, Any]:
    """What stands in words: question, answer, how sure, what was not checked, and what the page is of."""
    results, advice = folder.results, advised(folder.path)
    said = advice.pop("said") if advice and not results else []  # the answer, where no run gives one
    question = folder.question or (f"What would help {advice['program']}?" if advice else "What was simulated")
    return {
        "name": folder.name, "question": question, "answer": answer(results) or " ".join(said),
        "sure": [words for words in (drawn(results), *sureness(results)) if words], "basis": basis(results) if results else "",
        "picked": looked_at(results), "tuned": tuned(folder.path, results), "advised": advice,
        "doubts": doubts(results, logged=bool(folder.logged), missing=folder.missing), "missing": folder.missing,
        "shared": caption(results, bold=True).splitlines() if results else [], "metric": main_metric(results),
        "experiment": folder.experiment, "manifest": folder.manifest, "machine": folder.machine,
    }  # fmt: skip


def looked_at(results: Sequence[Result]) -> dict[str, Any]:
    """What to look at of very many runs, as tables with the header first; nothing where the table of runs can be read."""
    if len(results) <= LISTED:
        return {}
    found = picked(results)
    said = f"{overview.counted(found)}. The best of them, and what the axes do:"
    return {"said": said, "tables": [{"title": title, "rows": rows} for title, rows in overview.tables(found)]}


def table(folder: Folder) -> tuple[dict[str, Any], dict[str, list[float]]]:
    """Of the table what is said of each column and run, and the columns of numbers by name; NaN where there is none."""
    listed = listing(folder.results)
    known = {column.name for column in listed.columns}
    more = in_order({name for r in listed.results for name in (*r.metrics, *r.bounds)} - known)
    columns = [*listed.columns, *(metric_column(listed.results, name) for name in more)]
    about = [_about(column, i < len(listed.columns), i < listed.keys) for i, column in enumerate(columns)]
    numbers = {
        column.name or column.header: [math.nan if v is None else float(v) for v in column.values]
        for column in columns if column.divisor is not None
    }  # fmt: skip
    return {"columns": about, "runs": _runs(folder, listed), "compared": main_metric(folder.results)}, numbers


def _about(column: Column, shown: bool, key: bool) -> dict[str, Any]:
    """What a column is: how its numbers read, or its different cells, which of them each row has, and their order."""
    metric = METRICS.get(column.name)
    about: dict[str, Any] = {
        "id": column.name or column.header, "header": column.header, "shown": shown, "key": key, "numeric": column.numeric,
        "meaning": metric.meaning if metric else "", "group": metric.group if metric else "run",
        "unit": "ratio" if column.name in RATIOS else metric.unit if metric else "", "better": metric.better if metric else "",
    }  # fmt: skip
    if column.divisor is not None:
        return about | {"divisor": column.divisor, "decimals": column.decimals, "behind": column.behind}
    order = dict(zip(column.cells, column.values or column.cells, strict=True))
    at = {cell: i for i, cell in enumerate(order)}
    return about | {"words": list(order), "order": list(order.values()), "cells": [at[cell] for cell in column.cells]}


def _runs(folder: Folder, listed: Listing) -> dict[str, Any]:
    """What is said of each row beside its cells."""
    keys, order = varying(folder.results), {id(r): number for number, r in enumerate(folder.results, 1)}
    options = {id(r): words for r, words in zip(folder.results, again(folder), strict=True)}
    results = listed.results
    return {
        "number": [order[id(r)] for r in results], "key": [r.key for r in results],
        "name": [run_name(r, keys) for r in results], "place": list(listed.places),
        "wins": [i for i, wins in enumerate(listed.wins) if wins], "oracle": [i for i, r in enumerate(results) if r.oracle],
        "checked": [None if r.checked is None else int(r.checked) for r in results],
        "ending": {i: ending(r) for i, r in enumerate(results) if not r.finished},
        "failure": {i: r.failure for i, r in enumerate(results) if r.failure}, "again": [options[id(r)] for r in results],
    }  # fmt: skip


def again(folder: Folder) -> list[str]:
    """Of each run the options of `gpusim run` that leave it alone of the experiment's grid."""
    keys = varying(folder.results)
    keys += ["seed"] * (len({r.spec.get("seed") for r in folder.results}) > 1)
    return [" ".join(f"--set {quote(_chosen(r, key))}" for key in keys) for r in folder.results]


def _chosen(result: Result, key: str) -> str:
    value = result.spec.get(key)
    if key == "memory_share":
        return f"memory={write(float(value or 0), FRACTION)}"
    if key in ("memory", "host_memory") and isinstance(value, int):
        return f"{key}={write(value, BYTES)}"
    return f"{f'policies.{key}' if key in KINDS else key}={text(key, value) if key in POLICIES else value}"


def charts(
    every: Sequence[Sequence[Result]], others: Sequence[Mapping[str, Any]] = ()
) -> dict[str, dict[str, Any]]:
    """The figures that say something about these results, by name, without those that the page draws from columns.

    every   the results of each folder; the panels of two folders stand side by side
    others  of each folder by name what figures show that are not of results: programs and logs
    """
    found: dict[str, dict[str, Any]] = {}
    for at, (results, beyond) in enumerate(zip(every, others or [{}] * len(every), strict=True)):
        for name, drawing in FIGURES.items():
            about = beyond.get(name) if drawing.program else results
            if name in OWN or not about or not (drawing.program or drawing.fits(results)):
                continue
            chart: PlotChart = _module(name).chart(about)
            if len(every) > 1:
                chart = lettered(chart, "AB"[at])
            one = {"name": name.replace("_", " "), **chart.plain()}
            found[name] = beside(found[name], one) if name in found else one
    return {name: found[name] for name in FIGURES if name in found}


def lettered(chart: PlotChart, letter: str) -> PlotChart:
    """The chart of one of two folders, which its panels name."""
    views = [
        replace(view, panels=[replace(panel, title=f"{letter} {panel.title}".strip()) for panel in view.panels])
        for view in chart.views
    ]  # fmt: skip
    return replace(chart, views=views, answer=f"{letter}: {chart.answer}" if chart.answer else "")


def beside(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
    """One figure of the charts of two folders."""
    views = {view["label"]: view for view in a["views"]}
    for view in b["views"]:
        there = views.setdefault(view["label"], {"label": view["label"], "panels": []})
        there["panels"] = [*there["panels"], *view["panels"]]
    names = {entry["name"] for entry in a["legend"]}
    return {
        **a, "views": list(views.values()), "legend": [*a["legend"], *(e for e in b["legend"] if e["name"] not in names)],
        "answer": " ".join(filter(None, (a["answer"], b["answer"]))),
    }  # fmt: skip


def ranked(folder: Folder) -> list[str]:
    """The keys of the runs: the best of each place, hardest place first, then the second of each, ..."""
    listed, turn = listing(folder.results), Counter[str]()
    hardest = [standing.where for standing in standings(folder.results)]
    order = []
    for run, place in zip(listed.results, listed.places, strict=True):
        order.append((turn[place], hardest.index(place), run.key))
        turn[place] += 1
    return [key for _, _, key in sorted(order)]


def _module(name: str) -> Any:
    return importlib.import_module(f"gpusim.show.page.charts.{name}")


def with_timelines(folder: Folder) -> list[Result]:
    """The results, those with their timelines and pictures of faults that figures show one by one."""
    wanted = {r.key for some in (MOST_OVER_TIME, MOST_MAPS, MOST_ALLOCATORS) for r in pick(folder.results, some)[0]}
    return [folder.whole(r) if r.key in wanted else r for r in folder.results]
