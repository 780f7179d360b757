"""The microbenchmarks through the real cuda-bindings and NVRTC, on a driver library without a GPU (fake_libcuda.c).

It shows that cuda-bindings of CUDA 12 and 13 take the arguments as they are given and hand them on as they are meant.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gpusim.calibrate import rows
from gpusim.calibrate.measure.session import GROUPS, WITHOUT_GPU

HERE = Path(__file__).parents[1]
RUN = """
import sys
from gpusim.calibrate.measure import device
from gpusim.calibrate.measure.command import main
device.LEAST = 8 << 20
sys.exit(main())
"""


def toolkit() -> int:
    """The CUDA version of the installed packages; skips without them."""
    pytest.importorskip("cuda.bindings.driver")
    nvrtc = importlib.import_module("cuda.bindings.nvrtc")
    try:
        return int(nvrtc.nvrtcVersion()[1])
    except RuntimeError:
        pytest.skip("NVRTC is not installed")


def test_every_group_runs_through_the_bindings(tmp_path: Path) -> None:
    version, compiler = toolkit(), shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler")
    library = tmp_path / "libcuda.so.1"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(HERE / "fake_libcuda.c"), "-ldl"]
    subprocess.run(command, check=True, timeout=120)
    groups = [g for g in GROUPS if g not in WITHOUT_GPU]
    arguments = [word for group in groups for word in ("--only", group)]
    environment = {**os.environ, "FAKE_VERSION": f"{version}000"}
    environment |= {"LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": str(HERE.parent)}
    command = [sys.executable, "-c", RUN, "-o", str(tmp_path / "m.json"), "--quick", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert "wrong arguments" not in done.stderr
    found, conditions = rows.load(tmp_path / "m.json")
    wrong = {k: v for k, v in conditions["left_out"].items() if "cuBLAS" not in v and "time was used up" not in v}
    assert not wrong and set(conditions["seconds"]) == set(groups)
    assert len({r.metric for r in found}) > 40
