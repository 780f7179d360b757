"""Activation checkpointing as a transform; the plan policy of the same name does the same."""

from __future__ import annotations

from gpusim.policies.plan.parts.checkpointing import checkpointed
from gpusim.trace.trace import Trace


def checkpointing(trace: Trace, every: str = "1", modules: str = "", keep: str = "") -> Trace:
    """Drop the activations of each segment after forward, and run the segment again in backward just before their first use.

    every    blocks of the model in one segment, or sqrt: the square root of their number
    modules  what is a block, by the end of its module path: "h.*", "mlp"; empty: the numbered layers
    keep     operators whose results are kept, so that they are not run again: "aten.mm + aten.addmm"

    As `torch.utils.checkpoint` with use_reentrant=False: what other segments read is kept, and a segment is run again up to
    the last tensor that backward needs.  Its operators, their arithmetic and their bytes are in the trace once more.
    Source: Chen et al., Training deep nets with sublinear memory cost, arXiv:1604.06174, 2016.
    """
    return checkpointed(trace, every, modules, keep)
