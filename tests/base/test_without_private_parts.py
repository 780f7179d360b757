"""Does everything give the same where a version of numba lacks the private parts that make compiling quicker?"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from numba import config

from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue, platforms
from gpusim.programs.generate.synth import training
from gpusim.programs.managed.patterns import sweep
from gpusim.programs.managed.steps import Array, HostTouch, Prefetch

pytestmark = pytest.mark.agreement

ROOT = Path(__file__).parents[2]
HIDDEN = """
import json, sys
from unittest import mock
import numba, numba._dynfunc, numba.core.caching, numba.core.codegen, numba.core.compiler
part = numba._dynfunc  # which numba itself has by now
del numba._dynfunc
with mock.patch.dict(sys.modules, {"numba._dynfunc": None}):
    import gpusim.base.compiled as compiled
numba._dynfunc = part
assert not compiled.kernels.LINKS
import test_without_private_parts as t
print(json.dumps([t.small_run(), t.managed_run()]))
"""


def small_run() -> list[Any]:
    """How a run with eviction ended, and a sum over all that it logged."""
    trace = training(steps=1, layers=2)
    run = simulate(trace, catalogue.load("l4"), place="best_fit", evict="lru", capacity_bytes=60 << 20, log=True)
    assert run.log is not None
    return [run.outcome, run.metrics, int(run.log.view("i8").sum())]


def managed_run() -> list[Any]:
    """When the steps of a managed program began and ended, and all that they counted."""
    steps = [HostTouch("a"), sweep("a", 1 << 12), Prefetch("a")]
    run = simulate_uvm([Array("a", 1 << 22)], steps, platforms.load("t4"))
    return [[(s.name, s.start, s.end) for s in run.steps], [str(row) for row in run.counts.tolist()], int(run.events)]


@pytest.mark.slow
@pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")
def test_a_run_and_a_managed_run_are_the_same_and_that_it_is_slower_is_said_once(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support"), str(ROOT / "tests" / "base")])
    # Compiled without optimisation: how quick the code is does not matter here, how long it takes to make does.
    environment = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "0"}
    done = subprocess.run([sys.executable, "-c", HIDDEN], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("gpusim: note: with this version of numba compiling takes longer") == 1
    assert json.loads(done.stdout) == json.loads(json.dumps([small_run(), managed_run()]))
