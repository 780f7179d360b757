"""All that is built in and compiled, before tests share one cache: by as many processes as there are processors.

    python -m gpusim.experiment.warm everything
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from gpusim.base.compiled import CompiledEntry
from gpusim.experiment import warm
from gpusim.experiment.pool import cores, run_tasks
from gpusim.policies import registry
from gpusim.policies.entry import KINDS

PACKAGE = Path(__file__).parents[1]
LOADS = ("gpusim.trace", "gpusim.policies", "gpusim.machine", "gpusim.engine", "gpusim.programs.generate")  # where entries are
# Those that take longest go first, so that no process is left alone with one in the end.
FIRST = (
    warm.UNIFIED, "engine.serving.loop.serve_until", warm.ISLAND, "engine.fabric.loop.run_coupled",
    "policies.schedule.parts.asked.compose", "trace.importers.csv_parse.parse", "engine.cluster.one_round.begin_round",
)  # fmt: skip
ENTRY, TRACE, FAR = "entry", "trace", "far"  # beside kinds of policies


def compile_all() -> None:
    """Compile all policies, all entries with a signature, and what a trace goes through."""
    known = registry.of()
    entries = dict.fromkeys([*FIRST, *_entries()])
    tasks = [
        *((ENTRY, name) for name in FIRST),
        *((kind, policy.name) for kind in KINDS for policy in known.entries(kind)),
        *((FAR, f"gpusim.policies.place.{name}") for name in warm.SELDOM),
        (TRACE, ""),
        *((ENTRY, name) for name in entries if name not in FIRST),
    ]
    for index, failure in run_tasks(tasks, compile_one, cores(), apart=True):
        if failure is not None:
            raise RuntimeError(f"{' '.join(tasks[index])}: {failure.message}\n{failure.trace}")


def compile_one(task: tuple[str, str]) -> None:
    """One of these, in a process that other tasks follow."""
    what, name = task
    if what == ENTRY:
        warm.compile_entry(name)
    elif what == TRACE:
        warm.compile_trace()
    elif what == FAR:
        warm.main([FAR, name])
    else:
        warm.compile_policies([task])


def _entries() -> Iterator[str]:
    """module.function of all entries with a signature."""
    for room in LOADS:
        for file in sorted(PACKAGE.parent.joinpath(*room.split(".")).rglob("[!_]*.py")):
            module = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
            for name, value in vars(import_module(f"{PACKAGE.name}.{module}")).items():
                if isinstance(value, CompiledEntry) and value.__module__ == f"{PACKAGE.name}.{module}":
                    yield f"{module}.{name}"
