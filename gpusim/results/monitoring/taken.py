"""Samples of a run: every metric of the list at every moment of the metrics' clock."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from gpusim.base.errors import ResultError
from gpusim.results.activities import Activities
from gpusim.results.monitoring.clock import MetricsClock
from gpusim.results.monitoring.families import FAMILIES
from gpusim.results.monitoring.family import Family
from gpusim.results.monitoring.recorded import Recorded
from gpusim.results.monitoring.samples import Samples
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

# Policies of a run, in the order in which its label names them.
POLICIES = ("place", "evict", "prefetch", "plan", "release", "pool", "defrag")
SETTINGS = (
    *POLICIES, "unified", "transform", "memory", "host_memory", "tiers", "grain", "share", "seed", "parallel", "placement",
    "stragglers", "gpu",
)  # fmt: skip
NOTHING = ("none", "None", "")


def samples(
    result: Result, trace: Trace | None, rows: Activities, clock: MetricsClock, *,
    families: Mapping[str, Family] = FAMILIES, place: tuple[int, int, int] = (0, 0, 0), until: int = 0,
) -> Samples:  # fmt: skip
    """The samples of one run.

    trace  what the experiment named; None of a managed program
    rows   its activities
    place  numbers of the device, its host and the tenant
    until  ns: when the last device of the run was done, where that is later
    Raises ResultError for a run without times.
    """
    if "makespan_ns" not in result.metrics or not result.timeline:
        raise ResultError("this run has no times, and metrics over time need them", result.key)
    run = Recorded(result, trace, rows, clock.moments(max(until, int(result.metrics["makespan_ns"]))))
    curves = {name: dict(family.read(run)) for name, family in families.items()}
    seconds = np.array(clock.seconds(len(run.at)))
    return Samples(identity(result, place), settings(result), seconds, run.at, clock, curves, families)


def identity(result: Result, place: tuple[int, int, int]) -> dict[str, str]:
    """The labels of every sample."""
    device, host, tenant = map(str, place)
    spec = result.spec
    return {
        "trace": str(spec["trace"]), "profile": str(spec["profile"]), "policy": _policy(spec), "run": result.key,
        "device": device, "host": host, "tenant": tenant, "rank": str(spec.get("rank", "")),
    }  # fmt: skip


def settings(result: Result) -> dict[str, str]:
    """What else the run was, of what it is not without."""
    found = {name: str(result.spec.get(name, "none")) for name in SETTINGS}
    return {name: value for name, value in found.items() if value not in NOTHING}


def _policy(spec: Mapping[str, Any]) -> str:
    unified = str(spec.get("unified", "none"))
    if unified not in NOTHING:
        return f"unified {unified}"
    named = [str(spec.get(kind, "none")) for kind in POLICIES]
    return " ".join(name for name in named if name not in NOTHING)
