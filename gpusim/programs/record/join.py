"""What a GPU did, put together: the allocator's history, the operators that were seen, and the profiler's kernel times.

The three are joined by counting and by address, not by clocks: an operator knows how many requests the allocator had served
when it returned, and which addresses it read and wrote; a kernel knows the call that launched it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpusim.programs.record.tape import Operator
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace

_LAUNCHES = ("cuda_runtime", "cuda_driver", "Runtime")
_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")


@dataclass(frozen=True, slots=True)
class Seen:
    """An operator, a phase or a tensor's category, as the program ran.

    served  requests (allocations and frees) that the allocator had served by then
    what    an Operator with addresses instead of ids, the name of a phase, or (address, category)
    """

    served: int
    what: Operator | str | tuple[int, str]


def join(memory: Trace, seen: Sequence[Seen], durations: Mapping[int, int] | None = None, issue_ns: float = 0.0) -> Trace:
    """The allocator's trace with the operators and phases among its events; durations in ns by position in `seen`.

    `memory` is an imported snapshot: what it holds before the first event was served before the first operator.  Its times are
    those of a host that is watched, which takes many times as long.  They are shortened to `issue_ns`, what the host takes for
    the same when nothing watches it; without that they are left out.
    """
    events: list[tuple[int, Any, int]] = []  # kind, what, position in memory's events or in seen
    category = dict.fromkeys(range(memory.tensors), "unknown")
    live: dict[int, int] = {}
    lost = 0
    before = memory.meta.get("start", {}).get("tensors", 0)
    served = -before
    waiting = iter(enumerate(seen))
    following = next(waiting, None)

    def catch_up(until: float) -> None:
        nonlocal following, lost
        while following is not None and following[1].served <= until:
            number, found = following
            following = next(waiting, None)
            if isinstance(found.what, str):
                events.append((PHASE, found.what, number))
            elif isinstance(found.what, tuple):
                address, name = found.what
                if address in live:
                    category[live[address]] = name
            else:
                reads, writes = ([live[a] for a in side if a in live] for side in (found.what.reads, found.what.writes))
                lost += len(found.what.reads) + len(found.what.writes) - len(reads) - len(writes)
                events.append((OP, replace(found.what, reads=reads, writes=writes), number))

    for at, (kind, tensor) in enumerate(zip(memory.kind.tolist(), memory.arg.tolist(), strict=True)):
        if kind in (ALLOC, FREE):
            if served >= 0:
                catch_up(served)
            served += 1
        if kind == ALLOC:
            live[int(memory.addr[at])] = tensor
        elif kind == FREE:
            live.pop(int(memory.addr[at]), None)
        events.append((kind, tensor, at))
    catch_up(float("inf"))
    return _build(memory, events, category, durations or {}, lost, _times(memory, issue_ns))


def _times(memory: Trace, issue_ns: float) -> list[int]:
    """Of the memory's events in ns, -1 where nothing is known."""
    timed = memory.time[memory.time >= 0]
    if not issue_ns or not len(timed) or timed[-1] <= timed[0]:
        return [-1] * len(memory.time)
    pace = issue_ns / float(timed[-1] - timed[0])
    return [round((t - int(timed[0])) * pace) if t >= 0 else -1 for t in memory.time.tolist()]


def _build(
    memory: Trace, events: Iterable[Any], category: Mapping[int, str], durations: Mapping[int, int], lost: int, times: list[int]
) -> Trace:
    build = TraceBuilder(memory.name)
    phase, ids = "fwd", dict[int, int]()
    for kind, what, at in events:
        if kind == OP:
            build.op(
                what.name, [ids[t] for t in what.reads], [ids[t] for t in what.writes], read_bytes=what.read_bytes,
                written_bytes=what.written_bytes, flops=what.flops, dtype=what.dtype, module=what.module,
                activity=what.activity, duration=durations.get(at, -1), shape=what.shape,
            )  # fmt: skip
        elif kind == PHASE:
            build.begin_phase(what)
            phase = what.rsplit(".", 1)[-1].rstrip("0123456789") or what
        else:
            common = {"stream": int(memory.stream[at]), "time": times[at], "addr": int(memory.addr[at])}
            if kind == ALLOC:
                named = category[what]
                ids[what] = build.alloc(int(memory.size[what]), phase if named == "unknown" else named, **common)
            elif kind == FREE:
                build.free(ids[what], **common)
            else:
                build.event(kind, what, nbytes=int(memory.bytes[at]), **common)
    lacks = [what for what, known in (("kernel times", durations), ("host times", max(times, default=-1) >= 0)) if not known]
    build.meta = {**memory.meta, "lacks": lacks, "accesses_of_unknown_memory": lost}
    return build.finish()


def kernel_ns(events: Iterable[Mapping[str, Any]], prefix: str) -> dict[str, int]:
    """Time that the kernels took which were launched inside each range whose name begins with `prefix`.

    `events` are the traceEvents of a Kineto trace: a range and the launches inside it are on one thread; a launch and its
    kernel share a correlation.  Ranges of one thread must not overlap.
    """
    ranges: dict[Any, list[tuple[float, float, str]]] = {}
    launches: list[tuple[Any, float, int]] = []
    took: dict[int, float] = {}
    for event in events:
        if event.get("ph") != "X":
            continue
        kind, details = event.get("cat"), event.get("args") or {}
        if kind in _DEVICE:
            number = details.get("correlation", -1)
            took[number] = took.get(number, 0.0) + event["dur"]
        elif kind in _LAUNCHES:
            launches.append((str(event["tid"]), event["ts"], details.get("correlation", -1)))
        elif str(event.get("name")).startswith(prefix):
            ranges.setdefault(str(event["tid"]), []).append((event["ts"], event["ts"] + event["dur"], event["name"]))
    found: dict[str, float] = {}
    for of_thread in ranges.values():
        of_thread.sort()
        found |= {name: 0.0 for _, _, name in of_thread}
    for thread, moment, number in launches:
        of_thread = ranges.get(thread, [])
        at = bisect_right(of_thread, moment, key=lambda r: r[0]) - 1
        if at >= 0 and moment <= of_thread[at][1]:
            found[of_thread[at][2]] += took.get(number, 0.0)
    return {name: round(us * 1000) for name, us in found.items()}
