"""What replays of pages of one size share: a byte per page, which stays in the second-level cache, and fetching ahead.

Nothing leaves such a memory but what is evicted, one page at a time, so that a policy may need less than its verbs do: see
the verb `replay` in `contract.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.policies.compiled import helper, prefetch

Requests = npt.NDArray[np.int32]  # ids of pages in order of access

ABSENT, RESIDENT, ACCESSED = range(3)  # the byte of a page: ACCESSED is RESIDENT and its reference bit
AHEAD = 16  # requests by which the entry of a page is fetched before it is looked at


@helper
def fetch_ahead(table: Any, requests: Any, i: int) -> None:
    """Tell the processor that the entry of a page requested soon after request i is needed."""
    prefetch(table, requests[np.uint64(min(i + AHEAD, requests.shape[0] - 1))])
