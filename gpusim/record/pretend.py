"""A machine without a GPU answers as if it had one: `torch.cuda` and what else programs ask, for the time of a recording."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.cuda
import torch.utils.checkpoint
import torch.utils.data
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

from gpusim.record.storages import GPU, HOST
from gpusim.record.where import RecordError, users_line, warn
from gpusim.record.workspaces import GENERATIONS

if TYPE_CHECKING:
    from gpusim.record.recording import Recording

_MEMORY = 80 * 2**30  # bytes that the pretended GPU says it has
_CUDA = torch.device("cuda", 0)
_WORKERS = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "multiprocessing_context", "timeout")


@contextmanager
def pretending(recording: Recording) -> Iterator[None]:
    """Everything below, until the recording ends."""
    patches = Patches()
    try:
        _no_function_checks(patches)
        _tensors(patches, recording)
        cuda_api.pretend(patches, recording.gpu, recording.tape)
        _autocast(patches, recording)
        _within_backward(patches, recording)
        _programs(patches, recording)
        yield
    finally:
        patches.close()


def _no_function_checks(patches: Patches) -> None:
    """PyTorch's functions written in Python run through: only what they call is looked at (see homes.py)."""
    for module in (torch.nn.functional, torch.functional, torch._tensor, torch.nn.init):
        for name in ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"):
            if name in vars(module):
                patches.set(module, name, _never)


def _never(*_: Any, **__: Any) -> bool:
    return False


def _tensors(patches: Patches, recording: Recording) -> None:
    """Fake tensors say where they live, optimizers take them as tensors, and new parameters hold no values."""
    own = FakeTensor.device

    def device(self: Any) -> torch.device:
        if not recording.homes.inside and recording.storages.home(self) == GPU:
            return _CUDA
        return own.fget(self)

    patches.set(FakeTensor, "device", property(device, own.fset))

    # torch.optim takes the name of its submodule away, hence the import by name.
    for module in (import_module("torch.optim.optimizer"), import_module("torch.utils._foreach_utils")):
        patches.set(module, "_foreach_supported_types", [*module._foreach_supported_types, FakeTensor])
    group = torch._C._group_tensors_by_device_and_dtype

    def grouped(lists: Any, with_indices: bool = False) -> Any:
        return {
            (_CUDA if recording.homes.of(found[0][0][0]) == GPU else device, dtype): found
            for (device, dtype), found in group(lists, with_indices).items()
        }

    patches.set(torch._C, "_group_tensors_by_device_and_dtype", grouped)

    make = torch.nn.Parameter.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if isinstance(data, torch.Tensor) and not isinstance(data, FakeTensor) and data.device.type == "cpu":
            data = recording.adopted.fake_of(data.detach(), recording.homes.of(data))
        return make(cls, data, requires_grad)

    patches.set(torch.nn.Parameter, "__new__", parameter)

    def apply(self: Any, fn: Any, recurse: bool = True) -> Any:
        recording.adopted.module(self)
        for child in self.children() if recurse else ():
            child._apply(fn)
        with torch.no_grad():
            for name, held in self._parameters.items():
                if held is not None and (moved := fn(held)) is not held:
                    if isinstance(held, FakeTensor):  # in place as on a GPU, so that tied weights stay tied
                        held.data = moved
                    else:
                        self._parameters[name] = torch.nn.Parameter(moved, held.requires_grad)
                    if held.grad is not None:
                        held.grad.data = fn(held.grad)
            self._buffers.update({name: fn(held) for name, held in self._buffers.items() if held is not None})
        return self

    patches.set(torch.nn.Module, "_apply", apply)  # PyTorch's own swaps fake tensors, and refuses those that are referred to


def _cuda(patches: Patches, recording: Recording) -> None:
    """`torch.cuda`: one GPU of the generation that is recorded for."""
    capability = GENERATIONS[recording.gpu]
    tape = recording.tape
    properties = SimpleNamespace(
        name=f"recorded GPU ({recording.gpu})", major=capability[0], minor=capability[1], total_memory=_MEMORY,
        multi_processor_count=108, is_integrated=False, is_multi_gpu_board=False, warp_size=32, gcnArchName="",
    )  # fmt: skip
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "is_initialized": True, "is_bf16_supported": True,
        "_is_compiled": True, "get_device_name": properties.name, "get_device_capability": capability,
        "get_device_properties": properties, "get_arch_list": [f"sm_{capability[0]}{capability[1]}"], "memory_stats": {},
        "memory_summary": "", "memory_snapshot": [], "is_current_stream_capturing": False, "utilization": 0,
        "get_rng_state": None, "get_rng_state_all": [], "initial_seed": 0, "can_device_access_peer": False,
    }  # fmt: skip
    silent = (
        "synchronize", "empty_cache", "set_device", "manual_seed", "manual_seed_all", "seed", "seed_all", "_lazy_init", "init",
        "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "ipc_collect", "set_rng_state",
        "set_rng_state_all", "set_per_process_memory_fraction", "reset_accumulated_memory_stats", "set_stream", "_lazy_call",
    )  # fmt: skip
    live, peak = (lambda *_, **__: tape.live_bytes), (lambda *_, **__: tape.peak_bytes)
    functions: dict[str, Any] = {
        **{name: _answer(value) for name, value in answers.items()},
        **{name: _answer(None) for name in silent},
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), live),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), peak),
        "mem_get_info": lambda *_, **__: (max(0, _MEMORY - tape.live_bytes), _MEMORY),
        "Stream": _Stream, "Event": _Event, "current_stream": _Stream, "default_stream": _Stream,
        "stream": lambda stream: contextlib.nullcontext(stream), "device": _Device, "device_of": _Device,
        "CUDAGraph": _refused("CUDA graphs are captured on a GPU only"),
    }  # fmt: skip
    for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random):
        for name, value in functions.items():
            if name in vars(owner):
                patches.set(owner, name, value)
    for name in ("_record_memory_history", "_dump_snapshot"):
        patches.set(torch.cuda.memory, name, _answer(None))
    for name in ("range_push", "range_pop", "mark"):
        patches.set(torch.cuda.nvtx, name, _answer(None))
    patches.set(torch.cuda.nvtx, "range", lambda *_, **__: contextlib.nullcontext())


def _autocast(patches: Patches, recording: Recording) -> None:
    """The autocast of "cuda" is that of the CPU, which has CUDA's rules (see autocast.py)."""
    make, enabled, dtype, forget = (
        torch.autocast.__init__, torch.is_autocast_enabled, torch.get_autocast_dtype, torch.clear_autocast_cache
    )  # fmt: skip

    def autocast(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.device = "cpu"

    def get_dtype(device: str) -> Any:
        return dtype("cpu") if device == "cuda" and enabled("cpu") else dtype(device)

    def clear() -> None:
        recording.autocast.forget()
        forget()

    patches.set(torch.autocast, "__init__", autocast)
    patches.set(torch, "is_autocast_enabled", lambda device="cuda": enabled("cpu" if device == "cuda" else device))
    patches.set(torch, "get_autocast_dtype", get_dtype)
    patches.set(torch, "get_autocast_gpu_dtype", lambda: get_dtype("cuda"))
    patches.set(torch, "clear_autocast_cache", clear)


def _within_backward(patches: Patches, recording: Recording) -> None:
    """Python that runs in the backward pass sees the same GPU: PyTorch's engine does not take modes of functions along.

    That is what a checkpoint computes again, and the backward of functions written in Python.
    """
    frame, function = torch.utils.checkpoint._CheckpointFrame, torch.autograd.function.BackwardCFunction
    make, apply = frame.__init__, function.apply

    def watched(called: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if torch._C._len_torch_function_stack():
                return called(*args, **kwargs)
            with recording.homes:
                return called(*args, **kwargs)

        return call

    patches.set(frame, "__init__", lambda self, recompute, *rest: make(self, watched(recompute), *rest))
    patches.set(function, "apply", watched(apply))


def _programs(patches: Patches, recording: Recording) -> None:
    """What programs do around their steps."""
    homes = recording.homes

    def set_default_device(device: Any) -> None:
        from gpusim.record.homes import home_of

        recording.adopted.default = home_of(device or "cpu") or HOST

    def save(*_: Any, **__: Any) -> None:
        warn("torch.save writes nothing while recording: there are no values")

    def compile(model: Any = None, **options: Any) -> Any:
        if model is None:
            return lambda model: model
        warn("torch.compile is left out: the program is recorded as it runs eagerly")
        return model

    load = torch.load

    def load_on_host(*args: Any, **kwargs: Any) -> Any:
        args = args[:1]
        return load(*args, **{**kwargs, "map_location": "cpu"})

    class Generator(torch.Generator):  # a class, for annotations
        def __new__(cls, device: Any = "cpu") -> Any:
            return super().__new__(cls)

    patches.set(torch, "set_default_device", set_default_device)
    patches.set(torch, "save", save)
    patches.set(torch, "compile", compile)
    patches.set(torch, "load", load_on_host)
    patches.set(torch, "Generator", Generator)
    patches.set(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor)  # it looks at values
    patches.set(torch.backends.mha, "get_fastpath_enabled", answer(False))

    begin, following, make = DataLoader.__iter__, _BaseDataLoaderIter.__next__, DataLoader.__init__
    signature = inspect.signature(make)

    def iterate(self: Any) -> Any:
        with homes.on_host():
            return begin(self)

    def batch(self: Any) -> Any:
        with homes.on_host():
            return following(self)

    def in_process(self: Any, *args: Any, **kwargs: Any) -> None:
        arguments = signature.bind(self, *args, **kwargs).arguments
        for name in _WORKERS:
            arguments.pop(name, None)
        make(**{**arguments, **arguments.pop("kwargs", {})})

    patches.set(DataLoader, "__init__", in_process)
    patches.set(DataLoader, "__iter__", iterate)
    patches.set(_BaseDataLoaderIter, "__next__", batch)
