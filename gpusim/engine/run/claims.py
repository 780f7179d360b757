"""What a program needs of the GPU's memory: all of it, its largest operator, and what lasts from one iteration to the next."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.trace.iterations import iterations
from gpusim.trace.roles import lives
from gpusim.trace.trace import OP, Trace
from gpusim.trace.workload import Workload

I64 = npt.NDArray[np.int64]
ROUND = 512  # bytes: the least block of PyTorch's allocator


@dataclass(frozen=True)
class Claim:
    """Bytes that a program needs on the GPU.

    most     while it runs: the most that its allocator holds when it is alone
    least    its largest operator, below which it cannot run
    lasting  what is there from one iteration to the next: the most at the begin of any but the first
    starts   of each iteration its first operator
    """

    most: int
    least: int = 0
    lasting: int = 0
    starts: tuple[int, ...] = (0,)


def claim_of(work: Workload, most: int) -> Claim:
    """Of a program that holds so many bytes when it is alone."""
    size = -(-work.trace.size // ROUND) * ROUND
    upto = np.append(0, np.cumsum(size[work.acc_unit]))
    least = min(most, int(np.diff(upto[work.acc_start]).max(initial=0)))
    starts, between = _starts(work.trace)
    born, died = lives(work.trace)
    lasting = max((int(size[(born < at) & (died > at)].sum()) for at in between), default=most)
    return Claim(most, least, max(least, min(most, lasting)), starts)


def _starts(trace: Trace) -> tuple[tuple[int, ...], list[int]]:
    """(the first operator of each iteration, the event with which each but the first begins)"""
    of = iterations(trace)
    of_ops = of[trace.kind == OP]
    first = [0, *(int(k) for k in np.flatnonzero(np.diff(of_ops) > 0) + 1 if of_ops[k] > 0)]
    return tuple(first), [int(np.argmax(of == of_ops[k])) for k in first[1:]]
