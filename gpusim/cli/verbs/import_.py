"""Turn a foreign recording into a trace (.npz), or those of many ranks into one program (.ranks)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.text import join
from gpusim.cli import say
from gpusim.cli.options import Device, Json, output
from gpusim.cli.output import emit_json


def verb(
    file: Annotated[
        Path,
        typer.Argument(
            help="A recording, in any format that docs/traces.md lists; or a folder with one of each rank: Kineto or execution "
            "traces, Chakra graphs, memory snapshots.",
        ),
    ],
    *,
    out: Annotated[Path | None, output("The trace to write; default: beside the recording.")] = None,
    format: Annotated[str | None, typer.Option("--format", help="Its format, when it cannot be told by the content.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The trace's name; default: the recording's own.")] = None,
    device: Device = None,
    kineto: Annotated[
        Path | None, typer.Option("--with", help="The Kineto trace of the same run, or the folder of the ranks' traces: times.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An option of the format, see docs/traces.md. Repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """A recording as a trace beside it, or at `out`; what its format lacks is said, and what is doubted goes to stderr.

    Of a folder the recordings of all ranks are matched by communicator and sequence number; `gpusim run` takes what is written
    on a machine of several GPUs. Ranks that were not recorded are named.
    """
    from gpusim.base.errors import TraceError
    from gpusim.cli.progress import bar
    from gpusim.programs.recordings import import_trace
    from gpusim.trace.files import save_trace

    named = {"name": name, "device": device, "kineto": kineto}
    given: dict[str, Any] = {key: value for key, value in named.items() if value is not None}
    for option in options or []:
        key, equals, value = option.partition("=")
        if not equals:
            raise TraceError(f"the option '{option}' has no value", hint="write it as KEY=VALUE")
        given[key.strip()] = value.strip()
    if file.is_dir():
        _of_ranks(file, out, format, given, json)
        return
    with bar("MiB read") as progress:
        trace = import_trace(file, format, progress=lambda done, total: progress(done >> 20, total >> 20), **given)
    path = out or file.with_name(file.name.split(".")[0] + ".npz")
    save_trace(trace, path)
    found = {
        "file": str(path), "name": trace.name, "tensors": trace.tensors, "events": trace.events, "operators": trace.ops,
        **trace.meta,
    }  # fmt: skip
    if json:
        emit_json(found)
    else:
        typer.echo(f"{path}: {trace.tensors:,} tensors, {trace.events:,} events, {trace.ops:,} operators")
        for sentence in _gaps(trace.meta):
            typer.echo(sentence)
    for warning in trace.meta.get("warnings", ()):
        say.warning(warning)


def _of_ranks(folder: Path, out: Path | None, format: str | None, given: dict[str, Any], json: bool) -> None:
    """The recordings of many ranks as one file."""
    from gpusim.cli.output import emit
    from gpusim.cli.progress import bar
    from gpusim.programs.ranks.described import describe
    from gpusim.programs.ranks.files import save_ranks
    from gpusim.programs.ranks.folder import import_ranks

    with bar("MiB read") as progress:
        programs = import_ranks(folder, format, progress=lambda done, total: progress(done >> 20, total >> 20), **given)
    path = out or folder.resolve().with_suffix(".ranks")
    save_ranks(programs, path)
    rows = describe(programs)
    if json:
        emit_json({"file": str(path), "name": programs.name, "ranks": rows, **programs.meta})
    else:
        calls = len(programs.check())
        typer.echo(f"{path}: {len(programs.programs)} ranks, {calls:,} collectives and sends between them")
        emit(rows, False)
        for sentence in _gaps(programs.meta):
            typer.echo(sentence)
    for warning in programs.meta["warnings"]:
        say.warning(warning)


def _gaps(meta: dict[str, Any]) -> list[str]:
    """What the recording's format does not hold, and how the importer filled it: a sentence each."""
    lacks, filled, left = meta.get("lacks") or [], meta.get("filled") or {}, meta.get("left_out") or {}
    said = [f"A recording of format '{meta.get('format', '')}' lacks {join(lacks)}."] if lacks else []
    said += [f"Left out: {join([f'{count:,} {what}' for what, count in left.items()])}, of the run itself."] if left else []
    return said + ([f"Filled: {'; '.join(f'{what} ({how})' for what, how in filled.items())}."] if filled else [])
