"""Figures and tables as a notebook shows them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any

from gpusim.base.text import show
from gpusim.show import figures

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpusim.results.result import Result


def figure(results: Sequence[Result], kind: str, question: str = "", **options: Any) -> Figure:
    """The figure of this name, or the first that says something.  Raises ResultError for an unknown name."""
    name = kind or next(iter(figures.suitable(results)), "policy_comparison")
    return inline(figures.draw(name, results, question, **options))


def inline(made: Figure) -> Figure:
    """The figure, which a notebook shows where it is the value of a cell, whether pyplot was imported or not."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(shell, {"png"}, bbox_inches=None)
    return made


def html(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], caption: str = "") -> str:
    """Rows as an HTML table; all text is escaped, numbers stand to the right."""

    def cell(value: Any) -> str:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return f'<td style="text-align: {"right" if number else "left"}">{escape(show(value))}</td>'

    head = "".join(f'<th style="text-align: left">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(cell(row.get(name)) for name in columns)}</tr>" for row in rows)
    said = f'<caption style="text-align: left">{escape(caption)}</caption>' if caption else ""
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def preformatted(text: str) -> str:
    """Text of a verb as HTML."""
    return f"<pre>{escape(text)}</pre>"
