"""python -m gpusim.studies.experts.stated [--held-out]: Mixtral with experts in host memory, published and simulated.

The rows are `calibrate/data/experts_published.csv`; what their source says of a system is in `SYSTEMS`.  Of the routing it says
how often each expert is chosen (`popularity`); how often a token's choices repeat is recalled from the model's report.
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

from gpusim.machine.topology import build
from gpusim.studies.experts.setup import ExpertSpec, answered, like

REPEATS = 0.15
"""Mixtral of Experts, arXiv:2401.04088, table 5 (recalled): a first choice repeats a fourth of the time."""
PROFILES = {"quadro-rtx-6000": "rtx-2080-ti", "l4": "l4", "rtx-a6000": "rtx-a6000", "rtx-6000-ada": "rtx-6000-ada"}
"""Of the Quadro there is none: it has the chip of the other with four multiprocessors more, and 24 GB."""
COPIES = {"quadro-rtx-6000": "5.033 GB/s", "l4": "7.046 GB/s"}
"""Fiddler's copies of an expert from memory that is not pinned: 70 ms in its program, 50 ms on the L4 (its issue 7)."""
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

    def spec(self, link: float = 0.0) -> ExpertSpec:
        """Its configuration in words; `link`: GB/s of the link in both directions, 0: the catalogue's."""
        words = like(self.system) | SYSTEMS[self.system]
        if self.system == "mixtral-offloading":
            words["cache"] = THERE[self.machine]
        own = ["memory.capacity=24 GiB"] if self.machine == "quadro-rtx-6000" else []
        own += [f"host.pageable_h2d={COPIES[self.machine]}"] if self.system == "fiddler" else []
        own += [f"link.{way}={link:.4g} GB/s" for way in ("h2d", "d2h")] if link else []
        machine = PROFILES[self.machine] + (f"({', '.join(own)})" if own else "")
        lengths = f"sequences={self.batch}, prompt={self.prompt}, output={max(self.output - 1, 1)}"
        routing = f"drawn(popularity=mixtral-8x7b, sticky={REPEATS}, {lengths})"
        return ExpertSpec(model="mixtral-8x7b", machine=machine, batch=self.batch, routing=routing, **words)

    def simulated(self, link: float = 0.0) -> float:
        """Seconds."""
        return float(answered(self.spec(link)).metrics()["makespan_ns"] / 1e9)


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


def key_row(machine: str) -> StatedRow:
    """From which the link of a machine can be inferred: the first of DeepSpeed, which copies all weights for each token."""
    return next(row for row in rows() if (row.machine, row.system, row.split) == (machine, "deepspeed", "visible"))


@cache
def link_of(machine: str) -> float:
    """GB/s of the machine's link with which its `key_row` is simulated as published: copies are all that takes time."""
    row = key_row(machine)
    known = build.load(PROFILES[machine]).profile("gpu0").link.h2d.value / 1e9
    return float(known * row.simulated() / row.seconds)


def errors(chosen: Sequence[StatedRow], *, inferred: bool = False) -> list[float]:
    """Simulated over published seconds, less 1; `inferred`: with the links of `link_of`."""
    return [row.simulated(link_of(row.machine) if inferred else 0.0) / row.seconds - 1 for row in chosen]


def table(split: str) -> str:
    """A line for each system on each machine, as Markdown."""
    lines = [f"| machine | system | rows, {split} | median error | too slow | link by one row | median error |"]
    lines += ["| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    every: dict[bool, list[float]] = {False: [], True: []}
    for machine, system in dict.fromkeys((row.machine, row.system) for row in rows()):
        mine = [row for row in rows() if (row.machine, row.system, row.split) == (machine, system, split)]
        plain = errors(mine)
        told = errors([row for row in mine if row != key_row(machine)], inferred=True)
        lines.append(
            f"| {machine} | {system} | {len(plain)} | {np.median(np.abs(plain)):.0%} | {np.mean(np.array(plain) > 0):.0%} "
            f"| {link_of(machine):.1f} GB/s | {np.median(np.abs(told)):.0%} |"
        )
        every[False] += plain
        every[True] += told
    medians = [f"{np.median(np.abs(every[kind])):.0%}" for kind in (False, True)]
    lines += ["", f"Median of all {len(every[False])}: {medians[0]}; with links by one row of each machine {medians[1]}."]
    return "\n".join(lines)


if __name__ == "__main__":
    print(table("held out" if "--held-out" in sys.argv else "visible"))
