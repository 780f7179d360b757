"""What jobs cost, alone and beside others on one GPU, as the engine simulates it: `--rates island(sharing=mps)`.

The model of a job is a program: a shipped recording, a file, another tool's recording.  A step is one of its iterations, the
first of several left out.  A training on several GPUs is divided over as many of one host by data, each with the batch that was
recorded; what does not train has a copy on each.
Costs are kept in memory for a run of the command, and in the user's cache by programs, parts, machine and code.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base import cache
from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.files import digest
from gpusim.base.yaml.find import find, find_run, is_managed, is_of_ranks
from gpusim.base.yaml.values import capacity
from gpusim.engine.run.tenants import I64, Program, progress, simulate_tenants
from gpusim.experiment.execute import RunProgram, chosen
from gpusim.experiment.key import Code
from gpusim.experiment.single import single
from gpusim.experiment.spec import KINDS, Policies, RunSpec
from gpusim.experiment.tasks import Task
from gpusim.machine import catalogue, mig
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import MIG, MPS, SLICES, Tenancy, Tenant, switch_of
from gpusim.machine.topology import build
from gpusim.policies.clusters import ArrivingJob, ClusterSpec, JobRates, Part
from gpusim.studies.fragmentation.inputs import open_trace
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import OP, Trace
from gpusim.trace.workload import Workload

WORD = "island"
WAYS = (MPS, SLICES, MIG)


def island(word: str, cluster: ClusterSpec, base: Path | None = None) -> IslandRates | None:
    """The rates of `island` or `island(sharing=mps, caps=1)`; None where the word is none.  Raises GpusimError.

    sharing  how programs have one GPU: mps, time_slices, mig
    caps     1: under mps a job may use the share of the multiprocessors that it has of the GPU; 0: all of them
    """
    if word.partition("(")[0].strip() != WORD:
        return None
    _, texts = split(word, "a way to rate jobs")
    if unknown := [key for key in texts if key not in ("sharing", "caps")]:
        raise GpusimError(f"{WORD} has no '{unknown[0]}'", hint=suggest(unknown[0], ("sharing", "caps")))
    sharing, caps = texts.get("sharing", MPS), texts.get("caps", "0")
    if sharing not in WAYS:
        raise GpusimError(f"'{sharing}' is no way to share a GPU", hint=suggest(sharing, WAYS))
    if caps not in ("0", "1") or (caps == "1" and sharing != MPS):
        raise GpusimError(f"caps={caps}", hint="caps=1 with sharing=mps: a job's share caps its multiprocessors")
    if unknown := [kind for kind in cluster.types if kind not in catalogue.names()]:
        near = suggest(unknown[0], catalogue.names())
        raise GpusimError(f"'{unknown[0]}' is no GPU that can be simulated", hint=near or "gpusim profiles")
    return IslandRates(sharing, caps == "1", cluster, base)


class IslandRates(JobRates):
    """Steps a second of programs, each combination simulated when it is first asked for."""

    def __init__(self, sharing: str, caps: bool, cluster: ClusterSpec, base: Path | None) -> None:
        super().__init__()
        self.sharing, self.caps, self._base = sharing, caps, base
        self._hosts = {kind: max(node.gpus for node in cluster.nodes if node.kind == kind) for kind in cluster.types}
        self._gpus = {kind: catalogue.load(kind) for kind in cluster.types}
        self._traces: dict[str, Trace] = {}
        self._programs: dict[tuple[str, str], RunProgram] = {}
        self._alone: dict[tuple[str, str], tuple[I64, int]] = {}
        self._known: dict[str, list[float]] = {}
        self._rates: dict[tuple[str, str, int], float] = {}
        self._pairs: dict[tuple[str, str, str, int], tuple[float, float]] = {}
        self.simulated = self.looked_up = 0

    # ---------------------------------------------------------------- what the cluster asks

    def of(self, job: ArrivingJob, kind: str) -> float | None:
        """Steps/s of the job alone; 0 where it takes more memory than the GPU has."""
        if not job.model:
            return 1.0
        many = job.sized or job.gpus
        if many > self._hosts[kind]:
            said = f"{job.name} wants {many} GPUs, and a host has {self._hosts[kind]} {kind}: {WORD} rates know no network"
            raise GpusimError(said, job.where, "larger nodes, or a table of rates")
        if (found := self._rates.get((kind, job.model, many))) is None:
            found = self._kept(["alone", kind, many, job.model], lambda: [self._rate(job.model, kind, many)])[0]
            self._rates[kind, job.model, many] = found
        return found

    def pace(self, job: ArrivingJob, kind: str, gpus: int) -> float:
        """A simulated rate is that of each GPU, with the batch that was recorded."""
        return super().pace(job, kind, gpus) * (gpus / job.gpus if job.model else 1.0)

    def pair(self, a: ArrivingJob, b: ArrivingJob, kind: str) -> tuple[float, float] | None:
        """Steps/s of two jobs on the same GPUs, each with half of them."""
        key = kind, a.model, b.model, a.sized or a.gpus
        if not a.model or (found := self._pairs.get(key)) is None:
            one, two = self.beside(kind, ((a, 0.5), (b, 0.5)))
            found = self._pairs[key] = one * (self.of(a, kind) or 0.0), two * (self.of(b, kind) or 0.0)
        return found

    def beside(self, kind: str, there: Sequence[tuple[ArrivingJob, Part]]) -> tuple[float, ...]:
        """Speeds of jobs that share a GPU over their speeds alone on a whole one.  Raises GpusimError for what is not known."""
        if other := next((job for job, _ in there if not job.model), None):
            if len(there) == 1:
                return (1.0,)
            raise GpusimError(f"{other.name} has no program: nothing says what it costs others", other.where)
        if self.sharing == MIG or any(isinstance(part, str) for _, part in there):
            return tuple(self._on_slice(job, kind, part) for job, part in there)
        if len(there) == 1 and not self.caps:
            return (1.0,)
        rows = sorted((job.model, self._cap(part), number) for number, (job, part) in enumerate(there))
        found = self._kept(["beside", kind, self.sharing, *[row[:2] for row in rows]], lambda: self._together(kind, rows))
        speeds = dict(zip((number for *_, number in rows), found, strict=True))
        return tuple(speeds[number] for number in range(len(there)))

    def needs(self, job: ArrivingJob, kind: str) -> float:
        """Bytes that the job takes of each GPU: what is alive at once, and the context."""
        context = float(self._gpus[kind].context.value)
        return self._work(job.model, self._gpus[kind]).live_peak + context if job.model else 0.0

    # ---------------------------------------------------------------- simulations

    def _cap(self, part: Part) -> int:
        assert not isinstance(part, str)
        return max(round(100 * part), 1) if self.caps else 100

    def _on_slice(self, job: ArrivingJob, kind: str, part: Part) -> float:
        if not isinstance(part, str):
            if part >= 1.0:
                return 1.0
            said = f"{job.name} has {part:g} of a GPU, and {WORD}(sharing={MIG}) gives slices"
            raise GpusimError(said, job.where, "--scheduler mig_best_fit, or sharing=mps")
        return self._kept(["slice", kind, part, job.model], lambda: [self._sliced(job.model, kind, part)])[0]

    def _sliced(self, model: str, kind: str, name: str) -> float:
        gpu = self._gpus[kind]
        machine = mig.instance(gpu, name)
        room = int(machine.memory.capacity.value - machine.context.value)
        work = self._work(model, machine)
        if work.live_peak > room:
            return 0.0
        ran = simulate_tenants([Program(work, machine, room)], None, **self._choices)
        _finished(model, f"{name} of {kind}", ran.results[0])
        return self._step_alone(model, kind) / _step(work.trace, ran.began[0], int(ran.results[0].metrics["makespan_ns"]))

    def _together(self, kind: str, rows: Sequence[tuple[str, int, int]]) -> list[float]:
        gpu = self._gpus[kind]
        works = [self._work(model, gpu) for model, *_ in rows]
        left = float(gpu.memory.capacity.value) - len(rows) * float(gpu.context.value)
        wanted = sum(work.live_peak for work in works)
        if wanted > left:
            return [0.0] * len(rows)
        rooms = [int(work.live_peak * left / wanted) for work in works]
        programs = [
            Program(work, gpu, room, cap) for work, room, (_, cap, _) in zip(works, rooms, rows, strict=True)
        ]
        apart = bool(self.caps) and sum(cap for _, cap, _ in rows) <= 100
        switch = switch_of(gpu)
        tenancy = Tenancy(self.sharing, tuple(Tenant(switch.slice) for _ in rows), switch, apart=apart)
        ran = simulate_tenants(programs, tenancy, **self._choices)
        for (model, *_), result in zip(rows, ran.results, strict=True):
            _finished(model, kind, result)
        return list(progress(ran, [self._course(model, kind) for model, *_ in rows]))

    def _rate(self, model: str, kind: str, many: int) -> float:
        gpu = self._gpus[kind]
        if self._work(model, gpu).live_peak > gpu.memory.capacity.value - gpu.context.value:
            return 0.0
        alone = 1e9 / self._step_alone(model, kind)
        if many == 1 or not any("bwd" in phase for phase in self._trace(model).phases):
            return alone
        spec = self._spec(parallel=f"data={many}", fold=True)
        ran, _ = single(self._trace(model), build.of_profile(gpu, many), spec, bounds=False)
        _finished(model, f"{many} {kind}", ran)
        return alone * self._course(model, kind)[1] / float(ran.metrics["makespan_ns"])

    def _step_alone(self, model: str, kind: str) -> float:
        return _step(self._trace(model), *self._course(model, kind))

    def _course(self, model: str, kind: str) -> tuple[I64, int]:
        """When its operators begin on a GPU of its own, and its makespan, ns."""
        if (model, kind) not in self._alone:
            gpu = self._gpus[kind]
            room = int(gpu.memory.capacity.value - gpu.context.value)
            ran = simulate_tenants([Program(self._work(model, gpu), gpu, room)], None, **self._choices)
            _finished(model, kind, ran.results[0])
            self._alone[model, kind] = ran.began[0], int(ran.results[0].metrics["makespan_ns"])
        return self._alone[model, kind]

    @cached_property
    def _choices(self) -> dict[str, Any]:
        made = chosen(Task("", self._spec(), Path(), Path(), (), Path()))
        made.pop("active_thread_percentage")
        return made

    def _spec(self, **more: Any) -> RunSpec:
        usual = {kind: getattr(Policies(), kind)[0] for kind in KINDS}
        return RunSpec(WORD, WORD, capacity("capacity"), capacity("capacity"), **usual, **more)

    # ---------------------------------------------------------------- programs, and what is kept of them

    def _file(self, model: str) -> Path:
        """Raises GpusimError for a name that is no program."""
        try:
            file = find_run(model)
        except GpusimError:
            file = (self._base or Path()) / model
        if not file.is_file():
            said = f"'{model}' is no program: {WORD} rates simulate a shipped recording or a file"
            raise GpusimError(said, hint="gpusim trace")
        if is_managed(file) or is_of_ranks(file):
            raise GpusimError(f"'{model}' is not the program of one GPU, which {WORD} rates simulate")
        return file

    def _trace(self, model: str) -> Trace:
        if model not in self._traces:
            self._traces[model] = open_trace(str(self._file(model)), None)
        return self._traces[model]

    def _work(self, model: str, machine: Profile) -> Workload:
        key = model, machine.name + str(machine.gpu.sm_count.value)
        if key not in self._programs:
            self._programs[key] = RunProgram(self._trace(model), machine)
        work = self._programs[key].work
        assert isinstance(work, Workload), "refused before"
        return work

    def _kept(self, key: list[Any], make: Any) -> list[float]:
        """What was simulated before, in this process or another one; else what `make` simulates."""
        name = json.dumps(key)
        if name in self._known:
            return self._known[name]
        file, found = self._place(key), None
        if file is not None and (content := cache.read(file)) is not None:
            found = [float(value) for value in json.loads(content)]
            self.looked_up += 1
        if found is None:
            found = [float(value) for value in make()]
            self.simulated += 1
            if file is not None:
                cache.write(file, json.dumps(found).encode())
        self._known[name] = found
        return found

    def _place(self, key: list[Any]) -> Path | None:
        folder = cache.folder("corun")
        if folder is None:
            return None
        kind = next(word for word in key if word in self._hosts)
        models = [row[0] if isinstance(row, tuple) else row for row in key[3:]]
        said = [key, digest(find("profile", kind)), [digest(self._file(model)) for model in models], self._code]
        return folder / f"{hashlib.sha256(json.dumps(said).encode()).hexdigest()[:32]}.json"

    @cached_property
    def _code(self) -> str:
        return Code().of_all(__name__)


def _step(trace: Trace, began: I64, makespan: int) -> float:
    """ns of an iteration, the first of several left out."""
    of = iterations(trace)[trace.kind == OP]
    many = int(of.max(initial=0)) + 1
    if many < 2:
        return float(makespan)
    return (makespan - float(np.min(began[: len(of)][of == 1]))) / (many - 1)


def _finished(model: str, where: str, result: Any) -> None:
    if not result.finished:
        raise GpusimError(f"'{model}' ends with '{result.outcome}' on {where}", hint="gpusim run shows why")

