"""Recorded durations without what ran beside: of operators that overlapped others, what they would have taken alone.

A replay lets operators share multiprocessors and bandwidth again, so that what they cost each other would count twice.  The
recording says when each operator began and ended; in each stretch of time in which the same ones ran, the model of sharing
says how fast each was, and the sum of speed x time is its own duration.  How much bandwidth a kernel needs follows from that
duration, so it is found in rounds.  The first takes each kernel that moves bytes as bound by the memory; one that could have
gone on as fast as it did within what others left is found not to be.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from gpusim.machine.kernels.needs import KernelNeeds, kernel_needs
from gpusim.machine.product import profile_of
from gpusim.machine.profile import Profile
from gpusim.machine.sharing import MEMORY, SMS
from gpusim.trace.recorded_times import recorded_on
from gpusim.trace.submission import stream_priorities
from gpusim.trace.trace import COLLECTIVE, HOST_WORK, MOVES, OP, Trace, derived

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

_ROUNDS = 50
_CLOSE = 0.5  # ns


class Overlaps(NamedTuple):
    """Overlaps of the recording in which the same operators ran, of all operators that ever ran beside another; in order.

    A row for each operator in each stretch: stretch, operator and ns that it lasts.
    """

    stretch: I64
    operator: I64
    ns: I64


def alone(trace: Trace, share: Collection[str], machine: Profile | None = None) -> Trace:
    """The trace with the durations of its operators alone; `machine`: of the recording, else what the trace's meta names.

    share: words of `gpusim.machine.sharing`, what a replay shares

    A trace that does not say when its operators began, or on which machine of the catalogue, is returned as it is.
    Raises ProfileError when the profile has no fp32 peak.
    """
    machine = machine or profile_of(recorded_on(trace))
    stretches = beside(trace)
    if machine is None or not len(stretches.stretch) or not {SMS, MEMORY} & set(share):
        return trace
    needs = kernel_needs(trace, trace.duration, machine)
    own = trace.duration.astype(np.float64)
    own[needs.memory > 0] *= needs.memory[needs.memory > 0] / needs.bandwidth
    granted = _granted(trace, stretches, needs) if SMS in share else np.ones(len(stretches.stretch))
    touched = np.unique(stretches.operator)
    for _ in range(_ROUNDS if MEMORY in share else 1):
        wanted = _wanted(trace, own, machine)[stretches.operator] if MEMORY in share else np.zeros(len(granted))
        rate = _max_min(stretches.stretch, wanted * granted, needs.bandwidth)
        speed = np.divide(rate, wanted, out=granted.copy(), where=wanted > 0)
        lost = np.bincount(stretches.operator, (1.0 - speed) * stretches.ns, trace.ops)
        found = np.maximum(trace.duration - lost, 1.0)[touched]
        settled = np.abs(found - own[touched]).max() < _CLOSE
        own[touched] = found
        if settled:
            break
    ns = trace.duration.copy()
    ns[touched] = np.rint(own[touched])
    ns.flags.writeable = False
    return replace(trace, duration=ns)


@derived
def beside(trace: Trace) -> Overlaps:
    """What ran at once in the recording; no rows when nothing did, or when it does not say."""
    rows = np.flatnonzero((trace.device_time >= 0) & (trace.duration > 0) & (trace.activity != HOST_WORK))
    start, end = _spans(trace, rows)
    times = np.unique(np.concatenate([start, end]))
    first, last = np.searchsorted(times, start), np.searchsorted(times, end)
    many = np.cumsum(np.bincount(first, minlength=len(times) + 1) - np.bincount(last, minlength=len(times) + 1))
    crowded = np.concatenate([[0], np.cumsum(many > 1)])
    meets = crowded[last] > crowded[first]
    rows, first, counts = rows[meets], first[meets], (last - first)[meets]
    stretch = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
    operator = np.repeat(rows, counts)
    order = np.lexsort((operator, stretch))
    stretch, operator = stretch[order], operator[order]
    return Overlaps(stretch, operator, np.diff(times)[stretch])


def recorded_span(trace: Trace) -> int:
    """ns from the first start to the last end on the device in the recording; 0 when it does not say."""
    known = (trace.device_time >= 0) & (trace.duration >= 0)
    ends = (trace.device_time + trace.duration)[known]
    return int(ends.max() - trace.device_time[known].min()) if len(ends) else 0


def _spans(trace: Trace, rows: I64) -> tuple[I64, I64]:
    """When each of these operators began and ended: before the next of its stream, as far as a profiler's clock rounds."""
    stream, start = _streams(trace)[rows], trace.device_time[rows]
    end = start + trace.duration[rows]
    order = np.lexsort((rows, start, stream))
    following = stream[order][1:] == stream[order][:-1]
    end[order[:-1]] = np.where(following, np.minimum(end[order[:-1]], start[order[1:]]), end[order[:-1]])
    return start, end


def _streams(trace: Trace) -> I64:
    """(O,) the stream of each operator."""
    return np.asarray(trace.stream[trace.kind == OP], np.int64)


def _wanted(trace: Trace, own: F64, machine: Profile) -> F64:
    """(O,) bandwidth of the memory that each needs when it takes so long alone, bytes/ns."""
    wanted = kernel_needs(trace, np.rint(own).astype(np.int64), machine).memory.copy()
    moves = np.isin(trace.activity, MOVES) & (trace.activity != COLLECTIVE) & (own > 0)
    wanted[moves] = trace.read_bytes[moves] / own[moves]
    return wanted


def _granted(trace: Trace, stretches: Overlaps, needs: KernelNeeds) -> F64:
    """Share of the multiprocessors that it can use that each row's operator has: by priority and start, what is held first."""
    wanted, whole = needs.sms[0], needs.sms[1] > 0
    priority = np.asarray(stream_priorities(trace), np.int64)[_streams(trace)]
    held = (trace.activity == COLLECTIVE).copy()
    out = np.ones(len(stretches.stretch))
    for rows in np.split(np.arange(len(out)), np.flatnonzero(np.diff(stretches.stretch)) + 1):
        left = needs.processors
        of = stretches.operator[rows]
        for i in np.lexsort((of, trace.device_time[of], priority[of], ~held[of])):
            o, row = of[i], rows[i]
            if wanted[o]:
                given = min(int(wanted[o]), left)
                left -= given
                out[row] = given / wanted[o]
                held[o] |= whole[o] and given == wanted[o]
    return out


def _max_min(stretch: I64, bound: F64, bandwidth: float) -> F64:
    """What each row gets of the bandwidth in its stretch: max-min fair, none more than its bound."""
    rate, open_ = np.zeros(len(bound)), bound > 0
    left = np.full(int(stretch.max(initial=0)) + 1, bandwidth)
    while open_.any():
        level = left / np.maximum(np.bincount(stretch[open_], minlength=len(left)), 1)
        fits = open_ & (bound <= level[stretch])
        some = np.bincount(stretch[fits], minlength=len(left)) > 0
        last = open_ & ~some[stretch]
        rate[fits], rate[last] = bound[fits], level[stretch[last]]
        left -= np.bincount(stretch[fits], bound[fits], len(left))
        open_ &= ~(fits | last)
    return rate
