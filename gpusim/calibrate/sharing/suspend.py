"""Published times of vLLM's sleep levels, cuda-checkpoint and PipeSwitch, and what `machine.suspending` and `.switching` say.

    python -m gpusim.calibrate.sharing suspend

What a machine's profile does not have is taken from the rows of the other systems: costs of a GiB that is pinned, mapped and
released, of a start to load.  Of PipeSwitch's systems those that only differ in how layers are copied are left out one by one;
those that start or stop a process have a cost that no machine tells, and it is taken from the other models.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, median

from gpusim.calibrate.sharing import switches
from gpusim.machine import catalogue
from gpusim.machine.profile import Profile, changed
from gpusim.machine.suspending import GIB, Process, SleepCosts, checkpoint, sleep, total, wake
from gpusim.programs.zoo.served import served, weight_tensors

FILE = Path(__file__).parents[1] / "data" / "suspend_published.csv"
ADAPTERS = "LoRA"  # in the names of systems
PIN = 384e6  # ns a GiB in buffers of 64 MiB: median of five on an H100, data/h100_sxm/suspend.csv (alloc of the sleeps)
SHARE = 0.9  # of the GPU's memory, as vLLM takes it where a row does not say


@dataclass(frozen=True)
class SuspendRow:
    """A row of the file, with its machine and process.  level: 0 where there is none; missing: bytes of new host buffers."""

    system: str
    model: str
    what: str
    level: int
    profile: Profile
    process: Process
    missing: float
    measured: float

    def is_(self, what: str, level: int) -> bool:
        """Whether it is this, with host buffers that are there."""
        return (self.what, self.level) == (what, level) and not self.missing

    def ns(self, costs: SleepCosts) -> float:
        """What the model says."""
        if self.what == "checkpoint":
            return total(checkpoint(self.profile, self.process))
        if self.what == "sleep":
            return total(sleep(self.profile, self.process, self.level, self.missing, costs))
        return total(wake(self.profile, self.process, self.level, "page_cache", costs))


def rows(file: Path = FILE) -> list[SuspendRow]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [_row(line) for line in csv.DictReader(lines)]


def _row(line: dict[str, str]) -> SuspendRow:
    profile = catalogue.load(line["gpu"])
    if line["memory_gib"]:
        profile = changed(profile, "memory.capacity", float(line["memory_gib"]) * GIB)
    if line["link_of"]:
        link = catalogue.load(line["link_of"]).link
        profile = changed(changed(profile, "link.h2d", link.h2d.value), "link.d2h", link.d2h.value)
    sizes = (int(line["weights_bytes"]),) if line["weights_bytes"] else weight_tensors(served(line["model"]))
    mapped = float(line["mapped_gib"]) * GIB if line["mapped_gib"] else SHARE * profile.memory.capacity.value
    if line["what"] == "checkpoint":
        mapped = sum(sizes) - profile.context.value
    return SuspendRow(
        line["system"], line["model"], line["what"], int(line["level"] or 0), profile, Process(sizes, mapped),
        float(line["host_gib"] or 0) * GIB, float(line["measured_s"]) * 1e9,
    )  # fmt: skip


def fitted(known: Sequence[SuspendRow]) -> SleepCosts:
    """The costs that these rows tell: of each system the median, of all systems the mean.

    Mapping and loading follow from a system's smallest model, of which least is copied; loading from what its wakes from
    level 2 take longer than those from level 1.  Wakes with adapters load these too and say nothing of mapping.  What no row
    tells is what an H100 took (pin) or nothing.
    """
    costs = SleepCosts(pin=PIN, map=0.0, release=0.0, load=0.0)
    small = [row for row in known if row.process.weights == min(r.process.weights for r in known if r.system == row.system)]
    plain, whole = [row for row in small if ADAPTERS not in row.system], [row for row in known if ADAPTERS not in row.system]

    def beyond(row: SuspendRow) -> float:
        return max(0.0, row.measured - row.ns(costs))

    wakes = [row for row in plain if row.is_("wake", 1)]
    costs = replace(costs, map=_mean((row.system, beyond(row) / row.process.allocated * GIB) for row in wakes))
    costs = replace(costs, release=_mean((row.system, beyond(row)) for row in whole if row.is_("sleep", 1)))
    costs = replace(costs, pin=0.0)
    new = [(row.system, beyond(row) / (row.missing / GIB)) for row in known if row.missing > GIB]
    costs = replace(costs, pin=_mean(new) if new else PIN)
    return replace(costs, load=_mean(_loads(small, costs)))


def _loads(small: Sequence[SuspendRow], costs: SleepCosts) -> Iterator[tuple[str, float]]:
    """(system, ns to begin to load) of the systems that wake from both levels."""
    for system in dict.fromkeys(row.system for row in small):
        first, second = ([row for row in small if row.system == system and row.is_("wake", level)] for level in (1, 2))
        if first and second:
            longer = median(row.measured for row in second) - median(row.measured for row in first)
            yield system, max(0.0, longer - second[0].ns(costs) + first[0].ns(costs))


def _mean(found: Iterable[tuple[str, float]]) -> float:
    """Over systems, of their medians; 0 of nothing."""
    of: dict[str, list[float]] = {}
    for system, value in found:
        of.setdefault(system, []).append(value)
    return mean(median(values) for values in of.values()) if of else 0.0


def left_out(known: Sequence[SuspendRow]) -> list[float]:
    """ns of each row by the costs that the rows of all other systems tell."""
    costs = {
        name: fitted([row for row in known if row.system != name and row.what != "checkpoint"])
        for name in dict.fromkeys(row.system for row in known)
    }  # fmt: skip
    return [row.ns(costs[row.system]) for row in known]


def table() -> Iterator[str]:
    """Markdown: each row with the error when its system is left out, and the median of each system."""
    known = rows()
    said = left_out(known)
    lines = [
        (row.system, f"{row.model}, {row.what}{f' from level {row.level}' if row.level else ''}", row.measured / 1e9, ns / 1e9)
        for row, ns in zip(known, said, strict=True)
    ]  # fmt: skip
    lines += [(f"PipeSwitch: {row.system}", row.model, row.measured / 1e3, ms / 1e3) for row, ms in switches.left_out()]
    yield "| system | what | rows | measured [s] | simulated [s] | error |"
    yield "| --- | --- | ---: | ---: | ---: | ---: |"
    for system, what in dict.fromkeys(line[:2] for line in lines):
        here = [line[2:] for line in lines if line[:2] == (system, what)]
        measured, simulated = median(m for m, _ in here), median(s for _, s in here)
        error = simulated / measured - 1
        yield f"| {system} | {what} | {len(here)} | {measured:.4g} | {simulated:.4g} | {error:+.0%} |"
    yield ""
    for group in ("vLLM", "cuda-checkpoint", "PipeSwitch", ""):
        off = [abs(s / m - 1) for system, _, m, s in lines if system.startswith(group)]
        yield f"{group or 'all'}: median error {median(off):.1%}, largest {max(off):.0%}, {len(off)} rows"
    costs = asdict(fitted(known))
    yield f"costs from all rows: {', '.join(f'{name} {ns / 1e6:.3g} ms' for name, ns in costs.items())}"
