"""The host's timeline, recomputed: when each of its records is made, and what each activity has to wait for.

The host carries out the trace's events one after another; each of its calls takes the time that the profile gives.  It waits

    for the device      at a sync, before it pays for memory given back, and before blocks are moved
    for a queue         that holds as many activities as it may
    for copies          to or from memory that is not pinned
    for a recorded time of the trace

and for nothing else: a record at any other time than these make it is a wait without a cause.  Where the log leaves open
whether a record belongs to one step or to the next (an evicted block may make room for a prefetch or for the next operator),
both are tried, in the order in which the host takes them.

What an activity waits for is in time what `memory.walk` checks as order: former users of the block at its addresses, the last
copy or write of its data, for a write and a copy out also the last uses.  Copies of an engine count as done in order, and the
users of blocks that were given back more than RECENT blocks ago count for all addresses.
"""
