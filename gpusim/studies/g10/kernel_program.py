"""A trace of the G10 study as the paged replay sees it: cycles, pages, and the study's own orders."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import TraceError
from gpusim.trace.trace import ALLOC, FREE, OP, Trace

I64 = npt.NDArray[np.int64]
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class KernelProgram:
    """K kernels, T tensors, numbered as in the study's files."""

    name: str
    size: I64          # (T,) bytes, in whole pages
    everlasting: npt.NDArray[np.bool_]  # (T,) weights and constants
    begin: I64         # (T,) first kernel
    end: I64           # (T,) one past the last that reads it; begin + 1 of a tensor without readers
    unread: npt.NDArray[np.bool_]  # (T,) written and used by one kernel only
    ms: F64            # (K,) with all data on the device
    ms_out: F64        # (K,) with outputs faulting
    ms_all: F64        # (K,) with all data faulting
    ops: tuple[str, ...]  # (K,)
    inputs: tuple[I64, ...]   # (K,) in the study's order
    outputs: tuple[I64, ...]  # (K,) those that are not inputs as well
    walk: tuple[I64, ...]     # (K,) all of them, in its other order

    @staticmethod
    def of(trace: Trace, page: int = 4096) -> KernelProgram:
        """From a trace that `gpusim.trace.importers.g10` has read.  TraceError for any other."""
        order = trace.meta.get("order")
        if trace.meta.get("format") != "g10" or order is None:
            raise TraceError(
                f"'{trace.name}' is no trace of the G10 study, or was imported by an older version",
                hint="import its .jsonl file again",
            )
        file = np.array(order["file"], np.int64)  # trace's number -> file's
        rank = np.argsort(file)
        kernel = np.cumsum(trace.kind == OP)
        begin, end = np.zeros(trace.tensors, np.int64), np.full(trace.tensors, trace.ops, np.int64)
        allocs, frees = trace.kind == ALLOC, trace.kind == FREE
        begin[trace.arg[allocs]] = kernel[allocs]
        end[trace.arg[frees]] = kernel[frees]
        everlasting = trace.category == (trace.categories.index("param") if "param" in trace.categories else -1)
        read = np.zeros(trace.tensors, bool)
        read[trace.read_id] = True
        inputs, written, walk = (tuple(file[np.array(k, np.int64)] for k in order[key]) for key in ("in", "out", "req"))
        outputs = tuple(some[~np.isin(some, others)] for some, others in zip(written, inputs, strict=True))
        ms_out, ms_all = (np.array(trace.meta["fault_ns"][key]) / 1e6 for key in ("in", "all"))
        return KernelProgram(
            trace.name, (-(-trace.size // page) * page)[rank], everlasting[rank], begin[rank], end[rank],
            (~read & ~everlasting)[rank], trace.duration / 1e6, ms_out, ms_all,
            tuple(trace.op_names[n] for n in trace.op), inputs, outputs, walk,
        )  # fmt: skip

    @property
    def tensors(self) -> int:
        return len(self.size)

    @property
    def kernels(self) -> int:
        return len(self.ms)

    def cycles(self, hertz: int) -> tuple[I64, I64, I64]:
        """Cycles of each kernel with all on the device, with outputs faulting, with all faulting: ever more."""
        run, outs, alls = (np.trunc(ms * float(hertz) / 1000.0).astype(np.int64) for ms in (self.ms, self.ms_out, self.ms_all))
        outs = np.maximum(run, outs)
        return run, outs, np.maximum(outs, alls)

    @cached_property
    def loss(self) -> int:
        """The kernel at which the backward pass begins."""
        return self.ops.index("makeLoss")

