"""Recomputation: a program under a memory budget whose evicted tensors are recomputed by running their operators again.

    from_log / from_trace ──▶ Program ──replay──▶ Outcome (costs, counts, and what was run and evicted, in order)
                                                     └─rewrite──▶ Trace, as the engine runs it

`replay` follows DTR's runtime as its published simulator models it (docs/recompute.md): the same victims in the same order.
Source: Kirisame et al., Dynamic tensor rematerialization, ICLR 2021, arXiv:2006.09616.
"""
