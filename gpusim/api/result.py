"""What one run left behind, as a notebook wants it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.api.frames import frame
from gpusim.api.showing import figure, html
from gpusim.base.errors import ResultError, suggest
from gpusim.base.units import show_bytes, show_time
from gpusim.experiment.ran import program_of
from gpusim.results import result as kept
from gpusim.results.activities import Activities, activities
from gpusim.results.folder import RUNS, load_result
from gpusim.results.log import KINDS, LOG
from gpusim.results.metrics import METRICS, in_order
from gpusim.results.monitoring.clock import chosen
from gpusim.results.monitoring.taken import samples
from gpusim.results.summary import rows
from gpusim.results.viewers.exported import exported
from gpusim.results.viewers.tables import of_activities
from gpusim.show import export
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from gpusim.api.inputs import Source
    from gpusim.machine.profile import Profile
    from gpusim.machine.topology.topology import Topology

FRAMES = ("run", "timeline", "log", "activities", "metrics")
SHOWN = (
    "makespan_ns", "slowdown", "stall_ns", "h2d_bytes", "d2h_bytes", "reserved_peak_bytes", "requested_peak_bytes",
    "over_oracle",
)  # fmt: skip


class Result:
    """One run: every metric and bound of `gpusim metrics` is an attribute, times in ns, sizes in bytes, shares up to 1.

    >>> import gpusim
    >>> result = gpusim.simulate("resnet50-train", on="a100-pcie-40gb", memory="60 %", bounds=False)
    >>> result.stall_ns < result.makespan_ns
    True
    >>> result.stall_swapin_ns
    Traceback (most recent call last):
    AttributeError: a result has no 'stall_swapin_ns' (did you mean 'stall_swap_in_ns'?)
    """

    def __init__(
        self, of: kept.Result, source: Source | None = None, folder: Path | None = None,
        machine: Profile | Topology | None = None,
    ) -> None:
        self._of = of
        self.source = source
        """The program that ran, None of a result that was kept."""
        self.machine = machine
        """The machine that it ran on, None of a result that was kept."""
        self.folder = folder
        """The results folder that it lies in, None of a result that lies in none."""

    @property
    def value(self) -> kept.Result:
        """The plain value that the rooms below work on: spec, outcome, failure, metrics, bounds, timeline, log."""
        return self._of

    @cached_property
    def whole(self) -> kept.Result:
        """The same with its timeline and its log, read from its folder when it lies in one."""
        return self._of if self.folder is None else load_result(self.folder / RUNS / self._of.key)

    @property
    def outcome(self) -> str:
        """ "finished", "oom", "host_oom" or "failed"."""
        return self._of.outcome

    @property
    def finished(self) -> bool:
        """True when every event of the trace was carried out."""
        return self._of.finished

    @property
    def failure(self) -> dict[str, Any] | None:
        """Why it did not finish: which memory, request and free bytes, and advice; None when it did."""
        return self._of.failure

    @property
    def spec(self) -> dict[str, Any]:
        """What ran: trace, profile, policies, memory (bytes), seed."""
        return self._of.spec

    @property
    def metrics(self) -> dict[str, int | float]:
        """All that was measured, by name; `METRICS` of gpusim.results.metrics has unit and meaning of each."""
        return {name: {**self._of.metrics, **self._of.bounds}[name] for name in in_order((*self._of.metrics, *self._of.bounds))}

    @property
    def makespan_ns(self) -> int | float:
        """From the first issue to the end of the last kernel, copy or host call, ns."""
        return self._metric("makespan_ns")

    @property
    def slowdown(self) -> int | float:
        """Makespan over that of the same run without a memory limit; AttributeError without bounds, or when it failed."""
        return self._metric("slowdown")

    @property
    def stall_ns(self) -> int | float:
        """Time that streams with kernels stood still, ns."""
        return self._metric("stall_ns")

    def _metric(self, name: str) -> int | float:
        numbers = {**self._of.bounds, **self._of.metrics}
        if name in numbers:
            return numbers[name]
        if name in METRICS:
            raise AttributeError(f"this run has no {name} ({METRICS[name].meaning})")
        hint = suggest(name, METRICS)
        raise AttributeError(f"a result has no '{name}'{f' ({hint})' if hint else ''}")

    @property
    def ranks(self) -> list[Result]:
        """Of a program on several GPUs the result of each rank, in their order; else none."""
        return [Result(rank) for rank in self._of.ranks]

    def __getattr__(self, name: str) -> int | float:
        if name.startswith("_"):
            raise AttributeError(name)
        return self._metric(name)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.metrics]

    def frame(self, what: str = "run") -> DataFrame:
        """As a pandas DataFrame.  ResultError for another word, or where the run kept no log.

        "run"       one row, with the columns of summary.csv, so that those of several runs can be joined
        "timeline"  memory over time: a row per moment
        "log"       the event log: a row per record, as gpusim.results.log describes them
        "activities"  what ran, waited and moved: a row each, by rising start (gpusim.results.activities)
        "metrics"   metrics over time, as `gpusim monitor` lists them: a row per moment
        """
        if what == "run":
            return frame(rows([self._of]))
        if what == "timeline":
            return frame(self.whole.timeline)
        if what == "activities":
            return frame(of_activities(self.activities()))
        if what == "metrics":
            return frame(self._over_time())
        if what != "log":
            raise ResultError(f"there is no frame '{what}'", hint=suggest(what, FRAMES) or f"one of {', '.join(FRAMES)}")
        log = self.whole.log
        if log is None:
            raise ResultError("this run kept no event log", hint="simulate(..., log=True)")
        names = {"t": "time_ns", "addr": "address"}
        return frame({names.get(n, n): [KINDS[k] for k in log[n]] if n == "kind" else log[n] for n in LOG.names or ()})

    def activities(self) -> Activities:
        """Kernels, copies, faults and stalls in time, a row each.  ResultError where the run kept no log.

        >>> import gpusim
        >>> result = gpusim.simulate("resnet50-train", on="a100-pcie-40gb", memory="60 %", bounds=False, log=True)
        >>> found = result.activities()
        >>> sum(found.stalls().values()) == result.stall_ns
        True
        """
        return activities(self.whole, self._program())

    def export(self, path: str | Path) -> str:
        """Write the run for another program, by the suffix of the path; returns what was written.

        .pftrace          for Perfetto: tracks of streams, engines, stalls and faults, flows from cause to effect, counters
        .json             the same as a Chrome trace
        .parquet, .arrow  the activities as a table
        With .gz behind it the file is packed.  Raises ResultError: another suffix, no log; GpusimError: no such package.
        """
        path = Path(path)
        format = export.format_of(path)
        run = exported(self.whole, self._program())
        return (export.timeline if format in export.TIMELINES else export.table)(run, format, path)

    def _over_time(self) -> dict[str, Any]:
        """Column -> values: "time_ns", and each curve by its metric and the values of its own labels."""
        clock = chosen(int(self.metrics.get("makespan_ns", 0)))
        found = samples(self.whole, self._program(), self.activities(), clock)
        curves = {" ".join((name, *own)): values for name, of in found.curves.items() for own, values in of.items()}
        return {"time_ns": found.at, **curves}

    def _program(self) -> Trace | None:
        """The trace that ran, None of a managed program."""
        if self.source is not None or self.folder is None:
            return self.source if isinstance(self.source, Trace) else None
        return program_of(self.whole, self.folder)

    def plot(self, kind: str = "memory_over_time", **options: Any) -> Figure:
        """The figure of this name (see gpusim.show.figures), shown in a notebook.  Raises ResultError for an unknown one."""
        return figure([self.whole], kind, **options)

    def __repr__(self) -> str:
        words = [f"{key}={self.spec[key]}" for key in ("trace", "profile", "place", "evict", "unified") if key in self.spec]
        time = f", {show_time(self._of.metrics['makespan_ns'])}" if self.finished and "makespan_ns" in self._of.metrics else ""
        return f"<Result {self.outcome}{time}: {', '.join(words)}>"

    def _repr_html_(self) -> str:
        spec = self.spec
        room = show_bytes(int(spec.get("memory") or spec["capacity"]))
        said = f"{spec.get('trace')} on {spec.get('profile')}, {room}: {self.outcome}"
        why = [{"metric": "advice", "value": self.failure.get("advice", ""), "meaning": ""}] if self.failure else []
        known = [name for name in SHOWN if name in self.metrics and (self.finished or name != "makespan_ns")]
        told = [{"metric": n, "value": shown(n, self.metrics[n]), "meaning": METRICS[n].meaning} for n in known]
        return html([*why, *told], ("metric", "value", "meaning"), said)


def shown(name: str, value: int | float) -> str | int | float:
    """For people, with a unit."""
    unit = METRICS[name].unit
    return show_time(value) if unit == "ns" else show_bytes(int(value)) if unit == "B" else value
