"""An experiment → the tasks that it comes to, before anything is simulated.

Besides the runs of the grid there are references, which several runs share: the same program without a memory limit, under
oracle eviction at the same grain and over the same tiers, and where that is asked for under the best plan that a search
finds.  They are runs like any other, only not listed; a grid that contains one shares it, and a managed program with memory
for everything is its own reference.

Without a memory limit an allocator still costs time, more or less of it.  So that runs under different allocators are
measured against one number, "no limit" is the fastest that any allocator of the grid allows on that machine.  In the same way
it is the fastest that any of the grid's ways of unified memory allows: first touches are part of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.base.defaults import LATER
from gpusim.base.yaml.find import is_managed, is_of_ranks
from gpusim.base.yaml.values import NONE, Capacity, PolicySpec
from gpusim.experiment import answerable, machine_of, neighbours
from gpusim.experiment.key import Code, file_hash, origins, run_key
from gpusim.experiment.load import Loaded
from gpusim.experiment.spec import AS_RECORDED, KINDS, RunSpec, expand
from gpusim.experiment.users import NOTHING, USED, Given, of_task
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs import transforms
from gpusim.results.folder import RUNS, changed, damaged, in_columns, intact
from gpusim.results.run_files import is_logged

if TYPE_CHECKING:
    from gpusim.programs.managed.steps import ManagedProgram
    from gpusim.trace.trace import Trace

BELADY, SEARCH = PolicySpec("belady"), PolicySpec("search")


@dataclass(frozen=True)
class Task:
    """A run and the files that its names mean."""

    key: str
    spec: RunSpec
    trace: Path
    profile: Path
    use: tuple[Path, ...]
    out: Path
    log: bool = False
    unlimited: bool = False  # a reference: the same program on a machine that never runs out of memory
    plan: Path | None = None  # the file that the plan policy reads
    kernel_times: Path | None = None  # the user's own measured times
    given: Given = NOTHING  # policies and transforms of the user's that are Python objects
    clocks: Path | None = None  # the file of clock rates that the stragglers name
    beside: tuple[Path, ...] = ()  # programs on the same GPU

    def __str__(self) -> str:
        words = [f"{name}={value}" for name, value in self.spec.plain().items() if name != "log"]
        return ", ".join(words)


@dataclass(frozen=True)
class GridPlan:
    """All that an experiment comes to: the tasks of its grid, the references they share, which task needs which."""

    out: Path
    grid: tuple[Task, ...]
    references: tuple[Task, ...]
    no_limit: dict[str, tuple[str, ...]]  # key of a run -> keys of its references, the fastest of which counts
    oracle: dict[str, tuple[str, ...]]
    searched: dict[str, tuple[str, ...]]  # the best plan that a search finds, where that is asked for

    @cached_property
    def tasks(self) -> list[Task]:
        """Every run once, behind its references, so that a grid that is stopped has what it needs of those that are done; a
        reference that the grid contains is the grid's."""
        known = {task.key: task for task in (*self.references, *self.grid)}
        behind = [
            key
            for run in self.grid
            for key in (*(key for of in (self.no_limit, self.oracle, self.searched) for key in of.get(run.key, ())), run.key)
        ]
        return [known[key] for key in dict.fromkeys(behind)]

    @property
    def measured(self) -> dict[str, dict[str, tuple[str, ...]]]:
        """Key of a run of the grid -> bound -> keys of the references that give it."""
        bounds = {"bound_no_limit_ns": self.no_limit, "bound_oracle_ns": self.oracle, "bound_best_plan_ns": self.searched}
        return {run.key: {name: of[run.key] for name, of in bounds.items() if run.key in of} for run in self.grid}

    def extent(self) -> str:
        """How many runs there are beside those of the grid, and what for; "" when there are none."""
        own = {task.key for task in self.grid}
        counts: dict[str, int] = {}
        for words, of in (
            ("without a memory limit", self.no_limit),
            ("with oracle eviction", self.oracle),
            ("under the best plan found", self.searched),
        ):
            keys = {key for keys in of.values() for key in keys} - own
            own |= keys
            if keys:
                counts[words] = len(keys)
        if not counts:
            return ""
        parts = ", ".join(f"{count} {words}" for words, count in counts.items())
        return f"{sum(counts.values())} more to measure them against: {parts}; bounds: false leaves them out"

    @property
    def in_columns(self) -> bool:
        """Where its runs are kept: in columns, or each in a folder of its own."""
        return in_columns(len(self.tasks), any(task.log or task.spec.parallel != LATER["parallel"] for task in self.grid))

    def waiting(self) -> list[Task]:
        """The tasks that have no result yet, or none with a log where one is asked for."""
        there = intact(self.out) - self.changed.keys()
        return [task for task in self.tasks if task.key not in there or (task.log and not _has_log(task))]

    @cached_property
    def changed(self) -> dict[str, str]:
        """Key of a run that has a result -> why it must run again: which file is not what the run wrote."""
        return changed(self.out, [task.key for task in self.tasks])

    @cached_property
    def damaged(self) -> dict[str, str]:
        """File of many runs -> why it is written again, and runs with it."""
        return damaged(self.out)


def plan(loaded: Loaded, out: Path, *, allow_large: bool = False, runs: Sequence[RunSpec] | None = None) -> GridPlan:
    """The experiment's tasks.  Raises GridError for a grid that is too large, TraceError for a trace that is damaged.

    runs  these in place of the grid; they share the references of the experiment's own allocators and ways of unified memory
    """
    e = loaded.experiment
    can = {name: answerable.of_file(file) for name, file in loaded.traces.items()}
    asked = expand(e, allow_large) if runs is None else runs
    specs = list(dict.fromkeys(
        answerable.as_ranked(answerable.answerable(spec, can[spec.trace]), loaded.traces[spec.trace]) for spec in asked
    ))  # fmt: skip
    code = Code(own=loaded.own)
    files = {path: file_hash(path) for path in loaded.profiles.values()}
    files |= {path: read(path).content_hash if is_managed(path) else file_hash(path) for path in loaded.traces.values()}

    def task(spec: RunSpec, unlimited: bool = False) -> Task:
        trace, profile = loaded.traces[spec.trace], loaded.profiles[spec.profile]
        inputs = {name: value for name, value in spec.plain().items() if name != "log"}
        contents: dict[str, object] = {
            "trace": files[trace], "profile": files[profile], "code": code.of(spec), "origins": origins(spec, profile),
        }  # fmt: skip
        planned = loaded.plans.get(spec.plan.path)
        if planned:
            contents["plan"] = file_hash(planned)
        if clocks := loaded.clocks.get(spec.stragglers):
            contents["clocks"] = file_hash(clocks)
        beside = tuple(loaded.beside[name] for name in neighbours.names(spec.beside))
        if beside:
            contents["beside"] = [read(path).content_hash if is_managed(path) else file_hash(path) for path in beside]
        if loaded.kernel_times:
            contents["kernel_times"] = file_hash(loaded.kernel_times)
        key = run_key({**inputs, "unlimited": unlimited, "contents": contents})
        return Task(
            key, spec, trace, profile, loaded.use, out, spec.log, unlimited, planned, loaded.kernel_times, loaded.given,
            clocks, beside,
        )

    grid = tuple(task(spec) for spec in specs)
    free_of_limits = {_without_evict(t.spec): t for t in reversed(grid) if _holds_all(t)}

    def reference(spec: RunSpec) -> Task:
        """The run of the grid that is the same one, or else one of its own."""
        return free_of_limits.get(spec) or task(spec, unlimited=True)

    no_limit: dict[str, tuple[Task, ...]] = {}
    oracle: dict[str, tuple[Task, ...]] = {}
    searched: dict[str, tuple[Task, ...]] = {}
    if e.bounds:
        for run in (run for run in grid if can[run.spec.trace].times):
            no_limit[run.key] = tuple(reference(free) for free in without_limit(run.spec, e.unified, e.policies.place))
            if not can[run.spec.trace].accesses or (run.beside and run.spec.unified != NONE):
                continue  # what several processes need next depends on what is decided for them
            oracle[run.key] = (run if _holds_all(run) else task(under_oracle(run.spec)),)
            if e.bounds == "search" and run.spec.unified == NONE:
                searched[run.key] = (task(replace(run.spec, plan=SEARCH, log=False)),)
    references = {t.key: t for tasks in (*no_limit.values(), *oracle.values(), *searched.values()) for t in tasks}
    for place, defrag in {(spec.place, spec.defrag) for spec in specs if spec.defrag != NONE}:
        loaded.own.get("defrag", defrag).check(loaded.own.get("place", place))
    made = GridPlan(out, grid, tuple(references.values()), _keys(no_limit), _keys(oracle), _keys(searched))
    for trace, chain in dict.fromkeys((task.trace, before_ranks(task.spec, loaded.own)) for task in made.waiting()):
        if not is_of_ranks(trace):  # which was read to find what it answers
            read(trace, chain, loaded.own)  # a mistake in it is told once, before anything runs, and not by every run
    return made


@lru_cache(maxsize=1024)
def _holds_all(task: Task) -> bool:
    """Whether a managed program has so much memory that its references would be itself."""
    spec = task.spec
    if spec.unified == NONE or not is_managed(task.trace) or spec.host_memory != Capacity():
        return False
    from gpusim.engine.pages.before import holds_all
    from gpusim.engine.pages.settings import settings

    program = _managed(task.trace, task.trace.stat().st_mtime_ns)
    capacity = None if spec.memory == Capacity() else spec.memory.resolve(program.footprint, 0)
    return holds_all(program, machine_of.gpu(task.profile, spec.profile), settings(spec.unified, of_task(task)), capacity)


def _without_evict(spec: RunSpec) -> RunSpec:
    """The spec of the run as a reference that has memory for everything."""
    params = tuple(p for p in spec.unified.params if p[0] != "evict")
    return replace(spec, memory=Capacity(), log=False, unified=replace(spec.unified, params=params))


def without_limit(spec: RunSpec, ways: Sequence[PolicySpec], places: Sequence[PolicySpec]) -> list[RunSpec]:
    """The references of a run that have memory for everything: under each unified memory and each allocator of the grid."""
    free = replace(
        spec, memory=Capacity(), host_memory=Capacity(), tiers=LATER["tiers"], grain=LATER["grain"], log=False,
    )  # fmt: skip
    undecided: dict[str, Any] = dict.fromkeys([kind for kind in KINDS if kind != "place"], NONE)
    found = []
    for unified in dict.fromkeys(replace(u, params=tuple(p for p in u.params if p[0] != "evict")) for u in ways):
        found += [
            replace(free, unified=unified, place=place, **(undecided if unified == NONE else {})) for place in places
        ]
    return found


def under_oracle(spec: RunSpec) -> RunSpec:
    """The same run under oracle eviction."""
    if spec.unified == NONE:
        return replace(spec, evict=BELADY, plan=NONE, log=False)
    params = tuple(sorted({**dict(spec.unified.params), "evict": BELADY.name}.items()))
    return replace(spec, unified=replace(spec.unified, params=params), log=False)


def before_ranks(spec: RunSpec, own: Registry = SHIPPED) -> str:
    """The transforms of the program before ranks divide it; all of them where none do."""
    return spec.transform if spec.parallel == LATER["parallel"] else transforms.around_ranks(spec.transform, own)[0]


def read(file: Path, chain: str = AS_RECORDED, own: Registry = SHIPPED) -> Trace | ManagedProgram:
    """What a run's `trace` names, transformed, kept for the runs that need it next.  Raises TraceError, ConfigError."""
    return _managed(file, file.stat().st_mtime_ns) if is_managed(file) else read_trace(file, chain, own)


@lru_cache(maxsize=4)
def _managed(file: Path, stamp: int) -> ManagedProgram:
    from gpusim.programs.managed.text import load

    return load(file)


def read_trace(file: Path, chain: str = AS_RECORDED, own: Registry = SHIPPED) -> Trace:
    """The trace in a file, transformed, kept for the runs of this process that need it next.  Raises TraceError."""
    return _trace(file, file.stat().st_mtime_ns, chain, SHIPPED if chain == AS_RECORDED else own)


@lru_cache(maxsize=4)
def _trace(file: Path, stamp: int, chain: str, own: Registry) -> Trace:
    from gpusim.trace.files import load_trace

    if chain == AS_RECORDED:
        return load_trace(file)
    return transforms.apply(_trace(file, stamp, AS_RECORDED, SHIPPED), chain, own)


def forget_traces() -> None:
    """Give the memory of traces back that `read_trace` has kept."""
    _trace.cache_clear()


def _keys(references: Mapping[str, Sequence[Task]]) -> dict[str, tuple[str, ...]]:
    return {run: tuple(task.key for task in tasks) for run, tasks in references.items()}


def _has_log(task: Task) -> bool:
    return is_logged(task.out / RUNS / task.key)


def inputs(loaded: Loaded) -> dict[str, str]:
    """Content hashes of everything that the experiment reads, for the manifest."""
    named = {
        **{f"trace {name}": path for name, path in loaded.traces.items()},
        **{f"profile {name}": path for name, path in loaded.profiles.items()},
        **{f"{USED}{path.name}": path for path in loaded.use},
        **{f"plan {name}": path for name, path in loaded.plans.items()},
        **{f"clocks {name}": path for name, path in loaded.clocks.items()},
    }
    return {**{name: file_hash(path) for name, path in named.items()}, "code": Code().of_all()}
