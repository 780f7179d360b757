"""Steps of a program until time is up, beside others that wait for each other.

    python3 train.py FOLDER NAME "resnet50(batch=32)" SECONDS PROGRAMS

Prints one line: folder, name, program, programs, cap, steps, and ms a step.  A step ends when the GPU has done it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

from gpusim.programs import zoo

WARM = 5


def main(folder: Path, name: str, spec: str, seconds: float, programs: int) -> None:
    program = zoo.build(spec)
    for _ in range(WARM):
        program.step()
    torch.cuda.synchronize()
    _meet(folder, name, "ready", programs)
    begin = time.perf_counter()
    times: list[float] = []
    while time.perf_counter() - begin < seconds:
        before = time.perf_counter()
        program.step()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - before))
    times.sort()
    count, cap = len(times), os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "")
    said = {"mean": sum(times) / count} | {f"p{p}": times[min(count - 1, count * p // 100)] for p in (10, 50, 90)}
    words = ",".join(f"{key}={value:.3f}" for key, value in said.items())
    print(f"{folder.name},{name},{spec!r},{programs},{cap},{count},{words}", flush=True)
    (folder / f"{name}.done").touch()
    while len(list(folder.glob("*.done"))) < programs:  # the others are measured beside it to their end
        program.step()
        torch.cuda.synchronize()


def _meet(folder: Path, name: str, what: str, programs: int) -> None:
    """Wait until all programs are here."""
    (folder / f"{name}.{what}").touch()
    while len(list(folder.glob(f"*.{what}"))) < programs:
        time.sleep(0.001)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5]))
