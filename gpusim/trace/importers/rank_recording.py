"""One rank's recording: its trace, and what its operators exchange with other ranks, before those are known."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import index
from typing import Any, NamedTuple

from gpusim.base.errors import TraceError
from gpusim.trace.importers.collective_calls import CollectiveCall
from gpusim.trace.importers.kineto_events import DeviceEvents, HostOperator
from gpusim.trace.importers.nesting import Nesting
from gpusim.trace.trace import Trace

MOST_RANKS = 4096
_OF_CALLS = ("nccl:", "record_param_comms", "c10d::")


class RecordedSpan(NamedTuple):
    """When a collective ran on a rank's device, ns on the clock of the rank's host."""

    begin: int
    end: int


@dataclass(frozen=True)
class RankRecording:
    """The recording of one rank.

    path    of the file
    rank    -1 where the recording does not say it
    world   how many ranks there are, 0 where it does not
    groups  ranks of communicators by name, where it lists them
    calls   operator of the trace -> what it exchanges
    spans   operator -> when it did, where times were recorded
    unread  kernels of NCCL of which the recording does not say what they exchange; they stay kernels
    start   time 0 of the trace on the clock of the rank's host, ns; -1 without times
    """

    path: str
    trace: Trace
    rank: int = -1
    world: int = 0
    groups: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    calls: Mapping[int, CollectiveCall] = field(default_factory=dict)
    spans: Mapping[int, RecordedSpan] = field(default_factory=dict)
    unread: int = 0
    start: int = -1


def said_of_ranks(header: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Rank, world and groups as `RankRecording` has them, of a Kineto trace's "distributedInfo".  Raises TraceError."""
    info = header.get("distributedInfo")
    if not isinstance(info, dict):
        return {}
    groups = {}
    try:
        for each in info.get("pg_config") or ():
            if each.get("ranks"):
                groups[str(each.get("pg_name", ""))] = tuple(index(rank) for rank in each["ranks"])
        rank, world = index(info.get("rank", -1)), index(info.get("world_size", 0))
        if not (-1 <= rank < MOST_RANKS and 0 <= world <= MOST_RANKS):
            raise ValueError
    except (AttributeError, TypeError, ValueError):
        raise TraceError("its 'distributedInfo' is not one that PyTorch writes", path) from None
    return {"rank": rank, "world": world, "groups": groups}


def base_time(header: Mapping[str, Any]) -> int:
    """What is added to the times of a Kineto trace, ns."""
    said = header.get("baseTimeNanoseconds", 0)
    return said if isinstance(said, int) else 0


def call_of(operators: Sequence[HostOperator], nesting: Nesting, operator: int) -> CollectiveCall | None:
    """What the kernels of a host's operator exchange: it says so, or one around it; the outer one knows the group."""
    found = None
    while operator >= 0:
        found = operators[operator].call or found
        operator = nesting.parent[operator]
    return found


class StreamOrder:
    """Which kernels wait for which of other streams, as PyTorch's processes order collectives.

    A collective waits for what its thread has launched before on the stream of its kernels.  After the host has called
    cudaStreamWaitEvent outside of a collective, the thread's next kernel waits for those collectives, launched before, that had
    ended when it began.  Source: pytorch/pytorch, ProcessGroupNCCL.cpp, syncStream and WorkNCCL::synchronize.
    """

    def __init__(self, events: DeviceEvents, nesting: Nesting, launchers: Sequence[int]) -> None:
        self._kernels = events.kernels
        self._after: dict[int, list[int]] = {}  # kernel -> kernels that it waits for
        waits = self._of_programs(events, nesting, launchers)
        last: dict[Any, int] = {}  # thread -> its last kernel that is none of NCCL
        waited: Counter[Any] = Counter()  # thread -> its waits before that
        running: list[int] = []  # collectives that no kernel has waited for yet
        for i, kernel in enumerate(self._kernels):
            if kernel.nccl:
                before = last.get(kernel.thread, -1)
                if before >= 0 and self._kernels[before].stream != kernel.stream:
                    self._after[i] = [before]
                running.append(i)
                continue
            last[kernel.thread] = i
            count = bisect_right(waits.get(kernel.thread, []), kernel.launched)
            if count > waited[kernel.thread]:
                running = self._wait(i, running)
            waited[kernel.thread] = count
        self._events = {before: n for n, before in enumerate(sorted({b for each in self._after.values() for b in each}))}

    @staticmethod
    def _of_programs(events: DeviceEvents, nesting: Nesting, launchers: Sequence[int]) -> dict[Any, list[int]]:
        """Times of stream waits by thread, without those that NCCL's processes make before a collective."""
        around = nesting.innermost(events.stream_waits)
        own = {nesting.outermost(launchers[i]) for i, kernel in enumerate(events.kernels) if kernel.nccl}
        waits: dict[Any, list[int]] = {}
        for (time, thread), operator in zip(events.stream_waits, around, strict=True):
            if operator < 0 or not _calls(events.operators, nesting, operator) or nesting.outermost(operator) not in own:
                waits.setdefault(thread, []).append(time)
        return waits

    def _wait(self, i: int, running: list[int]) -> list[int]:
        """Collectives that are still not waited for."""
        kernels = self._kernels
        done = [c for c in running if kernels[c].began + kernels[c].duration <= kernels[i].began]
        latest = {kernels[c].stream: c for c in done if kernels[c].stream != kernels[i].stream}
        if latest:
            self._after[i] = list(latest.values())
        return [c for c in running if c not in done]

    def before(self, kernel: int) -> list[int]:
        """The events for which its stream waits before this kernel."""
        return [self._events[each] for each in self._after.get(kernel, ())]

    def behind(self, kernel: int) -> int:
        """The event that its stream records after this kernel, -1 for none."""
        return self._events.get(kernel, -1)


def _calls(operators: Sequence[HostOperator], nesting: Nesting, operator: int) -> bool:
    """Whether this operator is a call of a collective, or inside of one."""
    while operator >= 0:
        if operators[operator].name.startswith(_OF_CALLS):
            return True
        operator = nesting.parent[operator]
    return False
