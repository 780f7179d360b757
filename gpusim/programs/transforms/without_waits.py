"""The host goes on where it waited for the device."""

from __future__ import annotations

from gpusim.base.errors import TraceError, suggest
from gpusim.trace.edit import Edit
from gpusim.trace.trace import SYNC, Trace
from gpusim.trace.waits import at_line, host_waits


def without_waits(trace: Trace, line: str = "") -> Trace:
    """The same program without the host's waits for the device (`item()`, `synchronize()`, copies that block).

    line    only those at this line of the script, "train.py:31"; nothing: all

    What the host reads is then there later than it goes on: a program that decides by the value cannot run so.
    """
    waits = (trace.kind == SYNC) if not line else at_line(trace, line)
    if not waits.any():
        lines = [wait.line for wait in host_waits(trace) if wait.line]
        where = f"at {line}" if line else "for the device"
        hint = suggest(line, lines) or ("it waits at " + ", ".join(lines) if lines else "")
        raise TraceError(f"{trace.name}: the host does not wait {where}", hint=hint)
    edit = Edit(trace)
    edit.drop_events(waits)
    return edit.finish()
