"""The tables of a long run: a job of equal nodes, what its checkpoints cost, what fails, and where it stands.

    computing ──interval──▶ (blocked by the flush before) ──▶ copying ──▶ computing        flushes go on beside it
        ▲                                                        │
        └── down: detect, restart, load ◀──failure── (short of nodes) ◀──┘

Times are int64 ns, progress float64 ns of work at full strength, sizes bytes.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer
from gpusim.base.tables import record, signature

i1, i8, f8 = np.int8, np.int64, np.float64
NEVER = 1 << 62

# Why `run_until` came back: the time is reached; the work is done and safe; more random numbers are wanted; the checkpoint
# policy is to be asked; the log is full; there will never again be nodes enough; more slow components than rows; an event is
# over, of a job that shares its spare nodes.
REACHED, FINISHED, DRAWS, ASK, LOG_FULL, STUCK, CROWDED, STEPPED = range(8)

# What the job does; the accounts of time are in this order.
COMPUTING, COPYING, BLOCKED, DOWN, SHORT = range(5)
PHASES = ("computing", "copying", "blocked", "down", "short")

# Where a checkpoint lies: in pinned memory of the nodes themselves, in that of their neighbours, in storage.
OWN, PEERS, STORAGE = range(3)
LEVELS = ("own", "peers", "storage")

# What a failure does: the program dies and its nodes stay; a node leaves until it is repaired; all ranks wait for a slow one;
# a GPU has less memory, and its node leaves when that is too little; the program dies and goes on slower, on what is left of a
# node's links, until that is repaired.
RESTART, LOSE_NODE, SLOW, SHRINK, DEGRADE = range(5)

JOB = record(
    [("work", f8),                      # ns at full strength
     ("nodes", i8), ("least", i8), ("unit", i8),  # nodes it wants; goes on with, at least; by how many it shrinks at once
     ("gpus", i8),                      # of a node
     ("each", i8),                      # every so many checkpoints one goes to storage, and the last of all
     ("full", i8), ("share", f8),       # every so many are whole; of the others' bytes so large a share is written
     ("host", i8), ("agent", i8),       # a copy stays in the nodes' memory; it outlives the program
     ("copies", i8), ("rebalance", i8),  # neighbours that keep a copy of each node's part; they get it again after a failure
     ("shared", i8),                    # its spare nodes are other jobs' too
     ("ages", i8),                      # some failures come with the age of the program
     ("restart", f8),                   # ns: placing and starting the program
     ("margin", f8),                    # bytes of a GPU's memory that the program does without
     ("asks", i8)]                      # the checkpoint policy is asked whenever the job begins to compute, else once
)  # fmt: skip

SIZE = record(                          # the job on so many nodes
    [("pace", f8),                      # of the work, of its full strength
     ("copy", f8),                      # ns for which a checkpoint stops it
     ("flush", (f8, (3,))),             # ns until it is at each level, beside the work; 0: it does not go there, or at once
     ("beside", (f8, (3,))),            # share of its pace that the work keeps meanwhile
     ("load", (f8, (3,))),              # ns: loading from each level
     ("regroup", f8)]                   # ns to go on with more nodes
)  # fmt: skip

FAILURE = record(
    [("rate", f8), ("each", f8),        # of one component, 1/ns; components of a node, 0: there is one in all
     ("after", f8),                     # ns after the start of the program, each time; 0: at random
     ("effect", i8), ("host_lost", i8),  # the node's memory is lost, too
     ("group", i8),                     # nodes that fail together
     ("detect", f8), ("repair", f8),    # ns
     ("speed", f8), ("lasts", f8),      # of a slow rank, or of one without a link; ns
     ("bytes", f8),                     # of a GPU's memory that are retired
     ("count", i8)]                     # so far
)  # fmt: skip

EPISODE = record([("node", i8), ("ends", i8), ("speed", f8)])  # while a node is slow; ns

TOLD = record([("t", i8), ("kind", i8), ("node", i8)])  # a failure of a log, in order of time

COURSE = record(
    [("now", i8), ("phase", i8), ("ends", i8),  # of the phase; NEVER where progress decides
     ("progress", f8), ("mark", f8),            # work done; at which the next checkpoint is due
     ("interval", f8),                          # ns of work between checkpoints
     ("taken", i8), ("since_full", i8), ("chain", i8),  # so far; since the whole one; `since_full` of that in storage
     ("saved", (f8, (3,))), ("flushed", f8),    # work in the latest checkpoint of each level, -1: none; in that under way
     ("flush_ends", i8), ("flush_to", i8), ("then", i8),  # NEVER: none; level; it goes on to storage
     ("used", i8), ("held", i8), ("spare", i8), ("broken", i8),  # nodes: at work; of a job that waits; that stand by; repaired
     ("left", f8),                              # hazard until the next failure
     ("speed", f8), ("slow", i8), ("slow_ends", i8),  # of the slowest node; slow nodes; when the first of them is well
     ("begun", i8),                             # when the program began to run
     ("drawn", i8), ("told", i8),               # random numbers and told failures used
     ("asked", i8), ("done", i8),
     ("spent", (i8, (5,))),                          # ns in each phase
     ("lost", f8), ("interruptions", i8), ("loads", (i8, (3,))), ("scratch", i8),  # recoveries from each level, from none
     ("log_on", i8), ("logged", i8)]
)  # fmt: skip

# Records of the log.  BEGAN: a phase (cause); SENT: a copy is on its way to a level (cause) until `value`, ns.
FAILED, RECOVERED, TAKEN, SAFE, SHRUNK, GROWN, RAN_SHORT, ENDED, BEGAN, SENT = range(10)
RECORDS = ("failed", "recovered", "taken", "safe", "shrunk", "grown", "ran_short", "ended", "began", "sent")
ROW = record([("t", i8), ("kind", i8), ("node", i8), ("cause", i8), ("progress", f8), ("value", f8)])


@by_pointer
class LongRun(NamedTuple):
    """K kinds of failures, N nodes at most in use."""

    job: Annotated[Any, JOB, 1]
    size: Annotated[Any, SIZE, "N + 1"]  # by nodes in use
    failure: Annotated[Any, FAILURE, "K"]
    told: Annotated[Any, TOLD, "told"]
    course: Annotated[Any, COURSE, 1]
    gone: Annotated[Any, i1, "N"]     # the node has failed, and the job has not recovered yet
    hollow: Annotated[Any, i1, "N"]   # the node does not hold its neighbours' latest copies
    retired: Annotated[Any, f8, "N", "gpus"]  # bytes of each GPU's memory
    slow: Annotated[Any, EPISODE, "slow"]  # the first `course.slow`, in no order
    repairs: Annotated[Any, i8, "broken"]  # when broken nodes come back, the first `course.broken`, in no order
    draws: Annotated[Any, f8, "draws"]     # uniform in [0, 1)
    log: Annotated[Any, ROW, "log"]


LONG_RUN = signature(LongRun)
