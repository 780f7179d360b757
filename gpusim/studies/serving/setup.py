"""From the words of a service (model, machine, engine, tiers) to schedulers at work, step costs and tiers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.engine.serving.adapters import AdaptedCost
from gpusim.engine.serving.modelled import ModelledCost
from gpusim.engine.serving.pool import MixedPool
from gpusim.engine.serving.run import BlockSwap, Engine, ServiceRun
from gpusim.engine.serving.tabled import TabledCost
from gpusim.engine.serving.tiering import WHEN, KvStore, dense
from gpusim.machine.serving.adapters import AdapterShape, adapter_times
from gpusim.machine.serving.build import ServedStepTimes, step_times
from gpusim.machine.serving.codecs import CODECS
from gpusim.machine.serving.given import GivenStepTimes, given_step_times
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import Topology
from gpusim.policies.forms import EvictPolicy
from gpusim.policies.registry import of
from gpusim.policies.schedule.parts.managers import MANAGERS, HostManager, is_manager, manager_of
from gpusim.policies.schedule.parts.running import EngineLimits
from gpusim.policies.schedule.parts.sglang_options import P_NO_OVERLAP as NO_OVERLAP
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.policies.schedule.parts.vllm_options import P_ASYNC as ASYNC
from gpusim.programs.serving.requests import requests_of
from gpusim.programs.zoo.served import served
from gpusim.studies.bounds import check_bounds
from gpusim.studies.serving.beside import BesideWord, beside_of, check_beside, started
from gpusim.studies.serving.flexgen import flexgen
from gpusim.studies.serving.kinds import Below, ReplicaKind, check_kinds, too_few
from gpusim.studies.serving.lora import POOLED as POOLED_ADAPTERS
from gpusim.studies.serving.lora import LoraWord, lora_of, with_slots
from gpusim.studies.serving.lora import check as check_adapters
from gpusim.studies.serving.offload import offloaded, refuse_together
from gpusim.studies.serving.refusals import POOL, check_limits, check_routing, check_split
from gpusim.studies.serving.room import blocks_of
from gpusim.studies.serving.tier_chain import TierMaker, check_room, passed_by_steps
from gpusim.studies.serving.tier_words import tiers_of
from gpusim.studies.serving.ways import group_way, groups_of, kinds_of, socket_of, way

COSTED = ("vllm@", "sglang@")
"""Engines whose CPU times are known; a scheduler without them costs what `LIKE` does."""
LIKE = "vllm@0.33"
BOUNDS = {
    "tensor": (1, None), "replicas": (0, None), "prefill": (0, None), "block": (1, None), "max_seqs": (1, None),
    "max_tokens": (1, None), "max_len": (0, None), "memory": (0.01, 1.0),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ServiceSpec:
    """A service in words.

    model, weights, cache  a model of the zoo, and the types of its weights and of keys and values
    machine     a profile, `4 x l40s`, or a whole machine
    engine      a scheduler with its version and options: vllm@0.33, sglang@0.5, static
    tensor      GPUs over which each replica is split
    replicas    how many there are; 0: as many as the machine has GPUs for
    prefill     so many of them, the first, compute prompts, which the others fetch and go on with; 0: all do both.  On machines
                of several kinds (hgx-h100 + dgx-a100) the first are those of the machine that is named first
    handed      a codec in which keys and values go from there to the others; "": as they are
    tiers       memories below the GPUs for keys and values, nearest first: host(64 GiB) > nvme(1 TB, s3fifo); "": none
    when        what goes there: write_through, selective, write_back, write_all
    block       tokens of a block of the cache
    max_seqs    requests that run at once
    max_tokens  tokens of a step
    max_len     tokens of the longest sequence; 0: what the model takes, or all blocks hold
    offload     weights below the GPUs: split(layers=20), on the CPU; stream(layers=20), copied in each step; flexgen(batches=3)
    lora        adapters of requests: rank=16, max_loras=8, max_cpu_loras=64; "": none
    memory      share of each GPU's memory that the engine takes
    routing     which replica takes a request: least_busy, round_robin, least_tokens (which owes the fewest), or mixed_pool: the
                first `prefill` are for prompts, the others for tokens, and each does both where its kind has too much
    step_times  a CSV of what steps take, instead of modelled times (`machine.serving.given`); "": they are modelled
    beside      a second service on the same GPUs, with requests of its own: llama-1b(memory=0.3, requests=drawn(prompt=256))
                (`studies.serving.beside`); "": none
    tenancy     how GPUs pass between both: time_slices(slice=2 ms, others_slice=200 us), mps
    use         files with policies of one's own, or the decorated objects, which `engine` and `tiers` may name
    """

    model: str
    machine: str
    engine: str = "vllm@0.33"
    tensor: int = 1
    replicas: int = 0
    prefill: int = 0
    weights: str = "bf16"
    cache: str = "bf16"
    handed: str = ""
    tiers: str = ""
    when: str = "write_through"
    block: int = 16
    max_seqs: int = 256
    max_tokens: int = 8192
    max_len: int = 0
    offload: str = ""
    lora: str = ""
    memory: float = 0.9
    routing: str = "least_busy"
    step_times: str = ""
    beside: str = ""
    tenancy: str = "time_slices"
    use: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        check_bounds(self, "a service", BOUNDS)

    def policy(self, kind: str, name: str) -> Any:
        """The policy of this name, one's own among them.  PolicyError when there is none."""
        return of(*self.use).get(kind, name)


@dataclass(frozen=True)
class PreparedService:
    """What stays the same for all requests.

    groups  GPUs of each replica
    kinds   of replicas; `which` says of each replica its place among them
    beside  a service with replicas on the same GPUs, its requests, and how many of them come a second (0.0: as they are)
    """

    spec: ServiceSpec
    topology: Topology
    model: ServedModel
    groups: tuple[tuple[str, ...], ...]
    kinds: tuple[ReplicaKind, ...]
    which: tuple[int, ...]
    beside: tuple[PreparedService, RequestTable, float] | None = None

    def kind(self, replica: int) -> ReplicaKind:
        """Of a replica."""
        return self.kinds[self.which[replica]]

    @property
    def times(self) -> ServedStepTimes | GivenStepTimes:
        """Step times of the first replica."""
        return self.kind(0).times

    @property
    def blocks(self) -> int:
        """Blocks of the first replica."""
        return self.kind(0).blocks

    @property
    def offload(self) -> Below:
        """Weights below the GPUs, which all replicas have alike."""
        return self.kind(0).offload

    def role(self, replica: int) -> str:
        """Whether a replica computes all of a request (whole), prompts (prefill), or what comes after them (decode)."""
        return "whole" if not self.spec.prefill else "prefill" if replica < self.spec.prefill else "decode"

    def paced(self, bound: str) -> PreparedService:
        """The same service with all steps at the "fast" or the "slow" end of their interval, errors of all parts together.

        Times that were given have no interval.
        """
        other = self.beside and (self.beside[0].paced(bound), *self.beside[1:])
        return replace(self, kinds=tuple(kind.paced(bound) for kind in self.kinds), beside=other)

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values all replicas together hold."""
        return sum(self.kinds[i].blocks for i in self.which) * self.spec.block

    def start(self, requests: RequestTable, *, at_once: int = 0, log: bool = False) -> ServiceRun:
        """A run of the service on these requests, and of the one beside it on its own; see `ServiceRun`."""
        if self.beside is not None:
            return started(self, *self.beside, requests, at_once=at_once, log=log)
        named = dense(requests)
        return ServiceRun(
            named, self.engines(named), routing=self.spec.routing, at_once=at_once, store=self.store(), pool=self._pool(),
            log=log,
        )  # fmt: skip

    def engines(self, named: RequestTable, own: Any = True) -> list[Engine]:
        """Of the replicas, for requests of which some are the service's own, a mask."""
        spec, requests = self.spec, named
        own = np.broadcast_to(own, len(requests.prompt))
        if self.lora is None and requests.adapter[own].any():
            raise GpusimError("requests want adapters, and the service has none", hint="lora=\"rank=16, max_loras=8\"")
        longest = max(int((requests.prompt + requests.output)[own].max()), 1)
        margin = 7 if spec.engine.startswith("sglang") else 1  # SGLang keeps the end of the longest sequence free of prompts
        prompts = named._replace(output=np.minimum(named.output, 1))
        engines = []
        for i, group in enumerate(self.groups):
            blocks, role = self.kind(i).blocks, self.role(i)
            most = spec.max_len or min(longest + margin, self.model.context or longest + margin, blocks * spec.block)
            limits = EngineLimits(blocks, spec.block, spec.max_seqs, spec.max_tokens, most)
            engine = with_slots(spec.engine, self.lora, self.model, spec.tensor)
            apart = role == "prefill" and spec.routing != POOL
            scheduler = spec.policy("schedule", engine).start(prompts if apart else named, limits)
            engines.append(Engine(f"replica {i}", scheduler, self._cost(named, i), self._swap(group), role))
        return engines

    def _pool(self) -> MixedPool | None:
        """The ways of keys and values between all replicas, where these change what they compute."""
        if self.spec.routing != POOL:
            return None
        count = range(len(self.groups))
        hands = {(i, k): group_way(self.topology, self.groups[i], self.groups[k]) for i in count for k in count if i != k}
        return MixedPool(float(self.model.token_bytes(self.spec.tensor)), hands)

    def _cost(self, requests: RequestTable, replica: int) -> ModelledCost | TabledCost:
        """What steps cost, with adapters or offloaded weights where there are some."""
        group, times, below = self.groups[replica], self.kind(replica).times, self.kind(replica).offload
        if isinstance(times, GivenStepTimes):
            return TabledCost(times)
        if self.lora is None:
            return below.cost(times, replica) if below else ModelledCost(times)
        spec, profile = self.spec, self.topology.profile(group[0])
        shape = AdapterShape(self.model, self.lora.rank, spec.tensor, attention=self._pools_adapters)
        grid = adapter_times(shape, profile, times.engine)
        if self._pools_adapters:  # the scheduler says what is copied
            count = max(int(requests.adapter.max(initial=0)), 1)
            return AdaptedCost(times, requests, count, count, 0.0, 0.0, grid)
        link = way(self.topology, socket_of(self.topology, group[0]), group[0])
        load = link.latency + shape.bytes / link.rate + shape.copies * float(profile.launch.eager.value)
        read = round(profile.nvme.latency.value) + shape.bytes * spec.tensor / (profile.nvme.read.value / 1e9)
        return AdaptedCost(times, requests, self.lora.max_loras, self.lora.in_host, load, read, grid)

    @property
    def _pools_adapters(self) -> bool:
        return self.spec.engine.startswith(POOLED_ADAPTERS)

    @property
    def lora(self) -> LoraWord | None:
        """Adapters that requests may want."""
        return lora_of(self.spec.lora)

    def _swap(self, group: tuple[str, ...]) -> BlockSwap:
        """How long blocks take to the host and back: each GPU of a replica moves its own part, at once."""
        socket = socket_of(self.topology, group[0])
        size = float(self.model.token_bytes(self.spec.tensor)) * self.spec.block
        size *= self.offload.device_share if self.offload else 1.0
        out, back = way(self.topology, group[0], socket), way(self.topology, socket, group[0])
        return BlockSwap(out.latency, size / out.rate, size / back.rate)

    def store(self, engines: int = 0) -> KvStore | None:
        """Tiers, and ways between replicas, of the first of so many engines."""
        spec = self.spec
        if spec.when not in WHEN:
            raise GpusimError(f"keys and values are not written '{spec.when}'", hint=join(tuple(WHEN)))
        if not spec.tiers and (not spec.prefill or spec.routing == POOL):
            return None
        made = self._tiers()
        chains = tuple(made.chain(group) if self.role(i) != "decode" else () for i, group in enumerate(self.groups))
        chains += ((),) * (engines - len(chains))
        hands = {
            (i, k): made.hand(self.groups[i], self.groups[k], self.spec.handed)
            for i in range(spec.prefill) for k in range(spec.prefill, len(self.groups))
        }  # fmt: skip
        passed = passed_by_steps(self.topology, self.groups, {group: made.memory(group) for group in self.groups})
        token = float(self.model.token_bytes(spec.tensor))
        return KvStore(chains, token, spec.when, made.rates, hands, passed)

    def _tiers(self) -> TierMaker:
        words = tiers_of(self.spec.tiers) if self.spec.tiers else []
        return TierMaker(self.topology, self.model, words, {word.policy: self._keeper(word.policy) for word in words})

    def _keeper(self, word: str) -> EvictPolicy | HostManager:
        """What decides which chunks a tier keeps."""
        if is_manager(word):
            return manager_of(word)
        name, known = word.partition("(")[0].strip(), [entry.name for entry in of(*self.spec.use).entries("evict")]
        if name not in known:
            raise GpusimError(
                f"'{word}' is neither an evict policy nor a codec of keys and values",
                hint=suggest(name, (*known, *CODECS, *MANAGERS)) or f"gpusim policies evict; codecs: {join(CODECS)}",
            )
        found: EvictPolicy = self.spec.policy("evict", word)
        return found


def prepare(spec: ServiceSpec) -> PreparedService:
    """Checks the words and makes what all runs have in common.  Raises GpusimError with the reason."""
    name, scheduler = spec.engine.partition("(")[0].strip(), spec.policy("schedule", spec.engine)
    if "@" not in name and "version" in scheduler.values:
        name = f"{name}@{scheduler.values['version']}"
    topology = build.load(spec.machine)
    model = served(spec.model, spec.weights, spec.cache, timed=not spec.step_times)
    model.divides(spec.tensor)
    whole = groups_of(topology, spec.tensor)
    if len(whole) < max(spec.replicas, 1):
        raise GpusimError(too_few(topology, spec.tensor, spec.replicas))
    groups = whole[: spec.replicas or len(whole)]
    times_of = partial(
        step_times, engine=name if name.startswith(COSTED) else LIKE, ways=spec.tensor, topology=topology,
        most_tokens=spec.max_tokens, most_requests=spec.max_seqs, overlap=_overlaps(scheduler),
    )  # fmt: skip
    check_routing(spec, name)
    check_split(spec, name, len(groups), scheduler.new_asked is not None)
    check_limits(spec, name, [topology.profile(group[0]) for group in groups])
    check_adapters(name, lora_of(spec.lora))
    keys = kinds_of(topology, groups)
    first = tuple(keys.index(key) for key in dict.fromkeys(keys))  # of each kind the first replica
    check_kinds([topology.profile(groups[i][0]).name for i in first], given=spec.step_times, below=spec.offload)
    kinds = tuple(_kind(spec, name, topology, model, groups, i, times_of) for i in first)
    prepared = PreparedService(spec, topology, model, groups, kinds, tuple([keys[i] for i in first].index(key) for key in keys))
    if spec.tiers:
        made = prepared._tiers()
        made.chain(groups[0])  # refuses what has no way
        check_room(topology, [group for i, group in enumerate(groups) if prepared.role(i) != "decode"], made.words)
    other = beside_of(spec.beside)
    return replace(prepared, beside=_beside(spec, other, len(groups))) if other is not None else prepared


def _beside(spec: ServiceSpec, word: BesideWord, replicas: int) -> tuple[PreparedService, RequestTable, float]:
    """The service on the same GPUs, its requests, and how many a second."""
    check_beside(word, spec.tenancy, spec.memory, below=spec.offload, pooled=spec.routing == POOL)
    like: dict[str, Any] = {"machine": spec.machine, "tensor": spec.tensor, "replicas": replicas, "use": spec.use}
    return prepare(ServiceSpec(model=word.model, **like, **word.words)), requests_of(word.requests), word.rate


def _kind(
    spec: ServiceSpec, engine: str, topology: Topology, model: ServedModel, groups: tuple[tuple[str, ...], ...], replica: int,
    times_of: Callable[..., ServedStepTimes],
) -> ReplicaKind:  # fmt: skip
    """Of a replica and those on GPUs of the same kind."""
    profile = topology.profile(groups[replica][0])
    own = partial(times_of, machine=profile, gpus=groups[replica])
    times = given_step_times(spec.step_times) if spec.step_times else own(model)
    beside = {"tiers": spec.tiers, "prefill": spec.prefill, "adapters": spec.lora, "given step times": spec.step_times}
    if spec.offload.lstrip().startswith("flexgen"):
        refuse_together(beside)
        below: Below = flexgen(spec.offload, model, topology, groups, engine, spec.max_seqs, spec.memory)
    else:
        below = offloaded(spec.offload, model, topology, groups, own, beside)
    return ReplicaKind(profile.name, times, blocks_of(spec, profile, model, below), below)


def _overlaps(scheduler: Any) -> bool | None:
    """Whether the CPU works beside the GPU, which it can where steps are composed ahead; None: as the engine has it."""
    if scheduler.new_asked is not None:  # a scheduler in Python is asked when a step is over
        return False
    if "disable_overlap_schedule" in scheduler.values:
        return not scheduler.params[NO_OVERLAP]
    return bool(scheduler.params[ASYNC]) if "async_scheduling" in scheduler.values else None
