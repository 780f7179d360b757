"""Compare the simulator with measured rows.

Every row runs on the profile, which must be of the rows' GPU. Series that the profile's fit saw, and those that it did not,
are scored apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import words
from gpusim.cli.options import FORMATS, Figures, Formats, Json, Machine, output
from gpusim.cli.output import emit, emit_json
from gpusim.cli.verbs.calibrate.rows import Gpu, Rows, rows_of


def verb(
    files: Rows,
    *,
    on: Machine = None,
    out: Annotated[Path | None, output("A folder for all points and the figure; default: none.")] = None,
    gpu: Gpu = "",
    figures: Figures = True,
    formats: Formats = FORMATS,
    json: Json = False,
) -> None:
    """Run every row on the profile, and print how far the simulator is from what was measured."""
    from gpusim.base.files import make_folder, write_json
    from gpusim.calibrate.compare import report
    from gpusim.calibrate.compare.score import compare as comparing
    from gpusim.cli.progress import bar
    from gpusim.cli.show import chosen_formats

    wanted, machine = chosen_formats(formats), words.machine(on, "gpusim calibrate compare")
    mine = rows_of(files, gpu)
    with bar("series") as progress:
        found = comparing(mine, machine, progress=progress)
    if out:
        make_folder(out)
        write_json(out / "compare.json", report.values(found))
        if figures:
            from gpusim.show.calibration import draw
            from gpusim.show.style import save

            save(draw([found]), out / "compare", wanted)
    if json:
        emit_json(report.values(found))
        return
    emit(report.rows(found))
    for title, table in report.reasons(found):
        typer.echo(f"\n{title}:\n")
        emit(table)
    typer.echo(f"\n{report.answer(found)}")
