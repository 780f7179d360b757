"""Weights that lie below the devices of a service, in words, and what that makes of memory and step times.

    split(layers=60)    the first 60 layers are computed by the CPU, as llama.cpp has it; keys and values lie with their layer
    stream(layers=60)   60 layers lie in the host's memory and are copied to the device in each step
    flexgen(batches=3)  FlexGen's plan: see `flexgen`

    pinned    whether their memory is: yes for streams, no for splits (llama.cpp maps its file) unless it is said
    from      host or nvme, of streams
    ahead     whether a layer is copied while the one before is computed, of streams: yes unless it is said
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpusim.base.calls import split as called
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.base.units import BYTES, write
from gpusim.engine.serving import offloaded as o
from gpusim.engine.serving.offloaded import OffloadedCost
from gpusim.engine.serving.tiering import CopyWay
from gpusim.machine.serving import step as steps
from gpusim.machine.serving.build import ServedStepTimes
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.topology import transfers
from gpusim.machine.topology.topology import Topology
from gpusim.studies.serving.ways import socket_of, way

F64 = npt.NDArray[np.float64]
SPLIT, STREAM = "split", "stream"
WORDS: Mapping[str, tuple[str, ...]] = {SPLIT: ("layers", "pinned"), STREAM: ("layers", "pinned", "from", "ahead")}
YES = {"yes": True, "no": False}

# Multiples of times between which they are, four times out of five: of a CPU's layers, and of copies of weights; by published
# systems that docs/offloading.md simulates (llama.cpp: 1 to 24 % slower; ZeRO-Inference, Accelerate: 2 % faster to 40 % slower)
BOUNDS = np.array([[1.0, 1.24], [0.98, 1.4]])


@dataclass(frozen=True)
class OffloadWord:
    """layers that the device does not hold; see the module."""

    kind: str
    layers: int
    pinned: bool
    source: str = "host"
    ahead: bool = True


def offload_of(text: str) -> OffloadWord | None:
    """What the word says; None for "".  Raises GpusimError."""
    if not text.strip():
        return None
    kind, given = called(text, "an offload of weights")
    if kind == "experts":
        raise GpusimError("experts below the GPU are not modelled under a scheduler of requests", hint="gpusim experts")
    if kind not in WORDS:
        hint = suggest(kind, WORDS) or "split(layers=60), stream(layers=60), flexgen(batches=3)"
        raise GpusimError(f"weights are not offloaded by '{kind}'", hint=hint)
    for name in given:
        if name not in WORDS[kind]:
            raise GpusimError(f"{kind} has no '{name}'", hint=suggest(name, WORDS[kind]) or f"it has {join(WORDS[kind])}")
    layers, source = given.get("layers", ""), given.get("from", "host")
    if not layers.isdecimal() or not int(layers):
        raise GpusimError(f"{kind} is of {layers or 'no'} layers", hint=f"write {kind}(layers=20)")
    if source not in ("host", "nvme"):
        raise GpusimError(f"weights are not streamed from '{source}'", hint="host or nvme")
    pinned, ahead = _said(kind, given, "pinned", kind == STREAM), _said(kind, given, "ahead", True)
    return OffloadWord(kind, int(layers), pinned, source, ahead)


def _said(kind: str, given: Mapping[str, str], name: str, usual: bool) -> bool:
    if given.get(name, "yes") not in YES:
        raise GpusimError(f"{name}={given[name]} of {kind} is neither yes nor no")
    return YES[given[name]] if name in given else usual


def check(word: OffloadWord, model: ServedModel, beside: Mapping[str, object]) -> None:
    """Raises GpusimError for layers that there are not, and beside options with which this is not modelled."""
    most = model.layers - (word.kind == SPLIT)
    if word.layers > most:
        why = ": all layers on the CPU leave the GPU nothing to do" if word.kind == SPLIT else ""
        raise GpusimError(f"{word.layers} of {model.layers} layers of {model.name} are offloaded", hint=f"at most {most}{why}")
    refuse_together(beside)


def refuse_together(beside: Mapping[str, object]) -> None:
    """Raises GpusimError for an option, by name, that was given beside weights below the GPU."""
    wanted = next((name for name, value in beside.items() if value), "")
    if wanted:
        raise GpusimError(f"weights below the GPU are not modelled together with {wanted}", hint="leave one of both out")


@dataclass(frozen=True)
class LayerOffload:
    """Weights of a service that its devices do not hold.

    near  step times of the layers that stay, where the CPU computes the others
    pace  multiples of the CPU's time and of copies
    """

    word: OffloadWord
    model: ServedModel
    topology: Topology
    groups: tuple[tuple[str, ...], ...]
    near: ServedStepTimes | None = None
    pace: tuple[float, float] = (1.0, 1.0)

    @property
    def ways(self) -> int:
        return len(self.groups[0])

    @property
    def device_share(self) -> float:
        """Of a token's keys and values, that which lies on the devices."""
        return 1 - self.word.layers / self.model.layers if self.word.kind == SPLIT else 1.0

    def tokens(self, room: float, step: int, max_tokens: int) -> float:
        """Tokens whose keys and values a replica has room for.

        room  bytes of each GPU for the engine, of which a step's tensors take `step`
        Raises GpusimError where the host or the disk has no room for the weights.
        """
        left = room - step - self.device_bytes(max_tokens)
        return min(left / (self.device_share * self.model.token_bytes(self.ways)), self.host_tokens())

    def device_bytes(self, max_tokens: int) -> int:
        """Weights on each GPU, and room for layers that are copied in."""
        model, ways, word = self.model, self.ways, self.word
        kept = model.weight_bytes(ways) - word.layers * model.layer_bytes(ways)
        if word.kind == SPLIT:  # the embedding is the first layer's; one layer is brought in by large steps
            return kept - model.head_bytes(ways) + model.layer_bytes(ways) * (max_tokens >= o.COPIED_FROM)
        return kept + min(2 if word.ahead else 1, word.layers) * model.layer_bytes(ways)

    def below_bytes(self) -> int:
        """Weights of one replica below its devices."""
        below = self.word.layers * self.model.layer_bytes(1)
        return below + self.model.head_bytes(1) * (self.word.kind == SPLIT)

    def host_tokens(self) -> float:
        """Tokens whose keys and values a replica has room for beside its weights below; GpusimError without room for these."""
        socket = self._socket(0)
        beside = self._beside(socket)
        disk = self.topology.profile(self.groups[0][0]).nvme
        there = disk.capacity.value if self.word.source == "nvme" else self.topology.nodes[socket].capacity or 0
        left = there / (1 if self.word.source == "nvme" else beside) - self.below_bytes()
        if left < 0:
            where = "disk" if self.word.source == "nvme" else f"host memory at {socket}"
            said = write(self.below_bytes(), BYTES) if beside == 1 else f"{beside} x {write(self.below_bytes(), BYTES)}"
            raise GpusimError(f"{said} of weights do not fit the {where}, which has {write(int(there), BYTES)}")
        share = 1 - self.device_share
        return left / (share * self.model.token_bytes(1)) if share else float("inf")

    def paced(self, bound: str) -> LayerOffload:
        """The same with all times at the "fast" or the "slow" end of their interval."""
        end, first = {"fast": (0, steps.LOW), "slow": (1, steps.HIGH)}[bound]
        near = self.near
        if near is not None:
            near = replace(near, table=steps.paced(near.table, near.table[first : first + 5]))
        return replace(self, near=near, pace=(float(BOUNDS[0, end]), float(BOUNDS[1, end])))

    def cost(self, times: ServedStepTimes, group: int) -> OffloadedCost:
        """Of the steps of one replica."""
        own = self._split(group) if self.near is not None else self._stream(group)
        own[[o.WEIGHTS, o.EXPERTS, o.KEPT, o.FLOPS]] *= self.pace[0]
        own[[o.COPIES, o.IN, o.OUT, o.CROSSING, o.ROW]] *= self.pace[1]
        return OffloadedCost(times, self.near, own, BOUNDS)

    def said(self, times: Mapping[str, int]) -> str:
        """What of the steps' time it takes, and where its rates are from, as sentences."""
        total, profile = max(sum(times.values()), 1), self.topology.profile(self.groups[0][0])
        copies = f"{times['copies'] / total:.0%}"
        if self.word.kind == STREAM:
            return f"Copies of weights, at {self._way(0, True)[1]:.3g} GB/s, hold steps up for {copies} of their time."
        known, dram = profile.host.compute, profile.host.bandwidth
        compute = f"and {known.text()}" if known else "and its arithmetic is not bounded: no rate of this CPU is known"
        rate = self.topology.nodes[self._socket(0)].bandwidth or dram.value
        basis = f" ({dram.basis})" if rate == dram.value else ""
        return (
            f"Layers on the CPU take {times['cpu'] / total:.0%} of the steps' time, copies {copies}. The CPU's memory has "
            f"{rate / 1e9:.4g} GB/s{basis}, {compute}."
        )

    def _split(self, group: int) -> F64:
        model, word, own = self.model, self.word, np.zeros(o.NUMBERS)
        profile, beside = self.topology.profile(self.groups[group][0]), self._beside(self._socket(group))
        dram = (self.topology.nodes[self._socket(group)].bandwidth or profile.host.bandwidth.value) / 1e9 / beside
        (latency, up), (_, down) = self._way(group, True), self._way(group, False)
        kept = model.token_bytes(1) * word.layers / model.layers
        experts = model.expert_bytes(1)
        own[o.WEIGHTS], own[o.EXPERTS] = (word.layers * size / dram for size in (model.layer_bytes(1) - experts, experts))
        own[o.KEPT], own[o.UNCHOSEN] = kept / dram, 1 - model.chosen / max(model.experts, 1)
        if profile.host.compute is not None:
            own[o.FLOPS] = word.layers * model.layer_flops() / (profile.host.compute.value / 1e9 / beside)
        own[o.COPIES] = word.layers * (latency + model.layer_bytes(self.ways) / up)
        own[o.IN], own[o.OUT] = kept / self.ways / up, kept / self.ways / down
        own[o.CROSSING], own[o.ROW] = latency, 2 * model.width / up
        return own

    def _stream(self, group: int) -> F64:
        own = np.zeros(o.NUMBERS)
        latency, rate = self._way(group, True)
        own[o.COPIES] = self.word.layers * (latency + self.model.layer_bytes(self.ways) / rate)
        own[o.AHEAD] = self.word.ahead
        return own

    def _way(self, group: int, up: bool) -> tuple[float, float]:
        """(ns, bytes/ns) of copies between a GPU of the replica and its host while all GPUs of the service copy.

        What lies on disk is read into host memory, and copied when it is there: only one layer is under way.
        """
        machine, gpu = self.topology, self.groups[group][0]
        ways = {one: self._link(one, up) for replica in self.groups for one in replica}
        used = Counter(name for one in ways.values() for name in one.links)
        rate_of, own, profile = transfers.rates(machine), ways[gpu], machine.profile(gpu)
        rates, latency = [own.rate, *(rate_of[name] / used[name] for name in own.links)], float(own.latency)
        if not self.word.pinned:
            rates.append((profile.host.pageable_h2d if up else profile.host.pageable_d2h).value / 1e9)
        if self.word.source == "nvme":
            read = profile.nvme.read.value / 1e9 / self.ways
            return latency + profile.nvme.latency.value, 1 / (1 / read + 1 / min(rates))
        return latency, min(rates)

    def _link(self, gpu: str, up: bool) -> CopyWay:
        socket = socket_of(self.topology, gpu)
        return way(self.topology, socket, gpu) if up else way(self.topology, gpu, socket)

    def _socket(self, group: int) -> str:
        return socket_of(self.topology, self.groups[group][0])

    def _beside(self, socket: str) -> int:
        """Replicas whose host memory is at this socket: they share it, and its CPU."""
        return sum(self._socket(i) == socket for i in range(len(self.groups)))


def offloaded(
    text: str, model: ServedModel, topology: Topology, groups: tuple[tuple[str, ...], ...],
    times_of: Callable[[ServedModel], ServedStepTimes], beside: Mapping[str, object],
) -> LayerOffload | None:  # fmt: skip
    """What a service keeps below its GPUs; None for nothing.

    times_of  makes the step times of a model
    beside    options that may not be there with it, by name, as they were given
    Raises GpusimError for words that do not fit the model or each other.
    """
    word = offload_of(text)
    if word is None:
        return None
    check(word, model, beside)
    if topology.profile(groups[0][0]).memory.unified:
        raise GpusimError(f"GPU and CPU of {topology.name} have one memory: nothing lies below it", hint="leave out offload")
    near = times_of(replace(model, layers=model.layers - word.layers)) if word.kind == SPLIT else None
    return LayerOffload(word, model, topology, groups, near)
