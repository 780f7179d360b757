"""The results of all ranks of a program as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from gpusim.results.metrics import METRICS
from gpusim.results.result import Result

SPANS = ("makespan_ns", "batch_ns", "recorded_ns", "device_ns", "recorded_device_ns")
"""They end with the last rank."""
_LEVELS = ("_peak_bytes", "_current_bytes", "_at_peak_bytes")
_OF_RANK = ("gpu", "slower", "absent")
"""Keys of a rank's spec that all ranks together do not have."""


def of_all(ranks: Sequence[Result]) -> Result:
    """One result for ranks that ran together, which it keeps.

    It takes as long as the last rank and holds as much as the fullest, whose timeline it has; traffic and counts are sums,
    all other times and shares are means over ranks.  What failed is the first failure of a rank.  Ranks that were not recorded
    count for nothing.
    """
    here = [rank for rank in ranks if not rank.spec.get("absent")]
    fullest = max(ranks, key=lambda rank: rank.metrics.get("reserved_peak_bytes", 0))
    failed = [(i, rank) for i, rank in enumerate(ranks) if rank.failure is not None]
    first = min(failed, key=lambda found: found[1].failure.get("time_ns", 0) if found[1].failure else 0) if failed else None
    names = dict.fromkeys(name for rank in here for name in rank.metrics)
    oracles = list(dict.fromkeys(kind for rank in ranks for kind in rank.spec.get("oracles", ())))
    metrics = {name: _over(name, [rank.metrics[name] for rank in here if name in rank.metrics]) for name in names}
    return Result(
        spec={**{k: v for k, v in ranks[0].spec.items() if k not in _OF_RANK}, "oracles": oracles},
        outcome=next((rank.outcome for rank in ranks if rank.outcome in ("oom", "host_oom")), ranks[0].outcome),
        metrics=metrics,
        failure=None if first is None else {**(first[1].failure or {}), "rank": first[0]},
        timeline=fullest.timeline,
        ranks=tuple(replace(rank, key="") for rank in ranks),
    )


def _over(name: str, values: Sequence[int | float]) -> int | float:
    """A metric of all ranks from those of each."""
    metric = METRICS[name]
    if name in SPANS or name.endswith(_LEVELS):
        return max(values)
    if metric.unit == "ns":
        return round(fmean(values))
    if metric.unit == "1":
        return fmean(values)
    return sum(values)
