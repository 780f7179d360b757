"""Does `pytorch` answer random programs as the real library does?  A developer's command; pytest does not collect it.

    python tests/support/fuzz_pytorch.py --oracle ~/.cache/torch_oracle/2.15.0/torch_oracle --release 2.15 --operations 300000

The oracle is a program that links a wheel's libc10_cuda.so against a CUDA runtime that only keeps books.  It reads one
command a line and prints what the allocator did:

    a ID SIZE STREAM   f ID   r ID STREAM (record_stream)   e (empty_cache)   h STREAM, u STREAM (hold, let go)
    p new|begin|end|release|empty|nosplit|oom K             C BYTES (of the device)   F FRACTION   S SETTINGS
    R (back to an empty allocator)   . (print a dot and flush)   t (statistics)

    + ACTION ADDR SIZE STREAM      an event of a memory snapshot
    = N OP ID ADDR RESERVED ALLOCATED ACTIVE REQUESTED INACTIVE_SPLIT SEGMENTS      after each command
    # NAME CURRENT PEAK ALLOCATED FREED                                             statistics

Everything must agree: addresses, events, sums after each command, all statistics at the end of each program.  The order of
neighbouring `free_completed` is that of a hash table in the library, and is not compared, nor are then the peak and the
sums of inactive_split, which depend on it.  A program that differs is cut down to the commands that matter, and shown.

Not compared are programs that the library itself aborts, and those in which it deletes a private pool of expandable
segments that still owns memory (`Model.forgets`), and goes on with what it has deleted.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from pytorch_oracle import Model, Oracle, Program, difference
from pytorch_programs import FAMILIES, program


def shrink(case: Program, oracle: Oracle, release: str, budget: int = 400) -> Program:
    """The same difference, or another, in as few commands as cutting out pieces finds."""
    step = max(1, len(case.commands) // 2)
    while step and budget:
        at = 0
        while at < len(case.commands) and budget:
            budget -= 1
            shorter = case.without(at, at + step)
            if compare(shorter, oracle, release):
                case = shorter
            else:
                at += step
        step //= 2
    return case


def compare(case: Program, oracle: Oracle, release: str) -> str:
    """What differs first, or ""; a program that the library itself cannot stand is no difference."""
    lines = oracle.run(case)
    if lines is None or any(" error " in line for line in lines):
        return ""
    return answer(case, lines, release) or ""


def answer(case: Program, lines: list[str], release: str) -> str | None:
    """What differs first, or ""; None when the library has to use a pool that it has deleted."""
    model = Model(case, release)
    said = model.run()
    return None if model.dangling else difference(case, lines, said)


def write(folder: Path, oracle: Oracle, release: str) -> None:
    """A short program of each family with the library's answers: the one of many in which most happens."""
    text = [f"# What libc10_cuda.so of PyTorch {release} answered; written by tests/support/fuzz_pytorch.py --write"]
    for family in FAMILIES:
        best: tuple[int, Program, list[str]] | None = None
        for seed in range(300):
            case = program(family, random.Random(f"{family} {seed}"), 25, release)
            lines = oracle.run(case)
            if lines is None or any(" error " in line for line in lines):
                continue
            events = Counter(line.split()[1] for line in lines if line.startswith("+"))
            score = 10 * len(events) + min(20, sum(events[e] for e in events if "segment" in e or e == "oom"))
            if best is None or score > best[0]:
                best = score, case, lines
        assert best is not None
        _, case, lines = best
        text += [f"case {family} {case.device}", case.text(), "answers", *lines]
    (folder / f"{release}.txt").write_text("\n".join(text) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle", required=True)
    parser.add_argument("--release", default="2.15")
    parser.add_argument("--family", default="all", choices=["all", *FAMILIES])
    parser.add_argument("--operations", type=int, default=100_000, help="commands for each family")
    parser.add_argument("--length", type=int, default=800, help="commands of one program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="write the cases of the tests instead")
    given = parser.parse_args()
    if given.write:
        write(given.write, Oracle(given.oracle), given.release)
        return 0
    different = 0
    for family in FAMILIES if given.family == "all" else [given.family]:
        counts: Counter[str] = Counter()
        oracle, start, seed = Oracle(given.oracle), time.time(), given.seed
        while counts["commands"] < given.operations:
            case = program(family, random.Random(f"{family} {seed}"), given.length, given.release)
            lines = oracle.run(case)
            if lines is None or any(" error " in line for line in lines):
                counts["aborted"] += 1
            else:
                found = answer(case, lines, given.release)
                if found is None:
                    counts["undefined"] += 1
                    seed += 1
                    continue
                counts["programs"] += 1
                counts["commands"] += len(case.commands)
                if found:
                    counts["different"] += 1
                    if counts["different"] <= 2:
                        least = shrink(case, oracle, given.release)
                        print(f"{family} seed {seed}, {len(least.commands)} commands: {compare(least, oracle, given.release)}")
                        print(least.text())
            seed += 1
        oracle.close()
        different += counts["different"]
        print(
            f"{given.release} {family:11} {counts['commands']:9,} commands in {counts['programs']:5,} programs, "
            f"{counts['different']} different, {counts['aborted']} aborted by the library itself, "
            f"{counts['undefined']} undefined in it, {time.time() - start:.0f} s",
            flush=True,
        )
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
