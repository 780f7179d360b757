"""A program without what other ranks do and hold."""

from __future__ import annotations

import numpy as np

from gpusim.programs.transforms.tensor_parallel import PART, follow, touched
from gpusim.trace.edit import Edit, Mask
from gpusim.trace.roles import BACKWARD, FORWARD, GRADIENT, PARAMETER, STEP, lives, phase_kinds, roles
from gpusim.trace.trace import I64, Trace
from gpusim.trace.training import masters


def drop_part(edit: Edit, kinds: I64, elsewhere: Mask) -> Mask:
    """Drop operators of forward and backward that other ranks do, and what only they touch; returns these tensors.

    kinds   (O,) kind of each operator's phase

    Optimizer steps keep their operators, with the bytes and arithmetic of what is left.
    """
    trace = edit.trace
    passing = (kinds == FORWARD) | (kinds == BACKWARD)
    edit.drop_operators(passing & elsewhere)
    by_own, by_others = (touched_by(trace, passing & operators) for operators in (~elsewhere, elsewhere))
    role = roles(trace)
    made = phase_kinds(trace)[lives(trace)[0]]
    gone = ~by_own & (by_others | (made == FORWARD) | (made == BACKWARD))
    flag = np.where(gone, PART, 0).astype(np.uint8)
    known = (role == PARAMETER) | (made == FORWARD) | (made == BACKWARD) | by_own | by_others
    none = np.zeros(trace.ops, bool)
    follow(
        none, none.astype(np.int8), kinds == STEP, trace.read_start, trace.read_id, trace.write_start, trace.write_id,
        role == GRADIENT, known, flag, masters(trace),
    )  # fmt: skip
    edit.drop_tensors(flag > 0)
    left = np.where(flag > 0, 0, trace.size)
    step = kinds == STEP
    for column, side in (("read_bytes", "read"), ("written_bytes", "write"), ("flops", "write")):
        whole = touched(trace, side, trace.size)
        share = np.divide(touched(trace, side, left), whole, out=np.ones(trace.ops), where=whole > 0)
        edit[column][step] = (getattr(trace, column) * share)[step]
    return np.asarray(flag > 0)


def touched_by(trace: Trace, operators: Mask) -> Mask:
    """(T,) tensors that these operators access."""
    found = np.zeros(trace.tensors, bool)
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        found[ids[np.repeat(operators, np.diff(start))]] = True
    return found
