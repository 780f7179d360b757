"""A service in progress: its tables from requests, schedulers and costs, and what has become of the requests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.compiled import Placed, direct
from gpusim.base.errors import GpusimError, PolicyError
from gpusim.base.tables import filled, table
from gpusim.engine.serving import tables as t
from gpusim.engine.serving.beside import MergedRequests, ServicesOnGpus
from gpusim.engine.serving.costs import StepCost
from gpusim.engine.serving.loop import serve_until
from gpusim.engine.serving.pool import POOL, PROMPTS, TOKENS, MixedPool, pool_tables
from gpusim.engine.serving.tiering import KvStore, check_room, chunked, placed_managers, tier_tables
from gpusim.engine.serving.tiers import TIERS
from gpusim.engine.state import LINK
from gpusim.policies.schedule.parts import tables as told
from gpusim.policies.schedule.parts.running import STOPS, Running
from gpusim.policies.schedule.parts.tables import NEVER, REFUSALS, REQUESTS, RequestTable
from gpusim.results.served import EngineAccount, Served

ROUTINGS = {
    "given": t.GIVEN, "round_robin": t.ROUND_ROBIN, "least_busy": t.LEAST_BUSY, "least_tokens": t.LEAST_TOKENS,
    "mixed_pool": t.MIXED_POOL,
}  # fmt: skip
ROLES = {"whole": t.WHOLE, "prefill": t.PREFILL, "decode": t.DECODE}
ROWS, WIDTH = 2048, 1_000_000  # of the samples: so many at most, the first of so many ns
LOG_ROWS = 1 << 18


@dataclass(frozen=True)
class BlockSwap:
    """How long KV blocks take between a device and its host, ns: of all swaps of a step, of each block out and in."""

    latency: int
    out: float
    back: float


@dataclass
class Engine:
    """One engine of a service: its scheduler at work on the requests, and what its steps cost."""

    name: str
    scheduler: Running
    cost: StepCost
    swap: BlockSwap | None = None
    role: str = "whole"  # prefill: it hands requests over to an engine that is for decode; of a mixed pool, where it is at home
    service: int = 0  # whose requests it takes, where several services share GPUs
    device: int = -1  # the GPUs that it shares with engines of other services, -1: it has its own


class ServiceRun:
    """A service in progress; it has not begun.

    routing  round_robin, least_busy (whose requests under way are the fewest), least_tokens (which owes the fewest tokens:
             prompts not yet computed, and one of each request), mixed_pool (`pool`), or given (`engine_of`)
    at_once  so many clients send the requests, each its next one when it has an answer; 0: they come at their times
    store    tiers of keys and values below the engines' devices; then `requests` are `dense`
    pool     the mixed pool of engines whose schedulers tell prompts and tokens apart
    shared   how GPUs pass among engines of several services; `among` says whose each request is
    log      keep what happens to each request (`records`)
    """

    def __init__(
        self, requests: RequestTable, engines: Sequence[Engine], *, routing: str = "least_busy", engine_of: Any = None,
        at_once: int = 0, store: KvStore | None = None, pool: MixedPool | None = None, shared: ServicesOnGpus | None = None,
        among: MergedRequests | None = None, log: bool = False,
    ) -> None:  # fmt: skip
        if (routing == "mixed_pool") != (pool is not None):
            said = "a mixed pool is a routing and its ways between engines"
            raise GpusimError(said, hint="routing='mixed_pool', pool=MixedPool(...)")
        n, self.requests, self.engines = len(requests.arrival), requests, list(engines)
        leaving = np.flatnonzero(requests.leaves < NEVER)
        verbs = np.stack([engine.scheduler.verbs for engine in engines])
        self._placed = Placed(requests, REQUESTS)
        services = 1 + max(engine.service for engine in engines)
        manager = store.manager if store is not None else None
        self.chunked = requests if manager is None else chunked(requests, manager.chunk)
        self._placed_chunked = Placed(self.chunked, REQUESTS)
        check_room(self.chunked, store)
        self.below, links, route = tier_tables(self.chunked, store, len(engines))
        self._below, self._managers = Placed(self.below, TIERS), placed_managers(self.below, store)
        self.tiers = store.tiers if store is not None else ()
        room = [engine.scheduler.limits.blocks * engine.scheduler.limits.block_size for engine in engines]
        homes = [TOKENS if engine.role == "decode" else PROMPTS for engine in engines]
        self.pool = pool_tables(pool, n, room, homes)
        self._placed_pool = Placed(self.pool, POOL)
        passed, times = _passed(store, links, engines)
        lengths = {"flows": 1 + len(self.below.way) + len(engines), "links": max(1, len(links)), "E": len(engines)}
        lengths |= {"services": services, "gaps": t.PER_OCTAVE * t.OCTAVES, "log": LOG_ROWS if log else 1}
        self.tables = filled(
            t.Service, lengths, **_devices(engines, shared), shared=passed, times=times,
            need=np.array([engine.cost.needs for engine in engines], np.int64),
            link=table(max(1, len(links)), LINK), route=route, tiers=np.array([self._below.address], np.int64),
            pool=np.array([self._placed_pool.address], np.int64),
            engine=table(len(engines), t.ENGINE), verbs=verbs, outcome=table(n, t.OUTCOME),
            cost=np.array([engine.cost.address for engine in engines], np.int64),
            requests=np.array([self._placed.address], np.int64), chunked=np.array([self._placed_chunked.address], np.int64),
            leaving=leaving[np.argsort(requests.leaves[leaving], kind="stable")].astype(np.int64),
            samples=table(len(engines) * ROWS, t.SAMPLE),
        )  # fmt: skip
        for row, engine in zip(self.tables.engine, engines, strict=True):
            row["own"], row["step"] = engine.scheduler.own, engine.scheduler.step_at
            row["cost"], row["ends"], row["wakes"] = engine.cost.own, NEVER, NEVER
            row["ahead"] = engine.scheduler.step.word[told.AHEAD]
            row["role"] = ROLES["whole" if pool is not None else engine.role]
            row["service"], row["device"] = engine.service, engine.device
            row["slice"] = shared.tenancy.tenants[engine.service].slice if shared is not None else 0
            row["each"] = max(1, int(requests.piece[0]) // engine.scheduler.limits.block_size)
            if engine.swap is not None:
                row["swap_latency"], row["swap_out"], row["swap_in"] = engine.swap.latency, engine.swap.out, engine.swap.back
            elif engine.scheduler.policy.values.get("preemption_mode") == "swap":
                raise GpusimError(f"how long the swaps of {engine.name} take is not given", hint="give it a BlockSwap")
            engine.scheduler.step.word[told.TIERS] = told.ASYNC_LOADS if store is not None else 0
        for name, i in links.items():
            self.tables.link[i]["rate"] = self.tables.full[i] = store.rates[name] if store is not None else 0.0
        for name in ("came", "admitted", "first", "last", "ended"):
            self.tables.outcome[name] = NEVER
        self.tables.outcome["engine"] = -1 if engine_of is None else engine_of
        course = self.tables.course
        course["at_once"], course["split"] = at_once, any(row["role"] == t.PREFILL for row in self.tables.engine)
        self.tables.outcome["prefilled"], self.tables.outcome["nth"] = -1, np.arange(n) if among is None else among.nth
        self.tables.outcome["service"] = 0 if among is None else among.service
        course["shares"] = times.any()
        self.tables.clock["coupled"] = course["shares"]  # a copy that is alone on its links may share them with a step
        course["routing"], course["log_on"], course["rows"], course["width"] = ROUTINGS[routing], log, ROWS, WIDTH
        self.tables.fluid["tick"] = NEVER
        self._records: list[Any] = []

    @property
    def logs(self) -> bool:
        """Whether it keeps its log."""
        return bool(self.tables.course["log_on"][0])

    @property
    def now(self) -> int:
        """Simulated time, ns."""
        return int(self.tables.clock["now"][0])

    def advance(self, until: int = NEVER) -> int:
        """Serve up to `until` ns; REACHED or FINISHED.  Raises GpusimError where requests wait for ever."""
        while True:
            reason = int(direct(serve_until)(self.tables, until))
            if reason == t.LOG_FULL:
                self._empty_log()
            elif reason == t.ASK:
                self.engines[int(self.tables.course["asking"][0]) - 1].scheduler.answer(self.now)
            elif reason == t.STOPPED:
                raise PolicyError(*next(STOPS[name] for e in self.engines if (name := e.scheduler.policy.name) in STOPS))
            elif reason == t.STUCK:
                raise GpusimError(self._stuck())
            else:
                return reason

    def _stuck(self) -> str:
        waiting = [(e.name, int(row["under_way"])) for e, row in zip(self.engines, self.tables.engine, strict=True)]
        said = " and ".join(f"{count} in {name}" for name, count in waiting if count)
        return f"requests wait for ever, {said}: the scheduler runs none of them"

    def _empty_log(self) -> None:
        course = self.tables.course
        self._records.append(self.tables.log[: int(course["logged"][0])].copy())
        course["logged"] = 0

    def records(self) -> Any:
        """What has happened so far (tables.SERVED rows, in order of time)."""
        self._empty_log()
        self._records = [np.concatenate(self._records)]
        return self._records[0]

    def spent(self, service: int = 0) -> list[Any]:
        """What the steps of each engine of a service have taken (`machine.serving.step.StepParts`)."""
        costs: list[Any] = [engine.cost for engine in self.engines if engine.service == service]
        return [cost.spent() for cost in costs]

    def times(self, service: int = 0) -> dict[str, int]:
        """ns of all steps of all engines of a service by part."""
        spent = self.spent(service)
        return {name: sum(one.parts[name] for one in spent) for name in spent[0].parts}

    def result(self, service: int = 0) -> Served:
        """What has become of the requests of a service so far."""
        mine = self.tables.outcome["service"] == service
        engines = [e for e, engine in enumerate(self.engines) if engine.service == service]
        outcome, requests = self.tables.outcome[mine], self.requests
        own = outcome["engine"]
        steps = [engine.scheduler.step for engine in self.engines]
        of_engine = {name: _pick([getattr(step, name)[mine] for step in steps], own) for name in ("cached", "preemptions")}
        kept = ("engine", "admitted", "first", "last", "ended", "made", "refused", "sent_for", "handed", "waited")
        columns = {name: outcome[name].copy() for name in kept}
        columns["engine"] = np.where(own >= 0, own - engines[0], own)
        octave = 2.0 ** np.arange(t.OCTAVES + 1)
        bounds = np.append((octave[:-1, None] * (1 + np.arange(t.PER_OCTAVE) / t.PER_OCTAVE)).ravel(), octave[-1])
        ended = outcome["ended"][outcome["ended"] < NEVER]
        until = self.now if mine.all() else int(ended.max(initial=1))
        return Served(
            arrival=np.where(outcome["came"] < NEVER, outcome["came"], requests.arrival[mine]), prompt=requests.prompt[mine],
            output=requests.output[mine], **columns, **of_engine, reasons=REFUSALS, gaps=self.tables.gaps[service].copy(),
            gap_ns=bounds, engines=tuple(map(self._account, engines)), samples=self._samples(engines, until), makespan_ns=until,
        )  # fmt: skip

    def _samples(self, engines: Sequence[int], until: int) -> dict[str, Any]:
        """Rows of these engines up to a time."""
        width = float(self.tables.course["width"][0])
        rows = min(-(-until // int(width)), ROWS)
        samples: dict[str, Any] = {"width_ns": width}
        sums = self.tables.samples.reshape(len(self.engines), ROWS)[engines, :rows]
        for name in ("blocks", "running", "waiting"):
            lasted = np.full(rows, width)
            if rows:
                lasted[-1] = min(self.now - (rows - 1) * width, width)
            samples[name] = sums[name] / np.maximum(lasted, 1.0)
        for name in ("prompt_tokens", "output_tokens", "preemptions"):
            samples[name] = sums[name].copy()
        return samples

    def _account(self, e: int) -> EngineAccount:
        row, engine = self.tables.engine[e], self.engines[e]
        word = engine.scheduler.step.word
        numbers = {name: int(row[name]) for name in ("steps", "prompt_tokens", "output_tokens")}
        return EngineAccount(
            engine.name, int(word[told.BLOCKS]), busy_ns=int(row["busy"]), preemptions=int(word[told.PREEMPTIONS]),
            slowed_ns=int(row["slowed"]), looked_up_tokens=int(word[told.QUERIED]), found_tokens=int(word[told.HIT]), **numbers,
        )  # fmt: skip


def _devices(engines: Sequence[Engine], shared: ServicesOnGpus | None) -> dict[str, Any]:
    """The GPUs that engines share, and the runlist of each."""
    count = 1 + max(engine.device for engine in engines)
    if shared is None:
        return {"device": table(0, t.DEVICE)}
    device, turns = table(count, t.DEVICE), np.zeros((count, len(shared.turns)), np.int64)
    device["mode"], device["turn"], device["next"] = t.BY_TURNS if shared.by_turns else t.AT_ONCE, -1, NEVER
    device["fixed"], device["state"] = shared.tenancy.switch.fixed, shared.state
    at = {(engine.device, engine.service): e for e, engine in enumerate(engines)}
    for d in range(count):
        turns[d] = [at[d, service] for service in shared.turns]
    return {"device": device, "turns": turns}


def _passed(store: KvStore | None, links: Mapping[str, int], engines: Sequence[Engine]) -> tuple[Any, Any]:
    """The links that copies share with steps, and how often parts of the steps pass them."""
    passed = store.passed if store is not None else {}
    rows = [(e, links[name], times) for (e, name), times in passed.items() if name in links and engines[e].cost.needs[0]]
    shared, passes = table(max(1, len(rows)), t.SHARED), np.zeros((max(1, len(rows)), t.PARTS), np.int64)
    for i, (e, link, times) in enumerate(rows):
        shared[i]["engine"], shared[i]["link"], passes[i] = e, link, times
    return shared, passes


def _pick(columns: Sequence[Any], engine: Any) -> Any:
    """Of each request the entry of its own engine's column."""
    return np.stack(columns)[np.maximum(engine, 0), np.arange(len(engine))]
