"""A machine without a GPU answers as if it had one: `torch.cuda` and what else programs ask, for the time of a recording."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch
import torch.cuda
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


class Patches:
    """Attributes that are replaced for a while."""

    def __init__(self) -> None:
        self._undo = contextlib.ExitStack()

    def set(self, owner: Any, name: str, value: Any) -> None:
        own = vars(owner)
        if name in own:
            self._undo.callback(setattr, owner, name, own[name])
        else:
            self._undo.callback(delattr, owner, name)
        setattr(owner, name, value)

    def close(self) -> None:
        self._undo.close()


@contextmanager
def pretending(recording: Recording) -> Iterator[None]:
    """Everything below, until the recording ends."""
    patches = Patches()
    try:
        _no_function_checks(patches)
        _tensors(patches, recording)
        _cuda(patches, recording)
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

    optimizer = import_module("torch.optim.optimizer")  # its name in torch.optim is taken away
    patches.set(optimizer, "_foreach_supported_types", [*optimizer._foreach_supported_types, FakeTensor])

    make = torch.nn.Parameter.__new__

    def parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
        if isinstance(data, torch.Tensor) and not isinstance(data, FakeTensor) and data.device.type == "cpu":
            data = recording.adopted.fake_of(data.detach(), recording.homes.of(data))
        return make(cls, data, requires_grad)

    patches.set(torch.nn.Parameter, "__new__", parameter)


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

    generator = torch.Generator

    patches.set(torch, "set_default_device", set_default_device)
    patches.set(torch, "save", save)
    patches.set(torch, "compile", compile)
    patches.set(torch, "load", load_on_host)
    patches.set(torch, "Generator", lambda device="cpu": generator())
    patches.set(torch.backends.mha, "get_fastpath_enabled", _answer(False))

    begin, following, make = DataLoader.__iter__, _BaseDataLoaderIter.__next__, DataLoader.__init__

    def iterate(self: Any) -> Any:
        with homes.on_host():
            return begin(self)

    def batch(self: Any) -> Any:
        with homes.on_host():
            return following(self)

    def in_process(self: Any, *args: Any, **kwargs: Any) -> None:
        make(self, *args, **kwargs)
        for name in ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory"):
            object.__setattr__(self, name, 0 if name == "num_workers" else None)

    patches.set(DataLoader, "__init__", in_process)
    patches.set(DataLoader, "__iter__", iterate)
    patches.set(_BaseDataLoaderIter, "__next__", batch)


def _answer(value: Any) -> Any:
    return lambda *_, **__: value


def _refused(message: str) -> Any:
    def refuse(*_: Any, **__: Any) -> None:
        raise RecordError(message, users_line(), "leave it out while gpusim.record.active()")

    return refuse


class _Device(contextlib.nullcontext[Any]):
    def __init__(self, device: Any = None) -> None:
        super().__init__(device)


class _Stream:
    """All streams are one."""

    cuda_stream = device_index = stream_id = 0
    device = _CUDA

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def record_event(self, event: Any = None) -> _Event:
        return event or _Event()

    def __enter__(self) -> _Stream:
        return self

    def __exit__(self, *_: object) -> None: ...


class _Event:
    """All events have passed, and no time with them."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def record(self, stream: Any = None) -> None: ...

    def wait(self, stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: Any) -> float:
        return 1.0
