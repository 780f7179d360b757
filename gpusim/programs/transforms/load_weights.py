"""A model that is not on the GPU when its program begins: weights come from host memory, block by block."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.programs.transforms.parameters import SMALL, parameters, side_stream, uses
from gpusim.trace.edit import Edit, begun
from gpusim.trace.roles import lives
from gpusim.trace.trace import COPY_IN, I64, OP, Trace


def load_weights(trace: Trace, group: str = "block", pipelined: bool = True) -> Trace:
    """Weights are in pinned host memory when the program begins, and are copied to the GPU once.

    group      what is copied together: block, a layer of the model; all
    pipelined  a block's operators begin when its weights are there and those before it are computed; else when all are there

    Groups are copied one behind the other in the order of their first use.
    Source: Z. Bai et al., "PipeSwitch: fast pipelined context switching for deep learning applications", OSDI 2020
    """
    if group not in ("block", "all"):
        raise GpusimError(f"parameter 'group' of transform 'load_weights' is '{group}'", hint="block, all")
    weights = parameters(trace) & (trace.size > SMALL)
    edit, u = Edit(trace), uses(trace, weights)
    _, first = np.unique(u.tensor, return_index=True)
    first.sort()
    tensor, of = u.tensor[first], np.repeat(np.arange(len(u.first)), np.diff(u.start))[first]
    if group == "all":
        of = 0 * of
    count: I64 = np.bincount(of)
    count = count[count > 0]
    starts = np.cumsum(count) - count
    moved, there = (np.add.reduceat(trace.size[tensor], starts), np.maximum.reduceat(lives(trace)[0][tensor], starts) + 1)
    copies = edit.add_operators(
        (0 * count, tensor[:0]), (count, tensor), op=edit.name("op_names", "gpusim::copy_in"), activity=COPY_IN,
        read_bytes=moved,
    )  # fmt: skip
    stream = side_stream(trace) if pipelined else 0
    edit.insert(np.maximum.accumulate(np.maximum(there, begun(trace)[0])), OP, copies, stream)
    made = edit.finish()
    return replace(made, meta={**made.meta, "host_bytes": made.meta.get("host_bytes", 0) + int(moved.sum())})
