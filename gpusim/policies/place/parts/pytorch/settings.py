"""The `command` verb: settings that change while it runs, private pools, held streams, statistics.  Codes: rules.py."""

from __future__ import annotations

from gpusim.base.compiled import outlined
from gpusim.policies.compiled import I64
from gpusim.policies.far import far
from gpusim.policies.place.parts.pytorch import counting, private, rules, streams
from gpusim.policies.place.parts.pytorch.layout import (
    DIVIDED,
    DIVISIONS,
    EXPANDABLE,
    LARGE_SEGMENT,
    LIMIT,
    MAX_ROUNDING,
    MAX_SPLIT,
    NEVER,
    NO_SPLIT,
    ON_OOM,
    PRIVATE_LARGE,
    PRIVATE_SMALL,
    RESERVE,
    SCALE,
    SPARES,
    THRESHOLD,
    THROW,
    TOTAL,
)

WHOLE_RANGE = 1 << 43  # no range is larger


@outlined
def pool(S: I64, code: int, id_: int, on: int) -> int:
    """What is done with the private pool of this number."""
    old = code == rules.POOL_END or code == rules.POOL_RELEASE or code == rules.POOL_EMPTY
    k = private.find(S, id_) if old else private.make(S, id_)
    if k < 0:
        return -1
    record = private.slot_record(k)
    if code == rules.POOL_NEW:
        return private.hold(S, k)
    if code == rules.POOL_BEGIN:
        return private.route(S, k) if private.hold(S, k) == 0 else -1
    if code == rules.POOL_END:
        return private.unroute(S, k)
    if code == rules.POOL_RELEASE:
        return private.let_go(S, k)
    if code == rules.POOL_EMPTY:
        private.empty(S, k)
    elif code == rules.POOL_NO_SPLIT:
        S[record + PRIVATE_SMALL + NO_SPLIT] = S[record + PRIVATE_LARGE + NO_SPLIT] = 1
    else:
        S[SPARES] = 1
        S[record + ON_OOM] = on
    return 0


def set_(S: I64, code: int, a: int, b: int) -> None:
    """A setting; plain Python, since `state` begins with some."""
    if code == rules.SET_DEFAULTS:
        S[MAX_SPLIT] = NEVER
        S[MAX_ROUNDING] = S[LARGE_SEGMENT]
        S[THRESHOLD] = 0
        S[DIVIDED] = 0
        for i in range(16):
            S[DIVISIONS + i] = 0
    elif code == rules.SET_DIVISIONS:
        S[DIVISIONS + a] = b
        S[DIVIDED] = 0
        for i in range(16):
            S[DIVIDED] |= S[DIVISIONS + i]
    elif code == rules.SET_FRACTION:
        S[LIMIT] = int(a / SCALE * S[TOTAL]) if a < SCALE else NEVER
    elif code == rules.SET_RESERVE:
        total = min(S[TOTAL], WHOLE_RANGE)
        S[RESERVE] = min(total + total // 8, a if b == 0 else int(b / SCALE * total))
    elif code == rules.SET_MAX_SPLIT:
        S[MAX_SPLIT] = a
    elif code == rules.SET_MAX_ROUNDING:
        S[MAX_ROUNDING] = a
    elif code == rules.SET_LARGE_SEGMENT:
        S[LARGE_SEGMENT] = a
    elif code == rules.SET_THRESHOLD:
        S[THRESHOLD] = a
    elif code == rules.SET_EXPANDABLE:
        S[EXPANDABLE] = a
    elif code == rules.SET_THROW:
        S[THROW] = a


_set = outlined(set_)


@far
def carry_out(S: I64, code: int, a: int, b: int) -> int:
    """A command; 0, or -1 where PyTorch raises an error."""
    if code == rules.HOLD or code == rules.UNHOLD:
        streams.hold(S, a, int(code == rules.HOLD))
    elif code <= rules.POOL_ON_OOM:
        return pool(S, code, a, b)
    elif code <= rules.SET_RESERVE:
        _set(S, code, a, b)
    elif code == rules.RESET_PEAKS:
        counting.reset_peaks(S)
    elif code == rules.RESET_ACCUMULATED:
        counting.reset_accumulated(S)
    else:
        return -1
    return 0
