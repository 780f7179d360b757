"""Does the referee work where there is no simulator?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gpusim
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.programs.generate.synth import random_program
from gpusim.programs.managed.text import load as read
from gpusim.results.folder import save_result
from gpusim.results.result import Result
from gpusim.trace.files import save_trace

ROOMS = ("base", "trace", "machine", "results", "referee")  # all that it may import
ASK = """
import sys
from pathlib import Path

import gpusim
from gpusim.referee import check, pages
from gpusim.results.folder import load_result
from gpusim.trace.files import load_trace

assert Path(gpusim.__file__).is_relative_to(Path.cwd())
result = load_result(Path(sys.argv[1]))
print(check(result, load_trace(Path(sys.argv[2]))) if len(sys.argv) > 2 else pages.check(result))
"""

PROGRAM = """
arrays: {a: 4 MiB, b: 3 MiB}
steps:
  - host_write: a
  - start
  - kernel: copy
    accesses: [{read: a}, {write: b}]
  - host_read: b
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with nothing but the rooms that the referee may import."""
    source, copy = Path(gpusim.__file__).parent, tmp_path_factory.mktemp("alone")
    for room in ROOMS:
        shutil.copytree(source / room, copy / "gpusim" / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(source / "__init__.py", copy / "gpusim")
    return copy


def asked(alone: Path, *files: Path, compiled: bool = False) -> str:
    environment = {**os.environ, "PYTHONPATH": str(alone), "NUMBA_CACHE_DIR": str(alone / "compiled")}
    environment["NUMBA_DISABLE_JIT"] = "01"[not compiled]
    command = [sys.executable, "-c", ASK, *map(str, files)]
    done = subprocess.run(command, cwd=alone, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tensor_run(folder: Path) -> tuple[Result, Path]:
    """A run that swaps, and the file of its trace."""
    trace = random_program(3, ops=100)
    save_trace(trace, folder / "trace.npz")
    peak = simulate(trace, load("l4")).metrics["requested_peak_bytes"]
    return simulate(trace, load("l4"), evict="lru", capacity_bytes=int(peak) * 7 // 10, log=True), folder / "trace.npz"


def unified_run(folder: Path) -> Result:
    """A run with faults and evictions."""
    (folder / "p.yaml").write_text(PROGRAM)
    return simulate_unified(read(folder / "p.yaml"), load("l4"), capacity_bytes=4 << 20, log=True)


@pytest.mark.slow
def test_it_checks_a_tensor_run(alone: Path, tmp_path: Path) -> None:
    result, trace = tensor_run(tmp_path)
    assert result.metrics["swap_ins"] > 0
    assert asked(alone, save_result(tmp_path, "0" * 16, result), trace).startswith("checked: ")
    wrong = {**result.metrics, "h2d_bytes": result.metrics["h2d_bytes"] + 1}
    false = save_result(tmp_path, "1" * 16, Result(result.spec, result.outcome, wrong, log=result.log))
    assert "metric h2d_bytes" in asked(alone, false, trace)


@pytest.mark.slow
def test_it_checks_a_run_under_unified_memory(alone: Path, tmp_path: Path) -> None:
    result = unified_run(tmp_path)
    assert result.metrics["evictions"] > 0
    assert asked(alone, save_result(tmp_path, "0" * 16, result), compiled=True).startswith("checked: ")
    wrong = {**result.metrics, "gpu_faults": result.metrics["gpu_faults"] + 1}
    false = save_result(tmp_path, "1" * 16, Result(result.spec, result.outcome, wrong, pages=result.pages))
    assert "gpu_faults" in asked(alone, false)
