"""How busy each link of a machine of several GPUs was in the best run on it: bytes over what it could carry in that time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.machine.topology import build, transfers
from gpusim.machine.topology.topology import Topology
from gpusim.results.result import Result
from gpusim.show.view import contenders, main_metric, run_name, value, varying


@dataclass(frozen=True)
class BusyLinks:
    """Shares of the run's time for which each link was busy, the busiest first, and bytes that passed it, by name."""

    machine: Topology
    run: str
    busy: dict[str, float]
    bytes: dict[str, int]

    @property
    def answer(self) -> str:
        """Which link is the busiest, and how far."""
        name, share = next(iter(self.busy.items()))
        return f"{name} is busiest, {100 * share:.0f} % of the time: {show_bytes(self.bytes[name])}{self._of(name)}."

    def _of(self, name: str) -> str:
        alike = sum(abs(share - self.busy[name]) < 0.005 for share in self.busy.values()) - 1
        return f"; {alike} others are as busy" if alike else ""


def telling(results: Sequence[Result]) -> bool:
    """Whether a run says what passed its links."""
    return any(r.spec.get("link_bytes") for r in results)


def busy_links(results: Sequence[Result]) -> BusyLinks | str:
    """Of the best run of ranks; or why there is none: no run of ranks finished, or its machine is not there."""
    known = [r for r in results if r.spec.get("link_bytes")]
    if not known:
        return "No run of several ranks finished."
    metric = main_metric(results)
    best = min(contenders(known), key=lambda r: value(r, metric) or 0.0)
    try:
        machine = build.load(str(best.spec["profile"]))
    except GpusimError as error:
        return f"{error.message[0].upper()}{error.message[1:]}."
    rates, took = transfers.rates(machine), float(best.metrics["makespan_ns"])
    passed = {str(name): int(size) for name, size in best.spec["link_bytes"].items() if name in rates}
    busy = {name: size / (rates[name] * took) for name, size in passed.items()}
    return BusyLinks(
        machine, run_name(best, varying(results), alone="parallel"), dict(sorted(busy.items(), key=lambda one: -one[1])), passed
    )
