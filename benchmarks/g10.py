"""The G10 study: how fast its figure 11 is reproduced, and which policy wins on real links with kernels of real length.

    python benchmarks/g10.py [reproduction | comparison] [--traces FOLDER]

First the policies of figure 11 in one warm process: CPU seconds, best of three, beside the user seconds that the study's own
simulator took on two shared cores; every figure must be the published one.  Then the same policies, and some that the study
does not have, in the engine on an A100 with PCIe 4: tensors move, copies queue in two engines, what is dead is free.  Kernel
times as shipped, and without what does not depend on the batch: a line through the study's two smallest batches leaves 4.5
and 1.7 s of its transformers for an empty one, and its convolutional networks are a hundred times too slow.
"""

from __future__ import annotations

import argparse
import resource
from pathlib import Path

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.programs.recordings import import_trace
from gpusim.studies.g10.study import G10Study, load

SHIPPED = Path(__file__).parent.parent / "traces" / "g10"
PROGRAMS = ("bert_base_b256", "vit_b1280", "inceptionv3_b1536", "resnet152_b1280", "senet154_b1024")

# User seconds of the study's own simulator, where it was run.
THEIRS = {
    ("bert_base_b256", "lru"): 110, ("bert_base_b256", "deepUM"): 116, ("bert_base_b256", "prefetch_lru"): 52,
    ("bert_base_b256", "FlashNeuron"): 9, ("bert_base_b256", "G10GDSSSD"): 6, ("bert_base_b256", "G10GDSFULL"): 3,
    ("vit_b1280", "lru"): 154, ("vit_b1280", "deepUM"): 129, ("vit_b1280", "prefetch_lru"): 88, ("vit_b1280", "FlashNeuron"): 3,
    ("vit_b1280", "G10GDSSSD"): 10, ("vit_b1280", "G10GDSFULL"): 8, ("inceptionv3_b1536", "FlashNeuron"): 7,
    ("inceptionv3_b1536", "G10GDSSSD"): 36, ("inceptionv3_b1536", "G10GDSFULL"): 14, ("resnet152_b1280", "FlashNeuron"): 13,
    ("resnet152_b1280", "G10GDSSSD"): 77, ("resnet152_b1280", "G10GDSFULL"): 73, ("senet154_b1024", "FlashNeuron"): 22,
    ("senet154_b1024", "G10GDSSSD"): 269, ("senet154_b1024", "G10GDSFULL"): 174,
}  # fmt: skip

MACHINE, MEMORY = "a100-pcie-40gb", 38 * 2**30
REAL = {"bert_base_b256": (7.285 - 4.5) / 7.285, "vit_b1280": (3.716 - 1.7) / 3.716}  # of the shipped times; others: 1 %
HOST, BOTH = "host(capacity=128 GiB)", "host(capacity=128 GiB) > nvme"
POLICIES = {
    "fifo": {"evict": "fifo"},
    "lru": {"evict": "lru"},
    "deepum": {"evict": "fifo", "prefetch": "deepum"},
    "next_k(k=8)": {"evict": "lru", "prefetch": "next_k(k=8)"},
    "g10, host > nvme": {"evict": "lru", "plan": "g10"},
    "g10, host": {"evict": "lru", "plan": "g10", "tiers": HOST},
    "flashneuron": {"evict": "lru", "plan": "flashneuron"},
    "capuchin": {"evict": "lru", "plan": "capuchin"},
    "tflms": {"evict": "lru", "plan": "tflms"},
    "belady + oracle": {"evict": "belady", "prefetch": "oracle"},
}


def reproduction(traces: Path) -> None:
    study, total = G10Study(), 0.0
    print(f"{'program':18} {'policy':14} {'seconds':>8} {'theirs':>7} {'ratio':>7}")
    for name in PROGRAMS:
        program = load(name, traces)
        if program is None:
            continue
        for row in study.figures(["11"]):
            if row.case.program != name or row.case.policy == "ideal":
                continue
            study.run(row.case, program)  # warm
            outcomes = [study.run(row.case, program) for _ in range(3)]
            assert all(abs(outcome.cycles - row.cycles) <= 1 for outcome in outcomes if row.cycles), row  # some are truncated
            seconds = min(outcome.seconds for outcome in outcomes)
            total += seconds
            theirs = THEIRS.get((name, row.case.policy))
            ratio = f"{theirs:>7} {theirs / seconds:>6.0f}x" if theirs else f"{'-':>7} {'-':>7}"
            print(f"{name:18} {row.case.policy:14} {seconds:8.3f} {ratio}", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"all together {total:.1f} s, peak memory of the process {peak:.2f} GiB\n")


def comparison(traces: Path) -> None:
    profile = catalogue.load(MACHINE)
    print(f"{MACHINE}, {MEMORY // 2**30} GiB: time over that without any copy")
    print(f"{'program':18} {'kernels':8} {'ideal':>8} " + " ".join(f"{name:>16}" for name in POLICIES))
    for name in PROGRAMS:
        path = traces / f"{name}.jsonl.gz"
        if not path.is_file():
            continue
        trace = import_trace(path)
        for label, scale in (("shipped", 1.0), ("real", REAL.get(name, 0.01))):
            times = np.maximum(1, (trace.duration * scale).astype(np.int64))
            cells = []
            for policies in POLICIES.values():
                try:
                    made = simulate(
                        trace, profile, capacity_bytes=MEMORY, place="best_fit", durations=times, **{"tiers": BOTH, **policies}
                    )
                    slowdown = f"{made.metrics['makespan_ns'] / times.sum():.3f}"
                    cells.append(slowdown if made.outcome == "finished" else "no room")
                except GpusimError as error:
                    cells.append(str(error)[:16])
            ideal = f"{times.sum() / 1e9:.2f} s"
            print(f"{name:18} {label:8} {ideal:>8} " + " ".join(f"{cell:>16}" for cell in cells), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, default=SHIPPED)
    parser.add_argument("part", nargs="?", choices=("both", "reproduction", "comparison"), default="both")
    given = parser.parse_args()
    if given.part != "comparison":
        reproduction(given.traces)
    if given.part != "reproduction":
        comparison(given.traces)
