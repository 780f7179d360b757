"""Steps of a training program as the engine simulates them: on fewer nodes, on links that are slow or gone, beside copies.

    steps = SimulatedSteps("llama-1b-train", "zero=3", "16 x hgx-h100")
    steps.pace(12)                    of the work of 16 nodes; each rank keeps its batch
    steps.keeps(fault="nic")          of the pace with all links
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import find
from gpusim.experiment.ranked import simulated_ranks
from gpusim.machine import sharing
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology import build, faults
from gpusim.machine.topology.topology import DIRECT, Topology
from gpusim.machine.topology.transfers import LinkFlow
from gpusim.policies.registry import SHIPPED
from gpusim.programs import transforms
from gpusim.programs.ranks.layout import parse_layout
from gpusim.programs.ranks.placement import PACKED
from gpusim.results.result import Result
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

ALL = 8
"""Ranks that are all simulated; of more, one of each pipeline stage."""
MOST = 32
"""Nodes on which the share of the pace is found that slow links or copies leave."""
_ROOM = 1 << 44  # bytes of device memory
SIZES = 4
"""Numbers of nodes at which a job that shrinks is simulated; between them steps lie on straight lines."""
SEVERAL = re.compile(r"(\d{1,6})\s*x\s+(.+)")
FEW, EACH = 4, 32
"""Nodes, and ranks, that are simulated at most where one rank cannot stand for others: they copy from and to their hosts."""
Fault = tuple[str, float]
"""("nic" or "link", share of the rate that is left): 0 for one that is gone."""
NO_FAULT: Fault = ("", 1.0)


class RanksDiffer(GpusimError):
    """No rank stands for others, and there are too many to simulate each."""


@dataclass(frozen=True)
class SimulatedSteps:
    """Of a program on a machine.

    program   by name or file, and transforms before it is divided: "llama-70b-train | precision(to=bf16, master=yes)"
    parallel  the layout that divides it; its data-parallel degree follows from the GPUs

    Only time is asked: GPUs have the memory that the program takes.
    """

    program: str
    parallel: str
    machine: str

    def ns(self, nodes: int = 0, fault: Fault = NO_FAULT, beside: tuple[LinkFlow, ...] = ()) -> float:
        """Of the program's steps on so many nodes, 0: on all, together."""
        name, _, chain = self.program.partition("|")
        file = find.find("trace", name.strip())
        before, after = transforms.around_ranks(chain.strip() or transforms.NONE, SHIPPED)
        trace = _trace(str(file), file.stat().st_mtime_ns, before)
        return _simulated(trace, after, self.parallel, self._word(nodes), fault, beside)

    def keeps(self, fault: Fault = NO_FAULT, beside: tuple[LinkFlow, ...] = ()) -> float:
        """Share of its pace that the work keeps; found on `MOST` nodes where there are more, or on `FEW` where ranks differ."""
        match = SEVERAL.fullmatch(self.machine.strip())
        many = int(match[1]) if match else 1
        for nodes in (MOST, FEW):
            try:
                at = nodes if many > nodes else 0
                return min(1.0, self.ns(at) / self.ns(at, fault, beside))
            except RanksDiffer:
                if many <= FEW:
                    raise
        raise AssertionError("the loop returns or raises")

    def paces(self, nodes: int, least: int, unit: int) -> dict[int, float]:
        """Of each number of nodes that the job may have: work in a time, of that of all nodes."""
        sizes = list(range(nodes, max(least, 1) - 1, -unit))
        if len(sizes) == 1:
            return {nodes: 1.0}
        every = max(1, -(-(len(sizes) - 1) // (SIZES - 1)))
        known = sorted({*sizes[::every], sizes[-1]})
        times = {n: self.ns(n) for n in known}
        return {n: n / nodes * times[nodes] / _between(times, known, n) for n in sizes}

    def _word(self, nodes: int) -> str:
        match = SEVERAL.fullmatch(self.machine.strip())
        if not nodes or (match and nodes == int(match[1])):
            return self.machine
        if match is None:
            raise GpusimError(f"'{self.machine}' is not so many equal machines, so that a job there cannot shrink in steps",
                              hint="write 4 x hgx-h100")  # fmt: skip
        return f"{nodes} x {match[2]}" if nodes > 1 else match[2].partition(" over ")[0]


def _between(times: dict[int, float], known: list[int], n: int) -> float:
    low, high = max(k for k in known if k <= n), min(k for k in known if k >= n)
    return times[low] if low == high else times[low] + (times[high] - times[low]) * (n - low) / (high - low)


@lru_cache(maxsize=4)
def _trace(file: str, changed: int, chain: str) -> Trace:
    return transforms.apply(load_trace(file), chain)


@lru_cache(maxsize=4)
def _collectives(machine: str, fault: Fault) -> CollectiveTimes:
    return CollectiveTimes(with_fault(build.load(machine), fault))


def with_fault(machine: Topology, fault: Fault) -> Topology:
    """The machine with this fault on each host.  Raises GpusimError where it has no such link."""
    name, left = fault
    if not name:
        return machine
    if left:
        return faults.slower(machine, faults.NETWORK if name == "nic" else DIRECT, left)
    gone: dict[str, Callable[[Topology], Topology]] = {"nic": faults.without_card, "link": faults.without_wire}
    return gone[name](machine)


@lru_cache(maxsize=256)
def _simulated(
    trace: Trace, after: str, parallel: str, machine: str, fault: Fault, beside: tuple[LinkFlow, ...]
) -> float:  # fmt: skip
    collectives = _collectives(machine, fault)
    gpus = len(collectives.machine.gpus)
    layout = _layout(parallel, gpus, machine)

    def run(fold: bool) -> Result:
        return simulated_ranks(
            trace, collectives, layout, PACKED, SHIPPED, slower={}, memory=lambda footprint: _ROOM,
            host_memory=lambda footprint: None, share=",".join(sharing.WORDS), fold=fold, after=after, beside=beside,
        )  # fmt: skip

    try:
        done = run(gpus > ALL)
    except GpusimError as error:
        if not error.message.startswith("the ranks cannot be folded"):
            raise
        if gpus > EACH:
            why = "it copies from or to its hosts, so no rank stands for others"
            raise RanksDiffer(f"the program's {gpus} ranks are too many to simulate each: {why}", hint="fewer nodes") from None
        done = run(False)
    if not done.finished:
        raise GpusimError(f"the program does not fit the GPUs of '{machine}' as {layout}", hint="another --parallel")
    return float(done.metrics["makespan_ns"])


_DEGREES = re.compile(r"(tensor|pipeline)=(\d+)")


def _layout(parallel: str, gpus: int, machine: str) -> str:
    words = parallel.split()
    if any(word.startswith("data=") for word in words):
        raise GpusimError("the data-parallel degree follows from the job's GPUs", hint="leave data out: tensor=8 zero=1")
    of_one = math.prod(int(match[2]) for match in _DEGREES.finditer(parallel))
    if of_one < 1 or gpus % of_one:
        raise GpusimError(f"the {gpus} GPUs of '{machine}' are not whole groups of {of_one}", hint="other degrees, or --unit")
    layout = " ".join([f"data={gpus // of_one}", *words])
    parse_layout(layout)
    return layout
