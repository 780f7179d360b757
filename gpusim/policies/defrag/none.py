"""Never: what is in pieces stays in pieces."""

from __future__ import annotations

from gpusim.policies.compiled import F64, verb
from gpusim.policies.contract import DUE

FORM = "none"


@verb(DUE)
def due(P: F64, when: int, allocs: int, held: int, free: int, largest: int, size: int) -> int:
    return 0
