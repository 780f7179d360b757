"""Ranks that are slower than others: by how much their kernels take longer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from gpusim.base.errors import GpusimError

NO_STRAGGLERS = "none"
_ONE = re.compile(r"(\d+)=(\d+(?:\.\d+)?)")
_HINT = "write 3=1.1: kernels of rank 3 take 1.1 times as long"


def parse_stragglers(said: str | Mapping[Any, Any]) -> dict[int, float]:
    """The factors that "3=1.1 7=1.5" means, or {3: 1.1}, by rank; none of "none".

    Raises GpusimError for a text that is none, a rank that stands there twice, and a factor of 0.
    """
    if said == NO_STRAGGLERS:
        return {}
    text = " ".join(f"{rank}={factor}" for rank, factor in said.items()) if isinstance(said, Mapping) else str(said)
    found: dict[int, float] = {}
    for word in text.replace(",", " ").split():
        if not (match := _ONE.fullmatch(word)):
            raise GpusimError(f"'{word}' is no straggler", hint=_HINT)
        rank, factor = int(match[1]), float(match[2])
        if rank in found:
            raise GpusimError(f"rank {rank} stands there twice", hint=_HINT)
        if not 0 < factor < 1000:
            raise GpusimError(f"kernels of rank {rank} cannot take {match[2]} times as long", hint=_HINT)
        found[rank] = factor
    if not found:
        raise GpusimError("no straggler is named", hint=f"{_HINT}; or none")
    return found


def stragglers_text(factors: Mapping[int, float]) -> str:
    """As `parse_stragglers` reads them."""
    return " ".join(f"{rank}={factor:g}" for rank, factor in sorted(factors.items())) or NO_STRAGGLERS
