"""Write one HTML file about a results folder: answer, table, figures, timelines, differences; it works offline."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import say
from gpusim.cli.options import Folder, Json, output
from gpusim.cli.output import emit_json


def verb(
    folder: Folder,
    *,
    against: Annotated[
        Path | None,
        typer.Option("--against", metavar="FOLDER", help="Another results folder, shown beside it with what changed."),
    ] = None,
    out: Annotated[Path | None, output("The file; default: report.html in the folder.")] = None,
    timeline: Annotated[
        list[str] | None,
        typer.Option(
            "--timeline", metavar="RUN",
            help="A run that is shown in time, by its number or key; needs its event log. Repeatable. Default: as many as fit "
            "into 8 MB, the best of each place first.",
        ),
    ] = None,
    timelines: Annotated[bool, typer.Option("--timelines/--no-timelines", help="Show runs in time.")] = True,
    json: Json = False,
) -> None:
    """One HTML file about these results."""
    from gpusim.base.units import show_bytes
    from gpusim.cli.show import say_missing
    from gpusim.show.page.write import WITHOUT, write_page

    for one in filter(None, (folder, against)):
        say_missing(one)
    wanted = (timeline or None) if timelines else ()
    made = write_page(folder, against=against, out=out, timelines=wanted)
    if not made.figures:
        say.note(WITHOUT)
    if made.left_out:
        say.note(made.left_out)
    if json:
        emit_json({"file": str(made.path), "bytes": made.bytes, "runs": made.runs, "timelines": list(made.timelines)})
        return
    with_time = f", {len(made.timelines)} with a timeline" if made.timelines else ""
    runs = "1 run" if made.runs == 1 else f"{made.runs} runs" if made.runs else "advice"
    typer.echo(f"{made.path}: {runs}{with_time}, {show_bytes(made.bytes)}")
