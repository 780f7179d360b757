"""Answers of vLLM's real scheduler beside those of this package, integer by integer.

    python -m vllm_compare compare RELEASE STEPS SEED     so many steps in which a request ran
    python -m vllm_compare record RELEASE CASES SEED      the sample in tests/data/serving
    python -m vllm_compare ahead STEPS SEED               the same of asynchronous scheduling, its default, with 0.33.0
    python -m vllm_compare ahead_of FAMILY CASES SEED     so many cases of a family of that: those of `vllm_branches ahead`
    python -m vllm_compare record_ahead CASES SEED

RELEASE is vllm-0.11.0 or vllm-0.33.0, found by `real_classes`; PYTHONPATH names the checkout and tests/support.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import real_classes
from vllm_cases import Case, cases
from vllm_simulated import answer

from gpusim.base.errors import GpusimError

RELEASES = ("vllm-0.11.0", "vllm-0.33.0")
AHEAD = "vllm-0.33.0"
"""The release whose asynchronous scheduling is compared."""
ENDLESS = 10**9


def version_of(release: str) -> str:
    """0.33 of vllm-0.33.0."""
    return release.partition("-")[2].rpartition(".")[0]


def environment() -> dict[str, str]:
    """For a process of the real classes, which finds the modules of this folder."""
    support = Path(__file__).parent
    return os.environ | {"PYTHONHASHSEED": "0", "PYTHONPATH": os.pathsep.join([str(support.parents[1]), str(support)])}


def real(release: str, drawn: Iterable[Case], silent: bool = False) -> Iterator[tuple[int, int, Any]]:
    """(number, steps, integers) of each case as the real classes play it, in a process of its own."""
    command = ["nice", sys.executable, "-m", "real_vllm", str(real_classes.folder(release)), *(["--silent"] if silent else [])]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment()) as process:
        assert process.stdin and process.stdout
        for case in drawn:
            process.stdin.write(json.dumps(case).encode() + b"\n")
            process.stdin.flush()
            head = process.stdout.read(12)
            if len(head) < 12:
                raise GpusimError(f"the real scheduler stopped at case {case['number']} of family {case['family']}")
            number, steps, length = np.frombuffer(head, np.int32).tolist()
            yield number, steps, np.frombuffer(process.stdout.read(4 * length), np.int32)
        process.stdin.close()


@dataclass
class StepsCompared:
    """What has been compared so far; `different` has the first differences, one line each."""

    steps: int = 0
    busy: int = 0  # those in which a request ran
    cases: dict[str, int] = field(default_factory=dict)  # by family
    different: list[str] = field(default_factory=list)

    def add(self, case: Case, steps: int, theirs: Any, version: str) -> None:
        """One more case."""
        ours_steps, busy, ours = answer(case, version)
        self.cases[case["family"]] = self.cases.get(case["family"], 0) + 1
        self.steps += steps
        self.busy += busy
        if ours_steps != steps or not np.array_equal(ours, theirs):
            n = min(ours.size, theirs.size)
            at = int(np.flatnonzero(ours[:n] != theirs[:n])[0]) if (ours[:n] != theirs[:n]).any() else n
            self.different.append(
                f"case {case['number']} of seed {case['seed']} ({case['family']}, vllm@{version}): integer {at}, "
                f"{ours[at : at + 12].tolist()} and not {theirs[at : at + 12].tolist()}; {ours_steps} and {steps} steps"
            )

    def text(self) -> str:
        """In lines."""
        families = ", ".join(f"{name} {count}" for name, count in self.cases.items())
        head = (
            f"{self.busy:,} steps, and {self.steps - self.busy:,} without work, of {sum(self.cases.values()):,} cases "
            f"({families}): {len(self.different)} cases differ"
        )
        return "\n".join([head, *self.different[:20]])


def compare(release: str, drawn: Iterable[Case], steps: int) -> StepsCompared:
    """Cases until so many steps have been compared."""
    version, found = version_of(release), StepsCompared()
    listed: list[Case] = []

    def noted() -> Iterator[Case]:
        for case in drawn:
            if found.busy >= steps:
                return
            listed.append(case)
            yield case

    for _, count, theirs in real(release, noted()):
        found.add(listed.pop(), count, theirs, version)
    return found


def record(release: str, file: Path, count: int, seed: int, ahead: bool = False) -> None:
    """Write the real answers to so many cases of a seed, compressed: what `recorded` reads."""
    answers = [(number, steps, told.tolist()) for number, steps, told in real(release, cases(count, seed, ahead=ahead))]
    kept = {"release": release, "cases": count, "seed": seed, "answers": answers}
    file.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9))


def sample_of(release: str, what: str = "scheduler") -> Path:
    """Where the recorded sample of a release is."""
    return Path(__file__).parents[1] / "data" / "serving" / f"{release}-{what}.json.xz"


def recorded(file: Path) -> dict[str, Any]:
    """release, cases and seed of a recorded sample, and its answers: number, steps and integers of each case."""
    found: dict[str, Any] = json.loads(lzma.decompress(file.read_bytes()))
    return found


def main(arguments: list[str]) -> None:
    """Run one command."""
    match arguments:
        case [command, release, count, seed] if release in RELEASES:
            if real_classes.folder(release) is None:
                sys.exit(real_classes.absent(release))
            if command == "compare":
                found = compare(release, cases(ENDLESS, int(seed)), int(count))
                print(found.text())
                sys.exit(bool(found.different))
            elif command == "record":
                record(release, sample_of(release), int(count), int(seed))
        case [("ahead" | "record_ahead") as command, count, seed]:
            if real_classes.folder(AHEAD) is None:
                sys.exit(real_classes.absent(AHEAD))
            if command == "ahead":
                found = compare(AHEAD, cases(ENDLESS, int(seed), ahead=True), int(count))
                print(found.text())
                sys.exit(bool(found.different))
            record(AHEAD, sample_of(AHEAD, "async-scheduler"), int(count), int(seed), ahead=True)
        case ["ahead_of", family, count, seed]:
            found = compare(AHEAD, cases(int(count), int(seed), (family,), ahead=True), ENDLESS)
            print(found.text())
            sys.exit(bool(found.different))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
