"""What learned eviction policies read of a tensor: facts in logarithms, so that programs of other sizes look alike.

The same for numbers, in a policy, and for whole columns, in a training.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.policies.compiled import helper

NAMES = ("size", "age", "life", "stay", "uses", "gap", "now", "intermediate", "lasting", "dirty")


@helper
def log_facts(size, last_use, uses, arrived, born, now, stage, dirty) -> Any:  # type: ignore[no-untyped-def]
    """In the order of NAMES: sizes and times as log(1 + x), gap the mean time between its uses, three of 0 or 1."""
    life = np.maximum(last_use - born, 0.0)
    return (
        np.log1p(size), np.log1p(np.maximum(now - last_use, 0.0)), np.log1p(np.maximum(now - born, 0.0)),
        np.log1p(np.maximum(now - arrived, 0.0)), np.log1p(uses), np.log1p(life / np.maximum(uses - 1.0, 1.0)), np.log1p(now),
        1.0 * (stage == 1), 1.0 * (stage == 2), 1.0 * dirty,
    )  # fmt: skip
