"""Whether the degrees of a layout divide the attention heads of a program."""

from __future__ import annotations

import re

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.programs.ranks.layout import RankLayout
from gpusim.trace.trace import Trace

_HEADS = re.compile(r"\d+x(\d+)x\d+x\d+ ")
"""Of an attention's shapes the first: batch, heads, tokens, width of a head."""


def check_degrees(trace: Trace, layout: RankLayout) -> None:
    """Raises GpusimError for tensor parallelism that does not divide the attention heads, where a trace records them.

    Stages of a pipeline may have unequally many layers; `divisible` asks whether there are enough.
    """
    heads = attention_heads(trace)
    for count in heads if layout.tensor > 1 else ():
        if count % layout.tensor:
            raise GpusimError(
                f"tensor={layout.tensor} does not divide the {count} attention heads of {trace.name}", hint=_divisors(count)
            )


def attention_heads(trace: Trace) -> list[int]:
    """Of the attentions whose shapes are recorded, ascending; none where none are."""
    names = [i for i, name in enumerate(trace.op_names) if "scaled_dot_product" in name and "backward" not in name]
    used = np.unique(trace.shape[np.isin(trace.op, names) & (trace.shape >= 0)]).tolist()
    found = {int(match[1]) for number in used if (match := _HEADS.match(trace.shapes[number]))}
    return sorted(found)


def _divisors(count: int) -> str:
    return "one of " + ", ".join(str(n) for n in range(2, count + 1) if count % n == 0) if count else ""
