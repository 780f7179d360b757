"""What `batch` and `sequence` share: how sizes and work grow with what a program works on, guessed from its structure or
fitted to further recordings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.base.errors import GpusimError, TraceError
from gpusim.trace.edit import Edit, issued
from gpusim.trace.elements import base_name, element_bytes
from gpusim.trace.files import load_trace
from gpusim.trace.iterations import iterations
from gpusim.trace.roles import (
    ACTIVATION,
    BACKWARD,
    FORWARD,
    GRADIENT,
    INPUT,
    OPTIMIZER,
    PARAMETER,
    WORKSPACE,
    phase_kinds,
    roles,
)
from gpusim.trace.trace import ALLOC, I64, Trace

F64 = npt.NDArray[np.float64]
_SIZES, _WORK = ("size",), ("flops", "read_bytes", "written_bytes")
_PASSES_ON = ("add", "add_", "mul", "mul_", "div", "neg", "clone", "copy_", "_to_copy", "sub")  # a gradient, element by element
_MATRIX = ("bmm", "baddbmm")


def scaled(trace: Trace, what: str, factor: float, square: bool) -> Trace:
    """The program with `factor` times as many samples (or tokens, where square: attention then grows with its square)."""
    grows, twice = _growing(trace, square)
    edit = Edit(trace)
    power = grows.astype(np.float64) + twice
    edit["size"][:] = np.rint(trace.size * factor**power)
    _refuse_uneven(trace, what, edit["size"])
    ops = _of_operators(trace.read_start, trace.read_id, trace.write_start, trace.write_id, power)
    held = np.where(roles(trace) == WORKSPACE, 0, trace.size)  # what a library does in its own does not count
    for column, start, ids in (
        ("read_bytes", trace.read_start, trace.read_id), ("written_bytes", trace.write_start, trace.write_id)
    ):  # fmt: skip
        edit[column][:] = _scaled_bytes(start, ids, held, np.where(held, edit["size"], 0), getattr(trace, column), factor**ops)
    fused = np.array(["attention" in name for name in trace.op_names] or [False])[trace.op] & square
    work = factor ** np.maximum(ops, 2.0 * fused)
    edit["flops"][:] = trace.flops * work
    known = trace.duration >= 0
    edit["duration"][known] = np.rint(trace.duration[known] * work[known])
    edit.warn(f"{what} scaled {factor:g} times from one recording: what carries it was told from the structure of the program")
    return edit.finish()


def _refuse_uneven(trace: Trace, what: str, size: I64) -> None:
    """TraceError where steps that were recorded alike do not grow alike: some make their data from nothing, as `randn` does."""
    alloc = np.flatnonzero(trace.kind == ALLOC)
    alloc = alloc[roles(trace)[trace.arg[alloc]] == ACTIVATION]
    step, tensor = iterations(trace)[alloc], trace.arg[alloc]
    if not len(step) or step.min() < 0:
        return
    before, after = (np.bincount(step, bytes_[tensor].astype(np.float64)) for bytes_ in (trace.size, size))
    if len(np.unique(after[before == before.max()])) > 1:
        said = f"{trace.name}: what carries the {what} cannot be told: steps that were recorded alike would not grow alike"
        raise TraceError(said, hint="a program that makes its data on the GPU in every step is recorded with that moved there")


def fitted(trace: Trace, what: str, factor: float, files: str) -> Trace:
    """The same from further recordings of the program: every size and all work as a polynomial of the size of the input.

    Two recordings give a line.  From three on the outermost give the line, and the others its error; where that is above
    0.1 %, three give a parabola, and any others the error of that.
    """
    others = [load_trace(Path(name.strip())) for name in files.split(";") if name.strip()]
    x = np.array([_input(each) / _input(trace) for each in (trace, *others)])
    order = np.argsort(x)
    known = [(trace, *others)[i] for i in order]
    x = x[order]
    if len(x) < 2 or (np.diff(x) <= 0).any():
        raise GpusimError(f"the recordings to fit {what} to must all have inputs of different sizes", hint=f"sizes: {x}")
    for each in known:
        _same_program(trace, each)
    edit = Edit(trace)
    worst: dict[int, tuple[float, str]] = {}
    for degree in (1, 2) if len(x) > 2 else (1,):
        picked = [0, len(x) - 1] if degree == 1 else [0, len(x) // 2, len(x) - 1]
        worst[degree] = max((_error(known, x, picked, column), column) for column in (*_SIZES, *_WORK))
        if worst[degree][0] <= 1e-3:
            break
    for column in (*_SIZES, *_WORK):
        found = _polynomial([getattr(each, column) for each in known], x, picked, factor)
        edit[column][:] = found if column == "flops" else np.rint(np.maximum(found, 0))
    edit["duration"][:] = -1
    left = len(x) - len(picked)
    error, column = worst[degree]
    checked = f"largest error on {left} more: {error:.2%} of all {_words(column)}" if left else "with none left to check it"
    kind = "line" if degree == 1 else "parabola"
    beyond = "" if x[0] <= factor <= x[-1] else f"; {factor:g} times is beyond them"
    edit.warn(f"{what} scaled {factor:g} times by a {kind} through {len(picked)} recordings, {checked}{beyond}")
    return edit.finish()


def factor_of(trace: Trace, what: str, keys: tuple[str, ...], factor: float, to: int, of: int) -> float:
    """How many times as much, from a factor or from a target and what the recording had."""
    if not to and factor == 1.0:
        raise GpusimError(f"{what} needs a factor or a target", hint=f"{what}(factor=2) or {what}(to=16)")
    if not to:
        return factor
    if factor != 1.0:
        raise GpusimError(f"{what} takes a factor or `to`, not both")
    recorded = of or recorded_size(trace, keys)
    if not recorded:
        raise TraceError(f"{trace.name}: its meta does not say its {what}", hint=f"add of=N: the {what} of the recording")
    return to / recorded


def recorded_size(trace: Trace, keys: tuple[str, ...]) -> int:
    """What the recording says of itself: in its meta, or in its name "gpt2-small(batch=4, seq=512)"."""
    for key in keys:
        for found in (trace.meta.get(key), trace.meta.get("recorder", {}).get(key)):
            if isinstance(found, int):
                return found
        if match := re.search(rf"\b{key}=(\d+)", trace.name):
            return int(match[1])
    return 0


def _input(trace: Trace) -> int:
    sizes = trace.size[roles(trace) == INPUT]
    if not len(sizes):
        raise TraceError(f"{trace.name}: none of its tensors is an input, so what grows with it cannot be told")
    return int(sizes.max())


def _same_program(a: Trace, b: Trace) -> None:
    """Raises TraceError unless both did the same operators on the same tensors."""
    same = (a.tensors, a.ops) == (b.tensors, b.ops)
    names = [np.array(t.op_names, dtype=object)[t.op] for t in (a, b)] if same and a.ops else []
    if not same or (names and (names[0] != names[1]).any()) or not np.array_equal(a.write_id, b.write_id):
        where = f" at operator {int((names[0] != names[1]).argmax())}" if names and (names[0] != names[1]).any() else ""
        raise TraceError(f"{a.name} and {b.name} are not the same program{where}", hint="record it with other sizes only")


def _polynomial(values: list[Any], x: F64, picked: list[int], at: float) -> F64:
    """Through the picked recordings, after Lagrange."""
    total = np.zeros(len(values[0]))
    for i in picked:
        weight = float(np.prod([(at - x[j]) / (x[i] - x[j]) for j in picked if j != i]))
        total += weight * values[i]
    return total


def _error(known: list[Trace], x: F64, picked: list[int], column: str) -> float:
    """The largest relative error of the sum of a column, over the recordings that were not picked."""
    errors = [0.0]
    for i in set(range(len(x))) - set(picked):
        real = float(getattr(known[i], column).sum())
        found = float(_polynomial([getattr(each, column) for each in known], x, picked, float(x[i])).sum())
        errors.append(abs(found - real) / real if real else 0.0)
    return max(errors)


def _words(column: str) -> str:
    return {"size": "bytes of tensors", "flops": "arithmetic"}.get(column, column.replace("_", " "))


def _growing(trace: Trace, square: bool) -> tuple[Any, Any]:
    """Which tensors grow with the input, and which of them with its square."""
    role = roles(trace)
    if not (role == INPUT).any():
        _input(trace)
    kinds = phase_kinds(trace)[issued(trace)]
    bases = [base_name(name) for name in trace.op_names]
    passes_on = np.array([base in _PASSES_ON for base in bases] or [False])[trace.op]
    source = np.array([base.startswith("arange") and square for base in bases] or [False])[trace.op]
    fixed = np.isin(role, (PARAMETER, GRADIENT, OPTIMIZER, WORKSPACE))
    norms = np.flatnonzero(np.array(["batch_norm" in base and "backward" not in base for base in bases] or [False])[trace.op])
    for position in (1, 2):  # statistics of channels
        fixed[trace.write_id[(at := trace.write_start[norms] + position)[at < trace.write_start[norms + 1]]]] = True
    grows = _tainted(trace.read_start, trace.read_id, trace.write_start, trace.write_id, kinds == FORWARD, kinds == BACKWARD,
                     passes_on, source, fixed, role == INPUT, role == GRADIENT, trace.size)  # fmt: skip
    twice = np.zeros(trace.tensors, bool)
    if square:
        softmax = np.array([base in ("_softmax", "_safe_softmax") for base in bases] or [False])[trace.op]
        twice = _quadratic(trace, grows, softmax)
    return grows, twice


def _quadratic(trace: Trace, grows: Any, softmax: Any) -> Any:
    """Tensors with as many elements as an attention's softmax of the same block, which are tokens by tokens."""
    elements = trace.size // np.maximum(element_bytes(trace), 1)
    written = trace.write_id[np.repeat(softmax, np.diff(trace.write_start))]
    found: Any = grows & np.isin(elements, np.unique(elements[written])) if len(written) else np.zeros(trace.tensors, bool)
    return found


@kept()
def _tainted(read_start: Any, read_id: Any, write_start: Any, write_id: Any, forward: Any, backward: Any, passes_on: Any,
             source: Any, fixed: Any, inputs: Any, gradient: Any, size: Any) -> Any:  # fmt: skip
    """What is made of the input grows; in backward all does but what becomes a gradient of a parameter, element by element."""
    ops = forward.size
    found, summed = inputs.copy(), gradient.copy()
    for o in range(ops - 1, -1, -1):
        if backward[o] and passes_on[o]:
            for i in range(write_start[o], write_start[o + 1]):
                if summed[write_id[i]]:
                    for j in range(read_start[o], read_start[o + 1]):
                        r, w = size[read_id[j]], size[write_id[i]]
                        if r == w or r == 2 * w or 2 * r == w:
                            summed[read_id[j]] = True
    for o in range(ops):
        grows = backward[o] or source[o]
        for i in range(read_start[o], read_start[o + 1]):
            grows = grows or found[read_id[i]]
        if (forward[o] or backward[o] or not (forward.any() or backward.any())) and grows:
            for i in range(write_start[o], write_start[o + 1]):
                t = write_id[i]
                if not fixed[t] and not summed[t] and size[t] > 8:  # a scalar stays one
                    found[t] = True
    return found


@kept()
def _of_operators(read_start: Any, read_id: Any, write_start: Any, write_id: Any, power: Any) -> Any:
    """Arithmetic grows as the largest of what an operator reads and writes does."""
    found = np.zeros(read_start.size - 1)
    for o in range(found.size):
        for i in range(read_start[o], read_start[o + 1]):
            found[o] = max(found[o], power[read_id[i]])
        for i in range(write_start[o], write_start[o + 1]):
            found[o] = max(found[o], power[write_id[i]])
    return found


@kept()
def _scaled_bytes(start: Any, ids: Any, old: Any, new: Any, moved: Any, times: Any) -> Any:
    """What an operator moves: all of its tensors; or, where it was less (rows of a table), in proportion to its work."""
    found = np.empty(moved.size, np.int64)
    for o in range(moved.size):
        before, after = 0, 0
        for i in range(start[o], start[o + 1]):
            before += old[ids[i]]
            after += new[ids[i]]
        found[o] = after if before == moved[o] else np.int64(np.rint(moved[o] * times[o]))
    return found
