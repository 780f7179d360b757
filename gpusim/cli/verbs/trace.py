"""Describe a trace: tensors, peak, lifetimes, reuse, phases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import typer

from gpusim.base.text import join
from gpusim.cli.options import Json, Trace
from gpusim.cli.output import emit, emit_json

MOST_ROWS = 12  # of a table of phases or operators


def verb(name: Trace = "", *, json: Json = False) -> None:
    """What is in a trace or managed program; without a name, the shipped ones in a line each."""
    from gpusim.base.yaml.find import find, find_run, is_managed, is_of_ranks, names
    from gpusim.policies.place.parts.packing.plan import static_bounds
    from gpusim.trace import stats
    from gpusim.trace.files import load_trace

    if not name:
        recorded = [_line(stats.describe(load_trace(find("trace", each)))) for each in names("trace")]
        emit(recorded + [_of_program(find("managed program", each)) for each in names("managed program")], json)
        return
    if is_managed(file := find_run(name)):
        emit([_of_program(file)], json)
        return
    if is_of_ranks(file):
        from gpusim.programs.ranks.described import describe
        from gpusim.programs.ranks.files import load_ranks

        emit(describe(load_ranks(file)), json)
        return
    trace = load_trace(file)
    found = stats.describe(trace)
    if planned := static_bounds(trace):
        found["bounds"] |= dict(zip(("greedy_plan", "static_plan", "static_plan_proven"), planned[1:], strict=True))
    if json:
        emit_json(found)
    else:
        _print(found)


def _line(d: dict[str, Any]) -> dict[str, Any]:
    from gpusim.base.units import show_bytes

    counts = d["counts"]
    return {
        "trace": d["name"],
        "tensors": counts["tensors"],
        "operators": counts["ops"],
        "live peak": show_bytes(d["live"]["peak_rounded"]),
        "format": d["meta"].get("format", ""),
        "lacks": ", ".join(d["lacks"]),
    }


def _of_program(file: Path) -> dict[str, Any]:
    """The same of a managed program."""
    from gpusim.base.units import show_bytes
    from gpusim.programs.managed.steps import Kernel
    from gpusim.programs.managed.text import load

    program = load(file)
    return {
        "trace": program.name,
        "tensors": len(program.arrays),
        "operators": sum(isinstance(step, Kernel) for step in program.steps),
        "live peak": show_bytes(program.footprint),
        "format": "managed program",
        "lacks": "",
    }


def _print(d: dict[str, Any]) -> None:
    from gpusim.base.units import show_bytes, show_time

    counts, live, bounds, reuse = d["counts"], d["live"], d["bounds"], d["reuse"]
    where = f" in {live['peak_phase']}" if live["peak_phase"] else ""
    lines = {
        "content": ", ".join(f"{counts[word]:,} {word}" for word in ("tensors", "events", "ops", "accesses")),
        "shapes": f"of {counts['shaped']:,} ops" if counts["shaped"] else "",
        "live peak": f"{show_bytes(live['peak_rounded'])}{where}; {show_bytes(live['start'])} were there before",
        "least memory": f"{show_bytes(bounds['widest_operator'])}, which one operator touches" if counts["ops"] else "",
        "static plan": f"{show_bytes(bounds['static_plan'])}: {_judged(bounds)}" if "static_plan" in bounds else "",
        "sizes": _percentiles(d["sizes"], show_bytes),
        "lifetimes": f"{_percentiles(d['lifetime'], str)} {d['lifetime']['unit']}",
        "uses": _percentiles(reuse["uses"], str) if counts["ops"] else "",
        "reuse distance": _percentiles(reuse["distance"], show_bytes),
        "recorded time": show_time(d["recorded_ns"]) if d["recorded_ns"] >= 0 else "",
        "answers": _answered(d["answers"]),
        "lacks": ", ".join(d["lacks"]),
        "source": str(d["meta"].get("source", "")),
        "licence": str(d["meta"].get("licence", "")),
    }
    typer.echo(f"{d['name']}\n")
    for word, text in lines.items():
        if text.strip():
            typer.echo(f"  {word:<15} {text}")
    for warning in d["warnings"]:
        typer.echo(f"  warning         {warning}")
    for title in ("categories", "phases", "operators") if counts["ops"] else ("categories",):
        rows = [{key: _cell(key, value) for key, value in row.items()} for row in d[title][:MOST_ROWS]]
        if rows:
            typer.echo("")
            emit(rows)


def _answered(can: dict[str, bool]) -> str:
    """What it can answer, and what it cannot."""
    given, missing = ([name for name, there in can.items() if there is wanted] for wanted in (True, False))
    return f"{', '.join(given) or 'nothing'}{f'; not {join(missing)}' if missing else ''}"


def _judged(bounds: dict[str, Any]) -> str:
    """How good the plan of fixed addresses is."""
    if bounds["static_plan_proven"]:
        return "the lowest there is"
    return f"at most {bounds['static_plan'] / bounds['live_peak'] - 1:.2%} above the lowest there is"


def _percentiles(found: dict[str, Any], show: Callable[[int], str]) -> str:
    return ", ".join(f"{name} {show(found[name])}" for name in ("p10", "p50", "p90", "max") if name in found)


def _cell(key: str, value: Any) -> Any:
    from gpusim.base.units import show_bytes

    return show_bytes(value) if key in ("bytes", "at_peak", "read", "written", "peak") else value
