"""A trace as a log of DTR's runtime (`importers/dtr.py` has the format), so that its simulator runs the same program.

What nothing recorded makes, or what was there before the first operator, is a constant: DTR keeps it for ever.  A tensor
appears with the operator that first writes it, even where the program allocated it earlier.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.answers import require
from gpusim.trace.trace import ALLOC, FREE, I64, OP, PHASE, Trace
from gpusim.trace.workload import build


def write(trace: Trace, file: BinaryIO, *, duration: I64 | None = None) -> str:
    """Write the log; `duration` (O,) ns stands in for the recorded times.  Raises TraceError."""
    require(trace, "accesses", "a DTR log")
    times = trace.duration if duration is None else duration
    if times.min() < 0:
        raise TraceError(
            f"operator {int(times.argmin())} of '{trace.name}' has no recorded time",
            hint="--on MACHINE models what is missing",
        )
    log = _Log(trace, times, file)
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == ALLOC and log.constant[arg]:
            log.appear(arg)
        elif kind == OP:
            log.operator(arg)
        elif kind == FREE:
            log.line("RELEASE", NAME=f"t{arg}")
        elif kind == PHASE and "bwd" in trace.phases[arg]:
            log.line("ANNOTATE", ANNOTATION="BACKWARD")
    left = ", ".join(what for what, there in (("streams", trace.stream.any()), ("flops", trace.flops.any())) if there)
    return f"{log.lines:,} instructions, {int(log.constant.sum()):,} constants" + (f"; left out: {left}" if left else "")


class _Log:
    def __init__(self, trace: Trace, times: I64, file: BinaryIO) -> None:
        self.trace, self.times, self.file, self.lines = trace, times, file, 0
        self.constant = _constants(trace)
        self.there = np.zeros(trace.tensors, bool)  # named in the log so far
        self.line("ANNOTATE", ANNOTATION="START")

    def line(self, instruction: str, **fields: Any) -> None:
        text = json.dumps({"INSTRUCTION": instruction, **fields}, sort_keys=True, separators=(",", ":"))
        self.file.write(text.encode() + b"\n")
        self.lines += 1

    def appear(self, tensor: int) -> None:
        self.line("CONSTANT", NAME=f"t{tensor}")
        self.size(f"t{tensor}", int(self.trace.size[tensor]))
        self.there[tensor] = True

    def size(self, name: str, nbytes: int) -> None:
        self.line("MEMORY", NAME=name, MEMORY=str(nbytes))

    def operator(self, o: int) -> None:
        trace = self.trace
        reads = trace.read_id[trace.read_start[o] : trace.read_start[o + 1]]
        writes = np.unique(trace.write_id[trace.write_start[o] : trace.write_start[o + 1]])
        fresh = [f"t{t}" for t in writes[~self.there[writes]]]
        changed = [f"t{t}" for t in writes[self.there[writes]]]
        arguments = [f"t{t}" for t in reads]
        name, time = trace.op_names[trace.op[o]], str(self.times[o])
        if changed and not fresh:
            every = [*arguments, *(t for t in changed if t not in arguments)]
            read = {} if len(every) == len(arguments) else {"READ": list(range(len(arguments)))}
            self.line("MUTATE", NAME=name, ARGS=every, MUTATE=[every.index(t) for t in changed], TIME=time, **read)
            return
        # DTR knows no operator without a result: one that only reads makes a view and gives it up.
        results = fresh or [f"view{o}"]
        self.line("CALL", NAME=name, ARGS=arguments, RESULT=results, TIME=time)
        for result, tensor in zip(results, writes[~self.there[writes]] if fresh else [-1], strict=True):
            self.size(result, int(trace.size[tensor]) if fresh else 0)
            self.line("ALIAS", NAME=result, ALIAS="-1" if fresh or not arguments else "0")
        if not fresh:
            self.line("RELEASE", NAME=results[0])
        if changed:
            self.line("MUTATE", NAME=name, ARGS=changed, MUTATE=list(range(len(changed))), TIME="0", JOINED=True)
        self.there[writes] = True


def _constants(trace: Trace) -> npt.NDArray[np.bool_]:
    """(T,) whether no recorded operator makes the tensor."""
    work = build(trace, np.zeros(trace.ops, np.int64))
    first = np.flatnonzero(trace.kind == OP)[0]
    older = np.zeros(trace.tensors, bool)
    older[trace.arg[:first][trace.kind[:first] == ALLOC]] = True
    older[trace.write_id[: trace.write_start[1]]] = False  # results of the first operator
    found: npt.NDArray[np.bool_] = (work.has_data == 1) | np.isinf(work.first) | older
    return found
