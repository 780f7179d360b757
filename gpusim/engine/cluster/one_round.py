"""One round of a cluster: which rows have it, on which GPUs; and what it has done."""

from __future__ import annotations

import math

from numba import types

from gpusim.base.compiled import entry, kernel, outlined, tables_at
from gpusim.engine.cluster.round_tables import ROUND_TABLES, RoundTables

round_tables_at = tables_at(ROUND_TABLES)

FIRST = 1e9  # times the share: the priority of what has had no time
FAILURES = 5


@kernel
def code(s: RoundTables, a: int, b: int) -> int:
    """Rises with the rows: the later job, then its partner."""
    return a * (s.job.size + 1) if b < 0 else b * (s.job.size + 1) + a + 1


@kernel
def row_of(s: RoundTables, a: int, b: int) -> int:
    """-1: there is none."""
    wanted, low, high = code(s, a, b), 0, s.course[0].rows
    while low < high:
        middle = (low + high) // 2
        if code(s, s.a[middle], s.b[middle]) < wanted:
            low = middle + 1
        else:
            high = middle
    if low < s.course[0].rows and s.a[low] == a and s.b[low] == b:
        return low
    return -1


@outlined
def prioritise(s: RoundTables) -> None:
    """Share over the part of all time had."""
    for i in range(s.course[0].rows):
        for k in range(s.total.size):
            share, part = s.share[i, k], 0.0
            if s.total[k] != 0.0:
                part = s.had[i, k] / s.total[k]
            s.priority[i, k] = 0.0
            if s.asked[i] and s.runs[i, k]:
                s.priority[i, k] = share / part if part > 0.0 else share * FIRST


@kernel
def goes_first(s: RoundTables, i: int, j: int, k: int) -> bool:
    """Whether row i goes before row j on this type: priority, then deficit, then share; of equal ones the older."""
    if s.priority[i, k] != s.priority[j, k]:
        return s.priority[i, k] > s.priority[j, k]
    if s.deficit[i, k] != s.deficit[j, k]:
        return s.deficit[i, k] > s.deficit[j, k]
    if s.share[i, k] != s.share[j, k]:
        return s.share[i, k] > s.share[j, k]
    return i < j


@outlined
def rank(s: RoundTables, k: int) -> int:
    """Rows that can run there into `order`, the first to go first: how many.  With leftovers those without priority, too."""
    many = 0
    for i in range(s.course[0].rows):
        if s.runs[i, k] and (s.course[0].leftovers or s.priority[i, k] > 0.0):
            s.order[many] = i
            many += 1
    width = 1
    while width < many:
        for first in range(0, many, 2 * width):
            middle, last = min(first + width, many), min(first + 2 * width, many)
            i, j = first, middle
            for at in range(first, last):
                if i < middle and (j >= last or goes_first(s, s.order[i], s.order[j], k)):
                    s.merged[at] = s.order[i]
                    i += 1
                else:
                    s.merged[at] = s.order[j]
                    j += 1
        for at in range(many):
            s.order[at] = s.merged[at]
        width *= 2
    return many


@kernel
def fitting(s: RoundTables, job: int, k: int, room: int) -> int:
    """GPUs that the job takes of so many: all that it wants, or an elastic one its most or all there are; 0: too few."""
    size, at = s.job[job].wants, s.job[job].elastic
    if at >= 0:
        size = min(s.job[job].most, room)
        while size > 0 and s.pace[at, k, size] <= 0.0:
            size -= 1
    return int(size)


@outlined
def choose(s: RoundTables, k: int) -> int:
    """Rows by priority into `chosen`, each job once, as long as there is room: how many."""
    room, many = s.first[k + 1] - s.first[k], 0
    for at in range(rank(s, k)):
        if room == 0:
            break
        row = s.order[at]
        a, b = s.a[row], s.b[row]
        s.size[row] = fitting(s, a, k, room) if b < 0 else s.job[a].wants
        if 0 < s.size[row] <= room and not s.job[a].placed and not (b >= 0 and s.job[b].placed):
            room -= s.size[row]
            s.job[a].placed = 1
            if b >= 0:
                s.job[b].placed = 1
            s.chosen[many] = row
            many += 1
    return many


@kernel
def hold(s: RoundTables, row: int, k: int, before: int) -> None:
    """The row has GPUs in this round: those of before, or such as are found later (-1)."""
    c = s.course[0]
    h = s.held[c.held]
    h.a, h.b, h.kind, h.row, h.many = s.a[row], s.b[row], k, row, s.size[row]
    h.piece, h.round, h.struck, h.pace = -1, c.rounds, 0, 1.0
    if h.many < s.job[h.a].wants:
        h.pace = s.pace[s.job[h.a].elastic, k, h.many]
    if before >= 0:
        for i in range(h.many):
            s.gpus[c.held, i] = s.gpus_before[before, i]
            s.used[s.gpus[c.held, i]] = 1
    c.held += 1


@outlined
def place(s: RoundTables, k: int, many: int) -> None:
    """GPUs of their own: rows with most first, on the GPUs that they have where these are free."""
    stay, largest = True, 0
    for at in range(many):
        before = s.holds[s.chosen[at]]
        stay = stay and before >= 0 and s.before[before].kind == k and s.before[before].many == s.size[s.chosen[at]]
        largest = max(largest, s.size[s.chosen[at]])
    if stay:
        for at in range(many):
            hold(s, s.chosen[at], k, s.holds[s.chosen[at]])
        return
    free, size = s.first[k], largest
    while size > 0:
        smaller = 0
        for at in range(many):
            row = s.chosen[at]
            wants = s.size[row]
            if wants < size:
                smaller = max(smaller, wants)
            if wants != size or s.holds[row] < 0 or s.before[s.holds[row]].kind != k:
                continue
            if s.before[s.holds[row]].many < size:
                continue
            clear = True
            for i in range(size):
                clear = clear and not s.used[s.gpus_before[s.holds[row], i]]
            if clear:
                hold(s, row, k, s.holds[row])
                s.chosen[at] = -1 - row
        for at in range(many):
            row = s.chosen[at]
            if row >= 0 and s.size[row] == size and s.asked[row]:
                free = find(s, row, k, free)
        for at in range(many):
            if s.chosen[at] < 0:
                s.chosen[at] = -1 - s.chosen[at]
                row = s.chosen[at]
        size = smaller


@kernel
def find(s: RoundTables, row: int, k: int, free: int) -> int:
    """The next GPUs of the type that are free, from place `free` on: where it ends."""
    at = s.course[0].held
    hold(s, row, k, -1)
    many = 0
    while many < s.held[at].many and free < s.first[k + 1]:
        gpu = s.pool[free]
        free += 1
        if not s.used[gpu]:
            s.used[gpu] = 1
            s.gpus[at, many] = gpu
            many += 1
    return free


@outlined
def remember(s: RoundTables) -> None:
    """What is held becomes what was held before."""
    c = s.course[0]
    for i in range(c.rows):
        s.holds[i] = -1
    for i in range(c.held):
        s.before[i] = s.held[i]
        h = s.before[i]
        h.row = -1  # from now on: what it holds now
        for j in range(h.many):
            s.gpus_before[i, j] = s.gpus[i, j]
        row = row_of(s, h.a, h.b)
        if row >= 0:
            s.holds[row] = i
    for i in range(s.used.size):
        s.used[i] = 0


@kernel
def same(s: RoundTables, i: int, j: int) -> bool:
    """Whether the held have the GPUs of those before, in any order."""
    if s.held[i].many != s.before[j].many:
        return False
    for x in range(s.held[i].many):
        found = False
        for y in range(s.held[i].many):
            found = found or s.gpus[i, x] == s.gpus_before[j, y]
        if not found:
            return False
    return True


@outlined
def count(s: RoundTables, before: int) -> None:
    """Which jobs could have stayed, which have, and which had to leave."""
    c = s.course[0]
    for i in range(c.held):
        j = s.holds[s.held[i].row]
        if j >= 0:
            s.before[j].row = i
    for j in range(before):
        h = s.before[j]
        last = h.b if h.b >= 0 else h.a
        if s.job[h.a].active or s.job[last].active:
            c.chances += 1
        if h.row >= 0:
            if same(s, h.row, j):
                c.kept += 1
            continue
        c.stops += 1 if s.job[h.a].active and not s.job[h.a].placed else 0
        if h.b >= 0:
            c.stops += 1 if s.job[h.b].active and not s.job[h.b].placed else 0


@outlined
def start(s: RoundTables, i: int) -> None:
    """Until when the row runs in this round, and how many steps of each job."""
    c, h = s.course[0], s.held[i]
    end = c.now
    for which in range(2 if h.b >= 0 else 1):
        job = s.job[h.b if which else h.a]
        rate = s.rate[h.row, h.kind, which] * h.pace
        many = min(rate * c.length, job.work - job.steps)
        if job.whole:  # steps are whole; seconds are not
            many = float(math.floor(many))
        h.steps[which] = many
        end = max(end, c.now + many / rate)
        if job.first != job.first:  # nan
            job.first = c.now
    h.end = end
    c.latest = max(c.latest, end)
    c.had += (end - c.now) * h.many
    c.busy += h.many
    c.serving += 2 if h.b >= 0 else 1
    before = s.holds[h.row]
    goes_on = before >= 0 and s.before[before].piece >= 0 and same(s, i, before)
    h.piece = s.before[before].piece if goes_on else c.pieces
    if not goes_on:
        p = s.piece[c.pieces]
        p.a, p.b, p.kind, p.many, p.start = h.a, h.b, h.kind, h.many, c.now
        for j in range(h.many):
            s.gpus_of[c.pieces, j] = s.gpus[i, j]
        c.pieces += 1
    s.piece[h.piece].end = end


@entry(types.void(types.int64, types.int64[::1]))
def begin_round(tables: int, kinds: list[int]) -> None:
    """Gives GPUs for a round, types of GPU in this order; the tables are found by their address."""
    s = round_tables_at(tables)
    c = s.course[0]
    prioritise(s)
    remember(s)
    before = c.held
    c.held, c.latest, c.busy, c.serving = 0, 0.0, 0, 0
    for i in range(c.rows):
        s.job[s.a[i]].placed = 0
    many = 0
    for k in kinds:
        many = choose(s, k)
        place(s, k, many)
    for i in range(c.rows):
        s.job[s.a[i]].placed = 0
    for i in range(c.held):
        s.job[s.held[i].a].placed = 1
        if s.held[i].b >= 0:
            s.job[s.held[i].b].placed = 1
    count(s, before)
    for i in range(c.held):
        start(s, i)
    if c.held:
        c.rounds += 1


@kernel
def leave(s: RoundTables, job: int, end: float) -> None:
    """The job ends; nan: it is given up."""
    c = s.course[0]
    s.job[job].end, s.job[job].active = end, 0
    s.gone[c.gone] = job
    c.gone += 1
    c.left -= 1
    c.active -= 1
    c.changed = 1


@kernel
def is_later(s: RoundTables, i: int, j: int) -> bool:
    """Whether what i runs is counted before what j runs: the latest first, jobs alone before pairs."""
    one, two = s.held[i], s.held[j]
    if one.end != two.end:
        return one.end > two.end
    if (one.b < 0) != (two.b < 0):
        return one.b < 0
    return one.a < two.a or (one.a == two.a and one.b < two.b)


@outlined
def count_one(s: RoundTables, i: int, since: float) -> None:
    """What a row has done in the round."""
    c, h = s.course[0], s.held[i]
    took, least = h.end - since, 0.0
    if s.job[h.a].whole:
        least = float(h.many)  # a worker has steps // GPUs of them
    if took <= 0.0 or h.steps[0] < least or (h.b >= 0 and h.steps[1] < least):
        c.changed = 1
        if h.b < 0:
            s.job[h.a].failed += 1
            if s.job[h.a].failed >= FAILURES:
                leave(s, h.a, math.nan)
        return
    for j in range(h.many):
        s.worked[s.gpus[i, j]] += took
    if s.job[h.a].active and (h.b < 0 or s.job[h.b].active):
        s.had[h.row, h.kind] += took * h.pace  # a round on fewer GPUs is a part of one
        s.total[h.kind] += took * h.pace
    c.done += 1
    for which in range(2 if h.b >= 0 else 1):
        job = s.job[h.b if which else h.a]
        job.failed = 0
        job.steps = job.work if h.steps[which] >= job.work - job.steps else job.steps + h.steps[which]
    if s.job[h.a].steps >= s.job[h.a].work:
        leave(s, h.a, h.end)
    if h.b >= 0 and s.job[h.b].steps >= s.job[h.b].work:
        leave(s, h.b, h.end)


@entry(types.void(types.int64, types.float64))
def end_round(tables: int, since: float) -> None:
    """Counts what the round has done, the latest first; jobs that have ended leave, and their rows with them."""
    s = round_tables_at(tables)
    c = s.course[0]
    c.gone = 0
    for i in range(c.held):
        at = i
        while at > 0 and is_later(s, i, s.line[at - 1]):
            s.line[at] = s.line[at - 1]
            at -= 1
        s.line[at] = i
    for at in range(c.held):
        if not s.held[s.line[at]].struck:
            count_one(s, s.line[at], since)
    c.busy, c.serving = 0, 0
    if not c.gone:
        return
    many = 0
    for i in range(c.rows):
        if s.job[s.a[i]].active and (s.b[i] < 0 or s.job[s.b[i]].active):
            if many < i:
                move(s, i, many)
            many += 1
    c.rows = many


@kernel
def move(s: RoundTables, i: int, to: int) -> None:
    """Row i stands there."""
    s.a[to], s.b[to], s.asked[to] = s.a[i], s.b[i], s.asked[i]
    for k in range(s.total.size):
        s.runs[to, k], s.share[to, k], s.had[to, k] = s.runs[i, k], s.share[i, k], s.had[i, k]
        s.deficit[to, k], s.priority[to, k] = s.deficit[i, k], s.priority[i, k]
        s.rate[to, k, 0], s.rate[to, k, 1] = s.rate[i, k, 0], s.rate[i, k, 1]
