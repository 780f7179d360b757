"""What waits for what when nothing more can happen, in words."""

from __future__ import annotations

from typing import Any

from gpusim.engine import state
from gpusim.engine.state import Island
from gpusim.trace.trace import ACTIVITIES, Trace

_HOSTS = {
    state.DRAIN: "until the device is idle", state.SPACE: "for room in a queue", state.STAGING: "for its copies",
}  # fmt: skip


def why(island: Island, trace: Trace) -> str:
    """Hosts that wait, and of each queue its first activity with what it waits for; "nothing waits" where that is nothing."""
    hosts = [f"the host waits {_HOSTS[int(h['state'])]}" for h in island.hosts if int(h["state"]) in _HOSTS]
    queues = [_first(island, trace, q) for q in range(int(island.clock[0]["queues"])) if _waits(island, q)]
    return "; ".join([*hosts, *queues]) or "nothing waits"


def _waits(island: Island, q: int) -> bool:
    """Something of the queue has not ended."""
    return int(island.queues[q]["done"]) < int(island.queues[q]["submitted"])


def _name(island: Island, q: int) -> str:
    """The queue, for people."""
    streams = int(island.clock[0]["streams"])
    if q < streams:
        return f"stream {q}"
    return f"the queue of copies {'to' if int(island.queues[q]['role']) == state.TO_DEVICE else 'from'} the device"


def _activity(island: Island, trace: Trace, q: int, count: int) -> str:
    """The activity after so many of the queue."""
    a = _row(island, q, count)
    kind, of = int(a["kind"]), int(a["arg"])
    if kind == state.SWAP:
        return f"the swap of tensor {of}"
    return f"{ACTIVITIES[kind]} {of} ({trace.op_names[int(trace.op[of])]})"


def _row(island: Island, q: int, count: int) -> Any:
    queue = island.queues[q]
    return island.activities[int(queue["base"]) + (count & int(queue["mask"]))]


def _first(island: Island, trace: Trace, q: int) -> str:
    queue = island.queues[q]
    started, done = int(queue["started"]), int(queue["done"])
    if done < started:
        return f"in {_name(island, q)} {_activity(island, trace, q, done)} has started and does not end"
    row = int(queue["base"]) + (started & int(queue["mask"]))
    said = f"in {_name(island, q)} {_activity(island, trace, q, started)} waits for"
    for other in range(int(island.clock[0]["queues"])):
        need = int(island.need[row, other])
        if need > int(island.queues[other]["done"]):
            known = need <= int(island.queues[other]["submitted"])
            what = _activity(island, trace, other, need - 1) if known else "something that was never submitted"
            return f"{said} {what} in {_name(island, other)}"
    return f"{said} its turn"
