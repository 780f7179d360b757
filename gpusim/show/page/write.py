"""Write the page of a results folder, alone or against another one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.files import write_text
from gpusim.show.page import content
from gpusim.show.page.folder import Folder, read
from gpusim.show.page.html import as_blob, html, plotly
from gpusim.show.page.memory import memory
from gpusim.show.page.pack import packed

NAME = "report.html"
WITHOUT = "Figures need Plotly: pip install 'gpusim[report]', and write the page again."


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page of these results.  Raises ResultError."""
    first = read(folder)
    folders = [first]
    shown = content.with_timelines(first)
    script = plotly()
    charts = content.charts(shown)
    blobs = {}
    told: dict[str, Any] = {
        "folders": [], "charts": charts, "timelines": [], "maps": [], "has_plotly": script is not None,
        "without_plotly": WITHOUT, "before_memory": next(iter(charts), ""),
    }
    for at, one in enumerate(folders):
        table, numbers = content.table(one)
        told["folders"].append({"told": content.told(one), "table": table})
        blobs[f"numbers-{at}"] = packed({}, {name: np.array(values, np.float64) for name, values in numbers.items()})
    if series := memory(first, shown):
        blobs["memory"] = series
    blobs = {"content": as_blob(told), **blobs, **({"plotly": script} if script else {})}
    words = told["folders"][0]["told"]
    target = out or folder / NAME
    write_text(target, html({
        "title": words["question"], "name": words["name"], "question": words["question"],
        "answer": words["answer"] or "There is nothing to compare.", "footer": "Made by gpusim. Nothing in this file is loaded from elsewhere.",
    }, blobs))
    return target
