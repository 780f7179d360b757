"""Step times that a user gives: a CSV of what prompts and tokens took, as runs of one model on one kind of machine.

    prompt_size,batch_size,prompt_time,token_time
    512,1,196.2,54.9

Times are ms: of all prompts of the batch together, and of a step in which each request makes one token.  model, hardware and
tensor_parallel tell rows apart; where one has several values the word says which: FILE(hardware=h100-80gb, model=bloom-176b).
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError, TraceError
from gpusim.base.text import join

F64 = npt.NDArray[np.float64]
NUMBERS = ("prompt_size", "batch_size", "prompt_time", "token_time")
APART = ("model", "hardware", "tensor_parallel")
"""Columns that tell runs of different services apart; others, as measured powers, do not count."""
MIXED = 1.1
"""A step with prompts and tokens takes so many times what prompts of as many tokens take.

Source: SplitwiseSim (Mutinifni/splitwise-sim @8f99e7dc), performance_model.py.
"""
_WORD = re.compile(r"\s*(.+?)\s*(?:\(([^()]*)\))?\s*")


@dataclass(frozen=True, eq=False)
class GivenStepTimes:
    """Of steps of so many tokens, ascending: medians of what was given.

    tokens  (n,) of a step
    prompt  (n,) ns of a step of prompts
    token   (n,) ns of a step in which so many requests make a token each
    """

    tokens: F64
    prompt: F64
    token: F64
    mixed: float = MIXED


def given_step_times(word: str) -> GivenStepTimes:
    """A table from its file, with the rows that are meant.  Raises GpusimError, TraceError with file:line."""
    match = _WORD.fullmatch(word)
    name, wanted = (match[1], match[2] or "") if match is not None else (word, "")
    rows = _chosen(name, _rows(Path(name)), _pairs(word, wanted))
    size = np.array([row[0] * row[1] for row in rows])
    tokens = np.unique(size)
    if tokens.size < 2:
        raise GpusimError(f"'{word}' has times of one size of steps; two are needed for those between and beyond")
    prompt, token = (np.array([np.median([r[at] for r in rows if r[0] * r[1] == n]) for n in tokens]) * 1e6 for at in (2, 3))
    return GivenStepTimes(tokens, prompt, token)


def _pairs(word: str, text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        key, equals, value = (each.strip() for each in part.partition("="))
        if not equals:
            raise GpusimError(f"'{part}' in '{word}' chooses no rows", hint="write FILE(hardware=h100-80gb)")
        found[key] = value
    return found


def _rows(path: Path) -> list[tuple[int, dict[str, str]]]:
    """(line, row) of the file."""
    if not path.is_file():
        raise GpusimError(f"there is no file of step times '{path}'", hint="name a CSV of " + ",".join(NUMBERS))
    try:
        with path.open(encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in NUMBERS if name not in (reader.fieldnames or ())]
            if missing:
                raise TraceError(f"a table of step times needs the column '{missing[0]}'", f"{path}:1", ",".join(NUMBERS))
            rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error):
        raise TraceError("this is not a table of text", str(path), f"wanted: {','.join(NUMBERS)}") from None
    if not rows:
        raise TraceError("the table has no rows", str(path))
    return rows


def _chosen(name: str, rows: list[tuple[int, dict[str, str]]], wanted: dict[str, str]) -> list[tuple[float, ...]]:
    """The numbers of the rows that are meant."""
    for key, value in wanted.items():
        known = list(dict.fromkeys(row.get(key) or "" for _, row in rows))
        if value not in known:
            there = join([each for each in known if each]) or "no such column"
            raise GpusimError(f"'{name}' has no rows of {key} '{value}'", hint=f"it has {there}")
        rows = [(line, row) for line, row in rows if row.get(key) == value]
    for key in APART:
        several = list(dict.fromkeys(row.get(key) or "" for _, row in rows))
        if len(several) > 1:
            said = f"'{name}' has rows of {len(several)} values of '{key}': {join(several)}"
            raise GpusimError(said, hint=f"say which: {name}({key}={several[0]})")
    return [_numbers(name, line, row) for line, row in rows]


def _numbers(name: str, line: int, row: dict[str, str]) -> tuple[float, ...]:
    found = []
    for key in NUMBERS:
        try:
            value = float(row[key])
        except (TypeError, ValueError):
            value = float("nan")
        if not 0 < value < float("inf"):
            raise TraceError(f"'{row[key]}' is no {key.replace('_', ' ')}", f"{name}:{line}", "a number above 0")
        found.append(value)
    return tuple(found)
