"""Where vLLM's requests wait: in order of arrival or by priority, and those that hold blocks in a line of their own.

Source: vLLM's v1/core/sched/request_queue.py (Apache-2.0), its rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.policies.schedule.parts.vllm_tables import BY_PRIORITY, KEEPS_ORDER, PASSED, VllmTables
from gpusim.policies.schedule.parts.waiting import (
    HOLDING,
    IN_LINE,
    LISTS,
    NONE,
    WaitingTable,
    end_of,
    first_of,
    goes_before,
    insert_before,
    join_first,
    join_last,
    leave_ring,
    push,
    remove,
)


@kernel
def wait_first(own: VllmTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    if own.option[BY_PRIORITY]:
        push(queue, requests.priority, r)
    else:
        join_first(queue, IN_LINE, r)


@kernel
def wait_last(own: VllmTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    if own.option[BY_PRIORITY]:
        push(queue, requests.priority, r)
    else:
        join_last(queue, IN_LINE, r)


@kernel
def wait_no_more(own: VllmTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    if own.option[BY_PRIORITY]:
        remove(queue, requests.priority, r)
    else:
        leave_ring(queue, IN_LINE, r)


@kernel
def next_waiting(own: VllmTables, queue: WaitingTable) -> int:
    if own.option[BY_PRIORITY]:
        return queue.heap[0] if queue.count[LISTS] else NONE
    return first_of(queue, IN_LINE)


@kernel
def hold(own: VllmTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    """The request has blocks and waits for what will be in them: it goes behind the others, or to its place by priority."""
    later = end_of(queue, HOLDING)
    if own.option[BY_PRIORITY]:
        while queue.ahead[later] < end_of(queue, 0) and goes_before(requests.priority, r, queue.ahead[later]):
            later = queue.ahead[later]
    insert_before(queue, HOLDING, r, later)
    own.holder[r] = 1


@kernel
def hold_no_more(own: VllmTables, queue: WaitingTable, r: int) -> None:
    leave_ring(queue, HOLDING, r)
    own.holder[r] = 0


@kernel
def pass_over(own: VllmTables, requests: RequestTable, queue: WaitingTable, r: int) -> None:
    wait_no_more(own, requests, queue, r)
    own.passed[own.word[PASSED]] = r
    own.word[PASSED] += 1


@kernel
def wait_again(own: VllmTables, requests: RequestTable, queue: WaitingTable) -> None:
    """Those that were passed over go back to the head of the line."""
    count = own.word[PASSED]
    for i in range(count):
        wait_first(own, requests, queue, own.passed[count - 1 - i if own.option[KEEPS_ORDER] else i])
    own.word[PASSED] = 0
