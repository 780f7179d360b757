"""What `gpusim tune` and `gpusim advise` left in a folder, in the sentences and tables that they print."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError
from gpusim.base.files import read_json
from gpusim.base.text import Cells
from gpusim.base.text import show as cell
from gpusim.results.afterwards import RESULT
from gpusim.results.result import Result
from gpusim.show import tuned as search
from gpusim.studies.advice import report as advice
from gpusim.studies.tuning.kept import load

ADVICE = "advice.json"


def has_advice(path: Path) -> bool:
    """Whether the folder is one of `gpusim advise`; in the folder of a run a file of this name has hints to a driver."""
    return (path / ADVICE).is_file() and not (path / RESULT).is_file()


def tuned(path: Path, results: Sequence[Result]) -> dict[str, Any]:
    """The search whose runs these are; nothing where there was none.  Raises ResultError for a damaged file."""
    found = load(path, results)
    if found is None:
        return {}
    best = found.best()
    line = best is not None and len(found.asked.goals) == 1
    return {
        "said": [search.extent(found), search.said(found)], "tables": _tables(search.tables(found)), "notes": [],
        "copied": [search.copied(best), search.command(best, f"{path.absolute().name}/experiment.yaml")] if line else [],
    }  # fmt: skip


def advised(path: Path) -> dict[str, Any]:
    """The advice in the folder; nothing where there is none.  Raises ResultError for a file that is none."""
    if not has_advice(path):
        return {}
    try:
        found = advice.from_values(read_json(path / ADVICE, advice.AGAIN))
    except ResultError as error:
        raise ResultError(error.message, error.where or str(path / ADVICE), error.hint) from None
    lines: list[Cells] = [{"": rank, "write": line} for rank, line in advice.copied(found)]
    notes = [f"{title}: {why}" for title, whys in advice.reasons(found) for why in whys]
    return {
        "program": found.name, "said": advice.sentences(found), "copied": [],
        "tables": _tables([*advice.tables(found), *([("To copy", lines)] if lines else [])]),
        "notes": [*advice.notes(found), *notes, *found.remarks],
    }  # fmt: skip


def _tables(found: Iterable[tuple[str, Sequence[Cells]]]) -> list[dict[str, Any]]:
    """Cells as words, the header first."""
    return [
        {"title": title, "rows": [list(rows[0]), *([cell(value) for value in row.values()] for row in rows)]}
        for title, rows in found
    ]
