"""FlexGen's plan of a service, in words: flexgen(batches=3, weights=20/80, cache=0/100, activations=0/100, attention=cpu).

    batches   of the block, whose requests are the engine's `max_seqs`; each batch is on the GPU at once
    weights, cache, activations   per cent on the GPU and on the host, the rest on disk; without all three the fastest that fits
    attention cpu or gpu: what attends to keys and values that are not on the GPU; without it, the faster
    pinned    whether the host's weights are; overlap: whether copies run beside computing (yes, yes)
    bits, cache_bits   4: weights, or keys and values, are packed (16)
    prompt, output     tokens of the requests for which the percentages are chosen, and memory is set aside (512, 32)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gpusim.base.calls import split as called
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.engine.serving.zigzagged import ZigzagCost
from gpusim.machine.serving import zigzag
from gpusim.machine.serving.build import ServedStepTimes
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.serving.zigzag_plan import Shares, ZigzagMachine, ZigzagModel, ZigzagPlan
from gpusim.machine.topology.topology import Topology
from gpusim.studies.serving.ways import socket_of, way

ENGINE = "static"
SHARES = ("weights", "cache", "activations")
KEYS = ("batches", *SHARES, "attention", "pinned", "overlap", "bits", "cache_bits", "prompt", "output")
BOUNDS = (0.92, 1.5)
"""Multiples of times between which they are, four times out of five: of FlexGen's published runs (docs/serving_offload.md)."""
_CHOICES = {
    "attention": ("cpu", "gpu"), "pinned": ("yes", "no"), "overlap": ("yes", "no"), "bits": ("4", "16"),
    "cache_bits": ("4", "16"),
}  # fmt: skip


@dataclass(frozen=True)
class FlexgenWord:
    """What the word says; shares: None where the plan is to be chosen; on_cpu: None where the faster is."""

    batches: int
    shares: tuple[Shares, Shares, Shares] | None
    on_cpu: bool | None
    pinned: bool
    overlap: bool
    packed_weights: bool
    packed_cache: bool
    prompt: int
    output: int


def flexgen_of(text: str) -> FlexgenWord:
    """Raises GpusimError for what it cannot mean."""
    _, given = called(text, "an offload of weights")
    for name, value in given.items():
        if name not in KEYS:
            raise GpusimError(f"flexgen has no '{name}'", hint=suggest(name, KEYS) or f"it has {join(KEYS)}")
        if name in _CHOICES and value not in _CHOICES[name]:
            raise GpusimError(f"{name}={value} of flexgen", hint=f"{name} is {' or '.join(_CHOICES[name])}")
    counts = {name: given.get(name, usual) for name, usual in (("batches", "1"), ("prompt", "512"), ("output", "32"))}
    wrong = next((name for name, value in counts.items() if not value.isdecimal() or not int(value)), "")
    if wrong:
        raise GpusimError(f"{wrong}={counts[wrong]} of flexgen is not a whole number above 0")
    said = [name for name in SHARES if name in given]
    if said and len(said) < len(SHARES):
        told = f"flexgen says where {join(said)} lie, and not the rest"
        raise GpusimError(told, hint="give weights, cache and activations, or none")
    weights, cache, activations = (_shares(given, name) if said else (0.0, 0.0) for name in SHARES)
    on_cpu = given["attention"] == "cpu" if "attention" in given else None
    return FlexgenWord(
        int(counts["batches"]), (weights, cache, activations) if said else None, on_cpu, given.get("pinned") != "no",
        given.get("overlap") != "no", given.get("bits") == "4", given.get("cache_bits") == "4", int(counts["prompt"]),
        int(counts["output"]),
    )  # fmt: skip


def _shares(given: Mapping[str, str], name: str) -> Shares:
    parts = given[name].split("/")
    try:
        on_gpu, on_host = (float(part) for part in parts)
    except ValueError:
        raise GpusimError(f"{name}={given[name]} are no per cent on the GPU and the host", hint=f"{name}=20/80") from None
    return on_gpu, on_host


@dataclass(frozen=True)
class FlexgenOffload:
    """The plan of a service at work on one GPU."""

    word: FlexgenWord
    plan: ZigzagPlan
    model: ZigzagModel
    pace: float = 1.0

    device_share = 1.0

    def device_bytes(self, max_tokens: int) -> int:
        """What the GPU holds beside keys and values."""
        return int(self.model.held(self.plan, self.word.prompt, 1 - self.word.prompt)[zigzag.ON_GPU])

    def tokens(self, room: float, step: int, max_tokens: int) -> float:
        """Tokens whose keys and values the memories have room for.  Raises GpusimError where the rest does not fit."""
        return self.model.room_for(self.plan, self.word.prompt)

    def paced(self, bound: str) -> FlexgenOffload:
        """The same with all times at the "fast" or the "slow" end of their interval."""
        return replace(self, pace=BOUNDS[bound == "slow"])

    def cost(self, times: ServedStepTimes, group: int) -> ZigzagCost:
        """Of the steps."""
        return ZigzagCost(times, self.model.numbers(self.plan), BOUNDS, self.pace)

    def said(self, times: Mapping[str, int]) -> str:
        """The plan, and what takes the steps' time, as sentences."""
        total, plan = max(sum(times.values()), 1), self.plan
        places = ", ".join(f"{name} {on_gpu:g}/{on_host:g}/{100 - on_gpu - on_host:g}" for name, (on_gpu, on_host) in
                           (("weights", plan.weights), ("cache", plan.cache), ("activations", plan.activations)))  # fmt: skip
        chosen = "given" if self.word.shares else f"the fastest for {self.word.prompt} + {self.word.output} tokens"
        attention = ", attention on the CPU" if plan.on_cpu else ""
        taken = ", ".join(f"{name} {ns / total:.0%}" for name, ns in times.items())
        return f"Per cent on GPU, host and disk ({chosen}): {places}{attention}. Of the steps' time: {taken}."


def flexgen(
    text: str, model: ServedModel, topology: Topology, groups: tuple[tuple[str, ...], ...], engine: str, requests: int,
    memory: float,
) -> FlexgenOffload:  # fmt: skip
    """The plan of a service of `requests` requests at once, in `memory` of the GPU's memory.

    Raises GpusimError for another engine, several GPUs, and where nothing fits.
    """
    word = flexgen_of(text)
    if engine != ENGINE:
        raise GpusimError(f"FlexGen's block of batches starts together, which '{engine}' does not", hint="engine static")
    if len(groups) > 1 or len(groups[0]) > 1:
        raise GpusimError("FlexGen's plan is modelled on one GPU", hint="replicas=1, tensor=1")
    if requests % word.batches:
        told = f"{requests} requests at once are no {word.batches} equal batches"
        raise GpusimError(told, hint="max_seqs is a multiple of batches")
    gpu = groups[0][0]
    socket, profile = socket_of(topology, gpu), topology.profile(gpu)
    room = (
        memory * profile.memory.capacity.value - profile.context.value, float(topology.nodes[socket].capacity or 0),
        float(profile.nvme.capacity.value),
    )  # fmt: skip
    dram = (topology.nodes[socket].bandwidth or profile.host.bandwidth.value) / 1e9
    ways = way(topology, socket, gpu).rate, way(topology, gpu, socket).rate
    made = ZigzagModel(model, ZigzagMachine(profile, room, *ways, dram))
    first = ZigzagPlan(
        requests // word.batches, word.batches, pinned=word.pinned, overlap=word.overlap, packed_weights=word.packed_weights,
        packed_cache=word.packed_cache,
    )  # fmt: skip
    if word.shares is not None:
        weights, cache, activations = word.shares
        plan = replace(first, weights=weights, cache=cache, activations=activations, on_cpu=bool(word.on_cpu))
        return FlexgenOffload(word, plan, made)
    return FlexgenOffload(word, _chosen(made, first, word), made)


def _chosen(model: ZigzagModel, first: ZigzagPlan, word: FlexgenWord) -> ZigzagPlan:
    asked = [word.on_cpu] if word.on_cpu is not None else [True, False]
    found = [model.fastest(first, word.prompt, word.output, cpu) for cpu in asked if not (cpu and word.packed_cache)]
    if not found:
        raise GpusimError("the CPU attends to keys and values of 16 bits alone", hint="attention=gpu")
    return min(found, key=lambda plan: model.ns(plan, word.prompt, word.output))
