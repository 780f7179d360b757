"""The same recording where there is a GPU: the program runs for real and is watched.

Allocations and their addresses come from the allocator's own history, kernel times from the profiler, accesses from the
operators; join.py puts them together.  Each operator is a range "gpusim N" for the profiler.
"""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from gpusim.programs.record import flops, running
from gpusim.programs.record.join import Seen, join, kernel_ns
from gpusim.programs.record.phases import EnoughSteps, Phases
from gpusim.programs.record.schema import effects, tensors, view_bytes, written
from gpusim.programs.record.shapes import shape_of
from gpusim.programs.record.tape import Operator
from gpusim.trace.trace import COPY_IN, COPY_OUT, KERNEL, Trace

_RANGE = "gpusim "


class Watch(TorchDispatchMode):
    """Notes each operator that touches the GPU, with addresses and how many requests the allocator had served."""

    def __init__(self, steps: int | None) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.began = 0  # requests served when the recording began
        self.phases = Phases(self, self, self, steps)
        self.first = True

    def served(self) -> int:
        found = torch.cuda.memory_stats()
        return int(found["allocation.all.allocated"] + found["allocation.all.freed"]) - self.began

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        inputs = [*tensors(args), *tensors(kwargs.values())]
        self.phases.before(func, inputs)
        with torch.profiler.record_function(f"{_RANGE}{len(self.seen)}"):
            out = func(*args, **kwargs)
        outputs = list(tensors((out,)))
        if any(t.is_cuda for t in (*inputs, *outputs)):
            self._note(func, args, kwargs, inputs, outputs, out)
        return out

    def _note(self, func: Any, args: Any, kwargs: Any, inputs: Any, outputs: Any, out: Any) -> None:
        known, mutated = effects(func), list(written(func, args, kwargs))
        old = {t.untyped_storage().data_ptr() for t in inputs}
        changed = [*(t for t in outputs if t.untyped_storage().data_ptr() not in old), *mutated]
        if known.memory_only or not changed:
            return
        reads = [t for t in inputs if not (known.overwrites and any(t is m for m in mutated))]
        to_gpu, from_gpu = any(t.is_cuda for t in changed), any(t.is_cuda for t in reads)
        from_host = any(not t.is_cuda and t.dim() for t in reads)
        operator = Operator(
            str(func), _addresses(reads), _addresses(changed), sum(map(view_bytes, reads)), sum(map(view_bytes, changed)),
            flops.flops(func, args, kwargs, out), str(changed[0].dtype).removeprefix("torch."), self.phases.module(),
            COPY_IN if to_gpu and from_host and not from_gpu else KERNEL if to_gpu else COPY_OUT,
            shape=shape_of(func, args, kwargs, out),
        )  # fmt: skip
        self.seen.append(Seen(self.served(), operator))

    # What the phases ask of a tape, of storages and of adopted tensors: on a GPU all are real.

    def phase(self, name: str) -> None:
        self.seen.append(Seen(self.served(), name))

    def begin(self) -> None:
        """Nothing is left out: the history began with the recording."""

    def mark(self, tensor: torch.Tensor, category: str) -> None:
        if tensor.is_cuda:
            self.seen.append(Seen(self.served(), (tensor.untyped_storage().data_ptr(), category)))

    def takes(self, tensor: torch.Tensor, scalars: bool = False) -> bool:
        return False

    def module(self, module: torch.nn.Module) -> None: ...

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None: ...


class GpuRecording:
    """Records what runs inside the `with`; `trace` is there afterwards."""

    fake = False

    def __init__(
        self, path: str | Path | None, *, name: str | None = None, steps: int | None = None, issue_ns: float = 0.0
    ) -> None:
        """issue_ns: what the host takes to start all that runs inside when nothing watches it; 0 leaves its times out."""
        self.issue_ns = issue_ns
        self.path = Path(path) if path is not None else None
        self.name = name or (self.path.name.removesuffix(".npz") if self.path else "recording")
        self.trace: Trace | None = None
        self._watch = Watch(steps)
        self.phases = self._watch.phases
        self._stack = ExitStack()

    def __enter__(self) -> GpuRecording:
        activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
        self._profiler = torch.profiler.profile(activities=activities)
        with ExitStack() as stack:
            running.start(self)
            stack.callback(running.stop)
            stack.callback(torch.cuda.memory._record_memory_history, None)
            torch.cuda.synchronize()
            torch.cuda.memory._record_memory_history(enabled="all", context=None)
            self._watch.began = 0
            self._watch.began = self._watch.served()
            stack.enter_context(self._profiler)
            stack.enter_context(self.phases)
            stack.enter_context(self._watch)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            snapshot, profile = Path(folder, "snapshot.pickle"), Path(folder, "profile.json")
            torch.cuda.synchronize()
            if kind is None or kind is EnoughSteps:
                torch.cuda.memory._dump_snapshot(str(snapshot))
            self._stack.close()
            if kind is not None and kind is not EnoughSteps:
                return False
            self._profiler.export_chrome_trace(str(profile))
            self.trace = assemble(snapshot, profile, self._watch.seen, self.name, torch.cuda.current_device(), self.issue_ns)
        if self.path is not None:
            from gpusim.trace.files import save_trace

            save_trace(self.trace, self.path)
        return kind is EnoughSteps


def assemble(snapshot: Path, profile: Path, seen: list[Seen], name: str, device: int, issue_ns: float = 0.0) -> Trace:
    """The trace of a recording from its three sources, and the time that its host takes."""
    from gpusim.programs.recordings import import_trace

    memory = import_trace(snapshot, "pytorch", name=name, device=device, frames=False)
    took = kernel_ns(json.loads(profile.read_bytes())["traceEvents"], _RANGE)
    return join(memory, seen, {int(key.removeprefix(_RANGE)): ns for key, ns in took.items()}, issue_ns)


def _addresses(found: list[torch.Tensor]) -> list[int]:
    return list(dict.fromkeys(t.untyped_storage().data_ptr() for t in found if t.is_cuda))
