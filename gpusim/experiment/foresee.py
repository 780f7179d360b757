"""What a run would refuse, told before any run begins and before anything is written."""

from __future__ import annotations

from collections.abc import Iterable

from gpusim.config.values import Capacity
from gpusim.engine.machine import machine
from gpusim.engine.plans import view
from gpusim.experiment.execute import capacity_of, program_of
from gpusim.experiment.plan import Task
from gpusim.hardware.profile import changed
from gpusim.policies.plan import file
from gpusim.trace.workload import Workload


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
        work, profile = program.work, program.profile
        assert isinstance(work, Workload), "plans are of recorded programs"
        if spec.host_memory != Capacity():
            profile = changed(profile, "host.capacity", spec.host_memory.resolve(work.live_peak, 0))
        file.plan(view(work, machine(profile, capacity_of(task, work), spec.tiers)), str(task.plan))
