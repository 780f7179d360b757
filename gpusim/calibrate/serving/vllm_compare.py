"""Answers of the real scheduler beside those of this package, integer by integer."""

from __future__ import annotations

import json
import lzma
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving.vllm_cases import Case, cases
from gpusim.calibrate.serving.vllm_played import answer

SCRIPT = Path(__file__).with_name("vllm_real.py")


def version_of(wheel: Path) -> str:
    """0.33 of an unpacked wheel of vLLM 0.33.0.  Raises GpusimError where there is none."""
    found = [*sorted(wheel.glob("vllm-*.dist-info")), wheel]
    match = next((m for f in found if (m := re.search(r"vllm-(\d+\.\d+)", f.name))), None)
    if match is None or not (wheel / "vllm" / "v1" / "core").is_dir():
        raise GpusimError(
            f"'{wheel}' is no unpacked wheel of vLLM",
            hint="pip download vllm==0.33.0 --no-deps; unzip vllm-0.33.0-*.whl '*.py' -d vllm-0.33.0",
        )
    return match[1]


def real(wheel: Path, drawn: Iterable[Case], silent: bool = False) -> Iterator[tuple[int, int, Any]]:
    """(number, steps, integers) of each case as the real classes play it, in a process of its own."""
    command = ["nice", sys.executable, str(SCRIPT), str(wheel / "vllm"), *(["--silent"] if silent else [])]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as process:
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


def compare(wheel: Path, drawn: Iterable[Case], steps: int) -> StepsCompared:
    """Cases until so many steps have been compared."""
    version, found = version_of(wheel), StepsCompared()
    listed: list[Case] = []

    def noted() -> Iterator[Case]:
        for case in drawn:
            if found.busy >= steps:
                return
            listed.append(case)
            yield case

    for _, count, theirs in real(wheel, noted()):
        found.add(listed.pop(), count, theirs, version)
    return found


def record(wheel: Path, file: Path, count: int, seed: int) -> None:
    """Write the real answers to so many cases of a seed, compressed: what `recorded` reads."""
    answers = [(number, steps, told.tolist()) for number, steps, told in real(wheel, cases(count, seed))]
    kept = {"version": version_of(wheel), "cases": count, "seed": seed, "answers": answers}
    file.write_bytes(lzma.compress(json.dumps(kept, separators=(",", ":")).encode(), preset=9))


def recorded(file: Path) -> dict[str, Any]:
    """version, cases and seed of a recorded sample, and its answers: number, steps and integers of each case."""
    found: dict[str, Any] = json.loads(lzma.decompress(file.read_bytes()))
    return found
