"""Where each program of a published row comes from, and what of it the source states; "" is: it does not say.

A row whose program is neither in a source's code nor described there is not scored: `unknown` says why.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

FIRST, SPEC, SMART, LUTZ, EXT = (
    "rayanw36/SpecAsync-UVM @ded7672", "rayanw36/SpecAsync-UVM @b769ba9", "DebashisGanguly/gpgpu-sim_UVMSmart @5601037",
    "LutzCle/unified-memory-debugging @83494ab", "eunomia-bpf/gpu_ext @3f4cc2d",
)  # fmt: skip


@dataclass(frozen=True)
class ProgramSource:
    """What is run for rows of these keys.

    kernel      repository, commit and file, or the text that describes it
    launch      grid x block; bytes, of an access; stride, from a thread's access to its next
    runs        what of it is timed, after which warm-ups
    basis       what sizes are a share of, or where they stand
    counter     what the number counts
    unknown     why the program is not known: then the row is not scored
    """

    keys: str
    kernel: str
    launch: str = ""
    bytes: str = ""
    stride: str = ""
    runs: str = ""
    basis: str = ""
    counter: str = ""
    unknown: str = ""


SOURCES = [
    ProgramSource(
        r"h100_.*",
        "this repository: benchmarks/uvm_device.cu, kernels as their published programs have them",
        launch="in the row",
        bytes="4",
        runs="each launch timed; counts from a second, traced run",
        basis="in the row",
        counter="the driver's event queue: reports fetched, batches, services; CUPTI: the reports of each batch's first page",
    ),
    ProgramSource(
        r"nvprof_.*|um_(?:htod|dtoh)_.*",
        f"{SMART}: micro-benchmarks/*.cu, with nvprof's trace in comments",
        launch="1 x 1",
        bytes="1",
        runs="one launch for each touch, no warm-up",
        basis="4 MiB in the source",
        counter="a fault group, a copy",
    ),
    ProgramSource(
        r"uvmsmart_real_.*",
        f"{SMART}: benchmarks/, Polybench and Rodinia",
        launch="the benchmark's own",
        bytes="4",
        runs="the whole program once, no warm-up",
        basis="sizes in the row",
        counter="fault groups, copies, CPU faults of nvprof",
    ),
    ProgramSource(
        r"(?:sparse|faultcount|hostfill).*",
        "rayanw36/SpecAsync-UVM, reports GATE_E8 and E9: bench_sparse, described and not in @b769ba9",
        launch="a thread for each block of 2 MiB, in random order",
        bytes="4",
        runs="three passes, each timed; no warm-up",
        basis="8 or 24 GiB, in the row",
        counter="faults that the driver fetched; bytes of copies",
    ),
    ProgramSource(
        r"(?:base|faults)_STREAM.*",
        f"{FIRST}: benchmarks/bench_stream.cu",
        launch="N / 256 x 256",
        bytes="4",
        runs="one launch, the first, is timed; the host fills what is read",
        basis="N, in the row",
        counter="of each batch the reports of its first page (nsys: sum of numberOfPageFaults)",
    ),
    ProgramSource(
        r"base_Stencil.*",
        f"{FIRST}: benchmarks/bench_stencil.cu",
        launch="N/16 x N/16 blocks of 16 x 16",
        bytes="4",
        runs="one pass, the first, is timed; the host fills the input",
        basis="N, in the row",
        counter="ms by CUDA events",
    ),
    ProgramSource(
        r"(?:t4|5070ti)_St.*|(?:t4|5070ti)_S24K.*|Stencil-24K",
        f"{SPEC}: benchmarks/bench_stencil.cu",
        launch="N/16 x N/16 blocks of 16 x 16",
        bytes="4",
        runs="20 passes to and fro, all in the timed region; no warm-up",
        basis="N, in the row",
        counter="batches of the driver; reports (nsys)",
    ),
    ProgramSource(
        r"(?:t4|5070ti)_(?:Sweep|W24K).*",
        "rayanw36/SpecAsync-UVM, report PHASEC",
        unknown="the kernel of Sweep is not in the sources",
    ),
    ProgramSource(
        r"p9_.*|x86_.*",
        f"{LUTZ}: um_reprex.cu",
        launch="2 for each SM x 128",
        bytes="4",
        stride="the grid",
        runs="five runs, each printed; no warm-up",
        basis="1 or 32 GiB, in the source",
        counter="GiB/s of a run by CUDA events",
    ),
    ProgramSource(
        r"gpuext_seq_stream.*|gpuext_adv.*",
        f"{EXT}: microbench/memory/kernels/synthetic.cuh, seq_chunk_kernel",
        launch="256 x 256",
        bytes="4, read and written",
        stride="4,096 in a chunk of its own",
        runs="median of three after two warm-ups",
        basis="total of cudaMemGetInfo; half is input, half output",
        counter="ms of a run by CUDA events",
    ),
    ProgramSource(
        r"gpuext_(?:rand_stream|pointer_chase).*",
        f"{EXT}: microbench/memory/kernels/synthetic.cuh, rand_chunk_kernel and pointer_chunk_kernel",
        launch="256 x 256",
        bytes="4, read and written; nodes of 12",
        stride="random in a chunk of its own",
        runs="median of three after two warm-ups",
        basis="total of cudaMemGetInfo",
        counter="ms of a run by CUDA events",
    ),
    ProgramSource(
        r"v100_tiny|rtx2080s_tiny",
        "a public repository whose name was not recorded",
        unknown="its program cannot be read again",
    ),
    ProgramSource(
        r"nv2017_.*",
        "NVIDIA developer blog, 2017: stream of 64 MB, described",
        bytes="4",
        basis="64 MB, in the text",
        counter="GB/s of a kernel",
    ),
    ProgramSource(
        r"pascal_um.*",
        "parallelArchitect/pascal-um-benchmark, described in its report",
        bytes="4",
        runs="one launch",
        basis="2 GiB",
        counter="ms of a kernel, copies",
    ),
    ProgramSource(
        r"Regular|Random|stream",
        "Allen and Ge, SC 2021: section on synthetic kernels, described",
        launch="a thread a page; STREAM",
        bytes="4",
        counter="faults in a batch",
    ),
    ProgramSource(
        r"add_(?:p100|rtx2060)_.*",
        "NVIDIA developer blog, Unified Memory for CUDA Beginners, 2017: add_grid.cu and its variants, in the text",
        launch="4,096 x 256",
        bytes="4, read and written",
        stride="the grid",
        runs="one launch or a hundred, no warm-up",
        basis="2 x 4 MiB, in the source",
        counter="nvprof: kernels, fault groups, copies, CPU faults",
    ),
    ProgramSource(
        r"add_v100_.*",
        "NanXiao/cuda_unified_memory_example @b1fd1f2: add_grid_init.cu, add_grid_many.cu, add_grid_prefetch.cu",
        launch="4,096 x 256",
        bytes="4, read and written",
        stride="the grid",
        runs="one launch or a hundred, no warm-up",
        basis="2 x 4 MiB, in the source",
        counter="nvprof: kernels, fault groups, copies, CPU faults",
    ),
    ProgramSource(
        r"oversub_\d+",
        "nitro44x/cudaOversubscribe @8c60319: src/kernel.cpp",
        launch="256 x 256",
        bytes="8, read and written",
        stride="the grid",
        runs="ten runs over all arrays, no warm-up; simulated with a tenth of memory and arrays",
        basis="arrays of 100 MiB, in the source; how many, in the row",
        counter="nvprof: kernels, fault groups, copies, CPU faults",
    ),
    ProgramSource(
        r"simple(?:Managed|DMA)_\d+M",
        "xnd-project/cuda-benchmarks @d7d6577: simpleManaged.cu, simpleDMA.cu",
        launch="N / 256 x 256",
        bytes="8",
        runs="one launch, no warm-up; simulated with a fifth of memory and arrays",
        basis="N, in the row",
        counter="clock() of the process around fill, kernel and reading",
    ),
    ProgramSource(
        r"first_touch_gtx1060",
        "a question in NVIDIA's forum (107172), with the program: case 1",
        launch="131,072 x 256",
        bytes="4, written",
        stride="the grid",
        runs="one launch, no warm-up",
        basis="128 MiB, in the source",
        counter="nvprof: fault groups",
    ),
    ProgramSource(
        r"ariadne_svc",
        "Shin et al., HPCA 2026, described",
        launch="1 x 1",
        bytes="1",
        runs="one fault",
        counter="us of a service",
    ),
    ProgramSource(
        r"gtx1080ti_d2h",
        f"{SMART}, read back by the host",
        bytes="4",
        runs="one pass",
        basis="10,988,000 bytes",
        counter="copies of nvprof",
    ),
]


def source_of(*names: str) -> ProgramSource | None:
    """The entry of a row, by its key or its workload; None where its number is no program's."""
    return next((s for s in SOURCES if any(re.fullmatch(s.keys, name) for name in names)), None)


def table() -> list[str]:
    """The entries as a table."""
    head = ("rows", "kernel", "grid x block", "bytes", "stride", "timed", "sizes", "counter")
    lines = ["| " + " | ".join(head) + " |", "| --- " * len(head) + "|"]
    for s in SOURCES:
        keys = s.keys.replace("|", ", ").replace("(?:", "(")
        said = [each or "not stated" for each in (s.launch, s.bytes, s.stride, s.runs, s.basis, s.counter)]
        if s.unknown:
            said = [f"not scored: {s.unknown}", *[""] * 5]
        lines.append("| " + " | ".join((f"`{keys}`", s.kernel, *said)) + " |")
    return lines
