"""Seeded programs for tests, benchmarks and questions about shape rather than about one model; vectorised, any length.

A program is described by when its tensors are allocated, freed and used; `_assemble` turns that into events.
The same arguments give the same trace (PCG64).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from gpusim.trace.build import make_trace
from gpusim.trace.trace import ALLOC, FREE, I64, OP, PHASE, Trace

_HALF = 2  # bytes of a bfloat16 element


def random_program(
    seed: int,
    ops: int = 1000,
    *,
    mean_life: float = 20.0,
    uses: float = 2.0,
    largest: int = 64 * 2**20,
    parameters: int = 8,
    kept: float = 0.01,
    streams: int = 1,
    name: str = "random",
) -> Trace:
    """Each operator makes one tensor and reads earlier ones that still live; about 3 events per operator.

    mean_life   operators for which a tensor lives, on average (geometric)
    uses        reads per tensor, on average (Poisson), anywhere in its life
    largest     bytes; sizes are uniform within an octave, octaves up to it equally likely, 2 % are 0
    parameters  tensors that exist from the start, read at random, written now and then, never freed
    kept        share of the other tensors that is never freed
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    tensors = parameters + ops
    octave = rng.integers(0, max(largest.bit_length(), 1), tensors)
    size = np.minimum(np.ldexp(1 + rng.random(tensors), octave).astype(np.int64), largest)  # exact, unlike exp
    size[rng.random(tensors) < 0.02] = 0
    born = np.concatenate([np.full(parameters, -1), np.arange(ops)])
    died = born + rng.geometric(1 / max(mean_life, 1.0), tensors) - 1
    died[:parameters] = ops
    died[rng.random(tensors) < kept] = ops
    died = np.minimum(died, ops)  # what outlives the last operator is never freed
    reads = rng.poisson(uses, tensors)
    reader = np.repeat(np.arange(tensors), reads)
    first, last = born[reader] + 1, np.minimum(died[reader], ops - 1)
    at = first + (rng.random(len(reader)) * (last - first + 1)).astype(np.int64)
    alive = (first <= last) & (first >= 0)
    updates = rng.integers(0, max(ops, 1), max(parameters, 0)) if ops else np.zeros(0, np.int64)
    return _assemble(
        name,
        _Program(
            size=size,
            category=np.concatenate([np.zeros(parameters, np.int64), np.ones(ops, np.int64)]),
            categories=("param", "fwd"),
            born=born,
            died=died,
            reads=(at[alive], reader[alive]),
            writes=(np.concatenate([np.arange(ops), updates]), np.concatenate([np.arange(parameters, tensors),
                                                                               np.arange(len(updates))])),
            op=rng.integers(0, 4, ops),
            op_names=("aten.mm.default", "aten.add.Tensor", "aten.gelu.default", "aten.native_layer_norm.default"),
            flops=rng.integers(0, 2**33, ops).astype(np.float64),
            stream=rng.integers(0, streams, ops),
        ),
        {"generator": "random_program", "seed": seed},
    )  # fmt: skip


def training(
    steps: int | Sequence[int] = 2, *, layers: int = 12, width: int = 768, tokens: int = 8192, name: str = "training"
) -> Trace:
    """Steps of a plain residual network in bfloat16: forward, backward in reverse, Adam; activations live in between.

    steps   how many, or the tokens of each step in turn (a variable-length workload)
    """
    lengths = np.full(steps, tokens, np.int64) if isinstance(steps, int) else np.asarray(steps, np.int64)
    step = _training_step(layers, width)
    count, ops, temporaries = len(lengths), step.ops, len(step.size)
    kept = 4 * layers  # parameter, two Adam moments, gradient
    offset = np.repeat(np.arange(count), temporaries)
    fixed = np.full(layers, width * width * 4 * _HALF)
    size = np.concatenate([np.tile(fixed, 4), (step.size * lengths[:, None]).ravel()])

    def tiled(tensor: I64) -> I64:
        """Tensor numbers of the step, in each of the steps: kept ones first, then each step's own."""
        again = np.where(tensor < kept, 0, temporaries)
        return np.asarray((tensor + again * np.arange(count)[:, None]).ravel())

    def at(op: I64) -> I64:
        return np.asarray((op + ops * np.arange(count)[:, None]).ravel())

    phases = [f"step{s}.{p}" for s in range(count) for p in ("fwd", "bwd", "opt")]
    starts = np.array([0, layers, 2 * layers])
    per_token = np.concatenate([np.full(2 * layers, True), np.full(layers, False)])
    flops = np.where(per_token, step.flops * lengths[:, None], step.flops)
    return _assemble(
        name,
        _Program(
            size=size,
            category=np.concatenate([np.repeat([0, 1, 1, 2], layers), np.tile(step.category, count)]),
            categories=("param", "opt", "grad", "fwd", "bwd"),
            born=np.concatenate([np.full(kept, -1), np.tile(step.born, count) + ops * offset]),
            died=np.concatenate([np.full(kept, ops * count), np.tile(step.died, count) + ops * offset]),
            reads=(at(step.read_op), tiled(step.read_tensor)),
            writes=(at(step.write_op), tiled(step.write_tensor)),
            op=np.tile(np.repeat([0, 1, 2], layers), count),
            op_names=("aten.addmm.default", "aten.mm.default", "aten._foreach_addcdiv_.ScalarList"),
            flops=flops.ravel(),
            stream=np.zeros(ops * count, np.int64),
            phases=tuple(phases),
            phase_at=at(starts),
        ),
        {"generator": "training", "layers": layers, "width": width, "tokens": lengths.tolist()[:100]},
    )


def variable_length(
    seed: int, steps: int = 16, *, shortest: int = 512, longest: int = 8192, layers: int = 12, width: int = 768,
    name: str = "variable-length",
) -> Trace:  # fmt: skip
    """Training steps whose tokens are drawn log-uniformly: no block of one step fits the next exactly."""
    rng = np.random.Generator(np.random.PCG64(seed))
    lengths = np.exp(rng.uniform(np.log(shortest), np.log(longest + 1), steps)).astype(np.int64)
    return training(np.minimum(lengths, longest).tolist(), layers=layers, width=width, name=name)


@dataclass(frozen=True)
class _Step:
    """One training step: its own tensors (bytes per token) and their uses; kept tensors come first."""

    ops: int
    size: I64
    category: I64
    born: I64
    died: I64
    read_op: I64
    read_tensor: I64
    write_op: I64
    write_tensor: I64
    flops: npt.NDArray[np.float64]


def _training_step(layers: int, width: int) -> _Step:
    """Operators: forward 0..L-1, backward L..2L-1 (of layer L-1 first), Adam 2L..3L-1."""
    layer = np.arange(layers)
    param, first, second, grad = layer, layers + layer, 2 * layers + layer, 3 * layers + layer
    activation, gradient = 4 * layers + layer, 5 * layers + layer  # of the layer's output and of its input
    forward, backward, adam = layer, 2 * layers - 1 - layer, 2 * layers + layer
    return _Step(
        ops=3 * layers,
        size=np.full(2 * layers, width * _HALF),
        category=np.repeat([3, 4], layers),
        born=np.concatenate([forward, backward]),
        # An activation is needed until the backward of its own layer; a gradient until that of the layer below.
        died=np.concatenate([backward, np.minimum(backward + 1, 2 * layers - 1)]),
        read_op=np.concatenate([forward, forward[1:], backward, backward, backward[:-1], adam, adam, adam, adam]),
        read_tensor=np.concatenate([param, activation[:-1], param, activation, gradient[1:], param, first, second, grad]),
        write_op=np.concatenate([forward, backward, backward, adam, adam, adam]),
        write_tensor=np.concatenate([activation, gradient, grad, param, first, second]),
        flops=np.concatenate([np.full(layers, 8.0 * width**2), np.full(layers, 16.0 * width**2), np.zeros(layers)]),
    )


@dataclass(frozen=True)
class _Program:
    """T tensors and O operators, before they are put in order.

    `born` is the operator before which a tensor is allocated (-1: before all), `died` the one after which it is freed
    (O: never); reads and writes are (operator, tensor) pairs in any order.
    """

    size: I64
    category: I64
    categories: tuple[str, ...]
    born: I64
    died: I64
    reads: tuple[I64, I64]
    writes: tuple[I64, I64]
    op: I64
    op_names: tuple[str, ...]
    flops: npt.NDArray[np.float64]
    stream: I64
    phases: tuple[str, ...] = ()
    phase_at: I64 = field(default_factory=lambda: np.zeros(0, np.int64))  # the operator before which each phase begins


def _assemble(name: str, program: _Program, meta: dict[str, object]) -> Trace:
    """Events in program order: at each operator its phase, its allocs, itself, its frees."""
    ops = len(program.op)
    freed = np.flatnonzero(program.died < ops)
    born = np.argsort(program.born, kind="stable")
    parts = (
        (PHASE, program.phase_at, np.arange(len(program.phase_at))),
        (ALLOC, program.born[born], born),
        (OP, np.arange(ops), np.arange(ops)),
        (FREE, program.died[freed], freed),
    )
    when = np.concatenate([4 * at + place for place, (_, at, _) in enumerate(parts)])
    order = np.argsort(when, kind="stable")
    kind = np.concatenate([np.full(len(at), k, np.uint8) for k, at, _ in parts])[order]
    arg = np.concatenate([tensors for _, _, tensors in parts])[order]
    # Tensors are renumbered in the order of their allocs, as a recorder would number them.
    number = np.empty(len(born), np.int64)
    number[born] = np.arange(len(born))
    tensor_event = (kind == ALLOC) | (kind == FREE)
    arg[tensor_event] = number[arg[tensor_event]]
    read_start, read_id, read_bytes = _csr(program.reads, number, program.size, ops)
    write_start, write_id, written_bytes = _csr(program.writes, number, program.size, ops)
    stream = np.zeros(len(kind), np.int16)
    stream[kind == OP] = program.stream
    columns: dict[str, npt.ArrayLike] = {
        "size": program.size[born], "category": program.category[born], "kind": kind, "arg": arg, "stream": stream,
        "op": program.op, "dtype": np.zeros(ops, np.int16), "flops": program.flops, "read_bytes": read_bytes,
        "written_bytes": written_bytes, "read_start": read_start, "read_id": read_id, "write_start": write_start,
        "write_id": write_id,
    }  # fmt: skip
    tables = {"categories": program.categories, "op_names": program.op_names, "dtypes": ("bfloat16",)}
    notes = {"format": "synthetic", "lacks": ["times", "addresses"], **meta}
    return make_trace(name, columns, {**tables, "phases": program.phases}, notes)


def _csr(pairs: tuple[I64, I64], number: I64, size: I64, ops: int) -> tuple[I64, I64, I64]:
    """(start, tensor ids, bytes per operator) of (operator, tensor) pairs; an operator lists a tensor once."""
    at, tensor = pairs
    order = np.lexsort((tensor, at))
    at, tensor = at[order], tensor[order]
    fresh = np.ones(len(at), bool)
    fresh[1:] = (np.diff(at) != 0) | (np.diff(tensor) != 0)
    at, tensor = at[fresh], tensor[fresh]
    start = np.concatenate([[0], np.cumsum(np.bincount(at, minlength=ops))])
    return start, number[tensor], np.bincount(at, size[tensor], minlength=ops).astype(np.int64)
