"""The list of metrics over time.  The text for Prometheus, the dashboard, and the alerts all follow from it.

A new metric is a row here and a function that reads its curves from a run; its panel on the dashboard follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from gpusim.results.activities import of_pages
from gpusim.results.log import DROP, RELEASE, RESERVE
from gpusim.results.monitoring.curves import F64, counted, integrated, level, spent, summed
from gpusim.results.monitoring.family import COUNTER, GAUGE, Curve, Family
from gpusim.results.monitoring.recorded import Recorded
from gpusim.results.page_log import BATCH, EVICTION, GONE, HOST, READ, WRITE

Curves = Iterable[Curve]
WAYS = ("in", "out", "between")  # in the order of of_pages.NAMES: to GPUs, from them, from one to another
LIMITS = {"device": "capacity", "host": "host_capacity"}  # memory -> where the result says how much there is


def _clock(run: Recorded) -> Curves:
    yield (), np.minimum(run.at, run.end) / 1e9


def _steps(run: Recorded) -> Curves:
    if run.steps is not None:
        yield (), counted(run.steps.end, run.at)


def _step_seconds(run: Recorded) -> Curves:
    if run.steps is not None:
        yield (), level(run.steps.end, run.steps.took / 1e9, run.at)


def _step_kernel_seconds(run: Recorded) -> Curves:
    if run.steps is not None:
        yield (), level(run.steps.end, run.steps.kernel / 1e9, run.at)


def _step_low(run: Recorded) -> Curves:
    if run.steps is not None:
        yield (), level(run.steps.end, run.steps.low, run.at)


def _step_peak(run: Recorded) -> Curves:
    if run.steps is not None:
        for memory, most in run.steps.peak.items():
            yield (memory,), level(run.steps.end, most, run.at)


def _kernels(run: Recorded) -> Curves:
    yield (), counted(run.rows("kernel")["start"], run.at)


def _kernel_seconds(run: Recorded) -> Curves:
    rows, waited = run.rows("kernel"), spent(run.inside["start"], run.inside["end"], run.at)
    for number, lane in enumerate(run.activities.lanes):
        mine = rows[rows["lane"] == number]
        if lane.group == "stream" and len(mine):
            yield (str(lane.number),), (spent(mine["start"], mine["end"], run.at) - waited) / 1e9


def _stall_seconds(run: Recorded) -> Curves:
    found = run.named(run.rows("stall"))
    for name in run.result.metrics:
        if name.startswith("stall_") and name != "stall_ns":
            rows = found.get(name.removesuffix("_ns"), run.activities.rows[:0])
            yield (name.removeprefix("stall_").removesuffix("_ns"),), spent(rows["start"], rows["end"], run.at) / 1e9


def _held(name: str) -> Callable[[Recorded], Curves]:
    def read(run: Recorded) -> Curves:
        yield (), level(run.memory["t"], run.memory[name], run.at)

    return read


def _owners(run: Recorded) -> Curves:
    device = run.memory["t"][:-1]
    host = run.result.timeline["time_ns"]
    for owner, (times, values) in run.activities.owners.items():
        # The host allocates ahead of the device, whose clock all other metrics have.
        yield (owner,), level(np.interp(times, host, device).astype(np.int64), values, run.at)


def _limits(run: Recorded) -> Curves:
    for memory, key in LIMITS.items():
        if run.result.spec.get(key) is not None:
            yield (memory,), np.full(len(run.at), float(run.result.spec[key]))


def _ooms(run: Recorded) -> Curves:
    ended = [] if run.result.finished or "oom" not in run.result.outcome else [run.end]
    yield (), counted(np.array(ended, np.int64), run.at)


def _device_calls(run: Recorded) -> Curves:
    if not run.unified:
        for call, kind in (("alloc", RESERVE), ("free", RELEASE)):
            yield (call,), counted(run.log(kind)["t"], run.at)


def _internal(run: Recorded) -> Curves:
    if not run.unified:
        yield (), _lost(run, "requested", "allocated")


def _unused(run: Recorded) -> Curves:
    if not run.unified:
        yield (), _lost(run, "allocated", "reserved")


def _lost(run: Recorded, part: str, whole: str) -> F64:
    used, held = (level(run.memory["t"], run.memory[name], run.at) for name in (part, whole))
    return np.where(held > 0, 1 - used / np.maximum(held, 1), 0.0)


def _external(run: Recorded) -> Curves:
    if run.external is not None:
        yield (), run.external


def _swaps(run: Recorded) -> Curves:
    if not run.unified:
        for way in ("in", "out"):
            yield (way,), counted(run.rows(f"swap_{way}")["start"], run.at)


def _evictions(run: Recorded) -> Curves:
    if run.result.pages is not None:
        pages = run.result.pages
        left = (pages["kind"] == GONE) & (pages["cause"] == EVICTION) & (pages["processor"] != HOST)
        yield (), counted(run.page_times[left], run.at)
    else:
        yield (), counted(np.concatenate([run.rows("swap_out")["start"], run.log(DROP)["t"]]), run.at)


def _swap_bytes(run: Recorded) -> Curves:
    if not run.unified:
        for way in ("in", "out"):
            rows = run.rows(f"swap_{way}")
            yield (way,), summed(rows["end"], rows["bytes"], run.at)


def _link_bytes(run: Recorded) -> Curves:
    for link, (times, rates) in run.activities.rates.items():
        yield (link,), integrated(times, rates, run.at)


def _link_limits(run: Recorded) -> Curves:
    for link, rate in run.result.spec.get("rates", {}).items():
        if link in run.activities.rates:
            yield (link,), np.full(len(run.at), float(rate))


def _queues(run: Recorded) -> Curves:
    for queue, (submitted, began) in run.waiting.items():
        yield (queue,), counted(submitted, run.at) - counted(began, run.at)


def _faults(run: Recorded) -> Curves:
    pages = run.result.pages
    if pages is not None:
        fault = np.isin(pages["kind"], (READ, WRITE))
        for processor, mine in (("gpu", pages["processor"] != HOST), ("cpu", pages["processor"] == HOST)):
            chosen = fault & mine
            yield (processor,), summed(run.page_times[chosen], pages["pages"][chosen], run.at)


def _fault_batches(run: Recorded) -> Curves:
    pages = run.result.pages
    if pages is not None:
        yield (), counted(run.page_times[(pages["kind"] == BATCH) & (pages["processor"] != HOST)], run.at)


def _migrated(run: Recorded) -> Curves:
    if run.unified:
        found = run.named(run.rows("migration", "eviction"))
        for name, way in zip(of_pages.NAMES, WAYS, strict=False):
            rows = found.get(name, run.activities.rows[:0])
            yield (way,), summed(rows["end"], rows["bytes"], run.at)



def _declare(group: str, *rows: tuple[str, str, str, tuple[str, ...], Callable[[Recorded], Curves], str]) -> dict[str, Family]:
    return {name: Family(name, kind, unit, meaning, group, labels, read) for name, kind, unit, labels, read, meaning in rows}


FAMILIES: dict[str, Family] = {
    **_declare(
        "time",
        ("simulated_seconds", COUNTER, "seconds", (), _clock, "Simulated time since the run began, until it ends."),
        ("steps", COUNTER, "", (), _steps, "Steps of the program, as its phases are numbered, that have ended."),
        ("step_seconds", GAUGE, "seconds", (), _step_seconds, "Simulated time that the latest ended step took."),
        ("step_kernel_seconds", GAUGE, "seconds", (), _step_kernel_seconds,
         "Time of kernels in the latest ended step, summed over streams."),
    ),
    **_declare(
        "compute",
        ("kernels", COUNTER, "", (), _kernels, "Kernels that have begun."),
        ("kernel_seconds", COUNTER, "seconds", ("stream",), _kernel_seconds,
         "Time in which a stream ran kernels; the rest of its time it was idle or stood still."),
        ("stall_seconds", COUNTER, "seconds", ("cause",), _stall_seconds,
         "Time that streams with kernels stood still, by cause, summed over streams."),
    ),
    **_declare(
        "memory",
        ("memory_requested_bytes", GAUGE, "bytes", (), _held("requested"),
         "Bytes of the tensors in device memory, as the program asked for them."),
        ("memory_allocated_bytes", GAUGE, "bytes", (), _held("allocated"), "Bytes of the blocks in device memory."),
        ("memory_reserved_bytes", GAUGE, "bytes", (), _held("reserved"), "Bytes that the allocator holds from the device."),
        ("memory_owner_bytes", GAUGE, "bytes", ("owner",), _owners,
         "Bytes of the blocks in device memory, by the category of their tensors."),
        ("host_memory_bytes", GAUGE, "bytes", (), _held("host"), "Host memory that holds tensors or pages of the program."),
        ("memory_limit_bytes", GAUGE, "bytes", ("memory",), _limits, "Bytes that the program may hold in each memory."),
        ("step_peak_bytes", GAUGE, "bytes", ("memory",), _step_peak,
         "Most bytes held in each memory in the latest ended step: of the device's those of blocks."),
        ("step_low_bytes", GAUGE, "bytes", (), _step_low,
         "Fewest bytes of tensors that the program had at once in the latest ended step, wherever they were."),
        ("device_calls", COUNTER, "", ("call",), _device_calls, "Calls that took memory from the device, or gave it back."),
        ("ooms", COUNTER, "", (), _ooms, "Runs that ended since a request had no room."),
    ),
    **_declare(
        "fragmentation",
        ("fragmentation_internal_ratio", GAUGE, "ratio", (), _internal, "1 - requested / allocated: what rounding loses."),
        ("fragmentation_external_ratio", GAUGE, "ratio", (), _external,
         "1 - largest free piece / free bytes of what the allocator holds."),
        ("reserved_unused_ratio", GAUGE, "ratio", (), _unused,
         "1 - allocated / reserved: what the allocator holds beyond blocks."),
    ),
    **_declare(
        "transfers",
        ("swaps", COUNTER, "", ("direction",), _swaps, "Swaps that have begun, into the device's memory or out of it."),
        ("swap_bytes", COUNTER, "bytes", ("direction",), _swap_bytes,
         "Bytes of swaps that have ended, as they cross the links."),
        ("evictions", COUNTER, "", (), _evictions, "Tensors, or pieces of blocks of pages, that left the device's memory."),
        ("link_bytes", COUNTER, "bytes", ("link",), _link_bytes, "Bytes that have crossed a link, by swaps or by the program."),
        ("link_limit_bytes_per_second", GAUGE, "bytes_per_second", ("link",), _link_limits,
         "Bytes that a link carries in a simulated second."),
        ("queue_length", GAUGE, "", ("queue",), _queues, "Kernels and swaps that were submitted and have not begun."),
    ),
    **_declare(
        "unified memory",
        ("faults", COUNTER, "", ("processor",), _faults, "Pages that processors faulted on, each counted once per batch."),
        ("fault_batches", COUNTER, "", (), _fault_batches, "Batches of GPU faults that the driver served."),
        ("migrated_bytes", COUNTER, "bytes", ("direction",), _migrated, "Bytes of pages that moved to GPUs, or from them."),
    ),
}  # fmt: skip
