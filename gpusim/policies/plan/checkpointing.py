"""Each segment of the model keeps what it hands on; the rest is dropped after forward and recomputed in backward.

every    blocks of the model in one segment: 1 is what frameworks call full recomputation; sqrt is the paper's square root of
         their number
modules  what is a block, by the end of its module path: "h.*", "mlp"; empty: the numbered layers
keep     operators whose results are kept, so that they are not run again: "aten.mm + aten.addmm"

The program of the transform `checkpointing` (docs/transforms.md), as one more plan beside the others: decided by the model's
structure alone, whatever the memory.

Source: Chen et al., "Training deep nets with sublinear memory cost", arXiv:1604.06174, 2016.
"""

from __future__ import annotations

from gpusim.policies.plan.parts.checkpointing import checkpointed
from gpusim.policies.planning import View
from gpusim.trace.trace import Trace

PARAMS = {"every": "1", "modules": "", "keep": ""}


def rewrite(view: View, every: str = "1", modules: str = "", keep: str = "") -> Trace:
    return checkpointed(view.work.trace, every, modules, keep)
