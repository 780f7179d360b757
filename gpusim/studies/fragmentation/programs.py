"""Changes of the program itself, each replayed under the program's own setting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.tables import table
from gpusim.policies.trials.allocator_requests import AllocatorRequests, WholeProgram
from gpusim.policies.trials.requests import R_ALLOC, R_FREE, R_RELEASE, REQUEST
from gpusim.programs.transforms import registry
from gpusim.studies.fragmentation.answer import OomAnswer, Remedy
from gpusim.studies.fragmentation.baseline import Baseline, SettingOutcome, baseline, changed
from gpusim.studies.fragmentation.growth import Leak, Steps
from gpusim.studies.fragmentation.remedies import remedy
from gpusim.trace.trace import I64

# What a trace with operators can be changed into; the words say what a user does.
TRANSFORMS = {
    "checkpointing": "checkpoint the activations of each layer (torch.utils.checkpoint)",
    "batch(factor=0.5) | accumulate(steps=2)": "halve the batch and accumulate gradients over two of them",
    "optimizer(to=adam8bit)": "train with 8-bit Adam (bitsandbytes)",
    "batch(factor=0.5)": "halve the batch",
}
Rows = Any  # an array of core.requests.REQUEST
LATE = 0.5  # of the recording: tensors made later that stay are not what should come first


def programs(base: Baseline, seen: OomAnswer) -> list[Remedy]:
    """Changes that bear on what was found, each with what it would hold; not ranked."""
    kinds = {cause.kind for cause in seen.causes}
    found = []
    if seen.leaks and seen.steps:
        leaks, steps = seen.leaks, seen.steps
        where = seen.leaks[0].site
        words = f"free what each step leaves behind at {where}"
        found.append(_remedy(words, changed(base, lambda program: freed(program, leaks, steps))))
    if "cached" in kinds and seen.steps and seen.steps.count > 1:
        steps = seen.steps
        found.append(_remedy("call torch.cuda.empty_cache() after each step", changed(base, lambda p: emptied(p, steps))))
    if "fragmentation" in kinds:
        found.append(_remedy("allocate what lives to the end first", changed(base, first_what_stays)))
    if base.trace.ops and not base.ran.fits:
        found += [_remedy(words, outcome) for words, outcome in _transformed(base)]
    return found


def _remedy(words: str, outcome: SettingOutcome) -> Remedy:
    return remedy("program", words, outcome)


def _transformed(base: Baseline) -> Iterator[tuple[str, SettingOutcome]]:
    for chain, words in TRANSFORMS.items():
        try:
            made = registry.apply(base.trace, chain)
        except GpusimError:
            continue  # the trace does not tell what this change needs
        done = baseline(made, base.capacity).replay
        saving = base.ran.high.held_peak - done.held_peak
        yield words, SettingOutcome(base.own, done, done, (saving, saving))


def freed(program: AllocatorRequests, leaks: Sequence[Leak], steps: Steps) -> AllocatorRequests:
    """The program with the tensors of a leak freed at the end of the step that made them."""
    ends = _ends(program, steps)
    rows = program.rows()
    made = rows["kind"] == R_ALLOC
    at = np.full(program.units, -1)
    at[rows["unit"][made]] = np.flatnonzero(made)
    units = np.concatenate([leak.tensors for leak in leaks])
    where = ends[np.minimum(np.searchsorted(ends, at[units], "right"), len(ends) - 1)]
    found = where > at[units]
    more = table(int(found.sum()), REQUEST)
    more["kind"], more["unit"], more["stream"] = R_FREE, units[found], rows["stream"][at[units[found]]]
    return inserted(program, where[found], more)


def emptied(program: AllocatorRequests, steps: Steps) -> AllocatorRequests:
    """The program with `empty_cache` at the end of each step."""
    ends = _ends(program, steps)
    return inserted(program, ends, release(len(ends)))


def first_what_stays(program: AllocatorRequests) -> AllocatorRequests:
    """The program with what is never freed allocated first, those late in the program excepted."""
    rows = program.rows()
    gone = np.zeros(program.units, bool)
    gone[rows["unit"][rows["kind"] == R_FREE]] = True
    place = np.arange(len(rows))
    early = place < program.before + LATE * (len(rows) - program.before)
    stays = (rows["kind"] == R_ALLOC) & ~gone[np.where(rows["kind"] <= R_FREE, rows["unit"], 0)] & early
    stays[: program.before] = False
    order = np.argsort(np.where(stays, program.before - 0.5, place), kind="stable")
    return replace(program, pieces=WholeProgram(rows[order]), event=program.event[order], iteration=program.iteration[order])


def _ends(program: AllocatorRequests, steps: Steps) -> I64:
    """Requests before which each step has ended; the program's end is the last of them."""
    number = steps.number[program.event[program.before :]]
    return np.append(program.before + np.flatnonzero(np.diff(number) > 0) + 1, program.total)


def release(count: int) -> Rows:
    """So many calls of `empty_cache`."""
    rows = table(count, REQUEST)
    rows["kind"] = R_RELEASE
    return rows


def inserted(program: AllocatorRequests, at: I64, more: Rows) -> AllocatorRequests:
    """The program with these requests before those at `at`."""
    order = np.argsort(at, kind="stable")
    at, more = at[order], more[order]
    event = np.insert(program.event, at, program.event[np.minimum(at, program.total - 1)])
    iteration = np.insert(program.iteration, at, program.iteration[np.minimum(at, program.total - 1)])
    rows = np.insert(program.rows(), at, more)
    return replace(program, pieces=WholeProgram(rows), total=len(rows), event=event, iteration=iteration, returned={})
