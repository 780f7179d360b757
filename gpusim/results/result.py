"""What one run left behind."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.defaults import LATER
from gpusim.base.errors import ResultError, suggest
from gpusim.results.faults import FaultReport
from gpusim.results.log import LOG
from gpusim.results.metrics import refuse_unknown
from gpusim.results.sampled import Sampled
from gpusim.trace.trace import Trace

FINISHED, OOM, HOST_OOM, FAILED = OUTCOMES = ("finished", "oom", "host_oom", "failed")
# Keys of `spec` that nothing compares.
FOR_REFEREE = (
    "kernel_times", "profile_hash", "log_version", "program_hash", "memories", "remote", "remote_access", "told", "paging",
    "unanswered", "slower", "link_bytes", "turns",
    "stopped_at", "began_at", "seat",
)  # fmt: skip
_NUMBERS = (int, float, np.number)


@dataclass(frozen=True, eq=False)
class Result:
    """One run: what went in, how it ended, what was measured.

    spec      plain values (JSON).  What the run was: trace (name), trace_hash, profile, place, evict, prefetch (as
              written in the experiment), memory (bytes), seed, oracles (the kinds of policy that read the future),
              unanswered (names of gpusim.trace.answers that the trace does not answer: there are no such numbers).
              What the referee needs: profile_hash (of its numbers), log_version (results.log), capacity, host_capacity (bytes),
              rates {h2d, d2h, both} (bytes/s; `both` bounds the two directions together), slots {h2d, d2h} (copies that an
              engine runs at once), and of other tiers than the host alone tiers (as written) and memories (each with its
              capacity, ways and slots), and of a rank whose kernels take longer than its GPU's the factor, slower, or (ns,
              factor) of each change.  Of all ranks together link_bytes: what passed each link of the machine
              Of programs beside one that has a fatal fault, ns: stopped_at, when that stopped this one, or began_at, when it
              began again, and on which seat
              Of programs that a policy gives turns, turns: capacity (bytes for all), and what each claims
              Under unified memory, told: what the driver did other than asked, a sentence each; and paging: page (bytes),
              chunks (of GPU memory), whole (a chunk each block), processors, allocations (bytes, where in its window,
              kind), events (of all of the log), began and began_ns (those before the run was timed, and since when)
    outcome   "finished", "oom", "host_oom" or "failed"
    failure   None when finished; else memory ("device" or "host"), tensor, op, time_ns, request, free, largest (bytes),
              advice (a sentence), as far as known
    metrics   name -> number, names as declared in results.metrics
    timeline  column -> array, all of one length, a row per moment: time_ns, op, allocated_bytes, reserved_bytes,
              requested_bytes, host_bytes
    log       the event log (dtype results.log.LOG), None when it was not recorded
    bounds    what no policy can beat, by name as in results.metrics
    checked   the referee's verdict; None while it has not looked
    key       the run's name in its folder, a hash of its inputs; "" before it is kept
    program   what a plan policy made of the trace and ran instead; of a rank with a log its part of the trace; None when the
              trace itself ran
    schedule  what a plan policy had planned (policies.planning.Schedule); None without a plan, and of a result that was kept
    pages     the event log of unified memory and its steps, column -> array as in results.page_log; None when not recorded
    faults    what page faults cost, of a run under unified memory
    sampled   what it came to on sampled machines, None when none were
    ranks     the results of all ranks of a program on several GPUs, of which this one is made (results.ranks); else none
    """

    spec: dict[str, Any]
    outcome: str
    metrics: dict[str, int | float]
    failure: dict[str, Any] | None = None
    timeline: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    log: npt.NDArray[Any] | None = None
    bounds: dict[str, int | float] = field(default_factory=dict)
    checked: bool | None = None
    key: str = ""
    program: Trace | None = None
    schedule: Any = None
    faults: FaultReport | None = None
    pages: dict[str, npt.NDArray[Any]] | None = None
    sampled: Sampled | None = None
    ranks: tuple[Result, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what no reader of results would understand; ResultError."""
        if self.outcome not in OUTCOMES:
            raise ResultError(f"there is no outcome '{self.outcome}'", hint=suggest(self.outcome, OUTCOMES))
        for table in (self.metrics, self.bounds):
            refuse_unknown(table)
            for name, value in table.items():
                if not isinstance(value, _NUMBERS):
                    raise ResultError(f"metric '{name}' is {value!r}, not a number")
        lengths = {name: len(column) for name, column in self.timeline.items()}
        if len(set(lengths.values())) > 1:
            raise ResultError(f"the columns of a timeline differ in length: {lengths}")
        if self.log is not None and self.log.dtype != LOG:
            raise ResultError("the event log has another format than gpusim.results.log.LOG")

    @property
    def finished(self) -> bool:
        """True when every event of the trace was carried out."""
        return self.outcome == FINISHED

    @property
    def logged(self) -> bool:
        """True when it has what a timeline is made from: an event log, of pages or of each rank, too."""
        if self.ranks:
            here = [rank for rank in self.ranks if not rank.spec.get("absent")]  # one that was not recorded does nothing
            return all(rank.log is not None and len(rank.log) and rank.program is not None for rank in here)
        return (self.log is not None and len(self.log) > 0) or self.pages is not None

    @property
    def beside(self) -> bool:
        """True when it ran beside other programs on its GPU: with a log `ranks` are the results of all of them."""
        return str(self.spec.get("beside", LATER["beside"])) != LATER["beside"]

    @property
    def oracle(self) -> bool:
        """True when a policy of this run reads the future."""
        return bool(self.spec.get("oracles") or self.spec.get("oracle"))
