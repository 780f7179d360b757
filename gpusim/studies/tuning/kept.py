"""What a search left in its folder, read again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from gpusim.base.errors import ResultError
from gpusim.base.files import read_json
from gpusim.results.result import Result
from gpusim.studies.tuning.goals import Goal
from gpusim.studies.tuning.space import Space
from gpusim.studies.tuning.trials import Trial
from gpusim.studies.tuning.tune import FORMAT, STATE, VERSION, Asked, Tuned

_SPACE, _TRIALS, _GOALS = TypeAdapter(Space), TypeAdapter(tuple[Trial, ...]), TypeAdapter(tuple[Goal, ...])
_SHARES = TypeAdapter(dict[str, dict[str, float]])
_AGAIN = "the same `gpusim tune` writes it anew, and runs nothing twice"


def load(folder: Path, results: Sequence[Result]) -> Tuned | None:
    """The search whose runs lie in this folder; None where there is none.

    results  of its runs
    Raises ResultError: the file is damaged, is none of a search, or is of another version.
    """
    path = folder / STATE
    if not path.is_file():
        return None
    value = read_json(path, _AGAIN)
    if value.get("format") != FORMAT or value.get("version") != VERSION:
        raise ResultError(f"this is no search in format {FORMAT}, version {VERSION}", str(path), _AGAIN)
    try:
        goals = _GOALS.validate_python(
            [{"metric": g["metric"], "sign": {"lower": 1, "higher": -1}[g["better"]], "per": g["per"]} for g in value["goals"]]
        )
        asked = Asked(goals, value["budget"], value["seed"], value["batch"], value["grid"])
        return Tuned(
            value["question"], folder, asked, _SPACE.validate_python(value["space"]), _TRIALS.validate_python(value["trials"]),
            value["places"], value["complete"], _SHARES.validate_python(value["importance"]), list(results),
        )  # fmt: skip
    except (KeyError, TypeError, ValidationError):
        raise ResultError("this search lacks something", str(path), _AGAIN) from None
