"""Which alerts fire in the runs of a folder, as rows of a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gpusim.results.monitoring.alerts import firing
from gpusim.results.result import Result
from gpusim.studies.monitoring.runs import RecordedRuns


def fired(runs: RecordedRuns) -> Iterator[tuple[Result, list[dict[str, Any]]]]:
    """Each run with a row for each alert that fires in it.

    run, trace, profile, policy, device  as its samples have them, rank where it has several, tenant beside others on the GPU
    outcome, makespan_ns  as its result
    alert, severity    of the rule
    first_ns           when it first fires, in simulated time
    first_s, lasted_s  the same by the metrics' clock, and for how long in all
    """
    for result, places in runs.results():
        groups = [[place] for place in places] if result.beside else [places]  # other programs are no stragglers
        yield result, [
            {
                **{name: found.identity[name] for name in ("run", "trace", "profile", "policy", "device")},
                **({"rank": found.identity["rank"]} if found.identity["rank"] else {}),
                **({"tenant": found.identity["tenant"]} if result.beside else {}),
                "outcome": result.outcome, "makespan_ns": int(result.metrics["makespan_ns"]), "alert": found.alert.name,
                "severity": found.alert.severity, "first_ns": found.first, "first_s": found.seconds, "lasted_s": found.lasted,
            }
            for group in groups for found in firing(group)
        ]  # fmt: skip
