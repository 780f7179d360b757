"""Empty tables for a machine and the allocations of a program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from gpusim.base.tables import table
from gpusim.engine.pages.bits import PAGES, WORDS
from gpusim.engine.pages.driver_tables import (
    ATS,
    BLOCK,
    CONTEXT,
    COUNT,
    COUNTER_REGISTER,
    DEVICE,
    FREE,
    GPU,
    HMM,
    LINK,
    LISTS,
    MANAGED,
    NONE,
    PAGE,
    PIECE,
    RANGE,
    RESIDENT,
    ROOT,
    RUN,
    SCRATCH,
    SHARED,
    STATE,
    STREAM,
    DriverState,
)
from gpusim.engine.pages.frontend import ENTRY, FRONT, MISS, NO_PLACE, SLOT, UTLB, WARPS, Front
from gpusim.engine.pages.pieces import EACH
from gpusim.engine.pages.raster import COLUMN_NS, COLUMNS, SLICES, slice_shift
from gpusim.machine.driver_parameters import BIG_PAGE, BLOCK_BYTES, PARAMETERS, UvmError
from gpusim.machine.platforms import Platform
from gpusim.policies.contract import BLOCK_FACTS, CHUNK_FACTS, FACTS, REGION_FACTS
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import Array
from gpusim.results.fault_picture import LAYERS
from gpusim.results.page_log import LOG


def resident_bytes(M: DriverState, processor: int, of: slice = slice(None)) -> int:
    """Bytes of the pages that are resident at a processor, of these blocks."""
    blocks = len(M.blocks)
    first = (3 * processor + RESIDENT) * blocks
    return int(np.bitwise_count(M.bits[first : first + blocks][of]).sum() * M.state[0]["page_bytes"])


def build(platform: Platform, arrays: Sequence[Array], gpus: int, parameters: Mapping[str, int], log: int) -> DriverState:
    spans = lay_out(arrays)
    last = list(spans.values())[-1]
    n = -(-(last.first + last.bytes) // BLOCK_BYTES)
    per_block = BLOCK_BYTES // platform.page
    processors = gpus + 1
    state = table(1, STATE)
    s = state[0]
    for name, value in parameters.items():
        scale = 1.0
        if PARAMETERS[name].lapses:
            scale = 1000.0 * parameters["uvm_perf_thrashing_lapse_usec"]
        elif name == "uvm_perf_thrashing_lapse_usec":
            scale = 1000.0
        s[PARAMETERS[name].field] = value * scale
    s["blocks"], s["processors"] = n, processors
    s["shared"] = 3 * processors * n
    s["scratch"] = s["shared"] + SHARED * n
    s["page_bytes"], s["page_shift"], s["per_block"] = platform.page, platform.page.bit_length() - 1, per_block
    s["block_shift"] = per_block.bit_length() - 1
    s["big"] = max(BIG_PAGE // platform.page, 1)
    s["window"], s["pause"] = 1, np.inf
    s["column_ns"], s["slice_shift"] = COLUMN_NS, slice_shift(n, per_block)
    s["unified"] = platform.unified
    # Since 575 notices carry virtual addresses, and the driver does nothing with them on hosts of 4 KiB pages.
    s["counters"] = platform.page == BIG_PAGE and (s["counters"] > 0 or (s["counters"] < 0 and platform.ats))
    blocks = table(n, BLOCK)
    partials = 0
    for k, span in enumerate(spans.values()):
        for b in range(span.first // BLOCK_BYTES, -(-(span.first + span.bytes) // BLOCK_BYTES)):
            begin = max(span.first, b * BLOCK_BYTES) - b * BLOCK_BYTES
            end = min(span.first + span.bytes, (b + 1) * BLOCK_BYTES) - b * BLOCK_BYTES
            x = blocks[b]
            x["offset"], x["range"] = begin // platform.page, k
            x["pages"] = -(-end // platform.page) - x["offset"]
            x["partial"] = NONE
            x["kind"] = kind(arrays[k], platform, s["ats_mode"])
            if x["kind"] == HMM or (x["kind"] == MANAGED and x["pages"] < per_block):
                x["partial"] = partials
                partials += 1
    blocks["preferred"] = blocks["last_destination"] = blocks["last_processor"] = blocks["run"] = NONE
    roots_each = platform.memory // BLOCK_BYTES
    if not roots_each:
        raise UvmError(f"{platform.memory:,} bytes of GPU memory are less than a chunk of 2 MiB")
    return DriverState(
        bits=np.zeros((int(s["scratch"]) + SCRATCH, WORDS), np.uint64),
        blocks=blocks,
        chunk=np.full((processors, n), NONE, np.int64),
        roots=_roots(gpus, roots_each),
        unit_words=np.zeros((1, 1), np.int64),
        unit_numbers=np.zeros((1, 1)),
        locks=np.zeros((1, 1), np.uint8),
        verbs=np.zeros((5, 2), np.int64),
        facts=np.zeros(len(FACTS) + len(CHUNK_FACTS)),
        params=np.zeros(1),
        page_verbs=np.zeros((3, 2), np.int64),
        page_params=np.zeros((2, 1)),
        region_facts=np.zeros(len(REGION_FACTS)),
        block_facts=np.zeros(len(BLOCK_FACTS)),
        turns=np.zeros(1, np.int64),
        pieces=table(n * gpus * EACH, PIECE),
        queue=np.zeros(1, np.int64),
        streams=table(1, STREAM),
        links=table(1, LINK),
        contexts=table(1, CONTEXT),
        future=table(1, RUN),
        gpus=_gpus(platform, gpus, roots_each),
        frames=np.full((gpus, partials, PAGES), NONE, np.int64),
        holder=np.zeros(gpus * roots_each * per_block, np.int32),
        counts=table(processors, COUNT),
        state=state,
        watched=table(n * PAGES, PAGE),
        counters=table(processors * n, COUNTER_REGISTER).reshape(processors, n),
        deferred=np.zeros(n, np.int64),
        notices=np.zeros(n, np.int64),
        ranges=table(len(arrays), RANGE),
        sizes=np.zeros((processors, parameters["uvm_perf_fault_batch_count"] + 1), np.int64),
        log=table(log, LOG),
        raster=np.zeros((LAYERS, SLICES, COLUMNS), np.int64),
    )


def kind(array: Array, platform: Platform, ats_mode: int) -> int:
    """What manages an allocation's pages: MANAGED, ATS, HMM or, by nothing, DEVICE."""
    if array.kind == "managed" or platform.unified:
        return MANAGED
    if array.kind == "device":
        return DEVICE
    return ATS if platform.ats and ats_mode else HMM


def _roots(gpus: int, each: int) -> Any:
    """All free, in the order of their addresses."""
    roots = table(gpus * each, ROOT)
    roots["owner"], roots["list"], roots["unit"] = NONE, FREE, NONE
    k = np.arange(gpus * each)
    roots["older"] = np.where(k % each == 0, NONE, k - 1)
    roots["newer"] = np.where(k % each == each - 1, NONE, k + 1)
    return roots


def _gpus(platform: Platform, gpus: int, each: int) -> Any:
    rows = table(gpus + 1, GPU)
    work, link = platform.work, platform.link
    for g in range(1, gpus + 1):
        x = rows[g]
        x["roots"], x["first_root"] = each, (g - 1) * each
        x["oldest"], x["newest"], x["length"] = [NONE] * LISTS, [NONE] * LISTS, [0] * LISTS
        x["oldest"][FREE], x["newest"][FREE], x["length"][FREE] = (g - 1) * each, g * each - 1, each
        for cost in fields(work):
            x["pass_ns" if cost.name == "interrupt" else cost.name] = getattr(work, cost.name)
        x["page_out"] = work.page if work.page_out is None else work.page_out
        x["oldest_piece"] = x["newest_piece"] = NONE
        x["room"] = [g * each] * 2
        x["in_start"], x["in_byte"] = link.in_start, 1e9 / link.in_rate
        x["out_start"], x["out_byte"] = link.out_start, 1e9 / link.out_rate
        x["zero_byte"] = 1e9 / platform.hbm
        x["remote_byte"], x["remote_request"] = 1e9 / link.remote_rate, link.remote_request
        x["remote_store"], x["store_byte"] = link.remote_store, 1e9 / min(link.remote_rate, link.out_rate)
        x["cpu_byte"] = 1e9 / platform.cpu_rate
        x["coherent"] = platform.coherent
        x["peer_byte"] = 1e9 / platform.peer_rate if platform.peer_rate else 0.0
    return rows


def stride(utlbs: int) -> int:
    """From the rank of a uTLB that reports to the next one's: coprime to their number, and near the golden section of it."""
    return min((k for k in range(1, utlbs + 1) if math.gcd(k, utlbs) == 1), key=lambda k: abs(k - 0.618 * utlbs))


def front(platform: Platform) -> Front:
    utlbs = -(-platform.sms // platform.sms_per_utlb)
    slots, waiting = platform.warps * platform.sms_per_utlb, WARPS * platform.outstanding
    state = table(1, FRONT)
    state["utlbs"], state["limit"] = utlbs, platform.outstanding
    state["stride"], state["gpcs"] = stride(utlbs), min(platform.gpcs, utlbs)
    state["entries"], state["entry_shift"] = platform.entries, max(ENTRY - (platform.page.bit_length() - 1), 0)
    units = table(utlbs, UTLB)
    units["next"] = NO_PLACE
    return Front(
        state=state,
        slots=table(utlbs * slots, SLOT).reshape(utlbs, slots),
        utlbs=units,
        queue=np.zeros((utlbs, slots), np.int64),
        left=np.zeros((utlbs, slots), np.int64),
        out=np.zeros((utlbs, waiting), np.int64),
        misses=table(utlbs * waiting, MISS).reshape(utlbs, waiting),
        buffer=np.zeros(platform.buffer, np.int64),
        batch=np.zeros(platform.buffer, np.int64),
        spare=np.zeros(platform.buffer, np.int64),
        digits=np.zeros(256, np.int64),
    )
