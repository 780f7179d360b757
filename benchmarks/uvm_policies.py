"""Unified memory: all eviction policies with all prefetchers, on four programs that need 1.5 times the memory, as Markdown.

    PYTHONPATH=. python benchmarks/uvm_policies.py [program ...]

A number is the time of the program over that with memory for everything under the driver's own policies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpusim.engine.pages.prefetchers import PREFETCHERS
from gpusim.engine.pages.prefetchers import foresees as foresees_ahead
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.engine.pages.victims import EVICT, foresees
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.machine.platforms import Platform, load
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import ManagedProgram
from gpusim.programs.managed.text import load as read

PROGRAMS = ("stream_sweep", "iterate", "hot_keys", "bfs")
SHARE = 1 / 1.5
MACHINE = "a100-pcie-80gb"


def ns(program: ManagedProgram, machine: Platform, chunks: int, evict: str = "driver", prefetcher: str = "tree") -> float:
    room = replace(machine, memory=chunks * BLOCK_BYTES)
    result = simulate_uvm(program.arrays, program.steps, room, evict=evict, prefetcher=prefetcher)
    assert not result.failed
    return result.ns


def table(program: ManagedProgram, machine: Platform) -> Iterator[str]:
    blocks = sum(-(-span.bytes // BLOCK_BYTES) for span in lay_out(program.arrays).values())
    free = ns(program, machine, blocks + 1)
    named = [f"{p} (oracle)" if foresees_ahead(p) else p for p in PREFETCHERS]
    yield "| evict | " + " | ".join(named) + " |\n| --- |" + " ---: |" * len(named)
    for evict in EVICT:
        times = [ns(program, machine, int(SHARE * blocks), evict, p) / free for p in PREFETCHERS]
        name = f"{evict} (oracle)" if foresees(evict) else evict
        yield f"| {name} | " + " | ".join(f"{t:.2f}" for t in times) + " |"


def main(names: list[str]) -> None:
    machine = load(MACHINE)
    for name in names or PROGRAMS:
        program = read(Path(__file__).parent.parent / "traces" / "programs" / f"{name}.yaml")
        print(f"\n`{name}`, {MACHINE}, 1.5 times its memory:\n")
        for line in table(program, machine):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
