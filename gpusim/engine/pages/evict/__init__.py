"""How the driver gives memory out when a GPU is full, and variants of it; who leaves first is a policy of `gpusim.policies`.

A variant is a module of this package, named in `victims.POLICIES`.  What it may define, compiled:

    leaving(M, g, b)     row HERE holds a big page of block b that leaves; pages that go with it join the row

and plainly: PIECES (big pages leave, not chunks), RESERVE (chunks that are kept free by evicting while the link is idle),
DROPS_CLEAN (what was not written is not copied).
"""
