"""Options that several verbs have: each is stated here once, and means the same everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.cli import complete

MACHINE = "a name of `gpusim profiles`, 'NAME(link.h2d=50 GB/s)' with other numbers, or a file"


def on(help: str = "") -> Any:
    """--on: the machine, or the machines, of any verb that has one."""
    said = help or "The machine"
    return typer.Option("--on", metavar="MACHINE", help=f"{said}: {MACHINE}.", autocompletion=complete.machines)


def output(help: str) -> Any:
    """--output, -o: the file or folder that a verb writes."""
    return typer.Option("--output", "-o", help=help)


def trace(help: str = "A trace's .npz file, or the name of a shipped one.", metavar: str = "TRACE") -> Any:
    """The trace of a verb that takes a program."""
    return typer.Argument(metavar=metavar, help=help, autocompletion=complete.traces)


def name(of: Any) -> Any:
    """What a verb that lists things is to explain; `of` completes it."""
    return typer.Argument(help="Explain this one.", autocompletion=of)


Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key; a list (a,b) is an axis of the grid. Repeatable."),
]
Use = Annotated[
    list[str] | None,
    typer.Option("--use", metavar="FILE", help="A Python file with policies or transforms of your own. Repeatable."),
]
MachineOnce = Annotated[str | None, typer.Argument(hidden=True)]  # where it stood before: TRACE MACHINE
Machine = Annotated[str | None, on()]
Machines = Annotated[list[str] | None, on("The machines, separated by commas")]
OwnKernelTimes = Annotated[
    Path | None,
    typer.Option("--kernel-times", metavar="FILE", help="Your own times: gpu,operator,dtype,shape,time_us."),
]
Jobs = Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes; default: as many as help.")]
Figures = Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figures.")]
Formats = Annotated[str, typer.Option("--format", help="Of the figures: some of png,svg,pdf.")]
Device = Annotated[int | None, typer.Option("--device", min=0, help="Which GPU of a recording that holds several.")]
MetricsScale = Annotated[
    float,
    typer.Option(
        "--metrics-scale", metavar="N", min=0, show_default=False,
        help="Seconds that a simulated second takes on the clock of the metrics; 1: real time; default: so many that the "
        "longest run takes four minutes.",
    ),
]
Trace = Annotated[str, trace()]
Folder = Annotated[Path, typer.Argument(help="A results folder.")]
Experiment = Annotated[
    str,
    typer.Argument(help="An experiment's YAML file, or the name of a shipped one.", autocompletion=complete.experiments),
]
Library = Annotated[
    str, typer.Option("--gpu", help="Whose libraries the program runs with: volta, turing, ampere, ada, hopper or blackwell.")
]
Cudnn = Annotated[
    str,
    typer.Option("--cudnn-workspace", metavar="BYTES", help="What cuDNN takes during a convolution, as '64 MiB'."),
]
FORMATS = "png,svg,pdf"
