"""The order in which requests of SGLang's scheduler wait, and whose prefixes are made recent.

Source: sglang 0.5.23 srt/managers/{scheduler,schedule_policy,schedule_batch}.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.radix_tables import RadixTree
from gpusim.policies.schedule.parts.sglang_lengths import allowed
from gpusim.policies.schedule.parts.sglang_pages import look, name_of
from gpusim.policies.schedule.parts.sglang_tables import IS_LRU, LOF, LPM, MATCH_ALL, ORDER, PAGE, PASSES, SglangTables
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable
from gpusim.policies.schedule.parts.vllm_blocks import length
from gpusim.policies.schedule.parts.waiting import (
    IN_LINE,
    NONE,
    WaitingTable,
    end_of,
    first_of,
    insert_before,
    join_last,
    leave_ring,
)

SHARED = 32  # tokens: a prefix found that is no longer does not keep a request from waiting for one that shares as many with it
LOOKED_AT = 128  # waiting requests whose prefixes are looked up at most
EVERY = 32  # passes between two that renew the prefixes of waiting requests


@kernel
def join_line(own: SglangTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    """The request waits, last in line; by longest output, behind those that may make as many."""
    later = end_of(queue, IN_LINE)
    if own.option[ORDER] == LOF:
        while queue.ahead[later] < end_of(queue, 0) and (
            allowed(own, requests, queue.ahead[later]) < allowed(own, requests, r)
        ):
            later = queue.ahead[later]
    insert_before(queue, IN_LINE, r, later)


@kernel
def after(queue: WaitingTable, r: int) -> int:
    """The request that waits behind this one; NONE behind the last."""
    later = queue.behind[r]
    return later if later < end_of(queue, 0) else NONE


@outlined
def sort_line(own: SglangTables, count: int) -> None:
    """Rows of `line` by their second and third number; equal ones stay in order."""
    for i in range(1, count):
        r, first, then = own.line[i, 0], own.line[i, 1], own.line[i, 2]
        k = i
        while k > 0 and (own.line[k - 1, 1] > first or (own.line[k - 1, 1] == first and own.line[k - 1, 2] > then)):
            for word in range(3):
                own.line[k, word] = own.line[k - 1, word]
            k -= 1
        own.line[k, 0], own.line[k, 1], own.line[k, 2] = r, first, then


@outlined
def by_longest_prefix(
    own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable
) -> None:
    """Longest prefix first.  Of requests that share SHARED tokens, and find no more than that, one goes before all others."""
    size = own.option[PAGE]
    sign = max(SHARED // size, 1) - 1  # the page whose identity tells whether two share as many tokens
    count, r = 0, first_of(queue, IN_LINE)
    while r != NONE:
        tokens = length(requests, step, r)
        found = look(own, requests, tree, r, tokens) * size
        own.line[count, 0], own.line[count, 1], own.line[count, 2] = r, -min(found, tokens - 1), 0
        if found <= SHARED and tokens >= (sign + 1) * size and _is_shared(own, requests, step, count, sign, tokens):
            own.line[count, 1] = 1
        count += 1
        r = after(queue, r)
    for i in range(count):
        own.line[i, 2] = 0
    sort_line(own, count)
    for i in range(count):
        leave_ring(queue, IN_LINE, own.line[i, 0])
        join_last(queue, IN_LINE, own.line[i, 0])


@kernel
def _is_shared(
    own: SglangTables, requests: RequestTable, step: StepTable, count: int, sign: int, tokens: int
) -> bool:
    """Whether one before it in line, which does not wait for another, begins as this one; else it is marked."""
    mine = name_of(own, requests, own.line[count, 0], sign)
    for i in range(count):
        if own.line[i, 2] and name_of(own, requests, own.line[i, 0], sign) == mine:
            return True
    own.line[count, 2] = 1
    return False


@outlined
def line_up(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable) -> None:
    """Those that wait are put in order, and the prefixes that they will find are made recent."""
    count = queue.count[IN_LINE]
    if own.option[ORDER] == LPM and count <= LOOKED_AT:
        by_longest_prefix(own, requests, step, tree, queue)
        return
    if own.option[MATCH_ALL]:
        r = first_of(queue, IN_LINE)
        while r != NONE:
            look(own, requests, tree, r, length(requests, step, r))
            r = after(queue, r)
    elif own.option[IS_LRU] and own.option[ORDER] != LPM and count > 0:
        if own.word[PASSES] % EVERY == 0:
            _renew(own, requests, step, tree, queue)
        own.word[PASSES] += 1


@kernel
def _renew(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, queue: WaitingTable) -> None:
    """The first in line last, so that it is the most recent."""
    r, count = first_of(queue, IN_LINE), 0
    while r != NONE and count < LOOKED_AT:
        own.line[count, 0] = r
        count += 1
        r = after(queue, r)
    for i in range(count - 1, -1, -1):
        look(own, requests, tree, own.line[i, 0], length(requests, step, own.line[i, 0]))
