"""The rules by which DTR's runtime chooses what leaves, by name; `choice` has them compiled."""

from __future__ import annotations

from collections.abc import Mapping

from gpusim.base.errors import PolicyError, suggest

HEURISTICS = ("dtr", "dtr_eq", "dtr_local", "lru", "size", "msps", "rand")
DTR, DTR_EQ, DTR_LOCAL, LRU, SIZE, MSPS, RAND = range(7)


def index(name: str) -> int:
    """The number of a heuristic; PolicyError for another name."""
    if name not in HEURISTICS:
        hint = suggest(name, HEURISTICS) or "heuristics: " + ", ".join(HEURISTICS)
        raise PolicyError(f"there is no heuristic '{name}'", hint=hint)
    return HEURISTICS.index(name)


def numbers(values: Mapping[str, float | str]) -> list[float]:
    """The parameters of the plan `dtr` as numbers, when an experiment is read."""
    return [float(index(str(v)) if name == "heuristic" else v) for name, v in values.items()]
