"""What an oracle knows: in which order a program uses its blocks, from a first run with memory for everything.

A *run* is uses of one block in one launch that follow closely.  How many uses of a block come before does not depend on the
order in which warps get on, so that the n-th use of a block is the n-th of the first run, whatever else happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import kernel, outlined
from gpusim.base.tables import table
from gpusim.engine.pages.bits import WORDS, bit
from gpusim.engine.pages.driver_tables import NONE, RUN, DriverState

NEVER = 1 << 62
ROOM = 1 << 18  # runs that a launch may have before those that follow closely become one


@outlined
def observe(M: DriverState, b: int, page: int) -> None:
    """The first time: page of block b is used."""
    s, x = M.state[0], M.blocks[b]
    s.position += 1
    x.uses += 1
    if s.runs == len(M.future) and not follows(M, x.run, s.position):
        widen(M)
    if not follows(M, x.run, s.position):
        x.run = s.runs
        s.runs += 1
        y = M.future[x.run]
        y.block, y.launch, y.first = b, s.launch, s.position
        for w in range(WORDS):
            y.pages[w] = np.uint64(0)
    y = M.future[x.run]
    y.last, y.until = s.position, x.uses
    y.pages[page >> 6] |= bit(page)


@kernel
def follows(M: DriverState, run: int, position: int) -> bool:
    s = M.state[0]
    return bool(run != NONE and M.future[run].launch == s.launch and position - M.future[run].last <= s.window)


@outlined
def widen(M: DriverState) -> None:
    """Runs of a block that are near to each other become one, until a quarter of the table is empty."""
    s = M.state[0]
    while 4 * s.runs > 3 * len(M.future):
        s.window *= 2
        for i in range(s.runs):
            M.blocks[M.future[i].block].run = NONE
        kept = 0
        for i in range(s.runs):
            x, block = M.future[i], M.blocks[M.future[i].block]
            y = M.future[max(block.run, 0)]
            if block.run != NONE and y.launch == x.launch and x.first - y.last <= s.window:
                for w in range(WORDS):
                    y.pages[w] |= x.pages[w]
            else:
                block.run = kept
                y = M.future[kept]
                y.block, y.launch, y.first = x.block, x.launch, x.first
                for w in range(WORDS):
                    y.pages[w] = x.pages[w]
                kept += 1
            y.last, y.until = x.last, x.until
        s.runs = kept


@kernel
def next_use(M: DriverState, b: int) -> int:
    """When the next use of a block comes, or has come if it is due; NEVER."""
    run = M.blocks[b].run
    return int(M.future[run].first if run != NONE else NEVER)


@kernel
def advance(M: DriverState, b: int) -> None:
    """The second time: block b is used."""
    x = M.blocks[b]
    x.uses += 1
    if x.run != NONE and x.uses >= M.future[x.run].until:
        x.run += 1
        if x.run == len(M.future) or M.future[x.run].block != b:
            x.run = NONE


def make_room(M: DriverState) -> DriverState:
    """Before a launch of the first run: as many runs as it can need, once those of each block have become one, and more."""
    noted = int(M.state["runs"][0])
    room = noted + max(ROOM, 4 * len(M.blocks) + noted)  # a quarter stays empty when each block adds one
    if room <= len(M.future):
        return M
    future = table(2 * room, RUN)
    future[:noted] = M.future[:noted]
    return M._replace(future=future)


def sorted_runs(M: DriverState) -> Any:
    """The table of the second run: the runs of each block after one another."""
    runs = M.future[: int(M.state["runs"][0])]
    return runs[np.argsort(runs["block"], kind="stable")]


def foresee(M: DriverState, runs: Any) -> DriverState:
    """The tables of a run that knows the runs of the first."""
    M.state["foresees"] = M.state["watches"] = 1
    blocks, firsts = np.unique(runs["block"], return_index=True)
    M.blocks["run"][blocks] = firsts
    future = table(len(runs), RUN)
    future[:] = runs
    return M._replace(future=future)
