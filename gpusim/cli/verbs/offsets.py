"""Plan fixed addresses for all tensors: the least memory that any allocator could do with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.errors import TraceError, UnitError
from gpusim.cli import words
from gpusim.cli.options import Device, Json, on, output, trace
from gpusim.cli.output import emit, emit_json


def verb(
    name: Annotated[str, trace("A trace, the name of a shipped one, a minimalloc problem, or a recording to import.")],
    *,
    on: Annotated[str | None, on("Look for nothing lower than what this machine has room for")] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", help='... or nothing lower than this, such as "40 GiB".')
    ] = None,
    align: Annotated[
        int | None,
        typer.Option("--align", min=1, max=2**40, help="Bytes that sizes round up to; default: 512, or 1 for minimalloc."),
    ] = None,
    device: Device = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=0, help="Visited by the exact search at most.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End the exact search then; the plan may differ from run to run.")
    ] = None,
    out: Annotated[Path | None, output("Write the plan here, as CSV: id,lower,upper,size,offset.")] = None,
    json: Json = False,
) -> None:
    """Plan offsets, show how low they are beside what simpler ways take, and write them to `out`."""
    from gpusim.base.yaml.find import find
    from gpusim.policies.place.parts.packing import plan as planner
    from gpusim.policies.place.parts.packing.greedy import online
    from gpusim.studies import offsets as table

    if on is not None and capacity is not None:
        raise UnitError("--on and --capacity both say what the plan must fit into", hint="give one of them")
    limit = words.capacity(capacity) if capacity is not None else 0
    limit = words.room(words.machine(on, "gpusim offsets")) if on is not None else limit
    ids, buffers = table.read(find("trace", name), align, device)
    if not len(buffers):
        raise TraceError("the trace allocates nothing", name)
    plan = planner.plan(buffers, limit, nodes=planner.NODES if nodes is None else nodes, seconds=seconds)
    if out is not None:
        table.write(out, ids, buffers, plan.offset)
    found: dict[str, Any] = {
        "buffers": len(buffers),
        "peak_live": plan.peak_live,
        "online_best_fit": online(buffers).top,
        "greedy_by_size": plan.greedy,
        "plan": plan.top,
        "bound": plan.bound,
        "proven": plan.proven,
        "fits": plan.top <= limit if limit else None,
        "nodes": plan.nodes,
        "file": str(out) if out is not None else None,
    }
    if json:
        emit_json(found)
    else:
        _print(found, limit)


def _print(found: dict[str, Any], limit: int) -> None:
    from gpusim.base.units import show_bytes

    ways = {"peak live": "peak_live", "best fit, online": "online_best_fit", "greedy by size": "greedy_by_size", "plan": "plan"}
    least = max(1, found["peak_live"])
    emit([
        {"way": way, "memory": show_bytes(found[key]), "bytes": found[key], "over peak live": found[key] / least}
        for way, key in ways.items()
    ])  # fmt: skip
    top, bound = found["plan"], found["bound"]
    lines = ["No plan is lower."]
    if not found["proven"]:
        lines = [f"No plan is below {bound:,} bytes: this one is {top / bound - 1:.2%} above."]
    if limit:
        verdict = "The plan fits into" if found["fits"] else "No plan fits into" if bound > limit else "No plan was found for"
        lines.append(f"{verdict} {limit:,} bytes.")
    avoidable = found["online_best_fit"] - top
    if avoidable > 0:
        lines.append(f"Of what online best fit takes, {show_bytes(avoidable)} are avoidable.")
    typer.echo("\n" + "\n".join(lines))
    if found["file"]:
        typer.echo(found["file"])
