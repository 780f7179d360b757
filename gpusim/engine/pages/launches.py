"""From kernels to the tables of `paging`: what each operator touches, and how many warps do at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from gpusim.base.compiled import Placed
from gpusim.base.errors import suggest
from gpusim.base.tables import filled, table
from gpusim.engine.pages.driver_tables import COUNT, DRIVER, HMM, DriverState
from gpusim.engine.pages.frontend import FRONT_END
from gpusim.engine.pages.memory import front
from gpusim.engine.pages.paging import ACT, LAUNCH, PAGING, SERVER, PagedKernels
from gpusim.engine.pages.sweep import sweeps
from gpusim.engine.pages.unfaulted import kernel_ns, resident_blocks
from gpusim.engine.state import NEVER, OF_STREAM, PAGER, WARPS
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError
from gpusim.machine.platforms import Platform
from gpusim.programs.managed.layout import Span
from gpusim.programs.managed.pattern import ACCESS, AFFINE, GATHER, LANES, RANDOM, SHAPE
from gpusim.programs.managed.steps import Kernel


def in_ns(record: np.dtype[Any]) -> list[int]:
    """The columns of such a record that are times, where each has 64 bits."""
    return [offset // 8 for kind, offset, *_ in (record.fields or {}).values() if kind == np.float64]


TIMES = in_ns(COUNT)


class Launched(NamedTuple):
    """Kernels as the driver's side reads them, one after the other for each operator."""

    lists: Any
    launches: Any
    shapes: Any
    accesses: Any
    indices: Any


class Paged:
    """The tables of one GPU's kernels, in their place; its streams have fronts where their kernels touch anything."""

    def __init__(
        self, M: DriverState, platform: Platform, launched: Launched, streams: Any, *, gpu: int = 1, acts: Any = None,
        sent: Sequence[Any] = (), counts: bool = True, server: Any = None, process: int = 0, processes: int = 1,
    ) -> None:  # fmt: skip
        """streams: of each operator its stream.  counts: keep what each operator counted.

        sent    of each operator the row of `acts` that it is, None of a kernel

        server  the driver's, where this is one of several processes that have the GPU: see `beside`
        """
        self.memory = Placed(M, DRIVER)
        operators, n = len(launched.lists) - 1, 1 + int(max(streams, default=0))
        touching = np.unique(np.asarray(streams)[np.diff(launched.lists) > 0]).tolist()
        self.fronts = {int(q): Placed(front(platform), FRONT_END) for q in touching}
        columns = COUNT.itemsize // 8
        self.counted = table((operators if counts else 1) * len(M.counts), COUNT)
        server, pager = table(1, SERVER) if server is None else server, table(1, PAGER)
        server["gpu"], pager["next"], pager["process"] = gpu, NEVER, process
        fronts = np.zeros(n, np.int64)
        for q, placed in self.fronts.items():
            fronts[q] = placed.address
        own = [row for row in sent if row is not None]
        acts = _rows([*([] if acts is None else acts.tolist()), *own], ACT)
        number = np.zeros(max(len(sent), 1), np.int64)
        number[[o for o, row in enumerate(sent) if row is not None]] = np.arange(len(acts) - len(own), len(acts)) + 1
        is_ns = np.zeros(columns, np.int64)
        is_ns[TIMES] = 1
        self.tables = filled(
            PagedKernels, {"streams": n, "transfers": OF_STREAM + n}, pager=pager, warps=table(n, WARPS), fronts=fronts,
            server=server, acts=acts, sent=number,
            driver=np.array([self.memory.address]), is_ns=is_ns,
            others=np.zeros(processes, np.int64), **launched._asdict(), **_views(M.counts, "counts"),
            **{name: view.reshape(-1, len(M.counts), columns) for name, view in _views(self.counted, "counted").items()},
        )  # fmt: skip
        self.placed = Placed(self.tables, PAGING)
        self.tables.others[process] = self.placed.address

    def of(self, operator: int) -> Any:
        """COUNT[P]: what the operator counted."""
        processors = len(self.tables.counts)
        return self.counted[operator * processors : (operator + 1) * processors]


def beside(processes: Sequence[Paged]) -> None:
    """These have one GPU: its driver serves the kernel of any of them that has stood still for longest."""
    for one in processes:
        one.tables.others[:] = [other.placed.address for other in processes]


def _views(counts: Any, name: str) -> dict[str, Any]:
    """The same columns as whole numbers and as floats."""
    plain = counts.view(np.ndarray)
    return {name: plain.view(np.int64).reshape(len(counts), -1), f"{name}_ns": plain.view(np.float64).reshape(len(counts), -1)}


def find(name: str, spans: Mapping[str, Span], where: str) -> Span:
    if name not in spans:
        raise UvmError(f"{where}: no allocation is called {name!r}", hint=suggest(name, spans))
    if spans[name].freed:
        raise UvmError(f"{where}: segmentation fault at {spans[name].first:#x}, {name!r} has been freed")
    return spans[name]


def pages(span: Span, first: int, count: int | None, platform: Platform, where: str) -> tuple[int, int]:
    """Positions of the pages that hold bytes [first, first + count) of an allocation."""
    count = span.bytes - first if count is None else count
    if first < 0 or count <= 0 or first + count > span.bytes:
        raise UvmError(f"{where}: bytes {first}..{first + count} lie outside of the allocation of {span.bytes} bytes")
    return (span.first + first) // platform.page, -(-(span.first + first + count) // platform.page)


def launched(operators: Iterable[Sequence[Kernel]], spans: Mapping[str, Span], platform: Platform, M: DriverState) -> Launched:
    """The kernels of each operator that touch anything.  Raises UvmError for what a GPU would not carry out."""
    lists, launches, shapes, accesses, count = [0], list[Any](), list[Any](), list[Any](), 0
    tables, length = [np.zeros(1, np.int64)], 1
    for kernels in operators:
        for kernel in kernels:
            if not kernel.accesses:
                continue
            A, more = compile_accesses(kernel, spans, length)
            reached(M, kernel, spans)
            launches.append(_launch(kernel, A, platform, count))
            shapes.append(_shape(kernel, len(A), platform, spans))
            accesses.append(A)
            tables += more
            count, length = count + len(A), length + sum(len(entries) for entries in more)
        lists.append(len(launches))
    return Launched(
        np.array(lists, np.int64), _rows(launches, LAUNCH), _rows(shapes, SHAPE),
        _rows(np.concatenate(accesses) if accesses else [], ACCESS), np.concatenate(tables),
    )  # fmt: skip


def _rows(rows: Any, kind: Any) -> Any:
    out = table(len(rows), kind)
    out[:] = np.array(rows, kind)
    return out


def time_of(kernel: Kernel, platform: Platform, spans: Mapping[str, Span]) -> float:
    """ns of the kernel without faults."""
    if kernel.ns is not None:
        return kernel.ns
    return kernel_ns(kernel, platform, {name: span.bytes for name, span in spans.items()}) if kernel.accesses else 0.0


def warps_of(kernel: Kernel, platform: Platform) -> int:
    """Of a thread block.  Raises UvmError for one that no SM holds."""
    threads = kernel.block[0] * kernel.block[1]
    warps = -(-threads // LANES)
    if warps > platform.warps:
        said = f"{kernel.name}: a thread block of {threads} threads does not fit an SM of {platform.name}"
        raise UvmError(said, kernel.where)
    return warps


def _launch(kernel: Kernel, A: Any, platform: Platform, first: int) -> tuple[int, ...]:
    warps = warps_of(kernel, platform)
    resident = resident_blocks(kernel, platform) * platform.sms_per_utlb
    return (
        first, len(A), warps, kernel.grid[0] * kernel.grid[1], kernel.grid[0], kernel.block[0] * kernel.block[1],
        kernel.steps[0] * kernel.steps[1], resident * warps, sweeps(kernel) and not (A["base"] % A["bytes"]).any(),
        crc32(f"{kernel.name} {[(a.array, a.start) for a in kernel.accesses]}".encode()),
    )  # fmt: skip


def _shape(kernel: Kernel, accesses: int, platform: Platform, spans: Mapping[str, Span]) -> tuple[Any, ...]:
    each = kernel.grid[0] * kernel.grid[1] * warps_of(kernel, platform) * kernel.steps[0] * kernel.steps[1] * accesses
    return (*kernel.grid, *kernel.block, *kernel.steps, time_of(kernel, platform, spans) / each)


def reached(M: DriverState, kernel: Kernel, spans: Mapping[str, Span]) -> None:
    """Raises UvmError for malloc'ed memory where the GPU does not reach it."""
    for a in kernel.accesses:
        span = find(a.array, spans, kernel.name)
        if M.state["hmm_off"][0] and M.blocks[span.first // BLOCK_BYTES]["kind"] == HMM:
            raise by_malloc(kernel, a.array, span)


def by_malloc(kernel: Kernel, array: str, span: Span) -> UvmError:
    """What becomes of a kernel that touches malloc'ed memory where the GPU does not reach it."""
    said = f"{kernel.name}: segmentation fault at {span.first:#x}, '{array}' is malloc'ed memory and HMM is off"
    return UvmError(said, kernel.where, "leave uvm_disable_hmm at 0, or let the array be managed")


def compile_accesses(kernel: Kernel, spans: Mapping[str, Span], length: int = 1) -> tuple[Any, list[Any]]:
    """The rows of a kernel's accesses, and its index tables, which begin at entry `length` of all."""
    rows: list[tuple[int, ...]] = []
    tables: list[Any] = []
    for a in kernel.accesses:
        span = find(a.array, spans, kernel.name)
        room = span.bytes // a.bytes
        x = {
            "base": span.first, "bytes": a.bytes, "write": a.write, "wraps": a.wraps, "form": AFFINE,
            "elements": room if a.elements is None else a.elements, "waits": a.write if a.waits is None else a.waits,
            "start": a.start, "tx": a.tx, "ty": a.ty, "bx": a.bx, "by": a.by, "in_": a.inner, "out": a.outer,
        }  # fmt: skip
        if x["elements"] > room:
            address = span.first + room * a.bytes
            behind = f"behind the {span.bytes:,} bytes of '{a.array}'"
            raise UvmError(f"{kernel.name}: segmentation fault at {address:#x}, {behind}", kernel.where)
        if a.index is not None:
            if a.index.size and not (int(a.index.min()) >= -1 and int(a.index.max()) < room):
                wrong = int(a.index.max()) if int(a.index.min()) >= -1 else int(a.index.min())
                address = span.first + wrong * a.bytes
                said = f"{kernel.name}: segmentation fault at {address:#x}, index {wrong} of '{a.array}'"
                raise UvmError(said, kernel.where)
            x["form"], x["table"], x["length"] = GATHER, length, len(a.index)
            tables.append(a.index)
            length += len(a.index)
        elif a.random is not None:
            x["form"], x["seed"] = RANDOM, a.random
        rows.append(tuple(x.get(name, 0) for name in ACCESS.names or ()))
    return _rows(rows, ACCESS), tables
