"""Inputs that are loaded while the program runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.programs.transforms.parameters import bring_in, side_stream, stretches
from gpusim.trace.edit import Edit, begun, issued
from gpusim.trace.iterations import iterations
from gpusim.trace.roles import INPUT, roles
from gpusim.trace.trace import COPY_IN, HOST_WORK, NVME_READ, Trace

SOURCES = ("host", "nvme")


def data_loader(trace: Trace, buffers: int = 2, source: str = "host", share: float = 1.0, work: bool = False) -> Trace:
    """Load the inputs of every step anew, which recordings find in place.

    buffers  1: a step begins with its own load; 2: it is loaded while the step before runs (double buffering), and so on
    source   host, or nvme: read from disk first
    share    bytes that are moved for each byte of input: more where samples are larger before they are cropped and cast
    work     the CPU reads and writes them once before they are copied: it decodes, crops, casts

    With more than one buffer loads run in order on a stream beside the program's, and each buffer takes device memory.
    """
    if source not in SOURCES:
        hint = suggest(source, SOURCES) or "known: " + ", ".join(SOURCES)
        raise GpusimError(f"parameter 'source' of transform 'data_loader' is '{source}'", hint=hint)
    inputs = roles(trace) == INPUT
    op = np.repeat(np.arange(trace.ops), np.diff(trace.read_start))
    at = np.flatnonzero(inputs[trace.read_id])
    if not len(at):
        raise TraceError(f"{trace.name}: no operator reads an input", hint="tensors of the category 'input' are inputs")
    step = iterations(trace)[issued(trace)][op[at]]
    u = stretches(trace, op[at], at, np.diff(step, prepend=-2) != 0)
    place = begun(trace)[u.first]
    ahead = min(buffers - 1, len(place))
    place[ahead:], place[:ahead] = place[: len(place) - ahead].copy(), place[0]
    way = [("gpusim::nvme_read", NVME_READ)] if source == "nvme" else []
    way += [("gpusim::decode", HOST_WORK)] if work else []
    edit = Edit(trace)
    stream = side_stream(trace) if ahead else 0
    bring_in(edit, u, [*way, ("gpusim::copy_in", COPY_IN)], share, stream, place)
    edit.drop_tensors(inputs)
    made = edit.finish()
    kept = made.meta.get("host_bytes", 0) + int(trace.size[inputs].sum() * share) * buffers
    return replace(made, meta={**made.meta, "host_bytes": kept})
