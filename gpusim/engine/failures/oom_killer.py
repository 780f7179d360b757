"""The host's own out-of-memory killer: which process Linux kills when memory is full, and when that is.

A process has as many points as it has pages in memory, in swap and of page tables; `oom_score_adj` adds thousandths of all
memory, and -1000 exempts.  The most points lose, of equals the last in the list.  A full cgroup chooses among its own processes
by its own limit, and kills all of them where `memory.oom.group` is set.  Memory that CUDA has pinned counts as shared memory of
its process (RssShmem), and SIGKILL frees it.

Source: Linux, mm/oom_kill.c, oom_badness and oom_evaluate_task as of 5.9 and later; pinned memory: 4 GiB of it added 4 GiB to
RssShmem (driver 570, github.com/MakazhanAlpamys/Soup issue 655).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

PAGE = 4096
ENTRY = 8
"""Bytes of page table for each page."""
EXEMPT = -1000


@dataclass(frozen=True)
class HostProcess:
    """A process of a host; bytes.

    memory  in RAM or in swap, with what it has pinned; grows: bytes/ns that it leaks
    adj     oom_score_adj, -1000 to 1000
    job     it belongs to the job's cgroup
    """

    name: str
    memory: float
    grows: float = 0.0
    adj: int = 0
    job: bool = True

    @property
    def pages(self) -> int:
        """Of its memory and of the page tables that map it."""
        return math.ceil(self.memory / PAGE) + math.ceil(self.memory / PAGE * ENTRY / PAGE)


@dataclass(frozen=True)
class HostMemory:
    """Bytes of RAM and swap; of the job's cgroup, math.inf: no limit; `group`: a full cgroup is killed as a whole."""

    ram: float
    swap: float = 0.0
    limit: float = math.inf
    group: bool = False


@dataclass(frozen=True)
class OomKill:
    """When, ns; the process with its score in thousandths; `cgroup`: because the job's was full; `whole`: with all of it."""

    at: float
    process: HostProcess
    score: float
    cgroup: bool
    whole: bool = False


def points(process: HostProcess, total: int) -> int | None:
    """Of a process where there are so many pages; None: it is exempt."""
    return None if process.adj == EXEMPT else process.pages + process.adj * (total // 1000)


def victim(processes: Sequence[HostProcess], total: int) -> int | None:
    """The place of the process that is killed where there are so many pages; None where all are exempt."""
    best, most = None, 0
    for i, process in enumerate(processes):
        own = points(process, total)
        if own is not None and (best is None or own >= most):
            best, most = i, own
    return best


def kills(host: HostMemory, processes: Sequence[HostProcess]) -> list[OomKill]:
    """All kills up to the first of a process of the job; empty: memory never runs out, or nothing can be killed."""
    alive, now, found = list(processes), 0.0, list[OomKill]()
    while True:
        inside = [process for process in alive if process.job]
        at, cgroup = min((_full_at(host.ram + host.swap, alive), False), (_full_at(host.limit, inside), True))
        if at == math.inf:
            return found
        now += at
        alive = [replace(process, memory=process.memory + at * process.grows) for process in alive]
        among = [process for process in alive if process.job or not cgroup]
        total = int((host.limit if cgroup else host.ram + host.swap) // PAGE)
        chosen = victim(among, total)
        if chosen is None:
            return found
        killed = among[chosen]
        own = points(killed, total)
        found.append(OomKill(now, killed, 1000.0 * (own or 0) / total, cgroup, cgroup and host.group))
        if killed.job:
            return found
        alive.remove(killed)


def _full_at(size: float, processes: Sequence[HostProcess]) -> float:
    """ns until these processes fill so many bytes; math.inf: never."""
    left = size - sum(process.pages * PAGE for process in processes)
    grows = sum(process.grows for process in processes) * (1 + ENTRY / PAGE)
    return 0.0 if left < 0 else left / grows if grows > 0 else math.inf
