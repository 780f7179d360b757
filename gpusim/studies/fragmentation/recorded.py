"""What the recording itself says: the addresses and segments that the program was really given."""

from __future__ import annotations

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.base.tables import table
from gpusim.policies.trials import requests as core
from gpusim.policies.trials.allocator_replay import ENDLESS, AllocatorReplay, bucket
from gpusim.policies.trials.allocator_requests import AllocatorRequests
from gpusim.policies.trials.requests import R_ALLOC, R_FREE
from gpusim.results import log as logs
from gpusim.results.log import LOG
from gpusim.trace.trace import ALLOC, I64, OOM, SEGMENT_ALLOC, SEGMENT_FREE, Trace

NAME = "as recorded"
INCOMPLETE = "record again with a larger max_entries, from before the first allocation to the snapshot"
ROUND = 512  # bytes: recordings tell what was requested, not what the block was

def recorded(trace: Trace, program: AllocatorRequests) -> AllocatorReplay | None:
    """The recording as if it were a replay, or None when it has no addresses or no segments.

    Raises TraceError for a snapshot that contradicts itself: what was held cannot be told from it.

    Blocks are the requests rounded to 512 bytes: a block that was larger counts as one with a hole behind it.
    """
    if trace.meta.get("incomplete"):
        raise TraceError(f"the snapshot does not tell all: {trace.meta['incomplete']}", trace.name, INCOMPLETE)
    events = np.flatnonzero((trace.kind == SEGMENT_ALLOC) | (trace.kind == SEGMENT_FREE))
    rows = program.rows()
    placed = trace.addr[program.event]
    if not len(events) or np.any((placed < 0) & (rows["size"] > 0) & (trace.kind[program.event] == ALLOC)):
        return None
    # A segment's event belongs to the request that follows it; a free has no address of its own in some formats.
    number = np.minimum(np.searchsorted(program.event, events), program.total - 1)
    reserve = _records(number, np.where(trace.kind[events] == SEGMENT_ALLOC, logs.RESERVE, logs.RELEASE))
    reserve["addr"], reserve["bytes"] = trace.addr[events], trace.bytes[events]
    served = np.flatnonzero(trace.kind[program.event] != OOM)
    made = rows["kind"][served] == R_ALLOC
    blocks = _records(served, np.where(made, logs.PLACE, logs.UNPLACE))
    address = np.full(program.units, -1, np.int64)
    address[rows["unit"][served[made]]] = placed[served[made]]
    blocks["a"], blocks["addr"] = rows["unit"][served], address[rows["unit"][served]]
    blocks["bytes"] = -(-rows["size"][served] // ROUND) * ROUND
    log = np.concatenate([reserve, blocks])
    log = log[np.argsort(log["t"], kind="stable")]
    return AllocatorReplay(NAME, program, capacity_of(trace), *_sums(program, log, rows, trace), log)

def _records(number: I64, kind: I64) -> np.ndarray:
    made = np.zeros(len(number), LOG)
    made["t"], made["kind"] = number, kind
    return made

def capacity_of(trace: Trace) -> int:
    """What the device could give, where a request failed: what it gave, and what was left then if the recording tells."""
    failed = np.flatnonzero(trace.kind == OOM)
    if not len(failed):
        return ENDLESS
    now = held(trace)
    return int(max(now.max(), (now[failed] + np.maximum(trace.addr[failed], 0)).max()))


def held(trace: Trace) -> I64:
    """Bytes of segments held after each event."""
    taken, given = trace.kind == SEGMENT_ALLOC, trace.kind == SEGMENT_FREE
    return np.cumsum(np.where(taken, trace.bytes, 0) - np.where(given, trace.bytes, 0))

def _sums(program: AllocatorRequests, log: np.ndarray, rows: np.ndarray, trace: Trace) -> tuple[dict[str, int], np.ndarray]:
    """(counts, samples) as a replay has them."""
    total, size = program.total, bucket(program.total)
    per = {}
    signs = {"held": (logs.RESERVE, logs.RELEASE), "rounded": (logs.PLACE, logs.UNPLACE)}
    for name, (plus, minus) in signs.items():
        change = np.where(log["kind"] == plus, log["bytes"], np.where(log["kind"] == minus, -log["bytes"], 0))
        per[name] = np.cumsum(np.bincount(log["t"], change, total)).astype(np.int64)
    served = trace.kind[program.event] != OOM
    sign = np.where(rows["kind"] == R_ALLOC, 1, -1) * served
    per["requested"] = np.cumsum(sign * rows["size"])
    samples = table(-(-total // size), core.SAMPLE)
    starts = np.arange(0, total, size)
    for name, values in per.items():
        samples[name] = np.maximum.reduceat(values, starts) if total else 0
    ends = np.minimum(starts + size, total) - 1
    samples["free"] = per["held"][ends] - per["rounded"][ends]
    failed = np.flatnonzero(~served & (rows["kind"] == R_ALLOC))
    counts = dict.fromkeys(core.COUNTS.names or (), 0)
    counts |= {f"{name}_peak": int(values.max(initial=0)) for name, values in per.items()}
    counts |= {
        "requests": total, "bucket": size, "refused": len(failed), "refused_at": int(failed[0]) if len(failed) else -1,
        "refused_bytes": int(rows["size"][failed[0]]) if len(failed) else 0,
        "held_peak_at": int(per["held"].argmax()) if total else 0,
        "live_peak": int(np.cumsum(sign).max(initial=0)),
        "allocs": int((rows["kind"] == R_ALLOC).sum()), "frees": int(((rows["kind"] == R_FREE) & served).sum()),
        "device_allocs": int((log["kind"] == logs.RESERVE).sum()), "device_frees": int((log["kind"] == logs.RELEASE).sum()),
    }  # fmt: skip
    return counts, samples
