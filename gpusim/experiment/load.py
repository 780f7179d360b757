"""An experiment's YAML → an Experiment, with all its mistakes told at once; verbs and calls begin with `experiment`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.base.defaults import LATER
from gpusim.base.errors import ConfigError, GpusimError, ProfileError, UnitError
from gpusim.base.units import show_bytes
from gpusim.base.yaml import document, find, validate
from gpusim.base.yaml.document import Document
from gpusim.base.yaml.values import NONE, PolicySpec, machine
from gpusim.experiment import answerable, combined, layouts, neighbours, overrides, users
from gpusim.experiment.spec import Experiment
from gpusim.experiment.users import NOTHING, Given
from gpusim.machine import tiers, variant, words
from gpusim.machine.kernels import user_table
from gpusim.machine.profile import Profile
from gpusim.machine.tenancy import caution
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import Topology
from gpusim.policies import registry, units
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.programs import transforms
from gpusim.programs.ranks import placement
from gpusim.programs.ranks.stragglers import is_clock_file, read_clocks

if TYPE_CHECKING:
    from gpusim.experiment.tasks import Task

UseFile = Callable[[Path], object]
CheckPolicy = Callable[[str, Any], object]


@dataclass(frozen=True)
class Loaded:
    """An experiment and the files it names."""

    experiment: Experiment
    document: Document
    path: Path
    traces: dict[str, Path]  # name -> file
    profiles: dict[str, Path]
    use: tuple[Path, ...]
    plans: dict[str, Path]  # the parameter `path` of a plan policy -> file
    given: Given = NOTHING  # policies and transforms that are Python objects, of an experiment that was made in Python
    kernel_times: Path | None = None  # the user's own measured times
    own: Registry = SHIPPED  # both: what its runs can name besides the built-ins
    machines: Mapping[str, Topology] = field(default_factory=dict)  # those of `profile` that have several GPUs
    clocks: Mapping[str, Path] = field(default_factory=dict)  # files of clock rates that `stragglers` names
    beside: Mapping[str, Path] = field(default_factory=dict)  # programs that run on the same GPU


def load_experiment(
    path: Path | Document, sets: Sequence[str] = (), use: UseFile | None = None, check_policy: CheckPolicy | None = None
) -> Loaded:
    """The experiment in a file, with `--set` overrides; its traces, profiles and policy files are found.

    use(file)                 loads a file of the user's policies
    check_policy(kind, spec)  raises GpusimError for a policy or unified memory (PolicySpec), a chain of transforms (text, kind
                              "transform"), of tiers (text, kind "tiers") or a placement (text) that does not exist, or a
                              parameter that it lacks; answers a policy under the name that it has now

    Raises ConfigError with all mistakes.
    """
    doc = path if isinstance(path, Document) else document.read(path)
    path = Path(doc.file) if isinstance(path, Document) else path
    if sets and isinstance(doc.data, dict):
        doc = overrides.apply_overrides(doc, sets, Experiment)
    base = path.resolve().parent
    files: dict[str, dict[str, Path]] = {"trace": {}, "profile": {}, "use": {}, "plan": {}, "kernel_times": {}, "clocks": {},
                                         "beside": {}}  # fmt: skip
    machines: dict[str, Topology] = {}
    broken: set[str] = set()  # files of policies that cannot be loaded: what they would have registered is not missed

    def known(kind: str, value: Any) -> Any:
        now = None
        if kind == "use":
            broken.add(value)
            files[kind][value] = _beside(base, value)
            if use:
                use(files[kind][value])
            broken.discard(value)
        elif kind == "kernel_times":
            files[kind][value] = _beside(base, value)
            user_table.tables(files[kind][value])
        elif kind == "stragglers":
            if is_clock_file(value):
                files["clocks"][value] = _beside(base, value)
                read_clocks(files["clocks"][value])
        elif kind == "beside":
            for name in neighbours.names(value):
                files["beside"][name] = find.find_run(name, base)
        elif kind == "trace":
            files[kind][value] = find.find_run(value, base)
        elif kind == "profile":
            whole = build.file_of(value, base)
            files[kind][value] = whole or find.find(kind, machine(words.one(value, "a run"))[0], base)
            if whole:
                machines[value] = layouts.load_whole(whole, value)
        elif check_policy and not broken:
            now = check_policy(kind, value)
        if kind == "plan" and value.path:
            files[kind][value.path] = _beside(base, value.path)
        return now

    experiment = validate.build(Experiment, doc, context=known)
    used = tuple(files["use"].values())
    table = next(iter(files["kernel_times"].values()), None)
    return Loaded(
        experiment, doc, path.resolve(), files["trace"], files["profile"], used, files["plan"], kernel_times=table,
        machines=machines, clocks=files["clocks"], beside=files["beside"],
    )


def _beside(base: Path, name: str) -> Path:
    """The file beside the experiment, or (as `--set use=[mine.py]` means it) in the current folder."""
    for folder in (base, Path.cwd()):
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            return path
    raise GpusimError(f"there is no file '{name}' beside the experiment or in the current folder")


def experiment(name: str | Document, sets: Sequence[str] = (), given: Given = NOTHING) -> Loaded:
    """The experiment in the file `name`, or the shipped one of this name, or of this text, with overrides; its policies are
    there, its profiles are in order and have its tiers.

    given   policies and transforms that are Python objects, which it may name
    Raises ConfigError.
    """
    files: list[Path] = []

    def known() -> Registry:
        return users.registry_of(tuple(files), given)

    def use(file: Path) -> None:
        files.append(file)
        known()

    def check(kind: str, spec: PolicySpec | str) -> PolicySpec | None:
        if isinstance(spec, str):
            if kind == "tiers":
                tiers.check(spec)
            else:
                (placement if kind == "placement" else transforms).check(spec, known())
        elif kind != "unified":
            entry = known().find(kind, spec.name)
            registry.bind(entry, dict(spec.params))
            if kind in ("evict", "prefetch"):
                units.check(entry, units.TENSORS)
            return replace(spec, name=entry.name)
        elif spec != NONE:
            from gpusim.engine.pages.settings import settings

            settings(spec, known())
        return None

    source = find.find("experiment", name) if isinstance(name, str) else name
    loaded = load_experiment(source, sets, use=use, check_policy=check)
    loaded = replace(loaded, given=given, own=known())
    problems, machines, ranked = [], list[Profile](), list[Profile]()
    for i, text in enumerate(loaded.experiment.profile):
        try:  # a mistake is told once, and not by every run
            found = _profiles(loaded, text)
            machines += found
            ranked += found if text in loaded.machines else []
        except (ProfileError, UnitError) as error:
            problems.append(loaded.document.problem(("profile", i), error.message, error.hint))
    problems += combined.problems(loaded, machines, ranked)
    problems += answerable.problems(loaded)
    problems += layouts.problems(loaded)
    problems += neighbours.problems(loaded, machines)
    if problems:
        raise ConfigError(problems)
    return _asked(loaded, sets)


def _profiles(loaded: Loaded, text: str) -> list[Profile]:
    """Of the GPUs of a machine, each once."""
    if (whole := loaded.machines.get(text)) is None:
        return [variant.load(loaded.profiles[text], text)]
    return list({profile.name: profile for profile in map(whole.profile, whole.gpus)}.values())


# Keys whose change leaves the question as it is.
_LONG, _LONGEST = 60, 200  # characters of an override, and of a question
_BESIDE = ("question", "figures", "options", "jobs", "uncertainty", "bounds", "max_runs", "seed", "use", "tune")


def _asked(loaded: Loaded, sets: Sequence[str]) -> Loaded:
    """With another program, machine, memory or policy the file's question is no longer what is asked."""
    paths = {path[0] for path in loaded.document.overridden}
    if "question" in paths or paths <= set(_BESIDE):
        return loaded
    changed = [text for text in sets if text.partition("=")[0].split(".")[0].strip() not in _BESIDE]
    question = f"{loaded.path.stem} with {', '.join(text if len(text) <= _LONG else f'{text[:_LONG]}...' for text in changed)}"
    question = question if len(question) <= _LONGEST else f"{question[:_LONGEST]}..."
    return replace(loaded, experiment=replace(loaded.experiment, question=question))


def foresee(loaded: Loaded, tasks: Iterable[Task]) -> None:
    """What only programs can tell of an experiment, before any of these tasks runs.  Raises TraceError, ConfigError."""
    e = loaded.experiment
    if loaded.plans or e.unified != (NONE,) or e.parallel != (LATER["parallel"],):
        from gpusim.experiment.foresee import check

        check(loaded, tasks)


def told(loaded: Loaded) -> list[str]:
    """What is to be said of an experiment that is no mistake: memory that machines lack, ranks that lack, what drivers do."""
    return list(dict.fromkeys([*_beyond(loaded), *_of_its_kind(loaded)]))


def _beyond(loaded: Loaded) -> list[str]:
    """Which sizes of memory are more than a machine has: runs in them answer what no such machine does."""
    most = max((size.bytes or 0 for size in loaded.experiment.memory), default=0)
    found = []
    for name, file in loaded.profiles.items() if most else ():
        if name not in loaded.machines:
            profile = variant.load(file, name)
            room = int(profile.memory.capacity.value - profile.context.value)
            if most > room:
                found.append(f"memory of {show_bytes(most)} is more than the {show_bytes(room)} that {name} has")
    return found


def _of_its_kind(loaded: Loaded) -> list[str]:
    """What is to be said of several programs on one GPU, of many ranks, or of unified memory."""
    asked = [spec for spec in loaded.experiment.unified if spec != NONE]
    if loaded.beside:
        return [said for text in loaded.experiment.tenancy if (said := caution(text))]
    if not asked:
        of_ranks = [(name, file) for name, file in loaded.traces.items() if find.is_of_ranks(file)]
        return [f"{name}: {said}" for name, file in of_ranks for said in answerable.read_ranks(file).meta.get("warnings", ())]
    from gpusim.engine.pages.settings import told

    found = [words for spec in asked for words in told(spec, loaded.own)]
    for name, file in loaded.profiles.items():
        if name not in loaded.machines and variant.load(file, name).memory.unified:
            idle = [f"{key}={value}" for spec in asked for key, value in spec.params if key in ("evict", "prefetch")]
            found += [f"{name} has one memory for CPU and GPU, where no page moves: {said} changes nothing" for said in idle]
    return found


def default_folder(loaded: Loaded) -> Path:
    """Where results go when nothing is said."""
    return Path("results") / loaded.path.stem
