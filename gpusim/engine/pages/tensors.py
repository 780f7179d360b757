"""A recorded tensor trace as a managed program: its allocator takes managed memory, its kernels touch their tensors' pages.

    requests ─allocator alone─▶ segments, where each tensor lies ─▶ allocations, a kernel for each operator

Operators of all streams run one after another in the order of their issue.  A kernel lasts as long as its operator, or as its
launch takes where that is longer, and touches each page of 4 KiB of a tensor once for each access, a thread block a page,
reads before writes.  Copies of the program do the same at the speed of their link: copy engines fault as well.  Tensors that
held data before the recording are on the GPU when it starts, as far as they fit.  What the allocator frees stays in its
segments; a segment that it gives back is freed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.machine.constants import host_time
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError
from gpusim.machine.profile import Profile
from gpusim.policies import registry
from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.programs.managed.steps import Access, Array, Discard, Free, Kernel, ManagedProgram, Prefetch, Start, Step
from gpusim.results.log import PLACE, RELEASE, RESERVE
from gpusim.trace.roles import ROLES, lives, roles
from gpusim.trace.trace import ALLOC, COPY_IN, COPY_OUT, FREE, HOST_WORK, KERNEL, MOVES, OP
from gpusim.trace.workload import F64, I64, Workload

TOUCH = 4096  # bytes that one thread touches
FEW = 16      # tensors that one kernel uses together; with more it goes through lists
Piece = tuple[str, int, int]  # allocation, offset, bytes
Part = tuple[int, int, int]   # the same, with the number of a segment


def managed(work: Workload, profile: Profile, place: Any, *, discards: bool = False) -> ManagedProgram:
    """The program that the trace becomes.  discards: tensors that are freed are discarded (cuMemDiscard...)."""
    trace = work.trace
    if not trace.ops:
        raise UvmError(f"'{trace.name}' has no kernels, so nothing touches its pages")
    heap = AllocatorPass(work, place)
    kernels = iter(_kernels(work, profile, heap.pieces))
    steps: list[Step] = []
    started = False
    given_back = iter([*heap.given_back, (trace.events, "")])
    when, segment = next(given_back)
    for event in range(trace.events):
        if trace.kind[event] == OP:
            if not started:
                steps += [*_resident(work, event, heap.pieces), Start()]
                started = True
            steps += next(kernels)
        elif discards and started and trace.kind[event] == FREE:
            steps += [Discard(*piece) for piece in heap.pieces[trace.arg[event]]]
        while when == event:
            steps.append(Free(segment))
            when, segment = next(given_back)
    return ManagedProgram(trace.name, heap.arrays, steps)


class AllocatorPass:
    """What the allocator alone makes of the program's requests.

    arrays      its segments, as far as tensors ever lay in them; by what they mostly hold: "parameter_0", "gradient_3", ...
    pieces      of each tensor, where it lies: in one segment, or in several that adjoin
    given_back  segments that it returned: (event of the trace, name), in order
    """

    def __init__(self, work: Workload, place: Any) -> None:
        requests = of_trace(work.trace)
        log = replay(requests, registry.get("place", place), log=True).log
        pieces: list[list[Part]] = [[] for _ in range(max(requests.units, work.trace.tensors))]
        given_back: list[tuple[int, int]] = []
        used: list[int] = []   # bytes of each segment, up to the end of the last tensor
        starts: list[int] = []  # of the live segments, rising
        live: list[tuple[int, int]] = []  # (number, bytes), in the same order
        for record in log[np.isin(log["kind"], (PLACE, RESERVE, RELEASE))].tolist():
            when, kind, unit, _, addr, size = record
            at = bisect_right(starts, addr)
            if kind == RESERVE:
                starts.insert(at, addr)
                live.insert(at, (len(used), size))
                used.append(0)
            elif kind == RELEASE:
                given_back += [(int(requests.event[when]), number) for number in _given_back(starts, live, addr, addr + size)]
            else:
                for number, offset, part in _within(starts, live, at - 1, addr, int(requests.size[unit])):
                    pieces[unit].append((number, offset, part))
                    used[number] = max(used[number], offset + part)
        names = _names(work, pieces)
        self.arrays = [Array(name, -(-used[number] // BLOCK_BYTES) * BLOCK_BYTES) for number, name in names.items()]
        self.pieces = [[(names[number], offset, part) for number, offset, part in tensor] for tensor in pieces]
        self.given_back = [(when, names[number]) for when, number in given_back if number in names]


def _given_back(starts: list[int], live: list[tuple[int, int]], first: int, end: int) -> Iterator[int]:
    """Segments that lie in [first, end) as a whole are live no more; a part of one stays with the rest of it."""
    for i in reversed(range(len(starts))):
        if first <= starts[i] and starts[i] + live[i][1] <= end:
            yield live[i][0]
            del starts[i], live[i]


def _names(work: Workload, pieces: list[list[Part]]) -> dict[int, str]:
    """Segments that were used, ordered and named by the role of the tensors in them, which weigh as many bytes as they live."""
    of_tensor = roles(work.trace)
    born, died = lives(work.trace)
    weights: dict[int, list[float]] = {}
    for tensor in range(work.trace.tensors):
        for number, _, size in pieces[tensor]:
            held = weights.setdefault(number, [0.0] * len(ROLES))
            held[of_tensor[tensor]] += float(size) * (died[tensor] - born[tensor])
    mostly = {number: max(range(len(ROLES)), key=held.__getitem__) for number, held in weights.items()}
    found: dict[int, str] = {}
    for role, name in enumerate(ROLES):
        mine = sorted(number for number in mostly if mostly[number] == role)
        found |= {number: f"{name}_{k}" for k, number in enumerate(mine)}
    return found


def _within(starts: list[int], live: list[tuple[int, int]], i: int, addr: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Bytes [addr, addr + size) as (segment, offset, bytes), from the i-th live segment on."""
    while size > 0:
        number, room = live[i]
        offset = addr - starts[i]
        part = min(size, room - offset)
        yield number, offset, part
        addr, size, i = addr + part, size - part, i + 1


def _resident(work: Workload, before: int, pieces: list[list[Piece]]) -> Iterator[Step]:
    """What had data before the first kernel is brought to the GPU, in the order of its allocation."""
    trace = work.trace
    name, first, end = "", 0, 0
    for tensor in trace.arg[:before][trace.kind[:before] == ALLOC]:
        if not work.has_data[tensor]:
            continue
        for where, offset, size in pieces[tensor]:
            if where == name and offset == end:
                end += size
                continue
            if name:
                yield Prefetch(name, 1, first, end - first)
            name, first, end = where, offset, offset + size
    if name:
        yield Prefetch(name, 1, first, end - first)


def launched(work: Workload, profile: Profile) -> F64:
    """(O,) ns of each operator with its launch: the gap before it, or what the host needs to submit it if that is longer."""
    found: F64 = np.maximum(work.duration + profile.launch.gap.value, host_time(work.trace, profile).ns)
    return found


@dataclass(frozen=True)
class Foreseen:
    """What is known of a program without simulating it: metrics and stalls under the names of results.metrics.

    streams     that run kernels
    copied_in   bytes that the program's own copies bring to the device; copied_out: that they take from it
    """

    metrics: dict[str, int]
    stalls: dict[str, int] = field(default_factory=dict)
    streams: int = 1
    copied_in: int = 0
    copied_out: int = 0


def known(work: Workload) -> Foreseen:
    """What the recording says of the program."""
    t = work.trace
    kernels = t.activity == KERNEL
    copied_in, copied_out = (int(t.read_bytes[t.activity == way].sum()) for way in (COPY_IN, COPY_OUT))
    return Foreseen(
        {
            "kernels": int(kernels.sum()),
            "events": t.events,
            "compute_busy_ns": int(work.duration[kernels].sum()),
            "host_work_ns": int(work.duration[t.activity == HOST_WORK].sum()),
            "program_h2d_bytes": copied_in,
            "program_d2h_bytes": copied_out,
            "program_transfer_ns": int(work.duration[np.isin(t.activity, MOVES)].sum()),
        },
        {},
        max(len(np.unique(t.stream[t.kind == OP][kernels])), 1),
        copied_in,
        copied_out,
    )


def _kernels(work: Workload, profile: Profile, pieces: list[list[Piece]]) -> Iterator[list[Kernel]]:
    """Each operator as a kernel; one over lists of tensors as several, which share its time by their pages."""
    trace, took = work.trace, launched(work, profile)
    for op in range(trace.ops):
        name, ns = trace.op_names[trace.op[op]], float(took[op])
        reads = list(dict.fromkeys(trace.read_id[trace.read_start[op] : trace.read_start[op + 1]].tolist()))
        writes = list(dict.fromkeys(trace.write_id[trace.write_start[op] : trace.write_start[op + 1]].tolist()))
        made = []
        for some, others in _rows(reads, writes, trace.size):
            accesses = [_access(piece, False) for tensor in some for piece in pieces[tensor]]
            accesses += [_access(piece, True) for tensor in others for piece in pieces[tensor]]
            if accesses:
                made.append((accesses, sum(map(_pages, accesses))))
        total = sum(pages for _, pages in made)
        yield [
            Kernel(name, accesses, (max(map(_pages, accesses)), 1), (1, 1), ns=ns * pages / total, operator=op)
            for accesses, pages in made
        ] or [Kernel(name, [], (1, 1), (1, 1), ns=ns, operator=op)]


def _rows(reads: list[int], writes: list[int], size: I64) -> list[tuple[list[int], list[int]]]:
    """What a kernel goes through together: all its tensors; of one over lists (foreach) the tensors of one place in the lists.

    The lists follow one another with equal sizes: where sizes repeat, so many tensors are one list.
    """
    if len(reads) + len(writes) <= FEW:
        return [(reads, writes)]
    sizes = size[reads] if reads else size[writes]
    for n in range(1, len(sizes) + 1):
        if len(reads) % n == 0 and len(writes) % n == 0 and (sizes[n:] == sizes[:-n]).all():
            return [(reads[i::n], writes[i::n]) for i in range(n)]
    return [(reads[i : i + 1], writes[i : i + 1]) for i in range(max(len(reads), len(writes)))]


def _access(piece: Piece, write: bool) -> Access:
    name, offset, size = piece
    return Access(name, write, TOUCH, offset // TOUCH, bx=1, elements=-(-(offset + size) // TOUCH))


def _pages(access: Access) -> int:
    return (access.elements or 0) - access.start
