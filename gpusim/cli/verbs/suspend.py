"""Take a served model off its GPU and bring it back: sleep levels of vLLM, cuda-checkpoint, and which is the fastest.

    gpusim suspend --model qwen3-8b --machine a100-sxm4-80gb --cycles 10
    gpusim suspend --model qwen3-8b --machine h100-sxm-80gb --how "sleep(level=1)" --buffers all
    gpusim suspend --model llama-70b --machine h100-sxm-80gb --gpus 4 --files nvme
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.base.calls import listed
from gpusim.cli.options import Json
from gpusim.cli.output import emit, emit_json

if TYPE_CHECKING:
    from gpusim.studies.suspend.answer import SuspendAnswer


def verb(
    *,
    model: Annotated[str, typer.Option(help="A decoder of the zoo: qwen3-8b.")],
    machine: Annotated[str, typer.Option(help="A profile.")],
    how: Annotated[str, typer.Option(help="sleep(level=1), sleep(level=2), checkpoint; default: all three.")] = "",
    cycles: Annotated[int, typer.Option(help="How often it leaves and comes back.", min=1)] = 1,
    memory: Annotated[float, typer.Option(help="Share of the GPU's memory that the engine takes.", min=0.01, max=1.0)] = 0.9,
    weights: Annotated[str, typer.Option(help="bf16, fp8, fp8_block.")] = "bf16",
    gpus: Annotated[int, typer.Option(help="GPUs over which the model is split, each with a link of its own.", min=1)] = 1,
    buffers: Annotated[str, typer.Option(help="Host buffers before the first sleep: none, all, 8 GiB.")] = "none",
    files: Annotated[str, typer.Option(help="Where level 2 finds the weights: page_cache, nvme.")] = "page_cache",
    pin: Annotated[str, typer.Option(help="Time to pin a GiB of host memory; default: 450 ms, as measured with vLLM.")] = "",
    drain: Annotated[str, typer.Option(help="Time until submitted work is done, before a checkpoint.")] = "",
    json: Json = False,
) -> None:
    """Take a served model off its GPU and bring it back: sleep levels of vLLM, cuda-checkpoint, and which is the fastest."""
    from gpusim.api.suspending import suspend

    words = {"how": tuple(listed(how))} if how else {}
    found = suspend(
        model, machine, cycles=cycles, memory=memory, weights=weights, gpus=gpus, buffers=buffers, files=files, pin=pin,
        drain=drain, **words,
    )  # fmt: skip
    if json:
        emit_json(found.values())
    else:
        _show(found)


def _show(found: SuspendAnswer) -> None:
    from gpusim.base.units import show_bytes

    spec, process = found.spec, found.process
    typer.echo(
        f"{spec.model} on {spec.machine}: {show_bytes(process.weights)} of weights, {show_bytes(int(found.dropped))} of other "
        "memory, most of it keys and values\n"
    )
    emit(found.steps())
    typer.echo("")
    emit(found.rows())
    typer.echo("")
    for cycles, way in found.changes() if len(found.ways) > 1 else ():
        typer.echo(f"{'For one cycle' if cycles == 1 else f'From {cycles:,} cycles on'} {way.name} is the fastest.")
    if any(way.name.startswith("sleep") for way in found.ways):
        typer.echo("A sleep drops keys and values: sequences that it interrupts are computed again, which is not counted here.")
