"""Where measured values go: rows, what was left out and why, and how long everything may take."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.stats import summary
from gpusim.calibrate.rows import HOST, Row, unit_of

Clock = Callable[[], int]
"""Host time in ns."""


@dataclass
class Recorder:
    """Collects the rows of one machine.

    quick   fewer sizes and repeats
    clock   replaced in tests
    compared  False where nothing really moves (`rehearsal`), so that nothing can arrive wrong
    """

    gpu: str
    system: str
    source: str
    quick: bool = False
    clock: Clock = time.perf_counter_ns
    compared: bool = True
    rows: list[Row] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    """Point or group -> why it was not measured."""
    shrunk: list[str] = field(default_factory=list)
    """What was measured at smaller sizes than planned."""
    seconds: dict[str, float] = field(default_factory=dict)
    """Group -> how long it took."""
    _until: float = float("inf")
    _group: str = ""

    @contextmanager
    def group(self, name: str, seconds: float) -> Iterator[None]:
        """The measurements of a group, which begin no new point after so many seconds."""
        begin = self.clock()
        self._group, self._until = name, begin + seconds * 1e9
        try:
            yield
        finally:
            self.seconds[name] = round((self.clock() - begin) / 1e9, 2)
            self._until = float("inf")

    def time_for(self, point: str) -> bool:
        """Whether the group may still begin this point; if not, that is noted."""
        if self.clock() < self._until:
            return True
        self.left_out[f"{self._group}: {point}"] = "the group's time was used up"
        return False

    def repeat(self, once: Callable[[], float], least: int = 5, most: int = 50, seconds: float = 0.25) -> list[float]:
        """What `once` measures in ns, as often as fits into so many seconds, after two warm-ups that do not count."""
        once()
        begin = self.clock()
        once()
        cost = max(1, self.clock() - begin)
        if self.quick:
            least, most, seconds = min(least, 3), min(most, 11), seconds / 5
        return [once() for _ in range(max(least, min(most, int(seconds * 1e9 / cost))))]

    def timed(self, call: Callable[[], Any], count: int = 1) -> float:
        """Host time in ns of one of `count` calls."""
        begin = self.clock()
        for _ in range(count):
            call()
        return (self.clock() - begin) / count

    def add(
        self,
        metric: str,
        times: Sequence[float],
        *,
        method: str,
        case: str = "",
        size: int | None = None,
        work: float = 0,
        note: str = "",
        host: bool = False,
        param: Mapping[str, Any] | None = None,
    ) -> None:
        """One row of the times of one operation in ns.

        case   names the series among those of the metric
        work   bytes or operations of one operation, for metrics that are rates
        host   the row concerns no GPU
        param  what else varied
        """
        if min(times) <= 0:
            raise MeasurementError(f"{metric} took no time by its clock, which is too coarse for it")
        unit = unit_of(metric)
        scale = {"us": 1e-3, "ms": 1e-6, "ns": 1.0}.get(unit)
        values = [work / t for t in times] if scale is None else [t * scale for t in times]
        found = summary(values)
        gpu = HOST if host else self.gpu
        # The same name whenever this machine is measured, so that the split into fitted and held-out does not move.
        machine = hashlib.sha256(self.system.encode()).hexdigest()[:6]
        series = "-".join(filter(None, ("gs", "host" if host else slug(self.gpu), machine, case)))
        self.rows.append(
            Row(
                series_id=f"{series}/{metric}",
                gpu=gpu,
                system=self.system,
                metric=metric,
                size_bytes=size,
                param=";".join(f"{k}={v}" for k, v in (param or {}).items()),
                value=float(f"{found.median:.6g}"),
                unit=unit,
                stat=found.stat,
                method=method,
                source=self.source,
                confidence="measured",
                note=";".join(filter(None, (found.spread, note))),
            )
        )

    def outliers(self) -> dict[str, str]:
        """Rows of which more than a tenth of the repeats are outliers -> how many."""
        found = {}
        for row in self.rows:
            spread = dict(p.partition("=")[::2] for p in row.note.split(";"))
            count, of = int(spread.get("outliers", 0)), int(row.stat.rsplit(" ", 1)[-1])
            if count * 10 > of:
                found[f"{row.series_id} {row.size_bytes or ''} {row.param}".strip()] = f"{count} of {of}"
        return found


def slug(name: str) -> str:
    return "-".join(name.lower().split())


def sizes(low: int, high: int, factor: int = 2) -> list[int]:
    """low, low * factor, ... and high."""
    found = [low]
    while found[-1] * factor < high:
        found.append(found[-1] * factor)
    return [*found, high] if high > low else [min(low, high)]
