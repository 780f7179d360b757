"""Whole commands with a warm cache: CPU seconds of the process and all that it starts.

    python benchmarks/commands.py
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial

COMMANDS = {
    "run oversubscription": ("run", "oversubscription", "--no-figures"),
    "run policies": ("run", "policies", "--no-figures"),
    "run gpt3": ("run", "gpt3", "--no-figures"),
    "run unified_oversubscription": ("run", "unified_oversubscription", "--no-figures"),
    "fit resnet50-train": ("fit", "resnet50-train", "--no-figures"),
}


def seconds(command: tuple[str, ...]) -> float:
    """CPU seconds, user and system, of one run into an empty folder."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "gpusim", *command, "-o", folder], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def loads() -> dict[str, Callable[[], float]]:
    """For side_by_side.py."""
    return {name: partial(seconds, command) for name, command in COMMANDS.items()}


def main() -> None:
    for name, load in loads().items():
        load()  # compiles, or finds the cache
        print(f"{name:30} {min(load() for _ in range(3)):.2f} s")


if __name__ == "__main__":
    main()
