"""What requests, a scheduler and the loop that owns time tell each other, as flat arrays that can be copied.

    loop      arrive(r) ─▶ compose() ─▶ [the step takes its time] ─▶ over() ─▶ compose() ...      leave(r), loaded(r) in between
    requests  RequestTable, read only: a request's number is its row
    answers   StepTable: the scheduler writes which run, which were preempted, what left the prefix cache; the loop reads

A verb is `int64(own, r, now)`: `own` is the address at which the scheduler's own tables are placed, `r` a request or 0, `now`
a time in ns.

    arrive   the request comes; 0, or why it is refused (a word of REFUSALS)
    compose  the next step: how many rows of `request` it has, 0 when nothing can run, ASK_TIER when the loop has to write
             below[word[ASKED]] first, ASK when a scheduler in plain Python has to be heard; then it is called again.
             Requests for which there is no room even alone may end here, refused: they stand in `ended`.  STOPPED where the
             real engine would end with an error
    over     the step is over: its tokens are computed, requests that have all theirs make one more; how many have ended.  Where
             word[AHEAD] is 1 it is the older of two that have been composed, and its rows stand in the table again
    leave    the client goes away, between two steps; or what an engine kept of its prompt is on another now
    loaded   what the request waited for has come: below[r] of its tokens are on the device
Times are int64 ns, everything else counts tokens, blocks or requests.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np
from numba import types

from gpusim.base.compiled import by_pointer, tables_at
from gpusim.base.tables import signature

i1, i4, i8 = np.int8, np.int32, np.int64
NEVER = 2**62
VERB = types.int64(types.int64, types.int64, types.int64)

# What a request is doing.  LOADING: it waits for keys and values from a tier below; SWAPPED: its own are there.
ABSENT, WAITING, LOADING, RUNNING, PREEMPTED, SWAPPED, FINISHED, ABORTED, REJECTED = range(9)

# Why a request is refused, after 0 for "it is not".
REFUSALS = (
    "",
    "the prompt is empty",
    "the prompt leaves no room for an output within the longest sequence",
    "prompt and output are longer than the longest sequence",
    "it would need more KV blocks than there are",
    "it asks for an output of no token",
)
EMPTY, LONG_PROMPT, LONG_OUTPUT, NO_ROOM, NO_OUTPUT = range(1, len(REFUSALS))

NOT_NOW = -1  # of `arrive`: there is no room for tokens that come from another engine; they may come later
ALL, PROMPT_ONLY, TOKENS_ONLY = range(3)  # of part[r]

# Answers of `compose` beside a number of rows.
ASK, ASK_TIER, STOPPED = -1, -2, -3
UNKNOWN = -1  # of below[r]: the tiers have not been asked

OUT, IN = 0, 1  # the third number of a row of `swap`

# Words of StepTable.word.  The first are counts of rows, written anew by each `compose`, N_ENDED also by `over`; N_EVICTED and
# N_STORED count on where their lists are full.
(
    N_STEP, N_TOKENS, N_PREEMPTED, N_ENDED, N_LOADS, N_SWAPS, N_EVICTED, N_STORED,
    N_RUNNING, N_WAITING, FREE, BLOCKS, ASKED,
    TIERS,          # the loop writes: 0, or how a look-up that misses on the device asks the tiers: ASYNC_LOADS, SYNC_LOADS
    STEPS, PREEMPTIONS, REFUSED,  # totals
    QUERIED, HIT,   # tokens looked up and found in the prefix cache, as the engine counts them
    QUERIED_AGAIN, HIT_AGAIN,  # the same of requests that had been preempted, where the engine keeps these apart
    ON_DEVICE,      # leading tokens of the request that is asked about, which the prefix cache of the device holds
    WAKE,           # ns at which `compose` is called again although nothing has happened; 0: it need not be
    PARTS,          # parts of requests that wait, where prompt and tokens are scheduled apart
    AHEAD,          # `state` writes: steps that are composed beyond the one under way, 0 or 1
    BESIDE,         # a cost writes: ns of the latest step's CPU work that take no time, as the GPU is busy with the step before
    WORDS,
) = range(27)  # fmt: skip
ASYNC_LOADS, SYNC_LOADS = 1, 2
MOST_LOADS = 1024  # that requests wait for at once; others start later


@by_pointer
class RequestTable(NamedTuple):
    """Requests in the order of their arrival; read only.

    Equal identities mean that all tokens from the first to the end of the piece are equal.  They speak of the first `known`
    tokens of prompt and output; blocks beyond are shared with no other request.
    """

    arrival: Annotated[Any, i8, "requests"]  # ns
    leaves: Annotated[Any, i8, "requests"]   # ns: its client goes away, NEVER: it stays
    prompt: Annotated[Any, i8, "requests"]
    output: Annotated[Any, i8, "requests"]   # tokens after which it ends
    priority: Annotated[Any, i8, "requests"]  # the lower goes first
    adapter: Annotated[Any, i8, "requests"]  # which LoRA adapter it wants; 0: the model as it is
    known: Annotated[Any, i8, "requests"]    # tokens
    start: Annotated[Any, i8, "starts"]      # identity[start[r] : start[r + 1]] are those of request r
    identity: Annotated[Any, i8, "pieces"]
    piece: Annotated[Any, i8, 1]             # tokens of a piece


@by_pointer
class StepTable(NamedTuple):
    """The state of each request, and what the latest verb has decided."""

    word: Annotated[Any, i8, WORDS]
    status: Annotated[Any, i1, "requests"]
    computed: Annotated[Any, i8, "requests"]     # tokens whose keys and values are on the device
    made: Annotated[Any, i8, "requests"]         # tokens of the output
    cached: Annotated[Any, i8, "requests"]       # tokens found when it was first admitted, -1 before
    preemptions: Annotated[Any, i8, "requests"]
    part: Annotated[Any, i1, "requests"]         # what this engine computes of it, which the loop writes before it arrives
    below: Annotated[Any, i8, "requests"]        # leading tokens that the tiers hold; UNKNOWN
    request: Annotated[Any, i8, "rows"]          # the step: a request,
    tokens: Annotated[Any, i8, "rows"]           # how many of its tokens are computed now,
    before: Annotated[Any, i8, "rows"]           # and how many were there before
    preempted: Annotated[Any, i8, "rows"]        # in order
    ended: Annotated[Any, i8, "requests"]
    load: Annotated[Any, i8, "loads", 3]         # request, first token, token after the last
    swap: Annotated[Any, i8, "swaps", 3]         # request, blocks, OUT or IN
    evicted: Annotated[Any, i8, "evictions"]     # identities of blocks that left the prefix cache
    stored: Annotated[Any, i8, "evictions"]      # and of those that came into it


REQUESTS, STEP = signature(RequestTable), signature(StepTable)
requests_at, step_at = tables_at(REQUESTS), tables_at(STEP)
