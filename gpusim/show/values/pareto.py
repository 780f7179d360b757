"""Memory against time: every run a point, and the front of those that no other beats in both."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.groups import grouped
from gpusim.show.interval import interval
from gpusim.show.values.comparison import COMPARED, bound_of
from gpusim.show.view import POLICIES, ending, human, layout, line_name, main_metric, number, text, value

HELD = ("reserved_peak_bytes", "chunks_peak_bytes")  # the memory that a run held


class _Placed(Protocol):
    """What stands at some memory and some value of a metric; None where it is not known."""

    @property
    def memory(self) -> float | None: ...
    @property
    def value(self) -> float: ...


T = TypeVar("T", bound=_Placed)


def front(points: Iterable[T], sign: int = 1) -> list[T]:
    """Those that no other beats in both memory and metric, least memory first; sign -1: more of the metric is better."""
    found: list[T] = []
    known = ((p.memory, sign * p.value, p) for p in points if p.memory is not None)
    for _, height, point in sorted(known, key=lambda row: row[:2]):
        if not found or height < sign * found[-1].value:
            found.append(point)
    return found


@dataclass(frozen=True)
class ParetoPoint:
    """One run that finished.

    line      its policies, or what else competes
    where     its value along the axis in words: "60 %"; "" without one
    memory    bytes that it held at most
    value     of the metric; `interval`: p10 and p90 of it over sampled machines
    given     bytes that it was given
    bound     no eviction policy is better with these; None where that is not known, or where programs differ
    """

    line: str
    where: str
    oracle: bool
    memory: float | None
    value: float
    interval: tuple[float, float] | None
    given: float | None
    bound: float | None

    @property
    def name(self) -> str:
        """Its line, and where: "lru · 60 %"."""
        return " · ".join(part for part in (self.line, self.where) if part)


@dataclass(frozen=True)
class ParetoPanel:
    """One machine and program: all points, the front (no oracles), and runs that did not finish: how -> how many."""

    name: str
    points: tuple[ParetoPoint, ...]
    front: tuple[ParetoPoint, ...]
    failed: dict[str, int]

    @property
    def bound(self) -> tuple[tuple[float, float], ...]:
        """(memory, bound) from each memory up to the next; between two it is that of the larger, which is never more."""
        least: dict[float, float] = {}
        for p in self.points:
            if p.given is not None and p.bound is not None:
                least[p.given] = min(p.bound, least.get(p.given, p.bound))
        rising = sorted(least)
        return tuple((memory, least[after]) for memory, after in zip(rising, [*rising[1:], *rising[-1:]], strict=True))


@dataclass(frozen=True)
class ParetoFronts:
    """The panels, and the names of their lines in order of appearance."""

    metric: str
    lines: tuple[str, ...]
    panels: tuple[ParetoPanel, ...]


def pareto(results: Sequence[Result], metric: str = "") -> ParetoFronts:
    """Slowdown where policies compete, else makespan, against the memory held; a panel per machine and program."""
    plan = layout(results)
    metric = metric or (found if (found := main_metric(results)) in ("slowdown", "batch_ns") else "makespan_ns")
    sign = -1 if declared(metric).better == "higher" else 1
    panels = []
    for name, runs in grouped(results, plan.panels).items():
        alike = set(plan.lines) <= set(POLICIES)  # one program, which has one bound
        points = [p for run in runs if (p := _point(run, line_name(run, plan.lines), plan.across, metric, alike)) is not None]
        fair = [p for p in points if not p.oracle] or points
        failed: dict[str, int] = {}
        for how in filter(None, map(ending, runs)):
            failed[how] = failed.get(how, 0) + 1
        panels.append(ParetoPanel(name, tuple(points), tuple(front(fair, sign)), failed))
    names = dict.fromkeys(line_name(run, plan.lines) for run in results)
    return ParetoFronts(metric, tuple(names), tuple(panels))


def answer(found: ParetoFronts) -> str:
    """Least memory and best value on the front of the first panel that has points; "" where none has."""
    panels = [panel for panel in found.panels if panel.points]
    if not panels:
        return ""
    panel = panels[0]
    first, last = panel.front[0], panel.front[-1]
    low, best = (f"{p.name} ({human(HELD[0], p.memory)}, {human(found.metric, p.value)})" for p in (first, last))
    most = "fastest" if found.metric in ("slowdown", "makespan_ns") else f"best {declared(found.metric).label}"
    if first is last:
        said = f"{low} needs least memory and {'is fastest' if most == 'fastest' else f'has the {most}'}"
    else:
        least = "least memory" if len(panels) > 1 else "Least memory"
        said = f"{least}: {low}; {most}: {best}; {len(panel.front)} of {len(panel.points)} runs are on the front"
    return f"On {panel.name}: {said}." if len(panels) > 1 else f"{said}."


def _point(run: Result, line: str, across: str, metric: str, alike: bool) -> ParetoPoint | None:
    height = value(run, metric) if run.finished else None
    memory = next((v for name in HELD if (v := value(run, name)) is not None), None)
    if height is None or memory is None:
        return None
    where = text(across, run.spec.get(across)) if across else ""
    least = bound_of(run, metric) if metric in COMPARED and alike else None
    given = number(run.spec.get("capacity"))
    return ParetoPoint(line, where, bool(run.oracle), memory, height, interval([run], metric), given, least)


def telling(results: Sequence[Result]) -> bool:
    """Whether there is a trade: on some panel at least three runs that differ in memory and in time by more than a percent."""
    for panel in pareto(results).panels:
        held, heights = [p.memory or 0.0 for p in panel.points], [p.value for p in panel.points]
        if len(held) > 2 and max(held) > 1.01 * min(held) and max(heights) > 1.01 * min(heights):
            return True
    return False
