"""What S-LoRA's router keeps: its options, the batch under way, and which adapters lie in the pool of keys and values."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, tables_at
from gpusim.base.tables import signature

u1, i1, i8 = np.uint8, np.int8, np.int64

# A cell holds the keys and values of a token in all layers, or as much of an adapter.
CELLS, MAX_SEQS, MAX_TOKENS, MAX_LEN, EACH, PREFETCH, BLOCK, OPTIONS = range(8)
(
    SIZE, NEW,     # requests of the batch, and of those that are prefilled and join it
    FREE_CELLS,
    WAITED,        # tokens since the batch was last joined
    TAG,           # of the latest prefetch, 0 and 1 in turn
    LOADED,        # adapters in the pool
    STAMP,         # of `mark`
    SLORA_WORDS,
) = range(8)  # fmt: skip
TO_REQUESTS, TO_STEP, TO_QUEUE = range(3)
UNTAGGED = -1


@by_pointer
class SloraTables(NamedTuple):
    """Adapters are counted from 1; number 0 is the model without one."""

    at: Annotated[Any, i8, 3]
    option: Annotated[Any, i8, OPTIONS]
    word: Annotated[Any, i8, SLORA_WORDS]
    batch: Annotated[Any, i8, "rows"]       # in order, those that join it last
    loaded: Annotated[Any, u1, "adapters"]
    tag: Annotated[Any, i1, "adapters"]     # of the prefetch that last named it
    mark: Annotated[Any, i8, "adapters"]    # STAMP where it has been counted
    line: Annotated[Any, i8, "rows", 2]     # of an admission: tokens left to make, the most first, and tokens there


SLORA = signature(SloraTables)
slora_at = tables_at(SLORA)
