"""From what stands on the command line to an experiment: the one place that lends the registry to the configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.errors import ConfigError, GpusimError, ProfileError, UnitError
from gpusim.cli import say

if TYPE_CHECKING:
    from gpusim.base.errors import Problem
    from gpusim.base.yaml.values import PolicySpec
    from gpusim.experiment.load import Loaded
    from gpusim.experiment.plan import Task
    from gpusim.machine.profile import Profile


def experiment(
    name: str, sets: Sequence[str] = (), *, on: Sequence[str] | None = None, use: Sequence[str] | None = None
) -> Loaded:
    """The experiment in the file `name`, or the shipped one of this name, with overrides; its profiles are in order and have
    its tiers.

    on   machines in place of its own
    use  files of policies and transforms beside its own
    Raises ConfigError; GpusimError where `on` and `sets` name different machines.
    """
    from gpusim.base.yaml.find import find
    from gpusim.base.yaml.values import NONE
    from gpusim.experiment import answerable
    from gpusim.experiment.load import load_experiment
    from gpusim.machine import tiers, variant
    from gpusim.policies import registry
    from gpusim.programs import transforms

    def check(kind: str, spec: PolicySpec | str) -> PolicySpec | None:
        if isinstance(spec, str):
            {"transform": transforms.check, "tiers": tiers.check}[kind](spec)
            return None
        if kind == "unified":
            if spec != NONE:
                from gpusim.engine.pages.settings import settings

                settings(spec)
            return None
        entry = registry.find(kind, spec.name)
        registry.bind(entry, dict(spec.params))
        return replace(spec, name=entry.name)

    file = find("experiment", name)
    say.detail(f"experiment {name}: {file}")
    sets = [*sets, *_machines(on or (), sets), *_own_files(file, use or (), sets)]
    loaded = load_experiment(file, sets, use=registry.load_user_file, check_policy=check)
    problems, machines = [], []
    for i, text in enumerate(loaded.experiment.profile):
        try:
            machines.append(variant.load(loaded.profiles[text], text))  # a mistake is told once, and not by every run
        except (ProfileError, UnitError) as error:
            problems.append(loaded.document.problem(("profile", i), error.message, error.hint))
    problems += _of_tiers(loaded, machines)
    problems += _of_unified(loaded, machines)
    problems += answerable.problems(loaded)
    if problems:
        raise ConfigError(problems)
    return _asked(loaded, sets)


_PLAIN = re.compile(r"[A-Za-z][\w./-]*")  # what YAML reads as the text that it is


def _machines(on: Sequence[str], sets: Sequence[str]) -> list[str]:
    """The override that --on is."""
    from gpusim.machine import words

    if not on:
        return []
    if any(text.partition("=")[0].strip() == "profile" for text in sets):
        raise GpusimError("--on and --set profile=... both name the machine", hint="give one of them")
    machines = words.split(on)
    for word in machines:
        words.load(words.one(word, "a run"))
    return [f"profile={','.join(word if _PLAIN.fullmatch(word) else json.dumps(word) for word in machines)}"]


def _own_files(file: Path, use: Sequence[str], sets: Sequence[str]) -> list[str]:
    """The override that --use is: the experiment's own files stay, since its policies are there."""
    from gpusim.base.yaml import document

    if not use:
        return []
    if any(text.partition("=")[0].strip() == "use" for text in sets):
        raise GpusimError("--use and --set use=... both name files of your own", hint="give one of them")
    for name in use:
        if not Path(name).expanduser().is_file():
            raise GpusimError(f"there is no file '{name}'", hint="--use takes a Python file with policies or transforms")
    data = document.read(file).data
    known = data.get("use") or [] if isinstance(data, dict) else []
    known = known if isinstance(known, list) else [known]
    # A file beside the experiment would go before the one here that is meant.
    meant = [str(Path(name).resolve()) if (file.parent / name).is_file() else name for name in use]
    return [f"use=[{', '.join(json.dumps(str(name)) for name in dict.fromkeys([*known, *meant]))}]"]


# Keys whose change leaves the question as it is.
_LONG, _LONGEST = 60, 200  # characters of an override, and of a question
_BESIDE = ("question", "figures", "options", "jobs", "uncertainty", "bounds", "max_runs", "seed", "use")


def _asked(loaded: Loaded, sets: Sequence[str]) -> Loaded:
    """With another program, machine, memory or policy the file's question is no longer what is asked."""
    paths = {path[0] for path in loaded.document.overridden}
    if "question" in paths or paths <= set(_BESIDE):
        return loaded
    changed = [text for text in sets if text.partition("=")[0].split(".")[0].strip() not in _BESIDE]
    question = f"{loaded.path.stem} with {', '.join(text if len(text) <= _LONG else f'{text[:_LONG]}...' for text in changed)}"
    question = question if len(question) <= _LONGEST else f"{question[:_LONGEST]}..."
    return replace(loaded, experiment=replace(loaded.experiment, question=question))


def _of_tiers(loaded: Loaded, machines: Sequence[Profile]) -> list[Problem]:
    """What is wrong with the memories below the GPU's on these machines, whatever the program is."""
    from gpusim.base.yaml.values import Capacity
    from gpusim.machine import tiers
    from gpusim.machine.profile import changed

    e, found = loaded.experiment, []
    sizes = [memory.bytes for memory in e.host_memory if memory.fraction is None]  # shares are known with the program
    for machine, (i, chain), size in product(machines, enumerate(e.tiers), sizes or [None]):
        try:
            if chain == tiers.DEFAULT and machine.memory.unified and "tiers" in loaded.document.data:
                tiers.refuse_host(machine)
            tiers.parse(chain, machine if size is None else changed(machine, "host.capacity", size))
        except ProfileError as error:
            found.append(loaded.document.problem(("tiers", i), error.message, error.hint))
    if e.host_memory != (Capacity(),) and not any(tiers.in_host_memory(chain) for chain in e.tiers):
        said = "host_memory changes nothing: no tier of this experiment lies in host memory"
        found.append(loaded.document.problem(("host_memory",), said, "leave it out, or add host to the tiers", at_key=True))
    return list(dict.fromkeys(found))


def _of_unified(loaded: Loaded, machines: Sequence[Profile]) -> list[Problem]:
    """What unified memory cannot be combined with: nobody else decides there what leaves and what comes."""
    from gpusim.base.yaml.find import is_managed
    from gpusim.base.yaml.values import NONE, Capacity
    from gpusim.experiment.spec import AS_RECORDED, Experiment, Policies

    e, found = loaded.experiment, []

    def say(path: tuple[str | int, ...], message: str, hint: str) -> None:
        found.append(loaded.document.problem(path, message, hint))

    managed = [name for name, file in loaded.traces.items() if is_managed(file)]
    for name in managed:
        at = ("trace", e.trace.index(name))
        if NONE in e.unified:
            say(at, f"'{name}' is a managed program: it runs under unified memory only", "write unified: driver")
        if e.transform != (AS_RECORDED,):
            say(at, f"'{name}' is a managed program, which no transform can change", "leave out the transform")
    if e.unified != (NONE,):
        default = Experiment(question="-", trace=("-",), profile=("-",))
        for key in ("grain", "tiers"):
            if getattr(e, key) != getattr(default, key):
                say((key,), f"under unified memory pages move as the driver decides: there is no {key}", f"leave out {key}")
        for kind in ("evict", "prefetch", "defrag", "plan", "release"):
            if getattr(e.policies, kind) != getattr(Policies(), kind):
                hint = f"leave it out; the driver's is a parameter: driver({kind}=...)" if kind in ("evict", "prefetch") else ""
                say(("policies", kind), f"under unified memory the driver decides: there is no {kind} policy",
                    hint or "leave it out")  # fmt: skip
        if e.policies.place != Policies().place and len(managed) == len(loaded.traces):
            say(("policies", "place"), "managed programs have no allocator: place changes nothing", "leave it out")
        if e.bounds == "search" and NONE not in e.unified:
            say(("bounds",), "under unified memory there is no plan that a search could look for", "write bounds: true")
        one = [name for name, machine in zip(e.profile, machines, strict=False) if machine.memory.unified]
        if e.host_memory != (Capacity(),) and one:
            say(("host_memory",), f"{one[0]} has one memory for CPU and GPU: host_memory changes nothing", "leave it out")
    return found


def foresee(loaded: Loaded, tasks: Iterable[Task]) -> None:
    """What only programs can tell of an experiment, before any of these tasks runs.  Raises TraceError, ConfigError."""
    from gpusim.base.yaml.values import NONE

    if loaded.plans or loaded.experiment.unified != (NONE,):
        from gpusim.experiment.foresee import check

        check(loaded, tasks)


def told(loaded: Loaded) -> list[str]:
    """What is to be said of an experiment that is no mistake: where the driver does other than asked."""
    from gpusim.base.yaml.values import NONE

    asked = [spec for spec in loaded.experiment.unified if spec != NONE]
    if not asked:
        return []
    from gpusim.engine.pages.settings import told
    from gpusim.machine import variant

    found = [words for spec in asked for words in told(spec)]
    for name, file in loaded.profiles.items():
        if variant.load(file, name).memory.unified:
            idle = [f"{key}={value}" for spec in asked for key, value in spec.params if key in ("evict", "prefetch")]
            found += [f"{name} has one memory for CPU and GPU, where no page moves: {said} changes nothing" for said in idle]
    return list(dict.fromkeys(found))


def default_folder(loaded: Loaded) -> Path:
    """Where results go when nothing is said."""
    return Path("results") / loaded.path.stem
