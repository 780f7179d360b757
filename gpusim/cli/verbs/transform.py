"""Write the trace of the same program run another way, such as with checkpointing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.cli import complete, say, words
from gpusim.cli.options import Json, Trace, Use, output
from gpusim.cli.output import emit, emit_json
from gpusim.cli.words import own_files

if TYPE_CHECKING:
    from gpusim.trace.trace import Trace as Recorded


def verb(
    name: Trace,
    chain: Annotated[
        str,
        typer.Argument(
            help="What to do, such as 'checkpointing(every=2) | precision(to=bf16)'.", autocompletion=complete.transforms
        ),
    ],
    *,
    out: Annotated[Path, output("The trace to write (.npz).")],
    use: Use = None,
    json: Json = False,
) -> None:
    """Write the transformed trace, and say how its peak, operators and arithmetic changed."""
    from gpusim.programs import transforms
    from gpusim.trace.files import save_trace

    own = own_files(use)
    transforms.check(chain, own)
    before = words.trace(name)
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
        say.warning(warning)


def _row(trace: Recorded) -> dict[str, int | float]:
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
