"""SplitwiseSim's own classes against this project's splitwise scheduler and mixed pool: the same random requests through both.

    python -m real_splitwise FIRST_SEED SEEDS       compare; prints the counts
    python -m real_splitwise FIRST_SEED SEEDS heap  with its own order of events at one time
    python -m real_splitwise record FILE            write the recorded sample

GPUSIM_SPLITWISE_SIM names a checkout of github.com/Mutinifni/splitwise-sim at 8f99e7dc (MIT), nothing of which is part of this
project; networkx, pandas and scipy are needed.  A case is drawn from its seed: routing, machines, limits, room for keys and
values (ample or tight), lengths, arrivals.  Where a case ends in a deadlock, those that ended before are compared.

Its heap compares times alone, so that events of one time come in an order that depends on all else that is in the heap.  Here
they come in the order in which they were scheduled, unless `heap` is asked for.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import types
from collections import Counter
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine.serving.pool import BEGUN, JOINED, MixedPool
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.engine.serving.tabled import TabledCost
from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.serving.given import GivenStepTimes, given_step_times
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import EngineLimits, request_table
from gpusim.policies.schedule.parts.tables import NEVER

VARIABLE = "GPUSIM_SPLITWISE_SIM"
SECONDS = 1e-6
TOKEN = 2 * 14_336 * 70 * 2  # bytes of bloom-176b
RATE = 200                   # GiB/s
WHOLE = 1 << 40              # bytes of a machine
END = 86_400.0
SAMPLE = (*range(900, 908), 913, 1028, 1039, 1041, 1085)


@dataclass(frozen=True)
class Case:
    """A service and its requests; arrivals in s.  prompts: so many machines are for prompts, 0: all do both."""

    machines: tuple[str, ...]
    prompts: int
    room: int
    max_seqs: int
    max_tokens: int
    max_preemptions: int
    long: int
    arrival: tuple[float, ...]
    prompt: tuple[int, ...]
    output: tuple[int, ...]

    @property
    def family(self) -> str:
        longest = max(p + o for p, o in zip(self.prompt, self.output, strict=True))
        return f"{'mixed pool' if self.prompts else 'least tokens'}, {'tight' if self.room < 20 * longest else 'ample'}"


def drawn(seed: int) -> Case:
    """The case of a seed."""
    rng = np.random.default_rng(seed)
    pooled, tight = bool(rng.integers(2)), bool(rng.integers(2))
    machines = int(rng.integers(2, 6)) if pooled else int(rng.integers(1, 4))
    n = int(rng.integers(2, 80))
    most = int(rng.choice([20, 200, 3000]))
    prompt, output = rng.integers(1, most, n), 2 + rng.geometric(1 / float(rng.choice([3, 20, 100])), n)
    longest = int((prompt + output).max())
    return Case(
        tuple(str(gpu) for gpu in rng.choice(["a100", "h100"], machines)), int(rng.integers(1, machines)) if pooled else 0,
        int(longest * rng.uniform(1.0, 6.0)) + 1 if tight else 200 * longest + 100_000, int(rng.choice([2, 4, 16, 512])),
        int(rng.choice([64, 512, 2048])), int(rng.integers(1, 6)), int(rng.choice([100, 1000, 8192])),
        tuple(np.round(1.0 + np.cumsum(rng.exponential(float(rng.choice([0.01, 0.1, 0.5])), n) + 1e-7), 7).tolist()),
        tuple(prompt.tolist()), tuple(output.tolist()),
    )  # fmt: skip


class Real:
    """The real classes."""

    def __init__(self, root: Path, heap: bool) -> None:
        hydra, utils, omegaconf = types.ModuleType("hydra"), types.ModuleType("hydra.utils"), types.ModuleType("omegaconf")
        utils.get_original_cwd, utils.instantiate = lambda: str(root), None  # type: ignore[attr-defined]
        omegaconf.OmegaConf = None  # type: ignore[attr-defined]
        hydra.utils = utils  # type: ignore[attr-defined]
        sys.modules |= {"hydra": hydra, "hydra.utils": utils, "omegaconf": omegaconf}
        sys.path.insert(0, str(root))
        import instance  # type: ignore[import-not-found]
        import model  # type: ignore[import-not-found]
        import performance_model  # type: ignore[import-not-found]
        import request  # type: ignore[import-not-found]
        import scheduler  # type: ignore[import-not-found]
        import simulator  # type: ignore[import-not-found]

        self.instance, self.model, self.request, self.scheduler, self.simulator = instance, model, request, scheduler, simulator
        performance_model.DatabasePerformanceModel("data/perf_model.csv")
        if not heap:
            self._in_order(simulator.Event)

    @staticmethod
    def _in_order(event: Any) -> None:
        numbers, made = count(), event.__init__

        def init(self: Any, at: float, action: Any) -> None:
            made(self, at, action)
            self.number = next(numbers)

        event.__init__, event.__lt__ = init, lambda a, b: (a.time, a.number) < (b.time, b.number)

    def run(self, case: Case) -> tuple[Any, Any]:
        """(n, 3) s of queue, first and last token, NaN for a request that has not ended; (n, 2) machines of its parts."""
        sim = self.simulator.Simulator(END)
        application = types.SimpleNamespace(application_id=0)
        done = types.SimpleNamespace(request_completion=lambda request: request.complete_at_router())
        no_time = types.SimpleNamespace(submit_task=0, submit_flow=0, finish_request=0)
        common = {"application": application, "router": done, "overheads": {}, "executor_overheads": no_time}
        if case.prompts:
            application.scheduler = self.scheduler.MixedPoolScheduler(
                **common, prompt_processors=[], token_processors=[], prompt_max_pending_batch_tokens=case.long,
                token_max_pending_batch_tokens=0, transfer_bandwidth=RATE,
            )  # fmt: skip
        else:
            application.scheduler = self.scheduler.TokenJSQScheduler(**common)
        for i, gpu in enumerate(case.machines):
            application.scheduler.add_instance(self._instance(application, case, i, gpu))
        columns = zip(case.arrival, case.prompt, case.output, strict=True)
        requests = [
            self.request.Request.from_dict({
                "request_id": i, "request_type": 2, "application_id": 0, "arrival_timestamp": at, "batch_size": 1,
                "prompt_size": prompt, "token_size": output,
            })
            for i, (at, prompt, output) in enumerate(columns)
        ]  # fmt: skip
        for each in requests:
            sim.schedule(each.arrival_timestamp, lambda r=each: self._come(application, r))
        sim.run()
        times, did = np.full((len(requests), 3), np.nan), np.full((len(requests), 2), -1)
        for each in application.scheduler.completed_queue:
            m, i = each.metrics, each.request_id
            times[i] = m.queue_time, m.TTFT, m.router_response_time
            did[i] = each.nodes[0].instance.instance_id, each.nodes[1].instance.instance_id
        return times, did

    @staticmethod
    def _come(application: Any, request: Any) -> None:
        request.arrive_at_router()
        application.scheduler.request_arrival(request)

    def _instance(self, application: Any, case: Case, i: int, gpu: str) -> Any:
        # Room is no whole number of tokens, so that "as much as" never decides.
        weights = WHOLE - case.room * TOKEN - TOKEN // 2
        made = self.model.GenerativeLLM(
            name="bloom-176b", parallelism=self.model.ModelParallelism(pipeline_parallelism=1, tensor_parallelism=8),
            architecture=self.model.LLMArchitecture(name="bloom-176b", num_layers=70, hidden_size=14336, num_heads=112),
            size=self.model.ModelSize(weights=weights, dtype_size=2),
        )  # fmt: skip
        gpus = [types.SimpleNamespace(name=f"{gpu}-80gb", memory_size=WHOLE // 8, server=None, instances=[]) for _ in range(8)]
        return self.instance.SplitwiseInstance(
            instance_id=i, application=application, name=gpus[0].name, tag="prompt" if i < case.prompts else "token",
            model=made, processors=gpus, overheads={}, max_batch_size=case.max_seqs, max_preemptions=case.max_preemptions,
            max_batch_tokens=case.max_tokens,
        )  # fmt: skip


def ours(case: Case, times: Any) -> tuple[Any, Any, Counter[str]]:
    """The same of this project, and what happened."""
    requests = request_table([round(at * 1e9) for at in case.arrival], case.prompt, case.output)
    limits = EngineLimits(case.room, 1, case.max_seqs, case.max_tokens, 1 << 20)
    policy = get("schedule", f"splitwise(max_preemptions={case.max_preemptions})")
    engines = [
        Engine(f"{gpu} {i}", policy.start(requests, limits), TabledCost(times[gpu]), role=_role(case, i))
        for i, gpu in enumerate(case.machines)
    ]
    pairs = [(a, b) for a in range(len(engines)) for b in range(len(engines)) if a != b]
    ways = {pair: CopyWay(0, RATE * 1024**3 / 1e9, ()) for pair in pairs}
    pool = MixedPool(float(TOKEN), ways, long=case.long) if case.prompts else None
    run = ServiceRun(requests, engines, routing="mixed_pool" if pool else "least_tokens", pool=pool)
    seen = Counter[str]()
    try:
        run.advance()
    except GpusimError:
        seen["cases that end in a deadlock"] += 1
    found, before = run.result(), run.tables.outcome["prefilled"]
    s = np.stack([found.admitted, found.first, found.ended], axis=1) - found.arrival[:, None]
    did = np.stack([np.where(before >= 0, before, found.engine), found.engine], axis=1)
    ended = (found.ended < NEVER)[:, None]
    seen["preempted"] += int(found.preemptions.sum())
    seen["handed over"] += int((before >= 0).sum())
    seen["second tries"] += int(run.pool.number[BEGUN]) - int((found.handed > 0).sum()) if pool else 0
    seen["machines that joined others"] += int(run.pool.number[JOINED]) - len(engines) if pool else 0
    return np.where(ended, s / 1e9, np.nan), np.where(ended, did, -1), seen


def _role(case: Case, i: int) -> str:
    return "whole" if not case.prompts else "prefill" if i < case.prompts else "decode"


def checkout() -> tuple[Path, dict[str, GivenStepTimes]]:
    """Its folder, and the step times of each kind of machine."""
    root = Path(os.environ.get(VARIABLE, VARIABLE)).absolute()
    if not (root / "instance.py").is_file():
        sys.exit(f"{VARIABLE} names no checkout of splitwise-sim")
    chosen = "model=bloom-176b,hardware={}-80gb,tensor_parallel=8"
    return root, {gpu: given_step_times(f"{root}/data/perf_model.csv({chosen.format(gpu)})") for gpu in ("a100", "h100")}


def record(path: Path) -> None:
    """Step times, and what the real classes answer in a few cases."""
    root, times = checkout()
    real, cases = Real(root, False), {}
    names = ("tokens", "prompt", "token")
    kept = {gpu: {name: getattr(table, name).tolist() for name in names} for gpu, table in times.items()}
    os.chdir(tempfile.mkdtemp())
    for seed in SAMPLE:
        found, did = real.run(drawn(seed))
        cases[str(seed)] = {
            "times": [[None if np.isnan(t) else round(float(t), 10) for t in row] for row in found], "did": did.tolist(),
        }  # fmt: skip
    head = "Mutinifni/splitwise-sim @8f99e7dc (MIT): our runs of its classes; s of queue, first and last token; machines"
    path.write_text(json.dumps({"source": head, "step_times_ns": kept, "cases": cases}), "utf-8")


def main(first: int, seeds: int, heap: bool = False) -> int:
    """Compare; how many cases differ."""
    root, times = checkout()
    real = Real(root, heap)
    families: dict[str, Counter[str]] = {}
    bad, worst, spent = 0, 0.0, Counter[str]()
    os.chdir(tempfile.mkdtemp())
    for seed in range(first, first + seeds):
        case = drawn(seed)
        began = time.process_time()
        theirs, their_machines = real.run(case)
        spent["real"] += time.process_time() - began  # type: ignore[assignment]
        began = time.process_time()
        own, own_machines, seen = ours(case, times)
        spent["ours"] += time.process_time() - began  # type: ignore[assignment]
        same = (np.isnan(theirs) == np.isnan(own)).all() and (their_machines == own_machines).all()
        apart = float(np.nanmax(np.abs(theirs - own), initial=0.0))
        if not same or apart > SECONDS:
            bad += 1
            elsewhere = (their_machines != own_machines).sum()
            print(f"seed {seed} ({case.family}): differs by {apart:.3g} s, {elsewhere} parts on other machines", flush=True)
        else:
            worst = max(worst, apart)
        families.setdefault(case.family, Counter()).update(seen | Counter(cases=1, requests=len(case.prompt)))
    for family, counts in sorted(families.items()):
        print(family, dict(counts))
    print(f"{bad} of {seeds} cases differ; of the others no time by more than {worst:.3g} s; CPU s {dict(spent)}")
    return bad


if __name__ == "__main__":
    if sys.argv[1] == "record":
        record(Path(sys.argv[2]).absolute())
        sys.exit()
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]), "heap" in sys.argv[3:])))
