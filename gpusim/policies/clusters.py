"""Jobs that arrive at a cluster, and what a policy of kind `jobs` may look at; times in s.

A scheduler is an object with one of two verbs.

    shares(view) -> {(job,): {"v100": 0.5, ...}, (a, b): {...}}
        the share of time that a job, or two on the same GPUs, is to have on each type of GPU; the engine divides time into
        rounds (`gpusim.engine.cluster.rounds`) and asks when jobs have come or gone.  `sizes(view) -> {job: GPUs}`, where it
        has that, says how many an elastic job takes at most in a round, of `view.job(job).sizes()`; others take what is left
    place(view) -> (job, gpus) | (job, gpus, part) | (job, ()) | None
        one decision, asked again until it is None: start this job on these GPUs, or stop it (`gpusim.engine.cluster.events`).
        `part` is the share of each GPU (0.5) or the MIG slice ("3g.40gb") that it is to have, in place of the share that the
        trace says; of a job that runs there: from now on.  Asked whenever a job comes or ends, and at the times that it says to
        `view.ask_at`; `arrived(view, job)`, `left(view, job)` and `failed(view, job)` (a failure takes its GPUs, and `arrived`
        follows) are called before, where it has them.  GPUs of a job that runs may be on a node that has failed until that is
        noticed: `view.free.works(gpus)`.

A built-in is one file `policies/jobs/<name>.py` with a function `<name>(**parameters)` that makes a scheduler, or
`<name>(view, **parameters)`, which is `place` itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Together = tuple[int, ...]
"""A job by its number, or two that share GPUs, the lower number first."""
Shares = Mapping[Together, Mapping[str, float]]
Part = float | str
"""What a job has of each of its GPUs: a share of it, or a MIG slice by name."""
Decision = tuple[int, Sequence[int]] | tuple[int, Sequence[int], Part] | None


@dataclass(frozen=True, kw_only=True)
class ArrivingJob:
    """What a trace says of a job.

    name      for people
    arrival   s
    work      steps, or seconds where nothing says how fast its steps are
    model     its row in a table of rates; "": a step takes a second on any GPU
    gpus      that it wants, all at once; share: of each, 1 unless `gpus` is 1
    least     GPUs with which it goes on where it cannot have all; 0: none but all; unit: it has a multiple of so many
    sized     the number of GPUs that the rates are of; 0: as `gpus`
    memory    bytes of each GPU; host: bytes of the node, cpus: of the node; 0: not known
    peak      bytes of each GPU that it takes in truth, where that is more than `memory`
    timed     whether `work` is in s alone on the fastest type of GPU although it has a model
    types     of GPU that it may run on; empty: all
    weight    of its share; priority: the higher goes first
    deadline  s after its arrival
    save      s for which a checkpoint stops it; restart: s to start it again and to load one; nan: as the cluster says
    where     file:line
    """

    name: str = ""
    arrival: float = 0.0
    work: float = 0.0
    model: str = ""
    gpus: int = 1
    least: int = 0
    unit: int = 1
    share: float = 1.0
    sized: int = 0
    memory: float = 0.0
    peak: float = 0.0
    timed: bool = False
    host: float = 0.0
    cpus: float = 0.0
    types: tuple[str, ...] = ()
    weight: float = 1.0
    priority: float = 0.0
    deadline: float = np.inf
    save: float = math.nan
    restart: float = math.nan
    where: str = ""

    @property
    def elastic(self) -> bool:
        """Whether it can go on with fewer GPUs."""
        return 0 < self.least < self.gpus

    def sizes(self) -> list[int]:
        """Numbers of GPUs that it can have, the largest first."""
        fewer = range(self.gpus - 1, self.least - 1, -1) if self.elastic else ()
        return [self.gpus, *(n for n in fewer if n % self.unit == 0)]


@dataclass(frozen=True, kw_only=True)
class ClusterNode:
    """A host with equal GPUs; bytes of each GPU and of the host, inf where they are not counted."""

    kind: str
    gpus: int
    memory: float = np.inf
    host: float = np.inf
    cpus: float = np.inf


@dataclass(frozen=True)
class ClusterSpec:
    """The nodes in order; types of GPU in the order in which the words of the cluster name them."""

    nodes: tuple[ClusterNode, ...]
    types: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "types", tuple(dict.fromkeys(node.kind for node in self.nodes)))

    @property
    def gpus(self) -> int:
        return sum(node.gpus for node in self.nodes)

    def count(self, kind: str) -> int:
        """GPUs of this type."""
        return sum(node.gpus for node in self.nodes if node.kind == kind)


class JobRates:
    """Steps a second, from a table; a job without a model does one step a second on any type.

    alone   (type of GPU, model, GPUs) -> steps/s
    packed  (type of GPU, model, model of the other, GPUs of each) -> steps/s of both
    """

    def __init__(
        self, alone: Mapping[tuple[str, str, int], float] | None = None,
        packed: Mapping[tuple[str, str, str, int], tuple[float, float]] | None = None,
    ) -> None:  # fmt: skip
        self.alone, self.packed = alone or {}, packed or {}

    def of(self, job: ArrivingJob, kind: str) -> float | None:
        """Of the job alone; None where the table does not say."""
        if not job.model:
            return 1.0
        return self.alone.get((kind, job.model, job.sized or job.gpus))

    def pace(self, job: ArrivingJob, kind: str, gpus: int) -> float:
        """Of an elastic job on so many GPUs, over that on all it wants; 0: the table does not say.

        In proportion where it has no model.  A rate of a table is that of all its GPUs together.
        """
        if gpus == job.gpus or not job.model:
            return gpus / job.gpus
        whole, part = self.of(job, kind), self.of(replace(job, gpus=gpus, sized=0), kind)
        return part / whole if part and whole else 0.0

    def pair(self, a: ArrivingJob, b: ArrivingJob, kind: str) -> tuple[float, float] | None:
        """Of two jobs on the same GPUs; None where the table does not say."""
        return self.packed.get((kind, a.model, b.model, a.sized or a.gpus))

    def beside(self, kind: str, there: Sequence[tuple[ArrivingJob, Part]]) -> tuple[float, ...]:
        """Speeds of jobs on one GPU, each with a part of it, over their speeds alone on a whole one.

        Jobs without a model do as the trace says.  Where the table has rates of pairs, two share by these whatever their parts.
        Raises GpusimError for what the table does not say.
        """
        modelled = [job for job, _ in there if job.model]
        if any(isinstance(part, str) for _, part in there):
            said = "a table of rates says nothing of MIG slices"
            raise GpusimError(said, hint="--rates 'island(sharing=mig)' simulates them")
        if len(there) < 2 or not modelled or not self.packed:
            return (1.0,) * len(there)
        if len(there) > 2 or len(modelled) < 2:
            names = ", ".join(job.name for job, _ in there)
            raise GpusimError(f"the table has rates of two models on one {kind}, not of {names}", there[0][0].where)
        found = self.pair(there[0][0], there[1][0], kind)
        if found is None:
            one, two = modelled
            said = f"the table has no rates of '{one.model}' and '{two.model}' together on {one.gpus} {kind} each"
            raise GpusimError(said, one.where, "leave the type of GPU or the job out, or add the row")
        return tuple(rate / (self.of(job, kind) or math.inf) for job, rate in zip(modelled, found, strict=True))


class ShareTable(Mapping[Together, Mapping[str, float]]):
    """Shares as an array: of rows of jobs, on types of GPU; above 0."""

    def __init__(self, rows: Sequence[Together], kinds: Sequence[str], parts: F64) -> None:
        self.rows, self.kinds, self.parts = rows, kinds, parts

    def __getitem__(self, row: Together) -> Mapping[str, float]:
        return dict(zip(self.kinds, self.parts[self.rows.index(row)].tolist(), strict=True))

    def __iter__(self) -> Iterator[Together]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)


class JobNumbers:
    """What policies with `shares` calculate with, of all jobs: GPUs that they want, weights, work, steps/s by type."""

    def __init__(self, jobs: Sequence[ArrivingJob], rates: Sequence[Mapping[str, float]], kinds: Sequence[str]) -> None:
        self.wants: F64 = np.array([job.gpus for job in jobs], np.float64)
        self.weights: F64 = np.array([job.weight for job in jobs], np.float64)
        self.work: F64 = np.array([job.work for job in jobs], np.float64)
        self.rates: F64 = np.array([[rate[kind] for kind in kinds] for rate in rates], np.float64)


class ShareView:
    """What a policy with `shares` may look at.

    now     s
    jobs    numbers of those that have arrived and are not done, rising
    gpus    of each type in the cluster, by type in alphabetical order
    known   the numbers of all jobs of the trace, where these have been made
    """

    known: JobNumbers | None = None

    def __init__(
        self, now: float, jobs: list[int], gpus: dict[str, int], said: Sequence[ArrivingJob], steps: Sequence[float],
        rates: Sequence[Mapping[str, float]], tables: JobRates,
    ) -> None:  # fmt: skip
        self.now, self.jobs, self.gpus = now, jobs, gpus
        self._said, self._steps, self._rates, self._tables = said, steps, rates, tables

    def job(self, job: int) -> ArrivingJob:
        """What the trace says of it."""
        return self._said[job]

    def left(self, job: int) -> float:
        """Steps that it has to do."""
        return self._said[job].work - self._steps[job]

    def rate(self, job: int, kind: str) -> float:
        """Steps/s alone on GPUs of this type."""
        return self._rates[job][kind]

    def pace(self, job: int, kind: str, gpus: int) -> float:
        """Of a job on so many GPUs of this type, over that on all it wants; 0: it does not run there."""
        return self._tables.pace(self._said[job], kind, gpus)

    def numbers(self) -> tuple[F64, F64, F64, F64]:
        """Of all jobs: GPUs that they want, weights, steps left, and steps/s (jobs, types in the order of `gpus`)."""
        all_jobs, at = self.known or JobNumbers(self._said, self._rates, tuple(self.gpus)), np.array(self.jobs, np.int64)
        steps = np.array(self._steps)
        return all_jobs.wants[at], all_jobs.weights[at], all_jobs.work[at] - steps[at], all_jobs.rates[at]

    def pair(self, a: int, b: int, kind: str) -> tuple[float, float]:
        """Steps/s of two jobs on the same GPUs of this type."""
        found = self._tables.pair(self._said[a], self._said[b], kind)
        assert found is not None  # the engine has looked
        return found
