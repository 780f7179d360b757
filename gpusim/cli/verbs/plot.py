"""Draw the figures of a results folder again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.base.errors import ResultError
from gpusim.cli import say
from gpusim.cli.options import FORMATS, Folder, Formats, Json, output
from gpusim.cli.output import emit_json


def verb(
    folder: Folder,
    *,
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            help="Only this one; default: those of the experiment. Repeatable. One of policy_comparison, memory_over_time, "
            "heat_map, pareto, distribution, time_breakdown, traffic, oversubscription, fault_map, fragmentation, "
            "roofline; of runs of several ranks links, ranks_memory; of runs with an event log address_map, swimlane, "
            "durations.",
        ),
    ] = None,
    out: Annotated[Path | None, output("The folder of the figures; default: figures/ of the results.")] = None,
    formats: Formats = FORMATS,
    json: Json = False,
) -> None:
    """Draw the figures of a results folder again: those of its experiment, or the named ones."""
    from gpusim.cli.draw import NEEDS, draw
    from gpusim.cli.report import experiment_of, refresh
    from gpusim.cli.show import chosen_formats, say_missing
    from gpusim.experiment.pool import cores, prepare
    from gpusim.results.folder import load_folder
    from gpusim.show.figures import left_out

    names, wanted = figure or [], chosen_formats(formats)
    if cores() > 1:
        prepare(NEEDS)  # meanwhile this process reads
    question, asked = experiment_of(folder)
    results = load_folder(folder)
    say_missing(folder)
    made = draw(folder, names or asked, question, out, results=results, formats=wanted)
    if out is None:
        refresh(folder, results)
    left = left_out(names or asked, made)
    paths = [path for files in made.values() for path in files]
    if names and not paths:
        said = "; ".join(f"{name}: {why}" for name, why in left.items())
        raise ResultError(f"these results have nothing to show as {', '.join(names)}", str(folder), said)
    if json:
        emit_json([str(path) for path in paths])
    else:
        for path in paths:
            typer.echo(path)
        for name, why in left.items():
            say.note(f"not drawn: {name}: {why}")
