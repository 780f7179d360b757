"""`gpusim fragment`: what fragments a program's memory, and what would fix it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gpusim.commands.output import emit_json
from gpusim.errors import TraceError, UnitError
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from gpusim.fragment.study import Study

FIGURES = ("held_over_time", "heap_states", "heap", "free_blocks", "heap_over_time")  # in gpusim.show.study


def fragment(
    file: str, tries: Sequence[str], *, capacity: str | None, on: str | None, device: int | None, out: Path | None,
    figures: bool, formats: str, json: bool,
) -> None:  # fmt: skip
    """Study the program in `file`, print the answer, and leave it with its figures in `out`."""
    from gpusim.commands.draw import STUDY_NEEDS
    from gpusim.commands.look import chosen_formats
    from gpusim.experiment import warm
    from gpusim.experiment.pool import cores, prepare
    from gpusim.fragment import candidates
    from gpusim.policies.pytorch.rules import repeated
    from gpusim.results.files import make_folder, write_json

    wanted = chosen_formats(formats)
    limit = _limit(capacity, on)
    if _is_generated(file):
        if device is not None:
            raise TraceError("--device chooses one GPU of a snapshot", file, "leave it out: a generated program runs on one")
        _long(file, tries, limit, out, json=json)
        return
    if figures and cores() > 1:
        prepare(STUDY_NEEDS)  # the workers' ancestor imports what draws, while the program is replayed here
    trace = open_trace(file, device)
    chosen = candidates.beside(trace, tries) if tries else candidates.default(trace)
    for candidate in chosen:
        for sentence in repeated(str(dict(candidate.params).get("conf", ""))):
            typer.echo(f"gpusim: warning: {sentence}", err=True)
    if warm.is_cold("requests"):
        typer.echo("gpusim: compiling the allocators, once; this takes about half a minute", err=True)
        warm.compile_allocators(candidate.place for candidate in chosen)
    from gpusim.fragment import report
    from gpusim.fragment.study import study

    found = study(trace, chosen, limit)
    folder = out or Path("results") / f"fragment-{trace.name}"
    values = report.values(found)
    make_folder(folder)
    write_json(folder / "study.json", values)
    made = _draw(found, folder, wanted) if figures else []
    if json:
        emit_json(values)
    else:
        typer.echo(report.text(found))
        typer.echo(f"\n{folder}: study.json{''.join(f', {name}' for name in made)}")


def _draw(found: Study, folder: Path, formats: Sequence[str]) -> list[str]:
    """All figures of the study, by worker processes; the names of their files."""
    from gpusim.commands.draw import StudySheet, carry_out, draw_study_sheet
    from gpusim.experiment.pool import cores
    from gpusim.fragment.study import for_figures

    shown, plain = FIGURES if found.diagnosis.heap.held else FIGURES[:1], for_figures(found)
    carry_out([StudySheet(name, plain, folder, tuple(formats)) for name in shown], draw_study_sheet, cores())
    return [f"{name}.{form}" for name in shown for form in formats]


def _is_generated(file: str) -> bool:
    """True for "variable_training(hours=24)" and the like; a file of that name goes before."""
    from gpusim import generate

    name = file.partition("(")[0].strip()
    return not Path(file).exists() and ("(" in file or any(name == entry.name for entry in generate.entries()))


def _long(program: str, tries: Sequence[str], limit: int | None, out: Path | None, *, json: bool) -> None:
    from gpusim import generate
    from gpusim.commands.progress import bar
    from gpusim.fragment import candidates, lasting
    from gpusim.results.files import make_folder, write_json

    chosen = candidates.named(tries) if tries else candidates.lasting()
    with bar("requests") as progress:
        found = lasting.lasting(generate.get(program), chosen, limit, progress)
    values = lasting.values(found)
    if out is not None:
        make_folder(out)
        write_json(out / "study.json", values)
    if json:
        emit_json(values)
        return
    typer.echo(lasting.text(found))
    if out is not None:
        typer.echo(f"\n{out}: study.json")


def open_trace(file: str, device: int | None) -> Trace:
    """A trace by name or path, or a foreign recording, imported on the way."""
    from gpusim.config.find import find, names
    from gpusim.trace.files import load_trace
    from gpusim.trace.importers import import_trace

    path = Path(file).expanduser()
    if path.suffix == ".npz" or not path.is_file():
        if path.is_dir() and file not in names("trace"):
            raise TraceError("this is a folder", file, "give a trace (.npz) or a recording")
        trace = load_trace(find("trace", file))
        if device is not None:
            raise TraceError("--device chooses one GPU of a snapshot", file, "leave it out: a trace is of one")
    else:
        options: dict[str, Any] = {} if device is None else {"device": device}
        trace = import_trace(path, None, **options)
        for warning in trace.meta.get("warnings", ()):
            typer.echo(f"gpusim: warning: {warning}", err=True)
    if not trace.tensors:
        raise TraceError("the trace allocates nothing", file)
    return trace


def parse_capacity(text: str) -> int:
    """Bytes, above 0, of "24 GiB"."""
    from gpusim.units import parse_bytes

    limit = parse_bytes(text)
    if not limit:
        raise UnitError(f"a capacity of '{text}' holds nothing", hint="leave it out for no limit")
    return limit


def _limit(capacity: str | None, on: str | None) -> int | None:
    """Bytes that an allocator may hold: as given, or what the CUDA context leaves of a machine's memory."""
    if capacity is not None:
        if on is not None:
            raise UnitError("--capacity and --on both say what an allocator may hold", hint="give one of them")
        return parse_capacity(capacity)
    if on is None:
        return None
    from gpusim.hardware.catalogue import load

    profile = load(on)
    return int(profile.memory.capacity.value - profile.context.value)
