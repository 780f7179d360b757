"""The trace: an immutable columnar record of what a program did to memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

I64 = npt.NDArray[np.int64]

# Event kinds.  `arg` of an event is a tensor id, an operator index, a phase index or a stream event, by kind.
ALLOC, FREE, OP, PHASE, SYNC, RECORD, WAIT, SEGMENT_ALLOC, SEGMENT_FREE, OOM, SNAPSHOT = range(11)
EVENT_KINDS = ("alloc", "free", "op", "phase", "sync", "record", "wait", "segment_alloc", "segment_free", "oom", "snapshot")


@dataclass(frozen=True)
class Trace:
    """One recorded program.  All arrays are read-only; T tensors, E events, O operators, ids are dense and never reused.

    Events are in the order in which the host issued them.  A tensor lives from its ALLOC to its FREE (or to the end); one
    that existed before the recording is allocated before the first operator.
    """

    name: str
    # tensors, shape (T,)
    size: I64                    # bytes as requested by the program; 0 is allowed
    category: npt.NDArray[np.int16]   # index into categories: "param", "buffer", "input", "opt", "fwd", "bwd", ... , "unknown"
    # events, shape (E,)
    kind: npt.NDArray[np.uint8]
    arg: I64
    stream: npt.NDArray[np.int16]     # 0 is the default stream
    time: I64                    # host time in ns since the first event, -1 where the recording has none
    addr: I64                    # recorded address of an alloc/free/segment event, -1 where unknown
    bytes: I64                   # bytes of a segment or oom event; of an alloc the size again; else 0
    # operators, shape (O,); accesses in CSR form
    op: npt.NDArray[np.int32]         # index into op_names
    module: npt.NDArray[np.int32]     # index into modules, -1 unknown
    dtype: npt.NDArray[np.int16]      # index into dtypes, -1 unknown
    flops: npt.NDArray[np.float64]
    read_bytes: I64
    written_bytes: I64
    duration: I64                # recorded kernel time in ns, -1 unknown
    phase: npt.NDArray[np.int32]      # index into phases, -1 before the first
    read_start: I64              # shape (O+1,)
    read_id: I64                 # tensor ids
    write_start: I64             # shape (O+1,)
    write_id: I64
    # names
    categories: tuple[str, ...] = ()
    op_names: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    phases: tuple[str, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)  # JSON: source, licence, recorder, what is missing and how it was filled
