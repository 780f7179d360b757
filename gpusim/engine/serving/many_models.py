"""Many models on few GPUs: a request for a model that is not there waits until it has been loaded.

A model has one instance at most, on the GPUs of one server; all its requests go there.

    wanted   a request comes for a model without an instance: it waits for a server with free GPUs, or with idle instances,
             which leave, the one that has been idle longest first.  Models that wait are tried in the order of their requests
    read     a server reads one model at a time from its disk into its host memory, in order
    loaded   the instance serves; its weights stay in host memory until another model needs the room
    idle     it has no request: it leaves its GPUs after `keep` ns, or as soon as another model needs them

At equal times loads end first, then requests come, then instances become idle, then they leave.

Source: ServerlessLLM (Apache-2.0) @9f50241, sllm/store_manager.py, schedulers and routers, in own words.  There an idle
instance is not asked to leave before its time, and requests of a model may have several instances.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.engine.serving.model_episodes import Episode, chosen, part_of
from gpusim.engine.serving.model_pool import ModelPool, next_uses
from gpusim.engine.serving.run import ServiceRun
from gpusim.machine.serving.loading import LoadTimes
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable

I64 = npt.NDArray[np.int64]
READ, LOADED, ARRIVES, IDLE, LEAVES = range(5)  # in the order in which they go at equal times
DISK, HOST = 0, 1  # where a load comes from


@dataclass(frozen=True)
class HostedModel:
    """A model that requests may want.

    size   bytes of its weights, all GPUs together
    gpus   over which it is spread
    times  of its loads
    start  makes the run of its engine on some requests
    """

    name: str
    size: int
    gpus: int
    times: LoadTimes
    start: Callable[[RequestTable], ServiceRun]


@dataclass
class _Instance:
    model: int
    server: int
    since: int               # ns: its GPUs are taken
    source: int              # DISK, HOST
    episode: Episode | None = None
    done: int = 0            # requests of the episode that have ended
    idle: int = NEVER        # ns since when it has nothing to do
    stamp: int = 0           # of the events that are meant for it


@dataclass
class ModelServer:
    """gpus that are free; models in host memory; the model that is being read, those behind it, when the disk is free."""

    gpus: int
    pool: ModelPool
    free: int = 0
    reading: int = -1
    queue: list[int] = field(default_factory=list)
    reads_until: int = 0


Placement = Callable[[Sequence[int], Sequence[int], np.random.Generator], int]
"""(servers that can take the model, estimated ns of its load on each, random numbers) -> the place of the server among them."""


def soonest(servers: Sequence[int], loads: Sequence[int], rng: np.random.Generator) -> int:
    """Where the load is estimated to end first: what the disk has yet to read, and this model; or the copy from host memory."""
    return min(range(len(servers)), key=lambda i: (loads[i], servers[i]))


def anywhere(servers: Sequence[int], loads: Sequence[int], rng: np.random.Generator) -> int:
    """A random one."""
    return int(rng.integers(len(servers)))


PLACEMENTS: dict[str, Placement] = {"soonest": soonest, "random": anywhere}


@dataclass(frozen=True, eq=False)
class ModelsRun:
    """What became of n requests (int64[n], ns; NEVER where something did not happen), and of L loads.

    cold     the request waited for a load;  refused: why the engine did not take it, 0: it did
    loads    (L, 5) model, server, DISK or HOST, ns at which its GPUs were taken and at which it was loaded
    stays    (S, 3) gpus, ns from the load's begin to the moment at which the instance left
    """

    arrival: I64
    model: I64
    output: I64
    first: I64
    last: I64
    ended: I64
    made: I64
    refused: I64
    cold: npt.NDArray[np.bool_]
    loads: I64
    stays: I64
    evicted: int
    ns: int


class ModelCluster:
    """Servers, models, and requests in the order of their arrival; model[r] is wanted by request r.

    keep       ns for which an idle instance stays
    placement  one of PLACEMENTS
    """

    def __init__(
        self, servers: Sequence[ModelServer], models: Sequence[HostedModel], requests: RequestTable, model: I64, *,
        keep: int = NEVER, placement: Placement = soonest, seed: int = 0,
    ) -> None:  # fmt: skip
        self.servers, self.models, self.requests, self.model = servers, models, requests, model
        self.keep, self.placement, self.rng = keep, placement, np.random.default_rng(seed)
        n = len(requests.arrival)
        self.rows = [np.flatnonzero(model == m) for m in range(len(models))]
        self.of_model = [chosen(requests, rows) for rows in self.rows]
        self.served = [0] * len(models)
        self.instance: list[_Instance | None] = [None] * len(models)
        self.wanted: list[int] = []
        self.now = self.pushed = 0
        self.next_use = next_uses(requests.arrival.tolist(), model.tolist(), len(models))
        self.coming = [float(requests.arrival[rows[0]]) if rows.size else float("inf") for rows in self.rows]
        self.out: dict[str, Any] = {name: np.full(n, NEVER, np.int64) for name in ("first", "last", "ended")}
        self.out |= {name: np.zeros(n, np.int64) for name in ("made", "refused")} | {"cold": np.zeros(n, np.bool_)}
        self.loads: list[tuple[int, int, int, int, int]] = []
        self.stays: list[tuple[int, int, int]] = []
        self.events: list[tuple[int, int, int, int, int]] = []
        for server in servers:
            server.free = server.gpus
        self._handle = {READ: self._read, LOADED: self._loaded, IDLE: self._idle, LEAVES: self._leaves}

    def run(self) -> ModelsRun:
        """All requests."""
        arrival, r, n = self.requests.arrival, 0, len(self.requests.arrival)
        while r < n or self.events:
            if r < n and (not self.events or (int(arrival[r]), ARRIVES) <= self.events[0][:2]):
                self.now = int(arrival[r])
                self._arrives(r)
                r += 1
            else:
                self.now, kind, _, which, stamp = heapq.heappop(self.events)
                self._handle[kind](which, stamp)
            self._place()
        for instance in list(filter(None, self.instance)):
            self._leave(instance)
        ended = self.out["ended"]
        return ModelsRun(
            arrival=arrival.copy(), model=self.model, output=self.requests.output.copy(), **self.out,
            loads=np.array(self.loads, np.int64).reshape(-1, 5), stays=np.array(self.stays, np.int64).reshape(-1, 3),
            evicted=sum(server.pool.evicted for server in self.servers), ns=int(ended[ended < NEVER].max(initial=0)),
        )  # fmt: skip

    def _push(self, time: int, kind: int, which: int, stamp: int = 0) -> None:
        self.pushed += 1
        heapq.heappush(self.events, (time, kind, self.pushed, which, stamp))

    def _arrives(self, r: int) -> None:
        m = int(self.model[r])
        self.coming[m] = self.next_use[r]
        for server in self.servers:
            server.pool.requested(m, self.now, self.coming[m])
        instance = self.instance[m]
        if instance is None:
            if m not in self.wanted:
                self.wanted.append(m)
        elif instance.episode is not None and instance.idle < NEVER:
            instance.idle = NEVER
            self._await_idle(instance)

    def _place(self) -> None:
        """Models that wait for GPUs get them, where there are some."""
        for m in list(self.wanted):
            model = self.models[m]
            able = [s for s in range(len(self.servers)) if self._could_free(s) >= model.gpus]
            if able:
                self.wanted.remove(m)
                s = able[self.placement(able, [self._estimate(s, m) for s in able], self.rng)]
                self._begin(m, s)

    def _could_free(self, s: int) -> int:
        return self.servers[s].free + sum(self.models[i.model].gpus for i in self._idle_on(s))

    def _idle_on(self, s: int) -> list[_Instance]:
        """Idle instances of a server, the one that has been idle longest first."""
        found = [i for i in self.instance if i is not None and i.server == s and i.idle <= self.now]
        return sorted(found, key=lambda i: (i.idle, i.model))

    def _estimate(self, s: int, m: int) -> int:
        """ns until the model is loaded there, as its scheduler has it."""
        server, times = self.servers[s], self.models[m].times
        if m in server.pool.there:
            return times.copied
        return max(server.reads_until - self.now, 0) + times.loaded

    def _begin(self, m: int, s: int) -> None:
        """The model gets its GPUs, and its load begins."""
        server, model = self.servers[s], self.models[m]
        for instance in self._idle_on(s):
            if server.free >= model.gpus:
                break
            self._leave(instance)
        server.free -= model.gpus
        here = m in server.pool.there
        self.instance[m] = _Instance(m, s, self.now, HOST if here else DISK)
        if here:
            server.pool.use(m, self.now, self.coming[m])
            server.pool.locked[m] = 1
            self._push(self.now + model.times.copied, LOADED, m)
            return
        server.reads_until = max(server.reads_until, self.now) + model.times.read
        server.queue.append(m)
        self._read_next(s)

    def _read_next(self, s: int) -> None:
        """The disk of a server reads the next model, if there is room for it in host memory."""
        server = self.servers[s]
        if server.reading >= 0 or not server.queue or not server.pool.makes_room(server.queue[0]):
            return
        m = server.reading = server.queue.pop(0)
        server.pool.put(m, self.now, self.coming[m])
        server.pool.locked[m] = 1
        self._push(self.now + self.models[m].times.read, READ, s)
        self._push(self.now + self.models[m].times.loaded, LOADED, m)

    def _read(self, s: int, _: int) -> None:
        self.servers[s].reading = -1
        self._read_next(s)

    def _loaded(self, m: int, _: int) -> None:
        instance = self.instance[m]
        assert instance is not None
        self.servers[instance.server].pool.locked[m] = 0
        self.loads.append((m, instance.server, instance.source, instance.since, self.now))
        of, first = self.of_model[m], self.served[m]
        instance.episode = Episode(part_of(of, first, len(of.arrival)), self.now, self.models[m].start)
        waited = self.rows[m][first:]
        self.out["cold"][waited[self.requests.arrival[waited] < self.now]] = True
        self._await_idle(instance)
        self._read_next(instance.server)

    def _await_idle(self, instance: _Instance) -> None:
        assert instance.episode is not None
        instance.stamp += 1
        self._push(instance.episode.idle_after(instance.done).time, IDLE, instance.model, instance.stamp)

    def _idle(self, m: int, stamp: int) -> None:
        instance = self.instance[m]
        if instance is None or instance.stamp != stamp or instance.episode is None:
            return
        found = instance.episode.idle_after(instance.done)
        instance.done, instance.idle = found.done, self.now
        if found.until - self.now > self.keep:
            self._push(self.now + self.keep, LEAVES, m, stamp)

    def _leaves(self, m: int, stamp: int) -> None:
        instance = self.instance[m]
        if instance is not None and instance.stamp == stamp and instance.idle <= self.now:
            self._leave(instance)

    def _leave(self, instance: _Instance) -> None:
        """The instance is dropped; its weights stay in host memory.  (A sleeping one would keep more, and wake instead.)"""
        m, episode, done = instance.model, instance.episode, instance.done
        assert episode is not None and (episode.served is not None or not done)
        rows = self.rows[m][self.served[m] : self.served[m] + done]
        for name in ("first", "last", "ended", "made", "refused"):
            self.out[name][rows] = getattr(episode.served, name)[:done]
        self.served[m] += done
        self.servers[instance.server].free += self.models[m].gpus
        self.stays.append((self.models[m].gpus, instance.since, self.now))
        self.instance[m] = None
