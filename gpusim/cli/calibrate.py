"""gpusim calibrate: measure a machine, fit a profile to it, compare the simulator with what was measured."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli.output import emit_json

app = typer.Typer(help="Measure a machine, fit a profile to it, compare the simulator with it.", no_args_is_help=True)


@app.command()
def measure(
    out: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="A .csv or .json to write.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats: under a minute.")] = False,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="GROUP", help="Only this group, as host or copies. Repeatable.")
    ] = None,
    device: Annotated[int, typer.Option(min=0, help="Which GPU, as CUDA counts them.")] = 0,
    folder: Annotated[Path, typer.Option(help="Whose disk is measured; default: here.")] = Path("."),
    force: Annotated[bool, typer.Option("--force", help="Measure a card that is busy or a MIG slice all the same.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only compute how long an H200 would take.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the conditions as JSON.")] = False,
) -> None:
    """Measure this machine's GPU, host and disk.

    Without a GPU nothing is measured, unless --only host and --only disk ask for nothing else.
    """
    from gpusim.base.errors import MeasurementError
    from gpusim.calibrate.measure.session import measure as verb

    if dry_run:
        from gpusim.cli.calibration import dry_run as rehearse

        return rehearse(quick=quick, json=json)
    if out is None:
        raise MeasurementError("there is no file to write to", hint="write -o FILE, or --dry-run")

    def say(text: str) -> None:
        typer.echo(text, err=True)

    found = verb(out, only or [], quick=quick, ordinal=device, force=force, folder=folder, say=say)
    if json:
        emit_json(found)


Rows = Annotated[
    list[Path],
    typer.Argument(metavar="ROWS...", help="Measurements: our CSV or JSON, nvbandwidth's output, texts of gpu-benches."),
]
Gpu = Annotated[str, typer.Option("--gpu", help="The GPU, where the files hold several or do not name theirs.")]


@app.command()
def fit(
    rows: Rows,
    base: Annotated[str, typer.Option("--base", help="The profile that says what the rows do not; default: by the GPU.")] = "",
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="The profile to write; default: only the table.")
    ] = None,
    gpu: Gpu = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Fit all rows: best for use, but nothing is left to prove it.")
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Fit a profile to measured rows.

    One series in three, chosen by its name, is held out for `compare`, unless --all is given. The profile lists what it saw.
    """
    from gpusim.cli.calibration import fit as verb

    verb(rows, base, out, gpu, everything=everything, json=json)


@app.command()
def compare(
    rows: Rows,
    profile: Annotated[str, typer.Option("--profile", help="The profile to simulate on, by name or path.")],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FOLDER", help="For all points and the figure; default: none.")
    ] = None,
    gpu: Gpu = "",
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figure.")] = True,
    formats: Annotated[str, typer.Option("--format", help="Of the figure: some of png,svg,pdf.")] = "png,svg,pdf",
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")] = False,
) -> None:
    """Compare the simulator with measured rows.

    Every row runs on the profile, which must be of the rows' GPU. Series that the profile's fit saw, and those that it did not,
    are scored apart.
    """
    from gpusim.cli.calibration import compare as verb

    verb(rows, profile, out, gpu, figures=figures, formats=formats, json=json)


@app.command()
def steps(
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="For the steps, their traces and conditions.")],
    programs: Annotated[
        list[str] | None, typer.Option("--program", help="A model of the zoo, as 'gpt2-small(batch=8)'. Repeatable.")
    ] = None,
) -> None:
    """Measure training steps on this GPU.

    Each with its activations on the device, then offloaded to host memory, and recorded as a trace.
    """
    from gpusim.calibrate.steps.measure import PROGRAMS
    from gpusim.calibrate.steps.measure import measure as verb

    found = verb(out, programs or PROGRAMS, lambda text: typer.echo(text, err=True))
    typer.echo(f"{out}: {len(found)} steps")


@app.command()
def replay(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `gpusim calibrate steps` wrote.")],
    profile: Annotated[str, typer.Option("--profile", help="The profile to simulate on, by name or path.")],
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Simulate measured training steps.

    Anywhere, from what `steps` wrote: peaks of memory, kernel times, times of the offloaded steps.
    """
    from gpusim.cli.calibration import replay as verb

    verb(folder, profile, json=json)


@app.command("all")
def everything(
    out: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="For all that it makes.")],
    base: Annotated[str, typer.Option("--base", help="The profile that says what is not measured; default: by the GPU.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and repeats.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Measure a card that is busy all the same.")] = False,
) -> None:
    """Do all of this on a GPU machine.

    Measure, fit, compare, then whole training steps, measured and simulated.
    """
    from gpusim.cli.calibration import everything as verb

    verb(out, base, quick=quick, force=force)


@app.command()
def bundle(
    out: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The zip-app to write.")
    ] = Path("gpusim-measure.pyz"),
) -> None:
    """Write `measure` as one file.

    For machines without gpusim: it needs python3, numpy and the CUDA packages.
    """
    from gpusim.calibrate.measure.bundle import bundle as verb

    size = verb(out)
    typer.echo(f"{out}: {size:,} bytes; run it with: python3 {out.name} -o FILE")
