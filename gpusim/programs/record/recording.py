"""`with gpusim.record("trace.npz"): step()`: one program as a trace."""

from __future__ import annotations

import gc
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from gpusim.base.errors import suggest
from gpusim.programs.record import running
from gpusim.programs.record.adopt import Adopted
from gpusim.programs.record.autocast import Autocast
from gpusim.programs.record.dispatch import Dispatch
from gpusim.programs.record.homes import Homes
from gpusim.programs.record.phases import EnoughSteps, Phases
from gpusim.programs.record.pretend import pretending
from gpusim.programs.record.storages import GPU, HOST, Storages
from gpusim.programs.record.tape import Tape
from gpusim.programs.record.where import NothingRan, RecordError
from gpusim.programs.record.workspaces import GENERATIONS, Workspaces
from gpusim.trace.trace import Trace

NOTHING_RAN = "the program must move its model there, or be recorded with device='cuda' (--device cuda)"

class Recording:
    """Records what runs inside the `with`; `trace` is there afterwards, and in the file `path` if one is given.

    device           where tensors live that name no device: "cuda" or "cpu"
    gpu              the generation of GPU that is recorded for (workspaces.GENERATIONS): what its libraries take
    cudnn_workspace  bytes that cuDNN takes during each convolution
    steps            end the program after so many training steps
    """

    fake = True

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        name: str | None = None,
        device: str = "cuda",
        gpu: str = "ampere",
        cudnn_workspace: int = 0,
        steps: int | None = None,
    ) -> None:
        if gpu not in GENERATIONS:
            raise RecordError(f"there is no GPU generation '{gpu}'", hint=suggest(gpu, GENERATIONS))
        if device not in (GPU, HOST):
            raise RecordError(f"device is '{device}'", hint="'cuda' or 'cpu'")
        self.path = Path(path) if path is not None else None
        self.name = name or (self.path.name.removesuffix(".npz") if self.path else "recording")
        self.gpu = gpu
        self.trace: Trace | None = None
        self.tape = Tape()
        self.storages = Storages(self.tape)
        self.adopted = Adopted(self.storages, device)
        self.homes = Homes(self.storages, self.adopted)
        self.autocast = Autocast(self.homes)
        self.phases = Phases(self.tape, self.storages, self.adopted, steps)
        workspaces = Workspaces(self.tape, gpu, cudnn_workspace)
        self.dispatch = Dispatch(self.tape, self.storages, self.homes, self.adopted, self.phases, workspaces)
        self._stack = ExitStack()

    def __enter__(self) -> Recording:
        with ExitStack() as stack:
            running.start(self)
            stack.callback(running.stop)
            if gc.isenabled():
                gc.collect()
                stack.callback(gc.enable)
                gc.disable()
            stack.callback(self.adopted.restore)
            stack.enter_context(pretending(self))
            stack.enter_context(self.autocast.rules())
            stack.enter_context(self.phases)
            stack.enter_context(self.homes)
            stack.enter_context(self.dispatch)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        self.storages.closed = True
        self._stack.close()
        if kind is not None and kind is not EnoughSteps:
            return False
        if not self.tape.operators:
            raise NothingRan("nothing ran on the GPU", hint=NOTHING_RAN)
        self.trace = self.tape.trace(self.name, self._meta(), self.phases.names())
        if self.path is not None:
            from gpusim.trace.files import save_trace

            save_trace(self.trace, self.path)
        return kind is EnoughSteps

    def _meta(self) -> dict[str, Any]:
        return {
            "format": "record",
            "torch": torch.__version__,
            "lacks": ["times", "addresses", "streams"],
            "filled": {"times": "kernel times are modelled on the machine that is asked for"},
            "gpu": self.gpu,
            "tf32": torch.backends.cuda.matmul.allow_tf32,
            "cudnn_tf32": torch.backends.cudnn.allow_tf32,
        }
