"""Policies in plain Python about chunks, blocks and pages: compiled code calls back, once for each thing that happens.

    policy ──▶ callback ──address──▶ the driver's loop; the first error ends the run, and is raised behind it

A class with a method `victim` hears of chunks; a class with `launched` or `faulted` hears of kernels and faults, and writes
what it wants into the tables of `ahead`; a function of facts that numba cannot compile, or a class with `belongs`, reads the
vector of facts that a compiled score would get.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np

from gpusim.base.compiled import Callback, function_at
from gpusim.base.errors import PolicyError
from gpusim.engine.pages.bits import PAGES
from gpusim.engine.pages.driver_tables import FREE, GUESS, NO_MEMORY, RESIDENT, WANTED, DriverState
from gpusim.policies.ask import EVICTED, INSERT, TOUCH, blamed
from gpusim.policies.compiled import verb
from gpusim.policies.contract import ASK, SCORE
from gpusim.policies.contract import INSERT as CHANGED
from gpusim.policies.contract import VICTIM as CHOSEN
from gpusim.policies.entry import Entry
from gpusim.policies.facts import facts
from gpusim.policies.forms import EvictPolicy, PagePolicy
from gpusim.policies.page_view import PageView

DRIVERS = -1.0  # of `faulted`: what the driver's tree says
VICTIM = 4      # behind the kinds of events of `ask`
_call = function_at(ASK)


@verb(CHANGED)
def insert(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    """A chunk is in use."""
    return int(_call(S[0], 0)(INSERT, unit, size, 0))


@verb(CHANGED)
def touch(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    """A chunk was served, or used.  Uses in a row are told once: there are millions of them."""
    if S[1] != unit:
        S[1] = unit
        return int(_call(S[0], 0)(TOUCH, unit, size, 0))
    return 0


@verb(CHANGED)
def remove(S, X, unit, size, key):  # type: ignore[no-untyped-def]
    """A chunk is in use no more."""
    return int(_call(S[0], 0)(EVICTED, unit, size, 0))


@verb(CHOSEN)
def victim(S, X, incoming, size, locked):  # type: ignore[no-untyped-def]
    """The chunk that leaves, -1: none."""
    return int(_call(S[0], 0)(VICTIM, incoming, size, 0))


@verb(SCORE)
def score(facts, params):  # type: ignore[no-untyped-def]
    """What Python says of the facts that it has seen written."""
    return _call(int(params[0]), 0)(0, 0, 0, 0)


class PythonPolicies:
    """What one run asks of policies in plain Python."""

    def __init__(self) -> None:
        self.error: BaseException | None = None
        self.held: list[Callback] = []

    def check(self) -> None:
        """Raises what a policy raised."""
        if self.error is not None:
            raise self.error

    def _callback(self, M: DriverState, entry: Entry, function: Callable[..., Any]) -> Callback:
        def answer(*given: int) -> float:
            if self.error is None:
                try:
                    with blamed(entry):
                        return float(function(*map(int, given)))
                except BaseException as error:  # which must not go through compiled code
                    self.error = error
                    M.state["failed"] = NO_MEMORY
            return -1.0

        self.held.append(Callback(answer, 4))
        return self.held[-1]

    def of_facts(self, M: DriverState, policy: PagePolicy, vector: Any) -> Any:
        """The parameters of `score` for a policy that reads some of the facts in `vector`."""
        assert policy.new is not None
        with blamed(policy.entry):
            function = policy.new()
        at = [list(facts(policy.kind)).index(name) for name in policy.facts]

        def ask(*_: int) -> float:
            answer = function(*vector[at].tolist())
            if not isinstance(answer, int | float | np.number | np.bool_) or answer != answer:
                raise policy.error(f"answers {answer!r}, not a number")
            return float(answer)

        return np.array([self._callback(M, policy.entry, ask).address[0]], float)

    def learner(self, M: DriverState, policy: PagePolicy) -> Callback:
        """What a prefetcher that hears of launches and faults is called by."""
        return self._callback(M, policy.entry, _Learner(M, policy))

    def of_chunks(self, M: DriverState, policy: EvictPolicy, g: int, units: int, n_bytes: int, seed: int) -> tuple[Any, Any]:
        """The tables of a class that hears of the chunks of GPU g."""
        assert policy.new_ask is not None
        asked = policy.new_ask()
        asked.start(units, n_bytes, seed)
        hears = _Chunks(asked, M.locks[g], int(M.state["per_block"][0] * M.state["page_bytes"][0]))
        return np.array([self._callback(M, policy.entry, hears).address[0], -1]), np.zeros(1)


class _Chunks:
    """A class with a method `victim`, at work on the chunks of one GPU."""

    def __init__(self, asked: Any, locks: Any, size: int) -> None:
        self.asked, self.locks = asked, locks
        self.sizes = np.full(len(locks), size, np.int64)
        self.named: dict[int, None] = {}  # what it has named beyond what had to leave

    def __call__(self, what: int, unit: int, size: int, _: int) -> float:
        if what != VICTIM:
            self.named.pop(unit, None)
            self.asked.hear(what, unit, size)
            return 0.0
        free = [unit for unit in self.named if not self.locks[unit]]
        if not free:
            free = self.asked.victims(size, self.locks, self.sizes, np.zeros(0, np.int64), {})
            self.named.update(dict.fromkeys(free))
        chosen = next(iter(free), -1)
        self.named.pop(chosen, None)
        return chosen


@cache
def _mask(first: int, outer: int) -> Any:
    """The mask of pages [first, outer)."""
    mask = np.zeros(PAGES, np.uint8)
    mask[first:outer] = 1
    return np.packbits(mask, bitorder="little").view(np.uint64)


def _pages(row: Any) -> list[int]:
    """The pages of a mask, ascending."""
    found: list[int] = np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist()
    return found


class _Learner:
    """A prefetcher in plain Python, at work on the driver's tables."""

    def __init__(self, M: DriverState, policy: PagePolicy) -> None:
        assert policy.new is not None
        self.M, self.policy = M, policy
        with blamed(policy.entry):
            made = policy.new()
        self.launched, self.faulted = getattr(made, "launched", None), getattr(made, "faulted", None)

    def __call__(self, launched: int, gpu: int, kernel_or_block: int, faulted: int) -> float:
        if launched:
            answer = self.launched(self._view(gpu), kernel_or_block) if self.launched else None
            if answer is not None:
                self._forget(gpu)
                self._wants(gpu, answer, -1)
            return 0.0
        answer = None
        if self.faulted:
            answer = self.faulted(self._view(gpu), kernel_or_block, _pages(self.M.bits[faulted]))
        if answer is None:
            return DRIVERS
        return 0.0 if self._wants(gpu, answer, kernel_or_block) else DRIVERS

    def _view(self, gpu: int) -> PageView:
        M = self.M
        row = M.gpus[gpu]
        return PageView(
            gpu, float(M.state["now"][0]), int(M.state["kernel"][0]), int(row["roots"]), int(row["length"][FREE]),
            lambda block: int(M.blocks["range"][self._known(block)]),
            lambda block: len(_pages(M.bits[self._here(gpu, self._known(block))])),
        )  # fmt: skip

    def _here(self, gpu: int, block: int) -> int:
        return (3 * gpu + RESIDENT) * len(self.M.blocks) + block  # as `row` has it

    def _shared(self, plane: int, block: int) -> int:
        return int(self.M.state["shared"][0]) + plane * len(self.M.blocks) + block

    def _forget(self, gpu: int) -> None:
        """What is wanted on this GPU is wanted no more."""
        M, s = self.M, self.M.state
        waiting = [int(M.queue[(s["queue_head"][0] + i) % len(M.queue)]) for i in range(int(s["queue_length"][0]))]
        others = [block for block in waiting if M.blocks["queued"][block] != gpu]
        for block in set(waiting) - set(others):
            M.bits[self._shared(WANTED, block)] = 0
            M.blocks["queued"][block] = 0
        M.queue[: len(others)] = others
        s["queue_head"], s["queue_length"] = 0, len(others)

    def _wants(self, gpu: int, answer: Any, faulted: int) -> bool:
        """Blocks, or (block, first page, pages) each; True: the one that has faulted is among them, and these come with it."""
        M, s, named = self.M, self.M.state, False
        if isinstance(answer, str) or not isinstance(answer, Iterable):
            raise self._refused(answer)
        for one in answer:
            block, first, outer = self._region(one)
            wanted = _mask(first, outer)
            if block == faulted:
                M.bits[int(s["scratch"][0]) + GUESS] |= wanted
                named = True
                continue
            wanted = wanted & ~M.bits[self._here(gpu, block)]
            if wanted.any():
                M.bits[self._shared(WANTED, block)] |= wanted
                if not M.blocks["queued"][block]:
                    M.blocks["queued"][block] = gpu
                    M.queue[(s["queue_head"][0] + s["queue_length"][0]) % len(M.queue)] = block
                    s["queue_length"] += 1
        return named

    def _region(self, one: Any) -> tuple[int, int, int]:
        """(block, first page, the page behind its last)."""
        whole = not isinstance(one, tuple | list)
        if not whole and len(one) != 3:
            raise self._refused(one)
        block = self._known(one if whole else one[0])
        pages = int(self.M.blocks["pages"][block])
        first, count = (0, pages) if whole else (int(one[1]), int(one[2]))
        if first < 0 or count < 0 or first + count > pages:
            raise self.policy.error(f"wants pages {first} to {first + count} of block {block}, which has {pages}")
        return block, first, first + count

    def _known(self, block: Any) -> int:
        if isinstance(block, bool) or not isinstance(block, int | np.integer):
            raise self._refused(block)
        if not 0 <= block < len(self.M.blocks):
            raise self.policy.error(f"names block {block}, and the program has {len(self.M.blocks)}")
        return int(block)

    def _refused(self, answer: Any) -> PolicyError:
        return self.policy.error(f"answers {answer!r}, not blocks: numbers, or (number, first page, pages)")
