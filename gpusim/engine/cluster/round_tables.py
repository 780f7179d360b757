"""The tables of a cluster in rounds.

A row is a job alone (b = -1) or a pair a < b that may have a round; rows stay in the order in which they came.  Times in s.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer
from gpusim.base.tables import record, signature

i1, i8, f8 = np.int8, np.int64, np.float64

ROUND_COURSE = record(
    [("now", f8), ("length", f8), ("initial", f8),  # of a round; that a job counts as having had before it ran
     ("latest", f8), ("had", f8),                     # end of what runs; s of GPUs that jobs had
     ("rows", i8), ("held", i8), ("pieces", i8),
     ("busy", i8), ("serving", i8), ("active", i8), ("left", i8),  # GPUs, jobs that run, that are there, that are to end
     ("rounds", i8), ("kept", i8), ("chances", i8), ("stops", i8), ("done", i8),
     ("leftovers", i8), ("changed", i8), ("gone", i8)]
)  # fmt: skip

ROUND_JOB = record(
    [("wants", i8), ("whole", i8), ("failed", i8), ("active", i8), ("placed", i8),  # whole: it does whole steps
     ("elastic", i8), ("most", i8),  # its row of `pace`, -1: it is not; GPUs that it takes of those that it wants
     ("work", f8), ("steps", f8), ("first", f8), ("end", f8)]
)  # fmt: skip

HELD = record(  # GPUs that a row has in this round
    [("a", i8), ("b", i8), ("kind", i8), ("many", i8), ("row", i8), ("piece", i8), ("round", i8), ("struck", i8),
     ("pace", f8), ("end", f8), ("steps", (f8, (2,)))]  # pace: over that on all GPUs that it wants
)  # fmt: skip

PIECE = record([("a", i8), ("b", i8), ("kind", i8), ("many", i8), ("start", f8), ("end", f8)])


@by_pointer
class RoundTables(NamedTuple):
    """R rows, K types of GPU, G GPUs, M the most that a job wants, E elastic jobs."""

    course: Annotated[Any, ROUND_COURSE, 1]
    job: Annotated[Any, ROUND_JOB, "jobs"]
    a: Annotated[Any, i8, "R"]
    b: Annotated[Any, i8, "R"]
    asked: Annotated[Any, i1, "R"]          # whether the row was there when shares were asked for
    runs: Annotated[Any, i1, "R", "K"]
    rate: Annotated[Any, f8, "R", "K", 2]   # of both jobs
    pace: Annotated[Any, f8, "E", "K", "M + 1"]  # of an elastic job on so many GPUs, over that on all it wants; 0: none
    size: Annotated[Any, i8, "R"]           # GPUs that the row has in this round
    share: Annotated[Any, f8, "R", "K"]
    had: Annotated[Any, f8, "R", "K"]
    deficit: Annotated[Any, f8, "R", "K"]
    priority: Annotated[Any, f8, "R", "K"]
    total: Annotated[Any, f8, "K"]          # had by all
    pool: Annotated[Any, i8, "G"]           # GPUs type by type, those of a node side by side
    first: Annotated[Any, i8, "K + 1"]      # where each type begins there
    used: Annotated[Any, i1, "G"]
    worked: Annotated[Any, f8, "G"]
    held: Annotated[Any, HELD, "G"]
    gpus: Annotated[Any, i8, "G", "M"]      # of each of `held`
    before: Annotated[Any, HELD, "G"]       # of the round before
    gpus_before: Annotated[Any, i8, "G", "M"]
    holds: Annotated[Any, i8, "R"]          # of `before`, that of the row; -1: none
    order: Annotated[Any, i8, "R"]
    merged: Annotated[Any, i8, "R"]
    chosen: Annotated[Any, i8, "G"]
    line: Annotated[Any, i8, "G"]
    gone: Annotated[Any, i8, "jobs"]        # jobs that have just left, in order
    piece: Annotated[Any, PIECE, "P"]
    gpus_of: Annotated[Any, i8, "P", "M"]


ROUND_TABLES = signature(RoundTables)
