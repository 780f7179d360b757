"""`gpusim adapt`: a training whose batch follows the memory that is there."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from gpusim.base.errors import GpusimError
from gpusim.base.units import parse_bytes, parse_time, show_bytes, show_time
from gpusim.cli.output import emit, emit_json


def adapt(
    name: str, machine: str, controller: str, rounds: int, memory: str | None, neighbours: Sequence[str], evict: str,
    prefetch: str, *, json: bool,
) -> None:  # fmt: skip
    """Print one row per round, and how many samples a second all of them came to."""
    from gpusim.base.yaml.find import find
    from gpusim.engine.control import train
    from gpusim.machine.profile import load_file
    from gpusim.trace.answers import require
    from gpusim.trace.files import load_trace

    trace, profile = load_trace(find("trace", name)), load_file(find("profile", machine))
    require(trace, ("accesses", "flops"), "gpusim adapt")
    found = train(
        trace, profile, controller, rounds=rounds, capacity_bytes=None if memory is None else int(parse_bytes(memory)),
        neighbours=[_taken(text) for text in neighbours], evict=evict, prefetch=prefetch,
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
    emit([
        {
            "round": r.number, "at": show_time(r.start_ns), "memory": show_bytes(r.memory), "batch": r.batch,
            "outcome": r.outcome, "takes": show_time(r.time_ns), "waits [%]": 100 * r.stall_share,
            "reserved": show_bytes(r.reserved_peak),
        }
        for r in found
    ])  # fmt: skip
    failed = f", {values['failed']} of {len(found)} rounds ran out of memory" if values["failed"] else ""
    typer.echo(f"\n{done:,} samples in {show_time(elapsed)}, {done / (elapsed / 1e9):,.0f} a second{failed}.")


def _taken(text: str) -> tuple[int, int]:
    at, colon, size = text.partition(":")
    if not colon:
        raise GpusimError(f"'{text}' is no neighbour", hint="write TIME:BYTES, as '2 s: 4 GiB'; negative bytes are given back")
    back = size.strip().startswith("-")
    taken = int(parse_bytes(size.strip().removeprefix("-")))
    return round(parse_time(at.strip())), -taken if back else taken
