"""What the metrics of one run are read from: its result, its program, its activities, and the moments of the samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.results import page_log
from gpusim.results.activities import KINDS, Activities
from gpusim.results.heap_over_time import blocks, holes, segments
from gpusim.results.log import COPY, ISSUE, START
from gpusim.results.monitoring.curves import F64, I64
from gpusim.results.monitoring.steps import EndedSteps, ended
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

STALL = KINDS.index("stall")
OUTSIDE = ("stall_explicit", "stall_host")  # stalls of steps of a managed program that are no kernels
BEFORE = tuple(f"stall_{cause}" for cause in page_log.BEFORE)


@dataclass(frozen=True, eq=False)
class Recorded:
    """at: (N,) simulated times of the samples, ns; trace: None of a managed program."""

    result: Result
    trace: Trace | None
    activities: Activities
    at: I64

    @cached_property
    def end(self) -> int:
        """When the run was over, ns."""
        return int(self.result.metrics["makespan_ns"])

    @property
    def unified(self) -> bool:
        """Whether the run was under unified memory."""
        return self.result.pages is not None

    def rows(self, *kinds: str) -> npt.NDArray[np.void]:
        """The activities of these kinds."""
        return self.activities.of_kind(*kinds)

    def named(self, rows: npt.NDArray[np.void]) -> dict[str, npt.NDArray[np.void]]:
        """The rows by their names."""
        return {self.activities.names[name]: rows[rows["name"] == name] for name in np.unique(rows["name"]).tolist()}

    def log(self, *kinds: int) -> npt.NDArray[Any]:
        """The records of the event log of these kinds; none under unified memory."""
        log = self.result.log
        return np.zeros(0, [("t", np.int64)]) if log is None else log[np.isin(log["kind"], kinds)]

    @cached_property
    def page_times(self) -> F64:
        """When the records of the log of unified memory were made, ns; above the end those before the run was timed."""
        pages, said = self.result.pages, self.result.spec["paging"]
        assert pages is not None
        since = np.clip(np.rint(pages["time"] - said["began_ns"]), 0, self.end)
        return np.where(np.arange(len(since)) < said["began"], np.inf, since)

    @cached_property
    def inside(self) -> npt.NDArray[np.void]:
        """Stalls inside kernels: under unified memory a kernel waits for pages while it runs, otherwise before it begins."""
        stalls = self.rows("stall")
        before, outside = ([i for i, name in enumerate(self.activities.names) if name in some] for some in (BEFORE, OUTSIDE))
        in_kernels = np.isin(stalls["op"], self.rows("kernel")["op"])
        mine = ~np.isin(stalls["name"], before) & np.where(stalls["op"] < 0, ~np.isin(stalls["name"], outside), in_kernels)
        return stalls[mine] if self.unified else stalls[:0]

    @cached_property
    def memory(self) -> dict[str, I64]:
        """Memory over time by the clock of the device: "t" (ns), and what was held, by name (bytes)."""
        line, last = self.result.timeline, self.result.metrics
        times = line.get("device_ns", line["time_ns"])
        found = {"t": np.append(times, max(self.end, int(times.max(initial=0))))}
        for name, column in line.items():
            if name.endswith("_bytes"):
                # The timeline is of stretches of the program, and ends with the latest one.
                ended = last.get(f"{name.removesuffix('_bytes')}_current_bytes", column[-1] if len(column) else 0)
                found[name.removesuffix("_bytes")] = np.append(column, np.int64(ended))
        return found

    @cached_property
    def external(self) -> F64 | None:
        """External fragmentation at each moment; None where no addresses are known."""
        log = self.result.log
        if log is None or not len(self.at):
            return None
        found = holes(blocks(log, self.end), segments(log, self.end), self.end)
        return found.external[np.clip(np.searchsorted(found.time, self.at, "right") - 1, 0, len(found.time) - 1)]

    @cached_property
    def waiting(self) -> dict[str, tuple[I64, I64]]:
        """Queue -> (when its members were submitted, when they began), ns; of explicit memory."""
        log = self.result.log
        if log is None:
            return {}
        made = self.log(ISSUE, COPY)
        began = np.full(len(made), self.end + 1, np.int64)
        start = self.log(START)
        began[start["a"]] = start["t"]
        swap, into = made["kind"] == COPY, made["b"] & 255 == 0
        queues = {"kernels": ~swap, "swap_in": swap & into, "swap_out": swap & ~into}
        return {name: (made["t"][mine], began[mine]) for name, mine in queues.items()}

    @cached_property
    def steps(self) -> EndedSteps | None:
        """The steps of the program that have ended; None where its phases have no numbers."""
        if self.trace is None:
            return None
        rows, memory = self.activities.rows, {"device": self.memory["allocated"], "host": self.memory["host"]}
        ran = rows[(rows["op"] >= 0) & (rows["kind"] < STALL)]
        program = self.result.program or self.trace
        return ended(program, ran, self.inside, (self.memory["t"], memory), finished=self.result.finished)
