"""What each tensor is to a training step: from its category where that says it, else from its producer and its readers."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import kept
from gpusim.trace.trace import ALLOC, FREE, I64, OP, PHASE, Trace, derived

ROLES = ("parameter", "gradient", "optimizer", "activation", "temporary", "workspace", "input", "unknown")
PARAMETER, GRADIENT, OPTIMIZER, ACTIVATION, TEMPORARY, WORKSPACE, INPUT, UNKNOWN = range(len(ROLES))

# Categories that say the role; the others ("fwd", "bwd", "opt", ...) name the phase in which a tensor was made.
DEFERRED = "deferred"  # made in a backward pass for gradients of weights that come in a later phase
_SAID = {
    "param": PARAMETER, "buffer": PARAMETER, "grad": GRADIENT, "workspace": WORKSPACE, "input": INPUT, DEFERRED: TEMPORARY,
}  # fmt: skip

# Kinds of phases.
BEFORE, FORWARD, BACKWARD, STEP, OTHER = range(5)
_KINDS = {
    "fwd": FORWARD, "forward": FORWARD, "init": FORWARD, "bwd": BACKWARD, "backward": BACKWARD, "opt": STEP, "optim": STEP,
    "optimizer": STEP,
}  # fmt: skip


@derived
def phase_kinds(trace: Trace) -> npt.NDArray[np.int8]:
    """(E,) the kind of phase each event is in: "step0.bwd" is BACKWARD.  BEFORE: no operator has run, so nothing began.

    Where the first phase is backward, the operators before it are FORWARD.
    """
    words = [name.rpartition(".")[2].rstrip("0123456789") for name in trace.phases]
    kinds = np.array([*(_KINDS.get(word, OTHER) for word in words), OTHER], np.int8)
    marks = np.flatnonzero(trace.kind == PHASE)
    found = np.full(trace.events, OTHER, np.int8)
    if len(marks):
        found[marks[0] :] = np.repeat(kinds[trace.arg[marks]], np.diff(np.append(marks, trace.events)))
        if kinds[trace.arg[marks[0]]] in (BACKWARD, STEP):
            found[: marks[0]] = FORWARD
    ops = np.flatnonzero(trace.kind == OP)
    begun = min(marks[0] if len(marks) else trace.events, _first_own(trace, ops))
    found[:begun] = BEFORE
    return found


def _first_own(trace: Trace, ops: I64) -> int:
    """The event with which the first operator begins: its own event, or the first alloc of what it only writes."""
    if not len(ops):
        return trace.events
    event = int(ops[0])
    old = set(trace.read_id[: trace.read_start[1]].tolist())
    new = set(trace.write_id[: trace.write_start[1]].tolist()) - old
    while event and trace.kind[event - 1] == ALLOC and int(trace.arg[event - 1]) in new:
        event -= 1
    return event


@derived
def lives(trace: Trace) -> tuple[I64, I64]:
    """(T,) the event of each tensor's alloc, and of its free or E."""
    return _lives(trace.kind, trace.arg, trace.tensors)  # type: ignore[no-any-return]


@kept()
def _lives(kind: Any, arg: Any, tensors: int) -> Any:
    born, died = np.zeros(tensors, np.int64), np.full(tensors, kind.size, np.int64)
    for e in range(kind.size):
        if kind[e] == ALLOC:
            born[arg[e]] = e
        elif kind[e] == FREE:
            died[arg[e]] = e
    return born, died


@derived
def roles(trace: Trace) -> npt.NDArray[np.int8]:
    """(T,) indices into ROLES.

    Buffers count as parameters; fp32 masters, which only optimizer steps read, as optimizer state.  A tensor made in backward
    that an optimizer step reads, or that outlives its backward, is a gradient; one made in forward that backward reads, or that
    outlives its phase, an activation; one made before or in an optimizer step that outlives the step optimizer state; any other
    that dies in the phase that made it temporary.
    """
    kinds = phase_kinds(trace)
    born, died = lives(trace)
    made = kinds[born] if trace.tensors else np.zeros(0, np.int8)
    marks = np.flatnonzero(trace.kind == PHASE)
    if (kinds[marks] != OTHER).any():  # clearing gradients still belongs to the step before
        marks = marks[kinds[marks] != OTHER]
    marks = np.append(marks, trace.events)
    end = marks[np.minimum(np.searchsorted(marks, born, "right"), len(marks) - 1)]  # of the phase that made it
    outlives = died > end
    read = _read_in(kinds[trace.kind == OP], trace.read_start, trace.read_id, trace.tensors)
    found = np.full(trace.tensors, UNKNOWN, np.int8)
    for role, which in (
        (TEMPORARY, (made == FORWARD) | (made == BACKWARD) | (made == STEP)),
        (ACTIVATION, (made == FORWARD) & (read[:, BACKWARD] | outlives)),
        (GRADIENT, (made == BACKWARD) & (read[:, STEP] | outlives)),
        (OPTIMIZER, (made == STEP) & outlives),
        (ACTIVATION, (made == OTHER) & outlives & (trace.ops > 0)),
        (TEMPORARY, (made == OTHER) & ~outlives & (trace.ops > 0)),
    ):
        found[which] = role
    for number, category in enumerate(trace.categories):
        own = trace.category == number
        if category in _SAID:
            found[own] = _SAID[category]
            if category == "param":  # fp32 masters, which the steps alone know
                found[own & read[:, STEP] & ~read[:, (BEFORE, FORWARD, BACKWARD, OTHER)].any(axis=1)] = OPTIMIZER
            elif category == "grad":  # theirs
                found[own & (made == STEP)] = np.where(outlives, OPTIMIZER, TEMPORARY)[own & (made == STEP)]
        elif category in ("opt", "optim"):
            found[own & (made == BEFORE)] = OPTIMIZER
    return found


@kept()
def _read_in(kind: Any, start: Any, ids: Any, tensors: int) -> Any:
    """(T, kinds of phases) whether an operator of such a phase reads the tensor."""
    found = np.zeros((tensors, OTHER + 1), np.bool_)
    for o in range(kind.size):
        for i in range(start[o], start[o + 1]):
            found[ids[i], kind[o]] = True
    return found


CACHE, INTERMEDIATE, LASTING = range(3)
_STAGE = {WORKSPACE: CACHE, INPUT: CACHE, PARAMETER: LASTING, OPTIMIZER: LASTING, UNKNOWN: LASTING}


@derived
def stages(trace: Trace) -> npt.NDArray[np.int8]:
    """(T,) what can be given up first: CACHE, INTERMEDIATE or LASTING.  A category called after a cache says so itself."""
    of_role = np.array([_STAGE.get(role, INTERMEDIATE) for role in range(len(ROLES))], np.int8)
    found: npt.NDArray[np.int8] = of_role[roles(trace)]
    for number, category in enumerate(trace.categories):
        if "cache" in category:
            found[trace.category == number] = CACHE
    return found
