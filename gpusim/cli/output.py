"""What the verbs print: aligned tables for people, JSON for programs."""

from __future__ import annotations

import json
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from gpusim.base.text import Cells, table


def emit(rows: Iterable[Cells], as_json: bool = False, columns: Sequence[str] | None = None) -> None:
    """Print rows as an aligned table, in a terminal no wider than it, or as a JSON list.

    columns  the keys that the table shows, in this order; those of the first row by default.  JSON shows all.
    """
    rows = list(rows)
    if as_json:
        emit_json([dict(row) for row in rows])
    elif rows:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        typer.echo(table(rows, columns or list(rows[0]), width))


def emit_json(value: Any) -> None:
    """Print a value as JSON; a number that is not finite becomes null, since JSON has none."""
    typer.echo(json.dumps(_plain(value), indent=2, ensure_ascii=False))


def emit_question(asked: Any, rows: Sequence[Cells], *, as_json: bool = False) -> None:
    """Print a question and a row for each combination of its axes, with every column that any row has."""
    if as_json:
        emit_json({"question": asked.question, "rows": rows})
    else:
        typer.echo(f"{asked.question}\n")
        emit(rows, columns=list(dict.fromkeys(name for row in rows for name in row)))


def emit_points(
    asked: Any, points: Sequence[Any], out: Path | None, save: Callable[[Any, list[Any], Path], list[Path]], *, as_json: bool
) -> None:
    """The same of `studies.questions.QuestionPoint`; with a folder, its rows and figure are saved there."""
    rows = [point.row() for point in points]
    emit_question(asked, rows, as_json=as_json)
    if out is not None:
        written = save(asked, rows, out)
        if not as_json:
            typer.echo(f"\n{out}: {', '.join(path.name for path in written)}")


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(v) for v in value]
    if hasattr(value, "item") and not isinstance(value, str):  # a numpy scalar
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)
