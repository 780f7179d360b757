"""An experiment's YAML → an Experiment, with all that is wrong told at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import document, find, validate
from gpusim.base.yaml.document import Document
from gpusim.base.yaml.values import machine
from gpusim.experiment import overrides
from gpusim.experiment.spec import Experiment
from gpusim.machine import words

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


def load_experiment(
    path: Path, sets: Sequence[str] = (), use: UseFile | None = None, check_policy: CheckPolicy | None = None
) -> Loaded:
    """The experiment in a file, with `--set` overrides; its traces, profiles and policy files are found.

    The registry of policies lives above this package, so the caller lends it:
    use(file)                 loads a file of the user's policies
    check_policy(kind, spec)  raises GpusimError for a policy or unified memory (PolicySpec), a chain of transforms (text, kind
                              "transform") or of tiers (text, kind "tiers") that does not exist, or a parameter that it lacks;
                              answers a policy under the name that it has now

    Raises ConfigError with all mistakes.
    """
    doc = document.read(path)
    if sets and isinstance(doc.data, dict):
        doc = overrides.apply_overrides(doc, sets, Experiment)
    base = path.resolve().parent
    files: dict[str, dict[str, Path]] = {"trace": {}, "profile": {}, "use": {}, "plan": {}}
    broken: set[str] = set()  # files of policies that cannot be loaded: what they would have registered is not missed

    def known(kind: str, value: Any) -> Any:
        now = None
        if kind == "use":
            broken.add(value)
            files[kind][value] = _beside(base, value)
            if use:
                use(files[kind][value])
            broken.discard(value)
        elif kind == "trace":
            files[kind][value] = find.find_run(value, base)
        elif kind == "profile":
            files[kind][value] = find.find(kind, machine(words.one(value, "a run"))[0], base)
        elif check_policy and not broken:
            now = check_policy(kind, value)
        if kind == "plan" and value.path:
            files[kind][value.path] = _beside(base, value.path)
        return now

    experiment = validate.build(Experiment, doc, context=known)
    used = tuple(files["use"].values())
    return Loaded(experiment, doc, path.resolve(), files["trace"], files["profile"], used, files["plan"])


def _beside(base: Path, name: str) -> Path:
    """The file beside the experiment, or (as `--set use=[mine.py]` means it) in the current folder."""
    for folder in (base, Path.cwd()):
        path = (folder / Path(name).expanduser()).resolve()
        if path.is_file():
            return path
    raise GpusimError(f"there is no file '{name}' beside the experiment or in the current folder")
