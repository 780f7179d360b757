"""What schedulers make of the same jobs; and the fewest nodes with which each keeps a goal."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.units import TIME, parse
from gpusim.policies.forms import JobsPolicy
from gpusim.studies.cluster.setup import PreparedCluster, ScheduledRun, run

_GOAL = re.compile(r"\s*(jct|wait)\s+(mean|p50|p90|p99)\s+(.+)|\s*(missed)\s+(.+)\s*")
MOST_NODES = 1 << 16


@dataclass(frozen=True)
class NodesTried:
    """A scheduler with so many nodes: the value of the goal's measure; None: a job found no place."""

    scheduler: str
    nodes: int
    value: float | None


@dataclass(frozen=True)
class ClusterAnswer:
    """A run for each scheduler; with a goal, on the fewest nodes that keep it, and all that was tried."""

    study: PreparedCluster
    runs: tuple[ScheduledRun, ...]
    nodes: tuple[int, ...] = ()
    tried: tuple[NodesTried, ...] = ()
    goal: str = ""

    def values(self) -> dict[str, Any]:
        """The numbers by name, a row for each scheduler."""
        rows = []
        for i, one in enumerate(self.runs):
            row: dict[str, Any] = {"scheduler": one.outcome.scheduler}
            if self.nodes:
                row["nodes"] = self.nodes[i]
            rows.append(row | one.values | one.outcome.counts)
        found: dict[str, Any] = {"cluster": self.study.spec.gpus, "arrivals": self.study.spec.arrivals, "schedulers": rows}
        if self.goal:
            found |= {"goal": self.goal, "tried": [vars(each) for each in self.tried]}
        return found


def answer(study: PreparedCluster, goal: str = "") -> ClusterAnswer:
    """Runs; with a goal ("wait p90 1 h", "jct mean 5 h", "missed 0.01") the search for nodes.  Raises GpusimError."""
    if ("?" in study.spec.gpus) != bool(goal):
        said = "a number of nodes is searched for, and nothing says which goal they have to keep" if not goal else (
            "a goal is searched for, and no number of nodes is open")  # fmt: skip
        raise GpusimError(said, hint="--gpus '? x 8 v100' --goal 'wait p90 1 h'")
    if not goal:
        return ClusterAnswer(study, tuple(run(study, policy, study.cluster()) for policy in study.policies))
    name, limit = goal_of(goal)
    if name == "missed" and not any(math.isfinite(job.deadline) for job in study.jobs):
        raise GpusimError("no job has a deadline to miss", hint="a column deadline_s, or --goal 'wait p90 1 h'")
    runs, nodes, tried = [], [], []
    for policy in study.policies:
        best, many, those = fewest(study, policy, name, limit)
        runs.append(best)
        nodes.append(many)
        tried += those
    return ClusterAnswer(study, tuple(runs), tuple(nodes), tuple(tried), goal)


def goal_of(word: str) -> tuple[str, float]:
    """(name of the measure, its largest value)."""
    match = _GOAL.fullmatch(word)
    if match is None:
        raise GpusimError(f"'{word}' is no goal", hint="wait p90 1 h, jct mean 5 h, missed 0.01")
    if match[4]:
        try:
            return "missed", float(match[5])
        except ValueError:
            raise GpusimError(f"'{match[5]}' is no share of jobs", hint="missed 0.01") from None
    return f"{match[1]}_{match[2]}_s", float(parse(match[3], TIME)) / 1e9


def fewest(study: PreparedCluster, policy: JobsPolicy, name: str, limit: float) -> tuple[ScheduledRun, int, list[NodesTried]]:
    """The fewest nodes with which the measure is within the limit, by doubling and halving: one node less breaks it.

    Fewer still may keep it by chance, since more nodes can be worse for a scheduler; that is not looked for.
    Raises GpusimError where no number of nodes keeps the goal.
    """
    tried: list[NodesTried] = []

    def keeps(nodes: int) -> ScheduledRun | None:
        try:
            one = run(study, policy, study.cluster(nodes))
        except GpusimError as error:
            if nodes >= MOST_NODES or not _too_small(error):
                raise
            tried.append(NodesTried(policy.spec, nodes, None))
            return None
        value = one.values[name]
        tried.append(NodesTried(policy.spec, nodes, value))
        return one if value <= limit and one.values["ended"] == one.values["jobs"] else None

    most = sum(job.gpus for job in study.jobs)  # with so many nodes no job waits
    low, high = 0, min(most, _about(study))
    best = keeps(high)
    while best is None:
        if high >= min(most, MOST_NODES):
            said = f"{policy.spec} does not keep the goal on any number of nodes"
            raise GpusimError(said, hint="a goal above the time alone")
        low, high = high, min(2 * high, most)
        best = keeps(high)
    while high - low > 1:
        middle = (low + high) // 2
        if (one := keeps(middle)) is None:
            low = middle
        else:
            high, best = middle, one
    return best, high, tried


def _about(study: PreparedCluster) -> int:
    """Half the nodes whose GPUs the jobs keep busy between the first arrival and the last: where the search begins."""
    kind = study.cluster(1).types[0]
    busy = sum(job.work / (study.rates.of(job, kind) or math.inf) * job.gpus * job.share for job in study.jobs)
    span = study.jobs[-1].arrival - study.jobs[0].arrival
    return max(1, min(math.ceil(busy / span / study.cluster(1).gpus / 2), MOST_NODES)) if span > 0 else 1


def _too_small(error: GpusimError) -> bool:
    few = "of one type; the cluster has" in error.message and "none that it may run on" not in error.message
    return few or "finds no place on the empty cluster" in error.message
