"""From a workload, a profile and policies to the tables of the island, all empty and ready to run."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpusim.base.compiled import address
from gpusim.base.tables import table
from gpusim.engine import state
from gpusim.engine.run.ways import connections
from gpusim.engine.state import CONTROL, COUNTS, HOST, INSTRUCTION, NEVER, Island, Policies, Program
from gpusim.machine.constants import Machine
from gpusim.policies import contract
from gpusim.policies.forms import DefragPolicy, EvictPolicy, PlacePolicy, PrefetchPolicy, ReleasePolicy
from gpusim.policies.planning import NOTHING, Schedule
from gpusim.results.log import LOG
from gpusim.trace import trace as tr
from gpusim.trace.codec import swap_codec
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


def power_of_two(n: int) -> int:
    return 1 << max(0, (int(n) - 1).bit_length())


def build(
    work: Workload, m: Machine, place: PlacePolicy, evict: EvictPolicy, prefetch: PrefetchPolicy, defrag: DefragPolicy,
    seed: int, log: bool, planned: Schedule = NOTHING, release: ReleasePolicy | None = None,
) -> tuple[Island, Program, Policies]:
    """All tables of one run; the program holds its first chunk of instructions."""
    trace = work.trace
    units = len(trace.size)
    streams = int(trace.stream.max(initial=0)) + 1
    engines = {tier.queue: tier for tier in reversed(m.tiers)}  # tiers of one name take turns in the same queues
    order = list(dict.fromkeys(tier.queue for tier in m.tiers))
    # Where somebody looks ahead there are copies that nobody waits for yet: these have queues behind all others.
    ahead = getattr(prefetch.module, "FORM", "") != "none"
    ranked = ahead or len(planned.actions) > 0 or (release is not None and release.acts)
    n_queues = streams + 2 * len(order) * (2 if ranked else 1)
    widest = int(np.diff(work.acc_start).max(initial=0))
    copies = power_of_two(2 * (work.max_live + widest) + 1024)
    launches = power_of_two(m.queue + 1)

    control, counts, hosts = table(1, CONTROL), table(1, COUNTS), table(1, HOST)
    queues = table(n_queues, state.QUEUE)
    base = 0
    for q in range(n_queues):
        x, copying = queues[q], q >= streams
        ring = copies if copying else launches
        x["base"], x["mask"], x["limit"] = base, ring - 1, ring // 2 if copying else m.queue
        x["slots"], x["gap"] = 1, 0 if copying else m.gap
        base += ring
    queues["pair"] = -1
    behind = 2 * len(order) if ranked else 0
    for i, name in enumerate(order * (2 if ranked else 1)):
        at = streams + 2 * i
        queues["role"][[at, at + 1]] = state.TO_DEVICE, state.FROM_DEVICE
        queues["slots"][[at, at + 1]] = engines[name].slots_in, engines[name].slots_out
        if ranked:
            pair = at + behind if i < len(order) else at - behind
            queues["pair"][[at, at + 1]] = pair, pair + 1
    queues["computes"][computing(trace)] = 1
    codec = swap_codec(trace)
    ways, link, route, curve = connections(m, codec, planned.access)
    memories = table(1 + len(m.tiers), state.MEMORY)
    for i, tier in enumerate(m.tiers):
        memory, at = memories[1 + i], streams + 2 * order.index(tier.queue)
        memory["capacity"], memory["waits"] = tier.capacity, tier.waits
        memory["q_in"], memory["q_out"] = at, at + 1
        memory["q_early"], memory["q_late"] = at + behind, at + 1 + behind
        memory["way_in"], memory["way_out"] = state.SWAPS + 2 * i, state.SWAPS + 2 * i + 1

    c = control[0]
    c["fluid_tick"] = NEVER
    c["queues"], c["streams"] = n_queues, streams
    c["form"], c["touches"], c["sample"] = FORMS[evict.form], evict.touches, evict.sample
    c["random"] = (seed * 2654435761 + 88172645463325252) % (1 << 61) + 1
    c["propose"], c["ranked"], c["release"] = ahead, ranked, release is not None and release.acts
    c["remote"] = len(planned.remote) > 0
    c["may_evict"] = getattr(prefetch.module, "EVICTS", True)
    c["asks"] = evict.form == "ask"
    c["submit_ns"], c["wait_ns"], c["cached_ns"] = m.submit, m.wait, m.cached
    c["malloc_ns"], c["malloc_per_byte"], c["free_ns"], c["free_per_byte"] = (
        m.malloc, m.malloc_per_byte, m.free, m.free_per_byte,
    )  # fmt: skip
    c["defrag"], c["move_per_byte"] = FORMS_OF_DEFRAG[defrag.form], m.move_per_byte
    c["log_on"], c["log_room"] = log, LOG_ROOM
    c["bucket"] = max(1, -(-len(trace.kind) // SAMPLES))

    unit = table(units, state.UNIT)
    unit["size"], unit["data"], unit["slot"], unit["next"] = trace.size, work.has_data, -1, np.inf
    unit["wire"] = codec.wire(trace.size) if codec else trace.size
    unit["stored"] = codec.stored(trace.size) if codec else trace.size
    unit["stays"][planned.remote] = 1
    if "stage" in evict.facts:
        unit["stage"] = stages(trace)
    unit["stored"][planned.remote] = trace.size[planned.remote]  # kernels read no compressed bytes
    events = int(trace.arg[(trace.kind == tr.RECORD) | (trace.kind == tr.WAIT)].max(initial=-1)) + 1
    flows = int(queues["slots"].sum()) + (2 * streams if len(planned.remote) else 0)
    island = Island(
        control, counts, hosts, queues, table(base, state.ACTIVITY), np.zeros((base, n_queues), np.int64), unit,
        np.zeros((units, n_queues), np.int64), np.zeros((units, n_queues), np.int64), memories,
        np.zeros((4, work.max_live + 1), np.int64),
        np.zeros((3, units), np.uint8), ways, link, table(flows + 1, state.FLOW), table(2 * (streams + flows) + 8, state.EVENT),
        table(state.RECENTLY_FREED, state.FREED), np.zeros((state.RECENTLY_FREED + 1, n_queues), np.int64),
        np.zeros((streams + events + 1, n_queues), np.int64), np.full(max(1, trace.ops), NEVER, np.int64),
    )  # fmt: skip
    program = Program(
        chunk(work, 0), work.duration, *carriers(trace), work.clock, work.acc_start, work.acc_unit, work.acc_write,
        work.acc_next, work.first, route, curve, actions(planned),
        remote_bytes(work, planned),
    )  # fmt: skip
    restart(island, program, len(trace.kind))

    margin = 5 * (units if log or evict.form == "ask" else 0) + 64
    evict_table, keys = evict.state(max(1, units), m.capacity, evict.params, seed)
    policies = Policies(
        place.table(m.capacity, max(1, units), work.max_live + 1, lambda: requests(trace)),
        evict_table,
        keys,
        evict.params if len(evict.params) else np.zeros(1),
        np.zeros(len(contract.FACTS)),
        prefetch.state(units, len(work.duration), prefetch.params),
        *releasing(release, m.capacity),
        table((LOG_ROOM + margin) if log else 1, LOG),
        table(SAMPLES + 1, state.SAMPLE),
        table((LOG_ROOM + margin) if evict.form == "ask" else 1, state.NOTE),
        defrag.params if len(defrag.params) else np.zeros(1),
        np.zeros(4 * (work.max_live + 2) if defrag.form == "slide" else 1, np.int64),
        verbs(place, evict, prefetch, defrag, release),
    )
    return island, program, policies


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


def releasing(release: ReleasePolicy | None, capacity: int) -> tuple[Any, Any, Any]:
    """The release policy's tables, and its parameters."""
    if release is None or not release.acts:
        return np.zeros(1, np.int64), np.zeros(1), np.zeros(1)
    return *release.state(capacity, release.params), release.params if len(release.params) else np.zeros(1)


def actions(planned: Schedule) -> Any:
    """ACTION[...]: what the plan wants done, as the island reads it."""
    out = table(len(planned.actions), contract.ACTION)
    for name in contract.ACTION.fields or ():
        out[name] = planned.actions[name]
    return out


def computing(trace: tr.Trace) -> Any:
    """int64[...]: the streams that run kernels; stream 0 when none does."""
    on = trace.stream[trace.kind == tr.OP][trace.activity == tr.KERNEL]
    return np.unique(on).astype(np.int64) if len(on) else np.zeros(1, np.int64)


def carriers(trace: tr.Trace) -> tuple[Any, Any]:
    """int64[2, O] kind and way of each operator, int64[O] bytes that go this way; recorded times are kept as they are."""
    kind = trace.activity.astype(np.int64)
    size = np.where(np.isin(kind, tr.MOVES), trace.read_bytes, 0)
    return np.stack([kind, np.where((size > 0) & (trace.duration < 0), kind, state.NO_WAY)]), size


def requests(trace: tr.Trace) -> tuple[Any, Any, Any, Any]:
    """What a place policy is shown that plans ahead: kind (1 alloc, 0 free), unit, bytes and iteration of each request."""
    at = np.flatnonzero((trace.kind == tr.ALLOC) | (trace.kind == tr.FREE))
    unit = trace.arg[at]
    return (trace.kind[at] == tr.ALLOC).astype(np.int64), unit, trace.size[unit], iterations(trace)[at]


def verbs(
    place: PlacePolicy, evict: EvictPolicy, prefetch: PrefetchPolicy, defrag: DefragPolicy, release: ReleasePolicy | None
) -> Any:
    """int64[verbs, 2]: where the island finds the compiled verbs, 0 for those that the run does not use."""
    does = {"slide": (place.compact, None), "remap": (None, place.remap), "none": (None, None)}[defrag.form]
    functions = (
        place.alloc, place.free, place.largest, evict.insert, evict.touch, evict.remove, evict.victim, evict.score,
        prefetch.propose, prefetch.note, *does, None if defrag.form == "none" else defrag.due,
        release.release if release is not None and release.acts else None,
    )  # fmt: skip
    return np.array(
        [address(f, s) if f else (0, 0) for f, s in zip(functions, state.VERB_SIGNATURES, strict=True)], np.int64
    )


def chunk(work: Workload, start: int) -> Any:
    """INSTRUCTION[...]: the next events from `start` on, as instructions."""
    trace = work.trace
    part = slice(start, start + CHUNK)
    kind, time = INSTRUCTION_OF[trace.kind[part]], trace.time[part]
    timed = time >= 0
    # A recorded time is a step of its own before its event: the host does nothing until then.
    at = np.arange(len(kind)) + np.cumsum(timed)
    out = table(len(kind) + int(timed.sum()), INSTRUCTION)
    out["kind"][at], out["arg"][at], out["stream"][at] = kind, trace.arg[part], trace.stream[part]
    before = at[timed] - 1
    out["kind"][before], out["arg"][before] = state.I_UNTIL, time[timed]
    return out


def restart(island: Island, program: Program, events: int, done: int = 0) -> None:
    """The host begins a new chunk; `done` events lie before it."""
    h, c = island.hosts[0], island.control[0]
    h["pc"], h["end"] = 0, len(program.instructions)
    c["more"] = done + CHUNK < events
