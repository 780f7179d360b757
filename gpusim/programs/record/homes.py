"""Which device the program means: "cuda" is taken to the fake GPU, and tensors say that they are there.

A TorchFunctionMode sees every call of PyTorch's Python API before it is carried out.  Calls that name a device are carried
out on the CPU with `target` telling the dispatch below where their results live.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from gpusim.programs.record import substitutes
from gpusim.programs.record.adopt import Adopted
from gpusim.programs.record.readback import Unknown, decided, holds_unknown, refuse_values
from gpusim.programs.record.schema import plain, tensors
from gpusim.programs.record.standins import stand_in
from gpusim.programs.record.storages import GPU, HOST, Storages
from gpusim.programs.record.where import calls_from, users_line, warn

_CPU = torch.device("cpu")
_CUDA = torch.device("cuda", 0)
VALUE_READ, BLOCKING_COPY = "a value of the GPU is read", "a copy that blocks"
_READ = ("tolist", "numpy", "data_ptr", "__int__", "__index__", "__array__")


class Homes(TorchFunctionMode):
    """The mode."""

    def __init__(self, storages: Storages, adopted: Adopted) -> None:
        super().__init__()
        self.storages, self.adopted = storages, adopted
        self.target: str | None = None
        self.inside = False  # while an operator runs, tensors say their true device
        self._calls: list[tuple[Any, Any]] = []
        self._handlers = _handlers()

    # --- where things are ---------------------------------------------------------------------------------------------

    def of(self, tensor: torch.Tensor) -> str:
        """Where a tensor lives: GPU or HOST."""
        tensor = plain(tensor)
        if isinstance(tensor, FakeTensor):
            return self.storages.home(tensor) or self.adopted.default
        return GPU if self.adopted.takes(tensor) else HOST

    def wait(self, what: str) -> str:
        """The host waits for the GPU at the user's line, which this answers."""
        line = users_line()
        self.storages.tape.wait(line, what)
        return line

    def of_factory(self) -> str:
        """Where an operator without tensors runs that was not told: with the tensors of the call that it is part of."""
        if self.adopted.host_work:
            return HOST
        if self.adopted.default == GPU:
            return GPU
        args, kwargs = self._calls[-1] if self._calls else ((), {})
        return GPU if any(self.of(t) == GPU for t in (*tensors(args), *tensors(kwargs.values()))) else HOST

    @contextmanager
    def at(self, home: str | None) -> Iterator[None]:
        """What is made in here lives at this home."""
        outer, self.target = self.target, home
        try:
            yield
        finally:
            self.target = outer

    @contextmanager
    def on_host(self) -> Iterator[None]:
        """A data loader is at work."""
        self.adopted.host_work += 1
        try:
            yield
        finally:
            self.adopted.host_work -= 1

    # --- calls --------------------------------------------------------------------------------------------------------

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.inside:
            return func(*args, **kwargs)
        if holds_unknown(args):
            _into_tensors(self, func, args, kwargs)
        if kwargs.get("pin_memory"):
            kwargs = {**kwargs, "pin_memory": False}
        handler = self._handlers.get(func)
        if handler is not None:
            return handler(self, func, args, kwargs)
        device = kwargs.get("device")
        if device is None and func in _device._device_constructors():
            device = self._unnamed()
        if device is not None:
            home = home_of(device)
            if home is None:  # the meta device holds nothing: as it is
                return func(*args, **kwargs)
            with self.at(home):
                return func(*args, **{**kwargs, "device": _CPU})
        self._calls.append((args, kwargs))
        try:
            return func(*args, **kwargs)
        finally:
            self._calls.pop()

    def _unnamed(self) -> Any:
        """The device of a factory that was not told one."""
        if _device.CURRENT_DEVICE is not None:
            return _device.CURRENT_DEVICE
        if self.adopted.host_work or calls_from("torch.optim", 2):  # the counters of optimizers are scalars of the host
            return _CPU
        return _CUDA if self.adopted.default == GPU else _CPU


def home_of(device: Any) -> str | None:
    """GPU, HOST, or None for the meta device."""
    if isinstance(device, int):
        return GPU
    kind = torch.device(device).type
    return {"cuda": GPU, "cpu": HOST}.get(kind)


# --- what single functions do instead; each takes (homes, func, args, kwargs) -----------------------------------------


def _device_of(homes: Homes, func: Any, args: Any, kwargs: Any) -> Any:
    real = func(*args, **kwargs)
    return _CUDA if real.type == "cpu" and homes.of(args[0]) == GPU else real


def _move(
    homes: Homes, tensor: torch.Tensor, home: str, dtype: Any, layout: Any, copy: bool, non_blocking: bool = False
) -> torch.Tensor:
    """A tensor at another home, or of another type; the host waits for a copy between homes unless it is told not to."""
    more = {"memory_format": layout} if layout is not None else {}
    if homes.of(tensor) == home:
        return tensor.to(dtype=dtype or tensor.dtype, copy=copy, **more)
    with homes.at(home):
        moved = tensor.to(dtype=dtype or tensor.dtype, copy=True, **more)
    if not non_blocking and tensor.numel():
        homes.wait(BLOCKING_COPY)
    return moved


def _to(homes: Homes, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    tensor, *rest = args
    named = {key: value for key, value in kwargs.items() if key not in ("copy", "other")}
    if rest and isinstance(rest[0], torch.Tensor):
        rest[0] = kwargs.get("other", rest[0])
    other = rest[0] if rest and isinstance(rest[0], torch.Tensor) else kwargs.get("other")
    if other is not None:
        home, dtype, layout = homes.of(other), other.dtype, kwargs.get("memory_format")
        waits_not = bool(kwargs.get("non_blocking", rest[1] if len(rest) > 1 else False))
    else:
        device, dtype, waits_not, layout = torch._C._nn._parse_to(*rest, **named)
        named_home = homes.of(tensor) if device is None else home_of(device)
        if named_home is None:
            return func(*args, **kwargs)
        home = named_home
    return _move(homes, tensor, home, dtype, layout, bool(kwargs.get("copy", False)), waits_not)


def _cuda(homes: Homes, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    waits_not = bool(kwargs.get("non_blocking", args[2] if len(args) > 2 else False))
    return _move(homes, args[0], GPU, None, kwargs.get("memory_format"), False, waits_not)


def _cpu(homes: Homes, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    return _move(homes, args[0], HOST, None, kwargs.get("memory_format"), False)


def _beside(homes: Homes, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """A new tensor where another one is, unless it says otherwise."""
    device = kwargs.pop("device", None)
    with homes.at(homes.of(args[0]) if device is None else home_of(device)):
        return func(*args, **kwargs)


def _is_known(tensor: torch.Tensor) -> bool:
    """Whether a tensor has values."""
    return not isinstance(tensor, FakeTensor)


def _item(homes: Homes, func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if _is_known(tensor) and homes.of(tensor) == HOST:
        return func(*args, **kwargs)
    line = homes.wait(VALUE_READ) if homes.of(tensor) == GPU else ""
    if calls_from("torch.amp", 2):
        homes.storages.tape.decide((line,))  # whether the step is taken
        return 0.0  # nothing overflowed
    if calls_from("torch", 2):
        return 1.0
    value = stand_in(homes.storages, tensor)
    if isinstance(value, bool):
        return decided(value, (line,))
    warn("a value that is not computed while recording is read; it shows as '?'")
    return Unknown.read(value, line)


def _into_tensors(homes: Homes, func: Any, args: Any, kwargs: Any) -> None:
    """Placeholders are given to a function: what is made of real tensors can no longer be told from what was computed."""
    if func is torch.arange:
        refuse_values("arange")
    if home_of(kwargs.get("device") or _CPU) == HOST and all(map(_is_known, tensors(args))):
        warn("a value that is not computed while recording is put into a tensor of the host, as 1.0")


def _float(homes: Homes, func: Any, args: Any, kwargs: Any) -> Any:
    if _is_known(args[0]) and homes.of(args[0]) == HOST:
        return func(*args, **kwargs)
    if homes.of(args[0]) == GPU:
        homes.wait(VALUE_READ)
    warn("a value that is not computed while recording is read as 1.0")
    return 1.0


def _bool(homes: Homes, func: Any, args: Any, kwargs: Any) -> bool:
    tensor = args[0]
    if (_is_known(tensor) and homes.of(tensor) == HOST) or tensor.numel() != 1:
        return bool(func(*args, **kwargs))
    line = homes.wait(VALUE_READ) if homes.of(tensor) == GPU else ""
    return decided(bool(stand_in(homes.storages, tensor)), (line,))


def _values(homes: Homes, func: Any, args: Any, kwargs: Any) -> Any:
    if _is_known(args[0]) and homes.of(args[0]) == HOST:
        return func(*args, **kwargs)
    return refuse_values(func.__name__)


def _handlers() -> dict[Any, Any]:
    same = lambda homes, func, args, kwargs: args[0]  # noqa: E731
    nothing = lambda homes, func, args, kwargs: None  # noqa: E731
    Tensor = torch.Tensor
    return {
        Tensor.device.__get__: _device_of,
        Tensor.is_cuda.__get__: lambda homes, func, args, kwargs: homes.of(args[0]) == GPU,
        Tensor.is_cpu.__get__: lambda homes, func, args, kwargs: homes.of(args[0]) == HOST,
        Tensor.get_device: lambda homes, func, args, kwargs: 0 if homes.of(args[0]) == GPU else -1,
        Tensor.to: _to,
        Tensor.cuda: _cuda,
        Tensor.cpu: _cpu,
        Tensor.pin_memory: same,
        Tensor.new_tensor: _beside,
        Tensor.record_stream: nothing,
        Tensor.item: _item,
        Tensor.__float__: _float,
        Tensor.__bool__: _bool,
        **{getattr(Tensor, name): _values for name in _READ},
        **substitutes.HANDLERS,
    }
