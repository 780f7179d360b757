"""Programs as users write them, recorded as they are: tests/programs_recorded/ has one script for each way of working.

Most use PyTorch alone; those of a library are skipped where it is not installed.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytest.importorskip("torch")

from gpusim.trace.files import load_trace

PROGRAMS = Path(__file__).parents[1] / "programs_recorded"
ONE_RANK = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}  # as `torchrun --nproc-per-node 1` sets them
REFUSED: Mapping[str, str] = {
    "experts_routed": "experts_routed.py:16: the result of 'aten.nonzero.default' depends on values",
    "lstm_text": "lstm_text.py:18: the result of 'aten._pack_padded_sequence.default' depends on values",
}
ONLY_FORWARD = {"decoding", "hf_generate"}


def needs(script: Path) -> set[str]:
    """The modules that a script imports and that are not installed."""
    found = set()
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module.split(".")[0])
    return {name for name in found if importlib.util.find_spec(name) is None}


@pytest.mark.slow
@pytest.mark.parametrize("program", sorted(path.stem for path in PROGRAMS.glob("*.py")))
def test_a_program_as_it_is_written(program: str, tmp_path: Path) -> None:
    script = PROGRAMS / f"{program}.py"
    if missing := needs(script):
        pytest.skip(f"{', '.join(sorted(missing))} not installed")
    root = str(PROGRAMS.parents[1])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [sys.executable, "-m", "gpusim", "record", str(script), "-o", str(tmp_path / "out.npz")],
        cwd=tmp_path, env={**environment, **ONE_RANK} if program in ("ddp", "fsdp2") else environment,
        capture_output=True, text=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert "Traceback" not in done.stderr
    if program in REFUSED:
        assert done.returncode == 2
        assert REFUSED[program] in done.stderr
        assert not (tmp_path / "out.npz").exists()
        return
    assert done.returncode == 0, done.stderr[-2000:]
    trace = load_trace(tmp_path / "out.npz")
    assert trace.ops > 0
    if program in ONLY_FORWARD:
        assert trace.phases == ("fwd",)
    else:
        assert {"step0.fwd", "step0.bwd", "step0.opt", "step1.fwd", "step1.bwd", "step1.opt"} <= set(trace.phases)
