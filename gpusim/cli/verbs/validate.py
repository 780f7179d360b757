"""Say all that is wrong with an experiment or a machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.errors import GpusimError, suggest
from gpusim.cli import complete, say
from gpusim.cli.asked import QUESTIONS, experiment, no_program
from gpusim.cli.options import Json, Machines, Set, Use
from gpusim.cli.output import emit_json


def verb(
    file: Annotated[str, typer.Argument(help="An experiment or a machine.", autocompletion=complete.experiments)],
    *,
    on: Machines = None,
    use: Use = None,
    sets: Set = None,
    json: Json = False,
) -> None:
    """Read the file as `run` would; all mistakes at once as an error, else what it comes to."""
    path, kind = _file(file)
    if kind in QUESTIONS.values():
        word, count = ("service" if kind == "serving question" else "run"), _combinations(path, kind)
        if json:
            emit_json({"file": str(path), "kind": kind, f"{word}s": count})
        else:
            typer.echo(f"{path}: a valid {kind}: {count} {word}{'s' if count > 1 else ''}")
        return
    if kind != "experiment" and (on or use or sets):
        raise GpusimError("--on, --use and --set are for experiments", str(path), "leave them out for a machine")
    found = (
        _experiment(path, sets or [], on, use)
        if kind == "experiment"
        else {"profile": _profile, "machine": _machine}[kind](path)
    )
    extent = found.pop("extent", "")
    if json:
        emit_json({"file": str(path), "kind": kind, **found})
    else:
        counts = (f"{value} {word.removesuffix('s') if value == 1 else word}" for word, value in found.items())
        typer.echo(f"{path}: a valid {kind}: {', '.join(counts)}")
        if extent:
            typer.echo(f"runs: {found['runs']}, and {extent}")


def _file(name: str) -> tuple[Path, str]:
    """The file that the name means, and whether it is an experiment, a profile (with a key `gpu`) or a machine (`nodes`)."""
    from gpusim.base.yaml import document
    from gpusim.base.yaml.find import find, names

    known = {kind: names(kind) for kind in ("experiment", "profile", "machine", *QUESTIONS.values())}
    for kind, candidates in known.items():
        if name in candidates:
            return find(kind, name), kind
    path = Path(name)
    if not path.is_file():
        no_program(name)
        everything = [n for candidates in known.values() for n in candidates]
        raise GpusimError(f"there is no file, experiment, profile or machine '{name}'", hint=suggest(name, everything))
    data = document.read(path).data
    keys = set(data) if isinstance(data, dict) else set()
    if asked := keys & set(QUESTIONS):
        return path, QUESTIONS[min(asked)]
    return path, "machine" if {"nodes", "wires"} & keys else "profile" if {"gpu", "link", "sources"} & keys else "experiment"


def _combinations(path: Path, kind: str) -> int:
    from gpusim.studies.experts import questions as experts
    from gpusim.studies.failures import questions as failures
    from gpusim.studies.models import questions as models
    from gpusim.studies.serving import questions as serving

    if kind == "serving question":
        return len(list(serving.combinations(serving.read(path))))
    of: dict[str, Any] = {"expert question": experts, "question of many models": models, "training question": failures}
    return math.prod(map(len, of[kind].read(path).words().values()))


def _experiment(path: Path, sets: Sequence[str], on: Sequence[str] | None, use: Sequence[str] | None) -> dict[str, Any]:
    from gpusim.experiment import answerable, load
    from gpusim.experiment.spec import expand, size
    from gpusim.experiment.tasks import plan

    loaded = experiment(str(path), sets, on=on, use=use)
    e = loaded.experiment
    expand(e)
    knobs = {}
    if e.tune:
        from gpusim.studies.tuning.space import space

        knobs = {"knobs": len(space(loaded).knobs)}
    todo = plan(loaded, load.default_folder(loaded))
    load.foresee(loaded, todo.grid)
    for words in [*answerable.told(loaded), *load.told(loaded)]:
        say.note(words)
    counts = {"runs": size(e), "traces": len(e.trace), "profiles": len(e.profile)}
    return {**counts, **knobs, "references": len(todo.tasks) - len(set(todo.grid)), "extent": todo.extent()}


def _profile(path: Path) -> dict[str, Any]:
    from gpusim.machine.catalogue import bases, quantities
    from gpusim.machine.profile import load_file

    profile = load_file(path)
    return {"numbers": len(list(quantities(profile))), **{k: f"{v:.0%}" for k, v in bases(profile).items()}}


def _machine(path: Path) -> dict[str, Any]:
    from gpusim.machine.topology.build import load_file

    made = load_file(path)
    return {"nodes": len(made.nodes), "gpus": len(made.gpus), "hosts": made.hosts, "links": len(made.links)}
