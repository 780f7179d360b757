"""What vLLM's scheduler keeps beside the tables of the contract: its options, and the blocks of each request."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, tables_at
from gpusim.base.tables import signature

u1, i4, i8 = np.uint8, np.int32, np.int64

# Options.  Those from ALONE_WHOLE on are what versions differ in.
(
    BLOCK, PER_PIECE, MAX_SEQS, MAX_TOKENS, MAX_LEN, BLOCKS_THERE, BY_PRIORITY, CACHING, LONG_PREFILL, CHUNKED, RESERVE_PROMPT,
    WATERMARK, CUTS,
    MAX_LORAS,       # adapters of the requests that run at once; 0: any number
    ASYNC,           # the next step is composed before the output of the one under way has come
    FORESEES,        # the engine knows after how many tokens an output ends; else it learns that from the last one
    ALONE_WHOLE,     # a request without company is not held to `long_prefill`
    TAKES_BACK,      # a victim that the step had already leaves it, and its tokens go to others
    GOES_ON,         # by priority: after a request has preempted itself, the next ones are tried
    NAMELESS_FIRST,  # blocks that hold nothing to be found are reused at once, the latest first
    PASSES_OVER,     # a prompt that must not be cut and is too long for what is left of the step lets later ones pass
    COUNTS_ADMITTED,  # statistics of look-ups: of admissions, preempted requests apart; else of each look-up
    HOLDERS_FIRST,   # requests whose keys and values were sent for have a queue of their own, which goes first
    KEEPS_ORDER,     # those that are passed over wait on in their order; else the last of them becomes the first
    OPTIONS,
) = range(25)  # fmt: skip

# Where `compose` stands, and what it has to know when it is called again.
(
    PHASE, BUDGET, SLOTS_FREE, PASSED, LISTED, POSITION, LORAS, LORA_STEP,
    UNDER_WAY, OLDEST,  # steps whose output has not come, two at most; which half of the flights has the older one
    SENT, DONE,         # steps so far, and those whose output has come
    FENCED,             # requests that have ended, and whose blocks a step under way may still write
    VLLM_WORDS,
) = range(14)  # fmt: skip
FRESH, ADMITTING, HEARING, ORDERED, LACKING = range(5)
TO_REQUESTS, TO_STEP, TO_POOL, TO_QUEUE = range(4)  # addresses


@by_pointer
class VllmTables(NamedTuple):
    """A slot is a row of block numbers; a request has one as long as it holds blocks."""

    at: Annotated[Any, i8, 4]
    option: Annotated[Any, i8, OPTIONS]
    word: Annotated[Any, i8, VLLM_WORDS]
    running: Annotated[Any, i4, "seqs"]        # in the order of their admission
    slot: Annotated[Any, i4, "requests"]       # -1: none
    held: Annotated[Any, i4, "requests"]       # blocks
    named: Annotated[Any, i4, "requests"]      # of its blocks, from the first, are in the prefix cache
    partial: Annotated[Any, u1, "requests"]    # admitted with a part of its tokens, and not yet through with the others
    holder: Annotated[Any, u1, "requests"]     # it waits among those that hold blocks
    arrived: Annotated[Any, u1, "requests"]    # what it waits for is there
    free_slot: Annotated[Any, i4, "slots"]
    block: Annotated[Any, i4, "slots", "blocks of a request"]
    found: Annotated[Any, i4, "blocks of a request"]  # what the look-up at hand has found
    adapter: Annotated[Any, i8, "adapters"]    # LORA_STEP when it was last counted in LORAS, those of running requests
    passed: Annotated[Any, i4, "passed"]       # over in this step, in order
    flying: Annotated[Any, i4, "ahead"]        # of each request: tokens in steps under way,
    owed: Annotated[Any, i4, "ahead"]          # output tokens that these will bring,
    stale: Annotated[Any, i4, "ahead"]         # tokens of them that were in the step before it was preempted,
    latest: Annotated[Any, i8, "ahead"]        # and the latest step that it was in, counted by SENT
    flight: Annotated[Any, i8, "flights", 4]   # rows of steps under way: request, tokens, tokens before, whether it brings one
    rows: Annotated[Any, i8, 2]                # of each of the two
    fence: Annotated[Any, i8, "fences", 2]     # request, and the step that has to be over before its blocks are free
    order: Annotated[Any, i8, "ordered"]       # of a scheduler in plain Python: requests, the first goes first,
    wish: Annotated[Any, i8, "ordered"]        # the tokens of each, 0: all that it lacks,
    mark: Annotated[Any, i8, "ordered"]        # and the step in which each request has been named


VLLM = signature(VllmTables)
vllm_at = tables_at(VLLM)
