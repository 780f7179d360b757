"""Say why a program ran out of memory, what holds it, and what would help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import TraceError, UnitError
from gpusim.cli import say, words
from gpusim.cli.options import Device, Figures, Formats, Json, Machine, Use, output, trace
from gpusim.cli.output import emit_json
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from gpusim.policies.registry import Registry
    from gpusim.studies.fragmentation.candidates import Candidate
    from gpusim.studies.fragmentation.study import FragmentationStudy


def verb(
    files: Annotated[
        list[str],
        trace(
            "A PyTorch snapshot, a trace, an RMM log, a script (train.py ARGS, recorded without a GPU), or "
            "'variable_training(hours=24)'; several: ranks, or times of one program.", metavar="TRACE...",
        ),
    ],
    *,
    on: Machine = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="Try this instead: an allocator, or settings like max_split_size_mb:64. Repeatable."),
    ] = None,
    use: Use = None,
    others: Annotated[
        bool, typer.Option("--others", help="Show allocators of other libraries and drivers beside them, for comparison.")
    ] = False,
    capacity: Annotated[
        str | None, typer.Option(help="What the allocator could hold, like '24 GiB'; default: as recorded. Or else --on.")
    ] = None,
    message: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="... or else what the error's text, or a file with it, tells of the device."),
    ] = None,
    device: Device = None,
    out: Annotated[Path | None, output("A folder; default: results/oom-NAME.")] = None,
    figures: Figures = True,
    formats: Formats = "png",
    json: Json = False,
) -> None:
    """Examine a program and leave the answer with its figures in `out`; of several, say first what differs."""
    from gpusim.cli.draw import STUDY_NEEDS
    from gpusim.cli.show import chosen_formats
    from gpusim.experiment.pool import cores, prepare
    from gpusim.experiment.warm import allocators_beside

    wanted, tries, own = chosen_formats(formats), tries or [], words.own_files(use)
    limit = _limit(capacity, on, message)
    if len(files) == 1 and _is_generated(files[0]):
        if device is not None:
            hint = "leave it out: a generated program runs on one"
            raise TraceError("--device chooses one GPU of a snapshot", files[0], hint)
        _long(files[0], tries, own, limit, out, json=json)
        return
    with allocators_beside() as compiled:
        if figures and cores() > 1:
            prepare(STUDY_NEEDS)  # the workers' ancestor imports what draws, while the program is replayed here
        traces = _traces(files, device, out)
        from gpusim.studies.fragmentation import doctor, report
        from gpusim.studies.fragmentation.study import study

        compared = _compared(traces, limit) if len(traces) > 1 else None
        chosen_trace = traces[compared.main] if compared else next(iter(traces.values()))
        chosen = _chosen(chosen_trace, tries, own, others=others)
        compiled()
        found = study(chosen_trace, chosen, limit)
    from gpusim.base.files import make_folder, write_json

    if len(files) == 1 and compared:  # the devices of one snapshot
        devices = {int(other.meta["device"]): other for other in traces.values()}
        found = replace(found, answer=doctor.with_others(found.answer, devices, int(chosen_trace.meta["device"])))
    folder = out or Path("results") / f"oom-{chosen_trace.name}"
    values = report.values(found) | (compared.values() if compared else {})
    make_folder(folder)
    write_json(folder / "study.json", values)
    made = _draw(found, folder, wanted) if figures else []
    if json:
        emit_json(values)
        return
    typer.echo("\n\n".join(([compared.text()] if compared else []) + [report.text(found)]))
    typer.echo(f"\n{folder}: study.json{''.join(f', {name}' for name in made)}")


def _chosen(trace: Trace, tries: Sequence[str], own: Registry, *, others: bool) -> list[Candidate]:
    """What the program ran with, and what to try instead of it."""
    from gpusim.policies.place.parts.pytorch.rules import repeated
    from gpusim.studies.fragmentation import candidates

    chosen = candidates.beside(trace, tries, own) if tries else candidates.default(trace)
    if others:
        chosen = list(dict.fromkeys((*chosen, *candidates.others(trace))))
    for candidate in chosen:
        for sentence in repeated(str(dict(candidate.params).get("conf", ""))):
            say.warning(sentence)
    return chosen


def _traces(files: Sequence[str], device: int | None, out: Path | None) -> dict[str, Trace]:
    """Label -> trace: of each file, each device that a snapshot holds."""
    from gpusim.studies.fragmentation import inputs

    def warn(sentence: str, of: str = "") -> None:
        say.warning(f"{of}{sentence}")

    if files[0].endswith(".py"):
        return {files[0]: inputs.record(files, out, warn)}
    found: dict[str, Trace] = {}
    short = len({Path(file).name for file in files}) == len(files)
    for file in files:
        name = Path(file).name if short else file
        heard = partial(warn, of=f"{name}: ") if len(files) > 1 else warn
        try:
            traces = {device: inputs.open_trace(file, device, heard)} if device is not None else inputs.open_all(file, heard)
        except TraceError as error:
            if file == files[-1] and not found:
                raise
            warn(f"left out: {error}")
            continue
        for number, recorded in traces.items():
            label = name if len(traces) == 1 else f"{name} device {number}"
            found[label if label not in found else f"{label} ({len(found) + 1})"] = recorded
    return found


def _compared(traces: dict[str, Trace], limit: int | None) -> Any:
    from gpusim.studies.fragmentation.compare import compare

    return compare(traces, limit)


def _draw(found: FragmentationStudy, folder: Path, formats: Sequence[str]) -> list[str]:
    """All figures of the study, by worker processes; the names of their files."""
    from gpusim.api.questions import FIGURES
    from gpusim.cli.draw import StudySheet, carry_out, draw_study_sheet
    from gpusim.experiment.pool import cores
    from gpusim.studies.fragmentation.study import for_figures

    shown, plain = FIGURES if found.diagnosis.heap.held else FIGURES[:1], for_figures(found)
    carry_out([StudySheet(name, plain, folder, tuple(formats)) for name in shown], draw_study_sheet, cores())
    return [f"{name}.{form}" for name in shown for form in formats]


def _is_generated(file: str) -> bool:
    """True for "variable_training(hours=24)" and the like; a file of that name goes before."""
    from gpusim.programs import generate

    name = file.partition("(")[0].strip()
    return not Path(file).exists() and ("(" in file or any(name == entry.name for entry in generate.entries()))


def _long(program: str, tries: Sequence[str], own: Registry, limit: int | None, out: Path | None, *, json: bool) -> None:
    from gpusim.base.files import make_folder, write_json
    from gpusim.cli.progress import bar
    from gpusim.programs import generate
    from gpusim.studies.fragmentation import candidates, lasting

    chosen = candidates.lasting(tries, own)
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


def _limit(capacity: str | None, on: str | None, message: str | None) -> int | None:
    """Bytes that the allocator could hold: as given, what the CUDA context leaves of a machine's memory, or the device's."""
    given = [word for word, value in (("--capacity", capacity), ("--on", on), ("--message", message)) if value is not None]
    if len(given) > 1:
        raise UnitError(f"{given[0]} and {given[1]} both say what an allocator may hold", hint="give one of them")
    if capacity is not None:
        return words.capacity(capacity)
    if message is not None:
        from gpusim.studies.fragmentation.message import parse

        path = Path(message).expanduser()
        return parse(path.read_text("utf-8", "replace") if len(message) < 256 and path.is_file() else message).total
    if on is None:
        return None
    return words.room(words.machine(on, "gpusim oom"))
