"""Activation offloading: what forward saves for backward waits in host memory."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.base.units import BYTES, parse
from gpusim.machine.transfer_times import ALLOCATED, FREED, STAGED
from gpusim.programs.transforms.parameters import side_stream
from gpusim.trace.edit import Edit, begun, issued
from gpusim.trace.roles import ACTIVATION, BACKWARD, FORWARD, phase_kinds, roles
from gpusim.trace.trace import ALLOC, COPY_IN, COPY_OUT, FREE, HOST_WORK, I64, OP, Trace

MEMORY = ("pool", "grow", "fresh", "pageable")


def save_on_host(
    trace: Trace, least: str = "1 MiB", most: int = 0, memory: str = "pool", ahead: int = 0, modules: str = ""
) -> Trace:
    """Copy activations to the host after their last use in forward, and back before their first use in backward.

    least   bytes of a tensor that is moved
    most    tensors of one step that are moved, the largest first; 0: all
    memory  pool: pinned beforehand and used again; grow: a pool that pins a block, its size rounded up to a power of two,
            when it has none that is free; fresh: pinned anew for each tensor and given back when that dies; pageable: the
            driver stages the copies, which take turns with kernels
    modules  last names of the modules that make what is moved, as in "up + gate"; nothing: all
    ahead   a tensor comes back when backward begins with the one so many before it; 0: when it is needed

    Pinned copies run on streams of their own.  The host's thread pins memory, and the GPU goes on meanwhile.  Parameters,
    inputs and what forward alone uses stay.
    Sources: torch.autograd.graph.save_on_cpu; torchtune's OffloadActivations; pytorch pull request 186161 (the pool).
    """
    if memory not in MEMORY:
        hint = suggest(memory, MEMORY) or "known: " + ", ".join(MEMORY)
        raise GpusimError(f"parameter 'memory' of transform 'save_on_host' is '{memory}'", hint=hint)
    moved, last, first = _saved(trace, int(parse(least, BYTES)), most, _made_by(trace, modules))
    edit, side = Edit(trace), side_stream(trace)
    back = edit.add_tensors(trace.size[moved], trace.category[moved])
    _use_instead(edit, moved, back, first)
    pinned, none = memory != "pageable", (0 * moved, moved[:0])
    out, into = (side, side + 1) if pinned else (0, 0)
    size, one = trace.size[moved], np.ones_like(moved)

    def on_host(name: str, size: I64 = size) -> I64:
        """Work of the CPU, or calls of the host, for so many bytes each."""
        return edit.add_operators(
            (0 * size, moved[:0]), (0 * size, moved[:0]), op=edit.name("op_names", name), activity=HOST_WORK, read_bytes=size
        )

    leave = edit.add_operators(
        (one, moved), none, op=edit.name("op_names", "gpusim::copy_out"), activity=COPY_OUT, read_bytes=size
    )
    done = issued(trace)[last] + 1
    order = np.argsort(first, kind="stable")
    place = np.empty_like(first)
    place[order] = begun(trace)[first[order]][np.maximum(np.arange(len(order)) - ahead, 0)]
    place = np.maximum(place, done)
    block, new = (_block(size), _grows(_block(size), done, place)) if memory == "grow" else (size, size > 0)
    if memory != "pool":
        edit.insert(done[new], OP, on_host(ALLOCATED if pinned else STAGED[1], block[new]))
    edit.insert(done, OP, leave, out)
    edit.insert(done, FREE, moved)
    come = edit.add_operators(none, (one, back), op=edit.name("op_names", "gpusim::copy_in"), activity=COPY_IN, read_bytes=size)
    edit.insert(place[order], ALLOC, back[order])
    if not pinned:
        edit.insert(place[order], OP, on_host(STAGED[0])[order])
    edit.insert(place[order], OP, come[order], into)
    if memory == "fresh":
        dies = np.flatnonzero((trace.kind == FREE) & np.isin(trace.arg, moved))
        edit.insert(dies, OP, on_host(FREED, trace.size[trace.arg[dies]]))
    made = edit.finish()
    return replace(made, meta={**made.meta, "host_bytes": made.meta.get("host_bytes", 0) + _most_at_once(size, last, first)})


def _made_by(trace: Trace, modules: str) -> npt.NDArray[np.bool_]:
    """(T,) tensors whose first operator is of a module with one of these last names; all without a name."""
    names = [word.strip() for word in modules.split("+") if word.strip()]
    found = np.ones(trace.tensors, bool)
    if names:
        last = [name.rpartition(".")[2] for name in trace.modules]
        if wrong := next((name for name in names if name not in last), ""):
            raise TraceError(f"{trace.name} has no module '{wrong}'", hint=suggest(wrong, last))
        op = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))
        first = np.full(trace.tensors, trace.ops)
        np.minimum.at(first, trace.write_id, op)
        module = np.append(trace.module, -1)[first]
        found = np.append(np.isin(last, names), False)[module]
    return found


def _saved(trace: Trace, least: int, most: int, asked: npt.NDArray[np.bool_]) -> tuple[I64, I64, I64]:
    """(n,) of the tensors asked for, the last operator of forward that touches each, the first of backward."""
    kinds = phase_kinds(trace)[issued(trace)]
    op = np.concatenate([np.repeat(np.arange(trace.ops), np.diff(start)) for start in (trace.read_start, trace.write_start)])
    tensor = np.concatenate([trace.read_id, trace.write_id])
    last, first = np.full(trace.tensors, -1), np.full(trace.tensors, trace.ops)
    forward, backward = kinds[op] == FORWARD, kinds[op] == BACKWARD
    np.maximum.at(last, tensor[forward], op[forward])
    np.minimum.at(first, tensor[backward], op[backward])
    wanted = asked & (roles(trace) == ACTIVATION) & (trace.size >= least) & (last >= 0) & (first < trace.ops) & (last < first)
    found = np.flatnonzero(wanted)
    if not len(found):
        raise TraceError(f"{trace.name}: forward saves no tensor of {least:,} bytes for backward", hint="a smaller `least`")
    if most:
        steps = np.cumsum(np.diff((kinds == FORWARD).astype(int), prepend=0) == 1)[last[found]]
        ranked = np.lexsort((found, -trace.size[found], steps))
        new = np.diff(steps[ranked], prepend=-1) != 0
        place = np.arange(len(ranked)) - np.maximum.accumulate(np.where(new, np.arange(len(ranked)), 0))
        found = np.sort(found[ranked[place < most]])
    return found, last[found], first[found]


def _use_instead(edit: Edit, moved: I64, back: I64, first: I64) -> None:
    """From its first use in backward on a tensor is the one that came back; that one dies in its place."""
    trace = edit.trace
    other, since = np.arange(trace.tensors), np.full(trace.tensors, trace.ops)
    other[moved], since[moved] = back, first
    for side in ("read", "write"):
        ids = getattr(trace, f"{side}_id")
        op = np.repeat(np.arange(trace.ops), np.diff(getattr(trace, f"{side}_start")))
        at = np.flatnonzero(op >= since[ids])
        edit[f"{side}_id"][at] = other[ids[at]]
    dies = np.flatnonzero(trace.kind == FREE)
    edit["arg"][dies] = other[trace.arg[dies]]


def _block(size: I64) -> I64:
    """The powers of two that are not below the sizes."""
    return np.array([1 << max(0, int(n) - 1).bit_length() for n in size], np.int64)


def _grows(block: I64, leave: I64, come: I64) -> npt.NDArray[np.bool_]:
    """(n,) tensors that leave when the pool has no free block of their size; one is free when its tensor has come back."""
    new, free = np.zeros(len(block), bool), dict.fromkeys(block.tolist(), 0)
    at, back = np.concatenate([leave, come]), np.repeat([False, True], len(block))
    for i in np.lexsort((back, at)).tolist():
        which = i % len(block)
        size = int(block[which])
        if back[i]:
            free[size] += 1
        elif free[size]:
            free[size] -= 1
        else:
            new[which] = True
    return new


def _most_at_once(size: I64, last: I64, first: I64) -> int:
    """Bytes in host memory at their peak."""
    at = np.concatenate([last, first])
    change = np.concatenate([size, -size])[np.argsort(at, kind="stable")]
    return int(np.cumsum(change).max(initial=0))
