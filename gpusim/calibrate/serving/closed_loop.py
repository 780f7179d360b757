"""A published run, simulated: clients that each send their next request when the one before is answered.

The scheduler is the engine's (`policies.schedule`), the time of a step that of `machine.serving`.  A client's next request is
there when the step ends that answered its last one; what the network and the engine's front end take is not simulated.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving.cases import PublishedRun
from gpusim.machine.profile import Profile
from gpusim.machine.serving import step
from gpusim.machine.serving.build import ServedStepTimes, step_times
from gpusim.machine.topology import build
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table
from gpusim.policies.schedule.parts.tables import N_ENDED, N_STEP
from gpusim.programs.zoo.served import served

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

BLOCK = {"vllm": 16, "sglang": 1}
"""Tokens of a block of keys and values, by engine."""
_CACHING = {"vllm": "enable_prefix_caching", "sglang": "enable_radix_cache"}
USED = 0.9
"""Share of the GPU's memory that an engine takes (gpu_memory_utilization)."""
BUDGET = 8192
"""Tokens of a step where a source names none: vLLM's default of a server on a GPU of 70 GiB or more."""
LONGER = 256
"""Tokens by which the longest sequence that an engine takes is longer than prompt and output."""


@dataclass(frozen=True)
class SimulatedRun:
    """Means over the requests in ms, as the sources' are; p99 of both; tokens of output in a second.

    parts  share of the GPU's time by part, in the order of `step.PARTS`
    low, high  between which multiples the times of all steps together are, four times out of five
    """

    ttft: float
    tpot: float
    ttft_p99: float
    tpot_p99: float
    throughput: float
    steps: int
    parts: tuple[float, ...]
    low: float
    high: float


def simulated(run: PublishedRun, folder: Path) -> SimulatedRun:
    """The run on aiconfigurator's tables in `folder`.  Raises GpusimError where the model does not fit."""
    times, limits, scheduler = prepared(run, folder)
    prompt, output = lengths(run)
    requests = request_table(np.zeros(len(prompt), np.int64), prompt, output)
    caching = f"{_CACHING[scheduler.split('@')[0]]}={int(run.set.prefix_caching)}"
    running = get("schedule", f"{scheduler}({caching})").start(requests, limits)
    return _answered(run, times, running, output)


def prepared(run: PublishedRun, folder: Path) -> tuple[ServedStepTimes, EngineLimits, str]:
    """Step times, limits and the name of the scheduler of a run."""
    of = run.set
    topology = build.load(of.machine)
    machine: Profile = topology.profile(topology.gpus[0])
    model = served(of.model, of.weights, of.cache)
    seats = of.seats or run.at_once
    times = step_times(
        model, machine, of.engine, run.ways, topology=topology, most_tokens=of.budget or BUDGET, most_requests=seats,
        overlap=of.overlap, folder=folder,
    )  # fmt: skip
    free = USED * float(machine.memory.capacity.value) - model.weight_bytes(run.ways)
    scheduler = scheduler_of(of.engine)
    block = BLOCK[scheduler.split("@")[0]]
    blocks = int(free // (block * model.token_bytes(run.ways)))
    if blocks < 2:
        raise GpusimError(f"{model.name} does not fit on {run.ways} GPUs of {machine.name}")
    most = run.prompt + run.output + LONGER
    return times, EngineLimits(blocks, block, seats, of.budget or BUDGET, most), scheduler


def scheduler_of(engine: str) -> str:
    """The modelled scheduler that is nearest to an engine: "vllm@0.10.2" -> "vllm@0.11"."""
    name, _, version = engine.partition("@")
    known = {"vllm": ((0, 11), (0, 33)), "sglang": ((0, 5),)}
    if name not in known:
        raise GpusimError(f"there is no scheduler of '{name}'")
    asked = tuple(int(part) for part in version.split(".")[:2])
    nearest = min(known[name], key=lambda v: abs(v[1] - asked[1]))
    return f"{name}@{nearest[0]}.{nearest[1]}"


def lengths(run: PublishedRun) -> tuple[I64, I64]:
    """Prompts and outputs of the requests, uniform from the shortest to the stated ones."""
    draw, count = np.random.default_rng(0), run.set.clients * run.at_once
    short = run.set.shortest
    prompt = draw.integers(int(run.prompt * short), run.prompt + 1, count)
    return prompt, draw.integers(int(run.output * short), run.output + 1, count)


def _answered(run: PublishedRun, times: ServedStepTimes, running: Running, output: I64) -> SimulatedRun:
    """The clients, until all are answered."""
    count, table, word = len(output), times.table, running.step.word
    sent, first, last = (np.zeros(count, np.int64) for _ in range(3))
    parts, summed = np.zeros(5, np.int64), np.zeros(5, np.int64)
    now, next_request, answered, steps = 0, 0, 0, 0
    for _ in range(min(run.at_once, count)):
        running.arrive(next_request, now)
        next_request += 1
    while answered < count:
        rows = running.compose(now)
        if rows < 1:
            raise GpusimError(f"the scheduler of {run.name} has nothing to run while {count - answered} requests wait")
        now += step.step_time(table, running.step.before, running.step.tokens, int(word[N_STEP]), parts)
        summed += parts
        steps += 1
        who = running.step.who[:rows].copy()
        running.over(now)
        begun = who[(running.step.made[who] == 1) & (first[who] == 0)]
        first[begun] = now
        for r in running.step.ended[: word[N_ENDED]]:
            last[r] = now
            answered += 1
            if next_request < count:
                sent[next_request] = now
                running.arrive(next_request, now)
                next_request += 1
    ttft, tpot = (first - sent) / 1e6, (last - first) / np.maximum(output - 1, 1) / 1e6
    bounds = np.zeros(2)
    step.step_interval(table, summed, bounds)
    whole = float(summed.sum())
    return SimulatedRun(
        float(ttft.mean()), float(tpot.mean()), float(np.quantile(ttft, 0.99)), float(np.quantile(tpot, 0.99)),
        float(output.sum() / now * 1e9), steps, tuple((summed / whole).tolist()), bounds[0] / whole, bounds[1] / whole,
    )  # fmt: skip
