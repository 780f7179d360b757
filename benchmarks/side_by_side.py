"""Is this checkout slower than another?  One benchmark's loads, in both in turn, by CPU time.

    git worktree add ../before main
    python benchmarks/side_by_side.py ../before timed.py

Each checkout runs its own file of that name, any of benchmarks/ that has a function `loads()`, in a process of its own.
`loads()` gives name -> a call that runs the load once and returns its CPU seconds.  The first call of each compiles, or finds
the cache, and is not counted.  A turn takes the fastest call of 0.2 s; the side that begins alternates.  New processes every
`--turns` pairs, `--starts` times: a process keeps its luck with addresses for as long as it lives.

before, after  seconds of the fastest turn there and here
ratio          median over the pairs of before / after: above 1 this checkout is faster
spread         their quartiles; where 1 lies between them, nothing was seen
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

TURN = 0.2  # CPU seconds of calls in one turn
HERE = Path(__file__).resolve().parent.parent


class Side:
    """A checkout's process, which runs the loads of one benchmark when asked."""

    def __init__(self, checkout: Path, benchmark: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(checkout / "benchmarks" / benchmark)],
            cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip

    @cached_property
    def loads(self) -> list[str]:
        """Names, as soon as the process has made them ready."""
        return self._answer()

    def seconds(self, load: str) -> float:
        """CPU seconds of a turn's fastest call."""
        assert self._process.stdin is not None
        print(load, file=self._process.stdin, flush=True)
        return float(self._answer())

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"{self._process.args[-1]} has ended; its error stands above")
        return json.loads(line)


def serve(benchmark: Path) -> None:
    """What a side's process does: names of loads, then for each name that it reads the seconds."""
    answers, sys.stdout = sys.stdout, sys.stderr  # what a benchmark prints is no answer
    sys.path[0] = str(benchmark.parent)
    loads = importlib.import_module(benchmark.stem).loads()
    print(json.dumps(list(loads)), file=answers, flush=True)
    for line in sys.stdin:
        load, taken = loads[line.rstrip("\n")], []
        while sum(taken) < TURN:
            taken.append(load())
        print(json.dumps(min(taken)), file=answers, flush=True)


def refusal(other: Path, benchmark: str) -> str:
    """Why the two checkouts cannot be compared, in one sentence; empty where they can."""
    for checkout in (other, HERE):
        file = checkout / "benchmarks" / benchmark
        if not file.is_file():
            return f"there is no {file}: name a checkout of gpusim, and a file of its benchmarks/"
        if "\ndef loads(" not in file.read_text():
            known = sorted(f.name for f in file.parent.glob("*.py") if "\ndef loads(" in f.read_text())
            return f"{file} has no function loads(): these have one: {', '.join(known)}"
    return ""


def in_turn(other: Path, benchmark: str, turns: int, only: str) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """Each load with its pairs of (before, after), from one process of each checkout."""
    sides = Side(other, benchmark), Side(HERE, benchmark)
    there, here = (side.loads for side in sides)
    for name in set(there) ^ set(here):
        print(f"left out, since only one checkout has it: {name}", file=sys.stderr)
    for load in (name for name in here if name in there and only in name):
        for side in sides:
            side.seconds(load)
        pairs: list[tuple[float, float]] = []
        for turn in range(turns):
            if turn % 2:
                after, before = (side.seconds(load) for side in sides[::-1])
            else:
                before, after = (side.seconds(load) for side in sides)
            pairs.append((before, after))
        yield load, pairs
    for side in sides:
        side.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("other", type=Path, help="the checkout to compare with, before the change")
    parser.add_argument("benchmark", help="a file of benchmarks/ with a function loads()")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--starts", type=int, default=3)
    parser.add_argument("--only", default="", metavar="TEXT", help="loads whose names contain this")
    o = parser.parse_args()
    if o.turns * o.starts < 2:
        parser.error("a spread needs two pairs at least: --turns times --starts")
    if why := refusal(o.other.resolve(), o.benchmark):
        parser.error(why)
    pairs: dict[str, list[tuple[float, float]]] = {}
    ratios = []
    print(f"{'load':40} {'before':>9} {'after':>9} {'ratio':>6}  spread")
    for start in range(o.starts):
        for load, more in in_turn(o.other.resolve(), o.benchmark, o.turns, o.only):
            both = pairs.setdefault(load, [])
            both += more
            if start == o.starts - 1:
                before, after = (min(side) for side in zip(*both, strict=True))
                low, middle, high = statistics.quantiles([b / a for b, a in both], method="inclusive")
                ratios.append(middle)
                print(f"{load:40} {before:9.4f} {after:9.4f} {middle:6.3f}  {low:.3f} to {high:.3f}", flush=True)
    if not ratios:
        raise SystemExit(f"no load of {o.benchmark} contains '{o.only}'")
    print(f"{'geometric mean':60} {statistics.geometric_mean(ratios):6.3f}")
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(Path(sys.argv[2]))
    else:
        sys.exit(main())
