"""`gpusim fit`: on which machines a program fits, what would make it fit, and what that costs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.output import emit_json

if TYPE_CHECKING:
    from gpusim.machine.profile import Profile
    from gpusim.trace.trace import Trace

ALL = "all"


def fit(
    program: Sequence[str], zoo: str | None, profiles: Sequence[str], tries: Sequence[str], out: Path | None, *,
    allocator: str = "", context: str | None = None, gpu: str = "ampere", cudnn: str = "0 B", figures: bool, formats: str,
    json: bool,
) -> None:  # fmt: skip
    """Study the program, print the answer, and leave it with its figure in `out`."""
    from gpusim.base.files import make_folder, write_json
    from gpusim.base.units import parse_bytes
    from gpusim.cli.draw import NEEDS, FitSheet, carry_out, draw_fit_sheet
    from gpusim.cli.look import chosen_formats
    from gpusim.cli.progress import bar
    from gpusim.experiment import warm
    from gpusim.experiment.pool import cores, prepare
    from gpusim.studies.capacity import remedies, report
    from gpusim.studies.capacity.settings import Settings
    from gpusim.studies.capacity.study import study

    settings = Settings(allocator, None if context is None else parse_bytes(context))
    settings.allocator()  # refuses what it does not know before anything is recorded
    wanted = chosen_formats(formats)
    machines = _machines(profiles)
    if figures and cores() > 1:
        prepare(NEEDS)
    trace = _trace(program, zoo, gpu, parse_bytes(cudnn))
    if warm.is_cold():
        typer.echo("gpusim: compiling the kernels, once; this takes about 20 seconds", err=True)
        warm.compile_side_by_side([("place", "pytorch"), ("evict", "lru"), ("prefetch", "next_k")])
    with bar("machines") as progress:
        found = study(trace, machines, remedies.named(list(tries)) if tries else remedies.default(trace), progress, settings)
    values = report.values(found)
    folder = out or Path("results") / f"fit-{trace.name}"
    make_folder(folder)
    write_json(folder / "fit.json", values)
    files = [f"fit.{form}" for form in wanted] if figures else []
    if figures:
        carry_out([FitSheet(values, folder, tuple(wanted))], draw_fit_sheet, 1)
    if json:
        emit_json(values)
        return
    typer.echo(f"{report.text(found)}\n{folder}: {', '.join(['fit.json', *files])}")


def _machines(names: Sequence[str]) -> list[Profile]:
    from gpusim.base.yaml.find import names as known
    from gpusim.machine.catalogue import load

    wanted = [part.strip() for name in names for part in name.split(",") if part.strip()] or [ALL]
    return [load(name) for name in (known("profile") if ALL in wanted else dict.fromkeys(wanted))]


def _trace(program: Sequence[str], zoo: str | None, gpu: str, cudnn: int) -> Trace:
    from gpusim.cli.oom import open_trace

    if zoo:
        return _recorded(zoo, program, gpu, cudnn)
    option = next((word for word in program if word.startswith("--")), "")
    if option:
        raise GpusimError(f"'{option}' is no option of fit", hint="those of a model go with --zoo")
    if len(program) != 1:
        what = "a trace, or a model of the zoo" if not program else f"one trace, not {len(program)}"
        raise GpusimError(f"say what is to fit: {what}", hint="such as llama-1b-train, or --zoo gpt2-small")
    return open_trace(program[0], None)


def _recorded(zoo: str, program: Sequence[str], gpu: str, cudnn: int) -> Trace:
    """A model of the zoo, recorded now; its meta says what was asked for."""
    import tempfile
    from dataclasses import replace

    from gpusim.cli.record import pairs
    from gpusim.programs.zoo.catalogue import ask
    from gpusim.programs.zoo.traced import record_zoo

    asked = ask(zoo, pairs(program))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.npz"
        trace = record_zoo(zoo, pairs(program), path, gpu=gpu, cudnn_workspace=cudnn, device="cuda")
    entry = asked.entry
    said = {"zoo": entry.name, "parameters": entry.parameters, "asked": dict(asked.options), "cudnn_workspace": cudnn}
    return replace(trace, name=entry.name, meta={**trace.meta, **asked.options, **said})
