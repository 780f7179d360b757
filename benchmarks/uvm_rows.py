"""Which program answers which published row, and how: a table.  What a program cannot know is not invented."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import uvm_programs as p
import uvm_unseen as u
from uvm_programs import GIB, MIB
from uvm_sources import source_of

from gpusim.calibrate.uvm import PublishedRow
from gpusim.engine.pages.simulate import StepResult, UvmResult
from gpusim.machine.platforms import DriverWork, load
from gpusim.studies.gpu_ext import study

UNITS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9, "KB": 1024, "MB": 1e6, "MiB": MIB, "GiB": GIB, "GB/s": 1, "GiB/s": GIB / 1e9}
PROCESS_START = 0.2e9  # a CUDA context and its modules, ns; estimated, no source at hand


@dataclass(frozen=True)
class Comparison:
    row: PublishedRow
    simulated: float | None
    reason: str  # why it was not run

    @property
    def error(self) -> float | None:
        """Relative; None where one of both is zero or missing."""
        if self.simulated is None or self.row.value == 0:
            return None
        return self.simulated / self.row.value - 1


# Questions: of a result, in ns, bytes, bytes/ns or counts.


def kernels(r: UvmResult) -> list[StepResult]:
    return [s for s in r.steps if not s.name.startswith(("host", "prefetch", "advise"))]


def total(steps: Iterable[StepResult], processor: int, name: str) -> Any:
    return sum(s.counts[processor][name] for s in steps)


def came(steps: Iterable[StepResult], page: int, processor: int = 1) -> float:
    return float(sum(s.counts[processor]["came"].sum() for s in steps) * page)


def groups(steps: list[StepResult], work: DriverWork) -> float:
    """What all batches took, from their interrupt to their replay."""
    around = work.interrupt * total(steps, 1, "passes") + work.replay * total(steps, 1, "replays")
    return float(total(steps, 1, "service") + around)


def profiled(row: PublishedRow, r: UvmResult, steps: list[StepResult] | None = None) -> float | None:
    """What nvprof or nsys prints of the steps."""
    steps = r.steps if steps is None else steps
    page = r.platform.page
    in_, out = (sum(s.counts[q]["copies"].sum() for s in steps) for q in (1, 0))
    answers: list[tuple[str, Callable[[], float]]] = [
        ("sum of kernel times|^time$", lambda: sum(s.ns for s in kernels(r))),
        ("HtoD average", lambda: came(steps, page) / in_),
        ("DtoH average", lambda: came(steps, page, 0) / out),
        ("HtoD.*total|HtoD 64 KB", lambda: total(steps, 1, "copy_in")),
        ("DtoH.*total|DtoH 64 KB", lambda: total(steps, 1, "copy_out")),
        ("HtoD.*copies", lambda: in_),
        ("DtoH.*copies", lambda: out),
        ("HtoD.*bytes", lambda: came(steps, page)),
        ("DtoH.*bytes", lambda: came(steps, page, 0) + page * total(steps, 1, "left")),
        ("fault groups? total time|single GPU page fault group", lambda: groups(steps, r.platform.work)),
        ("GPU page fault groups", lambda: total(steps, 1, "batches")),
        ("CPU page faults", lambda: total(steps, 0, "faults")),
        ("GPU page faults", lambda: total(steps, 1, "heads")),  # nsys: of each batch the reports of its first page
    ]  # fmt: skip
    return next((float(answer()) for part, answer in answers if re.search(part, row.what)), None)


def of_sparse(row: PublishedRow, m: re.Match[str]) -> float | None:
    r = p.sparse(row.key)
    passes = r.steps[1:]
    n = re.search(r"pass (\d)", row.what)
    these = [passes[int(n[1]) - 1]] if n else passes
    if "wall time" in row.what:
        return r.ns + PROCESS_START
    if "kernel time" in row.what:
        return sum(s.ns for s in these)
    for part, cause in (("caused by demand", 0), ("caused by prefetch", 1)):
        if part in row.what:
            return float(sum(s.counts[1]["came"][cause] for s in these) * 4096)
    if "faults fetched" in row.what:
        return float(total(these, 1, "fetched"))
    if "service time per demand fault" in row.what:
        return float((total(these, 1, "service") - total(these, 1, "copy_wait")) / total(these, 1, "fetched"))
    return profiled(row, r, r.steps[:1] if "CPU" in row.what else these)


def of_batches(row: PublishedRow, machine: str, name: str) -> float:
    gpu = p.grid_pass(machine, name).counts[1]
    return float(gpu["batches"] if row.unit == "count" else gpu["service"] / gpu["batches"])


def of_composition(row: PublishedRow, m: re.Match[str]) -> float | None:
    gpu = p.mix(m[0]).counts[1]
    if row.what.startswith("faults per SM"):
        return float(gpu["faults"] / gpu["batches"] / 80)
    many, of = ("block_services", "batches") if row.what.startswith("VABlocks") else ("faults", "block_services")
    return float(gpu[many] / gpu[of])


def of_share(row: PublishedRow, m: re.Match[str]) -> float | None:
    if "D4/D5" not in row.what:
        return None
    work, shares = load(p.T4).work, []
    for name in ("Stencil-8K", "Stencil-24K", "Sweep-4K", "Sweep-16K", "Sweep-24K"):
        gpu = p.grid_pass(p.T4, name).counts[1]
        shares.append(100 * (1 - (gpu["batches"] * work.batch + gpu["fetched"] * work.fault) / gpu["service"]))
    return float(min(shares) if "low end" in row.what else max(shares))


def of_threshold(row: PublishedRow, m: re.Match[str]) -> float | None:
    threshold = re.search(r"threshold=(\d+)", row.conditions)
    r = p.grid_pass("rtx-5070-ti", f"Stencil-24K@{threshold[1] if threshold else 51}")
    again = of_stencil(0, r) - sum(s.ns for s in kernels(r))
    if "GPU page fault groups" in row.what:  # of a run with 6,007 batches: nsys's page faults, as in the rows of STREAM
        return float(total(kernels(r), 1, "heads"))
    return r.ns + again + PROCESS_START if "wall" in row.what else profiled(row, r)


def of_stencil(n: int, r: UvmResult | None = None) -> float:
    """Twenty passes: the last sixteen are as the third and the fourth."""
    first, second, third, fourth = (s.ns for s in kernels(r or p.grid_pass(RTX, f"Stencil-{n // 1000}K")))
    return float(first + second + 9 * (third + fourth))


def of_warm(r: UvmResult) -> float:
    """The median of the last three runs."""
    return sorted(s.ns for s in kernels(r)[-3:])[1]


def of_interval(row: PublishedRow, kernel: str) -> float:
    """gpu_ext at 1.0 times the memory, of which a context takes what is not published: the nearest of what lies between."""
    ends = [1e6 * study.simulated(kernel, 1.0, "uvm", context) for context in study.CONTEXTS]
    return min(max(row.value * UNITS[row.unit], min(ends)), max(ends))


def of_streaming(row: PublishedRow, r: UvmResult, size: int) -> float | None:
    if row.unit == "GB/s":
        return size / r.steps[3 if "explicit" in row.what else 1].ns
    return r.steps[1].ns if row.what == "time" else profiled(row, r, r.steps[:2])


def of_reads(row: PublishedRow, m: re.Match[str]) -> float:
    machine, size, hints = READS[m[0]]
    n = re.search(r"run (\d)", row.what)
    part = EIGHTH if m[0] in IN_PART else 1
    ran = kernels(p.read_full(machine, size, hints) if machine == GH200 else p.read_again(machine, size, hints, part=part))
    return size / part / ran[min(int(n[1]) if n else 1, len(ran)) - 1].ns


def of_link(row: PublishedRow, m: re.Match[str]) -> float:
    """A migration copy alone."""
    link, size = load("gtx-1080-ti").link, 1024 * int(m[2])
    return link.in_start + size / link.in_rate * 1e9 if m[1] == "htod" else link.out_start + size / link.out_rate * 1e9


ZERO_COPY = ("preferred_location", "accessed_by")
EIGHTH, IN_PART = 8, ("p9_prefcpu_32g", "x86_managed_32g", "x86_accby_32g")  # of memory and data: rates that do not hang on it
READS: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "p9_managed_1g": ("v100-sxm2-power9", GIB, ()),
    "p9_managed_32g": ("v100-sxm2-power9", 32 * GIB, ()),
    "p9_prefcpu_32g": ("v100-sxm2-power9", 32 * GIB, ("preferred_location",)),
    "p9_zero": ("v100-sxm2-power9", GIB, ZERO_COPY),
    "x86_managed_32g": ("v100-pcie-16gb", 32 * GIB, ()),
    "x86_accby_32g": ("v100-pcie-16gb", 32 * GIB, ("accessed_by",)),
    "gh200_k_sys_lo": ("gh200-96gb", GIB, ZERO_COPY),
}
def of_device(row: PublishedRow, m: re.Match[str]) -> float | None:
    if m[1].startswith("local_read"):
        r = p.device_kernel(m[1].removeprefix("local_read_"))
        return 512 * MIB / kernels(r)[1].ns
    first, *later = kernels(p.device_kernel(m[1]))
    gpu = first.counts[1]
    answers: list[tuple[str, Callable[[], float]]] = [
        ("first launch", lambda: first.ns), ("later launches", lambda: later[0].ns), ("batches", lambda: gpu["batches"]),
        ("reports", lambda: gpu["fetched"]), ("services", lambda: gpu["block_services"]), ("CUPTI", lambda: gpu["heads"]),
        ("copies in", lambda: gpu["copies"].sum()),
    ]  # fmt: skip
    return next((float(answer()) for part, answer in answers if part in row.what), None)


def of_device_fault(row: PublishedRow, m: re.Match[str]) -> float:
    return float(p.faults_on(p.h100(), *p.looked_up(TOUCHES, m[1], "touches")).steps[-1].ns)


TOUCHES = {"64": (0, 1), "128": (0, 1, 2), "256": (0, 1, 2, 4), "512": (0, 1, 2, 4, 8), "1024": (0, 1, 2, 4, 8, 16)}
GTX, P100, GH200, RTX = "gtx-1080-ti", "p100-sxm2-16gb", "gh200-96gb", "rtx-5070-ti"

Answer = Callable[[PublishedRow, re.Match[str]], float | None]
# The key of a row (or its workload, where the key is one for several), and what answers it.
TABLE: list[tuple[str, Answer]] = [
    (r"h100_fault_(\d+)KB", of_device_fault),
    (r"h100_((?:stream|stencil|few|page_a|chunk|sparse|local_read).*)", of_device),
    (r"nvprof_fault_(\d+)KB", lambda row, m: p.faults(GTX, *p.looked_up(TOUCHES, m[1], "touches")).steps[-1].ns),
    (r"nvprof_fault_128KB_split", lambda row, m: p.faults(GTX, 1, 3, 0).steps[-1].ns),
    (r"nvprof_first_in_block", lambda row, m: p.faults(GTX, 0, 32).steps[-1].ns),
    (r"um_(htod|dtoh)_(\d+)KB", of_link),
    (r"uvmsmart_real_(\S+)", lambda row, m: profiled(row, p.looked_up(p.UVMSMART, m[1], "program")())),
    (r"gtx1080ti_d2h", lambda row, m: profiled(row, p.read_back(GTX, 10_988_000))),
    (r"(?:sparse|faultcount)_.*", of_sparse),
    (r"hostfill_t51", lambda row, m: p.sparse("sparse_ov_K1_t51").steps[0].counts[0]["faults"] / 12288),
    (r"hostfill24_t51", lambda row, m: p.sparse("sparse_ov_K1_t51").steps[0].ns),
    (r"hostfill8_t0", lambda row, m: p.sparse("sparse_in_K1_t0").steps[0].ns),
    (r"t4_((?:Stencil|Sweep)-\d+K)", lambda row, m: of_batches(row, p.T4, m[1])),
    (r"5070ti_((?:Stencil|Sweep)-\d+K)", lambda row, m: of_batches(row, RTX, m[1])),
    (r"t4_S24K_sum", lambda row, m: p.grid_pass(p.T4, "Stencil-24K").counts[1]["service"]),
    (r"t4_W24K_sum5", lambda row, m: 5 * p.grid_pass(p.T4, "Sweep-24K").counts[1]["service"]),
    (r"t4_replay", lambda row, m: load("t4").work.replay),
    (r"t4_shares", of_share),
    (r"5070ti_S24K_kernel", lambda row, m: of_stencil(24_000)),
    (r"base_STREAM ([\d.]+).*", lambda row, m: kernels(p.stream(int(float(m[1]) * 1e9) // 4096 * 4096))[0].ns),
    (r"faults_STREAM_([\d.]+)", lambda row, m: p.stream(int(float(m[1]) * 1e9) // 4096 * 4096).counts[1]["heads"]),
    (r"base_Stencil (\d+)", lambda row, m: kernels(p.stencil(int(m[1])))[0].ns),
    (r"Regular|Random|stream", of_composition),
    (r"nv2017_nvprof", lambda row, m: of_streaming(row, p.read_once_on(p.power8(), 64 * MIB), 64 * MIB)),
    (r"nv2017_.*", lambda row, m: of_streaming(row, p.read_once(P100, 64 * MIB), 64 * MIB)),
    (r"pascal_um_naive UM", lambda row, m: of_streaming(row, p.read_once(p.GTX_1080, 2 * GIB), 2 * GIB)),
    (r"v100_tiny", lambda row, m: profiled(row, tiny := p.read_once("v100-pcie-16gb", 65536), tiny.steps[:3])),
    (r"rtx2080s_tiny", lambda row, m: 2 * p.read_once(p.RTX_2080_SUPER, 65536).steps[1].counts[1]["copy_in"]),
    ("|".join(READS), of_reads),
    (r"gpuext_(seq_stream|rand_stream)_1\.0", lambda row, m: of_interval(row, m[1])),
    (r"gpuext_seq_stream_([\d.]+)", lambda row, m: of_warm(p.sequential(float(m[1])))),
    (r"gpuext_adv_(.*)", lambda row, m: of_warm(p.sequential(0.25, m[1].replace("baseline", "")))),
    (r"gpuext_(rand_stream|pointer_chase)_([\d.]+)", lambda row, m: 1e6 * study.simulated(m[1], float(m[2]), "uvm", 0.6)),
    (r"add_(p100|v100|rtx2060)_(\w+)", lambda row, m: u.of_adder(row, m, profiled)),
    (r"oversub_(\d+)", lambda row, m: u.of_oversub(row, m, profiled)),
    (r"simple(Managed|DMA)_(\d+)M", u.of_multiplied),
    (r"first_touch_gtx1060", lambda row, m: profiled(row, u.first_touch())),
    (r"ariadne_svc", lambda row, m: p.faults(p.A5000, 0, 1).steps[-1].counts[1]["service"]),
    (r"Stencil-24K", of_threshold),
    (r"gh200_h2d", lambda row, m: load(GH200).link.in_rate / 1e9),
    (r"gh200_d2h|schieffer_d2h", lambda row, m: load(GH200).link.out_rate / 1e9),
    (r"gh200_lpddr|schieffer_stream", lambda row, m: load(GH200).cpu_rate / 1e9),
    (r"gh200_hbm|schieffer_hbm", lambda row, m: 3 * GIB / p.resident(GH200, "triad").steps[-1].ns),
]  # fmt: skip
LEFT_OUT: list[tuple[str, str]] = [  # key or workload -> why
    (r"gpuext_mt.*|shadow.*|nixie.*|msched.*", "several processes or GPUs at once"),
    (r"memcpy_htod.*", "an explicit copy from pageable memory, nothing that migrates"),
    (r"utlb56|batch256", "a limit that is an input of the model"),
    (r"gh200_.*|fusco.*", "another socket's memory, a latency, or a kernel of unknown shape: nothing that migrates"),
    (r"t4_shares", "the model does not part fetching from sorting"),
    (r"t4_W24K_wall", "five trials, with the host's own work, which the source does not describe"),
    (r"STREAM-.*|Stencil-48000.*", "wall time of a process of which the source does not say what the host fills"),
    (r"base_cuFFT.*|cufft|hpgmg", "a library's or a large program's access pattern, which is not published"),
    (r"bede_.*", "a library's matrix product: its tiles are not published, and every access of one is too much for this table"),
    (r"base_SGEMM.*", "a matrix product of the authors' own, of whose speed without faults nothing is said"),
    (r"uvmbench.*|asplos20.*|ariadne.*|sc21.*", "a range, or a mean, over programs that the source does not give in full"),
]
UNSAID = "the source does not say enough of the program to write it down"


def names(row: PublishedRow) -> Iterator[str]:
    yield row.key
    yield row.workload


def simulated(row: PublishedRow) -> float | None:
    """The model's number for a row, in its unit; None when no program answers it, or that program is not known."""
    if (source := source_of(*names(row))) is not None and source.unknown:
        raise p.UnknownProgramError(source.unknown)
    for pattern, answer in TABLE:
        for name in names(row):
            if m := re.fullmatch(pattern, name):
                value = answer(row, m)
                return None if value is None else float(value) / UNITS.get(row.unit, 1)
    return None


def reason(row: PublishedRow) -> str:
    """Why a row has no number."""
    for pattern, why in LEFT_OUT:
        if any(re.fullmatch(pattern, name) for name in names(row)):
            return why
    return UNSAID


def compare(rows: Iterable[PublishedRow], use: str) -> list[Comparison]:
    out = []
    for row in (r for r in rows if r.use == use):
        begin = time.perf_counter()
        why = ""
        try:
            value = simulated(row)
        except p.UnknownProgramError as error:
            value, why = None, str(error)
        print(f"{row.id:28} {row.key:32} {row.value:12.5g} {value if value is None else f'{value:12.5g}'} {row.unit} "
              f"{'' if value is None or not row.value else f'{100 * (value / row.value - 1):+.0f} %'} "
              f"{time.perf_counter() - begin:.1f} s", flush=True)  # fmt: skip
        out.append(Comparison(row, value, "" if value is not None else why or reason(row)))
    return out
