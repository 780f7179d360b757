"""`gpusim transform` and `gpusim transforms`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from gpusim.base.errors import GpusimError, suggest
from gpusim.cli.output import emit, emit_json

if TYPE_CHECKING:
    from gpusim.trace.trace import Trace


def transform(name: str, chain: str, out: Path, use: Sequence[str], *, json: bool) -> None:
    """Write the transformed trace, and say how its peak, operators and arithmetic changed."""
    from gpusim.base.yaml.find import find
    from gpusim.policies import registry
    from gpusim.programs import transforms
    from gpusim.trace.files import load_trace, save_trace

    own = registry.of(*use)
    transforms.check(chain, own)
    before = load_trace(find("trace", name))
    after = transforms.apply(before, chain, own)
    save_trace(after, out)
    rows = [_row(before), _row(after)]
    if json:
        emit_json({"file": str(out), "transforms": after.meta.get("transforms", []), "before": rows[0], "after": rows[1]})
    else:
        typer.echo(f"{out}: {after.name}, {' | '.join(after.meta.get('transforms', []))}\n")
        emit([{"": word, **_words(row)} for word, row in zip(("before", "after"), rows, strict=True)])
    known = before.meta.get("warnings", [])
    for warning in (w for w in after.meta.get("warnings", []) if w not in known):
        typer.echo(f"gpusim: warning: {warning}", err=True)


def _row(trace: Trace) -> dict[str, int | float]:
    from gpusim.trace.stats import ROUND, live_bytes

    live = live_bytes(trace, -(-trace.size // ROUND) * ROUND)
    return {
        "peak": int(live.max(initial=0)), "tensors": trace.tensors, "operators": trace.ops, "flops": float(trace.flops.sum()),
        "moved": int(trace.read_bytes.sum() + trace.written_bytes.sum()),
    }  # fmt: skip


def _words(row: dict[str, int | float]) -> dict[str, str]:
    from gpusim.base.units import show_bytes

    return {
        "peak": show_bytes(row["peak"]), "tensors": f"{row['tensors']:,}", "operators": f"{row['operators']:,}",
        "Tflop": f"{row['flops'] / 1e12:,.2f}", "moved by operators": show_bytes(row["moved"]),
    }  # fmt: skip


def transforms(name: str, use: Sequence[str], *, json: bool) -> None:
    """All transforms in a line each, or everything about one."""
    from gpusim.policies import registry
    from gpusim.programs import transforms as package

    entries = {e.name: e for e in package.entries(registry.of(*use))}
    if not name:
        rows = [
            {"transform": e.name, "parameters": ", ".join(f"{k}={v}" for k, v in e.parameters.items()), "help": e.summary}
            for e in entries.values()
        ]
        emit(rows, json)
        return
    if name not in entries:
        raise GpusimError(f"there is no transform '{name}'", hint=suggest(name, entries))
    e = entries[name]
    if json:
        emit_json({"transform": e.name, "help": e.help, "parameters": dict(e.parameters)})
        return
    typer.echo(f"{e.name}\n\n{e.help}\n")
    for key, value in e.parameters.items():
        typer.echo(f"  parameter {key} = {value}")
