"""From words (models, machine, loader, host memory) to servers that load models when requests want them."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, fields
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.calls import listed, split
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.base.units import BYTES, TIME, parse, parse_time, show_bytes
from gpusim.engine.serving.many_models import PLACEMENTS, HostedModel, ModelCluster, ModelServer
from gpusim.engine.serving.model_pool import ModelPool
from gpusim.engine.serving.run import ServiceRun
from gpusim.machine.serving.loading import Loader, LoadTimes, LoadWays, load_times, loader_of
from gpusim.machine.topology import build, transfers
from gpusim.machine.topology.topology import Topology
from gpusim.policies.registry import of
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable
from gpusim.programs.serving.drawn import SECOND
from gpusim.programs.serving.requests import requests_of
from gpusim.studies.bounds import check_bounds
from gpusim.studies.models.answer import ModelsAnswer
from gpusim.studies.serving.room import NoRoomError
from gpusim.studies.serving.setup import PreparedService, ServiceSpec
from gpusim.studies.serving.setup import prepare as prepare_service
from gpusim.studies.serving.ways import socket_of, way

I64 = npt.NDArray[np.int64]
_MANY = re.compile(r"(.+?)\s+x\s+(\d+)")
WORDS = ("tensor", "weights", "cache")
MOST = 10_000
BOUNDS = {
    "servers": (1, None), "rate": (0.0, None), "skew": (0.0, None), "spread": (0.0, None), "memory": (0.01, 1.0),
    "max_seqs": (1, None), "max_tokens": (1, None), "seed": (0, None),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ModelsSpec:
    """Many models on few GPUs, in words.

    models     llama-8b x 16, llama-70b(tensor=4, weights=fp8) x 2: the first is wanted most
    machine    a profile, `4 x l40s`, a whole machine, or several: each of its hosts is a server with a disk
    servers    so many of it
    requests   a file of arrivals, or drawn
    rate       requests a second of all models together; 0: at their own times
    spread     standard deviation of the times between requests over their mean (a gamma distribution); 1: a Poisson process
    skew       the k-th model is wanted in proportion to 1 / k**skew
    loader     pipelined(chunk=16 MiB, threads=4) or safetensors(readahead=128 KiB)
    pool       host memory of each server that keeps models; "": half of it
    evict      which model leaves it
    keep       how long an idle model stays on its GPUs; "": until another model needs them
    placement  soonest (where its load is estimated to end first) or random
    boot       what an engine needs beside its weights before it serves
    engine, memory, max_seqs, max_tokens  as of a service
    """

    models: str
    machine: str
    servers: int = 1
    requests: str = "drawn(prompt=512, output=128, requests=1000)"
    rate: float = 1.0
    spread: float = 1.0
    skew: float = 1.0
    loader: str = "pipelined"
    pool: str = ""
    evict: str = "lru"
    keep: str = ""
    placement: str = "soonest"
    boot: str = "0 s"
    engine: str = "vllm@0.33"
    memory: float = 0.9
    max_seqs: int = 256
    max_tokens: int = 8192
    seed: int = 0
    use: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        if self.placement not in PLACEMENTS:
            hint = suggest(self.placement, PLACEMENTS) or join(tuple(PLACEMENTS))
            raise GpusimError(f"models are not placed '{self.placement}'", hint=hint)
        check_bounds(self, "many models", BOUNDS)


@dataclass(frozen=True)
class ModelWord:
    """A model, and how it is served."""

    name: str
    tensor: int = 1
    weights: str = "bf16"
    cache: str = "bf16"

    def __str__(self) -> str:
        said = [f"{f.name}={getattr(self, f.name)}" for f in fields(self) if getattr(self, f.name) != f.default][1:]
        return f"{self.name}({', '.join(said)})" if said else self.name


def models_of(text: str) -> list[ModelWord]:
    """The models in words, each as often as it is there.  Raises GpusimError."""
    found: list[ModelWord] = []
    for part in listed(text.strip()):
        many = _MANY.fullmatch(part.strip())
        word, count = (many[1], int(many[2])) if many else (part.strip(), 1)
        if not word or not count:
            raise GpusimError(f"'{part.strip()}' names no model", hint="llama-8b x 16, llama-70b(tensor=4) x 2")
        name, given = split(word, "a model")
        for key in given:
            if key not in WORDS:
                raise GpusimError(f"a model has no '{key}'", hint=suggest(key, WORDS) or join(WORDS))
        tensor = given.pop("tensor", "1")
        if not tensor.isdecimal() or not int(tensor):
            raise GpusimError(f"{name} cannot be split over {tensor} GPUs", hint="tensor=2")
        found += [ModelWord(name, int(tensor), **given)] * count
        if len(found) > MOST:
            raise GpusimError(f"{len(found):,} models are more than the {MOST:,} that are followed")
    return found


@dataclass(frozen=True, eq=False)
class PreparedModels:
    """What stays the same for all requests.

    words, hosted  of each model: its words; its size, loads and engine
    pool           bytes of each server's host memory that keep models
    """

    spec: ModelsSpec
    topology: Topology
    words: list[ModelWord]
    hosted: list[HostedModel]
    gpus: tuple[int, ...]  # of each server
    pool: int
    loader: Loader

    def answer(self) -> ModelsAnswer:
        """One run."""
        spec = self.spec
        requests, model = self.arrivals()
        evict = of(*spec.use).get("evict", spec.evict)
        sizes, reads = [m.size for m in self.hosted], [float(m.times.loaded) for m in self.hosted]
        servers = [ModelServer(count, ModelPool(self.pool, sizes, reads, evict)) for count in self.gpus]
        cluster = ModelCluster(
            servers, self.hosted, requests, model, keep=round(parse_time(spec.keep)) if spec.keep else NEVER,
            placement=PLACEMENTS[spec.placement], seed=spec.seed,
        )  # fmt: skip
        return ModelsAnswer(spec, tuple(map(str, self.words)), tuple(self.hosted), self.gpus, self.pool, cluster.run())

    def arrivals(self) -> tuple[RequestTable, I64]:
        """The requests, and which model each of them wants."""
        spec = self.spec
        requests = requests_of(spec.requests)
        if requests.adapter.any():
            raise GpusimError("requests want adapters, and models have none", hint="leave out adapters; skew is that of models")
        if (empty := np.flatnonzero(requests.prompt < 1)).size:
            raise GpusimError(f"the prompt of request {empty[0]} is empty", hint="take it out; `gpusim serve` counts it")
        n = len(requests.arrival)
        rng = np.random.default_rng([spec.seed, 1])
        weight = np.arange(1.0, len(self.words) + 1) ** -spec.skew
        model = rng.choice(len(weight), n, p=weight / weight.sum()).astype(np.int64)
        if spec.rate:
            shape = spec.spread**-2 if spec.spread else 0.0
            gaps = rng.gamma(shape, 1 / shape, n) if shape else np.ones(n)
            arrival = np.round(np.cumsum(gaps) / spec.rate * SECOND).astype(np.int64)
            requests = requests._replace(arrival=arrival - arrival[0])
        return requests, model


def prepare(spec: ModelsSpec) -> PreparedModels:
    """Checks the words.  Raises GpusimError with the reason."""
    topology, loader, words = build.load(spec.machine), loader_of(spec.loader), models_of(spec.models)
    boot = round(float(parse(spec.boot, TIME)))
    hosts = Counter(topology.host[gpu] for gpu in topology.gpus)
    gpus = tuple(hosts.values()) * spec.servers
    made: dict[ModelWord, HostedModel] = {}
    for word in words:
        if word not in made:
            made[word] = _hosted(spec, word, topology, loader, boot)
            if word.tensor > max(gpus):
                raise GpusimError(f"{word.name} on {word.tensor} GPUs fits no server of {max(gpus)}", hint="a smaller tensor=")
    first = topology.gpus[0]
    pool = int(parse(spec.pool, BYTES)) if spec.pool else topology.host_memory(first) // 2
    hosted = [made[word] for word in words]
    _check_room(topology, hosted, pool)
    return PreparedModels(spec, topology, words, hosted, gpus, pool, loader)


def _check_room(topology: Topology, hosted: list[HostedModel], pool: int) -> None:
    """What host memory and disk have to hold.  Raises GpusimError."""
    first, largest = topology.gpus[0], max(hosted, key=lambda model: model.size)
    there, disk = topology.host_memory(first), int(topology.profile(first).nvme.capacity.value)
    if pool > there:
        raise GpusimError(f"{show_bytes(pool)} for models do not fit the host's memory, which has {show_bytes(there)}")
    if largest.size > pool:
        said = f"{largest.name} has {show_bytes(largest.size)} of weights, and host memory keeps {show_bytes(pool)} of models"
        raise GpusimError(said, hint="a larger --pool; loads go through it")
    if (total := sum(model.size for model in hosted)) > disk:
        said = f"{show_bytes(total)} of models do not fit a disk of {show_bytes(disk)}"
        raise GpusimError(said, hint='say what it has: --machine "l40s(nvme.capacity=8 TB)"')


def _hosted(spec: ModelsSpec, word: ModelWord, topology: Topology, loader: Loader, boot: int) -> HostedModel:
    asked = ServiceSpec(
        model=word.name, machine=spec.machine, engine=spec.engine, tensor=word.tensor, replicas=1, weights=word.weights,
        cache=word.cache, memory=spec.memory, max_seqs=spec.max_seqs, max_tokens=spec.max_tokens, use=spec.use,
    )  # fmt: skip
    try:
        service = prepare_service(asked)
    except NoRoomError as error:
        hint = f"more GPUs or smaller weights: {word.name}(tensor={2 * word.tensor}), {word.name}(weights=fp8)"
        raise NoRoomError(error.message, hint=hint) from None
    size = service.model.weight_bytes(word.tensor) * word.tensor
    times = load_times(loader, load_ways(topology, topology.gpus[: word.tensor], loader), size)
    times = LoadTimes(times.read, times.loaded + boot, times.copied + boot)
    return HostedModel(str(word), size, word.tensor, times, partial(_engine, service))


def _engine(service: PreparedService, requests: RequestTable) -> ServiceRun:
    return service.start(requests)


def load_ways(topology: Topology, gpus: tuple[str, ...], loader: Loader) -> LoadWays:
    """What loads onto these GPUs at once pass."""
    profile, rate_of = topology.profile(gpus[0]), transfers.rates(topology)
    ways = [way(topology, socket_of(topology, gpu), gpu) for gpu in gpus]
    used = Counter(name for one in ways for name in one.links)
    link = min(min(one.rate, *(rate_of[name] / used[name] for name in one.links)) for one in ways)
    if not loader.pinned:
        link = min(link, profile.host.pageable_h2d.value / 1e9)
    disk = profile.nvme
    return LoadWays(
        disk.read.value / 1e9, float(disk.latency.value), link, float(profile.link.latency_synchronised.value), len(gpus)
    )


def answered(spec: ModelsSpec) -> ModelsAnswer:
    """One run.  Raises GpusimError, PolicyError."""
    return prepare(spec).answer()
