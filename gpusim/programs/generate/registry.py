"""Which generators there are, and from "name(parameter=value)" to the requests it makes."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gpusim.base.functions import Function, Functions

if TYPE_CHECKING:
    from gpusim.policies.trials.allocator_requests import AllocatorRequests
    from gpusim.programs.generate.schedule import RequestSchedule

_KNOWN = Functions("gpusim.programs.generate.programs", "generator", "RequestSchedule")
Generator = Function


def entries() -> list[Generator]:
    """All generators by name."""
    return _KNOWN.entries()


def schedule(spec: str) -> RequestSchedule:
    """The schedule behind `get`, for a generator that mixes others."""
    entry, values = _KNOWN.bind(spec)
    made: RequestSchedule = _KNOWN.load(entry)(**values)
    return made


def get(spec: str) -> AllocatorRequests:
    """The requests of "name" or "name(parameter=value, ...)"."""
    return replace(schedule(spec).requests(), name=spec)
