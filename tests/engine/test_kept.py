"""Does a run that is interrupted, and taken up again from its state, end in the same bytes: all loops of the engine?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from coupled_programs import drawn_runs, program_of
from plain_python import fingerprint
from test_cluster_runs import jobs, nodes
from test_service_run import LIMITS, SMALL, prompts, store

from gpusim.base.errors import GpusimError
from gpusim.base.kept import Kept
from gpusim.engine import state
from gpusim.engine.cluster.breakdowns import ClusterFailure
from gpusim.engine.cluster.events import EventRun
from gpusim.engine.cluster.failing import FailingCluster, FailingEventRun
from gpusim.engine.cluster.failing_rounds import FailingRoundRun
from gpusim.engine.cluster.rounds import RoundRun
from gpusim.engine.failures import tables as failing
from gpusim.engine.failures.run import CheckpointCost, FailingRun, FailureKind, Job
from gpusim.engine.failures.together import SharedSpares
from gpusim.engine.run.claims import claim_of
from gpusim.engine.run.coupled import Coupled
from gpusim.engine.run.memory_turns import MemoryTurns
from gpusim.engine.run.simulate import prepared
from gpusim.engine.serving import tables as serving
from gpusim.engine.serving.costs import linear_cost
from gpusim.engine.serving.run import Engine, ServiceRun
from gpusim.machine import catalogue, mig
from gpusim.machine.tenancy import MPS, SLICES, Switch, Tenancy, Tenant
from gpusim.machine.topology.connections import Connections
from gpusim.policies.clusters import JobRates
from gpusim.policies.registry import get
from gpusim.policies.schedule.parts.running import request_table
from gpusim.referee.bounds import most_alive
from gpusim.results.log import LOG
from gpusim.trace.trace import COLLECTIVE, COPY_PEER, KERNEL

pytestmark = [pytest.mark.agreement, pytest.mark.slow]
S = 1e9


def interrupted(made: Callable[[], Any], advance: Callable[[Any, int], bool], end: Callable[[Any], Any], at: int) -> None:
    """`advance` answers whether the run is at its end; `end` carries it there and tells what came of it."""
    whole = end(made())
    run = made()
    assert not advance(run, at)
    kept = Kept(run)
    assert end(run) == whole  # in two steps
    for _ in range(2):
        kept.restore()
        assert end(run) == whole
    kept.restore()
    assert not advance(run, at + at // 2)
    kept.restore()  # from further on, too
    assert end(run) == whole


def tenants(mode: str, seed: int) -> Any:
    rng, profile = np.random.default_rng(seed), catalogue.load("a100-pcie-40gb")
    each = [prepared(program_of(rng), profile, log=True, seed=seed, place="pytorch", evict="lru") for _ in range(3)]
    tenancy = Tenancy(
        mode, tuple(Tenant(slice=each) for each in (40_000, 70_000, 90_000)), Switch(500.0, 0)
    ) if mode == SLICES else Tenancy(mode, (Tenant(),) * 3, Switch(0.0, 0))  # fmt: skip
    return Coupled([one.simulation for one in each], Connections(tenancy=tenancy)), each


def in_memory_turns(word: str) -> Any:
    """Three programs of which two fit, in turns that a policy gives."""
    rng, profile = np.random.default_rng(4), catalogue.load("a100-pcie-40gb")
    traces = [program_of(rng) for _ in range(3)]
    for trace in traces:
        trace.activity.setflags(write=True)
        trace.activity[np.isin(trace.activity, (COLLECTIVE, COPY_PEER))] = KERNEL
    each = [prepared(trace, profile, log=True, place="device", evict="lru") for trace in traces]
    claims = [claim_of(one.work, int(1.2 * most_alive(one.work.trace, one.work.trace.size)) + (2 << 20)) for one in each]
    turns = MemoryTurns(get("tenants", word), 2 * max(claim.most for claim in claims), claims)
    tenancy = Tenancy(SLICES, (Tenant(),) * 3, Switch(500.0, 0))
    return Coupled([one.simulation for one in each], Connections(tenancy=tenancy), turns), each


@pytest.mark.parametrize("word", ["nvshare(quantum=2e-4)", "salus", "antman(slice_ms=0.05)", "tgs(slice_ms=0.05)"])
def test_tenants_in_turns_of_a_policy(word: str) -> None:
    def ended(run: Any) -> Any:
        coupled = run[0]
        return [of_coupled(run), [coupled.memory.records.into(np.zeros(0, LOG), p).tobytes() for p in range(3)]]

    interrupted(
        lambda: in_memory_turns(word), lambda run, until: run[0].advance(until) == state.FINISHED, ended, 1_500_000
    )


def slices_of_mig() -> Any:
    """Each on a slice of its own; they share the link to the host."""
    rng, gpu = np.random.default_rng(5), catalogue.load("a100-sxm4-80gb")
    machines = [mig.instance(gpu, name) for name in ("3g.40gb", "2g.20gb", "1g.10gb")]
    each = [prepared(program_of(rng), machine, log=True, place="pytorch", evict="lru") for machine in machines]
    names = ("h2d", "d2h", "both")
    rates = {f"gpu {name}": getattr(each[0].simulation.machine, name) for name in names}
    link = Connections(rates, [{name: (f"gpu {name}",) for name in names}] * 3)
    return Coupled([one.simulation for one in each], link), each


def test_programs_on_mig_slices() -> None:
    interrupted(slices_of_mig, lambda run, until: run[0].advance(until) == state.FINISHED, of_coupled, 2_000_000)


def of_coupled(run: Any) -> Any:
    coupled, each = run
    assert coupled.advance(state.NEVER) == state.FINISHED
    return [fingerprint(one.result()) for one in each]


@pytest.mark.parametrize("mode", [SLICES, MPS])
def test_tenants_on_one_gpu(mode: str) -> None:
    interrupted(
        lambda: tenants(mode, 3), lambda run, until: run[0].advance(until) == state.FINISHED, of_coupled, 2_000_000
    )


@pytest.mark.parametrize("seed", [1, 5])
def test_programs_that_meet_and_evict_under_all_kinds_of_policies(seed: int) -> None:
    interrupted(
        lambda: drawn_runs(seed), lambda run, until: run[0].advance(until) == state.FINISHED, of_coupled, 1_500_000
    )


def service(scheduler: str) -> ServiceRun:
    rng, n = np.random.default_rng(7), 60
    requests = request_table(np.sort(rng.integers(0, 40_000, n)), rng.integers(20, 200, n), rng.integers(1, 30, n))
    limits = replace(LIMITS, blocks=60, max_len=256, max_tokens=256)
    made = [Engine(f"e{i}", get("schedule", scheduler).start(requests, limits), linear_cost(100.0, 10.0, 1.0)) for i in (0, 1)]
    return ServiceRun(requests, made, log=True)


def tiered() -> ServiceRun:
    """Sixty prompts of four chunks, of twelve kinds; the device has room for five, host and disk below it for ten."""
    rng = np.random.default_rng(7)
    arrivals = np.sort(rng.integers(0, 40_000, 60))
    requests = prompts(*((int(at), rng.integers(0, 12, 4).tolist()) for at in arrivals), output=3)
    scheduler = get("schedule", "vllm@0.33").start(requests, SMALL)
    given = store(6 * 32, below=4 * 32)
    return ServiceRun(requests, [Engine("one", scheduler, linear_cost(100.0, 10.0, 1.0))], store=given, log=True)


def served(run: ServiceRun) -> Any:
    assert run.advance() == serving.FINISHED
    found = run.result()
    columns = (found.first, found.last, found.ended, found.made, found.engine, run.records(), found.gaps)
    return [column.tobytes() for column in columns], found.engines


@pytest.mark.parametrize("scheduler", ["vllm@0.33", "vllm@0.9", "sglang", "tiered"])
def test_services(scheduler: str) -> None:
    made = tiered if scheduler == "tiered" else lambda: service(scheduler)
    interrupted(made, lambda run, until: run.advance(until) == serving.FINISHED, served, 20_000)


def cluster(scheduler: str, fails: bool = False) -> Any:
    rng = np.random.default_rng(11)
    each = jobs(*((float(at), float(rng.integers(50, 4000)), int(rng.choice([1, 1, 2, 4])))
                  for at in np.sort(rng.integers(0, 20_000, 60))))  # fmt: skip
    named = get("jobs", scheduler)
    made = named.scheduler()
    kind = RoundRun if made.verb == "shares" else EventRun
    if fails:
        node = ClusterFailure(name="node", rates={4: 1 / 2000}, detect=20, repair=900)
        slow = ClusterFailure(name="slow", rates={4: 1 / 900}, one_gpu=True, speed=0.5, lasts=400, kills=False, leaves=False)
        card = ClusterFailure(name="nic", rates={4: 1 / 2000}, reach="beyond", speed=0.7, lasts=900, leaves=False)
        parts = () if made.verb == "shares" else (slow, card)
        what, saves = (node, ClusterFailure(name="job", of_jobs=1e-4), *parts), get("checkpoint", "every(seconds=300)")
        how = FailingCluster(kinds=what, policy=saves, save=5.0, spares=nodes(4).nodes, seed=2)
        kind = partial(FailingRoundRun if made.verb == "shares" else FailingEventRun, failing=how)
        each = [replace(job, least=job.gpus // 2) for job in each]
    if scheduler == "gandiva":
        each = [replace(job, model="a", gpus=1) for job in each]
        rates = JobRates({("v100", "a", 1): 1.0}, {("v100", "a", "a", 1): (0.75, 0.75)})
    else:
        rates = JobRates()
    return kind(each, nodes(4, 4), rates, made, name=named.spec, error=named.error)


def of_cluster(run: Any) -> Any:
    assert run.advance()
    found = run.outcome()
    times = found.first.tobytes(), found.end.tobytes(), found.busy.tobytes()
    return *times, found.placed, found.stops, dict(found.counts), str(found.failed)


@pytest.mark.parametrize("scheduler", ["first_come", "best_fit", "shortest_first", "priority", "fifo", "gandiva", "isolated"])
def test_clusters(scheduler: str) -> None:
    interrupted(lambda: cluster(scheduler), lambda run, until: run.advance(until), of_cluster, 9000)


@pytest.mark.parametrize("scheduler", ["best_fit", "elastic", "isolated"])
def test_clusters_that_fail(scheduler: str) -> None:
    interrupted(lambda: cluster(scheduler, True), lambda run, until: run.advance(until), of_cluster, 9000)


def failing_run() -> FailingRun:
    kinds = [
        FailureKind(name="gpu", between=9000 * S, each=8.0, effect="lose_node", detect=5 * S, repair=400 * S),
        FailureKind(name="nic", between=900 * S, effect="degrade", speed=0.8, lasts=300 * S),
        FailureKind(name="slow", between=300 * S, effect="slow", speed=0.9, lasts=2000 * S),
        FailureKind(name="rack", between=4000 * S, group=2, effect="lose_node", repair=100 * S, host_lost=True),
        FailureKind(name="host", after=700 * S, effect="restart", host_lost=True),
    ]  # fmt: skip
    load = (2 * S, 4 * S, 9 * S)
    cost = CheckpointCost(stop=4 * S, to_peers=3 * S, to_storage=20 * S, host=True, copies=1, each=3, load=load)
    job = Job(work=20_000 * S, nodes=6, spare=1, least=4, restart=30 * S)
    return FailingRun(job, cost, kinds, get("checkpoint", "adaptive"), seed=5, log=True)


def sharing_jobs() -> SharedSpares:
    kinds = [FailureKind(name="gpu", between=9000 * S, each=8.0, effect="lose_node", detect=5 * S, repair=2000 * S)]
    cost = CheckpointCost(stop=4 * S, load=(0.0, 0.0, 9 * S))
    job = Job(work=20_000 * S, nodes=3, least=2, restart=30 * S)
    return SharedSpares([FailingRun(job, cost, kinds, get("checkpoint", "daly"), seed=seed) for seed in (1, 2, 3)], 2)


def of_sharing(jobs: SharedSpares) -> Any:
    assert jobs.advance()
    return [run.course() for run in jobs.runs]


def test_jobs_that_share_spare_nodes() -> None:
    interrupted(sharing_jobs, lambda jobs, until: jobs.advance(until), of_sharing, round(9000 * S))


def of_failing(run: FailingRun) -> Any:
    assert run.advance() == failing.FINISHED
    return run.course(), run.records().tobytes()


def test_long_runs_that_fail() -> None:
    interrupted(
        failing_run, lambda run, until: run.advance(until) == failing.FINISHED, of_failing, round(5000 * S)
    )


def test_what_stands_half_way_in_python_is_refused() -> None:
    walk = (i for i in count())
    with pytest.raises(GpusimError, match="half-way cannot be kept"):
        Kept({"walk": walk})
