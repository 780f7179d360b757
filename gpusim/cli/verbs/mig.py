"""The MIG slices of a GPU, where they lie, and what another cut of it changes.

    gpusim mig a100-sxm4-80gb
    gpusim mig a100-sxm4-80gb "3g.40gb + 2g.20gb + 1g.10gb"
    gpusim mig a100-sxm4-80gb "3g.40gb + 4g.40gb" --from "3g.40gb + 3g.40gb" --busy 0 --each "2 s"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli.options import Json
from gpusim.cli.output import emit, emit_json

if TYPE_CHECKING:
    from gpusim.machine.mig import Recut


def verb(
    gpu: Annotated[str, typer.Argument(help="A profile: a100-sxm4-80gb.")],
    cut: Annotated[str, typer.Argument(help="Slices with a plus between them: 3g.40gb + 4g.40gb; 7 x 1g.10gb.")] = "",
    *,
    before: Annotated[str, typer.Option("--from", help="The slices that are there now.")] = "",
    busy: Annotated[str, typer.Option(help="Numbers of those on which programs run, from 0 on: 0,2.")] = "",
    each: Annotated[str, typer.Option(help="Time to take a slice away or to make one, instead of the measured one.")] = "",
    json: Json = False,
) -> None:
    """The MIG slices of a GPU, where they lie, and what another cut of it changes."""
    from gpusim.machine import mig

    if not cut:
        emit(mig.offered(gpu), json)
        return
    if not before:
        emit(mig.placed(gpu, mig.parts(cut)), json)
        return
    found = mig.recut(gpu, mig.parts(before), mig.parts(cut), busy, each)
    if json:
        times = {"seconds": found.ns, "low_s": found.low, "high_s": found.high}
        emit_json({"slices": found.rows, **{name: ns / 1e9 for name, ns in times.items()}, "basis": found.basis})
        return
    emit(found.rows, json)
    typer.echo(f"\n{_sentence(found)}")


def _sentence(found: Recut) -> str:
    steps = f"slices that go: {found.gone}, that are made: {found.made}"
    if found.basis == "given":
        return f"{steps}; {found.ns / 1e9:g} s in all, while slices that stay run on"
    took, low, high = (f"{ns / 1e9:.2g}" for ns in (found.ns, found.low, found.high))
    span = f"{took} s" + (f" ({low} to {high})" if low != high else "")
    where = "as measured on an A100" if found.basis == "measured" else "estimated: measured on an A100"
    return f"{steps}; {span} in all, {where}, while slices that stay run on"
