"""List whole machines of several GPUs, show one, the route between two of its nodes, or the time of a collective.

    gpusim machines                       all machines in a line each
    gpusim machines dgx-1-v100            its nodes, wires, and the ways between its GPUs
    gpusim machines dgx-1-v100 gpu0 gpu5  the route of a copy, and why it is that one
    gpusim machines "4 x hgx-h100 over roce" n0.gpu0 n3.gpu7
    gpusim machines hgx-h100 --collective all_reduce --gpus 4
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli import complete, options
from gpusim.cli.options import Json, output
from gpusim.cli.output import emit, emit_json


def verb(
    name: Annotated[str, options.name(complete.whole_machines)] = "",
    a: Annotated[str, typer.Argument(metavar="[FROM]", help="A node: gpu0, socket1, nic0.")] = "",
    b: Annotated[str, typer.Argument(metavar="[TO]", help="Another node.")] = "",
    *,
    no_peers: Annotated[bool, typer.Option("--no-peers", help="The route of GPUs that may not reach each other.")] = False,
    collective: Annotated[
        str,
        typer.Option(help="Times of a collective by size: all_reduce, all_to_all, send.", autocompletion=complete.collectives),
    ] = "",
    gpus: Annotated[str, typer.Option(help="Its GPUs: 4 (the first four), or names with commas between.")] = "",
    out: Annotated[Path | None, output("A figure of the machine to draw: .svg, .png or .pdf.")] = None,
    json: Json = False,
) -> None:
    """Machines in a line each; one with nodes, wires and ways between GPUs; a route with its reason; or a collective's time."""
    from gpusim.api.machines import machines
    from gpusim.machine.topology import build

    if out is not None and out.suffix not in (".svg", ".png", ".pdf"):
        raise GpusimError(f"a figure is not drawn as '{out.suffix}'", hint="name a file that ends in .svg, .png or .pdf")
    if collective and not name:
        raise GpusimError("a collective is one of a machine", hint="name it: gpusim machines hgx-h100 --collective all_reduce")
    if out is not None and not name:
        raise GpusimError("a figure shows one machine", hint="name it: gpusim machines dgx-1-v100 -o dgx1.svg")
    found = machines(name, a, b, peers=not no_peers, collective=collective, gpus=gpus)
    if out is not None:
        from gpusim.show.style import save
        from gpusim.show.topology import draw

        save(draw(build.load(name)), out.with_suffix(""), [out.suffix.removeprefix(".")])
    if isinstance(found, list):
        emit(found, json)
    elif json:
        emit_json(found)
    elif collective:
        _show_collective(found)
    elif a:
        _show_route(found)
    else:
        _show(found)


def _show_route(found: dict[str, Any]) -> None:
    typer.echo(f"{found['told']}\n{found['reason']}\n")
    if found["links"]:
        emit(found["links"])
        typer.echo("")
    emit(found["copies"])


def _show_collective(found: dict[str, Any]) -> None:
    nodes = f" on {found['nodes']} nodes" if found["nodes"] > 1 else ""
    typer.echo(f"{found['name']}: {found['collective']} of {len(found['gpus'])} GPUs{nodes}")
    channels = {"rings": found["rings"], "trees": found["trees"], "NVLS": found["nvls"]}
    typer.echo("; ".join(f"{kind} {said}" for kind, said in channels.items() if said) + "\n")
    emit(found["times"])


def _show(found: dict[str, Any]) -> None:
    marked = "  (an estimate: no such machine was measured)" if found["estimate"] else ""
    typer.echo(f"{found['name']}: {found['summary']}{marked}\n")
    typer.echo("\n".join(found["tree"]) + "\n")
    emit(found["wires"], columns=["wires", "kind", "pairs", "rate", "both", "nominal", "latency", "basis"])
    if len(found["between_gpus"]) > 1:
        most = 16
        columns = list(found["between_gpus"][0])[: most + 1]
        typer.echo("")
        emit(found["between_gpus"][:most], columns=columns)
        typer.echo("\n" + "; ".join(f"{word} {said}" for word, said in found["letters"].items()))
