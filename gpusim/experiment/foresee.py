"""What a run would refuse, told before any run begins and before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.base.defaults import LATER
from gpusim.base.errors import ConfigError, GpusimError, Problem
from gpusim.base.yaml.values import NONE
from gpusim.engine.pages.advice import AdviceError
from gpusim.engine.pages.before import refuse
from gpusim.engine.pages.settings import settings
from gpusim.engine.run.plans import view
from gpusim.experiment import users
from gpusim.experiment.execute import capacity_of, neighbours, on_host, program_of
from gpusim.experiment.load import Loaded
from gpusim.experiment.ranked import check_program
from gpusim.experiment.tasks import Task, before_ranks, read_trace
from gpusim.machine.constants import machine
from gpusim.machine.driver_parameters import UvmError
from gpusim.policies.plan import file
from gpusim.trace.workload import Workload


def check(loaded: Loaded, tasks: Iterable[Task]) -> None:
    """Look at what these tasks of the experiment will meet.  Raises TraceError, ConfigError."""
    tasks = list(tasks)
    check_plan_files(tasks)
    check_unified(loaded, tasks)
    check_ranks(loaded, tasks)


def check_ranks(loaded: Loaded, tasks: Iterable[Task]) -> None:
    """Ask of each program whether it can be divided as its runs do.  Raises ConfigError."""
    found: list[Problem] = []
    done = set()
    for task in tasks:
        case = (spec := task.spec).trace, spec.transform, spec.parallel
        if spec.parallel not in loaded.experiment.parallel or spec.parallel == LATER["parallel"] or case in done:
            continue
        done.add(case)
        own = users.of_task(task)
        try:
            check_program(read_trace(task.trace, before_ranks(spec, own), own), spec.parallel, own)
        except GpusimError as error:
            at = ("parallel", loaded.experiment.parallel.index(spec.parallel))
            found.append(loaded.document.problem(at, error.message, error.hint))
    if found:
        raise ConfigError(found)


def check_plan_files(tasks: Iterable[Task]) -> None:
    """Read each plan file as the runs that follow it will.  Raises TraceError at the first row that one cannot carry out."""
    done = set()
    for task in tasks:
        spec = task.spec
        case = (task.plan, spec.trace, spec.transform, spec.profile, spec.memory, spec.host_memory, spec.tiers)
        if task.plan is None or spec.plan.name != "file" or case in done:
            continue
        done.add(case)
        program = program_of(task)
        work = program.work
        assert isinstance(work, Workload), "plans are of recorded programs"
        profile = on_host(task, work, program.profile)
        file.plan(view(work, machine(work.trace, profile, capacity_of(task, work), spec.tiers)), str(task.plan))


def check_unified(loaded: Loaded, tasks: Iterable[Task]) -> None:
    """Ask for each program under unified memory whether its machine can run it at all.  Raises ConfigError."""
    found: dict[tuple[object, ...], Problem] = {}
    done = set()
    for task in tasks:
        spec = task.spec
        case = (spec.trace, spec.transform, spec.profile, spec.memory, spec.host_memory, spec.unified, spec.place,
                task.unlimited)  # fmt: skip
        if spec.unified == NONE or spec.unified not in loaded.experiment.unified or case in done:  # references are others'
            continue
        done.add(case)
        if (told := _refused(loaded, task)) is not None:
            found.setdefault((spec.trace, spec.profile, told.file, told.line, told.col), told)  # for one size of memory
    if found:
        raise ConfigError(sorted(dict.fromkeys(found.values()), key=lambda p: (p.file, p.line, p.col)))


def _refused(loaded: Loaded, task: Task) -> Problem | None:
    spec, e = task.spec, loaded.experiment
    program = program_of(task)
    work = program.work
    profile = on_host(task, work, program.profile)
    place = users.ready(users.of_task(task), "place", spec.place)
    try:
        way = settings(spec.unified, users.of_task(task))
        others = [one.work for one in neighbours(task, program)] if ":" in way.advice else []
        refuse(work, profile, way, capacity_of(task, work), place, program.several, others)
    except UvmError as error:
        if error.where:  # in the program's own file
            return Problem(f"on {spec.profile}, {error.message}", error.where, hint=error.hint)
        advice = isinstance(error, AdviceError)
        at = ("unified", e.unified.index(spec.unified)) if advice else ("trace", e.trace.index(spec.trace))
        return loaded.document.problem(at, error.message, error.hint)
    return None
