"""From a workload, a profile and policies to the tables of the island, all empty and ready to run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from gpusim.base.tables import filled, table
from gpusim.engine import state
from gpusim.engine.run.numbering import RECALLS, Numbering, engine_table, flows_at_once, memory_table, numbering, queue_table
from gpusim.engine.run.ways import connections
from gpusim.engine.state import (
    CLOCK,
    DEVICE,
    HOST,
    INSTRUCTION,
    NEVER,
    RULES,
    TENANT,
    Instructions,
    Island,
    PolicyTables,
    PolicyVerbs,
)
from gpusim.machine.constants import Machine
from gpusim.machine.kernels import needs as needed
from gpusim.machine.kernels.needs import KernelNeeds
from gpusim.machine.sharing import ENGINES, MEMORY, SMS
from gpusim.machine.transfer_times import calls, host_bytes, waits
from gpusim.policies import contract
from gpusim.policies.forms import DefragPolicy, EvictPolicy, PlacePolicy, PoolPolicy, PrefetchPolicy, ReleasePolicy
from gpusim.policies.planning import NOTHING, Schedule
from gpusim.policies.verb_table import addresses
from gpusim.results.log import STALLS
from gpusim.trace import trace as tr
from gpusim.trace.codec import Codec, swap_codec
from gpusim.trace.iterations import iterations
from gpusim.trace.roles import stages
from gpusim.trace.workload import Workload

SAMPLES = 4096          # rows of the memory timeline, at most
LOG_ROOM = 1 << 16      # log records between two visits to Python
CHUNK = 1 << 20         # instructions in memory at once

FORMS = {
    "none": state.NO_EVICTION, "ordered": state.ORDERED, "score": state.SCORE, "score_now": state.SCORE_NOW,
    "ask": state.ASKED,
}  # fmt: skip
FORMS_OF_DEFRAG = {"none": state.NO_DEFRAG, "slide": state.SLIDE, "remap": state.REMAP}
EVENTS = {
    tr.ALLOC: state.I_ALLOC, tr.FREE: state.I_FREE, tr.OP: state.I_OP, tr.SYNC: state.I_SYNC, tr.RECORD: state.I_RECORD,
    tr.WAIT: state.I_WAIT,
}  # fmt: skip
INSTRUCTION_OF = np.full(len(tr.EVENT_KINDS), state.I_PHASE, np.int64)
for _event, _instruction in EVENTS.items():
    INSTRUCTION_OF[_event] = _instruction


@dataclass(frozen=True)
class Shared:
    """What activities of the device share (words of `machine.sharing`), and what kernels need of it where they do.

    active_thread_percentage  of the multiprocessors, what the program's kernels may use together; `needs` knows it
    """

    words: tuple[str, ...] = ()
    active_thread_percentage: int = 100
    needs: KernelNeeds | None = None

    @property
    def bandwidth(self) -> float | None:
        """Of the device's memory, bytes/ns, where that is shared."""
        return self.needs.bandwidth if self.needs is not None and MEMORY in self.words else None


ALONE = Shared()


@dataclass(frozen=True)
class Chosen:
    """The policies of one run."""

    place: PlacePolicy
    evict: EvictPolicy
    prefetch: PrefetchPolicy
    defrag: DefragPolicy
    release: ReleasePolicy | None = None
    pool: PoolPolicy | None = None

    @property
    def ahead(self) -> bool:
        """Whether the prefetch policy looks ahead."""
        return getattr(self.prefetch.module, "FORM", "") != "none"

    @property
    def releases(self) -> bool:
        """Whether anything leaves before its room is wanted."""
        return self.release is not None and self.release.acts


def build(
    work: Workload, m: Machine, chosen: Chosen, seed: int, log: bool, planned: Schedule = NOTHING,
    shared: Shared = ALONE,
) -> tuple[Island, Instructions, PolicyTables, tuple[str, ...]]:
    """All tables of one run, and the names of its links; the program holds its first chunk of instructions."""
    ranked = chosen.ahead or len(planned.actions) > 0 or chosen.releases
    numbers, codec = numbering(work.trace, m, ranked), swap_codec(work.trace)
    works = bool(host_bytes(work.trace).any())
    ways, link, route, curve, names = connections(m, codec, planned.access, shared.bandwidth, works)
    queues = queue_table(work, m, numbers, _takes_turns(work.trace, shared))
    flows = flows_at_once(m, numbers) + (2 * numbers.streams if len(planned.remote) else 0)
    lengths = {
        "Q": numbers.queues, "A": int(queues["mask"].sum()) + numbers.queues, "U": len(work.trace.size),
        "most units alive at once": work.max_live + 1, "flows": flows + 3, "events": 2 * (numbers.streams + flows) + 12,
        "marks": numbers.streams + _stream_events(work.trace) + 1, "streams": numbers.streams, "M": 1 + len(m.tiers),
    }  # fmt: skip
    island = filled(
        Island, lengths, clock=_clock(numbers), fluid=_fluid(), devices=_device(m, work.trace, shared),
        tenants=_tenant(numbers, planned), hosts=_host(m), queues=queues, engines=engine_table(m),
        units=_units(work, codec, planned, chosen), memories=memory_table(m, numbers), ways=ways, link=link, route=route,
        began=np.full(max(1, work.trace.ops), NEVER, np.int64),
    )  # fmt: skip
    program = _program(work, m, planned, shared, curve)
    restart(island, program, len(work.trace.kind))
    if RECALLS in numbers.engines:
        island.tenants["recalls"] = numbers.to_device(RECALLS) + 1
    return island, program, _policies(work, m, chosen, seed, log), names


def _clock(numbers: Numbering) -> Any:
    clock = table(1, CLOCK)
    clock["queues"], clock["streams"] = numbers.queues, numbers.streams
    return clock


def _fluid() -> Any:
    fluid = table(1, state.FLUID)
    fluid["tick"] = NEVER
    return fluid


def _tenant(numbers: Numbering, planned: Schedule) -> Any:
    tenant = table(1, TENANT)
    tenant["ranked"], tenant["remote"], tenant["part"] = numbers.ranked, len(planned.remote) > 0, 1.0
    return tenant


def _device(m: Machine, trace: tr.Trace, shared: Shared) -> Any:
    device = table(1, DEVICE)
    device["shares_engines"] = _takes_turns(trace, shared)
    if shared.needs is not None:
        device["shares_memory"] = MEMORY in shared.words
        device["bandwidth"], device["sms"] = shared.needs.bandwidth, shared.needs.processors
        device["shares_sms"] = SMS in shared.words and _contended(trace, shared.needs)
    device["move_per_byte"] = m.move_per_byte
    for cost in ("malloc", "free"):
        device[f"{cost}_ns"], device[f"{cost}_per_byte"] = getattr(m, cost), getattr(m, f"{cost}_per_byte")
    return device


def _host(m: Machine) -> Any:
    host = table(1, HOST)
    host["operator_ns"], host["submit_ns"], host["wait_ns"], host["cached_ns"] = m.operator, m.submit, m.wait, m.cached
    return host


def _units(work: Workload, codec: Codec | None, planned: Schedule, chosen: Chosen) -> Any:
    """UNIT[U]: nothing is anywhere; what is swapped passes through the codec, what kernels use in place does not."""
    size = work.trace.size
    unit = table(len(size), state.UNIT)
    unit["size"], unit["data"], unit["slot"], unit["next"] = size, work.has_data, -1, np.inf
    unit["wire"] = codec.wire(size) if codec else size
    unit["stored"] = codec.stored(size) if codec else size
    unit["stored"][planned.remote] = size[planned.remote]
    unit["stays"][planned.remote] = 1
    if "stage" in chosen.evict.facts:
        unit["stage"] = stages(work.trace)
    return unit


def with_collectives(program: Any, island: Any, trace: tr.Trace, shared: Shared, blocks: Mapping[int, int]) -> Any:
    """The program whose collectives take so many multiprocessors, by operator; its device shares them from now on."""
    if shared.needs is None or not blocks:
        return program
    needs = needed.with_collectives(shared.needs, trace, blocks)
    island.devices["shares_sms"] = SMS in shared.words and _contended(trace, needs)
    return program._replace(sms=needs.sms)


def _contended(trace: tr.Trace, needs: KernelNeeds) -> bool:
    """Whether any kernel may have to wait for multiprocessors: there are several streams of them, or not enough for one."""
    using = needs.sms[0] > 0
    return len(np.unique(trace.stream[trace.kind == tr.OP][using])) > 1 or bool((needs.sms[0] > needs.processors).any())


def _takes_turns(trace: tr.Trace, shared: Shared) -> bool:
    """Whether the program's own copies between host and device, if there are any, take turns in the copy engines."""
    return ENGINES in shared.words and bool(np.isin(trace.activity, (tr.COPY_IN, tr.COPY_OUT)).any())


def _program(work: Workload, m: Machine, planned: Schedule, shared: Shared, curve: Any) -> Instructions:
    memory = shared.bandwidth is not None
    needs = {} if shared.needs is None else {"sms": shared.needs.sms, "need": shared.needs.memory}
    duration, call = work.shared(("durations", m.cpu), lambda: durations(work, m.cpu))
    return filled(
        Instructions, {}, **needs, instructions=chunk(work, 0), duration=duration, call=call,
        carried=work.shared(("carried", memory), lambda: carried(work, memory)),
        bytes=work.shared("bytes", lambda: moved(work.trace)), clock=work.clock,
        acc_start=work.acc_start, acc_unit=work.acc_unit, acc_write=work.acc_write, acc_next=work.acc_next, first=work.first,
        curve=curve, plan=actions(planned), remote=remote_bytes(work, planned),
    )  # fmt: skip


def _policies(work: Workload, m: Machine, chosen: Chosen, seed: int, log: bool) -> PolicyTables:
    """The policies' own tables as they make them, and buffers with room for one step of the island beyond LOG_ROOM."""
    place, evict, prefetch, defrag, release = chosen.place, chosen.evict, chosen.prefetch, chosen.defrag, chosen.release
    units, asks = len(work.trace.size), evict.form == "ask"
    of_unit = 11 if any(tier.lender for tier in m.tiers) else 5  # records of a step, and of programs that want lent memory back
    room = LOG_ROOM + of_unit * units + 64 + (1 + len(STALLS)) * (1 + int(work.trace.stream.max(initial=0)))
    given = {"params": evict.params, "defrag": defrag.params}
    given["evict"], given["evict_keys"] = evict.state(max(1, units), m.capacity, evict.params, seed)
    if release is not None and chosen.releases:
        given["release"], given["release_weights"] = release.state(m.capacity, release.params)
        given["release_params"] = release.params
    if chosen.pool is not None and chosen.pool.acts:
        given["pool_params"] = chosen.pool.params
    made = filled(
        PolicyTables,
        {
            "log": room if log else 1, "notes": room if asks else 1, "samples": SAMPLES + 1,
            "moved": 4 * (work.max_live + 2) if defrag.form == "slide" else 1,
        },
        rules=_rules(chosen, seed),
        place=place.table(m.capacity, max(1, units), work.max_live + 1, lambda: requests(work.trace)),
        prefetch=prefetch.state(units, len(work.duration), prefetch.params),
        verbs=verbs(chosen),
        **{name: array for name, array in given.items() if len(array)},
    )  # fmt: skip
    made.buffers["log_on"], made.buffers["log_room"] = log, LOG_ROOM
    made.buffers["bucket"] = max(1, -(-len(work.trace.kind) // SAMPLES))
    return made


def _rules(chosen: Chosen, seed: int) -> Any:
    rules, evict = table(1, RULES), chosen.evict
    rules["form"], rules["touches"], rules["sample"] = FORMS[evict.form], evict.touches, evict.sample
    rules["random"] = (seed * 2654435761 + 88172645463325252) % (1 << 61) + 1
    rules["asks"] = evict.form == "ask"
    rules["propose"], rules["may_evict"] = chosen.ahead, getattr(chosen.prefetch.module, "EVICTS", True)
    rules["defrag"], rules["release"] = FORMS_OF_DEFRAG[chosen.defrag.form], chosen.releases
    rules["pool"] = chosen.pool is not None and chosen.pool.acts
    return rules


def _stream_events(trace: tr.Trace) -> int:
    """How many events streams record or wait for."""
    return int(trace.arg[(trace.kind == tr.RECORD) | (trace.kind == tr.WAIT)].max(initial=-1)) + 1


def remote_bytes(work: Workload, planned: Schedule) -> Any:
    """int64[2, O]: what each kernel reads and writes of the tensors that stay below the device, each of them once."""
    t = work.trace
    if not len(planned.remote):
        return np.zeros((2, 1), np.int64)
    size = np.zeros(t.tensors, np.int64)
    size[planned.remote] = t.size[planned.remote]
    out = [
        np.diff(np.concatenate([[0], np.cumsum(size[ids])])[start])
        for start, ids in ((t.read_start, t.read_id), (t.write_start, t.write_id))
    ]
    return np.ascontiguousarray(np.where(t.activity == tr.KERNEL, np.stack(out), 0))


def actions(planned: Schedule) -> Any:
    """ACTION[...]: what the plan wants done, as the island reads it."""
    out = table(len(planned.actions), contract.ACTION)
    for name in contract.ACTION.fields or ():
        out[name] = planned.actions[name]
    return out


def durations(work: Workload, share: float) -> Any:
    """int64[2, O], ns: of each operator on the device or beside it, and what the host's thread carries out itself, below 0
    where it first waits for the device.

    share: of the rate of the CPU's work that is left where its memory is.
    """
    own, modelled = calls(work.trace), (work.trace.activity == tr.HOST_WORK) & (work.trace.duration < 0)
    there = np.where(modelled & ~own, np.rint(work.duration / share).astype(np.int64), work.duration)
    return np.where(np.stack([own, ~own]), 0, np.stack([there, np.where(waits(work.trace), -there, there)]))


def carried(work: Workload, memory: bool) -> Any:
    """int64[2, O]: kind and way of each operator; recorded times are kept as they are.

    memory: its bandwidth is shared, also with copies whose recorded times have been freed of what ran beside (`kernels.alone`)
    """
    trace, kind = work.trace, work.trace.activity.astype(np.int64)
    moves = moved(trace) > 0
    flows = moves & (trace.duration < 0) & ((kind != tr.HOST_WORK) | (work.duration > 0))
    timed = moves & (trace.device_time >= 0) & (work.duration > 0) & (kind != tr.HOST_WORK) & (kind != tr.COLLECTIVE)
    return np.stack([kind, np.select([flows, timed & memory], [kind, state.TIMED_COPY], state.NO_WAY)])


def moved(trace: tr.Trace) -> Any:
    """int64[O]: bytes of each operator that go this way."""
    return np.where(np.isin(trace.activity, tr.MOVES), trace.read_bytes, host_bytes(trace))


def requests(trace: tr.Trace) -> tuple[Any, Any, Any, Any]:
    """What a place policy is shown that plans ahead: kind (1 alloc, 0 free), unit, bytes and iteration of each request."""
    at = np.flatnonzero((trace.kind == tr.ALLOC) | (trace.kind == tr.FREE))
    unit = trace.arg[at]
    return (trace.kind[at] == tr.ALLOC).astype(np.int64), unit, trace.size[unit], iterations(trace)[at]


def verbs(chosen: Chosen) -> Any:
    """int64[verbs, 2]: where the island finds the compiled verbs, 0 for those that the run does not use."""
    place, evict, prefetch, defrag, release = chosen.place, chosen.evict, chosen.prefetch, chosen.defrag, chosen.release
    return _addresses(PolicyVerbs(
        alloc=place.alloc, free=place.free, largest=place.largest,
        insert=evict.insert, touch=evict.touch, remove=evict.remove, victim=evict.victim, score=evict.score,
        propose=prefetch.propose, note=prefetch.note,
        compact=place.compact if defrag.form == "slide" else None,
        remap=place.remap if defrag.form == "remap" else None,
        due=None if defrag.form == "none" else defrag.due,
        release=release.release if release is not None and chosen.releases else None,
        pool=chosen.pool.score if chosen.pool is not None and chosen.pool.acts else None,
    )).copy()  # fmt: skip


@lru_cache(maxsize=256)
def _addresses(verbs: PolicyVerbs) -> Any:
    """Of runs with the same policies, of which a grid has many."""
    return addresses(verbs)


def chunk(work: Workload, start: int) -> Any:
    """INSTRUCTION[...]: the next events from `start` on, as instructions; the same array for all runs that are there."""
    return work.shared(("instructions", start), lambda: instructions(work.trace, start, CHUNK))


def instructions(trace: tr.Trace, start: int, count: int) -> Any:
    """INSTRUCTION[...]: so many events from `start` on."""
    part = slice(start, start + count)
    kind, time = INSTRUCTION_OF[trace.kind[part]], trace.time[part]
    timed = time >= 0
    # A recorded time is a step of its own before its event: the host does nothing until then.
    at = np.arange(len(kind)) + np.cumsum(timed)
    out = table(len(kind) + int(timed.sum()), INSTRUCTION)
    out["kind"][at], out["arg"][at], out["stream"][at] = kind, trace.arg[part], trace.stream[part]
    before = at[timed] - 1
    out["kind"][before], out["arg"][before] = state.I_UNTIL, time[timed]
    return out


def restart(island: Island, program: Instructions, events: int, done: int = 0) -> None:
    """The host begins a new chunk; `done` events lie before it."""
    h = island.hosts[0]
    h["pc"], h["end"] = 0, len(program.instructions)
    h["more"] = done + CHUNK < events
