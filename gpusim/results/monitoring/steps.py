"""The steps of a program as a run went through them: when they ended, what they took, what they held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.results.activities import KINDS
from gpusim.results.monitoring.curves import F64, I64, extremes
from gpusim.trace.iterations import iterations
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import OP, Trace

NEVER = 2**62  # ns
KERNEL = KINDS.index("kernel")


@dataclass(frozen=True)
class EndedSteps:
    """The steps that a run has ended, by rising end: ns, ns, ns, bytes.

    low    tensors of the program that lived at the least, wherever they were
    peak   memory -> held in it at the most
    """

    end: I64
    took: I64
    kernel: I64
    low: I64
    peak: Mapping[str, F64]


def ended(
    program: Trace, ran: npt.NDArray[np.void], inside: npt.NDArray[np.void], memory: tuple[I64, Mapping[str, I64]], *,
    finished: bool,
) -> EndedSteps | None:  # fmt: skip
    """The steps of a program as its phases are numbered; None where they are not.

    ran       rows of operators
    inside    rows of stalls inside kernels, whose time is not the kernel's own
    memory    times, ns, and of each memory what it held from then on, bytes
    finished  of a run that did not finish the last step that has begun is not ended
    """
    of_event = iterations(program)
    of = of_event[program.kind == OP]
    if len(of) == 0 or of.max() < 1:
        return None
    count, step = int(of.max()) + 1, of[ran["op"]]
    ran, step = ran[step >= 0], step[step >= 0]
    begin, end = np.full(count, NEVER), np.zeros(count, np.int64)
    np.minimum.at(begin, step, ran["start"])
    np.maximum.at(end, step, ran["end"])
    done = np.flatnonzero(begin < NEVER)
    done = done[: len(done) if finished else -1]
    done = done[np.argsort(end[done], kind="stable")]
    kernel = _spent(ran[ran["kind"] == KERNEL], of, count) - _spent(inside[inside["op"] >= 0], of, count)
    times, held = memory
    peak = {name: extremes(times, values, begin[done], end[done])[1] for name, values in held.items()}
    return EndedSteps(end[done], (end - begin)[done], kernel[done], _least_alive(program, of_event, count)[done], peak)


def _spent(rows: npt.NDArray[np.void], of: I64, count: int) -> I64:
    """(count,) the time of the rows of each step, ns."""
    total, step = np.zeros(count + 1, np.int64), of[rows["op"]]
    np.add.at(total, step, rows["end"] - rows["start"])  # what is of no step, -1, adds to the last
    return total[:-1]


def _least_alive(program: Trace, of_event: I64, count: int) -> I64:
    """(count,) the bytes of tensors that lived at the least in each step of the program, as it allocates and frees."""
    low = np.full(count + 1, NEVER)
    np.minimum.at(low, of_event, live_bytes(program, program.size))
    return low[:-1]
