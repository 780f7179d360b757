"""The table of step times of a model on a machine, for compiled loops and for questions from Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import document
from gpusim.machine import catalogue
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.profile import Profile
from gpusim.machine.serving import step
from gpusim.machine.serving.engines import EngineCosts, costs
from gpusim.machine.serving.operators import FORM, OperatorModel, kin
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.serving.tables import SYSTEMS, ServingTables, installed
from gpusim.machine.topology.topology import Topology

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Bars = dict[str, list[float]]

DATA = Path(__file__).parent / "data" / "intervals.yaml"
_LAYER_KERNELS = 10
"""Launches of a layer without CUDA graphs: four products, attention, two norms, rotation, writing the cache, activation."""
_HOST_BARS = (-0.6, 1.2)
"""Of CPU times: of the range of what others published, and of CPUs that differ by a factor of two."""


@dataclass(frozen=True, eq=False)
class ServedStepTimes:
    """Times of the steps of one model, engine and machine; read `table` by `step.step_time`.

    sources  by class of operators, the table that it is from, or how else it is known
    """

    table: F64
    model: ServedModel
    machine: str
    ways: int
    engine: str
    sources: Mapping[str, str]

    def of(self, before: Sequence[int], tokens: Sequence[int]) -> StepParts:
        """One step; see `step.step_time`."""
        if len(before) != len(tokens):
            raise GpusimError(f"{len(before)} requests have tokens before the step, {len(tokens)} in it")
        parts, bounds = np.zeros(5, np.int64), np.zeros(2)
        ns = step.step_time(self.table, np.array(before, np.int64), np.array(tokens, np.int64), len(tokens), parts)
        step.step_interval(self.table, parts, bounds)
        return StepParts(int(ns), dict(zip(step.PARTS, parts.tolist(), strict=True)), float(bounds[0]), float(bounds[1]))


@dataclass(frozen=True)
class StepParts:
    """ns of a step, of its parts by name, and between which ns it is four times out of five."""

    ns: int
    parts: dict[str, int]
    low: float
    high: float


def step_times(
    model: ServedModel, machine: Profile, engine: str = "vllm", ways: int = 1, *, topology: Topology | None = None,
    gpus: Sequence[str] = (), most_tokens: int = 8192, most_requests: int = 256, graphs: bool = True,
    overlap: bool | None = None, folder: Path | None = None,
) -> ServedStepTimes:  # fmt: skip
    """The times of a model's steps on one GPU, or tensor-parallel over `ways` of them.

    topology, gpus  whose links carry the collectives, and which GPUs; needed where no table has their all-reduce
    most_tokens     of a step, up to which each number has its own time
    most_requests   that run at once: of a vLLM engine CUDA graphs are captured up to twice as many
    graphs          whether CUDA graphs are used
    overlap         whether the CPU works while the GPU computes; None: as the engine's version has it
    folder          of aiconfigurator's tables; None: of the installed package, if there is one
    Raises GpusimError for a model that cannot be split so, an engine without costs, and collectives without links.
    """
    model.divides(ways)
    added, version, _ = costs(engine)
    operators = operator_model(machine, added.framework, version, folder or installed())
    return assembled(
        operators, model, added, Exchanges(operators, ways, topology, tuple(gpus)), engine=engine, most_tokens=most_tokens,
        most_requests=most_requests, graphs=graphs, overlap=added.overlap if overlap is None else overlap,
    )  # fmt: skip


def operator_model(machine: Profile, framework: str, version: str, folder: Path | None) -> OperatorModel:
    """With the machine's own tables, or those of its kin, or none."""
    here = measured_gpu(machine)
    for name in dict.fromkeys((machine.name, here.own, *kin(machine))):
        if folder is not None and name in SYSTEMS:
            tables = ServingTables(folder, name, framework, version)
            if tables.gemm("bf16") is not None:
                same = machine if name in (machine.name, here.own) else catalogue.load(name)
                return OperatorModel(machine, tables, same)
    return OperatorModel(machine)


@dataclass
class Exchanges:
    """All-reduces of tensor parallelism: of the framework where a table has them, else NCCL's on the machine's links."""

    operators: OperatorModel
    ways: int
    topology: Topology | None
    gpus: tuple[str, ...]

    def ns(self, size: F64) -> F64:
        """Of so many bytes."""
        if self.ways == 1:
            return np.zeros_like(size)
        found = self.operators.all_reduce(self.ways, size)
        return self._nccl(size) if found is None else found

    def bars(self) -> tuple[float, float]:
        """Logarithms of true over stated; engines have all-reduces of their own, which NCCL's are not."""
        low, high = intervals()["measured" if "all_reduce" in self.operators.used else FORM]["collectives"]
        return low, high

    def _nccl(self, size: F64) -> F64:
        if self.topology is None:
            raise GpusimError(f"nothing says over which links {self.ways} GPUs exchange", hint="name a machine of several GPUs")
        gpus = self.gpus or self.topology.gpus[: self.ways]
        if len(gpus) != self.ways:
            raise GpusimError(f"machine '{self.topology.name}' has {len(gpus)} GPUs, the model is split over {self.ways}")
        times = CollectiveTimes(self.topology)
        known = np.exp2(np.arange(8.0, 31.0, 0.5))
        ns = np.array([times.of("all_reduce", gpus, int(n)).ns for n in known])
        return np.asarray(np.exp(np.interp(np.log(np.maximum(size, 1.0)), np.log(known), np.log(ns))), np.float64)


def assembled(
    operators: OperatorModel, model: ServedModel, added: EngineCosts, exchanges: Exchanges, *, engine: str, most_tokens: int,
    most_requests: int, graphs: bool, overlap: bool,
) -> ServedStepTimes:  # fmt: skip
    """The table of operators that were found."""
    machine, ways = operators.machine, exchanges.ways
    heads, kv_heads = model.heads_on(ways)
    by_token = _by_token(operators, exchanges, model, most_tokens)
    by_request = _by_request(operators, exchanges, model, most_requests)
    captured = added.captured(most_requests) if graphs else []
    b, kv, q = np.exp2(np.arange(0, 11 * step.STEPS + 1) / step.STEPS), _octaves(18), _octaves(18)
    decode = operators.decode(model.cache, b[:, None], kv[None, :], heads, kv_heads, model.head_size)
    few = np.exp2(np.arange(0, 8 * step.STEPS + 1) / step.STEPS)
    prefill = operators.prefill(model.cache, few[:, None], q[None, :], heads, kv_heads, model.head_size)
    low, high = _bars(operators, exchanges)
    table = step.packed({
        "by_token": by_token, "by_request": by_request, "decode": np.log(decode * model.layers),
        "prefill": np.log(prefill * model.layers), "captured": captured, "mixed": added.mixed, "overlap": overlap,
        "host_step": 1e3 * added.step_us, "host_request": 1e3 * added.request_us, "host_token": 1e3 * added.token_us,
        "launches": _LAYER_KERNELS * model.layers * float(machine.launch.eager.value), "low": low, "high": high,
    })  # fmt: skip
    return ServedStepTimes(table, model, machine.name, ways, engine, _sources(operators, exchanges))


def _octaves(count: int) -> F64:
    return np.exp2(np.arange(0, count * step.STEPS + 1) / step.STEPS)


def _by_token(operators: OperatorModel, exchanges: Exchanges, model: ServedModel, most: int) -> F64:
    """(3, most + 1) ns of products, collectives and other kernels of steps of 0, 1, ... tokens."""
    m, ways = np.arange(1.0, most + 1), exchanges.ways
    gemm = np.zeros(most)
    for shape in model.matrices(ways):
        gemm += shape.layers * operators.gemm(shape.dtype, m, shape.n, shape.k)
    if model.experts:
        few = np.unique(np.rint(np.exp2(np.linspace(0, np.log2(most), 200))))
        at = operators.moe(model.weights, few, model.width, model.hidden, model.chosen, model.experts, ways)
        gemm += model.layers * np.exp(np.interp(np.log(m), np.log(few), np.log(at)))
    heads, kv_heads = model.heads_on(ways)
    row, head, kept = 2.0 * model.width * m, 2.0 * heads * model.head_size * m, 2.0 * kv_heads * model.head_size * m
    inner = 2.0 * (model.shared if model.experts else model.hidden) // ways * m
    layer = 2 * operators.stream(4 * row, normed=True)  # adds and norms: two rows in, two out
    layer += operators.stream(2 * (head + kept)) + operators.stream(4 * kept)  # rotation; keys and values into the cache
    layer += operators.stream((3 if model.gated else 2) * inner, normed=True)
    other = model.layers * layer + operators.stream(2 * row)
    collectives = (2 * model.layers + 1) * exchanges.ns(row)
    return np.concatenate([np.zeros((3, 1)), np.stack([gemm, collectives, other])], axis=1)


def _by_request(operators: OperatorModel, exchanges: Exchanges, model: ServedModel, most: int) -> F64:
    """(3, most + 1) ns of the head, its exchange, and sampling, for 0, 1, ... requests."""
    n, ways = np.arange(1.0, most + 1), exchanges.ways
    shape = model.head(ways)
    scores = n * model.vocabulary
    gathered = exchanges.ns(2.0 * scores) / 2 if ways > 1 else np.zeros(most)  # an all-gather is half of an all-reduce
    sampling = operators.stream(6.0 * scores) + 2 * operators.stream(4.0 * scores)  # to fp32, the largest, its index
    return np.concatenate(
        [np.zeros((3, 1)), np.stack([operators.gemm(shape.dtype, n, shape.n, shape.k), gathered, sampling])], axis=1
    )


@cache
def intervals() -> dict[str, Bars]:
    """By basis and part: 10th and 90th percentile of log(true / stated) of what a slice held out."""
    found: dict[str, Any] = document.read(DATA).data
    return {basis: {part: [float(n) for n in bars] for part, bars in of.items()} for basis, of in found.items()}


def _bars(operators: OperatorModel, exchanges: Exchanges) -> tuple[list[float], list[float]]:
    """Multiples of a part between which it is, four times out of five."""
    known = intervals()
    gemm = known[operators.basis("gemm")]["gemm"]
    attention = known[min((operators.basis(kind) for kind in ("decode", "prefill")), key=_rank)]["attention"]
    parts = [gemm, attention, exchanges.bars(), known[FORM]["other"], _HOST_BARS]
    return [float(np.exp(min(p[0], 0.0))) for p in parts], [float(np.exp(max(p[1], 0.0))) for p in parts]


def _rank(basis: str) -> int:
    return (FORM, "family", "measured").index(basis)


def _sources(operators: OperatorModel, exchanges: Exchanges) -> dict[str, str]:
    kinds = ("gemm", "decode", "prefill", *(("moe",) if "moe" in operators.used else ()))
    found = {kind: operators.used.get(kind, "kernel-time model") for kind in kinds}
    if exchanges.ways > 1:
        found["collectives"] = operators.used.get("all_reduce", "NCCL on the machine's links")
    return found


