"""RMM's memory resources (RAPIDS Memory Manager), address by address: what the policies rmm_* are made of.

    place/rmm_*   the policies: parameters and verbs
    pool          best fit over coalesced blocks, growing by doubling or half-way to a maximum
    fixed         blocks of one size, first in, first out
    arena         first fit in superblocks: one global set, and one of every stream
    superblocks   the parts of an arena's range, and the blocks in them
    streams       the stream-ordered layer of pool and fixed: a free list of every stream, stealing, merging
    device        the memory below: which addresses the upstream resource gives
    table         the words that all of them share
"""
