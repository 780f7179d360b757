"""Replay of recomputation against the same rules in plain Python: equal decisions, and how much faster.

    python benchmarks/dtr.py [--logs FOLDER] [--heuristic dtr_eq] [--repeat 5]
    python benchmarks/dtr.py --overheads       what each heuristic costs on shipped traces (docs/recompute.md)

Programs are shipped traces as DTR's simulator would be shown them, and with --logs the logs of DTR's own simulator (not
shipped: their licence is not stated).  The rival is tests/support/dtr_reference.py, which gives all results of that simulator,
at its speed or above.  An event is one action of the schedule: an operator, a reference taken or given up, a tensor
kept.  Speeds are of CPU time, tables included, the best of --repeat; the rival runs once.  Exit code 1 when results differ.
"""

from __future__ import annotations

import argparse
import gzip
import io
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from dtr_reference import Replay, schedule  # noqa: E402

from gpusim.machine.catalogue import load  # noqa: E402
from gpusim.machine.kernels.durations import durations  # noqa: E402
from gpusim.policies.plan.parts.recompute import from_log, from_trace  # noqa: E402
from gpusim.policies.plan.parts.recompute.execution import peak, replay  # noqa: E402
from gpusim.trace.exporters.dtr import write  # noqa: E402
from gpusim.trace.files import load_trace  # noqa: E402
from gpusim.trace.workload import build  # noqa: E402

TRACES = ("unet3d-train", "resnet50-train")
RATIOS = (0.9, 0.7, 0.5, 0.3)
LIMIT = 2.0  # of the whole time, as a multiple of the program's own


def programs(logs: str) -> Iterator[tuple[str, bytes]]:
    for name in TRACES:
        trace, out = load_trace(ROOT / "traces" / f"{name}.npz"), io.BytesIO()
        write(trace, out, duration=durations(trace, load("a100-sxm4-80gb"))[0])
        yield name, out.getvalue()
    for path in sorted(Path(logs).glob("*.log.gz")) if logs else ():
        yield path.name.split("-")[0], gzip.decompress(path.read_bytes())


def overheads() -> None:
    """As plan policies see the traces: data is changed in place, and what the program frees is gone for good."""
    shares = (0.9, 0.8, 0.7, 0.6, 0.5, 0.4)
    print(f"| trace | heuristic | {' | '.join(f'{share:.0%}' for share in shares)} |")
    print("| --- | --- |" + " ---: |" * len(shares))
    for name in ("gpt2-small-train", "bert-large-train", "llama-1b-train", "resnet50-train", "unet3d-train"):
        trace = load_trace(ROOT / "traces" / f"{name}.npz")
        work = build(trace, durations(trace, load("a100-sxm4-80gb"))[0])
        program, limit = from_trace.read(work).program, int(work.duration.sum())
        for heuristic in ("dtr_eq", "dtr", "dtr_local", "msps", "size", "lru"):
            outcomes = [replay(program, heuristic, int(work.live_peak * share), limit=limit) for share in shares]
            told = [f"{o.overhead:.2f}" if o.status == "ok" else o.status for o in outcomes]
            print(f"| `{name}` | {heuristic} | {' | '.join(told)} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--logs", default="")
    parser.add_argument("--heuristic", default="dtr_eq")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--overheads", action="store_true")
    given = parser.parse_args()
    if given.overheads:
        overheads()
        return 0
    print("| program | events | memory | result | overhead | evictions | 1000 events/s | rival | ratio |")
    print("| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |")
    worst, differ = float("inf"), False
    for name, log in programs(given.logs):
        program, plain = from_log.read(log, name), schedule(log)
        room, events = peak(program), len(program.verb)
        limit = int((LIMIT - 1) * program.cost.sum())
        replay(program, given.heuristic, room)  # compiles, and finds the neighbours
        for ratio in RATIOS:
            took = float("inf")
            for _ in range(given.repeat):
                start = time.process_time()
                outcome = replay(program, given.heuristic, int(room * ratio), limit=limit)
                took = min(took, time.process_time() - start)
            start = time.process_time()
            rival = Replay(plain, given.heuristic, int(room * ratio), limit)
            slow = time.process_time() - start
            equal = (rival.status, rival.clock - 1, rival.digest) == (
                outcome.status, outcome.model_cost + outcome.remat_cost, outcome.digest,
            )  # fmt: skip
            worst, differ = min(worst, slow / took), differ or not equal
            overhead = f"{outcome.overhead:.3f}" if outcome.status == "ok" else ""
            print(
                f"| {name} | {events:,} | {ratio:.0%} | {outcome.status if equal else 'DIFFERS'} | {overhead} | "
                f"{outcome.evictions:,} | {events / took / 1e3:,.0f} | {events / slow / 1e3:,.0f} | {slow / took:,.0f} |",
                flush=True,
            )
    print(f"\nleast ratio: {worst:,.0f}")
    return int(differ)


if __name__ == "__main__":
    sys.exit(main())
