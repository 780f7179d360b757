"""What moves beside the faulted pages of a block: the driver's tree, and alternatives to compare it with.

A policy is a module of this package, named in `prefetchers.POLICIES`.  What it may define, all of it compiled:

    propose(M, p, b, faulted)  pages of block b that come to processor p with those of row `faulted` join row GUESS, which is
                               empty before; what else shall come goes to `ahead`, and comes while the link is idle
    launched(M, g)             a kernel begins on GPU g; STATE.kernel says which
    extend(M, g)               the queue of `ahead` is empty: put more in, False if there is nothing

and plainly: LEARNS (from a GPU's faults: those of the CPU are left to the tree), FORESEES (it knows the future).
"""
