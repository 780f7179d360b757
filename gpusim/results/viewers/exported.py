"""What an exported run says of itself, and its activities."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.results.activities import GROUPS, KINDS, NONE, ROW, Activities, ActivityLane, Counter, activities
from gpusim.results.result import FOR_REFEREE, Result
from gpusim.trace.trace import I64, Trace

MARK, VERSION = "gpusim-run", 1
COUNTED = ("counters", "owners", "rates")  # of Activities
_KEPT = ("trace_hash",)
_LONGEST = 300  # characters of a title
_MOST = 2**62  # ns and bytes: above are none of a run
_AXES = ("trace", "profile", "place", "evict", "prefetch", "unified")


@dataclass(frozen=True, eq=False)
class ExportedRun:
    """One run as its viewers show it.

    title   the axes that say which run it is
    key     its name in the results folder, "" of a run that lies in none
    spec    of Result, but for what only the referee reads
    paged   under unified memory: the time of a step has its stalls in it
    """

    title: str
    key: str
    outcome: str
    spec: Mapping[str, Any]
    metrics: Mapping[str, int | float]
    paged: bool
    activities: Activities

    def about(self) -> dict[str, Any]:
        """All but rows and counters, as JSON values."""
        lanes = [[lane.name, lane.group, lane.number] for lane in self.activities.lanes]
        return {
            MARK: VERSION, "title": self.title, "key": self.key, "outcome": self.outcome, "spec": dict(self.spec),
            "metrics": dict(self.metrics), "paged": self.paged, "lanes": lanes, "names": list(self.activities.names),
        }  # fmt: skip


def exported(result: Result, trace: Trace | None) -> ExportedRun:
    """The run with its activities; `trace` and errors as of gpusim.results.activities."""
    spec = {name: value for name, value in result.spec.items() if name not in FOR_REFEREE or name in _KEPT}
    spec, metrics = json.loads(json.dumps([spec, result.metrics], default=_plain))
    title = " ".join(str(spec[axis]) for axis in _AXES if spec.get(axis))[:_LONGEST]
    return ExportedRun(title, result.key, result.outcome, spec, metrics, result.pages is not None, activities(result, trace))


def flows(found: Activities) -> npt.NDArray[np.bool_]:
    """bool[rows]: whether an arrow leads from the cause to the row.

    Within one lane the next one is seen to follow.  A stall has none: what it waited for ends with it, and has an arrow to the
    activity that stalled.
    """
    rows = found.rows
    if not len(rows):
        return np.zeros(0, bool)
    crossing = (rows["cause"] != NONE) & (rows["lane"][rows["cause"]] != rows["lane"])
    out: npt.NDArray[np.bool_] = crossing & (rows["kind"] != KINDS.index("stall"))
    return out


def in_time(found: Activities) -> tuple[I64, I64, npt.NDArray[np.bool_]]:
    """Begin and end of each row in the order of time, ends before begins, begins in the order of the rows.

    Returns (time, row, whether it ends) of each; rows that took no time have a begin alone.
    """
    rows = found.rows
    ends = np.flatnonzero(rows["start"] < rows["end"])
    row = np.concatenate([ends, np.arange(len(rows))])
    begins = np.arange(len(row)) >= len(ends)
    time = np.concatenate([rows["end"][ends], rows["start"]])
    order = np.lexsort((row, begins, time))
    return time[order], row[order], ~begins[order]


def told(about: Any, path: str) -> tuple[dict[str, Any], tuple[ActivityLane, ...], tuple[str, ...]]:
    """What a file says of itself, its lanes and its names.  Raises TraceError."""
    if not isinstance(about, dict) or MARK not in about:
        raise TraceError("this file does not say that it is a run of gpusim", path, "import what gpusim export has written")
    if about[MARK] != VERSION:
        version = str(about[MARK])[:20]
        raise TraceError(f"the file is of version {version!r}", path, f"this program reads {VERSION}: export it again")
    try:
        lanes = tuple(ActivityLane(str(name), str(group), int(number)) for name, group, number in about["lanes"])
        names = tuple(str(name) for name in about["names"])
        said = {name: about[name] for name in ("title", "key", "outcome", "spec", "metrics", "paged")}
    except (KeyError, TypeError, ValueError, OverflowError):
        raise TraceError("what the file says of the run is damaged", path, "export it again") from None
    tables, words = (said["spec"], said["metrics"]), (said["title"], said["key"], said["outcome"])
    known = all(isinstance(t, dict) for t in tables) and all(isinstance(w, str) and len(w) <= _LONGEST for w in words)
    if not known or any(lane.group not in GROUPS for lane in lanes):
        raise TraceError("what the file says of the run is damaged", path, "export it again")
    return said, lanes, names


class RowsRead:
    """Rows as they are read, in the order of the file; wrong ones are refused by what they say."""

    def __init__(self, path: str, lanes: int, names: tuple[str, ...]) -> None:
        self.path, self.lanes = path, lanes
        self.kinds = {kind: i for i, kind in enumerate(KINDS)}
        self.names: dict[str, int] = {}
        for i, name in enumerate(names):
            self.names.setdefault(name, i)
        self.rows: list[tuple[int, ...]] = []
        self._ends: list[int] = []
        self._open: dict[Any, list[int]] = {}  # rows of a track that have not ended

    def refuse(self, what: str) -> TraceError:
        return TraceError(f"row {len(self.rows)}: {what}", self.path, "was the file edited or cut? export it again")

    def kind(self, word: str) -> int:
        """The number of a kind."""
        if word not in self.kinds:
            raise self.refuse(f"there is no kind of activity {word[:40]!r}")
        return self.kinds[word]

    def add(self, *row: int, track: Any = None) -> None:
        """The columns of ROW, in their order; one on a track ends with the track's next end."""
        if not 0 <= row[4] < self.lanes:
            raise self.refuse(f"there is no lane {row[4]}")
        if max(row) > _MOST or min(row) < NONE:
            raise self.refuse("a number of it is that of no run")
        if track is not None:
            self._open.setdefault(track, []).append(len(self.rows))
        self.rows.append(row)
        self._ends.append(row[8])

    def end(self, track: Any, time: int) -> None:
        """The latest row of the track that is open ends at this time, ns."""
        if not self._open.get(track) or not 0 <= time < _MOST:
            raise self.refuse("something ends that did not begin, or when nothing does")
        self._ends[self._open[track].pop()] = time

    def table(self) -> npt.NDArray[np.void]:
        """All of them; every one ends, and has another one as its cause."""
        if any(self._open.values()):
            raise self.refuse("some activities have no end")
        try:
            found = np.array(self.rows, ROW) if self.rows else np.zeros(0, ROW)
            found["end"] = self._ends
        except OverflowError:
            raise self.refuse("a number of a row is that of no run") from None
        if (found["end"] < found["start"]).any() or (np.diff(found["start"]) < 0).any() or (found["start"] < 0).any():
            raise self.refuse("a row ends before it starts, or starts before the one that stands before it")
        if (found["cause"] >= len(found)).any():
            raise self.refuse("a row has a cause that is not there")
        return found

    def counter(self, points: list[tuple[int, int]]) -> Counter:
        """Times and values of points in the order of time."""
        try:
            columns = np.array(points, np.int64).reshape(-1, 2)
        except OverflowError:
            raise self.refuse("a counter has a value that is that of no run") from None
        return columns[:, 0].copy(), columns[:, 1].copy()


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's."""
    return value.item() if hasattr(value, "item") else str(value)
