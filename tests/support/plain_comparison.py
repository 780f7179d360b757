"""Random programs on random machines: the engine beside the plain model, to the tick.

    python tests/support/plain_comparison.py FIRST LAST [WORDS]    numbers of programs; what is shared, as a run names it
"""

from __future__ import annotations

import sys
from typing import Any
from unittest import mock

import numpy as np
from plain_model import Model, Needs
from plain_programs import program

from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue, sharing
from gpusim.machine.constants import machine as machine_of
from gpusim.machine.kernels.needs import KernelNeeds, kernel_needs
from gpusim.machine.profile import Profile, changed
from gpusim.results import log
from gpusim.trace.trace import ACTIVITIES, COLLECTIVE, KERNEL, Trace

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


def of_engine(trace: Trace, profile: Profile, durations: Any, **choices: Any) -> tuple[int, Spans]:
    """(makespan, (start, end) of each operator), ns, as the event log has them."""
    result = simulate(trace, profile, place="first_fit", durations=durations, log=True, **choices)
    assert result.log is not None
    at: dict[int, dict[int, int]] = {kind: {} for kind in (log.ISSUE, log.START, log.END)}
    for record in result.log:
        if record["kind"] == log.ISSUE:
            at[log.ISSUE][int(record["a"])] = int(record["addr"])
        elif record["kind"] in at:
            at[int(record["kind"])][int(record["a"])] = int(record["t"])
    activities = [at[log.ISSUE][op] for op in range(trace.ops)]
    return int(result.metrics["makespan_ns"]), [(at[log.START][a], at[log.END][a]) for a in activities]


def of_model(trace: Trace, profile: Profile, durations: Any, share: str, known: KernelNeeds) -> tuple[int, Spans]:
    """The same from the plain model."""
    width, whole = known.sms.tolist()
    needs = Needs(width, whole, known.memory.tolist(), known.processors, known.bandwidth)
    return Model(trace, machine_of(trace, profile, None), durations.tolist(), needs, frozenset(sharing.parse(share))).play()


def difference(seed: int, share: str) -> str:
    """The first operator by which both differ, with what each says of it; "" where they agree."""
    trace, durations = program(seed)
    profile = machine(seed)
    needs = wanted(seed, trace, durations, profile)
    with mock.patch("gpusim.engine.run.simulate.kernel_needs", lambda *_: needs):
        makespan, engine = of_engine(trace, profile, durations, share=share)
    other, model = of_model(trace, profile, durations, share, needs)
    if engine == model:
        return "" if makespan == other else f"program {seed}: makespan {makespan} in the engine, {other} in the model"
    op = min((op for op in range(trace.ops) if engine[op] != model[op]), key=lambda op: min(engine[op][0], model[op][0]))
    what = ACTIVITIES[trace.activity[op]]
    return f"program {seed} on {profile.name}, {what} {op}: {engine[op]} in the engine, {model[op]} in the model"


def main(first: int, last: int, share: str) -> None:
    """Compare the programs, print those that differ."""
    found = [text for seed in range(first, last) if (text := difference(seed, share))]
    print(*found, f"{len(found)} of {last - first} programs differ", sep="\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else sharing.write(sharing.WORDS))
