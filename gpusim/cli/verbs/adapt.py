"""Train with a batch, or policies, that a controller adapts to the free memory."""

from __future__ import annotations

from typing import Annotated

import typer

from gpusim.base.errors import GpusimError
from gpusim.base.units import parse_bytes, parse_time, show_bytes, show_time
from gpusim.cli import words
from gpusim.cli.options import Json, Machine, MachineOnce, Use, trace
from gpusim.cli.output import emit, emit_json


def verb(
    name: Annotated[str, trace("A trace with one or more training steps.")],
    before: MachineOnce = None,
    *,
    on: Machine = None,
    controller: Annotated[
        str, typer.Option(help="What sets the batch (aimd, bisect, fixed) or release and prefetch (bandit), with parameters.")
    ] = "aimd",
    rounds: Annotated[int, typer.Option(min=1, help="So many replays of the trace, each with its batch.")] = 20,
    memory: Annotated[str | None, typer.Option(help="What the allocator may hold: '24 GiB'; default: the device's.")] = None,
    neighbour: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME:BYTES", help="Another job takes bytes from this time on, like '2 s: 4 GiB'. Repeatable."),
    ] = None,
    evict: Annotated[str, typer.Option(help="Eviction policy for when memory is full; none: out of memory.")] = "none",
    prefetch: Annotated[str, typer.Option(help="Prefetch policy: what is swapped in before it is needed.")] = "none",
    use: Use = None,
    json: Json = False,
) -> None:
    """Print one row per round, and how many samples a second all of them came to."""
    from gpusim.engine.control import train
    from gpusim.trace.answers import require

    own = words.own_files(use)
    found_trace, profile = words.trace(name), words.machine(on, "gpusim adapt", before)
    require(found_trace, ("accesses", "flops"), "gpusim adapt")
    found = train(
        found_trace, profile, controller, rounds=rounds, capacity_bytes=None if memory is None else int(parse_bytes(memory)),
        neighbours=[_taken(text) for text in neighbour or []], evict=evict, prefetch=prefetch,
        use=tuple(own.own.values()),
    )  # fmt: skip
    elapsed = found[-1].start_ns + found[-1].time_ns
    done = sum(r.batch for r in found if r.finished)
    values = {
        "rounds": [vars(r) for r in found], "samples": done, "elapsed_ns": elapsed, "samples_per_s": done / (elapsed / 1e9),
        "failed": sum(not r.finished for r in found),
    }  # fmt: skip
    if json:
        emit_json(values)
        return
    chosen = any(r.policies for r in found)
    emit([
        {
            "round": r.number, "at": show_time(r.start_ns), "memory": show_bytes(r.memory), "batch": r.batch,
            "outcome": r.outcome, "takes": show_time(r.time_ns), "waits [%]": 100 * r.stall_share,
            "reserved": show_bytes(r.reserved_peak), **({"policies": r.policies} if chosen else {}),
        }
        for r in found
    ])  # fmt: skip
    failed = f", {values['failed']} of {len(found)} rounds ran out of memory" if values["failed"] else ""
    did = f"{done:,} samples in {show_time(elapsed)}, {done / (elapsed / 1e9):,.0f} a second"
    if not any(r.batch for r in found):  # the recording does not say how many a round has
        did = f"{len(found)} rounds in {show_time(elapsed)}"
    typer.echo(f"\n{did}{failed}.")


def _taken(text: str) -> tuple[int, int]:
    at, colon, size = text.partition(":")
    if not colon:
        raise GpusimError(f"'{text}' is no neighbour", hint="write TIME:BYTES, as '2 s: 4 GiB'; negative bytes are given back")
    back = size.strip().startswith("-")
    taken = int(parse_bytes(size.strip().removeprefix("-")))
    return round(parse_time(at.strip())), -taken if back else taken
