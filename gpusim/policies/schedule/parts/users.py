"""Schedulers in plain Python: what they see, and how their answers reach the compiled verbs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.compiled import direct
from gpusim.base.errors import PolicyError
from gpusim.policies.ask import blamed
from gpusim.policies.entry import Entry, Value
from gpusim.policies.schedule.parts import asked
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts import vllm_tables as v
from gpusim.policies.schedule.parts.running import Running

I64 = npt.NDArray[np.int64]
_NONE = np.zeros(0, np.int64)


class ServingView:
    """What a scheduler sees before a step: columns over `requests`, arrays of int64.

    requests  numbers of the requests that run, in the order of their start, then of those that wait, in order
    now       ns
    free      blocks
    """

    def __init__(self, running: Running, requests: I64, count: int, now: int) -> None:
        self._table, self._step, self._own = running.requests, running.step, running.own
        self.requests, self.now, self._running_count = requests, now, count
        self.free = int(running.tables[1].tables.word[0])
        self.max_tokens, self.max_seqs = running.limits.max_tokens, running.limits.max_seqs
        self._names = running.tables[1].tables.name
        self._held = running.tables[0].tables.held

    @property
    def running(self) -> I64:
        """Numbers of those that run."""
        return self.requests[: self._running_count]

    @property
    def waiting(self) -> I64:
        """Numbers of those that wait."""
        return self.requests[self._running_count :]

    @cached_property
    def arrival(self) -> I64:
        """ns."""
        return self._table.arrival[self.requests]

    @cached_property
    def prompt(self) -> I64:
        """Tokens."""
        return self._table.prompt[self.requests]

    @cached_property
    def output(self) -> I64:
        """Tokens that each will have made at its end: a scheduler that reads it knows the future."""
        return self._table.output[self.requests]

    @cached_property
    def priority(self) -> I64:
        """The lower matters more."""
        return self._table.priority[self.requests]

    @cached_property
    def made(self) -> I64:
        """Output tokens so far."""
        return self._step.made[self.requests]

    @cached_property
    def computed(self) -> I64:
        """Tokens whose keys and values are on the device."""
        return self._step.computed[self.requests]

    @cached_property
    def lacking(self) -> I64:
        """Tokens that have to be computed before the next one is made."""
        return self.prompt + self.made - self.computed

    @cached_property
    def left(self) -> I64:
        """Tokens that are still to be computed until its end, which is in the future."""
        return self.lacking + self.output - self.made - 1

    @cached_property
    def preemptions(self) -> I64:
        return self._step.preemptions[self.requests]

    @cached_property
    def blocks(self) -> I64:
        """KV blocks that each holds."""
        return self._held[self.requests]

    @cached_property
    def cached(self) -> I64:
        """Unused blocks that the prefix cache can find, in the order in which they would be reused."""
        found = np.empty(self._names.size, np.int64)
        return found[: asked.list_cached(self._own, found)]

    def identity(self, blocks: Any) -> I64:
        """Of what these blocks hold: equal for equal tokens up to the end of the block."""
        return self._names[blocks]


class PythonScheduler:
    """A user's function `order(view)`, or an object of the user's class, beside the compiled verbs of `asked`."""

    def __init__(self, entry: Entry, target: Any, values: Mapping[str, Value], running: Running) -> None:
        self._entry, self._running = entry, running
        with blamed(entry):
            made = target(**values) if inspect.isclass(target) else partial(target, **values)
        self._victim, self._evict = getattr(made, "victim", None), getattr(made, "evict", None)
        self._order: Any = made if isinstance(made, partial) else getattr(made, "order", None)
        if self._order is None:
            raise PolicyError(f"schedule policy '{entry.name}' has no method 'order(view)'", entry.where)
        self._own = running.tables[0].tables
        self._take_order, self._give_way = direct(asked.take_order), direct(asked.give_way)
        self._own.option[v.GOES_ON] = self._victim is not None
        self._demanded = False  # the order says how many tokens of each request are computed

    def answer(self, now: int) -> None:
        """Name the requests that run, or the one that gives way, as `compose` has asked."""
        if self._own.word[v.PHASE] == v.LACKING:
            self._yield(now)
        else:
            self._say_order(now)

    def _view(self, now: int) -> ServingView:
        """What the scheduler sees now: in a step that is under way some have started, and some have been preempted."""
        running = self._own.running[: self._running.step.word[t.N_RUNNING]].astype(np.int64)
        others = self._listed[~np.isin(self._listed, running)]
        return ServingView(self._running, np.concatenate([running, others]), running.size, now)

    def _say_order(self, now: int) -> None:
        self._listed = self._own.order[: self._own.word[v.LISTED]].copy()
        view = ServingView(self._running, self._listed, int(self._running.step.word[t.N_RUNNING]), now)
        with blamed(self._entry):
            first = None if self._evict is None or not view.cached.size else self._evict(view)
            said = self._order(view)
        if first is not None:
            self._reuse(self._numbers(first, "evict"))
        order = self._numbers(said, "order", rows=True)
        self._demanded = order.ndim == 2
        wish = np.ascontiguousarray(order[:, 1]) if self._demanded else np.zeros(order.shape[0], np.int64)
        order = np.ascontiguousarray(order[:, 0] if self._demanded else order)
        wrong, at = self._take_order(self._running.own, order, wish)
        if wrong:
            raise self._refused(wrong, int(order[at]), int(wish[: at + 1].sum()))

    def _yield(self, now: int) -> None:
        r = int(self._own.order[self._own.word[v.POSITION]])
        if self._victim is None:
            if self._demanded:
                said = f"starts more than fits: for request {r} there are no blocks, {self._view(now).free} are free"
                raise PolicyError(f"policy '{self._entry.name}' {said}", self._entry.where)
            number = self._last_after(r)
        else:
            with blamed(self._entry):
                victim = self._victim(self._view(now), r)
            default = r if self._running.step.status[r] == t.RUNNING else asked.NOBODY
            number = default if victim is None else int(self._numbers([victim], "victim")[0])
        if self._give_way(self._running.own, number, now):
            raise PolicyError(f"policy '{self._entry.name}' preempts request {number}, which does not run", self._entry.where)

    def _last_after(self, r: int) -> int:
        """The running request that matters least, r itself at the most; a request that waits displaces none."""
        if self._running.step.status[r] != t.RUNNING:
            return asked.NO_MORE
        named = self._own.order[: self._own.word[v.LISTED]]
        left_out = np.setdiff1d(self._own.running[: self._running.step.word[t.N_RUNNING]], named)
        if left_out.size:
            return int(left_out[-1])
        later = named[self._own.word[v.POSITION] :]
        return int(later[self._running.step.status[later] == t.RUNNING][-1])

    def _reuse(self, blocks: I64) -> None:
        if (wrong := asked.reuse_first(self._running.own, np.ascontiguousarray(blocks))) >= 0:
            said = f"evicts block {blocks[wrong]}, which is not a free one of the prefix cache"
            raise PolicyError(f"policy '{self._entry.name}' {said}", self._entry.where)

    def _numbers(self, said: Any, method: str, rows: bool = False) -> I64:
        found = np.asarray(_NONE if said is None else said)
        if not found.size:
            return _NONE
        if found.dtype.kind not in "iu" or not (found.ndim == 1 or (rows and found.ndim == 2 and found.shape[1] == 2)):
            wanted = "whole numbers, or rows (request, tokens)" if rows else "whole numbers"
            answered = f"'{method}' of policy '{self._entry.name}' answers {said!r:.60}, not {wanted}"
            raise PolicyError(answered, self._entry.where)
        return found.astype(np.int64, copy=False)

    def _refused(self, wrong: int, r: int, tokens: int) -> PolicyError:
        limits = self._running.limits
        said = {
            asked.TOLD_TWICE: f"names request {r} twice",
            asked.NOT_THERE: f"names request {r}, which neither runs nor waits",
            asked.TOO_MANY_TOKENS: f"starts more than fits: {tokens} tokens in a step of {limits.max_tokens}",
            asked.TOO_MANY_REQUESTS: f"starts more than fits: with request {r} more than {limits.max_seqs} would run",
        }[wrong]
        return PolicyError(f"policy '{self._entry.name}' {said}", self._entry.where)
