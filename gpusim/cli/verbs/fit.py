"""Will it fit?  A program on every machine: what it needs, what makes it fit, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli import say
from gpusim.cli.options import FORMATS, Cudnn, Figures, Formats, Json, Library, OwnKernelTimes, Use, on, output, trace
from gpusim.cli.output import emit_json
from gpusim.cli.words import own_files, profile, recording

if TYPE_CHECKING:
    from gpusim.studies.capacity.study import CapacityStudy
    from gpusim.studies.capacity.whole import AskedMachines
    from gpusim.trace.trace import Trace

ALL = "all"
SETTINGS = {"ignore_unknown_options": True}  # they are the model's


def verb(
    program: Annotated[list[str] | None, trace("A trace, or a recording; with --zoo, its options: --batch 4.")] = None,
    *,
    zoo: Annotated[str | None, typer.Option("--zoo", metavar="MODEL", help="A model of the zoo instead, recorded now.")] = None,
    on: Annotated[list[str] | None, on("GPUs, '4 x NAME', machines of several GPUs, or all, the default")] = None,
    use: Use = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="Where it does not fit, try this: 'checkpointing | offload', 'swapping'. Repeatable."),
    ] = None,
    allocator: Annotated[
        str, typer.Option(metavar="CONF", help="Settings of PyTorch's allocator, as 'expandable_segments:True'.")
    ] = "",
    context: Annotated[
        str | None, typer.Option(metavar="BYTES", help="What driver and libraries take; default: as each profile says.")
    ] = None,
    kernel_times: OwnKernelTimes = None,
    gpu: Library = "ampere",
    cudnn: Cudnn = "0 B",
    out: Annotated[Path | None, output("A folder; default: results/fit-NAME.")] = None,
    figures: Figures = True,
    formats: Formats = FORMATS,
    json: Json = False,
) -> None:
    """Study the program, print the answer, and leave it with its figure in `out`."""
    from gpusim.base.units import parse_bytes
    from gpusim.cli.draw import NEEDS
    from gpusim.cli.progress import bar
    from gpusim.cli.show import chosen_formats
    from gpusim.experiment import warm
    from gpusim.experiment.pool import cores, prepare
    from gpusim.machine.kernels.durations import own_times_of
    from gpusim.studies.capacity import remedies
    from gpusim.studies.capacity.settings import AllocatorSettings
    from gpusim.studies.capacity.whole import study_all

    settings = AllocatorSettings(allocator, None if context is None else parse_bytes(context))
    settings.allocator()  # refuses what it does not know before anything is recorded
    wanted = chosen_formats(formats)
    own = own_files(use)
    asked = _machines(on or [])
    tried = remedies.named(tries, own) if tries else ()
    tables = own_times_of(kernel_times, asked.profiles) if kernel_times else {}
    if figures and cores() > 1:
        prepare(NEEDS)
    found_trace = _trace(program or [], zoo, gpu, parse_bytes(cudnn))
    if warm.is_cold():
        say.told("compiling the kernels, once; this takes about 20 seconds")
        warm.compile_side_by_side([("place", "pytorch"), ("evict", "lru"), ("prefetch", "next_k")])
    with bar("machines") as progress:
        found = study_all(found_trace, asked, tried, progress, settings, own, tables)
    folder = out or Path("results") / f"fit-{found_trace.name}"
    words = _words(program or [], zoo, found_trace.name)
    _show(found, folder, wanted if figures else [], asked.count or (1 if tries else None), words, json=json)


def _words(program: Sequence[str], zoo: str | None, name: str) -> tuple[str, str]:
    """(the trace as `gpusim run` reads it, the command that makes it: "" where it is there)."""
    from shlex import join

    file = f"{name}.npz"
    return (file, join(["gpusim", "record", "--zoo", zoo, *program, "-o", file])) if zoo else (program[0], "")


def _show(
    found: CapacityStudy, folder: Path, formats: Sequence[str], asked: int | None, words: tuple[str, str], *, json: bool
) -> None:
    """The answer on stdout, and in the folder with its figure in these formats.

    asked  GPUs for which something was to be tried; None: nothing was asked for
    words  of the program, and of the command that makes it
    """
    from gpusim.base.files import make_folder, write_json
    from gpusim.cli.draw import FitSheet, carry_out, draw_fit_sheet
    from gpusim.studies.capacity import report

    values = report.values(found, words[0])
    make_folder(folder)
    write_json(folder / "fit.json", values)
    files = [f"fit.{form}" for form in formats]
    if formats:
        carry_out([FitSheet(values, folder, tuple(formats))], draw_fit_sheet, 1)
    if json:
        emit_json(values)
        return
    typer.echo(f"{report.text(found, asked, *words)}\n{folder}: {', '.join(['fit.json', *files])}")


def _machines(on: Sequence[str]) -> AskedMachines:
    """Where the program is to fit.  Raises GpusimError for machines of different numbers."""
    from gpusim.base.yaml.find import names as known
    from gpusim.machine import words
    from gpusim.studies.capacity.whole import asked_machines

    wanted = words.split(on) or [ALL]
    return asked_machines(known("profile") if ALL in wanted else wanted, profile)


def _trace(program: Sequence[str], zoo: str | None, gpu: str, cudnn: int) -> Trace:
    if zoo:
        from gpusim.cli.verbs.record import pairs
        from gpusim.programs.zoo.traced import record_model

        return record_model(zoo, pairs(program), gpu=gpu, cudnn_workspace=cudnn)
    option = next((word for word in program if word.startswith("--")), "")
    if option:
        raise GpusimError(f"'{option}' is no option of fit", hint="those of a model go with --zoo")
    if len(program) != 1:
        what = "a trace, or a model of the zoo" if not program else f"one trace, not {len(program)}"
        raise GpusimError(f"say what is to fit: {what}", hint="such as llama-1b-train, or --zoo gpt2-small")
    return recording(program[0])
