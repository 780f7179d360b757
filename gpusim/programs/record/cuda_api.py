"""`torch.cuda` and `torch.accelerator` where there is one GPU: nothing runs, and its memory is what the recording has seen."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any

import torch
import torch.accelerator
import torch.cuda
import torch.cuda.profiler

from gpusim.programs.record import running
from gpusim.programs.record.patches import Patches, answer
from gpusim.programs.record.tape import Tape
from gpusim.programs.record.where import RecordError, users_line
from gpusim.programs.record.workspaces import GENERATIONS

_MEMORY = 80 * 2**30  # bytes that the pretended GPU says it has
_CUDA = torch.device("cuda", 0)
_TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int8, torch.bool)


def pretend(patches: Patches, gpu: str, tape: Tape) -> None:
    """One GPU of the generation that is recorded for."""
    capability = GENERATIONS[gpu]
    properties = SimpleNamespace(
        name=f"recorded GPU ({gpu})", major=capability[0], minor=capability[1], total_memory=_MEMORY,
        multi_processor_count=108, is_integrated=False, is_multi_gpu_board=False, warp_size=32, gcnArchName="",
    )  # fmt: skip
    answers = {
        "is_available": True, "device_count": 1, "current_device": 0, "is_initialized": True, "is_bf16_supported": True,
        "_is_compiled": True, "get_device_name": properties.name, "get_device_capability": capability,
        "get_device_properties": properties, "get_arch_list": [f"sm_{capability[0]}{capability[1]}"], "memory_stats": {},
        "memory_summary": "", "memory_snapshot": [], "is_current_stream_capturing": False, "utilization": 0,
        "get_rng_state_all": [], "initial_seed": 0, "can_device_access_peer": False,
    }  # fmt: skip
    silent = (
        "empty_cache", "set_device", "manual_seed", "manual_seed_all", "seed", "seed_all", "_lazy_init", "init",
        "reset_peak_memory_stats", "reset_max_memory_allocated", "reset_max_memory_cached", "ipc_collect", "set_rng_state",
        "set_rng_state_all", "set_per_process_memory_fraction", "reset_accumulated_memory_stats", "set_stream", "_lazy_call",
    )  # fmt: skip
    live, peak = (lambda *_, **__: tape.live_bytes), (lambda *_, **__: tape.peak_bytes)
    functions: dict[str, Any] = {
        **{name: answer(value) for name, value in answers.items()},
        **{name: answer(None) for name in silent},
        **dict.fromkeys(("memory_allocated", "memory_reserved", "memory_cached"), live),
        **dict.fromkeys(("max_memory_allocated", "max_memory_reserved", "max_memory_cached"), peak),
        "get_rng_state": lambda *_, **__: torch.zeros(16, dtype=torch.uint8, device="cpu"),  # a seed and an offset
        "mem_get_info": lambda *_, **__: (max(0, _MEMORY - tape.live_bytes), _MEMORY),
        "Stream": _Stream, "Event": _Event, "current_stream": _Stream, "default_stream": _Stream,
        "stream": lambda stream: contextlib.nullcontext(stream), "device": _Device, "device_of": _Device,
        "CUDAGraph": _Graph, "synchronize": _synchronize,
    }  # fmt: skip
    for owner in (torch.cuda, torch.cuda.memory, torch.cuda.random):
        _replace(patches, owner, functions)
    # The same questions under the names of any accelerator; a build for CUDA without a driver has no answer of its own.
    functions |= {
        "current_accelerator": answer(torch.device("cuda")), "current_device_index": answer(0), "current_device_idx": answer(0),
        "set_device_index": answer(None), "set_device_idx": answer(None), "device_index": _Device,
        "empty_host_cache": answer(None), "get_memory_info": functions["mem_get_info"],
        "get_device_capability": answer({"supported_dtypes": {*_TYPES}}),
    }  # fmt: skip
    for owner in (torch.accelerator, torch.accelerator.memory):
        _replace(patches, owner, functions)
    for name, value in (("_cuda_getCurrentRawStream", 0), ("_cuda_getDevice", 0), ("_cuda_getDeviceCount", 1)):
        patches.set(torch._C, name, answer(value))  # a build for the CPU has none of them
    _replace(patches, torch, {"Stream": _Stream, "Event": _Event})
    for name in ("_record_memory_history", "_dump_snapshot"):
        patches.set(torch.cuda.memory, name, answer(None))
    marks = dict.fromkeys(("range_push", "range_pop", "range_start", "range_end", "mark"), answer(None))
    _replace(patches, torch.cuda.nvtx, {**marks, "range": _Range})
    _replace(patches, torch.cuda.profiler, dict.fromkeys(("init", "start", "stop"), answer(None)))


def _replace(patches: Patches, owner: Any, functions: dict[str, Any]) -> None:
    """Those that this version of PyTorch has."""
    for name, value in functions.items():
        if name in vars(owner):
            patches.set(owner, name, value)


def _synchronize(*_: Any, **__: Any) -> None:
    running.current().tape.wait(users_line(), "synchronize()")


class _Range(contextlib.ContextDecorator):
    """A named range, which is a decorator too."""

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class _Graph:
    """Refused; a class, for annotations."""

    def __new__(cls, *_: Any, **__: Any) -> _Graph:
        raise RecordError("CUDA graphs are captured on a GPU only", users_line(), "leave it out while gpusim.record.active()")


class _Device(contextlib.nullcontext[Any]):
    def __init__(self, device: Any = None) -> None:
        super().__init__(device)


class _Stream:
    """All streams are one."""

    cuda_stream = device_index = stream_id = priority = 0
    device_type = 1  # CUDA's number among PyTorch's kinds of device
    device = _CUDA

    def __init__(self, *_: Any, **__: Any) -> None: ...

    def wait_stream(self, stream: Any) -> None: ...

    def wait_event(self, event: Any) -> None: ...

    def synchronize(self) -> None:
        _synchronize()

    def query(self) -> bool:
        return True

    def is_capturing(self) -> bool:
        return False

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
