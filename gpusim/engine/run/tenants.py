"""Several programs on one GPU: all of them together, and how far each had come while all were there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.engine import state
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.simulate import Prepared, Simulation, prepared
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import MPS, Tenancy
from gpusim.machine.topology.connections import Connections
from gpusim.results.result import Result
from gpusim.trace.workload import Workload

I64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Program:
    """One of the programs: its kernels' times on its GPU, or on its slice of it, and what it may have there.

    capacity    bytes that its allocator may hold
    percentage  of the multiprocessors that its kernels may use together
    """

    work: Workload
    profile: Profile
    capacity: int
    percentage: int = 100


@dataclass(frozen=True)
class Together:
    """Programs that ran on one GPU.

    began     of each, ns: when each of its operators began on the device
    switches  how often the multiprocessors passed from one to another in turns, and switch_ns what that took
    copied    bytes of programs that left the GPU or came back for others' turns, and moves how often some did
    """

    results: tuple[Result, ...]
    began: tuple[I64, ...]
    switches: int = 0
    switch_ns: int = 0
    copied: int = 0
    moves: int = 0


def capacities(profile: Profile, count: int) -> list[int]:
    """Bytes for each of so many programs on one GPU: equal parts of what their contexts leave.

    Raises GpusimError where they leave nothing.
    """
    context, memory = float(profile.context.value), float(profile.memory.capacity.value)
    if count * context >= memory:
        raise GpusimError(
            f"the contexts of {count} programs take {show_bytes(int(count * context))}, and '{profile.name}' has "
            f"{show_bytes(int(memory))}", hint="fewer programs on the GPU",
        )  # fmt: skip
    return [int(memory / count - context)] * count


def limited(profile: Profile, limits: Sequence[int]) -> list[int]:
    """Bytes for each program below its own limit, of which its context takes a part; 0: an equal part of what the others leave.

    Raises GpusimError where limits are more than there is, or a context takes all of one.
    """
    context, memory = int(profile.context.value), int(profile.memory.capacity.value)
    left, free = memory - sum(limits), limits.count(0)
    if left < free * context:
        rest = f", and {free} more have none" if free else ""
        raise GpusimError(
            f"limits of {' + '.join(show_bytes(limit) for limit in limits if limit)}{rest}: '{profile.name}' has "
            f"{show_bytes(memory)}", hint="a limit reserves its memory; over_commit swaps whole programs",
        )  # fmt: skip
    found = [(limit or left // free) - context for limit in limits]
    for number, size in enumerate(found):
        if size <= 0:
            said = f"the context of program {number} takes {show_bytes(context)}, and its limit is {show_bytes(limits[number])}"
            raise GpusimError(said, hint="a larger limit; program 0 is the trace, the others are beside it")
    return found


def simulate_tenants(
    programs: Sequence[Program], tenancy: Tenancy | None, memory: MemoryTurns | None = None, **choices: Any
) -> Together:  # fmt: skip
    """Replay programs on one GPU at once.

    tenancy  how they share it; None: each has a slice of its own, and they share the link to the host
    memory   which program has turns where memory does not suffice for all
    choices  policies, seed and log, as `simulate.prepared` takes them, the same for all

    Raises GpusimError for a program that meets others, since its ranks would have to be on other GPUs.
    """
    runs = _prepared(programs, **choices)
    between = Connections(tenancy=tenancy) if tenancy is not None else one_link([run.simulation for run in runs])
    coupled = Coupled([run.simulation for run in runs], between, memory)
    coupled.advance(state.NEVER)
    gpu = coupled.fabric.gpu[0]
    return Together(
        tuple(run.result() for run in runs), tuple(run.simulation.island.began.copy() for run in runs), int(gpu["switches"]),
        int(gpu["switched"]), *((memory.copied, memory.moves) if memory else ()),
    )


def with_fault(
    programs: Sequence[Program], tenancy: Tenancy | None, at: int, **choices: Any
) -> tuple[Together, int]:  # fmt: skip
    """What becomes of the others when the second program has a fatal fault at `at` ns: (all but that, ns of their work lost).

    All clients of an MPS server end with the one that faults, and begin again with a new server; elsewhere only that one ends.
    Nothing is lost of those that have ended before.  Raises GpusimError where the second has.
    """
    runs = _prepared(programs, **choices)
    between = Connections(tenancy=tenancy) if tenancy is not None else one_link([run.simulation for run in runs])
    coupled = Coupled([run.simulation for run in runs], between)
    coupled.advance(at)
    if runs[1].simulation.reason == state.FINISHED:
        ended = f"the program beside has ended after {runs[1].simulation.now / 1e9:.4g} s"
        raise GpusimError(f"{ended}: there is none to fault at {at / 1e9:.4g} s", hint="an earlier fault, or a longer program")
    others = [0, *range(2, len(runs))]
    if tenancy is not None and tenancy.way == MPS:
        left = [p for p in others if runs[p].simulation.reason != state.FINISHED]
        seats = replace(tenancy, tenants=tuple(tenancy.tenants[p] for p in left))
        again = simulate_tenants([programs[p] for p in left], seats, **choices) if left else None
        found = {p: (runs[p].result(), runs[p].simulation.island.began.copy()) for p in others if p not in left}
        for p, result, began in zip(left, again.results, again.began, strict=True) if again else ():
            found[p] = _later(result, at), began + at
        lost = at if left else 0
        return Together(tuple(found[p][0] for p in others), tuple(found[p][1] for p in others)), lost
    coupled.leave(1, at)
    coupled.advance(state.NEVER)
    return Together(tuple(runs[p].result() for p in others), tuple(runs[p].simulation.island.began.copy() for p in others)), 0


def _later(result: Result, ns: int) -> Result:
    """The result of a run that began so much later."""
    if "makespan_ns" not in result.metrics:
        return result
    return replace(result, metrics={**result.metrics, "makespan_ns": result.metrics["makespan_ns"] + ns})


def _prepared(programs: Sequence[Program], **choices: Any) -> list[Prepared]:
    return [
        prepared(
            one.work.trace, one.profile, work=one.work, capacity_bytes=one.capacity,
            active_thread_percentage=one.percentage, **choices,
        )
        for one in programs
    ]  # fmt: skip


def one_link(simulations: Sequence[Simulation]) -> Connections:
    """Slices of a GPU reach the host over one link."""
    names = ("h2d", "d2h", "both")
    rates = dict(zip(names, (getattr(simulations[0].machine, name) for name in names), strict=True))
    mine = {name: (f"gpu {name}",) for name in names}
    return Connections({f"gpu {name}": rate for name, rate in rates.items()}, [mine for _ in simulations])


def progress(together: Together, alone: Sequence[tuple[I64, int]], within: bool = False) -> tuple[float, ...]:
    """Of each program what it did a ns while all were there, over what it does alone on the whole GPU: 1 as if alone.

    alone   of each, there: when its operators begin, and its makespan, ns
    within  operators are long: what of the present one is done counts, by its time
    """
    ends = [int(result.metrics["makespan_ns"]) for result in together.results]
    window = min(ends)
    found = []
    for began, end, (usual, makespan) in zip(together.began, ends, alone, strict=True):
        done = int(np.searchsorted(np.maximum.accumulate(began), window, side="right"))
        at = makespan if end == window or done >= len(usual) else int(usual[done])
        if within and end != window:
            times, then = np.append(np.maximum.accumulate(began), end), np.append(np.maximum.accumulate(usual), makespan)
            at = round(float(np.interp(window, times, then)))
        found.append(at / window if window else 1.0)
    return tuple(found)
