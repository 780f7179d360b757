"""The page of a service that kept its log: its answer, its latencies, and its requests, steps and memory over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.base.files import write_text
from gpusim.show.page.html import as_blob, html
from gpusim.show.page.pack import packed
from gpusim.show.page.timeline import timeline
from gpusim.show.page.write import FOOTER, NAME
from gpusim.show.values.requests_in_time import requests_in_time
from gpusim.show.values.served_memory import capacity_of
from gpusim.studies.serving.answer import ServingAnswer

KEY = "service"  # of the only run


def write_service_page(found: ServingAnswer, answer: str, tables: dict[str, list[dict[str, str]]], folder: Path) -> Path:
    """FOLDER/report.html.

    answer  what it says at the top; tables: rows by title
    """
    activities, left = requests_in_time(found)
    spec = found.service.spec
    question = f"How does {spec.model} serve on {spec.machine}?"
    shown = [{"title": title, "rows": _cells(rows)} for title, rows in tables.items()]
    told: dict[str, Any] = {
        "name": folder.name, "question": question, "answer": answer, "sure": [], "basis": "", "picked": {}, "tuned": {},
        "advised": {}, "doubts": [], "missing": 0, "shared": [], "metric": "", "experiment": "", "manifest": {}, "machine": {},
        "served": {"tables": shown, "said": [], "copied": [], "notes": []},
    }  # fmt: skip
    none = {"columns": [], "runs": {"number": [], "key": [], "name": [], "wins": [], "oracle": []}, "compared": ""}
    content = {
        "folders": [{"told": told, "table": none}], "has_plotly": True, "without_plotly": "", "charts": {}, "timelines": [KEY],
        "maps": [], "capacities": {KEY: capacity_of(found)}, "timelines_left": left,
    }  # fmt: skip
    words = {"title": question, "name": folder.name, "question": question, "answer": answer, "footer": FOOTER}
    blobs = {"content": as_blob(content), "numbers-0": packed({}, {}), f"timeline-{KEY}": timeline(activities)}
    write_text(folder / NAME, html(words, blobs))
    return folder / NAME


def _cells(rows: list[dict[str, str]]) -> list[list[str]]:
    return [list(rows[0]), *(list(row.values()) for row in rows)]
