"""Successions learned: after a kernel which kernel, within it after a faulted block which block (DeepUM, ASPLOS 2023).

Jung, Kim and Lee's tables: what follows the last three kernels, and for each (kernel, block) the last four blocks that faulted
next, from a mark at the kernel's start.  A launch, or a fault that was not expected, begins a walk along what has followed most
recently, over as many as 32 kernels; blocks that it meets come while the link is idle, as far as they were on the GPU before,
and stay when room is made ahead of need (`early`).  Both tables are of fixed size; new entries displace old ones.

A kernel is known by its name and arguments.  Beside the faulted pages the driver's tree proposes as before.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.ahead import forget_all, want_back
from gpusim.engine.pages.driver_tables import NONE, SUCCESSORS, DriverState
from gpusim.engine.pages.prefetch import tree

LEARNS = True
LINKS, CONTEXTS = 1 << 16, 1 << 12  # rows of the tables
WAYS = 4
START = -2  # stands before the first block of a kernel
KERNELS = 32


@kernel
def mix(a: int, b: int) -> int:
    x = (a * 1000003 + b * 7919 + 12345) & 0x7FFFFFFF
    return x ^ (x >> 13)


@outlined
def link(M: DriverState, which: int, b: int, make: bool) -> int:
    """The row of block b in kernel `which`; NONE, or a new one, if there is none."""
    base = mix(which, b) % (len(M.links) // WAYS) * WAYS
    for i in range(base, base + WAYS):
        if M.links[i].kernel == which and M.links[i].block == b:
            return int(i)
    if not make:
        return NONE
    first = M.links[base]
    i = base + first.turn
    first.turn = (first.turn + 1) % WAYS
    M.links[i].kernel, M.links[i].block = which, b
    for j in range(SUCCESSORS):
        M.links[i].next[j] = NONE
    return int(i)


@outlined
def learn(M: DriverState, which: int, b: int, following: int) -> None:
    """The most recent successor stands first."""
    x = M.links[link(M, which, b, True)]
    j = 0
    while j < SUCCESSORS - 1 and x.next[j] != following:
        j += 1
    while j > 0:
        x.next[j] = x.next[j - 1]
        j -= 1
    x.next[0] = following


@kernel
def context(third: int, second: int, last: int) -> int:
    return int(mix(mix(third, second), last))


@outlined
def walk_from(M: DriverState, b: int) -> None:
    """What was expected is forgotten; the walk begins at block b of the running kernel."""
    s = M.state[0]
    forget_all(M)
    s.serial += 1
    s.expected = 0
    for k in range(3):
        s.ahead_kernels[k] = s.kernels[k]
    s.ahead_block, s.ahead_count = b, 0


@outlined
def launched(M: DriverState, g: int) -> None:
    s = M.state[0]
    key = context(s.kernels[0], s.kernels[1], s.kernels[2])
    x = M.contexts[key % len(M.contexts)]
    x.key, x.next = key, s.kernel
    s.kernels[0], s.kernels[1], s.kernels[2] = s.kernels[1], s.kernels[2], s.kernel
    s.last_faulted = START
    walk_from(M, START)


@outlined
def propose(M: DriverState, p: int, b: int, faulted: int) -> None:
    tree.propose(M, p, b, faulted)
    s = M.state[0]
    if b != s.last_faulted:
        learn(M, s.kernel, s.last_faulted, b)
        s.last_faulted = b
    if M.blocks[b].expected != s.serial:
        walk_from(M, b)
        M.blocks[b].expected = s.serial


@outlined
def extend(M: DriverState, g: int) -> bool:
    """One step of the walk, until half of the memory is spoken for."""
    s = M.state[0]
    if s.ahead_block == NONE or 2 * s.expected >= M.gpus[g].roots:
        return False
    i = link(M, s.ahead_kernels[2], s.ahead_block, False)
    on = NONE
    for j in range(SUCCESSORS):
        b = M.links[i].next[j] if i != NONE else NONE
        if b != NONE and M.blocks[b].expected != s.serial:
            M.blocks[b].expected = s.serial
            s.expected += 1
            want_back(M, g, b)
            if on == NONE:
                on = b
    if on == NONE:  # the kernel's last block
        key = context(s.ahead_kernels[0], s.ahead_kernels[1], s.ahead_kernels[2])
        x = M.contexts[key % len(M.contexts)]
        s.ahead_count += 1
        if x.key == key and s.ahead_count < KERNELS:
            s.ahead_kernels[0], s.ahead_kernels[1], s.ahead_kernels[2] = s.ahead_kernels[1], s.ahead_kernels[2], x.next
            on = START
    s.ahead_block = on
    return on != NONE or s.queue_length > 0
