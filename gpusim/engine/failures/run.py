"""A long run from its numbers: prepare, advance, and what became of its time; many of them for a mean with its interval."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import direct
from gpusim.base.errors import GpusimError
from gpusim.base.tables import filled, table
from gpusim.engine.failures import tables as t
from gpusim.engine.failures.loop import run_until
from gpusim.engine.failures.tables import NEVER
from gpusim.policies.forms import CheckpointPolicy
from gpusim.policies.intervals import CheckpointView

F64 = npt.NDArray[np.float64]
EFFECTS = {
    "restart": t.RESTART, "lose_node": t.LOSE_NODE, "slow": t.SLOW, "shrink": t.SHRINK, "degrade": t.DEGRADE,
}  # fmt: skip
DRAWN, LOGGED, EPISODES = 256, 4096, 16  # numbers and records at a time; slow nodes at first
_ENDLESS = "the work does not end within 73 years: failures are as frequent as checkpoints"
NORMAL_99 = 2.5758293035489004


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training job on equal nodes; times in ns, sizes in bytes.

    work    at full strength
    nodes   that it wants; `least`: it goes on with so many, shrinking by `unit` at once; spare ones stand by
    gpus    of a node
    margin  of a GPU's memory that the job does without
    restart  placing and starting the program; regroup: going on with more nodes
    step    of training: checkpoints are taken between steps; 0: at any time
    pace    of the work by number of nodes, of its full strength; without it in proportion
    """

    work: float
    nodes: int = 1
    least: int = 0
    unit: int = 1
    spare: int = 0
    gpus: int = 8
    margin: float = math.inf
    restart: float = 0.0
    regroup: float = 0.0
    step: float = 0.0
    pace: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class CheckpointCost:
    """What a whole checkpoint costs; ns.

    stop          for which the job stands still
    to_peers, to_storage  until it is safe there, beside the work; to_storage 0: it is when the job goes on
    load          from the nodes' own memory, from that of neighbours, from storage
    host, agent   a copy stays in the nodes' memory; a process of its own keeps it when the program dies
    copies        neighbours that each keep a copy of a node's part
    each          every so many checkpoints one goes to storage; 0: only the last
    full, share   every so many are whole, the others write so large a share
    rebalance     neighbours get the copies again that a failure has taken, as soon as the program runs
    speed         of the work while a copy is on its way: to neighbours, to storage
    join          until a node that joins has its part of the state
    fewer         the same of a job that has shrunk, by its nodes
    """

    stop: float
    to_peers: float = 0.0
    to_storage: float = 0.0
    load: tuple[float, float, float] = (0.0, 0.0, 0.0)
    host: bool = False
    agent: bool = False
    copies: int = 0
    rebalance: bool = False
    each: int = 1
    full: int = 1
    share: float = 1.0
    speed: tuple[float, float] = (1.0, 1.0)
    join: float = 0.0
    fewer: Mapping[int, CheckpointCost] = field(default_factory=dict)

    @property
    def flush(self) -> float:
        """ns from the end of a checkpoint until the next one may begin, of one that goes as far as any does."""
        return self.to_peers + (self.to_storage if self.each else 0.0)


@dataclass(frozen=True, kw_only=True)
class FailureKind:
    """What fails, how often, and what that does; ns.

    between    mean time between failures of one component
    after      instead: so long after each start of the program
    each       components of a node; 0: there is one in all
    group      nodes that fail together, the first of them a multiple of their number
    effect     restart, lose_node, slow, shrink, degrade
    host_lost  the memory of the node's host is lost, too
    detect     until it is noticed; repair: until the node is back, math.inf: never
    speed      of all ranks beside a slow one, or on the links that are left, for `lasts`
    bytes      of a GPU's memory that are retired
    """

    name: str
    between: float = math.inf
    after: float = 0.0
    group: int = 1
    each: float = 1.0
    effect: str = "restart"
    host_lost: bool = False
    detect: float = 0.0
    repair: float = math.inf
    speed: float = 1.0
    lasts: float = 0.0
    bytes: float = 0.0

    @property
    def interrupts(self) -> bool:
        return self.effect in ("restart", "lose_node", "degrade")


@dataclass(frozen=True)
class ToldFailure:
    """A failure of a log: when, ns; the name of its kind; the node; file:line."""

    at: int
    kind: str
    node: int = 0
    where: str = ""


@dataclass(frozen=True)
class Course:
    """What became of a run; ns.

    spent   by what the job did (tables.PHASES)
    lost    work that was done twice
    loads   recoveries from each level (tables.LEVELS); `scratch`: from none
    counts  failures by kind
    """

    total: int
    work: float
    spent: dict[str, int]
    lost: float
    checkpoints: int
    interruptions: int
    loads: dict[str, int]
    scratch: int
    counts: dict[str, int]
    interval: float

    @property
    def effective(self) -> float:
        """Share of the time that was work which counts: effective training time."""
        return self.work / self.total if self.total else 1.0


class FailingRun:
    """One run of a job; the same seed has the same failures.

    kinds   what fails at random; `told`: failures of a log besides, of these kinds, in order of time
    policy  of kind checkpoint

    Raises GpusimError for what cannot be.
    """

    def __init__(
        self, job: Job, cost: CheckpointCost, kinds: Sequence[FailureKind], policy: CheckpointPolicy, *, seed: int = 0,
        told: Sequence[ToldFailure] = (), log: bool = False,
    ) -> None:  # fmt: skip
        _check(job, cost, kinds, told)
        self.job, self.cost, self.kinds, self.policy, self._log = job, cost, tuple(kinds), policy, log
        nodes, names = job.nodes, [kind.name for kind in kinds]
        self.between = between_interruptions(job, kinds)
        lengths = {"N": nodes, "N + 1": nodes + 1, "gpus": job.gpus, "broken": nodes + job.spare + 1, "slow": EPISODES,
                   "draws": DRAWN, "log": LOGGED if log else 1}  # fmt: skip
        rows = table(len(told), t.TOLD)
        for row, one in zip(rows, told, strict=True):
            row["t"], row["kind"], row["node"] = one.at, names.index(one.kind), one.node
        self.tables = filled(t.LongRun, lengths | {"K": max(1, len(kinds))}, told=rows)
        self._fill()
        self.begin(seed)

    def _fill(self) -> None:
        job, cost, row = self.job, self.cost, self.tables.job[0]
        row["work"], row["nodes"], row["least"], row["unit"] = job.work, job.nodes, job.least or job.nodes, job.unit
        row["gpus"], row["margin"], row["restart"] = job.gpus, job.margin, job.restart
        row["each"], row["full"], row["share"], row["host"] = cost.each, cost.full, cost.share, cost.host
        row["agent"], row["copies"], row["rebalance"] = cost.agent, cost.copies, cost.rebalance
        row["asks"] = self.policy.name in ("adaptive",) or not self.policy.entry.builtin
        row["ages"] = any(kind.after for kind in self.kinds)
        _fill_sizes(self.tables.size, job, cost)
        for kind, to in zip(self.kinds, self.tables.failure, strict=False):
            to["rate"], to["each"], to["after"], to["group"] = 1.0 / kind.between, kind.each, kind.after, kind.group
            to["effect"], to["host_lost"], to["detect"] = EFFECTS[kind.effect], kind.host_lost, kind.detect
            to["repair"] = min(kind.repair, float(NEVER))
            to["speed"], to["lasts"], to["bytes"] = kind.speed, min(kind.lasts, float(NEVER)), kind.bytes

    def share(self, nodes: int) -> None:
        """Its spare nodes are those of several jobs, which have so many nodes in all."""
        self.tables = self.tables._replace(repairs=np.zeros(nodes + 1, np.int64))
        self.tables.job["shared"] = 1

    def begin(self, seed: int) -> None:
        """From the start, with the failures of this seed."""
        self._rng, self._records = np.random.default_rng(seed), list[Any]()
        for changing in (self.tables.course, self.tables.gone, self.tables.hollow, self.tables.retired):
            changing[:] = np.zeros((), changing.dtype)
        self.tables.failure["count"] = 0
        c, job = self.tables.course[0], self.job
        c["phase"], c["ends"], c["flush_ends"], c["slow_ends"] = t.COMPUTING, NEVER, NEVER, NEVER
        c["saved"], c["speed"], c["used"], c["spare"] = -1.0, 1.0, job.nodes, job.spare
        c["asked"], c["log_on"] = 1, self._log
        self._draw()
        c["left"] = -math.log1p(-float(self.tables.draws[0]))
        c["drawn"] = 1

    @property
    def now(self) -> int:
        """Simulated time, ns."""
        return int(self.tables.course["now"][0])

    def advance(self, until: int = NEVER - 1) -> int:
        """Goes on up to `until` ns; REACHED or FINISHED, of a job that shares spare nodes STEPPED after each event.

        Raises GpusimError where the work will never end.
        """
        while True:
            reason = int(direct(run_until)(self.tables, until))
            if reason == t.DRAWS:
                self._draw()
            elif reason == t.ASK:
                self._ask()
            elif reason == t.LOG_FULL:
                self._empty_log()
            elif reason == t.CROWDED:
                self.tables = self.tables._replace(slow=np.concatenate([self.tables.slow, np.zeros_like(self.tables.slow)]))
            elif reason == t.STUCK and self.now > NEVER // 2:
                raise GpusimError(_ENDLESS)
            elif reason == t.STUCK:
                raise GpusimError(
                    "the run waits for nodes for ever: so many are broken that none comes back",
                    hint="give it spare nodes, a time of repair, or let it go on with fewer (least)",
                )
            elif reason == t.REACHED and until >= NEVER - 1:
                raise GpusimError(_ENDLESS)
            else:
                return reason

    def view(self) -> CheckpointView:
        """What the checkpoint policy sees now."""
        restart, c = self.job.restart + max(self.cost.load), self.tables.course[0]
        return CheckpointView(self.cost.stop, self.cost.flush, self.between, restart, float(c["now"]), int(c["interruptions"]))

    def _ask(self) -> None:
        c, step = self.tables.course[0], self.job.step
        interval = min(self.policy.interval(self.view()), self.job.work)
        if step:
            interval = max(1, round(interval / step)) * step
        c["interval"], c["asked"], c["mark"] = interval, 0, c["progress"] + interval

    def _draw(self) -> None:
        c, draws = self.tables.course[0], self.tables.draws
        left = len(draws) - int(c["drawn"]) if c["drawn"] else 0
        draws[:left] = draws[len(draws) - left :]
        draws[left:] = self._rng.random(len(draws) - left)
        c["drawn"] = 0

    def _empty_log(self) -> None:
        c = self.tables.course[0]
        self._records.append(self.tables.log[: int(c["logged"])].copy())
        c["logged"] = 0

    def records(self) -> Any:
        """What has happened so far (tables.ROW rows, in order of time)."""
        self._empty_log()
        self._records = [np.concatenate(self._records)]
        return self._records[0]

    def course(self) -> Course:
        """What has become of the run so far."""
        c = self.tables.course[0]
        return Course(
            self.now, float(c["progress"]), dict(zip(t.PHASES, c["spent"].tolist(), strict=True)), float(c["lost"]),
            int(c["taken"]), int(c["interruptions"]), dict(zip(t.LEVELS, c["loads"].tolist(), strict=True)), int(c["scratch"]),
            {kind.name: int(row["count"]) for kind, row in zip(self.kinds, self.tables.failure, strict=False)},
            float(c["interval"]),
        )  # fmt: skip


def _fill_sizes(rows: Any, job: Job, cost: CheckpointCost) -> None:
    """What the job does on so many nodes."""
    for n in range(1, job.nodes + 1):
        row, its = rows[n], cost.fewer.get(n, cost)
        row["pace"] = job.pace.get(n, n / job.nodes)
        row["copy"], row["load"], row["regroup"] = its.stop, its.load, job.regroup + its.join
        row["flush"], row["beside"] = (0.0, its.to_peers, its.to_storage), (1.0, *its.speed)


def between_interruptions(job: Job, kinds: Sequence[FailureKind]) -> float:
    """Mean ns between interruptions of a job that has all its nodes; math.inf: nothing fails."""
    rate = sum(_components(job, kind) / kind.between for kind in kinds if kind.interrupts)
    rate += sum(job.nodes / _worn_out(job, kind) for kind in kinds if kind.effect == "shrink")
    rate += sum(1.0 / kind.after for kind in kinds if kind.after)
    return 1.0 / rate if rate else math.inf


def _components(job: Job, kind: FailureKind) -> float:
    return kind.each * job.nodes if kind.each else 1.0


def _worn_out(job: Job, kind: FailureKind) -> float:
    """Mean ns until the first GPU of a new node has lost one page more than its margin allows."""
    if job.margin == math.inf or not kind.bytes or kind.between == math.inf:
        return math.inf
    pages = math.floor(job.margin / kind.bytes) + 1
    x = np.linspace(0.0, pages + 10.0 * math.sqrt(pages), 4001)  # mean times between pages of a GPU
    term = np.exp(-x)
    left = np.zeros_like(x)  # P(a GPU has lost fewer)
    for lost in range(pages):
        left += term
        term *= x / (lost + 1)
    all_left = left**kind.each
    return float((all_left[1:] + all_left[:-1]).sum() * x[1] / 2) * kind.between


def _check(job: Job, cost: CheckpointCost, kinds: Sequence[FailureKind], told: Sequence[ToldFailure]) -> None:
    if job.work <= 0 or job.nodes < 1 or job.unit < 1 or job.spare < 0:
        raise GpusimError("a run needs work to do and a node to do it on")
    if not 0 <= job.least <= job.nodes:
        raise GpusimError(f"a job of {job.nodes} nodes cannot go on with {job.least} at least", hint=f"1 to {job.nodes}")
    if cost.copies >= job.nodes > 1 or (cost.copies and job.nodes == 1):
        raise GpusimError(f"{cost.copies} neighbours that keep copies are not there: the job has {job.nodes} nodes")
    names = [kind.name for kind in kinds]
    for name in names:
        if names.count(name) > 1:
            raise GpusimError(f"failures of '{name}' are told twice")
    for before, one in zip((None, *told), told, strict=False):
        if one.kind not in names:
            raise GpusimError(f"there are no failures of kind '{one.kind}'", hint="there are " + ", ".join(names))
        if before is not None and one.at < before.at:
            raise GpusimError(f"the log of failures goes back in time at {one.at / 1e9:g} s")


@dataclass(frozen=True)
class Mean:
    """A mean over runs and half of the width of its interval, in which the true one is 99 times out of 100."""

    value: float
    half: float


@dataclass(frozen=True)
class Runs:
    """Equal runs that differ in what fails when."""

    courses: tuple[Course, ...] = field(repr=False)

    def mean(self, of: str) -> Mean:
        """Of a number of `Course`: total, effective, lost, interruptions, checkpoints, or a phase."""
        values: F64 = np.array([c.spent[of] if of in t.PHASES else getattr(c, of) for c in self.courses], np.float64)
        half = NORMAL_99 * values.std(ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.inf
        return Mean(float(values.mean()), float(half))


def repeated(
    job: Job, cost: CheckpointCost, kinds: Sequence[FailureKind], policy: CheckpointPolicy, *, runs: int = 200, seed: int = 0,
    close: float = 0.0, most: int = 100_000,
) -> Runs:  # fmt: skip
    """Runs with seeds of their own: `runs` of them, and more (up to `most`) until the mean of the total is known to the
    share `close` of itself, 99 times out of 100."""
    courses: list[Course] = []
    for made in _each(job, cost, kinds, policy, seed):
        courses.append(made)
        if len(courses) >= runs and len(courses) % runs == 0:
            total = Runs(tuple(courses)).mean("total")
            if not close or total.half <= close * total.value or len(courses) >= most:
                break
    return Runs(tuple(courses))


def first_seed(seed: int) -> int:
    """Of the first run of `repeated`; each further one has the next."""
    return seed * 1_000_003


def _each(
    job: Job, cost: CheckpointCost, kinds: Sequence[FailureKind], policy: CheckpointPolicy, seed: int
) -> Iterator[Course]:
    one = FailingRun(job, cost, kinds, policy)
    for number in count():
        one.begin(first_seed(seed) + number)
        one.advance()
        yield one.course()

