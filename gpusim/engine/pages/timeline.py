"""Where pages are over time: read off the tables between steps, at most some hundred times."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.engine.pages.driver_tables import CPU, FREE, NONE, DriverState
from gpusim.engine.pages.memory import resident_bytes
from gpusim.machine.driver_parameters import BLOCK_BYTES

ROWS = 400
NAMES = ("time_ns", "op", "allocated_bytes", "reserved_bytes", "requested_bytes", "host_bytes")


class Timeline:
    """A row for every so many steps: bytes resident on the GPUs, bytes of its chunks that are taken, bytes on the host."""

    def __init__(self, steps: int, blocks: slice = slice(None)) -> None:
        """blocks: of the process whose rows these are, where several have the GPU."""
        self.blocks = blocks
        self.every = -(-steps // ROWS)
        self.rows: list[tuple[int, ...]] = []
        self.began = 0.0

    def watch(self, M: DriverState, steps: int) -> None:
        if steps == 0:
            self.began = float(M.state["now"][0])
            self.rows.clear()
        if steps % self.every:
            return
        gpus = range(1, len(M.gpus))
        taken = sum(int(M.gpus[g]["roots"] - M.gpus[g]["length"][FREE]) for g in gpus)
        if self.blocks != slice(None):
            taken = int(np.count_nonzero(M.chunk[1:, self.blocks] != NONE))
        here = sum(resident_bytes(M, g, self.blocks) for g in gpus)
        now = round(float(M.state["now"][0]) - self.began)
        self.rows.append((now, steps - 1, here, taken * BLOCK_BYTES, here, resident_bytes(M, CPU, self.blocks)))

    @property
    def columns(self) -> dict[str, npt.NDArray[Any]]:
        table = np.array(self.rows, np.int64).reshape(-1, len(NAMES))
        return {name: table[:, i] for i, name in enumerate(NAMES)}
