"""When gradients are complete: pass by pass, bucket by bucket.  What shards or offloads them takes them from there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.base.units import BYTES, parse
from gpusim.trace import elements
from gpusim.trace.edit import Edit, Mask, begun, issued
from gpusim.trace.model_blocks import blocks
from gpusim.trace.roles import BACKWARD, GRADIENT, STEP, lives, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COLLECTIVE, FREE, I64, OP, Trace

OWN = "gpusim::"  # the operators that transforms add


@dataclass(frozen=True)
class Gradients:
    """A row for each gradient and backward pass that writes it, in the order in which they are complete."""

    tensor: I64
    of_pass: I64
    first: I64   # the operators of the pass that touch it first and last
    last: I64
    bucket: I64
    fires: I64   # (buckets,) the event before which the bucket is complete
    sent: Any    # (rows,) bytes that are exchanged of each


BLOCK = "block"
AS_MADE = "made"
_TYPES = {"fp32": 4, "bf16": 2, "fp16": 2}


def gradients(
    trace: Trace, bucket: str, once: bool = False, reduced: str = AS_MADE, modules: Mask | None = None
) -> Gradients:
    """The gradients in their buckets.

    bucket   bytes that are in each at least, but for the last of a pass; or "block": those of one block of the model
    once     only the last pass before an optimizer step counts, which completes what the passes before have begun
    reduced  the type in which they are exchanged, or "made"
    modules  (M + 1,) of whose operators they are; None: of all
    Raises GpusimError for another type, TraceError for a trace without gradients.
    """
    made = _rows(trace)
    if modules is not None:
        made = _some(made, modules[trace.module[made.first]])
    if once:
        made = _last_of_steps(trace, made)
    number = _by_block(trace, made) if bucket == BLOCK else _by_size(trace, made, int(parse(bucket, BYTES)))
    fires = np.zeros(int(number.max(initial=-1)) + 1, np.int64)
    np.maximum.at(fires, number, issued(trace)[made.last] + 1)
    return replace(made, bucket=number, fires=fires, sent=_sent(trace, made.tensor, reduced))


def _last_of_steps(trace: Trace, g: Gradients) -> Gradients:
    """Of the rows of each gradient the last before each optimizer step."""
    steps = np.cumsum(phase_kinds(trace)[issued(trace)] == STEP)[g.last]
    key, which = np.unique(steps * trace.tensors + g.tensor, return_inverse=True)
    last = np.full(len(key), -1)
    np.maximum.at(last, which, g.of_pass)
    return _some(g, g.of_pass == last[which])


def _some(g: Gradients, kept: Mask) -> Gradients:
    """These rows, not yet in buckets."""
    return replace(
        g, tensor=g.tensor[kept], of_pass=g.of_pass[kept], first=g.first[kept], last=g.last[kept], bucket=g.bucket[kept]
    )


def _by_size(trace: Trace, g: Gradients, least: int) -> I64:
    """(rows,) the bucket of each, in the order in which they are complete."""
    number, held, found = -1, least, np.zeros(len(g.tensor), np.int64)
    for row, size in enumerate(trace.size[g.tensor].tolist()):
        if held >= least or g.of_pass[row] != g.of_pass[row - 1]:
            number, held = number + 1, 0
        found[row] = number
        held += size
    return found


def _by_block(trace: Trace, g: Gradients) -> I64:
    """(rows,) the bucket of each: of a pass the gradients of one block, and all that belong to none."""
    block = blocks(trace, np.unique(g.first))[trace.module[g.first]]
    pairs = np.stack([g.of_pass, block], 1)
    _, found = np.unique(pairs, axis=0, return_inverse=True)
    return np.asarray(found, np.int64).ravel()


def _sent(trace: Trace, tensor: I64, reduced: str) -> Any:
    if reduced == AS_MADE:
        return trace.size[tensor].astype(float)
    if reduced not in _TYPES:
        raise GpusimError(f"gradients cannot be exchanged in '{reduced}'", hint=suggest(reduced, (*_TYPES, AS_MADE)))
    types, names = elements.element_types(trace)
    if (types[tensor] < 0).any():
        raise TraceError(f"{trace.name}: the type of its gradients cannot be told", hint="operators must say their dtype")
    width = np.array([elements.BYTES[name] for name in names])[types[tensor]]
    return trace.size[tensor] / width * _TYPES[reduced]


def _rows(trace: Trace) -> Gradients:
    """The gradients, not yet in buckets."""
    wanted: Mask = roles(trace) == GRADIENT
    if not wanted.any():
        raise TraceError(f"{trace.name}: there are no gradients", hint="a training step with phases fwd, bwd and opt is needed")
    op, tensor, passes = _touches(trace, wanted)
    key, which = np.unique(passes[op] * trace.tensors + tensor, return_inverse=True)
    first, last = np.full(len(key), trace.ops), np.full(len(key), -1)
    np.minimum.at(first, which, op)
    np.maximum.at(last, which, op)
    order = np.argsort(last, kind="stable")
    key, first, last = key[order], first[order], last[order]
    of_pass, tensor = np.divmod(key, trace.tensors)
    none = np.zeros(0, np.int64)
    return Gradients(tensor, of_pass, first, last, np.zeros(len(tensor), np.int64), none, none)


def stand_ins(edit: Edit, g: Gradients) -> I64:
    """(rows,) new tensors that a pass works on instead of the gradient itself, which nothing in the pass allocates any more.

    They are to be freed when the bucket has been taken, and are no gradients to the transforms that follow.
    """
    trace = edit.trace
    made = edit.add_tensors(trace.size[g.tensor], edit.name("categories", "bwd"))
    born, _ = lives(trace)
    own = made_in_pass(trace, g)
    edit.insert(np.where(own, born[g.tensor], begun(trace)[g.first]), ALLOC, made)
    gone = np.zeros(trace.events, bool)
    gone[born[g.tensor[own]]] = True
    edit.drop_events(gone)
    by_key = np.argsort(g.of_pass * trace.tensors + g.tensor)
    key = (g.of_pass * trace.tensors + g.tensor)[by_key]
    wanted = np.zeros(trace.tensors, bool)
    wanted[g.tensor] = True
    for side in ("read", "write"):
        op, tensor, passes, at = _side(trace, side, wanted)
        edit[f"{side}_id"][at] = made[by_key[np.searchsorted(key, passes[op] * trace.tensors + tensor)]]
    return made


def reduce(edit: Edit, g: Gradients, name: str, share: float, stream: int, group: str = "data") -> None:
    """One collective of the group for each bucket, which leaves the gradients where they are."""
    _operate(edit, g, g.tensor, g.tensor, name, COLLECTIVE, share, stream, group=group)


def take(
    edit: Edit, g: Gradients, whole: I64, kept: I64 | None, name: str, activity: int, share: float, stream: int
) -> None:
    """One operator for each bucket, which reads the stand-ins `whole`, writes `kept` if anything, and ends the stand-ins.

    share    of the bucket's bytes that it moves
    """
    _operate(edit, g, whole, kept, name, activity, share, stream)
    edit.insert(g.fires[g.bucket], FREE, whole)


def _operate(
    edit: Edit, g: Gradients, reads: I64, writes: I64 | None, name: str, activity: int, share: float, stream: int, *,
    group: str = "data",
) -> None:  # fmt: skip
    size = np.bincount(g.bucket, g.sent, len(g.fires))
    count = np.bincount(g.bucket, minlength=len(g.fires))
    order = np.argsort(g.bucket, kind="stable")
    written = (0 * count, order[:0]) if writes is None else (count, writes[order])
    exchanged: dict[str, Any] = {}
    if activity == COLLECTIVE:
        exchanged["exchange"] = edit.exchanges(name.removeprefix(OWN), group, size.astype(np.int64))
    operators = edit.add_operators(
        (count, reads[order]), written, op=edit.name("op_names", name), activity=activity,
        read_bytes=np.rint(size * share).astype(np.int64), **exchanged,
    )  # fmt: skip
    edit.insert(g.fires, OP, operators, stream)


def made_in_pass(trace: Trace, g: Gradients) -> Mask:
    """(rows,) whether the pass itself allocates the gradient, and does not find it from before."""
    born, _ = lives(trace)
    first_pass = np.full(trace.tensors, np.iinfo(np.int64).max)
    np.minimum.at(first_pass, g.tensor, g.of_pass)
    found: Mask = (phase_kinds(trace)[born[g.tensor]] == BACKWARD) & (g.of_pass == first_pass[g.tensor])
    return found


def _touches(trace: Trace, wanted: Mask) -> tuple[I64, I64, I64]:
    read, write = (_side(trace, side, wanted) for side in ("read", "write"))
    return np.concatenate([read[0], write[0]]), np.concatenate([read[1], write[1]]), read[2]


def _side(trace: Trace, side: str, wanted: Mask) -> tuple[I64, I64, I64, I64]:
    """Accesses of wanted tensors in backward: (operator, tensor), then (O,) number of the pass, then their rows."""
    backward = phase_kinds(trace)[issued(trace)] == BACKWARD
    passes = np.cumsum(np.diff(backward, prepend=False) & backward)
    op = np.repeat(np.arange(trace.ops), np.diff(getattr(trace, f"{side}_start")))
    ids = getattr(trace, f"{side}_id")
    at = np.flatnonzero(wanted[ids] & backward[op])
    return op[at], ids[at], passes, at
