"""Record a PyTorch program as a trace, without a GPU: nothing is computed, whatever its size.

    gpusim record train.py -o train.npz
    gpusim record --zoo gpt2-small --batch 4
    gpusim record model.py --routing -o mine.txt.gz    which experts a small model chooses, run on the CPU with its real values:
                                                       model.py has `model` and `texts` (token ids), and may have
                                                       `gates`, `chosen` (2) and `prompt` (64)
"""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli import say
from gpusim.cli.options import Cudnn, Json, Library, output
from gpusim.cli.output import emit_json
from gpusim.programs.record.where import RecordWarning

SETTINGS = {"ignore_unknown_options": True}  # they are the script's, or the model's


def verb(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT [ARGS]", help="A PyTorch script with its arguments and options.")
    ] = None,
    *,
    out: Annotated[Path | None, output("The trace to write; default: SCRIPT.npz.")] = None,
    zoo: Annotated[
        str | None, typer.Option("--zoo", metavar="MODEL", help="Instead of a script; with its options, as --batch 4.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="End after so many training steps; default: 2.")] = None,
    name: Annotated[str | None, typer.Option(help="The trace's name; default: that of the file, or the model's.")] = None,
    device: Annotated[str | None, typer.Option(help="Where tensors live that name no device: cuda or cpu.")] = None,
    gpu: Library = "ampere",
    cudnn: Cudnn = "0 B",
    routing: Annotated[
        bool, typer.Option("--routing", help="Instead of a trace: which experts the script's `model` chooses for its `texts`.")
    ] = False,
    json: Json = False,
) -> None:
    """A program, or a model of the zoo, as a trace; what the program prints goes to stderr."""
    from gpusim.base.units import parse_bytes
    from gpusim.programs.record.script import record_script
    from gpusim.programs.zoo.traced import record_zoo

    program = program or []
    if routing:
        _routing(program, out, json=json)
        return
    if not program and not zoo:
        raise GpusimError("say what to record: a script, or a model of the zoo", hint="gpusim record train.py -o train.npz")
    options: dict[str, Any] = {
        "name": name, "device": device or ("cuda" if zoo else "cpu"), "gpu": gpu, "cudnn_workspace": parse_bytes(cudnn),
    }  # fmt: skip
    path = out or Path(f"{zoo.split('(')[0] if zoo else Path(program[0]).stem}.npz")
    with warnings.catch_warnings(), contextlib.redirect_stdout(sys.stderr):
        warnings.simplefilter("always", RecordWarning)
        warnings.showwarning = _show(warnings.showwarning)
        if zoo:
            wanted = {**pairs(program), **({"steps": steps} if steps else {})}
            trace = record_zoo(zoo, wanted, path, **options)
        else:
            trace = record_script(Path(program[0]), program[1:], path, steps=steps or 2, **options)
    if json:
        emit_json({
            "file": str(path), "name": trace.name, "tensors": trace.tensors, "events": trace.events, "operators": trace.ops,
            "phases": list(trace.phases), **trace.meta,
        })  # fmt: skip
    else:
        phases = f"{trace.phases[0]} to {trace.phases[-1]}" if len(trace.phases) > 1 else "".join(trace.phases)
        typer.echo(f"{path}: {trace.tensors:,} tensors, {trace.events:,} events, {trace.ops:,} operators; {phases}")


def _routing(program: list[str], out: Path | None, *, json: bool) -> None:
    """The choices of a script's model, as a file for `gpusim experts --routing`."""
    if not program:
        raise GpusimError("--routing needs a script that has a `model` and `texts`", hint="gpusim record model.py --routing")
    from gpusim.programs.record.routed_script import routing_of_script
    from gpusim.programs.serving.routing import write

    with contextlib.redirect_stdout(sys.stderr):
        found = routing_of_script(Path(program[0]), program[1:])
    path = out or Path(f"{Path(program[0]).stem}.txt.gz")
    write(found, path)
    tokens, layers, chosen = found.choices[0].shape
    if json:
        emit_json({
            "file": str(path), "tokens": tokens, "layers": layers, "experts": found.experts, "chosen": chosen,
            "sequences": found.sequences,
        })  # fmt: skip
    else:
        of = f"{layers} layers with {found.experts} experts, {chosen} of them for each token"
        typer.echo(f"{path}: {tokens:,} tokens of {found.sequences} texts, {of}")


def pairs(args: Sequence[str]) -> dict[str, Any]:
    """--batch 4 --checkpoint=true -> {"batch": "4", ...}: options of the model."""
    found: dict[str, Any] = {}
    rest = list(args)
    while rest:
        word = rest.pop(0)
        name, given, value = word.removeprefix("--").partition("=")
        if word.startswith("--") and not given and not rest:
            raise GpusimError(f"option '{word}' has no value", hint="such as --batch 4")
        if not word.startswith("--"):
            raise GpusimError(f"'{word}' is no option of a model", hint="such as --batch 4 --seq 1024; `gpusim zoo` lists them")
        found[name.replace("-", "_")] = value if given else rest.pop(0)
    return found


def _show(otherwise: Any) -> Any:
    """Warnings of the recorder in one line, those of the program as ever."""

    def show(message: Any, category: type[Warning], filename: str, lineno: int, *more: Any) -> None:
        if issubclass(category, RecordWarning):
            say.warning(f"{filename}:{lineno}: {message}")
        else:
            otherwise(message, category, filename, lineno, *more)

    return show
