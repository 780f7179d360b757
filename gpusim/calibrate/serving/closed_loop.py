"""A published run, simulated: clients that each send their next request when the one before is answered.

The scheduler is the engine's (`policies.schedule`), the time of a step that of `machine.serving`.  A client's next request is
there when the step ends that answered its last one; what the network and the engine's front end take is not simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving.cases import PublishedRun
from gpusim.engine.serving.modelled import ModelledCost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.machine.profile import Profile
from gpusim.machine.serving import step
from gpusim.machine.serving.build import ServedStepTimes, step_times
from gpusim.machine.topology import build
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
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


def simulated(run: PublishedRun, folder: Path, launching: float = 0.0) -> SimulatedRun:
    """The run on aiconfigurator's tables in `folder`.  Raises GpusimError where the model does not fit.

    launching  ns that a step takes at least which is in no CUDA graph, where the engine has none of steps with prompts
    """
    times, limits, scheduler = prepared(run, folder)
    if not run.set.prompt_graphs:
        times = replace(times, table=step.launched(times.table, launching))
    prompt, output = lengths(run)
    requests = request_table(np.zeros(len(prompt), np.int64), prompt, output)
    caching = f"{_CACHING[scheduler.split('@')[0]]}={int(run.set.prefix_caching)}"
    cost = ModelledCost(times)
    engine = Engine(run.set.engine, get("schedule", f"{scheduler}({caching})").start(requests, limits), cost)
    service = ServiceRun(requests, [engine], at_once=run.at_once)
    service.advance()
    found, spent = service.result(), cost.spent()
    if not found.finished.all():
        raise GpusimError(f"{int((~found.finished).sum())} requests of {run.name} were refused")
    ttft, tpot = found.ttft_ns() / 1e6, found.tpot_ns() / 1e6
    return SimulatedRun(
        float(ttft.mean()), float(tpot.mean()), float(np.quantile(ttft, 0.99)), float(np.quantile(tpot, 0.99)),
        float(output.sum() / found.makespan_ns * 1e9), found.engines[0].steps,
        tuple(part / spent.ns for part in spent.parts.values()), spent.low / spent.ns, spent.high / spent.ns,
    )  # fmt: skip


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
    scheduler = scheduler_of(of.engine, of.overlap)
    block = BLOCK[scheduler.split("@")[0]]
    blocks = int(free // (block * model.token_bytes(run.ways)))
    if blocks < 2:
        raise GpusimError(f"{model.name} does not fit on {run.ways} GPUs of {machine.name}")
    most = run.prompt + run.output + LONGER
    return times, EngineLimits(blocks, block, seats, of.budget or BUDGET, most), scheduler


def scheduler_of(engine: str, ahead: bool) -> str:
    """The modelled scheduler that is nearest to an engine: "vllm@0.10.2" -> "vllm@0.11".

    ahead  it composes a step while the one before is computed, which 0.33 does here of the schedulers of vLLM
    """
    name, _, version = engine.partition("@")
    known = {"vllm": ((0, 11), (0, 33)), "sglang": ((0, 5),)}
    if name not in known:
        raise GpusimError(f"there is no scheduler of '{name}'")
    if name == "vllm" and ahead:
        return "vllm@0.33"
    asked = tuple(int(part) for part in version.split(".")[:2])
    nearest = min(known[name], key=lambda v: abs(v[1] - asked[1]))
    return f"{name}@{nearest[0]}.{nearest[1]}"


def lengths(run: PublishedRun) -> tuple[I64, I64]:
    """Prompts and outputs of the requests, uniform from the shortest to the stated ones."""
    draw, count = np.random.default_rng(0), run.set.clients * run.at_once
    short = run.set.shortest
    prompt = draw.integers(int(run.prompt * short), run.prompt + 1, count)
    return prompt, draw.integers(int(run.output * short), run.output + 1, count)
