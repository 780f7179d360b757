"""`gpusim fragment`: what fragments a program's memory, and what would fix it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import typer

from gpusim.commands.output import emit_json
from gpusim.errors import TraceError
from gpusim.trace.trace import Trace


def fragment(
    file: str, tries: Sequence[str], *, capacity: str | None, on: str | None, device: int | None, out: Path | None,
    figures: bool, formats: str, json: bool,
) -> None:  # fmt: skip
    """Study the program in `file`, print the answer, and leave it with its figures in `out`."""
    from gpusim.commands.look import chosen_formats
    from gpusim.fragment import candidates, report
    from gpusim.fragment.study import study
    from gpusim.results.files import make_folder, write_json

    wanted = chosen_formats(formats)
    limit = _limit(capacity, on)
    if _is_generated(file):
        _long(file, tries, limit, json=json)
        return
    trace = open_trace(file, device)
    chosen = candidates.named(tries) if tries else candidates.default(trace)
    found = study(trace, chosen, limit)
    folder = out or Path("results") / f"fragment-{trace.name}"
    values = report.values(found)
    make_folder(folder)
    write_json(folder / "study.json", values)
    made = []
    if figures:
        from gpusim.show import study as drawn
        from gpusim.show.style import save

        for name in drawn.names(found):
            made += save(drawn.FIGURES[name](found), folder / name, wanted)
    if json:
        emit_json(values)
    else:
        typer.echo(report.text(found))
        typer.echo(f"\n{folder}: study.json{''.join(f', {path.name}' for path in made)}")


def _is_generated(file: str) -> bool:
    """True for "variable_training(hours=24)" and the like; a file of that name goes before."""
    from gpusim import generate

    name = file.partition("(")[0].strip()
    return not Path(file).exists() and ("(" in file or any(name == entry.name for entry in generate.entries()))


def _long(program: str, tries: Sequence[str], limit: int | None, *, json: bool) -> None:
    from gpusim import generate
    from gpusim.fragment import candidates, lasting

    chosen = candidates.named(tries) if tries else candidates.lasting()
    found = lasting.lasting(generate.get(program), chosen, limit)
    if json:
        emit_json(lasting.rows(found))
    else:
        typer.echo(lasting.text(found))


def open_trace(file: str, device: int | None) -> Trace:
    """A trace by name or path, or a foreign recording, imported on the way."""
    from gpusim.config.find import find
    from gpusim.trace.files import load_trace
    from gpusim.trace.importers import import_trace

    path = Path(file).expanduser()
    if path.suffix == ".npz" or not path.is_file():
        trace = load_trace(find("trace", file))
    else:
        trace = import_trace(path, None, **({} if device is None else {"device": device}))
        for warning in trace.meta.get("warnings", ()):
            typer.echo(f"gpusim: warning: {warning}", err=True)
    if not trace.tensors:
        raise TraceError("the trace allocates nothing", file)
    return trace


def _limit(capacity: str | None, on: str | None) -> int | None:
    """Bytes that an allocator may hold: as given, or what the CUDA context leaves of a machine's memory."""
    if capacity is not None:
        from gpusim.units import parse_bytes

        return parse_bytes(capacity)
    if on is None:
        return None
    from gpusim.hardware.catalogue import load

    profile = load(on)
    return int(profile.memory.capacity.value - profile.context.value)
