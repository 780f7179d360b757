"""From words (model, machine, cache, evict policy, guesses, routing) to a run of a model whose experts do not fit the GPU."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.base.units import BYTES, FLOPS, parse, show_bytes
from gpusim.base.yaml import document
from gpusim.engine.serving import expert_guesses as guesses
from gpusim.engine.serving.expert_passes import Passes, passes_of
from gpusim.engine.serving.expert_run import ExpertCache, ExpertRun, Start, run_experts
from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.profile import Profile
from gpusim.machine.serving.build import operator_model
from gpusim.machine.serving.experts import ExpertModel, ExpertTimes, described, of_described, of_served
from gpusim.machine.serving.tables import installed
from gpusim.machine.topology import build, routes, transfers
from gpusim.machine.topology.topology import Topology
from gpusim.policies.registry import of
from gpusim.programs.serving.routing import ExpertRouting, routing_of
from gpusim.programs.zoo.served import served

SYSTEMS = Path(__file__).parent / "systems.yaml"
TABLES = ("vllm", "0.24.0")
"""Whose measured operators are looked up, where the machine has a table."""
_SLOTS = re.compile(r"(\d+)(\s+(?:a|per)\s+layer)?")
_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%")
_SAID = {"source_memory": "source of experts"}
_GUESSES: dict[str, dict[str, float]] = {
    "none": {}, "gate": {"hit": 0.0, "ahead": 1}, "exact": {"ahead": 1}, "history": {"ahead": 2, "known": 100},
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ExpertSpec:
    """A model with experts on one GPU, in words.

    model    a decoder of the zoo with experts, or one of `machine/serving/data/expert_models.yaml`
    machine  a profile, or a whole machine, of which one GPU is used
    routing  drawn(skew=1, ...) or a file (`programs.serving.routing`)
    batch    sequences that run together
    cache    room for experts on the GPU: fit (what is left), 64 (experts), 4 a layer, 25 %, 12 GiB
    evict    which leaves
    start    what is there at first: first (of each layer), layers (the first ones), popular (by this routing), empty
    guess    which experts are read ahead: none, gate (as recorded), gate(hit=0.8), exact, history
    cpu      "2 TFLOP/s", which its cores reach: the CPU computes an expert where its copy takes longer; profile: as fast as the
             machine's profile says; "": it computes none
    overlap  copies go on while the GPU computes
    swaps    the expert that leaves is copied back behind each copy, as its weights have no second place in host memory
    plain    where all other weights are: resident on the GPU, or streamed to it for each layer
    source_memory  where experts come from: pinned or pageable host memory, nvme
    uses     chosen: a layer uses the experts that its tokens chose; all: every expert, as frameworks do that call each module
    bits     of a number of an expert's weights: 16, 8, 4, 3, 2; 32
    memory   share of the GPU's memory that is used
    seed     of the guesses
    use      files with policies of one's own, or the decorated objects, which `evict` may name
    """

    model: str
    machine: str
    routing: str = "drawn(skew=1)"
    batch: int = 1
    cache: str = "fit"
    evict: str = "lru"
    start: Start = "first"
    guess: str = "none"
    cpu: str = ""
    overlap: bool = True
    swaps: bool = False
    plain: Literal["resident", "streamed"] = "resident"
    source_memory: Literal["pinned", "pageable", "nvme"] = "pinned"
    uses: Literal["chosen", "all"] = "chosen"
    bits: int = 16
    memory: float = 0.9
    seed: int = 0
    use: tuple[Any, ...] = ()

    def __post_init__(self) -> None:
        known = {"start": get_args(Start), "plain": ("resident", "streamed"), "source_memory": ("pinned", "pageable", "nvme"),
                 "uses": ("chosen", "all")}  # fmt: skip
        for name, values in known.items():
            if getattr(self, name) not in values:
                raise GpusimError(f"there is no {_SAID.get(name, name)} '{getattr(self, name)}'", hint=join(values))
        if self.batch < 1 or not 0 < self.memory <= 1:
            raise GpusimError(f"a batch of {self.batch} within {self.memory:.0%} of the memory cannot run")


@cache
def systems() -> dict[str, dict[str, Any]]:
    """What systems do, by name; each with its source."""
    found: dict[str, dict[str, Any]] = document.read(SYSTEMS).data
    return found


def like(name: str) -> dict[str, Any]:
    """Words of a system; {} for "".  Raises GpusimError."""
    if not name:
        return {}
    if name not in systems():
        raise GpusimError(f"there is no system '{name}'", hint=suggest(name, systems()) or join(tuple(systems())))
    return {key: value for key, value in systems()[name].items() if key != "source"}


@dataclass(frozen=True, eq=False)
class ExpertSetup:
    """What stays the same whatever is evicted."""

    spec: ExpertSpec
    topology: Topology
    times: ExpertTimes
    routing: ExpertRouting
    passes: Passes
    cache: ExpertCache
    sizes: dict[str, int]  # bytes of GPU memory by what they are for

    @property
    def way(self) -> CopyWay:
        """How experts come; from disk they are read into host memory, and copied then."""
        profile, gpu = self.times.machine, self.topology.gpus[0]
        route = routes.between(self.topology, routes.nearest(self.topology, gpu, "socket"), gpu)
        flow = max(transfers.flows(self.topology, route, 1 << 30), key=lambda part: part.size)
        pinned = CopyWay(round(route.latency), flow.rate, ())
        if self.spec.source_memory == "pinned":
            return pinned
        if self.spec.source_memory == "pageable":
            return replace(pinned, rate=min(profile.host.pageable_h2d.value / 1e9, flow.rate))
        disk = profile.nvme
        rate = 1 / (1 / (disk.read.value / 1e9) + 1 / flow.rate)
        return CopyWay(pinned.latency + round(disk.latency.value), rate, ())

    @property
    def back(self) -> CopyWay | None:
        """How an expert that leaves goes back; None: it is dropped."""
        if not self.spec.swaps:
            return None
        if self.spec.source_memory == "nvme":
            raise GpusimError("experts that are swapped go back to host memory", hint="source_memory: pinned or pageable")
        profile, gpu = self.times.machine, self.topology.gpus[0]
        route = routes.between(self.topology, gpu, routes.nearest(self.topology, gpu, "socket"))
        rate = max(transfers.flows(self.topology, route, 1 << 30), key=lambda part: part.size).rate
        if self.spec.source_memory == "pageable":
            rate = min(profile.host.pageable_d2h.value / 1e9, rate)
        return CopyWay(round(route.latency), rate, ())

    def run(self) -> ExpertRun:
        """All passes."""
        return run_experts(self.times, self.passes, self.cache, self.way, self._guesses(), self.back)

    def _guesses(self) -> guesses.Guesses:
        name, numbers = guess_of(self.spec.guess)
        experts, ahead = self.times.model.experts, int(numbers.get("ahead", 1))
        if name == "gate":
            if not numbers["hit"]:
                return guesses.recorded(self.passes, self.routing)
            return guesses.by_gate(self.passes, experts, numbers["hit"], ahead, self.spec.seed)
        if name == "exact":
            return guesses.by_gate(self.passes, experts, 1.0, ahead)
        if name == "history":
            return guesses.by_history(self.passes, self.routing, self.times.model.sparse, ahead, int(numbers["known"]))
        return guesses.no_guesses()


def guess_of(word: str) -> tuple[str, dict[str, float]]:
    """gate(hit=0.8) -> its name and numbers.  Raises GpusimError."""
    name, texts = split(word, "a guess")
    if name not in _GUESSES:
        raise GpusimError(f"there is no guess '{name}'", hint=suggest(name, _GUESSES) or join(tuple(_GUESSES)))
    numbers = dict(_GUESSES[name])
    for key, text in texts.items():
        if key not in numbers:
            raise GpusimError(f"the guess '{name}' has no '{key}'", hint=join(tuple(numbers)) if numbers else "")
        try:
            numbers[key] = float(text)
        except ValueError:
            raise GpusimError(f"'{text}' is no number for {key}") from None
        if not (0 < numbers[key] <= 1 if key == "hit" else numbers[key] >= 1):
            raise GpusimError(f"the guess '{name}' cannot have {key}={text}", hint="a share" if key == "hit" else "from 1 on")
    return name, numbers


def model_of(name: str, bits: int = 16) -> ExpertModel:
    """A model with experts.  Raises GpusimError with names that are like it."""
    return of_described(name, bits) if name in described() else of_served(served(name), bits)


def prepare(spec: ExpertSpec) -> ExpertSetup:
    """Checks the words.  Raises GpusimError with the reason; TraceError for a file of a routing with file:line."""
    model, topology = model_of(spec.model, spec.bits), build.load(spec.machine)
    profile = topology.profile(topology.gpus[0])
    layers = tuple(stack.sparse for stack in model.stacks)
    guess_of(spec.guess)
    routing = routing_of(spec.routing, layers, model.experts, model.chosen)
    passes = passes_of(routing, spec.batch, spec.uses == "all")
    streamed = 2 * max(map(model.turn_bytes, model.stacks)) + model.head_bytes
    sizes = {
        "plain weights": streamed if spec.plain == "streamed" else model.plain_bytes,
        "keys and values": passes.kept * model.token_bytes, "buffers": 2 * model.expert_bytes,
        "context": int(profile.context.value),
    }  # fmt: skip
    left = spec.memory * profile.memory.capacity.value - sum(sizes.values())
    slots, apart = _slots(spec, model, profile, left)
    evict, streams = of(*spec.use).get("evict", spec.evict), spec.plain == "streamed"
    cache_ = ExpertCache(slots, evict, apart, spec.start, spec.overlap, _compute(spec, profile), streams)
    sizes["experts"] = slots * (model.sparse if apart else 1) * model.expert_bytes
    times = ExpertTimes(model, operator_model(profile, *TABLES, installed()))
    return ExpertSetup(spec, topology, times, routing, passes, cache_, sizes)


def _compute(spec: ExpertSpec, profile: Profile) -> float:
    """Operations a second of the CPU; 0: it computes none.  Raises GpusimError where nothing says how many."""
    if spec.cpu != "profile":
        return float(parse(spec.cpu, FLOPS)) if spec.cpu else 0.0
    if profile.host.compute is None:
        said = f"the profile '{profile.name}' does not say how fast the CPU's cores are, so experts have no time on it"
        raise GpusimError(said, hint='say what they reach: cpu="2 TFLOP/s"')
    return float(profile.host.compute.value)


def _slots(spec: ExpertSpec, model: ExpertModel, profile: Profile, left: float) -> tuple[int, bool]:
    """Room for experts, and whether it is of each layer.  Raises GpusimError for what does not fit."""
    most, word = model.sparse * model.experts, spec.cache.strip()
    fit = min(int(left // model.expert_bytes), most)
    if fit < 0:
        raise GpusimError(
            f"{spec.model} leaves no room for experts on {profile.name}: the rest takes {show_bytes(-left)} more than there is",
            hint="a smaller batch, shorter sequences, or plain=streamed",
        )
    if word == "fit":
        return fit, False
    if match := _SLOTS.fullmatch(word):
        slots, apart = int(match[1]), bool(match[2])
        too_many = slots > (model.experts if apart else most)
    elif match := _SHARE.fullmatch(word):
        slots, apart = int(float(match[1]) / 100 * most), False
        too_many = slots > most
    else:
        try:
            slots, apart = min(int(parse(word, BYTES) // model.expert_bytes), most), False
            too_many = False  # bytes are room, which may be more than all experts take
        except GpusimError:
            raise GpusimError(f"'{word}' is no room for experts", hint="fit, 64, 4 a layer, 25 %, 12 GiB") from None
    if too_many:
        has = f"{model.experts} experts in each of its {model.sparse} layers that have any, {most} in all"
        raise GpusimError(f"cache: {word} is more than {spec.model} has: {has}", hint="fit, or as many as there are")
    if slots * (model.sparse if apart else 1) > fit:
        said = f"{slots * (model.sparse if apart else 1)} experts of {show_bytes(model.expert_bytes)}"
        raise GpusimError(f"{said} do not fit {profile.name} beside the rest", hint=f"there is room for {fit}: --cache fit")
    return slots, apart


@dataclass(frozen=True)
class ExpertAnswer:
    """One run: words, routing, numbers."""

    setup: ExpertSetup
    run: ExpertRun

    def metrics(self) -> dict[str, float]:
        """All numbers by name; see `ExpertRun.metrics`.  memory_bytes: of the GPU; slots: experts that it holds at once."""
        model, cache_ = self.setup.times.model, self.setup.cache
        slots = cache_.slots * (model.sparse if cache_.apart else 1)
        return self.run.metrics() | {"memory_bytes": sum(self.setup.sizes.values()), "slots": slots}

    def limit(self) -> str:
        """What takes the most time."""
        found = self.metrics()
        shares = {
            "copies over the link": found["link_wait_share"], "experts that the CPU computes": found["cpu_wait_share"],
            "the GPU's own work": found["gpu_share"],
        }  # fmt: skip
        worst = max(shares, key=lambda name: shares[name])
        return f"{worst}: {shares[worst]:.0%} of the time"

    def values(self) -> dict[str, Any]:
        """All of it, for JSON."""
        words = {f.name: getattr(self.setup.spec, f.name) for f in fields(ExpertSpec) if f.name != "use"}
        return {
            "experts": words, "routing": "recorded" if self.setup.routing.recorded else "drawn", "metrics": self.metrics(),
            "memory": self.setup.sizes, "counts": self.run.count, "limit": self.limit(),
        }  # fmt: skip


def answered(spec: ExpertSpec) -> ExpertAnswer:
    """One run.  Raises GpusimError, PolicyError."""
    setup = prepare(spec)
    return ExpertAnswer(setup, setup.run())
