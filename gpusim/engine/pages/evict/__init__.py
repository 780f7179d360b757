"""What is evicted when a GPU is full: the driver's order, and alternatives to compare it with under the same accesses.

A policy is a module of this package, named in `victims.POLICIES`.  What it may define, all of it compiled:

    victim(M, g)         the root chunk that leaves GPU g, NONE if none may; without it the driver's order
    touched(M, g, b, r)  a kernel has used block b, which lies in root chunk r
    leaving(M, g, b)     row HERE holds a big page of block b that leaves; pages that go with it join the row

and plainly: RANKED (a heap keeps the chunks by `ROOT.key`), PIECES (big pages leave, not chunks), RESERVE (chunks that are kept
free by evicting while the link is idle), DROPS_CLEAN (what was not written is not copied), FORESEES (it knows the future).
"""
