"""Write a commented experiment for a trace: what it can answer on one machine, ready to run and to change."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli import say
from gpusim.cli.asked import experiment
from gpusim.cli.options import Machines, output, trace


def verb(
    name: Annotated[str, trace("A trace's .npz file, a managed program, or the name of a shipped one.")],
    *,
    on: Machines = None,
    out: Annotated[Path | None, output("The YAML file to write; default: TRACE-experiment.yaml.")] = None,
) -> None:
    """The experiment's file; it is read as `gpusim run` reads it before it is kept."""
    from gpusim.base.files import write_text
    from gpusim.base.yaml.find import find_run, is_managed
    from gpusim.experiment import draft
    from gpusim.experiment.answerable import of_file
    from gpusim.machine import words

    file = find_run(name)
    say.detail(f"trace {name}: {file}")
    machines = words.split(on or [draft.MACHINE])
    for word in machines:
        words.load(words.one(word, "a run"))
    target = out or Path(f"{Path(name).stem}-experiment.yaml")
    if target.exists():
        raise GpusimError("there is such a file already", str(target), "name another one: -o FILE")
    if target.stem == name:
        raise GpusimError("this file would be taken for the trace of its name", str(target), f"-o {name}-experiment.yaml")
    # A shipped trace is found by its name from anywhere, a file of one's own from the experiment's folder.
    named = str(file) if Path(name).expanduser().is_file() and not _beside(target, name, file) else name
    text = draft.managed(named, machines) if is_managed(file) else draft.recorded(named, machines, of_file(file))
    write_text(target, text)
    try:
        experiment(str(target))
    except GpusimError:
        target.unlink()
        raise
    typer.echo(f"{target}: an experiment on {name}; `gpusim run {target}` runs it, `--dry-run` says how much that is")


def _beside(target: Path, name: str, file: Path) -> bool:
    """Whether the name leads from the experiment's folder to the trace's file."""
    path = target.resolve().parent / Path(name).expanduser()
    return path.is_file() and path.resolve() == file
