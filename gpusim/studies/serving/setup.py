"""From the words of a service (model, machine, engine, tiers) to schedulers at work, step costs and tiers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.base.units import BYTES, parse, show_bytes, write
from gpusim.engine.serving.adapters import AdaptedCost
from gpusim.engine.serving.modelled import ModelledCost
from gpusim.engine.serving.pool import MixedPool
from gpusim.engine.serving.run import ROUTINGS, BlockSwap, Engine, ServiceRun
from gpusim.engine.serving.tabled import TabledCost
from gpusim.engine.serving.tiering import WHEN, CopyWay, KvStore, KvTier, dense
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.adapters import AdapterShape, adapter_times
from gpusim.machine.serving.build import ServedStepTimes, step_times
from gpusim.machine.serving.given import GivenStepTimes, given_step_times
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.topology import build, transfers
from gpusim.machine.topology.topology import Topology
from gpusim.policies.registry import of
from gpusim.policies.schedule.parts.running import EngineLimits
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.policies.schedule.parts.vllm_options import P_ASYNC as ASYNC
from gpusim.programs.zoo.served import served
from gpusim.studies.serving.flexgen import FlexgenOffload, flexgen
from gpusim.studies.serving.lora import POOLED as POOLED_ADAPTERS
from gpusim.studies.serving.lora import LoraWord, lora_of, with_slots
from gpusim.studies.serving.lora import check as check_adapters
from gpusim.studies.serving.offload import LayerOffload, offloaded, refuse_together
from gpusim.studies.serving.ways import socket_of, way

_TIER = re.compile(r"\s*(\w+)\s*\(([^,()]+)(?:,\s*(.+))?\)\s*")
TIERS = ("host", "nvme")
WAITS = ("vllm@0.11", "vllm@0.33")
"""Schedulers that let a request wait for keys and values while others run."""
COSTED = ("vllm@", "sglang@")
"""Engines whose CPU times are known; a scheduler without them costs what `LIKE` does."""
LIKE = "vllm@0.33"
POOL = "mixed_pool"
POOLED = ("splitwise",)
"""Schedulers that tell prompts and tokens of a request apart."""
Below = LayerOffload | FlexgenOffload | None
"""Weights that lie below the GPUs."""


@dataclass(frozen=True, kw_only=True)
class ServiceSpec:
    """A service in words.

    model, weights, cache  a model of the zoo, and the types of its weights and of keys and values
    machine     a profile, `4 x l40s`, or a whole machine
    engine      a scheduler with its version and options: vllm@0.33, sglang@0.5, static
    tensor      GPUs over which each replica is split
    replicas    how many there are; 0: as many as the machine has GPUs for
    prefill     so many of them, the first, compute prompts, which the others fetch and go on with; 0: all do both
    tiers       memories below the GPUs for keys and values, nearest first: host(64 GiB) > nvme(1 TB, s3fifo); "": none
    when        what goes there: write_through, selective, write_back
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
    use: tuple[Any, ...] = ()

    def policy(self, kind: str, name: str) -> Any:
        """The policy of this name, one's own among them.  PolicyError when there is none."""
        return of(*self.use).get(kind, name)


@dataclass(frozen=True)
class PreparedService:
    """What stays the same for all requests.

    blocks   of keys and values, of each replica
    offload  weights that lie below the GPUs
    """

    spec: ServiceSpec
    topology: Topology
    model: ServedModel
    times: ServedStepTimes | GivenStepTimes
    groups: tuple[tuple[str, ...], ...]  # GPUs of each replica
    blocks: int
    offload: Below = None

    def paced(self, bound: str) -> PreparedService:
        """The same service with all steps at the "fast" or the "slow" end of their interval, errors of all parts together.

        Times that were given have no interval.
        """
        if isinstance(self.times, GivenStepTimes):
            return self
        first = {"fast": steps.LOW, "slow": steps.HIGH}[bound]
        table = steps.paced(self.times.table, self.times.table[first : first + 5])
        below = self.offload and self.offload.paced(bound)
        return replace(self, times=replace(self.times, table=table), offload=below)

    @property
    def cached_tokens(self) -> int:
        """Tokens whose keys and values all replicas together hold."""
        return self.blocks * self.spec.block * len(self.groups)

    def start(self, requests: RequestTable, *, at_once: int = 0, log: bool = False) -> ServiceRun:
        """A run of the service on these requests; see `ServiceRun`."""
        spec, named = self.spec, dense(requests)
        longest = int((requests.prompt + requests.output).max())
        margin = 7 if spec.engine.startswith("sglang") else 1  # SGLang keeps the end of the longest sequence free of prompts
        most = spec.max_len or min(longest + margin, self.model.context or longest + margin, self.blocks * spec.block)
        limits = EngineLimits(self.blocks, spec.block, spec.max_seqs, spec.max_tokens, most)
        prompts = named._replace(output=np.ones_like(named.output))
        engines = []
        for i, group in enumerate(self.groups):
            role = "whole" if not spec.prefill else "prefill" if i < spec.prefill else "decode"
            engine = with_slots(spec.engine, self.lora, self.model, spec.tensor)
            apart = role == "prefill" and spec.routing != POOL
            scheduler = spec.policy("schedule", engine).start(prompts if apart else named, limits)
            engines.append(Engine(f"replica {i}", scheduler, self._cost(named, i), self._swap(group), role))
        return ServiceRun(
            named, engines, routing=spec.routing, at_once=at_once, store=self._store(), pool=self._pool(), log=log
        )

    def _pool(self) -> MixedPool | None:
        """The ways of keys and values between all replicas, where these change what they compute."""
        if self.spec.routing != POOL:
            return None
        count = range(len(self.groups))
        hands = {(i, k): way(self.topology, self.groups[i][0], self.groups[k][0]) for i in count for k in count if i != k}
        return MixedPool(float(self.model.token_bytes(self.spec.tensor)), hands)

    def _cost(self, requests: RequestTable, replica: int) -> ModelledCost | TabledCost:
        """What steps cost, with adapters or offloaded weights where there are some."""
        group = self.groups[replica]
        if self.lora is None and requests.adapter.any():
            raise GpusimError("requests want adapters, and the service has none", hint="lora=\"rank=16, max_loras=8\"")
        if isinstance(self.times, GivenStepTimes):
            return TabledCost(self.times)
        if self.lora is None:
            return self.offload.cost(self.times, replica) if self.offload else ModelledCost(self.times)
        spec, profile = self.spec, self.topology.profile(group[0])
        shape = AdapterShape(self.model, self.lora.rank, spec.tensor, attention=self._pools_adapters)
        grid = adapter_times(shape, profile, self.times.engine)
        if self._pools_adapters:  # the scheduler says what is copied
            count = max(int(requests.adapter.max(initial=0)), 1)
            return AdaptedCost(self.times, requests, count, count, 0.0, 0.0, grid)
        link = way(self.topology, socket_of(self.topology, group[0]), group[0])
        load = link.latency + shape.bytes / link.rate + shape.copies * float(profile.launch.eager.value)
        read = round(profile.nvme.latency.value) + shape.bytes * spec.tensor / (profile.nvme.read.value / 1e9)
        return AdaptedCost(self.times, requests, self.lora.max_loras, self.lora.in_host, load, read, grid)

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

    def _store(self) -> KvStore | None:
        spec = self.spec
        if not spec.tiers and (not spec.prefill or spec.routing == POOL):
            return None
        if spec.when not in WHEN:
            raise GpusimError(f"keys and values are not written '{spec.when}'", hint=join(tuple(WHEN)))
        chains = tuple(tuple(self._chain(group)) if spec.tiers else () for group in self.groups)
        rates = transfers.rates(self.topology)
        for group in self.groups:
            disk, (read, write_) = self.topology.profile(group[0]).nvme, _disk_links(group[0])
            rates |= {read: disk.read.value / 1e9, write_: disk.write.value / 1e9}
        hands = {
            (i, k): way(self.topology, self.groups[i][0], self.groups[k][0])
            for i in range(spec.prefill) for k in range(spec.prefill, len(self.groups))
        }  # fmt: skip
        return KvStore(chains, float(self.model.token_bytes(spec.tensor)), spec.when, rates, hands)

    def _chain(self, group: tuple[str, ...]) -> Iterator[KvTier]:
        """The tiers of a replica; each of its GPUs moves and keeps its own part."""
        machine, gpu = self.topology, group[0]
        socket = socket_of(machine, gpu)
        out, back = way(machine, gpu, socket), way(machine, socket, gpu)
        for tier in tiers_of(self.spec.tiers):
            evict = self.spec.policy("evict", tier.policy)
            if tier.name == "host":
                yield KvTier(f"host of {gpu}", tier.size // len(group), evict, out, back)
                continue
            disk, (read, write_) = machine.profile(gpu).nvme, _disk_links(gpu)
            into = CopyWay(round(disk.latency.value), disk.write.value / 1e9 / len(group), (write_,))
            rate = min(disk.read.value / 1e9 / len(group), back.rate)
            from_ = CopyWay(round(disk.latency.value) + back.latency, rate, (read, *back.links))
            yield KvTier(f"nvme of {gpu}", tier.size // len(group), evict, into, from_)


def prepare(spec: ServiceSpec) -> PreparedService:
    """Checks the words and makes what all runs have in common.  Raises GpusimError with the reason."""
    name, scheduler = spec.engine.partition("(")[0].strip(), spec.policy("schedule", spec.engine)
    if "@" not in name and "version" in scheduler.values:
        name = f"{name}@{scheduler.values['version']}"
    topology = build.load(spec.machine)
    model = served(spec.model, spec.weights, spec.cache, timed=not spec.step_times)
    model.divides(spec.tensor)
    most = len(topology.gpus) // spec.tensor
    if most < max(spec.replicas, 1):
        wanted = f"{max(spec.replicas, 1)} replica{'s' if spec.replicas > 1 else ''} of {spec.tensor} GPUs"
        raise GpusimError(f"machine '{topology.name}' has {len(topology.gpus)} GPUs, which are too few for {wanted}")
    count = spec.replicas or most
    groups = tuple(topology.gpus[i * spec.tensor : (i + 1) * spec.tensor] for i in range(count))
    times_of = partial(
        step_times, machine=topology.profile(groups[0][0]), engine=name if name.startswith(COSTED) else LIKE, ways=spec.tensor,
        topology=topology, gpus=groups[0], most_tokens=spec.max_tokens, most_requests=spec.max_seqs,
        overlap=_overlaps(scheduler),
    )  # fmt: skip
    times = given_step_times(spec.step_times) if spec.step_times else times_of(model)
    _check_routing(spec, name)
    _check_split(spec, name, count)
    check_adapters(name, lora_of(spec.lora))
    beside = {"tiers": spec.tiers, "prefill": spec.prefill, "adapters": spec.lora, "given step times": spec.step_times}
    if spec.offload.lstrip().startswith("flexgen"):
        refuse_together(beside)
        below: Below = flexgen(spec.offload, model, topology, groups, name, spec.max_seqs, spec.memory)
    else:
        below = offloaded(spec.offload, model, topology, groups, times_of, beside)
    prepared = PreparedService(spec, topology, model, times, groups, _blocks(spec, topology, model, below), below)
    _check_tiers(prepared)
    return prepared


def _overlaps(scheduler: Any) -> bool | None:
    """Whether the CPU works beside the GPU, which it can where steps are composed ahead; None: as the engine has it."""
    if scheduler.new_asked is not None:  # a scheduler in Python is asked when a step is over
        return False
    return bool(scheduler.params[ASYNC]) if "async_scheduling" in scheduler.values else None


def _check_routing(spec: ServiceSpec, engine: str) -> None:
    """What a mixed pool needs, and which words there are.  Raises GpusimError."""
    known = tuple(word for word in ROUTINGS if word != "given")
    if spec.routing not in known:
        raise GpusimError(f"there is no routing '{spec.routing}'", hint=join(known))
    if spec.step_times and spec.lora:
        raise GpusimError("adapters are not part of given step times", hint="leave out --lora or --step-times")
    if spec.routing == POOL and engine not in POOLED:
        raise GpusimError(f"a mixed pool is not modelled with '{engine}'", hint=f"it is with {join(POOLED)}")
    if spec.routing == POOL and not spec.prefill:
        raise GpusimError("no replica of the mixed pool is for prompts", hint="--prefill 1")
    if spec.prefill and engine in POOLED and spec.routing != POOL:
        raise GpusimError(f"'{engine}' hands prompts over within a mixed pool", hint=f"--routing {POOL}")


def _check_split(spec: ServiceSpec, engine: str, replicas: int) -> None:
    """What needs a scheduler that waits for keys and values.  Raises GpusimError."""
    handed = spec.prefill if spec.routing != POOL else 0
    for asked, what in ((spec.tiers, "tiers"), (handed, "prompts that come from another engine")):
        if asked and engine not in WAITS:
            raise GpusimError(f"{what} are not modelled with '{engine}'", hint=f"they are with {join(WAITS)}")
    if spec.prefill >= max(replicas, 1) and spec.prefill:
        raise GpusimError(f"{spec.prefill} of {replicas} replicas compute prompts: none is left to go on with them")
    if spec.prefill and spec.tiers:
        raise GpusimError("tiers and prompts that come from another engine are not modelled together")


def _blocks(spec: ServiceSpec, topology: Topology, model: ServedModel, offload: Below) -> int:
    """KV blocks of a replica: what the engine's share of the memory leaves beside weights and what a step needs."""
    profile = topology.profile(topology.gpus[0])
    share = spec.memory * profile.memory.capacity.value
    weights, step = model.weight_bytes(spec.tensor), step_bytes(model, spec)
    lora = lora_of(spec.lora)
    apart = lora is not None and not spec.engine.startswith(POOLED_ADAPTERS)
    slots = lora.max_loras * AdapterShape(model, lora.rank, spec.tensor).bytes if lora is not None and apart else 0
    left = share - profile.context.value
    if offload is not None:
        tokens, weights = offload.tokens(left, step, spec.max_tokens), offload.device_bytes(spec.max_tokens)
    else:
        tokens = (left - weights - step - slots) / model.token_bytes(spec.tensor)
    blocks = int(tokens // spec.block)
    if blocks < 2:
        sizes = f"{show_bytes(weights)} of weights and {show_bytes(step)} of a step's tensors"
        sizes += f", {show_bytes(slots)} of adapters" if slots else ""
        raise GpusimError(
            f"{spec.model} leaves no room for keys and values on {profile.name}: {sizes} of {show_bytes(share)}",
            hint=f"split it over more GPUs than {spec.tensor}, take smaller weights (weights=fp8), or keep layers in "
            f"host memory (offload=\"stream(layers={model.layers // 2})\")",
        )
    return blocks


def step_bytes(model: ServedModel, spec: ServiceSpec) -> int:
    """What the tensors of the largest step take on each GPU: its widest layer's, and all words' scores in fp32 and 16 bits.

    An estimate; engines measure it by a step of `max_tokens` tokens when they start.
    """
    inner = (model.chosen * model.hidden if model.experts else model.hidden) // spec.tensor
    layer = 2 * spec.max_tokens * (2 * model.width + (3 if model.gated else 2) * inner)
    return layer + 6 * spec.max_seqs * model.vocabulary // spec.tensor


@dataclass(frozen=True)
class TierWord:
    """A tier as it is written: host(64 GiB, lru)."""

    name: str
    size: int
    policy: str


def tiers_of(text: str) -> list[TierWord]:
    """The tiers in words, nearest first.  Raises GpusimError."""
    found: list[TierWord] = []
    for part in text.split(">"):
        match = _TIER.fullmatch(part)
        if match is None:
            raise GpusimError(f"'{part.strip()}' is no tier of keys and values", hint="write host(64 GiB) > nvme(1 TB, s3fifo)")
        name, size, policy = match[1], match[2], match[3] or "lru"
        if name not in TIERS:
            raise GpusimError(f"there is no tier '{name}' for keys and values", hint=f"there are {join(TIERS)}")
        if found and TIERS.index(name) <= TIERS.index(found[-1].name):
            raise GpusimError(f"'{name}' cannot lie below '{found[-1].name}'", hint=" > ".join(TIERS))
        found.append(TierWord(name, int(parse(size, BYTES)), policy))
    return found


def _check_tiers(service: PreparedService) -> None:
    if not service.spec.tiers:
        return
    machine, sockets = service.topology, dict[str, int]()
    for group in service.groups:
        socket = socket_of(machine, group[0])
        sockets[socket] = sockets.get(socket, 0) + 1
    for tier in tiers_of(service.spec.tiers):
        for socket, replicas in sockets.items():
            disk = machine.profile(service.groups[0][0]).nvme
            there = machine.nodes[socket].capacity or 0 if tier.name == "host" else int(disk.capacity.value)
            if tier.size * replicas > there:
                said = f"{replicas} x {write(tier.size, BYTES)}" if replicas > 1 else write(tier.size, BYTES)
                has = write(there, BYTES)
                raise GpusimError(f"{said} of keys and values do not fit the {tier.name} at {socket}, which has {has}")


def _disk_links(gpu: str) -> tuple[str, str]:
    """Names of the ways of a replica's disk, which it has for itself."""
    return f"nvme of {gpu}, read", f"nvme of {gpu}, write"
