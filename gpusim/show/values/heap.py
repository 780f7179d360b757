"""The heap of a run over time: blocks, segments and holes by address, and what each block holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from gpusim.results.heap_over_time import Boxes, Holes, blocks, holes, segments
from gpusim.results.result import Result

# Categories of tensors in the order of a legend; others come after them.
CATEGORIES = ("param", "buffer", "input", "opt", "fwd", "activation", "bwd", "grad", "workspace", "kv", "unknown")
SIZES = ((2**16, "< 64 KiB"), (2**20, "< 1 MiB"), (2**24, "< 16 MiB"), (2**28, "< 256 MiB"), (2**63, "≥ 256 MiB"))


def end(run: Result) -> int:
    """The last moment of the log or of the run, ns."""
    assert run.log is not None
    return max(int(run.log["t"][-1]), int(run.metrics.get("makespan_ns", 0)), 1)


def heap(run: Result) -> tuple[Boxes, Boxes, Holes]:
    """Blocks, segments and holes of a run that kept its log."""
    assert run.log is not None
    until = end(run)
    block, segment = blocks(run.log, until), segments(run.log, until)
    return block, segment, holes(block, segment, until)


def held(
    run: Result, block: Boxes, categories: Mapping[str, Sequence[str]] | None
) -> tuple[npt.NDArray[np.int64], tuple[str, ...], bool]:
    """The group of each block, the names of the groups, and whether these are categories: otherwise they are sizes.

    categories  trace name -> category of each tensor
    """
    changed = {"grain", "program_hash"} & set(run.spec)  # its blocks are not the trace's tensors
    known = None if changed else (categories or {}).get(str(run.spec.get("trace")))
    if known is None:
        steps = np.array([limit for limit, _ in SIZES[:-1]], np.int64)
        return np.searchsorted(steps, block.bytes, side="right"), tuple(name for _, name in SIZES), False
    names = sorted(set(known), key=lambda c: (CATEGORIES.index(c) if c in CATEGORIES else len(CATEGORIES), c))
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[c] for c in known], np.int64)[block.unit], tuple(names), True
