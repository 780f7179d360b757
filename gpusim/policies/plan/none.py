"""Nothing is planned: everything is decided while the program runs."""

from __future__ import annotations

from gpusim.policies.planning import NOTHING, Schedule, View


def plan(view: View) -> Schedule:
    return NOTHING
