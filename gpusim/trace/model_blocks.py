"""The blocks of a model, as module paths tell: layers that repeat, or modules that match a pattern."""

from __future__ import annotations

import re

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.trace.trace import I64, Trace

_LAYER = re.compile(r"(?:.*?\.)?\d+(?=\.|$)")  # up to the first number: "GPT2LMHeadModel.transformer.h.11"


def block_names(trace: Trace, pattern: str = "") -> list[str]:
    """(M,) for each module of the table the path of the block that it belongs to, "" for none; `pattern` as for `blocks`."""
    find = _LAYER if not pattern else _compiled(pattern)
    return [match.group() if (match := find.match(path)) else "" for path in trace.modules]


def blocks(trace: Trace, ops: I64, pattern: str = "") -> I64:
    """(M,) for each module of the table the number of its block, in the order in which these operators enter them; -1 for none.

    pattern   modules that are blocks, by the end of their path, `*` for one component: "h.*", "mlp".  "": every module whose
              path ends in a number, the outermost ones
    """
    names = block_names(trace, pattern)
    found = np.full(len(names) + 1, -1, np.int64)  # the last row is for operators without module
    entered, first = np.unique(trace.module[ops], return_index=True)
    numbers: dict[str, int] = {}
    for module in entered[np.argsort(first)]:
        if module >= 0 and names[module]:
            found[module] = numbers.setdefault(names[module], len(numbers))
    if not numbers:
        what = f"no module matches '{pattern}'" if pattern else "no module path has a numbered layer"
        some = ", ".join(trace.modules[:3])
        raise TraceError(f"{trace.name}: {what}", hint=f"its modules are like {some}" if some else "it records no modules")
    return found


def _compiled(pattern: str) -> re.Pattern[str]:
    """Matches a path up to the first place where it ends in the pattern."""
    parts = [re.escape(part).replace(r"\*", r"[^.]*") for part in pattern.split(".")]
    return re.compile(r"(?:.*?\.)?" + r"\.".join(parts) + r"(?=\.|$)")
