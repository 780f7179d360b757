"""What SGLang's scheduler keeps beside the tables of the contract: options, its budget, and the KV pages of each request."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import numpy as np

from gpusim.base.compiled import by_pointer, tables_at
from gpusim.base.tables import signature

i4, i8, f8 = np.int32, np.int64, np.float64

# Options.
(
    PAGE, PER_PIECE, MAX_SEQS, CHUNK, MAX_LEN, PAGES_THERE, ORDER, MAX_PREFILL, CACHING, MAX_NEW, IGNORE_EOS, MATCH_ALL, IS_LRU,
    OVERLAPS, MIXES, OPTIONS,
) = range(16)  # fmt: skip
FCFS, LPM, LOF = range(3)

# Words: free pages and rows, size of the batch that decodes, the request with a chunk (-1: none), whether no more are admitted,
# passes over those that wait; of a pass the tokens of input and of chunk that are left, and those that it takes; how many rows
# of a prefill have not joined the batch.  UNDER_WAY: steps that are composed and not over; OLDEST: the half of `flight` that
# the older one has; CUT: whether the latest step has cut a prompt; PROMPTS: rows of a prefill that are of prompts, the first.
(
    PAGES_FREE, SLOTS_FREE, BATCH, CHUNKED, FULL, PASSES, INPUT_LEFT, CHUNK_LEFT, TAKEN, PREFILLS, UNDER_WAY, OLDEST, CUT,
    PROMPTS, SGLANG_WORDS,
) = range(15)  # fmt: skip
TO_REQUESTS, TO_STEP, TO_TREE, TO_QUEUE = range(4)  # addresses
RATIO, FIRST_RATIO, LEAST_RATIO, DECAY, PROMISED, SHARES = range(6)


@by_pointer
class SglangTables(NamedTuple):
    """A slot is a row of page numbers; a request has one as long as it holds pages."""

    at: Annotated[Any, i8, 4]
    option: Annotated[Any, i8, OPTIONS]
    word: Annotated[Any, i8, SGLANG_WORDS]
    share: Annotated[Any, f8, SHARES]           # of the tokens allowed that requests are expected to make; PROMISED: tokens
    running: Annotated[Any, i4, "seqs"]         # the batch that decodes, in order
    slot: Annotated[Any, i4, "requests"]        # -1: none
    held: Annotated[Any, i4, "requests"]        # pages
    kept: Annotated[Any, i4, "requests"]        # of its pages, from the first, are the tree's
    inserted: Annotated[Any, i4, "requests"]    # pages that it has inserted before
    node: Annotated[Any, i8, "requests"]        # of the tree, which it has locked
    matched: Annotated[Any, i4, "requests"]     # pages found when it was last looked at
    free_slot: Annotated[Any, i4, "slots"]
    free_page: Annotated[Any, i8, "pages"]
    page: Annotated[Any, i8, "slots", "pages of a request"]
    key: Annotated[Any, i8, "pages of a request"]
    gone: Annotated[Any, np.int8, "requests"]   # its client has gone away
    flying: Annotated[Any, i4, "requests"]      # steps under way that have a row of the request
    flight: Annotated[Any, i8, "flights", 4]    # rows of two steps: request, tokens, those before, whether it brings a token
    rows: Annotated[Any, i8, 2]                 # how many there are of each step
    prompts: Annotated[Any, i8, 2]              # how many of them, the first, are of prompts
    line: Annotated[Any, i8, "line", 3]         # requests to be put in order, and what counts, first the one, then the other


SGLANG = signature(SglangTables)
sglang_at = tables_at(SGLANG)
