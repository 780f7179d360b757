"""What a checkpoint policy sees, and the formulas that several of them use.

It answers how many ns of work lie between two checkpoints.  A built-in is one file `policies/checkpoint/<name>.py` with

    name(view, **parameters) -> float
"""

from __future__ import annotations

import math
from typing import NamedTuple


class CheckpointView(NamedTuple):
    """What a checkpoint policy may look at; ns.

    cost           for which a checkpoint stops the job
    flush          until a checkpoint is safe, beside the work
    between        mean time between interruptions of the job with all its nodes, as the rates of its failures say
    restart        to place and start the program and to load a checkpoint
    elapsed        of the run so far
    interruptions  so far
    """

    cost: float
    flush: float
    between: float
    restart: float
    elapsed: float = 0.0
    interruptions: int = 0


def young(cost: float, between: float) -> float:
    """sqrt(2 C M), ns: Young, Communications of the ACM 17(9), 1974."""
    return math.sqrt(2.0 * cost * between)


def daly(cost: float, between: float) -> float:
    """The higher-order estimate of Daly, Future Generation Computer Systems 22(3), 2006, ns; M where C is 2 M or more."""
    if cost >= 2.0 * between:
        return between
    x = cost / (2.0 * between)
    return math.sqrt(2.0 * cost * between) * (1.0 + math.sqrt(x) / 3.0 + x / 9.0) - cost


def expected_time(work: float, interval: float, cost: float, restart: float, between: float) -> float:
    """Mean ns until `work` ns are done and saved, where failures are exponential and strike restarts and checkpoints, too.

    M e^(R/M) (e^((T+C)/M) - 1) W/T; the last piece of the work may be shorter than T.  Daly, as above, equation 20.
    """
    whole = int(work // interval)
    last = work - whole * interval
    pieces = whole * math.expm1((interval + cost) / between)
    pieces += math.expm1((last + cost) / between) if last > 1e-9 * interval else 0.0
    return between * math.exp(restart / between) * pieces
