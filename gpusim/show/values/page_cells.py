"""What most pages of each cell of a fault map did: a cell is a span of time and a range of addresses."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.results.fault_picture import EVICTED, FAULTED, TAKEN, Picture

DONE = ("faulted on by the GPU", "prefetched", "evicted", "migrated away or freed")


def cells(picture: Picture) -> npt.NDArray[np.int64]:
    """The kind that most pages of each cell are, by row and column; -1 where nothing happened."""
    pages = np.stack([picture.pages[FAULTED], picture.ahead, picture.pages[EVICTED], picture.pages[TAKEN]])
    return np.where(pages.any(0), pages.argmax(0), -1)
