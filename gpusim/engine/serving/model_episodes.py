"""One stay of a model on its GPUs: its engine serves requests from the end of the load on, and may leave when it is idle.

The engine runs ahead of the cluster's clock over all requests that may come while the model is there; when it is idle follows
from that, and what it has done after the moment at which it leaves counts as not done.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gpusim.engine.serving.run import ServiceRun
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable
from gpusim.results.served import Served

FIRST_LOOK = 32
"""Requests over which an engine runs ahead at first; twice as many each time that these do not suffice."""


class IdleFrom(NamedTuple):
    """The engine has nothing to do from `time`, when `done` requests of the episode have ended, `until` the next one comes."""

    time: int
    done: int
    until: int


@dataclass
class Episode:
    """requests of the model from the first that is not served yet, with arrivals no earlier than `ready`

    start  makes the run of an engine on some requests
    """

    requests: RequestTable
    ready: int
    start: Callable[[RequestTable], ServiceRun]
    served: Served | None = None
    _known: list[IdleFrom] = field(default_factory=list)
    _looked: int = 0

    def idle_after(self, done: int) -> IdleFrom:
        """The first time after `done` requests at which the engine has nothing to do."""
        while not (found := next((idle for idle in self._known if idle.done > done), None)):
            self._look()
        return found

    def _look(self) -> None:
        """Runs the engine over twice as many requests as before."""
        n = len(self.requests.arrival)
        count = min(max(2 * self._looked, FIRST_LOOK), n)
        self._looked = count
        table = part_of(self.requests, 0, count, self.ready)
        run = self.start(table)
        run.advance()
        self.served = run.result()
        ended = np.where(self.served.ended < NEVER, self.served.ended, table.arrival)
        over = np.maximum.accumulate(ended)
        behind = np.append(self.requests.arrival[1:count], NEVER if count == n else self.requests.arrival[count])
        behind = np.maximum(behind, self.ready)
        self._known = [IdleFrom(int(over[i]), i + 1, int(behind[i])) for i in np.flatnonzero(behind > over).tolist()]


def part_of(requests: RequestTable, first: int, end: int, earliest: int = 0) -> RequestTable:
    """Requests from `first` to `end`, none of which arrives before `earliest`."""
    rows: dict[str, Any] = {
        name: getattr(requests, name)[first:end] for name in requests._fields if name not in ("start", "identity", "piece")
    }
    a, b = int(requests.start[first]), int(requests.start[end])
    identity = requests.identity[a:b]
    rows["arrival"] = np.maximum(rows["arrival"], earliest)
    return RequestTable(
        **rows, start=requests.start[first : end + 1] - a, identity=identity if identity.size else np.zeros(1, np.int64),
        piece=requests.piece,
    )  # fmt: skip


def chosen(requests: RequestTable, rows: Any) -> RequestTable:
    """These rows of the requests, in order."""
    length = np.diff(requests.start)[rows]
    start = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    within = np.arange(start[-1]) - np.repeat(start[:-1], length)
    identity = requests.identity[np.repeat(requests.start[:-1][rows], length) + within]
    columns = {name: getattr(requests, name)[rows] for name in requests._fields if name not in ("start", "identity", "piece")}
    return RequestTable(
        **columns, start=start, identity=identity if identity.size else np.zeros(1, np.int64), piece=requests.piece
    )
