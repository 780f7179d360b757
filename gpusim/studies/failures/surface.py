"""python -m gpusim.studies.failures.surface: which costs of checkpoints and restarts give Llama 3's effective training time.

A run of 54 days with its counts of failures and Daly's interval, by the closed form of exponential failures, which simulated
runs keep (tests/engine/test_failing_runs.py).
"""

from __future__ import annotations

from gpusim.policies.intervals import daly, expected_time
from gpusim.studies.failures.kinds import known

HOUR = 3600.0
REPORTED = 0.9
STOPS = (0.2, 0.54, 4.0, 27.34, 120.0, 360.0)
"""s for which published checkpoints stop a training (`published.yaml`): up to 4 s beside the work, the others synchronous."""
RESTARTS = tuple(60.0 * minutes for minutes in (2, 5, 10, 15, 20, 40))


def between() -> float:
    """s between interruptions of Llama 3's 16,384 GPUs."""
    run = known()["llama3"]
    return float(run["days"] * 24.0 * HOUR / sum(kind["count"] for kind in run["kinds"].values()))


def effective(stop: float, restart: float) -> float:
    """Share of the time that is work which counts, with Daly's interval; s."""
    work = known()["llama3"]["days"] * 24.0 * HOUR
    return float(work / expected_time(work, daly(stop, between()), stop, restart, between()))


def table() -> str:
    """Markdown; bold: at least what was reported."""
    heads = ["noticing, restarting, loading", *(f"{stop:g} s" for stop in STOPS)]
    lines = [f"| {' | '.join(heads)} |", "| ---: |" + " ---: |" * len(STOPS)]
    for restart in RESTARTS:
        cells = [(effective(stop, restart), f"{effective(stop, restart):.1%}".replace("%", " %")) for stop in STOPS]
        shown = (f"**{said}**" if value >= REPORTED else said for value, said in cells)
        lines.append(f"| {restart / 60:g} min | {' | '.join(shown)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
