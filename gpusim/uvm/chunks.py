"""Physical memory of a GPU: root chunks of 2 MiB in four lists, and pieces of them for blocks that are no whole window.

A block of a whole window takes a root chunk with its first page.  Other blocks take the largest naturally aligned pieces, of
64 KiB or one page, that cover what is missing, from root chunks that they share.
"""

from __future__ import annotations

from gpusim.uvm.compiled import kernel, outlined
from gpusim.uvm.ranking import rank, strike
from gpusim.uvm.tables import FREE, NONE, SPLIT, USED, Memory


@outlined
def unlink(M: Memory, g: int, r: int) -> None:
    gpu, x = M.gpus[g], M.roots[r]
    if x.list == NONE:
        return
    if x.place != NONE:
        strike(M, g, r)
    if x.older != NONE:
        M.roots[x.older].newer = x.newer
    else:
        gpu.oldest[x.list] = x.newer
    if x.newer != NONE:
        M.roots[x.newer].older = x.older
    else:
        gpu.newest[x.list] = x.older
    gpu.length[x.list] -= 1
    x.list = NONE


@outlined
def append(M: Memory, g: int, r: int, which: int) -> None:
    """Root chunk r becomes the newest of a list, wherever it was."""
    unlink(M, g, r)
    gpu, x = M.gpus[g], M.roots[r]
    x.list, x.older, x.newer = which, gpu.newest[which], NONE
    if x.older != NONE:
        M.roots[x.older].newer = r
    else:
        gpu.oldest[which] = r
    gpu.newest[which] = r
    gpu.length[which] += 1
    if which == USED and M.state[0].ranked:
        rank(M, g, r)


@kernel
def take_free(M: Memory, g: int) -> int:
    """A free root chunk, out of all lists; NONE if there is none."""
    r = M.gpus[g].oldest[FREE]
    if r != NONE:
        unlink(M, g, r)
    return int(r)


@kernel
def oldest(M: Memory, g: int, which: int) -> int:
    r = M.gpus[g].oldest[which]
    while r != NONE and M.roots[r].locked:
        r = M.roots[r].newer
    return int(r)


@outlined
def frame_of(M: Memory, g: int, pages: int) -> int:
    """The first free, aligned run of `pages` frames in a shared root chunk; NONE if none has one.

    A frame is free if no page of a partial block lies there.
    """
    per_root = M.state[0].per_block
    gpu = M.gpus[g]
    for r in range(gpu.first_root, gpu.first_root + gpu.roots):
        if M.roots[r].owner == SPLIT:
            for f in range(r * per_root, (r + 1) * per_root, pages):
                if not held(M, f, pages):
                    return f
    return NONE


@outlined
def held(M: Memory, frame: int, pages: int) -> bool:
    for p in range(len(M.frames)):
        for i in range(M.state[0].per_block):
            if frame <= M.frames[p, i] < frame + pages:
                return True
    return False
