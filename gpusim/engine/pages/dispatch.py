"""One compiled function for a verb of all policies: it calls that of the policy of the run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any

from gpusim.base.compiled import outlined
from gpusim.engine.pages.driver_tables import DriverState


def dispatch(
    chosen: Callable[[DriverState], int], policies: Iterable[ModuleType], verb: str, otherwise: Callable[..., Any]
) -> Any:
    """chosen: the number of the run's policy.  otherwise: what is called where it has no such verb."""
    rest = outlined(otherwise)
    for k, policy in enumerate(policies):
        if hasattr(policy, verb):
            rest = _link(k, chosen, getattr(policy, verb), rest)
    return rest


def _link(k: int, chosen: Any, verb: Any, rest: Any) -> Any:
    @outlined
    def call(M: DriverState, *arguments: int) -> Any:
        if chosen(M) == k:
            return verb(M, *arguments)
        return rest(M, *arguments)

    return call
