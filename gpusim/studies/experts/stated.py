"""python -m gpusim.studies.experts.stated [--held-out]: Mixtral with experts in host memory, published and simulated, as Markdown.

The rows are `calibrate/data/experts_published.csv`; what their source says of a system is in `SYSTEMS`.  Of the routing it says how
often each expert is chosen (`popularity`); how often a token's choices repeat is recalled from the model's report.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from gpusim.studies.experts.setup import ExpertSpec, answered, like

REPEATS = 0.15
"""Mixtral of Experts, arXiv:2401.04088, table 5 (recalled): a first choice repeats a fourth of the time, where an eighth is chance."""
MACHINES = {
    "quadro-rtx-6000": "rtx-2080-ti(memory.capacity=24 GiB{})",  # the same chip with 72 of 68 multiprocessors, and twice the memory
    "l4": "l4{}", "rtx-a6000": "rtx-a6000", "rtx-6000-ada": "rtx-6000-ada",
}  # fmt: skip
MEASURED = "host.pageable_h2d=5.033 GB/s"
"""What its program has for the copy of an expert: 70 ms for 352 MB."""
SYSTEMS: dict[str, dict[str, Any]] = {
    "deepspeed": {"uses": "all"},  # set_z3_leaf_modules: all experts of a layer are fetched at once
    "mixtral-offloading": {},
    "fiddler": {"memory": 0.95, "cache": "fit", "cpu": "50.3 GFLOP/s"},  # its program: 7 ms for each token of an expert
}
THERE = {"quadro-rtx-6000": "1 a layer", "l4": "1 a layer", "rtx-a6000": "3 a layer", "rtx-6000-ada": "3 a layer"}
"""Experts of Mixtral-Offloading on the GPU: offload_per_layer is 7 in the main branch, 5 on the cards of 48 GB."""


@dataclass(frozen=True)
class StatedRow:
    """One published time; see the module."""

    split: str
    seen: str
    machine: str
    system: str
    texts: str
    prompt: int
    output: int
    batch: int
    seconds: float

    def spec(self) -> ExpertSpec:
        """Its configuration in words."""
        words = like(self.system) | SYSTEMS[self.system]
        if self.system == "mixtral-offloading":
            words["cache"] = THERE[self.machine]
        own = MEASURED if self.system == "fiddler" else ""
        machine = MACHINES[self.machine].format("" if not own else f", {own}" if "(" in MACHINES[self.machine] else f"({own})")
        lengths = f"sequences={self.batch}, prompt={self.prompt}, output={max(self.output - 1, 1)}"
        routing = f"drawn(popularity=mixtral-8x7b, sticky={REPEATS}, {lengths})"
        return ExpertSpec(model="mixtral-8x7b", machine=machine, batch=self.batch, routing=routing, **words)

    def simulated(self) -> float:
        """Seconds."""
        return float(answered(self.spec()).metrics()["makespan_ns"] / 1e9)


@cache
def rows() -> tuple[StatedRow, ...]:
    """All, in the order of the file."""
    text = (resources.files("gpusim.calibrate") / "data" / "experts_published.csv").read_text("utf-8")
    found = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return tuple(
        StatedRow(r["split"], r["seen"], r["machine"], r["system"], r["texts"], int(r["prompt"]), int(r["output"]),
                  int(r["batch"]), float(r["seconds"]))
        for r in found
    )  # fmt: skip


def errors(chosen: Sequence[StatedRow]) -> list[float]:
    """Simulated over published seconds, less 1."""
    return [row.simulated() / row.seconds - 1 for row in chosen]


def table(split: str) -> str:
    """A line for each system on each machine, as Markdown."""
    lines = [f"| machine | system | rows, {split} | median error | largest | too slow |", "| --- | --- | ---: | ---: | ---: | ---: |"]
    every: list[float] = []
    for machine, system in dict.fromkeys((row.machine, row.system) for row in rows()):
        found = errors([row for row in rows() if (row.machine, row.system, row.split) == (machine, system, split)])
        size = np.abs(found)
        lines.append(
            f"| {machine} | {system} | {len(found)} | {np.median(size):.0%} | {size.max():.0%} | {np.mean(np.array(found) > 0):.0%} |"
        )
        every += found
    lines += ["", f"Median of all {len(every)}: {np.median(np.abs(every)):.0%}."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table("held out" if "--held-out" in sys.argv else "visible"))
