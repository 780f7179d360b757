"""The file: markup, style, scripts and data together, so that it needs nothing else."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from gpusim.base.files import read_bytes
from gpusim.show.page.pack import text

ASSETS = Path(__file__).with_name("assets")
SCRIPTS = ("base.js", "table.js", "charts.js", "timeline.js", "metrics.js", "address.js", "differences.js", "page.js")
PLOTLY = "plotly/package_data/plotly.min.js"  # of the distribution `plotly`, which is not imported


def html(words: Mapping[str, str], blobs: Mapping[str, str]) -> str:
    """The page.

    words  what stands in the markup itself: name, title, question, answer, footer
    blobs  name -> text of `pack`
    """
    page = _asset("page.html")
    held = '<script type="application/octet-stream" id="blob-{}">{}</script>'
    data = "\n".join(held.format(name, content) for name, content in blobs.items())
    script = "\n".join(["(() => {", '"use strict";', *map(_asset, SCRIPTS), "})();"])
    said = {name: escape(text) for name, text in words.items()}
    parts = {**said, "style": _asset("page.css"), "blobs": data, "script": script}
    for name, part in parts.items():
        head, mark, tail = page.partition("{{" + name + "}}")
        assert mark, name
        page = head + part + tail
    return page


def as_blob(value: Any) -> str:
    """A value as compressed JSON."""
    return text(json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode())


def plotly() -> str | None:
    """Plotly's script as a blob; None where the extra is not installed."""
    found = importlib.util.find_spec("plotly")
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent.parent / PLOTLY
    return text(read_bytes(path)) if path.is_file() else None


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")
