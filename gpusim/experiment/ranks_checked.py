"""The referee's word on a run of all ranks of a program: their programs and machine are made anew, as the run had them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpusim.base.defaults import LATER
from gpusim.base.errors import ResultError
from gpusim.engine.run.ranks import connections
from gpusim.experiment.ranked import collectives_of, divided, flow_by
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology import build
from gpusim.machine.topology.lenders import below
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs import transforms
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.programs.ranks.stragglers import Pace
from gpusim.referee import ranks
from gpusim.referee.report import Findings, Report
from gpusim.results.ranks import of_all
from gpusim.results.result import Result
from gpusim.trace.trace import Trace


def check_ranks(result: Result, trace: Trace | RankPrograms, collectives: CollectiveTimes, own: Registry = SHIPPED) -> Report:
    """Recompute the result of each rank, and that of all from them, as one report that names the ranks.

    trace        of one GPU, before it was divided, or that of each rank
    collectives  their times on the machine that ran

    Raises GpusimError for a program or a machine that cannot be divided as it was.
    """
    if any(rank.log is None for rank in result.ranks):
        return Report(ok=None)
    said = {name: str(result.spec.get(name, LATER[name])) for name in ("parallel", "share")}
    memory = result.spec.get("host_memory")
    _, after = transforms.around_ranks(str(result.spec.get("transform", transforms.NONE)), own)
    ran = divided(
        trace, collectives, said["parallel"], [str(rank.spec["gpu"]) for rank in result.ranks], own, share=said["share"],
        slower=_paces(result), host_memory=lambda _: memory, after=after,
    )  # fmt: skip
    programs = [program.work.trace for program in ran.programs]
    lent = below(collectives.machine, ran.gpus, ran.given, str(result.spec.get("tiers", LATER["tiers"])))
    between = connections(programs, collectives.machine, ran.gpus, ran.members, flow_by(collectives), lent)
    return as_one(_whole(result, ran.batches), ranks.check(result.ranks, programs, ran.given, between))


def _paces(result: Result) -> dict[str, Pace]:
    """Of the ranks whose kernels took longer, as they say it."""
    slower = {str(i): rank.spec["slower"] for i, rank in enumerate(result.ranks) if "slower" in rank.spec}
    return {
        rank: tuple((int(time), float(factor)) for time, factor in said) if isinstance(said, list) else ((0, float(said)),)
        for rank, said in slower.items()
    }


def collectives_for(result: Result, base: Path) -> CollectiveTimes:
    """Of the machine that a run was on, found from its results folder.  Raises ResultError."""
    word = str(result.spec["profile"])
    if (file := build.file_of(word, base)) is None:
        raise ResultError(f"the machine '{word}' that ran is not there, and without it no time can be checked")
    return collectives_of(file, word)


def _whole(result: Result, count: int) -> Report:
    """Whether the result of all ranks, which have gone through so many batches (0: not known), is made of theirs."""
    found, made = Findings(), of_all(result.ranks)
    expected = dict(made.metrics)
    if made.finished and count:
        expected["batch_ns"] = round(made.metrics["makespan_ns"] / count)
    for name in [name for name in expected if name in result.metrics]:
        found.count("metrics", 1)
        if not math.isclose(result.metrics[name], expected[name], rel_tol=1e-9):
            found.say(-1, f"metric {name} is {result.metrics[name]}", f"{expected[name]}, by those of the ranks")
    if result.outcome != made.outcome:
        found.say(-1, f"the outcome is '{result.outcome}'", f"'{made.outcome}', by those of the ranks")
    return found.report()


def as_one(whole: Report, each: Sequence[Report], what: str = "rank") -> Report:
    """A violation in the log of a rank, or of a program, names it."""
    named = [replace(v, what=f"{what} {i}, {v.what}") for i, report in enumerate(each) for v in report.violations]
    violations = (*whole.violations, *named)
    return Report(not violations, violations, sum((Counter(one.facts) for one in (*each, whole)), Counter()))
