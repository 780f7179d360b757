"""The driver as a server: kernels run until their warps stop at faults, and go on when a batch of these has been served.

    launch ──▶ the warps go on ──▶ stopped ──▶ start, serve ──▶ [copied] ──▶ due: replay ──▶ the warps go on ──▶ ...

Each of these is one call at one moment, and says what comes next and when: `Warps.stop`, the moment at which a kernel stops if
nothing slows it down, and `Server.at`, the moment at which the driver goes on.  Between two calls the clock is another's: the
island's, or that of `run_alone`.  Hits cost no event, however many there are.
"""

from __future__ import annotations

import math
from typing import Any

from gpusim.base.compiled import kernel, outlined
from gpusim.engine.pages.acts import act, acts_before, carry_out
from gpusim.engine.pages.background import work_ahead
from gpusim.engine.pages.batches import collect, fetch, proceed
from gpusim.engine.pages.bits import none
from gpusim.engine.pages.copies import begin_copies
from gpusim.engine.pages.counters import attend
from gpusim.engine.pages.driver_tables import DONE, FAULTED, WRITES, DriverState, scratch
from gpusim.engine.pages.events import note_end
from gpusim.engine.pages.fault_replay import NEVER_MIND, replay, reported, send
from gpusim.engine.pages.frontend import next_block
from gpusim.engine.pages.paging import (
    AT_REST,
    BEGINS,
    BRINGS,
    CALLED,
    ENDED,
    HALF,
    HELD_UP,
    PAUSES,
    RUNS,
    SERVES,
    TOUCH_READ,
    WAITS,
    PagedKernels,
    front_at,
    paging_at,
)
from gpusim.engine.pages.prefetchers import launched
from gpusim.engine.pages.remapping import map_evicted
from gpusim.engine.pages.service import serve
from gpusim.engine.pages.thrashing import unpin
from gpusim.engine.pages.touching import LATE, is_held, touch
from gpusim.engine.pages.transfers import ask, flow_ahead, set_aside, take
from gpusim.engine.state import ASKED, OF_BATCH, OF_STREAM
from gpusim.machine.driver_parameters import BLOCK_BYTES

PER_BLOCK, PER_BATCH, PER_BATCH_FLUSH, WHEN_EMPTY = range(4)  # uvm_perf_fault_replay_policy
FOREVER = math.inf
WINDOW = 10_000.0  # ns: how far warps get at once where the CPU may take pages from them


@outlined
def launch(M: DriverState, P: PagedKernels, q: int, operator: int) -> None:
    """An operator begins on stream q, now."""
    r, v, w = P.runs[q], P.server[0], P.warps[q]
    r.launch, r.end = P.lists[operator], P.lists[operator + 1]
    w.operator = operator
    if r.launch == r.end:
        r.state = RUNS
        if operator < P.sent.size and P.sent[operator]:
            bring(M, P, q)
        if r.state == RUNS:
            w.stop, w.work, w.last, w.go = M.state[0].now, -1.0, 1, 1
        return
    if v.active == 0:
        v.in_pass, v.with_throttled, v.nap = 0, 0, 0
    v.active += 1
    next_launch(M, P, q)


@outlined
def next_launch(M: DriverState, P: PagedKernels, q: int) -> None:
    """The next launch of stream q begins, now, or when what the program does before it is done."""
    r = P.runs[q]
    r.state = RUNS
    if acts_before(P, r.launch):
        bring(M, P, q)
    if r.state == RUNS:
        begin(M, P, q)
        go_on(M, P, q)


@outlined
def begin(M: DriverState, P: PagedKernels, q: int) -> None:
    """The warps of the next launch of the operator take their slots."""
    s, v, x = M.state[0], P.server[0], P.launches[P.runs[q].launch]
    F = front_at(P.fronts[q])
    f = F.state[0]
    s.launch += 1
    s.kernel = x.identity
    f.processor, f.warps, f.ctas, f.next_cta, f.grid_x = v.gpu, x.warps, x.ctas, 0, x.grid_x
    f.threads, f.steps, f.accesses, f.slots = x.threads, x.steps, x.accesses, x.slots
    f.sweeps = x.sweeps if s.watches == 0 else 0
    f.before = f.last
    f.ns = P.shapes[P.runs[q].launch].ns
    unpin(M)
    if s.now >= s.driver_free:
        map_evicted(M)
    if s.announces:
        launched(M, v.gpu)
    slots = f.slots // f.warps
    A = P.accesses[x.first : x.first + x.accesses]
    for k in range(slots * f.utlbs):
        next_block(M, F, A, k % f.utlbs, (k // f.utlbs) * f.warps)


@outlined
def bring(M: DriverState, P: PagedKernels, q: int) -> None:
    """The program does what it does before the next launch of stream q: the warps wait, BRINGS, where that takes time."""
    s, r, v, operator = M.state[0], P.runs[q], P.server[0], P.warps[q].operator
    gpu, t = M.gpus[v.gpu], P.transfers[OF_STREAM + q]
    if r.launch == r.end and P.acts[P.sent[operator] - 1].kind >= TOUCH_READ:
        x = P.acts[P.sent[operator] - 1]
        r.at, r.moves = x.first // s.per_block, 0
        touch(M, P, q, x)
        return
    set_aside(M, P)
    gpu.begun, r.asked = 0, s.now
    r.moves = act(M, P, r.launch) if r.launch < r.end else carry_out(M, P, P.sent[operator] - 1)
    ready, s.now = s.now, r.asked
    for g in range(1, s.processors):
        if g != v.gpu and r.moves:
            ready = max(ready, M.gpus[g].copied)
    if gpu.begun:
        take(M, P, OF_STREAM + q, gpu.copied)
    elif ready > s.now:
        ask(t, s.now)
    if t.state == ASKED:
        t.ready, t.piece = ready, BLOCK_BYTES
        r.state = BRINGS


@outlined
def brought(M: DriverState, P: PagedKernels, q: int) -> None:
    """What the program does before the next launch of stream q is done, now."""
    r, n, t = P.runs[q], M.counts[P.server[0].gpu], P.transfers[OF_STREAM + q]
    if r.moves:
        copies = max(t.at - t.ready, 0.0)
        n.moving += t.at - r.asked
        n.service += t.at - r.asked
        n.moving_copies += copies
        n.copy_wait += copies
    if r.launch == r.end:
        x = P.acts[P.sent[P.warps[q].operator] - 1]
        if x.kind >= TOUCH_READ and r.at <= (x.outer - 1) // M.state[0].per_block:
            touch(M, P, q, x)
            return
    r.state = RUNS
    if r.launch == r.end:
        w = P.warps[q]
        w.stop, w.work, w.last, w.go = M.state[0].now, -1.0, 1, 1
        return
    begin(M, P, q)
    go_on(M, P, q)


@outlined
def go_on(M: DriverState, P: PagedKernels, q: int) -> None:
    """The warps of stream q issue all that they can, from now on; then they stop, or have ended."""
    s, r, w, v = M.state[0], P.runs[q], P.warps[q], P.server[0]
    F = front_at(P.fronts[q])
    start, r.state = s.now, RUNS
    s.pause = start + WINDOW if P.pager[0].shares else FOREVER
    while r.state == RUNS:
        x = P.launches[r.launch]
        proceed(M, F, P.accesses[x.first : x.first + x.accesses], P.shapes[r.launch], P.indices)
        if s.now >= s.pause:
            r.state = PAUSES
            break
        if F.state[0].outstanding == 0 and s.replay_policy == PER_BATCH_FLUSH:
            F.state[0].buffered = 0  # what came before the last replay: the kernel does not wait for it
        if F.state[0].outstanding > 0 or F.state[0].buffered > 0:
            r.state = WAITS
            break
        ended = s.now
        if s.notices > 0:  # one more; what is left then waits for the next kernel
            s.now = max(s.now, s.notice_due)
            attend(M, v.gpu)
        s.now = ended  # the driver is late; the kernel is not
        r.launch += 1
        if r.launch == r.end:
            r.state = ENDED
        elif acts_before(P, r.launch):
            r.state = BEGINS
        else:
            begin(M, P, q)
    w.stop, w.work, w.go, w.last = s.now, s.now - start, 1, r.state == ENDED
    f = F.state[0]
    w.read, w.written, w.peer = f.read, f.written, f.peer
    f.read = f.written = f.peer = 0.0
    if P.pager[0].flows:
        flow_ahead(M, P, start)
    v.active -= r.state == ENDED
    r.since = FOREVER
    s.now = start


@outlined
def stopped(M: DriverState, P: PagedKernels, q: int) -> None:
    """The warps of stream q stand now: they have done what they could."""
    v, r = P.server[0], P.runs[q]
    if r.state == ENDED:
        return
    if r.state == PAUSES:
        go_on(M, P, q)
        return
    if r.state == BEGINS:
        next_launch(M, P, q)
        return
    r.since = M.state[0].now
    if v.phase == HALF and v.stream == q and v.process == P.pager[0].process:
        serve_blocks(M, P)
    elif v.phase == AT_REST:
        start(M, P, q)


@kernel
def longest(P: PagedKernels) -> int:
    """The stream whose kernel has stood still for longest, -1 when none does."""
    found, since = -1, FOREVER
    for q in range(P.runs.size):
        if P.runs[q].state == WAITS and P.runs[q].since < since:
            found, since = q, P.runs[q].since
    return found


@outlined
def turn(M: DriverState, P: PagedKernels) -> int:
    """The driver is at rest: the stream of this process that it serves next, -1 where there is none, or another process' is."""
    found, since = -1, FOREVER
    for k in range(P.others.size):
        other = paging_at(P.others[k])
        q = longest(other)
        if q >= 0 and other.runs[q].since < since:
            found, since = k, other.runs[q].since
    if found < 0:
        return -1
    if found == P.pager[0].process:
        return longest(P)
    v = P.server[0]
    v.phase, v.process, v.at = CALLED, found, M.state[0].now
    P.pager[0].wakes = 1 + found
    return -1


@kernel
def wait_for_driver(M: DriverState, p: int) -> None:
    """One thread of the driver serves notices and faults: faults wait until no notice is left (uvm_service_access_counters)."""
    s = M.state[0]
    while s.notices > 0:
        s.now = max(s.now, s.notice_due)
        attend(M, p)
    s.now = max(s.now, s.driver_free)
    map_evicted(M)


@outlined
def start(M: DriverState, P: PagedKernels, q: int) -> None:
    """The driver fetches a batch of the faults of stream q, and serves it."""
    s, v = M.state[0], P.server[0]
    n, gpu, F = M.counts[v.gpu], M.gpus[v.gpu], front_at(P.fronts[q])
    if v.nap:  # the bottom half has given up the CPU until the processor that waits may proceed
        n.waited += max(s.wake - s.now, 0.0)
        s.now = max(s.now, s.wake)
        v.in_pass, v.nap = 0, 0
    wait_for_driver(M, v.gpu)
    if v.in_pass == 0:
        n.passes, v.with_throttled = n.passes + 1, 0
        s.now += gpu.pass_ns
    if s.replay_policy == PER_BATCH_FLUSH:
        since = gpu.replay + gpu.pass_ns if v.in_pass == 0 else gpu.replay  # the replay, or the fault that interrupted
        room = s.batch_count - F.state[0].buffered
        come = reported(since, gpu.report_interval)
        send(F, room if come == NEVER_MIND else come, room, reported(since, gpu.fault_interval))
        v.looked, v.since = s.now - since, since
    else:
        room = len(F.buffer) - F.state[0].buffered
        send(F, room, room, len(F.buffer))
    set_aside(M, P)
    gpu.begun = 0
    v.process, v.stream, v.next, v.noted = P.pager[0].process, q, 0, s.logged
    v.fetched = min(F.state[0].buffered, s.batch_count)
    v.unique = fetch(M, F)
    v.kept = gpu.report_interval > 0.0 and (v.fetched - v.unique) * 100 <= v.fetched * s.put_ratio
    v.begin, v.engaged, v.throttled = s.now, gpu.engaged, n.throttled
    s.now += gpu.batch + gpu.fault * v.fetched
    serve_blocks(M, P)


@outlined
def serve_blocks(M: DriverState, P: PagedKernels) -> None:
    """The driver serves the blocks of its batch, from the next one on; says when it goes on."""
    s, v, W = M.state[0], P.server[0], M.bits
    p = v.gpu
    gpu, F = M.gpus[p], front_at(P.fronts[v.stream])
    more = True
    while v.next < v.unique and more:
        b = (F.batch[v.next] >> 1) >> s.block_shift
        if is_held(M, b, p):
            v.phase, until = HELD_UP, M.gpus[M.blocks[b].served_by].replays_at
            v.at = max(s.now, until) + (1.0 if s.now < until else LATE)
            return
        v.next = collect(M, F, v.next, v.unique)
        if none(W, scratch(M, FAULTED)):
            M.counts[p].block_services += 1  # looked at, and nothing to do
        else:
            s.now += gpu.block
            M.blocks[b].served, M.blocks[b].served_by = M.counts[p].replays + 1, p
            M.blocks[b].services += 1
            s.now += serve(M, p, b, scratch(M, WRITES))
            begin_copies(M, p)
            if s.failed:
                P.pager[0].failed = 1
                return
        more = s.replay_policy != PER_BLOCK
    v.over = s.now
    for g in range(1, s.processors):
        if g == p or M.gpus[g].queued > 0.0:
            begin_copies(M, g)
            if M.gpus[g].copied > v.over:
                M.counts[g].copy_wait += M.gpus[g].copied - v.over
                v.over = M.gpus[g].copied
    v.copied = gpu.copied
    gpu.replays_at = moment_of_replay(M, P)
    v.phase, v.at = SERVES, gpu.replays_at
    if P.pager[0].flows and gpu.begun and take(M, P, OF_BATCH, gpu.copied):
        v.at = FOREVER


@kernel
def flush(M: DriverState, F: Any, v: Any) -> None:
    """The driver drops what was in the buffer when it fetched; what has come since stays, unless half were duplicates.

    That flush reads PUT anew (uvm_gpu_replayable_faults.c: fault_buffer_flush_locked).
    """
    s, gpu = M.state[0], M.gpus[v.gpu]
    if v.kept:
        waited = v.over - v.looked
        come = reported(waited, gpu.report_interval) - reported(v.since, gpu.report_interval)
        send(F, min(come, s.batch_count), s.batch_count, reported(waited, gpu.fault_interval))


@kernel
def replays(M: DriverState, P: PagedKernels) -> bool:
    """Whether the driver lets the warps go on after what it has just served."""
    s, v = M.state[0], P.server[0]
    empty = s.replay_policy == WHEN_EMPTY and front_at(P.fronts[v.stream]).state[0].buffered == 0
    return bool(s.replay_policy != WHEN_EMPTY or empty)


@kernel
def moment_of_replay(M: DriverState, P: PagedKernels) -> float:
    """When all is served that is under way, and the warps have been told."""
    v = P.server[0]
    gpu = M.gpus[v.gpu]
    at = v.over
    if v.next == v.unique:
        at += gpu.first_fault
    return float(at + gpu.replay if replays(M, P) else at)


@outlined
def copied(M: DriverState, P: PagedKernels, k: int) -> None:
    """A transfer has ended, now."""
    v, t = P.server[0], P.transfers[k]
    gpu = M.gpus[v.gpu]
    if t.late and (k < OF_STREAM or P.runs[k - OF_STREAM].moves):
        gpu.copied = max(gpu.copied, t.at)
    if k >= OF_STREAM:
        brought(M, P, k - OF_STREAM)
    elif k == OF_BATCH:
        if t.late:
            M.counts[v.gpu].copy_wait += max(t.at - v.over, 0.0)
            v.over = max(v.over, t.at)
        v.at = gpu.replays_at = moment_of_replay(M, P)


@outlined
def due(M: DriverState, P: PagedKernels) -> None:
    """The driver goes on, now: with its batch, or all of it is done and the warps go on."""
    s, v = M.state[0], P.server[0]
    gpu = M.gpus[v.gpu]
    if v.phase == HELD_UP:
        serve_blocks(M, P)
        return
    n, F, q, now = M.counts[v.gpu], front_at(P.fronts[v.stream]), v.stream, s.now
    gpu.begun = 0
    again, whole = replays(M, P), v.next == v.unique
    v.phase, v.at = AT_REST if whole else HALF, FOREVER
    if whole:
        s.now = v.over + gpu.first_fault
        gpu.first_fault = 0.0
        n.service += s.now - v.begin
        note_end(M, v.noted)
        work_ahead(M, v.gpu, s.now - v.begin - (gpu.engaged - v.engaged))
        if s.replay_policy == PER_BATCH_FLUSH:
            n.dropped += F.state[0].outstanding - v.fetched
        v.in_pass = (v.in_pass + 1) % s.max_batches
        v.with_throttled += n.throttled > v.throttled
        v.nap = v.with_throttled == s.max_throttled
    s.now = now
    if again:
        map_evicted(M)
        n.replays += 1
        x = P.launches[P.runs[q].launch]
        if whole and s.replay_policy == PER_BATCH_FLUSH:
            flush(M, F, v)
        replay(M, F, P.accesses[x.first : x.first + x.accesses])
        go_on(M, P, q)
        if v.phase == HALF and P.runs[q].state == ENDED:  # what is left of the batch was reported twice
            v.phase = AT_REST
            n.satisfied += v.unique - v.next


@outlined
def run_alone(M: DriverState, P: PagedKernels, operator: int) -> int:
    """One operator on stream 0 from now to its end, with nothing beside it: DONE, or why it cannot go on."""
    s, v, w = M.state[0], P.server[0], P.warps[0]
    launch(M, P, 0, operator)
    while w.last == 0 and s.failed == DONE:
        s.now, w.go = w.stop, 0
        stopped(M, P, 0)
        while w.go == 0 and s.failed == DONE:
            s.now = v.at
            due(M, P)
            if v.phase == AT_REST and P.runs[0].state == WAITS and w.go == 0:
                start(M, P, 0)
    if s.failed == DONE:
        s.now, w.go = w.stop, 0
    return int(s.failed)
