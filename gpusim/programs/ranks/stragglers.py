"""Ranks that are slower than others: by how much their kernels take longer, and when.

Said in words, "3=1.1" or "3=1.1@2ms..5ms 7=1.5", or as a file of clock rates over time.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.base.files import open_text
from gpusim.base.units import TIME, parse_time, write

NO_STRAGGLERS = "none"
MOST = 1000
"""Times as long as usual, at most."""
Pace = tuple[tuple[int, float], ...]
"""(ns, factor): kernels that start from then on take so many times as long; the first from 0 on."""
_TIME = r"\d+(?:\.\d+)?(?:ns|us|µs|ms|s)"
_ONE = re.compile(rf"(\d+)=(\d+(?:\.\d+)?)(?:@({_TIME})?\.\.({_TIME})?)?")
_HINT = "write 3=1.1: kernels of rank 3 take 1.1 times as long; or 3=1.1@2ms..5ms: those that start then"
_UNITS = {"time_ns": 1, "time_us": 10**3, "time_ms": 10**6, "time_s": 10**9}


def is_clock_file(said: object) -> bool:
    """Whether stragglers are said by a file of clock rates."""
    return isinstance(said, str) and said.strip().lower().endswith(".csv")


def parse_stragglers(said: str | Mapping[Any, Any]) -> dict[int, Pace]:
    """How fast the ranks are that "3=1.1 7=1.5@2ms..5ms" names, or {3: 1.1}; none of "none".

    Raises GpusimError for a text that is none, a rank that stands there twice for one time, and a factor of 0.
    """
    if said == NO_STRAGGLERS:
        return {}
    text = " ".join(f"{rank}={factor}" for rank, factor in said.items()) if isinstance(said, Mapping) else str(said)
    found: dict[int, list[tuple[int, float, float]]] = {}
    for word in text.replace(",", " ").split():
        if not (match := _ONE.fullmatch(word)):
            raise GpusimError(f"'{word}' is no straggler", hint=_HINT)
        begin, end = round(parse_time(match[3])) if match[3] else 0, parse_time(match[4]) if match[4] else math.inf
        if begin >= end:
            raise GpusimError(f"'{word}' ends before it begins", hint=_HINT)
        if not 0 < float(match[2]) < MOST:
            raise GpusimError(f"kernels of rank {match[1]} cannot take {match[2]} times as long", hint=_HINT)
        found.setdefault(int(match[1]), []).append((begin, end, float(match[2])))
    if not found:
        raise GpusimError("no straggler is named", hint=f"{_HINT}; or none")
    return {rank: _pace(rank, spans) for rank, spans in found.items()}


def _pace(rank: int, spans: Iterable[tuple[int, float, float]]) -> Pace:
    steps, free = [(0, 1.0)], 0.0
    for begin, end, factor in sorted(spans):
        if begin < free:
            raise GpusimError(f"rank {rank} stands there twice", hint=_HINT)
        steps += [(begin, factor), *([(round(end), 1.0)] if end < math.inf else [])]
        free = end
    return _shortest(steps)


def _shortest(steps: Sequence[tuple[int, float]]) -> Pace:
    """Without what changes nothing; of one time the last."""
    kept: list[tuple[int, float]] = []
    for time, factor in dict(steps).items():
        if not kept or factor != kept[-1][1]:
            kept.append((time, factor))
    return tuple(kept)


def stragglers_text(paces: Mapping[int, Pace]) -> str:
    """As `parse_stragglers` reads them."""
    words = []
    for rank, pace in sorted(paces.items()):
        ends = [*(time for time, _ in pace[1:]), None]
        for (begin, factor), end in zip(pace, ends, strict=True):
            if len(pace) == 1:
                words.append(f"{rank}={factor:g}")
            elif factor != 1:
                words.append(f"{rank}={factor:g}@{_time(begin) if begin else ''}..{'' if end is None else _time(end)}")
    return " ".join(words) or NO_STRAGGLERS


def _time(ns: int) -> str:
    return write(float(ns), TIME).replace(" ", "")


def read_clocks(path: Path) -> dict[str, Pace]:
    """The clock rates over time in a CSV file, by rank ("3") or GPU ("gpu3").

    The header has `time_ms` (or `_ns`, `_us`, `_s`), then ranks or GPUs; a row the rates from its time on, as shares of the
    usual one: at 0.9 kernels take 1/0.9 times as long.  Before the first time the rate is the usual one.

    Raises TraceError, with file and line, for what is no such row.
    """
    with open_text(path) as file:
        rows = [(number, [cell.strip() for cell in row]) for number, row in enumerate(csv.reader(file), 1) if any(row)]
    if not rows:
        raise TraceError("the file of clock rates is empty", str(path))
    head = rows[0][1]
    if head[0] not in _UNITS or len(head) < 2 or len({*head}) < len(head):
        raise TraceError("the header of clock rates is a time, then each rank or GPU once", f"{path}:{rows[0][0]}",
                         "write time_ms,0,3 for ranks, or time_ms,gpu0,gpu3")  # fmt: skip
    steps: dict[str, list[tuple[int, float]]] = {name: [(0, 1.0)] for name in head[1:]}
    before = -1
    for number, row in rows[1:]:
        where = f"{path}:{number}"
        if len(row) != len(head):
            raise TraceError(f"{len(row)} numbers for {len(head)} columns", where)
        try:
            time, rates = round(float(row[0]) * _UNITS[head[0]]), [float(cell) for cell in row[1:]]
        except (ValueError, OverflowError):
            raise TraceError(f"'{','.join(row)}' are no numbers", where) from None
        if time <= before:
            raise TraceError(f"time {row[0]} is not after the one before", where)
        for name, rate in zip(head[1:], rates, strict=True):
            if not 1 / MOST < rate <= 10:
                raise TraceError(f"the rate {rate:g} of {name} is no share of the usual one", where,
                                 "divide by the usual clock rate: 0.9 for a tenth less")  # fmt: skip
            steps[name].append((time, 1 / rate))
        before = time
    if len(rows) == 1:
        raise TraceError("the file of clock rates has no rows", str(path))
    return {name: _shortest(of) for name, of in steps.items()}


def paces(said: str, file: Path | None = None) -> dict[str, Pace]:
    """Of ranks ("3") or GPUs ("gpu3"): what a run's stragglers mean, read from `file` where they name one."""
    return read_clocks(file) if file is not None else {str(rank): pace for rank, pace in parse_stragglers(said).items()}


def by_rank(found: Mapping[str, Pace], gpus: Sequence[str], known: Sequence[str]) -> dict[int, Pace]:
    """The same by rank; GPUs without a rank are left out.

    gpus   of the ranks, in their order; known: all of the machine
    Raises GpusimError for a rank or GPU that is not there.
    """
    placed: dict[int, Pace] = {}
    for name, pace in found.items():
        if name.isdecimal() and int(name) >= len(gpus):
            raise GpusimError(f"there is no rank {name}: {len(gpus)} are counted from 0", hint="name one of them")
        if not name.isdecimal() and name not in known:
            raise GpusimError(f"the machine has no GPU '{name}'", hint=suggest(name, known))
        if not name.isdecimal() and name not in gpus:
            continue
        rank = int(name) if name.isdecimal() else gpus.index(name)
        if rank in placed:
            raise GpusimError(f"rank {rank} stands there twice: as {rank} and as {gpus[rank]}")
        placed[rank] = pace
    return placed


def constant(pace: Pace) -> float | None:
    """The factor of a pace that never changes; None of one that does."""
    return pace[0][1] if len(pace) == 1 else None
