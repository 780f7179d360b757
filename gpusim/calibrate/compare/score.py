"""Runs rows through the simulator and tells how far it is from them, series by series."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.as_programs import paged
from gpusim.calibrate.as_programs.of_rows import program
from gpusim.calibrate.as_programs.paged import Managed
from gpusim.calibrate.as_programs.row_program import Cannot, RowProgram
from gpusim.calibrate.compare.provenance import check_gpu, provenance
from gpusim.calibrate.fit.fitting import ALL, SOME
from gpusim.calibrate.fit.links import of_host
from gpusim.calibrate.meaning import full
from gpusim.calibrate.rows import Row, series
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import quantities
from gpusim.machine.kernels.numbers import SHARE
from gpusim.machine.profile import Profile, changed
from gpusim.results import log
from gpusim.results.result import Result
from gpusim.trace.trace import Trace

F64 = npt.NDArray[np.float64]
ENOUGH = 20  # rows of a machine, below which what is said about it is little
_ROOM = 1 << 44  # bytes of device memory: what is tested is time
_HELD, _CATALOGUE, _ELSEWHERE = "held out", "catalogue's number", "another host"
FITTED, UNFITTED = "fitted", "not fitted"
TWICE = "the very same point is in a series that the fit saw"
_VARIED = ("flop_per_byte", "streams", "dtype", "by", "n", "hint", "access_bytes", "gpus", "mode", "threads")
"""What makes rows of one size different programs."""
CURVES = (
    ("memory", "copy_curve"), ("memory", "read_curve"), ("memory", "shared_curve"), ("memory", "in_step_curve"),
    ("memory", "latency_curve"), ("link", "size_curve"), ("link", "size_curve_d2h"), ("host", "pageable_curve"),
    ("host", "pageable_curve_d2h"), ("collective", "size_curve"),
)  # fmt: skip
RULED = (
    "memory.copy_curve", "memory.read_curve", "memory.shared_curve", "memory.in_step_curve", "memory.latency_curve",
    "memory.turnaround", "gpu.fma", "launch.barrier", "launch.copy", "link.peer", "link.peer_both", "link.staged",
    "link.staged_both", "link.staged_latency", "peer.both", *(f"gpu.achieved.{name}" for name in SHARE),
)  # fmt: skip
"""Numbers that a profile may lack; then a rule by generation, from other GPUs, decides."""
PARTS = (_HELD, _CATALOGUE, _ELSEWHERE, FITTED, UNFITTED)
_OF_HOST = ("link.", "host.")  # numbers of the machine around the GPU


@dataclass(frozen=True)
class Point:
    """One row, measured and simulated, in the row's unit."""

    row: Row
    simulated: float

    @property
    def error(self) -> float:
        """|simulated / measured - 1|"""
        return abs(self.simulated / self.row.value - 1)


@dataclass
class Series:
    """One series: its points, and the rows that the engine cannot run, by reason."""

    name: str
    part: str
    """One of PARTS."""
    uses: tuple[str, ...] = ()
    points: list[Point] = field(default_factory=list)
    cannot: Counter[str] = field(default_factory=Counter)

    @cached_property
    def signed(self) -> F64:
        """simulated / measured - 1 of each point."""
        return np.array([p.simulated / p.row.value - 1 for p in self.points])

    @cached_property
    def errors(self) -> F64:
        """|simulated / measured - 1| of each point."""
        return np.abs(self.signed)

    @property
    def median(self) -> float:
        """Of the errors."""
        return float(np.median(self.errors))

    @property
    def p90(self) -> float:
        """Of the errors."""
        return float(np.quantile(self.errors, 0.9))

    @property
    def bias(self) -> float:
        """Median of simulated / measured - 1: above 0 where a rate is too high, or a time too long."""
        return float(np.median(self.signed))


@dataclass(frozen=True)
class Comparison:
    """One machine."""

    machine: str
    profile: Profile
    series: tuple[Series, ...]
    rows: int
    cautions: tuple[str, ...] = ()
    """What keeps the score from meaning more."""

    @property
    def compared(self) -> list[Series]:
        """Series of which the engine could run something."""
        return [s for s in self.series if s.points]

    def score(self, part: str = _HELD) -> tuple[float, float, float] | None:
        """Median, p90 and worst error over the points of this part, each series counting alike; None without any."""
        mine = [s for s in self.compared if s.part == part]
        if not mine:
            return None
        errors = np.concatenate([s.errors for s in mine])
        weights = np.concatenate([np.full(len(s.errors), 1 / len(s.errors)) for s in mine])
        return quantile(errors, weights, 0.5), quantile(errors, weights, 0.9), float(errors.max())


def quantile(values: F64, weights: F64, q: float) -> float:
    """The least value that at least the share q of all weight does not exceed."""
    order = np.argsort(values, kind="stable")
    total = np.cumsum(weights[order])
    at = int(np.searchsorted(total, q * total[-1] * (1 - 1e-12)))
    return float(values[order][min(at, len(order) - 1)])


def compare(
    rows: Sequence[Row], profile: Profile, fitted: Collection[str] | None = None, machine: str = "",
    progress: Callable[[int, int], None] = lambda done, total: None, seen: Collection[str] | None = None,
) -> Comparison:
    """Simulate every row on the profile.

    fitted  the numbers of the profile that come from rows; None: those that a fit says to have written.  A series that one of
            the other measured numbers decides is shown apart: the catalogue may have that number from this very series.  So
            is one from another host than the one whose link was fitted
    seen    the series that were fitted into the profile; None: those that its sources name

    Raises MeasurementError when there are no rows, or they are of another GPU than the profile.
    """
    if not rows:
        raise MeasurementError("there are no rows to compare")
    caution, origin = check_gpu(rows, profile), provenance(profile)
    known = set(_of_rows(profile)) if fitted is None else set(fitted)
    basis = {path: q.basis for path, q in quantities(profile)} | dict.fromkeys(_curves(profile), "measured")
    groups = series(rows)
    saw = {name for name, group in groups.items() if (origin.saw(name, group) if seen is None else name in seen)}
    open_ = [row for name in saw for row in groups[name]]
    points = {_point(row) for row in open_ if full(row)}
    hosts = {origin.host} if origin.host else {row.system for row in of_host(open_)}
    systems = {name: groups[name][0].system for name in saw}
    times: dict[tuple[object, ...], float] = {}
    found = []
    for name, group in groups.items():
        one = Series(name, FITTED if name in saw else _HELD)
        _simulate(one, group, profile, set() if one.part == FITTED else points, times)
        theirs = [u for u in one.uses if u not in known and basis.get(u) == "measured"]
        ruled = [u for u in one.uses if u in RULED and u not in known and u not in basis]
        if _of_another(one, group[0].system, profile, systems):
            one.part = _ELSEWHERE
        elif one.part == _HELD and ruled:
            one.part = UNFITTED
        elif one.part == _HELD and theirs:
            one.part = _CATALOGUE
        elif one.part == _HELD and hosts and group[0].system not in hosts and any(u.startswith(_OF_HOST) for u in one.uses):
            one.part = _ELSEWHERE
        elif one.part == _HELD and not (origin.fitted or known):
            one.part = UNFITTED
        found.append(one)
        progress(len(found), len(groups))
    few = f"{len(rows)} row{'s'[: len(rows) > 1]}: fewer than {ENOUGH} say little about a machine" if len(rows) < ENOUGH else ""
    return Comparison(machine or profile.name, profile, tuple(found), len(rows), tuple(filter(None, (few, caution))))


def _of_another(one: Series, system: str, profile: Profile, systems: Mapping[str, str]) -> bool:
    """Whether a number of link or host that decides the series was fitted to rows of other hosts alone."""
    numbers = dict(quantities(profile))
    for path in one.uses:
        text = profile.sources.get(numbers[path].source, "") if path.startswith(_OF_HOST) and path in numbers else ""
        named = {host for name, host in systems.items() if name in text}
        if named and system not in named:
            return True
    return False


def _simulate(
    one: Series, group: Sequence[Row], profile: Profile, twice: Collection[tuple[object, ...]],
    times: dict[tuple[object, ...], float],
) -> None:  # fmt: skip
    """Run the rows of a series.

    twice  points that a fitted series has as well
    times  ns of what was run, by what makes rows the same program
    """
    for row in group:
        made = program(row, profile)
        if isinstance(made, Cannot):
            one.cannot[made.why] += 1
        elif _point(row) in twice:
            one.cannot[TWICE] += 1
        elif row.value > 0:
            one.uses = made.uses
            alike = (row.metric, row.size_bytes, row.method, row.system, *(row.params.get(p) for p in _VARIED))
            if alike not in times:
                times[alike] = _time(made, profile)
            one.points.append(Point(row, _value(row, made, times[alike], profile)))


def _point(row: Row) -> tuple[object, ...]:
    """What makes a row the same measurement as another one: tests repeat points of one series in another."""
    kind = row.metric.replace("hbm_scale_bw", "hbm_copy_bw")  # the same kernel under two names
    return row.system, row.source, kind, row.size_bytes, row.value, row.params.get("src"), row.params.get("gpu")


def _of_rows(profile: Profile) -> Iterable[str]:
    """What a fit wrote, by the keys of its sources."""
    yield from (path for path, q in quantities(profile) if q.source.startswith((SOME, ALL)))
    yield from _curves(profile)


def _curves(profile: Profile) -> Iterator[str]:
    for part, curve in CURVES:
        if getattr(getattr(profile, part), curve, ()):
            yield f"{part}.{curve}"


def _time(made: RowProgram | Managed, profile: Profile) -> float:
    """ns of one repeat."""
    if isinstance(made, Managed):
        return paged.ns(made, profile)
    profile = made.machine or profile
    if made.graph:
        profile = _of_graph(profile)
    whole = _span(made.trace, made, profile)
    around = _span(made.without, made, profile) if made.without is not None else 0
    return (whole - around) / made.repeats


def _of_graph(profile: Profile) -> Profile:
    """Kernels of a graph follow each other by launch.gap alone: what the host and the stream do for each is done before."""
    launch = profile.launch
    for name in ("submit", "empty"):
        profile = changed(profile, f"launch.{name}", 0.0) if getattr(launch, name) else profile
    return profile


def _span(trace: Trace, made: RowProgram, profile: Profile) -> int:
    result = simulate(
        trace, profile, place=made.place, plan=made.plan, tiers=made.tiers, capacity_bytes=_ROOM, log=made.stream is not None
    )
    return int(result.metrics["makespan_ns"]) if made.stream is None else _on_stream(result, made.stream)


def _on_stream(result: Result, stream: int) -> int:
    assert result.log is not None
    mine = result.log[result.log["b"] == stream]
    starts, ends = mine["t"][mine["kind"] == log.START], mine["t"][mine["kind"] == log.END]
    return int(ends.max() - starts.min())


def _value(row: Row, made: RowProgram | Managed, ns: float, profile: Profile) -> float:
    """The time in the row's own unit."""
    if made.flops:
        return made.flops / max(ns, 1e-9)  # GFLOP/s are flops per ns
    if made.moved:
        return made.moved / max(ns, 1e-9)
    if row.unit == "cycles":
        return ns * profile.gpu.boost_clock.value / 1e9
    return ns / {"ns": 1.0, "us": 1e3, "ms": 1e6}[row.unit]
