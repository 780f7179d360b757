"""Offloading: optimizer state or parameters live in host memory or on disk, and the CPU makes the optimizer's step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError, suggest
from gpusim.machine.transfer_times import ALLOCATED, FREED, STAGED
from gpusim.programs.transforms.gradients import gradients, stand_ins, take
from gpusim.programs.transforms.parameters import SMALL, bring_in, parameters, place_of, side_stream, step_rows, uses
from gpusim.trace.edit import Edit, Mask, issued
from gpusim.trace.roles import OPTIMIZER, STEP, TEMPORARY, lives, phase_kinds, roles
from gpusim.trace.trace import COPY_IN, COPY_OUT, HOST_WORK, KERNEL, NVME_READ, NVME_WRITE, OP, Trace

WHAT, WHERE, MEMORY = ("optimizer", "parameters", "all"), ("host", "nvme"), ("pool", "fresh", "pageable")
COPIES = ("gpusim::copy_in", "gpusim::copy_out")


def offload(
    trace: Trace, what: str = "optimizer", to: str = "host", bucket: str = "25 MiB", overlap: bool = True, memory: str = "pool"
) -> Trace:
    """Keep optimizer state, parameters or both off the GPU.

    what     optimizer: its state, which the CPU updates; parameters: of a program without optimizer steps; all: both
    to       host, or nvme: optimizer state and parameters are on disk and pass through host memory, gradients stay there
    bucket   gradients leave for the host when so many bytes are complete, while backward goes on
    overlap  of parameters: a block's come in while the block before it computes
    memory   of the copies: pool, pinned beforehand; fresh, pinned anew by the host's thread for each copy, which gives the
             memory of the one before back; pageable, staged by the driver, in turn with kernels

    The step reads and writes what it needs once, at the rate of the host's memory (a fused CPU Adam), on the share of the
    parameters that is this rank's after `zero`; updated parameters are copied back.  State has the types of the recording.
    Sources: Ren et al., ZeRO-Offload, USENIX ATC 2021; Rajbhandari et al., ZeRO-Infinity, SC 2021.
    """
    for word, given, known in (("what", what, WHAT), ("to", to, WHERE), ("memory", memory, MEMORY)):
        if given not in known:
            hint = suggest(given, known) or "known: " + ", ".join(known)
            raise GpusimError(f"parameter '{word}' of transform 'offload' is '{given}'", hint=hint)
    steps = phase_kinds(trace)[issued(trace)] == STEP
    if what == "parameters" and steps.any():
        raise GpusimError(
            f"{trace.name}: parameters cannot leave the GPU alone, its optimizer steps need them", hint="write what=all"
        )
    edit, stream = Edit(trace), 0 if memory == "pageable" else side_stream(trace)
    kept = {"host_bytes": 0, "nvme_bytes": 0}
    at_rest = "nvme_bytes" if to == "nvme" else "host_bytes"
    weights = parameters(trace) & (trace.size > SMALL)
    if what != "parameters":
        state = _state(trace)
        step = _step_on_host(edit, steps, state, weights, to, bucket, back=what == "optimizer", stream=stream)
        kept[at_rest] += int(trace.size[state].sum())
        kept["host_bytes"] += step
    if what != "optimizer":
        way = [("gpusim::nvme_read", NVME_READ)] if to == "nvme" else []
        u = uses(trace, weights)
        bring_in(edit, u, [*way, ("gpusim::copy_in", COPY_IN)], 1.0, stream, place_of(trace, u, overlap))
        edit.drop_tensors(weights)
        kept[at_rest] += int(trace.size[weights].sum())
    made = _had(edit.finish(), memory)
    held = {key: made.meta.get(key, 0) + size for key, size in kept.items() if size}
    return replace(made, meta={**made.meta, **held})


def _had(trace: Trace, memory: str) -> Trace:
    """The trace with what the CPU does for host memory before each of the copies that it keeps there."""
    if memory == "pool":
        return trace
    edit, ours = Edit(trace), [trace.op_names.index(name) for name in COPIES if name in trace.op_names]
    events = np.flatnonzero(trace.kind == OP)
    at = events[np.isin(trace.op[trace.arg[events]], ours)]
    copies = trace.arg[at]
    size, into = trace.read_bytes[copies], trace.activity[copies] == COPY_IN
    calls = (
        ((STAGED[0], into, size), (STAGED[1], ~into, size)) if memory == "pageable"
        else ((FREED, at > at[:1], np.append(0, size[:-1])), (ALLOCATED, at >= 0, size))
    )  # fmt: skip
    for name, wanted, moved in calls:
        none = (0 * at[wanted], at[:0])
        done = edit.add_operators(none, none, op=edit.name("op_names", name), activity=HOST_WORK, read_bytes=moved[wanted])
        edit.insert(at[wanted], OP, done, 0)
    return edit.finish()


def _state(trace: Trace) -> Mask:
    """(T,) what the optimizer keeps from step to step."""
    return np.asarray(roles(trace) == OPTIMIZER)


def _step_on_host(
    edit: Edit, steps: Mask, state: Mask, weights: Mask, to: str, bucket: str, back: bool, stream: int
) -> int:
    """Gradients go to the host, where the step is made, and come `back` as parameters; returns the gradients' bytes."""
    trace = edit.trace
    g = gradients(trace, bucket)
    take(edit, g, stand_ins(edit, g), None, "gpusim::copy_out", COPY_OUT, 1.0, stream)
    gone = state.copy()
    gone[g.tensor] = True
    made = phase_kinds(trace)[lives(trace)[0]]
    gone |= (made == STEP) & (roles(trace) == TEMPORARY)
    first, _ = step_rows(trace)
    edit.drop_tensors(gone)
    edit.drop_operators(steps & (trace.activity == KERNEL))

    ids = np.flatnonzero(weights)
    share = int(trace.size[ids].sum()) // int(trace.meta.get("own_share", 1))
    complete = int(trace.size[np.unique(g.tensor[g.of_pass == g.of_pass[-1]])].sum())
    states = int(trace.size[state].sum())
    disk = to == "nvme"
    count = np.zeros(len(first), np.int64)
    for name, activity, read, written, wanted in (
        ("nvme_read", NVME_READ, states, 0, disk and states),
        ("cpu_step", HOST_WORK, states + complete + share, states + share, True),
        ("nvme_write", NVME_WRITE, states if back else states + share, 0, disk),
        ("copy_in", COPY_IN, share, 0, back),
    ):
        if not wanted:
            continue
        whole = name == "copy_in"
        writes = (count + len(ids), np.tile(ids, len(first))) if whole else (count, ids[:0])
        operators = edit.add_operators(
            (count, ids[:0]), writes, op=edit.name("op_names", f"gpusim::{name}"), activity=activity, read_bytes=read,
            written_bytes=written,
        )  # fmt: skip
        edit.insert(issued(trace)[first], OP, operators, stream)
    return complete
