"""Pages that no experiment made: the question, its answer, tables, and what one run did over time."""

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
    listed = [{"title": name, "rows": _cells(table)} for name, table in tables.items()]
    return write_alone(
        folder, question, answer, {"served": {"tables": listed, "title": title, "said": [], "copied": [], "notes": []}},
        {f"timeline-{key}": timeline(rows)}, timelines=[key], left=left, capacities={key: capacity},
    )  # fmt: skip


def write_alone(
    folder: Path, question: str, answer: str, part: dict[str, Any], blobs: dict[str, str], *, timelines: list[str],
    left: str = "", capacities: dict[str, float] | None = None,
) -> Path:  # fmt: skip
    """FOLDER/report.html of what no experiment made.

    part    what it has below the answer, by its name in `assets/page.js`
    blobs   of runs, whose timelines have these keys; left: what the timelines do not show
    """
    told = {
        "name": folder.name, "question": question, "answer": answer, "sure": [], "basis": "", "picked": {}, "tuned": {},
        "advised": {}, "doubts": [], "missing": 0, "shared": [], "metric": "", "experiment": "", "manifest": {}, "machine": {},
        **part,
    }  # fmt: skip
    none = {"columns": [], "runs": {"number": [], "key": [], "name": [], "wins": [], "oracle": []}, "compared": ""}
    content = {
        "folders": [{"told": told, "table": none}], "has_plotly": True, "without_plotly": "", "charts": {},
        "timelines": timelines, "maps": [], "capacities": capacities or {}, "timelines_left": left,
    }  # fmt: skip
    words = {"title": question, "name": folder.name, "question": question, "answer": answer, "footer": FOOTER}
    write_text(folder / NAME, html(words, {"content": as_blob(content), "numbers-0": packed({}, {}), **blobs}))
    return folder / NAME


def _cells(rows: Rows) -> list[list[str]]:
    return [list(rows[0]), *(list(row.values()) for row in rows)]
