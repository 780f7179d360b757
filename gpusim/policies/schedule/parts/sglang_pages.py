"""KV pages of requests as SGLang gives, shares and frees them: look-up, checkpoint into the tree, release.

Source: sglang 0.5.23 srt/mem_cache/{common,unified_radix_cache}.py (Apache-2.0), their rules in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.radix import evict, insert, lock, match, path_pages, unlock
from gpusim.policies.schedule.parts.radix_tables import ROOT, RadixTree
from gpusim.policies.schedule.parts.sglang_tables import (
    CACHING,
    PAGE,
    PAGES_FREE,
    PER_PIECE,
    SLOTS_FREE,
    SglangTables,
)
from gpusim.policies.schedule.parts.tables import N_EVICTED, N_RUNNING, N_STORED, RUNNING, RequestTable, StepTable

OWN = 24  # bits for the number of a page among those of its request


@kernel
def pages_for(own: SglangTables, tokens: int) -> int:
    return (tokens + own.option[PAGE] - 1) // own.option[PAGE]


@kernel
def whole(own: SglangTables, tokens: int) -> int:
    """Tokens of the pages that so many tokens take."""
    return pages_for(own, tokens) * own.option[PAGE]


@kernel
def name_of(own: SglangTables, requests: RequestTable, r: int, k: int) -> int:
    """The identity of all tokens up to the end of the k-th page of request r, which is full."""
    if (k + 1) * own.option[PAGE] > requests.known[r]:
        return -1 - ((r << OWN) | k)
    each = own.option[PER_PIECE]
    return requests.identity[requests.start[r] + k // each] * each + k % each


@kernel
def spell(own: SglangTables, requests: RequestTable, r: int, pages: int) -> None:
    """The request's first pages stand in `key`."""
    for k in range(pages):
        own.key[k] = name_of(own, requests, r, k)


@kernel
def available(own: SglangTables, tree: RadixTree) -> int:
    """Tokens for which there are pages, free or held by unused prefixes."""
    return own.word[PAGES_FREE] * own.option[PAGE] + tree.tree[0].evictable


@outlined
def free_up(own: SglangTables, step: StepTable, tree: RadixTree, tokens: int) -> bool:
    """Evict prefixes until there is room for so many tokens; False where there is not."""
    lacking = tokens - own.word[PAGES_FREE] * own.option[PAGE]
    if lacking > 0:
        before = own.word[PAGES_FREE]
        own.word[PAGES_FREE] = evict(tree, lacking, own.free_page, before)
        for i in range(before, own.word[PAGES_FREE]):
            if step.word[N_EVICTED] < step.evicted.size:
                step.evicted[step.word[N_EVICTED]] = tree.pages[own.free_page[i]].symbol
            step.word[N_EVICTED] += 1
    return own.word[PAGES_FREE] * own.option[PAGE] >= tokens


@outlined
def look(own: SglangTables, requests: RequestTable, tree: RadixTree, r: int, tokens: int) -> int:
    """How many pages of the request's first tokens are in the tree; it is noted where they end."""
    own.node[r], own.matched[r] = ROOT, 0
    if own.option[CACHING]:
        pages = tokens // own.option[PAGE]
        spell(own, requests, r, pages)
        own.node[r] = match(tree, own.key, pages, 0)
        own.matched[r] = tree.tree[0].matched
    return own.matched[r]


@outlined
def hold(own: SglangTables, tree: RadixTree, r: int) -> None:
    """The request uses the prefix found: it has a row from now on, which begins with it."""
    lock(tree, own.node[r])
    own.word[SLOTS_FREE] -= 1
    own.slot[r] = own.free_slot[own.word[SLOTS_FREE]]
    own.held[r] = own.kept[r] = path_pages(tree, own.node[r], own.page[own.slot[r]])


@kernel
def grow(own: SglangTables, r: int, tokens: int) -> None:
    """The request has pages for so many tokens; there are enough."""
    row = own.page[own.slot[r]]
    for k in range(own.held[r], pages_for(own, tokens)):
        own.word[PAGES_FREE] -= 1
        row[k] = own.free_page[own.word[PAGES_FREE]]
        own.held[r] = k + 1


@kernel
def give_back(own: SglangTables, r: int, first: int, end: int) -> None:
    """Pages of the request's row that the tree has not taken over are free."""
    row = own.page[own.slot[r]]
    for k in range(first, end):
        own.free_page[own.word[PAGES_FREE]] = row[k]
        own.word[PAGES_FREE] += 1


@kernel
def note_stored(own: SglangTables, step: StepTable, first: int, end: int) -> None:
    for k in range(first, end):
        if step.word[N_STORED] < step.stored.size:
            step.stored[step.word[N_STORED]] = own.key[k]
        step.word[N_STORED] += 1


@outlined
def checkpoint(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, r: int, tokens: int) -> None:
    """What the request has computed can be found from now on; pages that another has inserted before are free again.

    A node ends where the prompt ends, so that outputs can leave alone.
    """
    if own.option[CACHING] == 0:
        return
    size, row = own.option[PAGE], own.page[own.slot[r]]
    pages, prompt = tokens // size, requests.prompt[r] // size
    spell(own, requests, r, pages)
    priority = requests.priority[r]
    n = insert(tree, own.key, row, pages, 0, priority, own.inserted[r] * size)
    there = tree.tree[0].matched
    note_stored(own, step, there, pages)
    own.inserted[r] = max(own.inserted[r], pages)
    give_back(own, r, own.kept[r], there)
    if 0 < prompt < pages:
        insert(tree, own.key, row, prompt, 0, priority + 1, prompt * size)
    path_pages(tree, n, row)
    unlock(tree, own.node[r])
    lock(tree, n)
    own.node[r], own.kept[r] = n, pages


@outlined
def release(own: SglangTables, tree: RadixTree, r: int) -> None:
    """The request holds nothing any more; what the tree has of it stays there."""
    if own.slot[r] < 0:
        return
    give_back(own, r, own.kept[r], own.held[r])
    unlock(tree, own.node[r])
    own.free_slot[own.word[SLOTS_FREE]] = own.slot[r]
    own.word[SLOTS_FREE] += 1
    own.slot[r] = -1
    own.held[r] = own.kept[r] = own.inserted[r] = own.matched[r] = 0
    own.node[r] = ROOT


@kernel
def finish(own: SglangTables, requests: RequestTable, step: StepTable, tree: RadixTree, r: int, status: int) -> None:
    """The request is over: what it has computed stays in the tree, and its other pages are free."""
    if own.slot[r] >= 0:
        checkpoint(own, requests, step, tree, r, step.computed[r])
    release(own, tree, r)
    step.word[N_RUNNING] -= step.status[r] == RUNNING
    step.status[r] = status
