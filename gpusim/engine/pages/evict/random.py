"""Any of the used chunks, each as likely."""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.chunks import oldest
from gpusim.engine.pages.driver_tables import USED, DriverState


@kernel
def draw(M: DriverState, n: int) -> int:
    """A number below n, from a linear congruential generator (the constants of ISO C's example)."""
    s = M.state[0]
    s.seed = (s.seed * 1103515245 + 12345) & 0x7FFFFFFF
    return int((s.seed >> 8) % n)


@outlined
def victim(M: DriverState, g: int) -> int:
    gpu = M.gpus[g]
    for _ in range(64):  # hardly any is not in use when the memory is full
        r = gpu.first_root + draw(M, gpu.roots)
        if M.roots[r].list == USED and not M.roots[r].locked:
            return int(r)
    return int(oldest(M, g, USED))
