"""A case as this package's scheduler plays it, told in the same integers as the real classes tell it.

For each step, after it has been composed:
    requests scheduled; of each in order: its number, tokens, tokens computed before, blocks, how many leading blocks have been
    told before, the others
    requests running, in order; requests waiting, in order; those of them that have been preempted, by number
    free blocks; tokens looked up and found in the prefix cache so far; the same of preempted requests
and after it is over:
    requests that have ended, in order; free blocks
Of asynchronous scheduling also how many output tokens are owed, and how many tokens are stale; a step after which none is over
has -1 in the place of those that have ended.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
from step_clock import ready
from vllm_cases import Case, token

from gpusim.policies.registry import get
from gpusim.policies.schedule.parts import tables as t
from gpusim.policies.schedule.parts.running import EngineLimits, Running, request_table
from gpusim.policies.schedule.parts.tables import NEVER, RequestTable
from gpusim.policies.schedule.parts.waiting import HOLDING, IN_LINE, LISTS

IDLE = 50  # steps without work after which a case is over


def limits_of(case: Case) -> EngineLimits:
    """What the engine of a case is started with."""
    return EngineLimits(case["blocks"], case["block_size"], case["max_seqs"], case["max_tokens"], case["max_len"])


def spec_of(case: Case, version: str) -> dict[str, Any]:
    """The scheduler of a case, with its options."""
    newer = {"scheduler_reserve_full_isl": int(case["reserve"]), "watermark": case["watermark"]} if version != "0.11" else {}
    ahead = {} if version == "0.11" else {"async_scheduling": int(case.get("ahead", 0)), "ignore_eos": int(not case.get("eos"))}
    options = {
        "version": version, "policy": case["policy"], "enable_prefix_caching": int(case["caching"]),
        "long_prefill_token_threshold": case["long_prefill"], "enable_chunked_prefill": int(case["chunked"]),
        "too_long": "cut", "max_loras": case.get("max_loras", 0),
    }  # fmt: skip
    return {"name": "vllm", "params": options | newer | ahead}


def table_of(case: Case) -> RequestTable:
    """The requests of a case, all blocks of prompt and output identified: one number for each leading sequence of tokens."""
    size, seen = case["block_size"], {}  # type: ignore[var-annotated]
    start, identity, known = [0], [], []
    for i, request in enumerate(case["requests"]):
        made = [token(i, k) for k in range(min(request["out"], case["max_len"]))]
        whole, parent = request["prompt"] + made, 0
        for end in range(size, len(whole) + 1, size):
            parent = seen.setdefault((parent, *whole[end - size : end]), len(seen) + 1)
            identity.append(parent)
        start.append(len(identity))
        known.append(len(whole) // size * size)
    columns = {name: [r[name] for r in case["requests"]] for name in ("at", "out", "priority", "adapter")}
    return request_table(
        columns["at"], [len(r["prompt"]) for r in case["requests"]], columns["out"], priority=columns["priority"],
        adapter=columns["adapter"],
        leaves=[r["leaves"] if r["leaves"] >= 0 else NEVER for r in case["requests"]],
        known=known, start=start, identity=identity, piece=size,
    )  # fmt: skip


def running_of(case: Case, version: str) -> Running:
    """The scheduler of a case, before its first step."""
    made: Running = get("schedule", spec_of(case, version)).start(table_of(case), limits_of(case))
    if case["load_steps"] >= 0:
        made.step.word[t.TIERS] = t.ASYNC_LOADS if case["load_steps"] else t.SYNC_LOADS
    return made


def ready_case(case: Case, version: str) -> Callable[[], tuple[int, int, int]]:
    """What plays a case in the compiled loop."""
    below = [request["below"] for request in case["requests"]]
    return ready(running_of(case, version), below, max(case["load_steps"], 0), case["steps"])


class SimulatedCase:
    """One case: what has happened so far, and the answer as it grows."""

    def __init__(self, case: Case, version: str) -> None:
        self.case = case
        self.running = running_of(case, version)
        self.step = self.running.step
        self.own, _, self.queue = (placed.tables for placed in self.running.tables)
        self.told: dict[int, list[int]] = {}  # blocks of each request when it was last told
        self.due: dict[int, list[int]] = {}  # loads that end, by step
        self.answer = array("i")
        self.steps = self.busy = self.idle = self.come = 0
        self.ahead, self.under_way = case.get("ahead", False), 0

    def play(self) -> None:
        """All steps of the case."""
        requests, running, word = self.case["requests"], self.running, self.step.word
        while self.steps < self.case["steps"] and self.idle <= IDLE:
            busy = self.under_way or word[t.N_RUNNING] + word[t.N_WAITING]
            busy = busy or any(self.own.slot[r] >= 0 for due in self.due.values() for r in due)
            if self.come == len(requests) and not busy:
                break
            self.before_step()
            rows = running.compose()
            while rows == t.ASK_TIER:
                asked = word[t.ASKED]
                self.step.below[asked] = requests[asked]["below"]
                rows = running.compose()
            for r, _, _ in self.step.load[: word[t.N_LOADS]] if self.case["load_steps"] else ():
                self.due.setdefault(self.steps + self.case["load_steps"], []).append(int(r))
            self.tell(rows)
            self.over(rows)
            for r in self.due.pop(self.steps + 1, ()):
                running.loaded(r)
            self.answer.append(int(word[t.FREE]))
            self.idle = 0 if rows or self.come < len(requests) else self.idle + 1
            self.busy += rows > 0
            self.steps += 1

    def over(self, rows: int) -> None:
        """The step is over; scheduled ahead it is the oldest, where two are under way or none could be composed."""
        if not self.ahead:
            self.answer.append(ended := self.running.over())
            self.answer.extend(self.step.ended[:ended].tolist())
            return
        self.under_way += rows > 0
        self.leave(1)
        if self.under_way == 0 or (rows and self.under_way < 2):
            self.answer.append(-1)
            return
        self.under_way -= 1
        self.answer.append(ended := self.running.over())
        self.answer.extend(self.step.ended[:ended].tolist())

    def leave(self, late: int) -> None:
        """Clients go away; scheduled ahead, those of odd requests while the engine waits for an output."""
        for i in range(self.come):
            if self.case["requests"][i]["leaves"] == self.steps and (i % 2 if self.ahead else 0) == late:
                self.running.leave(i)

    def before_step(self) -> None:
        """Clients go away, then requests come."""
        requests = self.case["requests"]
        self.leave(0)
        while self.come < len(requests) and requests[self.come]["at"] <= self.steps:
            self.running.arrive(self.come)
            self.come += 1

    def tell(self, rows: int) -> None:
        """Write the step down."""
        step, out = self.step, self.answer
        out.append(rows)
        for who, tokens, before in zip(
            step.request[:rows].tolist(), step.tokens[:rows].tolist(), step.before[:rows].tolist(), strict=True
        ):
            blocks, told = self.blocks_of(who), self.told.get(who, [])
            kept = len(told) if blocks[: len(told)] == told else 0
            out.extend([who, tokens, before, len(blocks), kept, *blocks[kept:]])
            self.told[who] = blocks
        for who in list(self.told):
            if self.own.slot[who] < 0:
                self.told.pop(who)
        waiting = self.waiting()
        for several in (self.own.running[: step.word[t.N_RUNNING]].tolist(), waiting):
            out.extend([len(several), *several])
        preempted = np.flatnonzero(step.status == t.PREEMPTED).tolist()
        out.extend([len(preempted), *preempted])
        out.extend(step.word[[t.FREE, t.QUERIED, t.HIT, t.QUERIED_AGAIN, t.HIT_AGAIN]].tolist())
        if self.ahead:
            there = step.status <= t.SWAPPED
            out.extend([int(self.own.owed[there].sum()), int(self.own.stale[there].sum())])

    def blocks_of(self, r: int) -> list[int]:
        slot = self.own.slot[r]
        return [] if slot < 0 else self.own.block[slot, : self.own.held[r]].tolist()

    def waiting(self) -> list[int]:
        """Requests that wait, those that hold blocks first, in the order in which they are tried."""
        queue, found = self.queue, []
        for ring in (HOLDING, IN_LINE):
            end = queue.ahead.size - LISTS + ring
            r = queue.behind[end]
            while r != end:
                found.append(int(r))
                r = queue.behind[r]
        heap = queue.heap[: queue.count[LISTS]].tolist()
        return found + sorted(heap, key=lambda r: (self.case["requests"][r]["priority"], r))


def answer(case: Case, version: str) -> tuple[int, int, Any]:
    """(steps, those of them in which a request ran, integers) of a case."""
    played = SimulatedCase(case, version)
    played.play()
    return played.steps, played.busy, np.frombuffer(played.answer, np.int32)
