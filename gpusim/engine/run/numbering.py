"""The queues of a run: how they are numbered, and the tables that name them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.machine.chain import POOLS
from gpusim.machine.constants import Machine
from gpusim.machine.tiers import COPY_ENGINES
from gpusim.trace.submission import stream_priorities
from gpusim.trace.trace import KERNEL, OP, Trace
from gpusim.trace.workload import Workload

RECALLS = "recalls"  # the engine of copies from a lent memory to a tier below
NO_BOUND = 1 << 40  # slots of a queue whose copies take turns elsewhere


@dataclass(frozen=True)
class Numbering:
    """Streams first, then two queues for each copy engine: to the device, from the device.

    engines  by name, nearest first; tiers of one name take turns in the same queues
    ranked   behind all others, each engine has two queues more, of copies that nothing waits for yet
    """

    streams: int
    engines: tuple[str, ...]
    ranked: bool

    @property
    def behind(self) -> int:
        """From a queue of copies that something waits for to the queue of those of the same engine that nothing does."""
        return 2 * len(self.engines) if self.ranked else 0

    @property
    def queues(self) -> int:
        return self.streams + 2 * len(self.engines) + self.behind

    def to_device(self, engine: str) -> int:
        """The queue of its copies to the device; that of its copies from the device is the next."""
        return self.streams + 2 * self.engines.index(engine)


def numbering(trace: Trace, m: Machine, ranked: bool) -> Numbering:
    """The queues of a run of this trace on this machine."""
    streams = int(trace.stream.max(initial=0)) + 1
    engines = dict.fromkeys([tier.queue for tier in m.tiers] + [RECALLS] * any(tier.lender for tier in m.tiers))
    return Numbering(streams, tuple(engines), ranked)


def queue_table(work: Workload, m: Machine, numbers: Numbering, turns: bool) -> Any:
    """QUEUE[Q]: all of them empty, each with its place in the table of activities, its slots and its limit.

    turns: swaps by the GPU's copy engines take turns with the program's own copies, and their queues have no slots themselves.
    """
    widest = int(np.diff(work.acc_start).max(initial=0))
    ring = {False: power_of_two(m.queue + 1), True: power_of_two(2 * (work.max_live + widest) + 1024)}
    copying = np.arange(numbers.queues) >= numbers.streams
    rings = np.where(copying, ring[True], ring[False])
    queues = table(numbers.queues, state.QUEUE)
    queues["mask"] = rings - 1
    queues["base"] = np.cumsum(rings) - rings
    queues["limit"] = np.where(copying, rings // 2, m.queue)
    queues["gap"] = np.where(copying, 0, m.gap)
    queues["slots"], queues["pair"], queues["mate"] = 1, -1, -1
    queues["computes"][_computing(work.trace)] = 1
    queues["priority"][: numbers.streams] = stream_priorities(work.trace)
    engines = {tier.queue: (tier.slots_in, tier.slots_out) for tier in reversed(m.tiers)} | {RECALLS: (1, 1)}
    for name in numbers.engines:
        first = numbers.to_device(name)
        for into in {first, first + numbers.behind}:
            pair = [into, into + 1]
            queues["role"][pair] = state.TO_DEVICE, state.FROM_DEVICE
            shared = turns and name == COPY_ENGINES
            queues["slots"][pair] = (NO_BOUND, NO_BOUND) if shared else engines[name]
            if shared:
                queues["engine"][pair] = state.TO_DEVICE, state.FROM_DEVICE
            if numbers.ranked:
                other = first if into > first else first + numbers.behind
                queues["mate" if shared else "pair"][pair] = other, other + 1
    return queues


def engine_table(m: Machine) -> Any:
    """ENGINE[3]: the GPU's copy engines, by direction."""
    engines = table(3, state.ENGINE)
    engines["slots"][[state.TO_DEVICE, state.FROM_DEVICE]] = m.copies_in, m.copies_out
    return engines


def flows_at_once(m: Machine, numbers: Numbering) -> int:
    """The most copies that can flow: one of each stream, and of each engine for tiers as many as it has slots."""
    slots = {tier.queue: tier.slots_in + tier.slots_out for tier in reversed(m.tiers)}
    return numbers.streams + sum(slots.values()) + (RECALLS in numbers.engines)


def memory_table(m: Machine, numbers: Numbering) -> Any:
    """MEMORY[1 + tiers]: the tiers below the device, with the queues and ways of their copies."""
    memories = table(1 + len(m.tiers), state.MEMORY)
    memories["account"], own, falls = -1, 0, state.SWAPS + 2 * len(m.tiers)
    for i, tier in enumerate(m.tiers):
        memory, into = memories[1 + i], numbers.to_device(tier.queue)
        memory["capacity"], memory["waits"], memory["pool"] = tier.capacity, tier.waits, POOLS.index(tier.pool)
        memory["take_ns"], memory["take_per_byte"], memory["give_per_byte"] = tier.take, tier.take_per_byte, tier.give_per_byte
        memory["q_in"], memory["q_out"] = into, into + 1
        memory["q_early"], memory["q_late"] = into + numbers.behind, into + 1 + numbers.behind
        memory["way_in"], memory["way_out"] = state.SWAPS + 2 * i, state.SWAPS + 2 * i + 1
        memory["place"], memory["far"] = tier.place, tier.far
        if tier.lender:  # its falls lead to the tiers of its own behind it
            memory["account"], memory["falls"] = 0, falls - own
            falls += len(tier.falls)
        else:
            memory["own"], own = own, own + 1
    return memories


def power_of_two(n: int) -> int:
    """The least that is not below n."""
    return 1 << max(0, (int(n) - 1).bit_length())


def _computing(trace: Trace) -> Any:
    """int64[...]: the streams that run kernels; stream 0 when none does."""
    on = trace.stream[trace.kind == OP][trace.activity == KERNEL]
    return np.unique(on).astype(np.int64) if len(on) else np.zeros(1, np.int64)
