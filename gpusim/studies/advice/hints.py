"""What the search behind `gpusim faults --advise` proposes: unified memory, and hints to its driver."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.values import NONE, Capacity, PolicySpec
from gpusim.engine.pages.advisor import MOST, Advised, Finding
from gpusim.experiment.advise import SHORT, search, seconds
from gpusim.experiment.answerable import ALL, answerable
from gpusim.experiment.execute import result
from gpusim.experiment.spec import RunSpec
from gpusim.experiment.tasks import Task, without_limit
from gpusim.studies.advice.answer import FAULTS, NotTried, Proposal, Tools
from gpusim.trace.answers import answers
from gpusim.trace.files import save_trace
from gpusim.trace.trace import Trace

DRIVER = PolicySpec("driver")
UNIFIED = "unified memory"
WHOLE = "Times under unified memory are of the whole program; how sure they are is not known."
NO_LINE = "PyTorch has no setting for it: an allocator of cudaMallocManaged (torch.cuda.memory.CUDAPluggableAllocator)"


@dataclass(frozen=True)
class ManagedRun:
    """A program under unified memory on a machine.

    program  the file of a managed program, or a trace
    machine  the file of its profile; word: as the user wrote it
    room     bytes that the program may use; None: what the machine has
    """

    program: Path | Trace
    machine: Path
    word: str
    room: int | None = None


def unified(found: ManagedRun) -> Tools:
    """The program under unified memory as it is, then with the hints that a search finds; why not where it cannot run so."""
    with tempfile.TemporaryDirectory() as folder:
        task = _task(found, Path(folder))
        try:
            done = result(task)
        except GpusimError as error:
            return Tools(untried=[NotTried(UNIFIED, str(error))])
        if not done.finished:
            return Tools(helpless=[NotTried(UNIFIED, str((done.failure or {}).get("advice", done.outcome)))])
        free, own = _without_limit(task, found.program), not isinstance(found.program, Trace)
        base = _proposal(found, UNIFIED, float(done.metrics["makespan_ns"]), free, "")
        if not own and seconds(done) > SHORT:
            why = f"a search simulates up to {MOST} programs of about {seconds(done):.0f} s: gpusim faults EXPERIMENT --advise"
            return Tools([base], untried=[NotTried(f"hints for {UNIFIED}", why)])
        try:
            advised = search(task, done)
        except GpusimError as error:
            return Tools([base], untried=[NotTried(f"hints for {UNIFIED}", str(error))])
        return Tools([*_hinted(found, advised, free), base], _helpless(advised))


def _task(runs: ManagedRun, folder: Path) -> Task:
    """The run; a trace in memory is kept in `folder` for the processes that search."""
    program, can = runs.program, ALL
    if isinstance(program, Trace):
        can, file = answers(program), folder / "trace.npz"
        save_trace(program, file)
        name = program.name
    else:
        file, name = program, program.stem
    spec = RunSpec(
        name, runs.word, Capacity() if runs.room is None else Capacity(runs.room), Capacity(), PolicySpec("pytorch"),
        NONE, NONE, unified=DRIVER,
    )  # fmt: skip
    return Task("", answerable(spec, can), file, runs.machine, (), folder)


def _without_limit(task: Task, program: Path | Trace) -> float | None:
    """Makespan in ns of the same program in a memory that never fills, a recorded one without unified memory."""
    way = [NONE] if isinstance(program, Trace) else [task.spec.unified]
    (free,) = without_limit(task.spec, way, [task.spec.place])
    done = result(replace(task, spec=free, unlimited=True))
    return float(done.metrics["makespan_ns"]) if done.finished else None


def _proposal(found: ManagedRun, change: str, ns: float, free: float | None, line: str) -> Proposal:
    note = NO_LINE if isinstance(found.program, Trace) else ""
    slowdown = ns / free if free else None
    return Proposal(FAULTS, change, line, note=note, machine=found.word, step_ns=round(ns), slowdown=slowdown)


def _hinted(found: ManagedRun, advised: Advised, free: float | None) -> list[Proposal]:
    """All hints together, then each that helps with those before it."""
    said = [" ".join(step.said for step in advised.steps[: k + 1]) for k in range(len(advised.steps))]
    made = [
        _proposal(found, f"{DRIVER.name}(advice={words})", step.after_ns, free, _line(advised.steps[: k + 1]))
        for k, (words, step) in enumerate(zip(said, advised.steps, strict=True))
    ]
    return made[::-1]


def _line(steps: Sequence[Finding]) -> str:
    return "; ".join(f"{step.about} for {step.allocation}" for step in steps)


def _helpless(advised: Advised) -> list[NotTried]:
    """The best hint on each allocation for which none helps."""
    helped = {step.allocation for step in advised.steps}
    return [
        NotTried(f"{DRIVER.name}(advice={each.said})", "the program is not faster")
        for each in advised.alone if each.allocation not in helped and each.after_ns >= each.before_ns
    ]  # fmt: skip
