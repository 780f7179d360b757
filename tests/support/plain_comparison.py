"""Random programs on random machines: the engine beside the plain model, to the tick.

    python tests/support/plain_comparison.py FIRST LAST [WORDS]    numbers of programs; what is shared, as a run names it
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import numpy as np
from plain_model import PLACE, SWAP_IN, SWAP_OUT, UNPLACE, Model, Moves, Needs
from plain_programs import program

from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue, sharing
from gpusim.machine.constants import machine as machine_of
from gpusim.machine.kernels.needs import KernelNeeds, kernel_needs
from gpusim.machine.profile import Profile, changed
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace import trace as tr
from gpusim.trace.trace import COLLECTIVE, KERNEL, Trace

# With and without links between GPUs, curves of copies and of collectives, and links that kernels fill beyond a copy engine.
MACHINES = ("a100-pcie-40gb", "a100-sxm4-80gb", "h100-sxm-80gb", "gh200-96gb", "a100-sxm4-40gb", "v100-pcie-32gb")
NUMBERS = {
    "launch.submit": (0.0, 100.0, 2427.0), "launch.eager": (0.0,), "launch.gap": (0.0, 50.0, 1260.0),
    "launch.queue": (1, 2, 5, 1024), "copy_engines.h2d": (1, 1, 2), "copy_engines.d2h": (1, 1, 3),
    "link.latency_synchronised": (1000.0, 9000.0), "allocation.cached_alloc": (0.0, 328.0),
    "allocation.malloc": (0.0,), "allocation.malloc_per_gib": (0.0,),
}  # fmt: skip

Spans = list[tuple[int, int]]


def machine(seed: int) -> Profile:
    """A machine of the catalogue with other costs of launches and waits; memory is taken from the device for nothing."""
    rng = np.random.default_rng([seed, 1])
    profile = catalogue.load(MACHINES[seed % len(MACHINES)])
    for path, values in NUMBERS.items():
        profile = changed(profile, path, values[rng.integers(len(values))])
    return profile


def wanted(seed: int, trace: Trace, durations: Any, profile: Profile) -> KernelNeeds:
    """What the kernels of a program want: in one of four what the trace says, in the others grids of all sizes, more bytes."""
    rng = np.random.default_rng([seed, 2])
    known = kernel_needs(trace, durations, profile, int(rng.choice([100, 100, 50, 3])))
    if not trace.ops or rng.random() < 0.25:
        return known
    sms, kernels = known.sms.copy(), trace.activity == KERNEL
    most = int(profile.gpu.sm_count.value)
    grids = [range(1, most + 1), (1, most), (-(-most // 2), most)]
    drawn = rng.choice(grids[rng.integers(3)], trace.ops)
    sms[0] = np.where(kernels, drawn, np.where(trace.activity == COLLECTIVE, min(int(drawn[0]), 20, known.processors), 0))
    sms[1] = np.where(kernels, rng.integers(0, 2, trace.ops), 1)
    memory = np.where(kernels, known.bandwidth * np.minimum(1, rng.uniform(-0.5, 1.5, trace.ops).clip(0)), 0.0)
    return KernelNeeds(sms, memory, known.processors, known.bandwidth)


def ran(trace: Trace, profile: Profile, durations: Any, **choices: Any) -> Result:
    """The engine's run, with its log."""
    return simulate(trace, profile, place="first_fit", durations=durations, log=True, **choices)


def spans(records: Any) -> Spans:
    """(start, end) of each activity in the order of submission, ns, as the event log has them."""
    at: dict[int, dict[int, int]] = {log.START: {}, log.END: {}}
    for record in records[np.isin(records["kind"], list(at))]:
        at[int(record["kind"])][int(record["a"])] = int(record["t"])
    return [(at[log.START][a], at[log.END][a]) for a in range(len(at[log.END]))]


def moves(trace: Trace, records: Any) -> list[list[Moves]]:
    """Of each event what the log says that happened to tensors on the device at it."""
    host = iter(records[~np.isin(records["kind"], [log.START, log.END])].tolist())
    last = {tr.ALLOC: log.PLACE, tr.FREE: log.DESTROY, tr.OP: log.ISSUE}  # the record with which an event is over
    found: list[list[Moves]] = []
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        found.append([])
        while kind in last:
            _, what, a, b, address, size = next(host)
            if what == log.COPY:
                found[-1].append(Moves(SWAP_OUT if b & 255 else SWAP_IN, a, -1, size))
            elif what in (log.PLACE, log.UNPLACE) and b == 0:
                found[-1].append(Moves(PLACE if what == log.PLACE else UNPLACE, a, address, size))
            if what == last[kind] and a == arg and (what != log.PLACE or b == 0):
                break
    return found


def of_model(
    trace: Trace, profile: Profile, durations: Any, share: str, known: KernelNeeds, moved: list[list[Moves]]
) -> tuple[int, Spans]:
    """(makespan, spans) from the plain model."""
    width, whole, _ = known.sms.tolist()  # when last blocks begin matters among tenants alone
    needs = Needs(width, whole, known.memory.tolist(), known.processors, known.bandwidth)
    words = frozenset(sharing.parse(share))
    return Model(trace, machine_of(trace, profile, None), durations.tolist(), needs, words, moved).play()


def difference(seed: int, share: str) -> str | None:
    """The first activity by which both differ, with what each says of it; "" where they agree, None where memory ran out."""
    trace, durations, room = program(seed)
    profile = machine(seed)
    needs = wanted(seed, trace, durations, profile)
    with mock.patch("gpusim.engine.run.simulate.kernel_needs", lambda *_: needs):
        result = ran(trace, profile, durations, share=share, capacity_bytes=room)
    if not result.finished:
        return None
    engine, makespan = spans(result.log), int(result.metrics["makespan_ns"])
    other, model = of_model(trace, profile, durations, share, needs, moves(trace, result.log))
    if engine == model:
        return "" if makespan == other else f"program {seed}: makespan {makespan} in the engine, {other} in the model"
    first = min((a for a in range(len(engine)) if engine[a] != model[a]), key=lambda a: min(engine[a][0], model[a][0]))
    return f"program {seed} on {profile.name}, activity {first}: {engine[first]} in the engine, {model[first]} in the model"


def main(first: int, last: int, share: str) -> None:
    """Compare the programs, print those that differ."""
    found = [text for seed in range(first, last) if (text := difference(seed, share)) is not None]
    print(*filter(None, found), f"{sum(map(bool, found))} of {len(found)} programs differ", sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else sharing.write(sharing.WORDS))
