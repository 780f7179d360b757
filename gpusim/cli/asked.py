"""The experiment that a command line asks for: a file or name with --on, --use and --set."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.errors import GpusimError
from gpusim.cli import say
from gpusim.cli.words import there

if TYPE_CHECKING:
    from gpusim.experiment.load import Loaded

_PLAIN = re.compile(r"[A-Za-z][\w./-]*")  # what YAML reads as the text that it is


QUESTIONS = {
    "service": "serving question", "experts": "expert question", "models": "question of many models",
    "training": "training question",
}  # fmt: skip
"""A key of a file that is no experiment -> what it is."""


def question(name: str) -> str:
    """Which of `QUESTIONS` this is, by the key: one that ships, or a file with that key; "" of an experiment."""
    from gpusim.base.yaml import document
    from gpusim.base.yaml.find import names

    path = Path(name)
    if not path.is_file():
        return next((key for key, kind in QUESTIONS.items() if name in names(kind) and name not in names("experiment")), "")
    data = document.read(path).data if path.suffix in (".yaml", ".yml") else None
    return next((key for key in QUESTIONS if isinstance(data, dict) and key in data), "")


def no_program(name: str) -> None:
    """Raises GpusimError where a program or a hardware profile is named for an experiment."""
    from gpusim.base.yaml import document
    from gpusim.base.yaml.find import RUNS, names

    hint, path = f"`gpusim init {name}` writes an experiment on it", Path(name)
    if not path.is_file():
        if name not in names("experiment") and any(name in names(kind) for kind in RUNS):
            raise GpusimError(f"'{name}' is a program and no experiment", hint=hint)
        return
    data = document.read(path).data if path.suffix in (".yaml", ".yml") else {}
    if path.suffix == ".npz" or (isinstance(data, dict) and {"arrays", "steps"} <= data.keys()):
        raise GpusimError("this is a program and no experiment", str(path), hint=hint)
    if isinstance(data, dict) and {"gpu", "memory", "link"} <= data.keys():
        raise GpusimError("this is a hardware profile and no experiment", str(path), hint=f"give it to one: --on {name}")


def needed(said: str, verb: str, **given: str) -> None:
    """Raises GpusimError for the first option that is empty where no question is asked; `said` of it: "a service needs"."""
    for name, value in given.items():
        if not value:
            raise GpusimError(f"{said} --{name}, or a file that asks a question", hint=f"gpusim {verb} --help")


def experiment(
    name: str, sets: Sequence[str] = (), *, on: Sequence[str] | None = None, use: Sequence[str] | None = None
) -> Loaded:
    """The experiment in the file `name`, or the shipped one of this name, as `gpusim.experiment.load.experiment` reads it.

    on   machines in place of its own
    use  files of policies and transforms beside its own
    Raises ConfigError; GpusimError where `on` and `sets` name different machines.
    """
    from gpusim.base.yaml.find import find
    from gpusim.experiment import load

    no_program(name)
    file = find("experiment", name)
    say.detail(f"experiment {name}: {file}")
    return load.experiment(str(file), [*sets, *_machines(on or (), sets), *_own_files(file, use or (), sets)])


def _machines(on: Sequence[str], sets: Sequence[str]) -> list[str]:
    """The override that --on is."""
    from gpusim.machine import words
    from gpusim.machine.topology import build

    if not on:
        return []
    if any(text.partition("=")[0].strip() == "profile" for text in sets):
        raise GpusimError("--on and --set profile=... both name the machine", hint="give one of them")
    machines = words.split(on)
    for word in machines:
        if not build.file_of(word):
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
        there(name)
    data = document.read(file).data
    known = data.get("use") or [] if isinstance(data, dict) else []
    known = known if isinstance(known, list) else [known]
    # A file beside the experiment would go before the one here that is meant.
    meant = [str(Path(name).resolve()) if (file.parent / name).is_file() else name for name in use]
    return [f"use=[{', '.join(json.dumps(str(name)) for name in dict.fromkeys([*known, *meant]))}]"]
