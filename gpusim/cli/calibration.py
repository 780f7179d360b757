"""`gpusim calibrate fit` and `gpusim calibrate compare`: from measurements to a profile, and from a profile back to them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpusim.base.errors import MeasurementError
from gpusim.cli.output import emit, emit_json

if TYPE_CHECKING:
    from gpusim.calibrate.rows import Row
    from gpusim.machine.profile import Profile


def dry_run(*, quick: bool, json: bool) -> None:
    """Print how long measuring takes by an H200's published rates."""
    from gpusim.calibrate.measure.rehearsal import rehearse

    found = rehearse(quick)
    total = sum(row["seconds"] for row in found)
    if json:
        return emit_json({"groups": found, "seconds": round(total, 1)})
    emit(found)
    typer.echo(f"\n{total:.0f} s in all: computed, not measured, by an H200's published rates and this host's own work.")


def fit(files: Sequence[Path], base: str, out: Path | None, gpu: str, *, everything: bool, json: bool) -> None:
    """Fit a profile to the rows that are not held out, or to all, write it, and print what it changes."""
    from gpusim.base.files import write_text
    from gpusim.calibrate.fit.fitting import difference
    from gpusim.calibrate.fit.fitting import fit as fitting
    from gpusim.calibrate.rows import gpus

    mine = _rows(files, gpu)
    fitted = fitting(mine, _base(gpus(mine), base), out.stem if out else None, everything)
    if out:
        write_text(out, fitted.text)
    left = [{"number": one.path, "why": one.why} for one in fitted.left]
    if json:
        emit_json({"profile": fitted.profile.name, "fitted": difference(fitted), "left": left})
        return
    seen = len(fitted.seen)
    typer.echo(f"{fitted.base.name}: {seen:,} rows fitted, {len(mine) - seen:,} held out for the comparison\n")
    emit(difference(fitted))
    typer.echo("\nAs the catalogue has it:\n")
    emit(left)
    if out:
        typer.echo(f"\n{out}")


def compare(
    files: Sequence[Path], profile: str, out: Path | None, gpu: str, *, figures: bool, formats: str, json: bool
) -> None:
    """Run every row on the profile, and print how far the simulator is from what was measured."""
    from gpusim.base.files import make_folder, write_json
    from gpusim.calibrate.compare import report
    from gpusim.calibrate.compare.score import compare as comparing
    from gpusim.cli.look import chosen_formats
    from gpusim.cli.progress import bar
    from gpusim.machine.catalogue import load

    wanted, machine = chosen_formats(formats), load(profile)
    mine = _rows(files, gpu)
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


def replay(folder: Path, profile: str, *, json: bool) -> None:
    """Print measured and simulated numbers of the folder's training steps."""
    from gpusim.calibrate.steps.compare import TARGET
    from gpusim.calibrate.steps.compare import compare as comparing
    from gpusim.machine.catalogue import load

    found = comparing(folder, load(profile))
    table = [
        {"program": f.program, "activations": f.way, "what": f.what, "unit": f.unit, "measured": f.measured,
         "simulated": f.simulated, "error": f"{f.error:+.1%}"}
        for f in found
    ]  # fmt: skip
    if json:
        emit_json(table)
        return
    emit(table)
    off = [f for f in found if f.what == "step"]
    within = sum(abs(f.error) <= TARGET for f in off)
    typer.echo(f"\n{within} of {len(off)} steps with offloaded activations are within {TARGET:.0%}.")


def everything(out: Path, base: str, *, quick: bool, force: bool) -> None:
    """All steps of a calibration, each with its files in the folder."""
    from gpusim.base.files import make_folder
    from gpusim.calibrate.measure import cuda, device
    from gpusim.calibrate.measure.session import GROUPS, measure
    from gpusim.calibrate.steps.measure import measure as measure_steps
    from gpusim.calibrate.steps.measure import ready

    # What is missing is said before anything is measured.
    card = device.cards(cuda.load(), None)[0]
    _base([device.row_name(card.name)], base)
    ready()
    make_folder(out)
    rows, profile = out / "measured.csv", out / "profile.yaml"
    measure(rows, list(GROUPS), quick=quick, force=force, folder=out, say=lambda text: typer.echo(text, err=True))
    fit([rows], base, profile, "", everything=False, json=False)
    compare([rows], str(profile), out / "compare", "", figures=True, formats="png,svg", json=False)
    measure_steps(out / "steps", say=lambda text: typer.echo(text, err=True))
    replay(out / "steps", str(profile), json=False)


def _rows(files: Sequence[Path], gpu: str) -> list[Row]:
    """The rows of all files, of one GPU.  Hosts without a GPU belong to it only where no other GPU is beside it."""
    from gpusim.calibrate.readers import read
    from gpusim.calibrate.rows import gpus, of_gpu

    found = [row for file in files for row in read(file, gpu)]
    mine = of_gpu(found, gpu or None, ", ".join(map(str, files)))
    return mine if len(gpus(found)) < 2 else [row for row in mine if row.gpu == gpu]


def _base(found: list[str], name: str) -> Profile:
    """The profile that is named, or that of the only GPU that was found."""
    from gpusim.machine.catalogue import load, names

    if name:
        return load(name)
    if not found:
        raise MeasurementError("the rows name no GPU", hint="say with --base which profile is to be fitted")
    if found[0].lower() not in names():
        raise MeasurementError(f"the catalogue has no '{found[0]}'", hint="say with --base which profile is nearest")
    return load(found[0].lower())
