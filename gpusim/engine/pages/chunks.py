"""Physical memory of a GPU: root chunks of 2 MiB in four lists, and pieces of them for blocks that are no whole window.

A block of a whole window takes a root chunk with its first page.  Other blocks take the largest naturally aligned pieces, of
64 KiB or one page, that cover what is missing, from root chunks that they share.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.chunk_policy import join, quit_, served
from gpusim.engine.pages.driver_tables import FREE, NONE, SPLIT, USED, DriverState


@outlined
def unlink(M: DriverState, g: int, r: int) -> None:
    """A root chunk is in no list."""
    if M.roots[r].unit != NONE:
        quit_(M, g, r)
    cut(M, g, r)


@outlined
def cut(M: DriverState, g: int, r: int) -> None:
    gpu, x = M.gpus[g], M.roots[r]
    if x.list == NONE:
        return
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
def append(M: DriverState, g: int, r: int, which: int) -> None:
    """Root chunk r becomes the newest of a list, wherever it was."""
    gpu, x = M.gpus[g], M.roots[r]
    before = x.list
    if x.unit != NONE and which != USED:
        quit_(M, g, r)
    cut(M, g, r)
    x.list, x.older, x.newer = which, gpu.newest[which], NONE
    if x.older != NONE:
        M.roots[x.older].newer = r
    else:
        gpu.oldest[which] = r
    gpu.newest[which] = r
    gpu.length[which] += 1
    if which == USED and before == USED:
        served(M, g, r)
    elif which == USED:
        join(M, g, r)


@kernel
def take_free(M: DriverState, g: int) -> int:
    """A free root chunk, out of all lists; NONE if there is none."""
    r = M.gpus[g].oldest[FREE]
    if r != NONE:
        unlink(M, g, r)
    return int(r)


@kernel
def oldest(M: DriverState, g: int, which: int) -> int:
    r = M.gpus[g].oldest[which]
    while r != NONE and M.roots[r].locked:
        r = M.roots[r].newer
    return int(r)


@outlined
def frame_of(M: DriverState, g: int, pages: int) -> int:
    """The first free, aligned run of `pages` frames in a shared root chunk; NONE if none has one."""
    per_root, gpu, which = M.state[0].per_block, M.gpus[g], int(pages > 1)
    for r in range(gpu.room[which], gpu.first_root + gpu.roots):
        if M.roots[r].owner == SPLIT and M.roots[r].held + pages <= per_root:
            for f in range(r * per_root, (r + 1) * per_root, pages):
                free = True
                for k in range(f, f + pages):
                    free = free and M.holder[k] == 0
                if free:
                    gpu.room[which] = r
                    return f
    gpu.room[which] = gpu.first_root + gpu.roots
    return NONE


@kernel
def has_room(M: DriverState, g: int, r: int) -> None:
    """Root chunk r is shared, and some of its frames are free."""
    for which in range(2):
        M.gpus[g].room[which] = min(M.gpus[g].room[which], r)


@kernel
def hold(M: DriverState, g: int, b: int, page: int, frame: int) -> None:
    """A page of a block has a frame."""
    M.frames[g - 1, M.blocks[b].partial, page] = frame
    M.holder[frame] = b + 1
    M.roots[frame // M.state[0].per_block].held += 1


@outlined
def let_go(M: DriverState, g: int, b: int, page: int) -> int:
    """A page of a block has no frame any more; the root chunk where it had one, NONE."""
    frame = M.frames[g - 1, M.blocks[b].partial, page]
    if frame == NONE:
        return NONE
    r = frame // M.state[0].per_block
    M.frames[g - 1, M.blocks[b].partial, page] = NONE
    M.holder[frame] = 0
    M.roots[r].held -= 1
    return int(r)


@outlined
def free_frame(M: DriverState, g: int, b: int, page: int) -> None:
    """The same, and a root chunk with no part in use is free."""
    r = let_go(M, g, b, page)
    if r == NONE:
        return
    if M.roots[r].held == 0:
        M.roots[r].owner = NONE
        append(M, g, r, FREE)
    else:
        has_room(M, g, r)
