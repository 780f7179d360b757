"""A page of one run that no experiment made: its question, its answer, tables, and what it did over time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gpusim.base.files import write_text
from gpusim.results.activities import Activities
from gpusim.show.page.html import as_blob, html
from gpusim.show.page.pack import packed
from gpusim.show.page.timeline import timeline
from gpusim.show.page.write import FOOTER, NAME

Rows = list[dict[str, str]]


def write_single_page(
    folder: Path, key: str, question: str, answer: str, tables: dict[str, Rows], rows: Activities, *, title: str,
    left: str = "", capacity: float = 0.0,
) -> Path:  # fmt: skip
    """FOLDER/report.html.

    key       of the only run
    answer    what it says at the top; tables: rows by title, under this one
    left      what the timeline does not show; capacity: bytes of the memory that it draws
    """
    told: dict[str, Any] = {
        "name": folder.name, "question": question, "answer": answer, "sure": [], "basis": "", "picked": {}, "tuned": {},
        "advised": {}, "doubts": [], "missing": 0, "shared": [], "metric": "", "experiment": "", "manifest": {}, "machine": {},
        "served": {"tables": [{"title": name, "rows": _cells(table)} for name, table in tables.items()], "title": title,
                   "said": [], "copied": [], "notes": []},
    }  # fmt: skip
    none = {"columns": [], "runs": {"number": [], "key": [], "name": [], "wins": [], "oracle": []}, "compared": ""}
    content = {
        "folders": [{"told": told, "table": none}], "has_plotly": True, "without_plotly": "", "charts": {}, "timelines": [key],
        "maps": [], "capacities": {key: capacity}, "timelines_left": left,
    }  # fmt: skip
    words = {"title": question, "name": folder.name, "question": question, "answer": answer, "footer": FOOTER}
    blobs = {"content": as_blob(content), "numbers-0": packed({}, {}), f"timeline-{key}": timeline(rows)}
    write_text(folder / NAME, html(words, blobs))
    return folder / NAME


def _cells(rows: Rows) -> list[list[str]]:
    return [list(rows[0]), *(list(row.values()) for row in rows)]
