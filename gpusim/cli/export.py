"""`gpusim export`: a run or a trace in the format of another tool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from gpusim.base.errors import ResultError, suggest
from gpusim.trace import exporters

if TYPE_CHECKING:
    from gpusim.policies.registry import Registry


def export(
    what: str, format: str, *, run: str | None, place: str | None, device: int | None, on: str | None, grain: str | None,
    out: Path | None, use: Sequence[str] = (),
) -> None:  # fmt: skip
    """Write a run of a results folder, or a trace under one allocator, as a PyTorch memory snapshot; or a trace alone."""
    known = ["pytorch", *exporters.FORMATS]
    if format not in known:
        raise ResultError(f"there is no format '{format}'", hint=suggest(format, known) or f"one of {', '.join(known)}")
    wanted = exporters.FORMATS[format].options if format != "pytorch" else ("run", "place")
    for option, value in {"run": run, "place": place, "on": on, "grain": grain}.items():
        if value is not None and option not in wanted:
            raise ResultError(f"--{option} has no meaning for the format '{format}'", what, "leave it out")
    if format == "pytorch":
        _snapshot(what, run, place, device, out, use)
    else:
        _trace(what, format, device, on, grain, out)


def _trace(what: str, format: str, device: int | None, on: str | None, grain: str | None, out: Path | None) -> None:
    """A trace as another tool's program; with `on`, times that were not recorded are modelled for that machine."""
    from gpusim.base.files import write_atomic
    from gpusim.base.units import parse_bytes
    from gpusim.cli.oom import open_trace

    trace = open_trace(what, device)
    options: dict[str, Any] = {}
    if on is not None:
        from gpusim.machine.catalogue import load
        from gpusim.machine.roofline import durations
        from gpusim.trace.answers import require

        require(trace, "times", f"--on {on}")
        options["duration"] = durations(trace, load(on))[0]
    if grain is not None:
        options["grain"] = parse_bytes(grain)
    path = out or Path(f"{trace.name}{exporters.FORMATS[format].suffix}")
    said: list[str] = []
    write_atomic(path, lambda file: said.append(exporters.export_trace(trace, format, file, **options)))
    typer.echo(f"{path}: {said[0]}")


def _snapshot(
    what: str, run: str | None, place: str | None, device: int | None, out: Path | None, use: Sequence[str]
) -> None:
    from gpusim.base.files import write_atomic
    from gpusim.policies import registry
    from gpusim.show.snapshot import dump

    folder = Path(what).expanduser()
    if run is not None and not folder.is_dir():
        raise ResultError("--run chooses a run of a results folder", what, "a trace has none: leave it out")
    if (place or device) is not None and folder.is_dir():
        raise ResultError("--place and --device are for a trace", what, "leave them out: a run has its allocator")
    own = registry.of(*use)
    found, name = _run(folder, run, own) if folder.is_dir() else _replayed(what, place or "pytorch", device, own)
    path = out or Path(f"{name}.pickle")
    write_atomic(path, lambda file: file.write(dump(found)))
    typer.echo(f"{path}: {len(found['device_traces'][0]):,} events, {len(found['segments']):,} segments")
    typer.echo("open it at https://pytorch.org/memory_viz, or: python -m torch.cuda._memory_viz trace_plot FILE -o page.html")


def _run(folder: Path, key: str | None, own: Registry) -> tuple[dict[str, Any], str]:
    """The named run of a results folder, or its only one with an event log."""
    from gpusim.experiment.ran import load_trace_of
    from gpusim.results.folder import load_result, run_folders
    from gpusim.show.snapshot import snapshot

    kept = {run.name: run for run in run_folders(folder)}
    logged = [name for name, run in kept.items() if load_result(run, log=True).log is not None]
    if key is None and len(logged) != 1:
        about = f"{len(logged)} runs here kept their event log" if logged else "no run here kept its event log"
        raise ResultError(about, str(folder), f"choose one: --run {logged[0]}" if logged else "run with --log")
    if key is not None and key not in kept:
        raise ResultError(f"there is no run '{key}'", str(folder), suggest(key, kept))
    result = load_result(kept[key or logged[0]], log=True)
    if result.log is None:
        raise ResultError(f"run {key} kept no event log", str(folder), "run with --log")
    title = " ".join(str(result.spec[axis]) for axis in ("trace", "profile", "place", "evict", "prefetch"))
    return snapshot(result.log, load_trace_of(result, folder, own=own), title=title), result.key


def _replayed(what: str, place: str, device: int | None, own: Registry) -> tuple[dict[str, Any], str]:
    """A trace, by name or file, under one allocator."""
    from gpusim.cli.oom import open_trace
    from gpusim.policies.trials.program import of_trace
    from gpusim.policies.trials.replay import replay
    from gpusim.show.snapshot import snapshot
    from gpusim.trace.answers import require

    trace = open_trace(what, device)
    require(trace, "allocator", "a memory snapshot")
    done = replay(of_trace(trace), own.get("place", place), log=True)
    found = snapshot(done.log, trace, title=f"{trace.name} {done.name}", microseconds=False)
    return found, f"{trace.name}-{place.split('(')[0]}"
