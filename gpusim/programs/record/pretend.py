"""A machine without a GPU answers as if it had one: `torch.cuda` and what else programs ask, for the time of a recording."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any

import torch
import torch.cuda
import torch.profiler
import torch.utils.checkpoint
import torch.utils.data
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter

from gpusim.programs.record import cuda_api, processes, triton_kernels
from gpusim.programs.record.patches import Patches, answer
from gpusim.programs.record.readback import refuse_values
from gpusim.programs.record.schema import is_wrapper
from gpusim.programs.record.storages import GPU, HOST
from gpusim.programs.record.where import warn

if TYPE_CHECKING:
    from gpusim.programs.record.recording import Recording

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
        triton_kernels.stand_in(patches, recording.dispatch)
        with processes.alone(patches):
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
    # PyTorch's own asks for one element after the other.
    patches.set(FakeTensor, "tolist", lambda self: refuse_values("tolist") if self.dim() else self.item())

    def formatted(self: Any, spec: str) -> str:
        return str(object.__format__(self, spec) if self.dim() else self.item().__format__(spec))

    patches.set(FakeTensor, "__format__", formatted)
    whole = torch.Tensor.__deepcopy__

    def deepcopy(self: Any, memo: Any) -> Any:
        if not isinstance(self, FakeTensor) or id(self) in memo or not self.is_leaf:
            return whole(self, memo)
        with torch.no_grad():
            made = self.detach().clone()
        if isinstance(self, torch.nn.Parameter):  # without its gradient
            made = torch.nn.Parameter(made, self.requires_grad)
        else:
            made.requires_grad_(self.requires_grad)
            made.grad = None if self.grad is None else deepcopy(self.grad, memo)
        memo[id(self)] = made
        return made

    patches.set(torch.Tensor, "__deepcopy__", deepcopy)  # PyTorch's own copies storages by their addresses

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
        kind = type(data)
        if isinstance(data, torch.Tensor) and not (kind is FakeTensor or is_wrapper(kind)) and data.device.type == "cpu":
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
                    gradient = None if held.grad is None else fn(held.grad)
                    if isinstance(held, FakeTensor):  # in place as on a GPU, so that tied weights stay tied
                        held.data = moved
                    else:
                        held = self._parameters[name] = torch.nn.Parameter(moved, held.requires_grad)
                    held.grad = gradient
            self._buffers.update({name: fn(held) for name, held in self._buffers.items() if held is not None})
        return self

    patches.set(torch.nn.Module, "_apply", apply)  # PyTorch's own swaps fake tensors, and refuses those that are referred to


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

    That is what a checkpoint computes again, the backward of functions written in Python, and the hooks of gradients.
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
    saved = torch.autograd.graph.saved_tensors_hooks
    set_up = saved.__init__
    patches.set(saved, "__init__", lambda self, pack, unpack: set_up(self, watched(pack), watched(unpack)))
    for name in ("register_hook", "register_post_accumulate_grad_hook"):
        patches.set(torch.Tensor, name, _hooked(getattr(torch.Tensor, name), watched))


def _hooked(register: Any, watched: Any) -> Any:
    return lambda self, hook: register(self, watched(hook))


def _programs(patches: Patches, recording: Recording) -> None:
    """What programs do around their steps."""

    def set_default_device(device: Any) -> None:
        from gpusim.programs.record.homes import home_of

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

    patches.set(torch.Tensor, "record_stream", answer(None))
    _profiler(patches)
    patches.set(torch, "set_default_device", set_default_device)
    patches.set(torch, "save", save)
    patches.set(torch, "compile", compile)
    patches.set(torch, "load", load_on_host)
    patches.set(torch, "Generator", Generator)
    patches.set(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor)  # it looks at values
    patches.set(torch.backends.mha, "get_fastpath_enabled", answer(False))
    patches.set(torch.backends.cudnn, "is_acceptable", answer(False))  # recurrent networks: plain operators stand for cuDNN's
    patches.set(logging.getLogger("torch._subclasses.fake_tensor"), "disabled", True)  # errors are said once, with their line

    _loaders(patches, recording.homes)


def _profiler(patches: Patches) -> None:
    """A profiler that is asked for the GPU's activities looks at the host's alone."""
    base = torch.profiler.profiler._KinetoProfile
    make = base.__init__

    def on_host(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        self.activities, self.use_device = {torch.profiler.ProfilerActivity.CPU}, None

    patches.set(base, "__init__", on_host)


def _loaders(patches: Patches, homes: Any) -> None:
    """Data loaders run on the host and in this process."""
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
