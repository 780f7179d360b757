"""The shortest allocator that a user could write."""

# Blocks one behind the other, never used again; the third lies `third` bytes from its place and has `less` bytes too few.
BUMP = """
import numpy as np
from gpusim import policy
from gpusim.policies.contract import BLOCK, CAPACITY, HEADER, HELD, ROUNDED

@policy.place
class bump:
    PARAMS = {"third": 0, "less": 0}

    def state(capacity, n_units, most_live, params):
        S = np.zeros(HEADER + 4, np.int64)
        S[CAPACITY] = S[HELD] = capacity
        S[HEADER : HEADER + 2] = params
        return S

    def alloc(S, unit, size, stream):
        top, count = S[HEADER + 2], S[len(S) - 1] + 1  # the guard's words are not this policy's
        S[HEADER + 3] = count
        addr = top + (S[HEADER] if count == 3 else 0)
        S[HEADER + 2] = top + size
        S[BLOCK] = size - (S[HEADER + 1] if count == 3 else 0)
        S[ROUNDED] += S[BLOCK]
        return addr

    def free(S, unit, stream):
        return 0

    def release(S, bytes):
        return 0

    def largest(S):
        return S[CAPACITY] - S[HEADER + 2]
"""
