"""What runs came to on machines that the profile's error bars allow: OUT/uncertainty/NAME.json, one per program and machine.

    numbers   the machine's uncertain numbers: path, low, value, high, draws; `assumed` where an end is a share for estimates
    runs      key of a run -> makespan_ns and slowdown on every sampled machine, null where it did not finish
    pushed    one number at one end of its interval, the others as they are: makespan_ns of the runs that it may reorder
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusim.base.errors import ResultError
from gpusim.base.files import make_folder
from gpusim.results.result import Result
from gpusim.results.sampled import Push, Sampled
from gpusim.results.seal import read_sealed, write_sealed

FORMAT, VERSION, FOLDER = "gpusim-uncertainty", 1, "uncertainty"


def path_of(out: Path, name: str) -> Path:
    """Where the samples of one program on one machine lie."""
    return out / FOLDER / f"{name}.json"


def save(out: Path, name: str, content: Mapping[str, Any]) -> None:
    """Keep the samples of one program on one machine.  Raises ResultError."""
    make_folder(out / FOLDER)
    write_sealed(path_of(out, name), {"format": FORMAT, "version": VERSION, **content})


def attached(out: Path, names: Sequence[str], results: Sequence[Result]) -> list[Result]:
    """The results, each with its samples where these files have them.  Raises ResultError for a damaged file."""
    found: dict[str, Sampled] = {}
    for path in (path_of(out, name) for name in names):
        if path.is_file():
            found |= _read(path)
    return [replace(r, sampled=found.get(r.key)) for r in results]


def _read(path: Path) -> dict[str, Sampled]:
    text = read_sealed(path)
    try:
        if (text["format"], text["version"]) != (FORMAT, VERSION):
            raise ResultError("these are no samples that this program reads", str(path), "run again with --force")
        assumed = sum(number["assumed"] for number in text["numbers"])
        about = len(text["numbers"]) - assumed, assumed, float(text["estimated"])
        pushed: dict[str, dict[Push, float]] = {key: {} for key in text["runs"]}
        for p in text["pushed"]:
            push = Push(text["profile"], p["path"], p["side"], p["at"], p["instead"])
            for key, makespan in p["makespan_ns"].items():
                pushed[key][push] = _number(makespan)
        return {
            key: Sampled({name: tuple(map(_number, column)) for name, column in values.items()}, pushed[key], *about)
            for key, values in text["runs"].items()
        }
    except (KeyError, TypeError, ValueError, AttributeError):
        raise ResultError("these samples lack something", str(path), "run again with --force") from None


def _number(value: Any) -> float:
    return math.inf if value is None else float(value)
