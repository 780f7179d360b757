"""Write a run for the viewers of others or as code for PyTorch, its numbers as a table, or a trace for another simulator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import ResultError, suggest
from gpusim.cli import complete
from gpusim.cli.options import Device, Use, on, output, trace
from gpusim.cli.words import machine, own_files, recording
from gpusim.trace import exporters

if TYPE_CHECKING:
    from gpusim.policies.registry import Registry
    from gpusim.results.result import Result


def verb(
    what: Annotated[str, trace("A results folder with event logs, or a trace by file or name.")],
    *,
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="pytorch: a memory snapshot. Of a run perfetto, chrome: a timeline. Of results parquet, arrow: the numbers of "
            "all runs, with --run the activities of one. Of a trace dtr: a log; libcachesim-csv, oracleGeneral: requests.",
            autocompletion=complete.export_formats,
        ),
    ] = "pytorch",
    run: Annotated[str | None, typer.Option("--run", metavar="RUN", help="Which run of a folder: its number or key.")] = None,
    place: Annotated[
        str | None,
        typer.Option(
            "--place", help="Under which allocator a trace is replayed; default: pytorch.", autocompletion=complete.policies
        ),
    ] = None,
    becomes: Annotated[
        str | None,
        typer.Option("--as", metavar="torch", help="Code: what the run, or the advice of rank --run, needs in a real program."),
    ] = None,
    device: Device = None,
    on: Annotated[str | None, on("dtr: model operator times that were not recorded on this machine")] = None,
    grain: Annotated[
        str | None, typer.Option(help="libCacheSim: pages of this size, like '2 MiB'; default: whole tensors.")
    ] = None,
    use: Use = None,
    out: Annotated[Path | None, output("The file to write.")] = None,
) -> None:
    """Write a run of a results folder for another viewer, results as a table, or a trace for another simulator."""
    from gpusim.show import export

    if becomes is not None:
        given = {"format": format if format != "pytorch" else None, "place": place, "device": device, "on": on, "grain": grain}
        if option := next((name for name, value in given.items() if value is not None), ""):
            raise ResultError(f"--{option} has no meaning with --as", what, "leave it out")
        _code(what, becomes, run, out, own_files(use))
        return
    known = ["pytorch", *export.TIMELINES, *export.TABLES, *exporters.FORMATS]
    if format not in known:
        raise ResultError(f"there is no format '{format}'", hint=suggest(format, known) or f"one of {', '.join(known)}")
    of_results = format in (*export.TIMELINES, *export.TABLES)
    wanted = ("run",) if of_results else exporters.FORMATS[format].options if format != "pytorch" else ("run", "place")
    for option, value in {"run": run, "place": place, "on": on, "grain": grain}.items():
        if value is not None and option not in wanted:
            raise ResultError(f"--{option} has no meaning for the format '{format}'", what, "leave it out")
    if of_results:
        _results(Path(what).expanduser(), format, run, device, out, own_files(use))
    elif format == "pytorch":
        _snapshot(what, run, place, device, out, own_files(use))
    else:
        _trace(what, format, device, on, grain, out)


def _code(what: str, becomes: str, run: str | None, out: Path | None, own: Registry) -> None:
    from gpusim.base.files import write_atomic
    from gpusim.show.torch_plan.of_run import code_of

    if becomes != "torch":
        raise ResultError(f"a run cannot be written as '{becomes}'", what, suggest(becomes, ["torch"]) or "--as torch")
    name, text = code_of(Path(what).expanduser(), run, own)
    path = out or Path(f"{name}.py")
    write_atomic(path, lambda file: file.write(text.encode()))
    typer.echo(f"{path}: {len(text.splitlines())} lines")


def _trace(what: str, format: str, device: int | None, on: str | None, grain: str | None, out: Path | None) -> None:
    """A trace as another tool's program; with `on`, times that were not recorded are modelled for that machine."""
    from gpusim.base.files import write_atomic
    from gpusim.base.units import parse_bytes
    found = recording(what, device)
    options: dict[str, Any] = {}
    if on is not None:
        from gpusim.machine.kernels.durations import durations
        from gpusim.trace.answers import require

        require(found, "times", f"--on {on}")
        options["duration"] = durations(found, machine(on, "gpusim export")).ns
    if grain is not None:
        options["grain"] = parse_bytes(grain)
    path = out or Path(f"{found.name}{exporters.FORMATS[format].suffix}")
    said: list[str] = []
    write_atomic(path, lambda file: said.append(exporters.export_trace(found, format, file, **options)))
    typer.echo(f"{path}: {said[0]}")


def _snapshot(
    what: str, run: str | None, place: str | None, device: int | None, out: Path | None, own: Registry
) -> None:
    from gpusim.base.files import write_atomic
    from gpusim.show.snapshot import dump

    folder = Path(what).expanduser()
    if run is not None and not folder.is_dir():
        raise ResultError("--run chooses a run of a results folder", what, "a trace has none: leave it out")
    if (place or device) is not None and folder.is_dir():
        raise ResultError("--place and --device are for a trace", what, "leave them out: a run has its allocator")
    found, name = _run(folder, run, own) if folder.is_dir() else _replayed(what, place or "pytorch", device, own)
    path = out or Path(f"{name}.pickle")
    write_atomic(path, lambda file: file.write(dump(found)))
    typer.echo(f"{path}: {len(found['device_traces'][0]):,} events, {len(found['segments']):,} segments")
    typer.echo("open it at https://pytorch.org/memory_viz, or: python -m torch.cuda._memory_viz trace_plot FILE -o page.html")


def _results(folder: Path, format: str, key: str | None, device: int | None, out: Path | None, own: Registry) -> None:
    """A run's timeline, its activities as a table, or the numbers of all runs."""
    from gpusim.experiment.ran import program_of
    from gpusim.results.folder import load_folder
    from gpusim.results.viewers.exported import exported
    from gpusim.show import export

    if device is not None:
        raise ResultError("--device is for a trace", str(folder), "leave it out")
    if not folder.is_dir():
        hint = "name a results folder: gpusim run --log makes one"
        raise ResultError(f"the format '{format}' is for results", str(folder), hint)
    if format in export.TABLES and key is None:
        path = out or Path(f"{folder.resolve().name}{export.TABLES[format]}")
        found = load_folder(folder, timeline=False)
        if not found:
            raise ResultError("there are no finished runs here", str(folder))
        typer.echo(f"{path}: {export.table(found, format, path)}")
        return
    result = _logged(folder, key)
    run = exported(result, program_of(result, folder, own))
    path = out or Path(f"{result.key}{(export.TIMELINES | export.TABLES)[format]}")
    write = export.timeline if format in export.TIMELINES else export.table
    typer.echo(f"{path}: {write(run, format, path)}")
    if format in export.OPENED_BY:
        typer.echo(export.OPENED_BY[format])


def _run(folder: Path, key: str | None, own: Registry) -> tuple[dict[str, Any], str]:
    """The snapshot of the named run of a results folder, or of its only one with an event log."""
    from gpusim.experiment.ran import load_trace_of
    from gpusim.show.snapshot import snapshot

    result = _logged(folder, key)
    if result.log is None:
        paged = "is of unified memory, which has no allocator's blocks"
        what = "has several ranks, each with blocks of its own" if result.ranks else paged
        raise ResultError(f"run {result.key} {what}", str(folder))
    title = " ".join(str(result.spec[axis]) for axis in ("trace", "profile", "place", "evict", "prefetch"))
    return snapshot(result.log, load_trace_of(result, folder, own=own), title=title), result.key


def _logged(folder: Path, key: str | None) -> Result:
    """The named run of a results folder, or its only one with an event log."""
    from gpusim.results.folder import load_result, run_folders
    from gpusim.results.named import key_of

    kept = {run.name: run for run in run_folders(folder)}
    if key is not None:
        result = load_result(kept[key_of(key, [*kept], folder)], log=True)
        if not result.logged:
            raise ResultError(f"run {key} kept no event log", str(folder), "run with --log")
        return result
    found = (load_result(run, log=True) for run in kept.values())
    logged = [result for result in found if result.logged]
    if len(logged) != 1:
        about = f"{len(logged)} runs here kept their event log" if logged else "no run here kept its event log"
        raise ResultError(about, str(folder), f"choose one: --run {logged[0].key}" if logged else "run with --log")
    return logged[0]


def _replayed(what: str, place: str, device: int | None, own: Registry) -> tuple[dict[str, Any], str]:
    """A trace, by name or file, under one allocator."""
    from gpusim.policies.trials.allocator_replay import replay
    from gpusim.policies.trials.allocator_requests import of_trace
    from gpusim.show.snapshot import snapshot
    from gpusim.trace.answers import require

    program = recording(what, device)
    require(program, "allocator", "a memory snapshot")
    done = replay(of_trace(program), own.get("place", place), log=True)
    found = snapshot(done.log, program, title=f"{program.name} {done.name}", microseconds=False)
    return found, f"{program.name}-{place.split('(')[0]}"
