"""SGLang's scheduler with its radix cache: sglang@0.5, by the sources of 0.5.23.

Requests that wait are prefilled first, in chunks, as long as the tokens that running requests may still make find room; a step
is either a prefill or a token for each running request, with mixed chunks both.  Where these find no page, unused prefixes are
evicted, then requests retract: those with the shortest outputs wait and are computed again.  Not modelled are priorities,
speculation, sliding windows, LoRA, HiCache.

version  0.5
schedule_policy  fcfs, lpm (longest prefix first; fcfs above 128 waiting) or lof (longest output first)
radix_eviction_policy  lru, lfu, slru, priority, tlru; fifo, mru and filo, which only the class has
schedule_conservativeness  more of it keeps more room for outputs
chunked_prefill  1: prompts are cut to the tokens of a step; 0: each is computed whole
max_prefill_tokens  of a prefill without chunks, beyond its first prompt
enable_radix_cache  0: nothing is shared
max_new_tokens  that requests ask for; 0: as many as they will make
ignore_eos  1: room is kept for all tokens that a running request may make
match_all_waiting  1: each pass makes the prefixes of all waiting requests recent, as the tree in Rust; 0: as the tree in Python
enable_mixed_chunk  1: running requests make a token each in the step of a prefill, if there is room for all of them
disable_overlap_schedule  1: a step is composed when the one before is over; 0: while it is computed
tlru_threshold  of tlru: tokens that may be prefilled in time
tlru_next_prompt_estimate  of tlru: tokens that a next prompt adds

Source: sglang 0.5.23, srt/managers and srt/mem_cache (Apache-2.0), rules in own words, compared step by step.
"""

from __future__ import annotations

import numpy as np

from gpusim.base.compiled import Placed, kernel, outlined
from gpusim.base.errors import PolicyError
from gpusim.base.tables import filled
from gpusim.policies.compiled import F64, verb
from gpusim.policies.schedule.parts import sglang_options as given
from gpusim.policies.schedule.parts import sglang_tables as s
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.arriving import note_arrival
from gpusim.policies.schedule.parts.radix_tables import POLICIES, RADIX, ROOT, RadixTree, radix_at, radix_tree
from gpusim.policies.schedule.parts.running import EngineLimits, InCommon
from gpusim.policies.schedule.parts.sglang_ahead import join_batch, land, set_out
from gpusim.policies.schedule.parts.sglang_decode import decode
from gpusim.policies.schedule.parts.sglang_lengths import makes_its_last, most_tokens
from gpusim.policies.schedule.parts.sglang_line import join_line
from gpusim.policies.schedule.parts.sglang_pages import checkpoint, finish
from gpusim.policies.schedule.parts.sglang_prefill import prefill
from gpusim.policies.schedule.parts.sglang_tables import SGLANG, SglangTables, sglang_at
from gpusim.policies.schedule.parts.tables import VERB, RequestTable, StepTable, requests_at, step_at
from gpusim.policies.schedule.parts.vllm_blocks import length
from gpusim.policies.schedule.parts.waiting import IN_LINE, NONE, WAITING_TABLE, leave_ring, waiting_at, waiting_table

NUMBERS = "gpusim.policies.schedule.parts.sglang_options"
PARAMS = {
    "version": "0.5", "schedule_policy": "fcfs", "radix_eviction_policy": "lru", "schedule_conservativeness": 1.0,
    "chunked_prefill": 1, "max_prefill_tokens": 16384, "enable_radix_cache": 1, "max_new_tokens": 0, "ignore_eos": 0,
    "match_all_waiting": 0, "tlru_threshold": 0, "tlru_next_prompt_estimate": 0,
    "disable_overlap_schedule": 0, "enable_mixed_chunk": 0,
}  # fmt: skip
UNMODELLED = {
    "speculative_algorithm": "speculation", "enable_hierarchical_cache": "HiCache's pool in host memory",
    "enable_priority_scheduling": "priorities",
    "enable_lora": "adapters",
}  # fmt: skip
MARGIN = 5  # tokens of the longest sequence that a prompt may not reach into


def state(shared: InCommon, limits: EngineLimits, params: F64) -> list[Placed]:
    """Its tables for these requests, its own first; PolicyError where the engine would not start."""
    if params[given.P_CHUNKED] and limits.max_tokens < limits.block_size:
        said = f"a chunk of {limits.max_tokens} tokens is less than a page of {limits.block_size}"
        raise PolicyError(said, hint="SGLang wants chunks of whole pages")
    if params[given.P_MIXED] and limits.max_tokens <= limits.max_seqs:
        said = f"a chunk of {limits.max_tokens} tokens has no room beside those of {limits.max_seqs} running requests"
        raise PolicyError(said, hint=f"with mixed chunks: more tokens of a step, or at most {limits.max_tokens - 1} requests")
    n, seqs, pages = shared.requests.arrival.size, limits.max_seqs, limits.blocks
    tree = Placed(
        radix_tree(
            pages, limits.block_size, POLICIES[int(params[given.P_EVICTION])],
            threshold=int(params[given.P_THRESHOLD]), estimate=int(params[given.P_ESTIMATE]),
        ), RADIX,
    )  # fmt: skip
    queue = Placed(waiting_table(n, False), WAITING_TABLE)
    width = -(-min(limits.max_len, pages * limits.block_size) // limits.block_size) + 1
    lengths = {"seqs": seqs, "requests": n, "slots": seqs + 1, "pages": pages, "pages of a request": width,
               "line": max(seqs + 1, 129), "flights": 2 * seqs}  # fmt: skip
    own = filled(SglangTables, lengths)
    own.at[:] = shared.requests_at, shared.step_at, tree.address, queue.address
    own.option[:] = _options(shared, limits, params)
    own.slot[:], own.node[:], own.word[s.CHUNKED] = -1, ROOT, NONE
    own.free_slot[:], own.word[s.SLOTS_FREE] = np.arange(seqs + 1), seqs + 1
    own.free_page[:], own.word[s.PAGES_FREE] = np.arange(pages)[::-1], pages
    first = min(0.7 * params[given.P_CONSERVATIVE], 1.0)
    least = min(0.14 * first, 1.0)
    own.share[:] = first, first, least, (first - least) / 600, 0.0
    shared.step.word[t.FREE] = shared.step.word[t.BLOCKS] = pages
    shared.step.word[t.AHEAD] = own.option[s.OVERLAPS]
    return [Placed(own, SGLANG), tree, queue]


def _options(shared: InCommon, limits: EngineLimits, params: F64) -> list[int]:
    return [
        limits.block_size, max(int(shared.requests.piece[0]) // limits.block_size, 1), limits.max_seqs,
        limits.max_tokens * int(params[given.P_CHUNKED]), limits.max_len, limits.blocks, int(params[given.P_ORDER]),
        int(params[given.P_MAX_PREFILL]), int(params[given.P_CACHING]), int(params[given.P_MAX_NEW]),
        int(params[given.P_IGNORE_EOS]),
        int(params[given.P_MATCH_ALL]), int(POLICIES[int(params[given.P_EVICTION])] == "lru"),
        1 - int(params[given.P_NO_OVERLAP]), int(params[given.P_MIXED]),
    ]  # fmt: skip


@verb(VERB)
def arrive(at: int, r: int, now: int) -> int:
    own = sglang_at(at)
    requests, step, queue = requests_at(own.at[s.TO_REQUESTS]), step_at(own.at[s.TO_STEP]), waiting_at(own.at[s.TO_QUEUE])
    reason = 0
    if requests.prompt[r] < 1:
        reason = t.EMPTY
    elif requests.prompt[r] >= most_tokens(own) - MARGIN:
        reason = t.LONG_PROMPT if most_tokens(own) == own.option[s.MAX_LEN] - 1 else t.NO_ROOM
    if note_arrival(step, r, reason) == 0:
        join_line(own, requests, queue, r)
    return reason


@verb(VERB)
def compose(at: int, r: int, now: int) -> int:
    own = sglang_at(at)
    requests, step = requests_at(own.at[s.TO_REQUESTS]), step_at(own.at[s.TO_STEP])
    tree, queue = radix_at(own.at[s.TO_TREE]), waiting_at(own.at[s.TO_QUEUE])
    for word in range(8):  # the counts of rows
        step.word[word] = 0
    if own.word[s.CHUNKED] != NONE:
        checkpoint(own, requests, step, tree, own.word[s.CHUNKED], step.computed[own.word[s.CHUNKED]])
    if own.option[s.OVERLAPS]:
        join_batch(own, step)
    rows = prefill(own, requests, step, tree, queue)
    own.word[s.PREFILLS] = rows
    if rows == 0:
        rows = decode(own, requests, step, tree, queue)
    total = 0
    for row in range(rows):
        total += step.tokens[row]
    step.word[t.N_TOKENS] = total
    step.word[t.STEPS] += 1
    if rows and own.option[s.OVERLAPS]:
        set_out(own, requests, step)
    count(own, step, tree)
    return rows


@kernel
def count(own: SglangTables, step: StepTable, tree: RadixTree) -> None:
    """How many pages are free, those of unused prefixes among them."""
    step.word[t.FREE] = own.word[s.PAGES_FREE] + tree.tree[0].evictable // own.option[s.PAGE]


@verb(VERB)
def over(at: int, r: int, now: int) -> int:
    own = sglang_at(at)
    requests, step, tree = requests_at(own.at[s.TO_REQUESTS]), step_at(own.at[s.TO_STEP]), radix_at(own.at[s.TO_TREE])
    ended = land(own, requests, step, tree) if own.option[s.OVERLAPS] else end_rows(own, requests, step, tree)
    count(own, step, tree)
    step.word[t.N_ENDED] = ended
    return ended


@outlined
def end_rows(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree) -> int:
    """The rows of the step at hand are computed; how many requests have ended."""
    prefills = own.word[s.PREFILLS] > 0
    batch = own.word[s.BATCH] if prefills else 0
    ended = 0
    if prefills and batch == 0:  # what has been prefilled takes the place of an empty batch, and does not know that it was full
        own.word[s.FULL] = 0
    for row in range(step.word[t.N_STEP]):
        request = step.request[row]
        step.computed[request] += step.tokens[row]
        if step.computed[request] < length(requests, step, request):
            own.word[s.FULL] = 0  # its chunk can be found from the next pass on
            continue
        if makes_its_last(own, requests, step, request):
            finish(own, requests, step, tree, request, t.FINISHED)
            step.ended[ended] = request
            ended += 1
            continue
        if prefills and row < own.word[s.PROMPTS]:
            checkpoint(own, requests, step, tree, request, step.computed[request])
        own.running[batch] = request
        batch += 1
    own.word[s.BATCH], own.word[s.PREFILLS] = batch, 0
    if ended:
        own.word[s.FULL] = 0
    return ended


@verb(VERB)
def leave(at: int, r: int, now: int) -> int:
    own = sglang_at(at)
    requests, step, tree = requests_at(own.at[s.TO_REQUESTS]), step_at(own.at[s.TO_STEP]), radix_at(own.at[s.TO_TREE])
    if step.status[r] > t.SWAPPED:
        return 0
    if step.status[r] == t.RUNNING:
        if own.option[s.OVERLAPS] and own.word[s.CHUNKED] != r:
            own.gone[r] = 1  # it ends with its next token
            return 0
        if own.word[s.CHUNKED] == r:
            own.word[s.CHUNKED] = NONE
        else:
            drop_from_batch(own, r)
        own.word[s.FULL] = 0
    else:
        leave_ring(waiting_at(own.at[s.TO_QUEUE]), IN_LINE, r)
        step.word[t.N_WAITING] -= 1
    finish(own, requests, step, tree, r, t.ABORTED)
    count(own, step, tree)
    return 0


@kernel
def drop_from_batch(own: SglangTables, r: int) -> None:
    left = 0
    for i in range(own.word[s.BATCH]):
        if own.running[i] != r:
            own.running[left] = own.running[i]
            left += 1
    own.word[s.BATCH] = left


@verb(VERB)
def loaded(at: int, r: int, now: int) -> int:
    return 0  # it sends for nothing
