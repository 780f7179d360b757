"""The same code without numba: what another process of this Python says, to be compared with what this one says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.results.result import Result


def fingerprint(result: Result) -> list[Any]:
    """How a run with a log ended, what it counted, and a sum over all that it logged; the same after a way through JSON."""
    assert result.log is not None
    total = int(np.ascontiguousarray(result.log).view(np.int64).sum())
    said: list[Any] = json.loads(json.dumps([result.outcome, result.metrics, total]))
    return said


def interpreted(module: str, expression: str) -> Any:
    """The value of an expression over a test module `t` in a process in which numba compiles nothing."""
    path = os.pathsep.join([str(Path(__file__).parent), *[p for p in sys.path if p]])
    done = subprocess.run(
        [sys.executable, "-c", f"import json, {module} as t; print(json.dumps({expression}))"],
        check=True, capture_output=True, text=True, env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
    )  # fmt: skip
    assert done.stderr == ""
    return json.loads(done.stdout)
