"""Each published row of gpu_ext beside ours: programs from their sources on the catalogue's RTX 5090."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any

from gpusim.engine.pages.processes import ManagedProcess, simulate_processes
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.machine import catalogue
from gpusim.machine.platforms import load
from gpusim.machine.tenancy import FIXED_NS, MEASURED_SLICE_NS, SLICES, STATE, Switch, Tenancy, Tenant
from gpusim.policies import registry
from gpusim.programs.managed.steps import Advise, Kernel, ManagedProgram, Prefetch, Step
from gpusim.studies.gpu_ext import kernels
from gpusim.studies.gpu_ext.kernels import TOTAL, StudyProgram

FOLDER = Path(__file__).parent
GIB = 1 << 30
CONTEXTS = (0.5, 1.2)  # GiB that a process takes from the total: not published, so that ours is what lies between
MACHINE = "rtx-5090"
# How much is simulated: GEMM's layers; of hotspot's rows and columns, and of k-means' points, one of so many.
OF_ONE = {"gemm": 8, "hotspot": 8, "kmeans": 16}
OF_TWO = {"gemm": 2, "hotspot": 12, "kmeans": 8}  # of each of two processes
SHORTER = 10  # turns, and what a switch costs: in a memory of a hundredth a turn is to fill a small part of it, too
# Of two: two warm-ups and one iteration, of ten tokens or passes, as in the study; of k-means a fifth of the passes.
WARM, TIMED = {"gemm": 20, "hotspot": 10, "kmeans": 4}, {"gemm": 10, "hotspot": 5, "kmeans": 2}
# What resident kernels take is no paging, and comes from other rows than those that are scored: cudaMalloc of the same file,
# and the run alone of each pair.
ACCESS_NS = 0.568e6 / (16_834_658_304 / 4096)  # seq_stream, device, 0.5
HOP_NS = 9e3 / 8                               # pointer_chase, device, 0.5
ALONE = {"hotspot": 0.6, "kmeans": 0.9}  # the size factor of single_1x
LAYER_NS = 1476.69e6 / (112 * 10)  # single_1x of GEMM ...
PASS_NS = {"hotspot": 412.128e6 / 10, "kmeans": 361.922e6 / 10}  # ... and of the others
GIVEN = ("device", "single_1x")
STORES = (("seq_stream", "uvm_advise_pref_cpu"), ("rand_stream", "uvm_advise_pref_cpu"))  # remote_store is fitted to the first
SYNTHETIC = {
    "seq_stream": (kernels.sequential, ACCESS_NS), "rand_stream": (kernels.scattered, ACCESS_NS),
    "pointer_chase": (kernels.pointer_chase, HOP_NS),
}  # fmt: skip
PARTED = {"hotspot": kernels.hotspot, "kmeans": kernels.kmeans}
HINTS: dict[str, tuple[str, int] | None] = {
    "uvm": None, "uvm_prefetch": None, "uvm_advise_read": ("read_mostly", 1), "uvm_advise_pref_gpu": ("preferred_location", 1),
    "uvm_advise_pref_cpu": ("preferred_location", 0), "uvm_advise_access": ("accessed_by", 1),
}  # fmt: skip
# eviction_freq_pid_decay(1, 1) moves a chunk to the end of the list at each service, as the driver does.
DRIVER_ITSELF = ("no_policy", "single_2x", "eviction_freq_pid_decay")
MOST = 100.0
LOW = " low"  # behind the case: the other one of two processes
WHOLE = ", whole run"  # behind the group: two warm-ups and the iteration
RUNS = 3
TWO = "two processes in time slices"
COUNTING = ("prefetch_eviction_pid", "eviction_freq_pid_decay")  # services of a chunk, every nth of which counts as a use
ORDER = f"{TWO}; its eviction as the driver's: a chunk's services follow each other"


@dataclass(frozen=True)
class StudyRow:
    """One published time.

    group  the rows that are compared with each other
    given  it is an input, and not scored
    """

    group: str
    case: str
    published_ms: float
    low_ms: float
    high_ms: float
    row: tuple[tuple[str, str], ...]
    given: bool = False

    def __getitem__(self, key: str) -> str:
        return dict(self.row)[key]


def published() -> list[StudyRow]:
    with (FOLDER / "gpu_ext_published.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    pairs = [row for row in rows if row["low_ms"]]
    return [*map(_row, rows), *(_row(row, "low_ms") for row in pairs), *_whole_runs(rows)]


def _whole_runs(rows: Sequence[dict[str, str]]) -> Iterator[StudyRow]:
    """Of pairs, what a process took from its first kernel on: all of it, less what the run alone took before its own.

    Two warm-ups and the iteration.  When one process ends first decides what the other's iteration takes, and not this.
    """
    before = {
        (row["file"], row["kernel"]): float(row["latency_s"]) * 1e3 - RUNS * float(row["median_ms"])
        for row in rows if row["policy"] == "single_1x"
    }  # fmt: skip
    for row in rows:
        for column, latency in (("median_ms", "latency_s"), ("low_ms", "low_latency_s")):
            if row["low_ms"]:
                ms = float(row[latency]) * 1e3 - before[row["file"], row["kernel"]]
                one = _row({**row, column: str(ms)}, column)
                yield replace(one, group=one.group.removesuffix(f",{LOW}") + WHOLE)


def _row(row: dict[str, str], column: str = "median_ms") -> StudyRow:
    ms, low = float(row[column]), column == "low_ms"
    apart = row["policy"] and not row["policy"].startswith("single")
    hinted = "memadvise" in row["file"]
    group = f"{row['kernel']}, {'two processes' if apart else 'hints' if hinted else 'alone'}{',' * low}{LOW * low}"
    case = f"{row['policy']}({row['high']}, {row['low']})" if apart else row["policy"] or f"{row['mode']} {row['size_factor']}"
    least, most = (ms, ms) if low else (float(row["min_ms"] or ms), float(row["max_ms"] or ms))
    return StudyRow(group, case + LOW * low, ms, least, most, tuple(row.items()),
                    row["mode"] in GIVEN or row["policy"] in GIVEN or (row["kernel"], row["mode"]) in STORES)  # fmt: skip


def _prefetches(row: StudyRow) -> bool:
    """Whether the policy of prefetching was there: its loader refuses thresholds above 100 percent, and ends."""
    return bool(row["high"]) and row["policy"] not in DRIVER_ITSELF and float(row["high"]) <= MOST


def reproduce(
    rows: Iterable[StudyRow], progress: Callable[[int, int], None] = lambda done, total: None
) -> list[dict[str, Any]]:
    rows = list(rows)
    made = []
    for n, row in enumerate(rows, 1):
        made.append(_answer(row))
        progress(n, len(rows))
    return made


def _answer(row: StudyRow) -> dict[str, Any]:
    two = "two processes" in row.group
    how = (ORDER if row["policy"] in COUNTING and row["high"] != row["low"] else TWO) if two else ""
    found = [] if row.given else [_ms(row, context) for context in CONTEXTS]
    low, high = (min(found), max(found)) if found else (None, None)
    nearest = None if low is None or high is None else min(max(row.published_ms, low), high)
    return {
        "group": row.group, "case": row.case, "published": row.published_ms, "from": row.low_ms, "to": row.high_ms,
        "ours": None if low is None or high is None else (low + high) / 2, "ours_low": low, "ours_high": high,
        "difference": None if nearest is None else nearest / row.published_ms - 1, "note": "given" if row.given else how,
    }  # fmt: skip


def _ms(row: StudyRow, context: float) -> float:
    kernel, factor = row["kernel"], float(row["size_factor"])
    if kernel in SYNTHETIC:
        return simulated(kernel, factor, row["mode"], context)
    if "two processes" not in row.group:
        return simulated_alone(kernel, factor, context)
    thresholds = (float(row["high"]), float(row["low"])) if _prefetches(row) else None
    high, low = simulated_pair(kernel, factor, thresholds, context)
    return (low if row.case.endswith(LOW) else high)[row.group.endswith(WHOLE)]


@cache
def simulated(kernel: str, factor: float, mode: str, context: float) -> float:
    """ms of a synthetic kernel: the median of its timed runs."""
    write, ns = SYNTHETIC[kernel]
    program = write(factor, ns)
    touch = sum(not isinstance(step, Kernel) or step.name == "init" for step in program.steps[:2])
    hint = HINTS[mode]
    said: list[Step] = [Advise(array.name, *hint) for array in program.arrays] if hint else []
    if mode == "uvm_prefetch":
        said = [Prefetch(array.name) for array in program.arrays]
    steps = [*program.steps[:touch], *said, *program.steps[touch:]]
    times = _run(replace(program, steps=steps), context, "tree")
    return float(median(_iterations(times)))


def _iterations(times: list[float]) -> list[float]:
    """Three timed runs of as many steps each."""
    each = len(times) // 3
    return [sum(times[k * each : (k + 1) * each]) for k in range(3)]


@cache
def simulated_alone(kernel: str, factor: float, context: float) -> float:
    """ms of one iteration of GEMM, hotspot or k-means, alone."""
    program = _written(kernel, factor, OF_ONE[kernel], 1, 1)
    return sum(_run(program, context, "tree")) * program.times


def _written(kernel: str, factor: float, part: int, warm: int, timed: int) -> StudyProgram:
    if kernel == "gemm":
        return kernels.gemm(factor, LAYER_NS, part, warm, timed)
    return PARTED[kernel](factor, PASS_NS[kernel] * factor / ALONE[kernel], part, warm, timed)


@cache
def simulated_pair(
    kernel: str, factor: float, thresholds: tuple[float, float] | None, context: float
) -> tuple[tuple[float, float], tuple[float, float]]:
    """Two processes run one of these kernels at once: of each ms of its timed iteration, and of all from its first kernel on.

    thresholds  of prefetch_pid_tree, percent; None: the driver's tree
    """
    program = _written(kernel, factor, OF_TWO[kernel], WARM[kernel], TIMED[kernel])
    arrays, prefetch = len(program.arrays), "tree"
    if thresholds:
        prefetch = f"prefetch_pid_tree(arrays={arrays}, high={thresholds[0]:g}, low={thresholds[1]:g})"
    ways = DriverSettings(prefetch=prefetch, own=registry.of(FOLDER / "policies.py"))
    gpu = catalogue.load(MACHINE)
    process = ManagedProcess(
        ManagedProgram(kernel, program.arrays, program.steps), gpu, int((TOTAL - 2 * context * GIB) * program.scale)
    )
    cost = Switch(FIXED_NS / SHORTER, STATE // SHORTER, float(gpu.memory.bandwidth.value) / 1e9)
    slices = Tenancy(SLICES, (Tenant(slice=MEASURED_SLICE_NS // SHORTER),) * 2, cost)
    ran = simulate_processes([process] * 2, slices, settings=ways)
    ms = program.times / 1e6
    high, low = (
        (result.metrics["makespan_ns"] * ms, (result.metrics["makespan_ns"] - float(began.min())) * ms)
        for result, began in zip(ran.results, ran.began, strict=True)
    )
    return high, low


def _run(program: StudyProgram, context: float, prefetcher: str) -> list[float]:
    """ms of each timed step."""
    own = registry.of(FOLDER / "policies.py")
    machine = replace(load(MACHINE), memory=int((TOTAL - context * GIB) * program.scale))
    result = simulate_uvm(program.arrays, program.steps, machine, prefetcher=prefetcher, own=own)
    return [step.ns / 1e6 for step in result.steps]


def rankings(made: Iterable[dict[str, Any]]) -> list[str]:
    """Pairs of cases of a group that come in another order than published, where both orders are sure: intervals apart."""
    wrong = []
    for a, b in combinations([row for row in made if row["ours"] is not None], 2):
        if a["group"] != b["group"]:
            continue
        theirs = (a["from"] > b["to"]) - (b["from"] > a["to"])
        ours = (a["ours_low"] > b["ours_high"]) - (b["ours_low"] > a["ours_high"])
        if theirs and ours and theirs != ours:
            wrong.append(f"{a['group']}: {a['case']} and {b['case']}")
    return wrong


def summary(made: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """By group: how many rows are scored, and how far off they are."""
    groups: dict[str, list[float]] = {}
    refused: dict[str, int] = {}
    for row in made:
        if row["difference"] is not None:
            groups.setdefault(row["group"], []).append(abs(row["difference"]))
        elif row["note"] != "given":  # refused
            refused[row["group"]] = refused.get(row["group"], 0) + 1
    return [
        {"group": group, "rows": len(off), "median": median(off), "worst": max(off), "refused": refused.get(group, 0)}
        for group, off in groups.items()
    ]
