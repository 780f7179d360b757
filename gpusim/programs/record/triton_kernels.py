"""Triton kernels that a program launches by itself: written down with the tensors that they are given, and not run.

A kernel takes no memory of PyTorch's, so what a recording lacks is its work: no flops are counted, and every tensor counts as
read and written.
"""

from __future__ import annotations

import importlib
from typing import Any

from gpusim.programs.record.patches import Patches
from gpusim.programs.record.where import warn


def stand_in(patches: Patches, dispatch: Any) -> None:
    """From here on launches reach the tape; nothing where Triton is not installed."""
    try:
        autotuner, jit = (importlib.import_module(f"triton.runtime.{name}") for name in ("autotuner", "jit"))
    except ImportError:
        return

    def run(self: Any, *args: Any, grid: Any = None, warmup: bool = False, **kwargs: Any) -> None:
        warn(f"the Triton kernel '{self.fn.__name__}' is recorded with its tensors and without its flops")
        dispatch.opaque(f"triton.{self.fn.__name__}", args, (*args, *kwargs.values()))

    patches.set(jit.JITFunction, "run", run)
    # Whichever configuration is best, the tensors are the same.
    patches.set(autotuner.Autotuner, "run", lambda self, *args, **kwargs: self.fn.run(*args, **kwargs))
