"""How the alerts do: at simulated incidents how early, and in the runs of experiments how often for nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from gpusim.results.metrics import evicted
from gpusim.results.result import Result
from gpusim.studies.monitoring.firings import fired
from gpusim.studies.monitoring.incidents import OOM, THRASHING, Observed
from gpusim.studies.monitoring.runs import RecordedRuns

NOTHING, SLOWED, BETWEEN, ENDED = "nothing wrong", "slowed", "between", "out of memory"
LITTLE, MUCH = 1.1, 2.0  # times the makespan without a memory limit


def state(result: Result) -> str:
    """What is wrong with a run, by its result alone.

    nothing wrong  it finished within 1.1 of its time without a memory limit or, where that is not known, evicted nothing
    slowed         it finished, and took twice that time or more
    out of memory  it did not finish
    between        all others
    """
    if not result.finished:
        return ENDED
    slowdown = result.metrics.get("slowdown")
    if slowdown is None:
        left = evicted(result.metrics) or result.metrics.get("evictions")
        return BETWEEN if left else NOTHING
    return NOTHING if slowdown <= LITTLE else SLOWED if slowdown >= MUCH else BETWEEN


def judged(runs: RecordedRuns) -> dict[str, int | str]:
    """Of the runs of one experiment: how many there are of each state, and in how many the alert for it fires, or another."""
    states: Counter[str] = Counter()
    right: Counter[str] = Counter()
    false: Counter[str] = Counter()
    for result, rows in fired(runs):
        now, alerts = state(result), {row["alert"] for row in rows}
        states[now] += 1
        right[SLOWED] += now == SLOWED and THRASHING in alerts
        right[ENDED] += now == ENDED and OOM in alerts
        right[BETWEEN] += now == BETWEEN and THRASHING in alerts
        # A run that has run out of memory may have thrashed before, or seen it come: only leaks were nowhere planted.
        false.update(alerts if now == NOTHING else alerts - {THRASHING} if now != ENDED else ())
    alarms = ", ".join(f"{count} {alert}" for alert, count in sorted(false.items())) or "0"
    return {
        "runs": states.total(), NOTHING: states[NOTHING], "false alarms": alarms,
        SLOWED: states[SLOWED], "thrashing told": right[SLOWED], ENDED: states[ENDED], "told": right[ENDED],
        BETWEEN: states[BETWEEN], "of these thrashing": right[BETWEEN],
    }  # fmt: skip


def early(observed: Iterable[Observed]) -> Iterator[dict[str, Any]]:
    """A row for each alert that fires at an incident, one without an alert where none does.

    after, before  steps from its beginning until the alert, and from there until the run ended out of memory; None where there
                   is no such thing; after_ns, before_ns the same in simulated time
    """
    for found in observed:
        what = {"incident": found.incident.name, "meaning": found.incident.meaning, "expected": found.incident.expected}
        for one in found.fired:
            ends = not all(result.finished for result in found.results)
            yield {
                **what, "alert": one.alert.name, "severity": one.alert.severity, "first_ns": one.first, "first_s": one.seconds,
                "after": found.step(one.first) - found.incident.begins + 1, "after_ns": one.first - found.began,
                "before": found.step(found.ended) - found.step(one.first) if ends else None,
                "before_ns": max(0, found.ended - one.first) if ends else None,
            }  # fmt: skip
        if not found.fired:
            yield {**what, "alert": None}
