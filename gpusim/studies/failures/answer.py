"""What becomes of a long run: effective training time with its interval, where the time goes, which interval is best."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.engine.failures.run import FailingRun, Mean, Runs, between_interruptions, first_seed, repeated
from gpusim.policies.intervals import daly, expected_time, young
from gpusim.studies.failures.host import told
from gpusim.studies.failures.setup import PreparedRun, hours, prepare, with_interval

RUNS, CLOSE = 200, 0.005
"""Runs at a time, and to which share of itself the mean time is to be known, 99 times out of 100."""
AROUND = (0.25, 0.5, 0.7, 1.0, 1.4, 2.0, 4.0)
"""Multiples of Daly's interval that the search tries."""


@dataclass(frozen=True)
class LongRunAnswer:
    """Runs of one setting; `tried`: (interval ns, mean total) of the search, best first in time."""

    run: PreparedRun
    runs: Runs
    tried: tuple[tuple[float, Mean], ...] = ()
    seed: int = 0

    def first(self) -> FailingRun:
        """The first of the runs once more, with its log."""
        run = self.run
        seed = first_seed(self.seed)
        one = FailingRun(run.job, run.cost, run.kinds, run.policy, seed=seed, told=run.told, log=True)
        one.advance()
        return one

    def sentences(self) -> list[str]:
        """What follows from the program and from the host's memory."""
        run, said = self.run, told(list(self.run.kills))
        if run.job.nodes == 1 and run.job.gpus > 1:
            said.append(f"all {run.job.gpus} GPUs are one node, which leaves as a whole: write 2 x hgx-h100 for several")
        where = zip(("neighbours", "storage"), run.cost.speed, (run.cost.to_peers, run.cost.to_storage), strict=True)
        said += [f"the work keeps {speed:.2%} of its pace while a copy is on its way to {there}"
                 for there, speed, takes in where if takes and speed < 0.99995]  # fmt: skip
        said += [f"{kind.name}: the work keeps {kind.speed:.2%} of its pace" for kind in run.kinds if kind.speed < 1]
        return said

    def values(self) -> dict[str, Any]:
        """The numbers by name; times in hours."""
        run, mean = self.run, self.runs.mean
        between, first = between_interruptions(run.job, run.kinds), self.runs.courses[0]
        found: dict[str, Any] = {
            "nodes": run.job.nodes, "gpus": run.job.nodes * run.job.gpus, "spare_nodes": run.job.spare,
            "between_interruptions_h": hours(between), "checkpoint_bytes": run.state, "stop_s": run.cost.stop / 1e9,
            "safe_after_s": (run.cost.stop + run.cost.to_peers + run.cost.to_storage) / 1e9,
            "keeps_beside_peers": run.cost.speed[0], "keeps_beside_storage": run.cost.speed[1],
            "interval_s": first.interval / 1e9, "runs": len(self.runs.courses), "work_h": hours(run.job.work),
        }  # fmt: skip
        for name in ("total", "computing", "copying", "blocked", "down", "short", "lost"):
            found[f"{name}_h"] = hours(mean(name).value)
        found |= {"total_half_h": hours(mean("total").half), "interruptions": mean("interruptions").value}
        effective = found["work_h"] / found["total_h"]  # of the mean time, as the phases are shares of it
        found |= {"effective": effective, "effective_half": effective * found["total_half_h"] / found["total_h"]}
        count = len(self.runs.courses)
        found["failures"] = {kind.name: sum(c.counts[kind.name] for c in self.runs.courses) / count for kind in run.kinds}
        if math.isfinite(between):
            view = FailingRun(run.job, run.cost, run.kinds, run.policy, told=run.told).view()
            found |= {"young_s": young(view.cost, between) / 1e9, "daly_s": daly(view.cost, between) / 1e9}
            formula = expected_time(run.job.work, first.interval, view.cost, view.restart, between)
            found["formula_h"] = hours(formula)
        return found


def answer(run: PreparedRun, *, runs: int = RUNS, close: float = CLOSE, seed: int = 0, search: bool = False) -> LongRunAnswer:
    """Runs until the mean is known closely enough; with `search`, at the best of several intervals around Daly's.

    A log of failures makes one run.  All intervals meet the same failures.
    """
    tried: list[tuple[float, Mean]] = []
    if search:
        tried = intervals(run, runs=runs, seed=seed)
        run = with_interval(run, f"every(seconds={tried[0][0] / 1e9!r})")
    if run.told:
        one = FailingRun(run.job, run.cost, run.kinds, run.policy, seed=first_seed(seed), told=run.told)
        one.advance()
        return LongRunAnswer(run, Runs((one.course(),)), tuple(tried), seed)
    made = repeated(run.job, run.cost, run.kinds, run.policy, runs=runs, seed=seed, close=close, most=20 * runs)
    return LongRunAnswer(run, made, tuple(tried), seed)


def intervals(run: PreparedRun, *, runs: int = RUNS, seed: int = 0) -> list[tuple[float, Mean]]:
    """(interval, mean total) at multiples of Daly's interval, the shortest total first; ns."""
    between = between_interruptions(run.job, run.kinds)
    if run.told or not math.isfinite(between):
        raise GpusimError("intervals are searched for failures that come at random", hint="failures: gpu 50000 h")
    centre = max(daly(run.cost.stop, between), run.cost.flush)
    found = []
    for factor in AROUND:
        if (interval := centre * factor) >= run.cost.flush:
            one = with_interval(run, f"every(seconds={interval / 1e9!r})")
            made = repeated(one.job, one.cost, one.kinds, one.policy, runs=runs, seed=seed)
            found.append((interval, made.mean("total")))
    return sorted(found, key=lambda each: each[1].value)


__all__ = ["LongRunAnswer", "answer", "intervals", "prepare"]
