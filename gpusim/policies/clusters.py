"""Jobs that arrive at a cluster, and what a policy of kind `jobs` may look at; times in s.

A scheduler is an object with one of two verbs.

    shares(view) -> {(job,): {"v100": 0.5, ...}, (a, b): {...}}
        the share of time that a job, or two on the same GPUs, is to have on each type of GPU; the engine divides time into
        rounds (`gpusim.engine.cluster.rounds`) and asks when jobs have come or gone
    place(view) -> (job, gpus) | (job, ()) | None
        one decision, asked again until it is None: start this job on these GPUs, or stop it (`gpusim.engine.cluster.events`).
        Asked whenever a job comes or ends; `arrived(view, job)` and `left(view, job)` are called before, where it has them.

A built-in is one file `policies/jobs/<name>.py` with a function `<name>(**parameters)` that makes a scheduler, or
`<name>(view, **parameters)`, which is `place` itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]
Together = tuple[int, ...]
"""A job by its number, or two that share GPUs, the lower number first."""
Shares = Mapping[Together, Mapping[str, float]]
Decision = tuple[int, Sequence[int]] | None


@dataclass(frozen=True, kw_only=True)
class ArrivingJob:
    """What a trace says of a job.

    name      for people
    arrival   s
    work      steps, or seconds where nothing says how fast its steps are
    model     its row in a table of rates; "": a step takes a second on any GPU
    gpus      that it wants, all at once; share: of each, 1 unless `gpus` is 1
    sized     the number of GPUs that the rates are of; 0: as `gpus`
    memory    bytes of each GPU; host: bytes of the node, cpus: of the node; 0: not known
    types     of GPU that it may run on; empty: all
    weight    of its share; priority: the higher goes first
    deadline  s after its arrival
    where     file:line
    """

    name: str = ""
    arrival: float = 0.0
    work: float = 0.0
    model: str = ""
    gpus: int = 1
    share: float = 1.0
    sized: int = 0
    memory: float = 0.0
    host: float = 0.0
    cpus: float = 0.0
    types: tuple[str, ...] = ()
    weight: float = 1.0
    priority: float = 0.0
    deadline: float = np.inf
    where: str = ""


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

    def pair(self, a: ArrivingJob, b: ArrivingJob, kind: str) -> tuple[float, float] | None:
        """Of two jobs on the same GPUs; None where the table does not say."""
        return self.packed.get((kind, a.model, b.model, a.sized or a.gpus))


class ShareView:
    """What a policy with `shares` may look at.

    now     s
    jobs    numbers of those that have arrived and are not done, rising
    gpus    of each type in the cluster, by type in alphabetical order
    """

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

    def pair(self, a: int, b: int, kind: str) -> tuple[float, float]:
        """Steps/s of two jobs on the same GPUs of this type."""
        found = self._tables.pair(self._said[a], self._said[b], kind)
        assert found is not None  # the engine has looked
        return found
