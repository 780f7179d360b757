"""Every operator of the program passes here: it runs on fake tensors, and the tape gets what it did.

What lives on the GPU is a fake CPU tensor (fake CUDA tensors abort where there is no CUDA) whose storage is known to be at
home there.  Small tensors of the host stay real and are computed with, so that data loaders, schedules and scalars work.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    UnsupportedOperatorException,
)
from torch.utils._python_dispatch import TorchDispatchMode

from gpusim.programs.record import flops
from gpusim.programs.record.adopt import Adopted
from gpusim.programs.record.homes import BLOCKING_COPY, Homes
from gpusim.programs.record.phases import Phases
from gpusim.programs.record.processes import collective, is_collective
from gpusim.programs.record.readback import read_scalar
from gpusim.programs.record.schema import effects, is_composite, is_dense, is_wrapper, tensors, view_bytes, written
from gpusim.programs.record.shapes import shape_of, shape_of_kernel
from gpusim.programs.record.standins import follow
from gpusim.programs.record.storages import GPU, HOST, Storages
from gpusim.programs.record.substitutes import OPERATORS
from gpusim.programs.record.tape import Operator, Tape
from gpusim.programs.record.where import RecordError, users_line
from gpusim.programs.record.workspaces import Workspaces
from gpusim.trace.trace import COPY_IN, COPY_OUT, KERNEL

aten = torch.ops.aten
_CPU, _META = torch.device("cpu"), torch.device("meta")
_LARGE = 1 << 20  # bytes from which a tensor made on the host is fake
_SIZED = {aten.empty, aten.zeros, aten.ones, aten.full, aten.rand, aten.randn, aten.randint, aten.empty_strided}
_FILLS_ZEROS = {aten.scatter_add.default, aten.scatter.src, aten.index_put.default, aten.index_add.default}


class Dispatch(TorchDispatchMode):
    """The mode."""

    def __init__(
        self, tape: Tape, storages: Storages, homes: Homes, adopted: Adopted, phases: Phases, workspaces: Workspaces
    ) -> None:  # fmt: skip
        super().__init__()
        self.tape, self.storages, self.homes, self.adopted = tape, storages, homes, adopted
        self.phases, self.workspaces = phases, workspaces

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if any(map(is_wrapper, types)):
            return NotImplemented
        if func is torch.ops.prim.device.default:
            return _CPU
        if self.homes.inside:  # what an operator of fake tensors is made of
            return func(*args, **(kwargs or {}))
        if torch.is_inference_mode_enabled() and is_composite(func):  # else autograd takes it apart
            with self:
                return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **(kwargs or {}))
        self.homes.inside = True
        try:
            return self._run(func, args, kwargs or {})
        except (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException) as error:
            raise _unrecordable(func, error) from error
        finally:
            self.homes.inside = False

    def _run(self, func: Any, args: Any, kwargs: Any) -> Any:
        inputs = [*tensors(args), *tensors(kwargs.values())]
        if kwargs.get("device") == _META:
            return func(*args, **kwargs)
        if is_collective(func):
            self.opaque(str(func), args[:1], inputs)
            return collective(func, args)
        if (asked := kwargs.get("device")) is not None and asked.type == "cuda":  # called where no mode of functions watches
            with self.homes.at(GPU):
                return self._run(func, args, {**kwargs, "device": _CPU})
        home = self._home(inputs)
        if home == HOST and not any(isinstance(t, FakeTensor) for t in inputs) and not (not inputs and _large(func, args)):
            made = func(*args, **kwargs)
            self.adopted.stays(made)
            return made
        data = func is aten.lift_fresh.default and self.homes.target == GPU  # such as torch.tensor([1, 2], device="cuda")
        if data:
            func = aten._to_copy.default
        if func is aten._local_scalar_dense.default:
            return read_scalar(args[0])
        crossing = COPY_IN if data else self._crossing(home, inputs)
        if func is aten.copy_.default and len(inputs) == 2 and isinstance(inputs[1], FakeTensor):
            into, source = map(self.homes.of, inputs)
            if into != source:
                home, crossing = into, COPY_IN if into == GPU else COPY_OUT
        if crossing == COPY_IN and inputs[0].dim():
            self.phases.batch_arrives()
        elif home == GPU:
            self.phases.before(func, inputs)
        fakes = {id(t): self._fake(t, HOST if data else home) for t in inputs}
        given, named = _swap(args, fakes), _swap(kwargs, fakes)
        run = OPERATORS.get(func, func) if home == GPU else func
        with self.adopted.fake_mode:
            out = run(*given, **named)
        self._note(func, home, crossing, given, named, out)
        if data or (func is aten.copy_.default and crossing != KERNEL and not kwargs.get("non_blocking", (*args, False)[2])):
            self.homes.wait(BLOCKING_COPY)
        back = {id(fake): t for t in inputs if (fake := fakes[id(t)]) is not t}
        return _swap(out, back) if back else out

    def _home(self, inputs: list[torch.Tensor]) -> str:
        """Where an operator runs: where the call says, else on the GPU if anything it takes is there."""
        if self.homes.target is not None:
            return self.homes.target
        if not inputs:
            return GPU if self.phases.backward and self.tape.sizes else self.homes.of_factory()
        return GPU if any(self.homes.of(t) == GPU for t in inputs) else HOST

    def _crossing(self, home: str, inputs: list[torch.Tensor]) -> int:
        """Which way a copy goes between host and GPU."""
        if self.homes.target is None or not inputs:
            return KERNEL
        on_gpu = any(self.homes.of(t) == GPU for t in inputs)
        if home == GPU and not on_gpu:
            return COPY_IN
        return COPY_OUT if home == HOST and on_gpu else KERNEL

    def _fake(self, tensor: torch.Tensor, home: str) -> torch.Tensor:
        """The fake tensor that stands for one that the program passes."""
        if isinstance(tensor, FakeTensor):
            if self.storages.find(tensor) is None:
                self.storages.add(tensor, home)
            return tensor
        stays = HOST in (home, self.adopted.default) or (self.homes.target is not None and self.homes.of(tensor) == HOST)
        return self.adopted.fake_of(tensor, HOST if stays else GPU)

    def _note(self, func: Any, home: str, crossing: int, args: Any, kwargs: Any, out: Any) -> None:
        """Write down one operator that has run."""
        outputs = list(tensors((out,)))
        inputs = [*tensors(args), *tensors(kwargs.values())]
        known, fresh = effects(func), []
        for tensor in outputs:
            if self.storages.find(tensor) is None:
                fresh.append(tensor)
                self.storages.add(tensor, home, "input" if crossing == COPY_IN else "")
        follow(self.storages, func, args, kwargs, outputs)
        mutated = list(written(func, args, kwargs))
        changed = [*fresh, *mutated]
        if known.memory_only or not changed or (home == HOST and crossing != COPY_OUT):
            return
        if crossing != KERNEL and not any(t.numel() for t in changed):
            return
        reads = [t for t in inputs if not (known.overwrites and any(t is m for m in mutated))]
        read_bytes, written_bytes = sum(map(view_bytes, reads)), sum(map(view_bytes, changed))
        if known.gathers and reads:
            read_bytes -= max(0, view_bytes(reads[0]) - written_bytes)
        workspace = self.workspaces.take(func, self.phases.backward) if crossing == KERNEL else None
        copied = self.workspaces.copies(func, args) if workspace else []
        self.tape.op(
            Operator(
                str(func),
                self._ids(reads),
                [*self._ids(changed), *([workspace.tensor] if workspace else []), *copied],
                written_bytes if crossing == COPY_IN else read_bytes,
                0 if crossing == COPY_OUT else written_bytes,
                flops.flops(func, args, kwargs, out),
                str((outputs or changed)[0].dtype).removeprefix("torch."),
                self.phases.module(),
                crossing,
                self._takes_over(func, args) if self.phases.backward and fresh else (),
                shape_of(func, args, kwargs, out),
            )
        )
        if workspace and workspace.given_back:
            self.tape.free(workspace.tensor)
        for matrix in copied:
            self.tape.free(matrix)

    def opaque(self, name: str, into: Any, given: Any) -> None:
        """Write down a kernel that no operator stands for: it reads what it is given, and writes `into`."""
        read, wrote = ([self._fake(t, GPU) for t in tensors(side) if self.homes.of(t) == GPU] for side in (given, into))
        if read:
            dtype, module = str(read[0].dtype).removeprefix("torch."), self.phases.module()
            taken, given_out = (sum(map(view_bytes, side)) for side in (read, wrote))
            shape = shape_of_kernel(read, wrote)
            self.tape.op(Operator(name, self._ids(read), self._ids(wrote), taken, given_out, 0.0, dtype, module, shape=shape))

    def _ids(self, found: list[torch.Tensor]) -> list[int]:
        ids = dict.fromkeys(storage.tensor for t in found if (storage := self.storages.find(t)) is not None)
        return [i for i in ids if i >= 0]

    def _takes_over(self, func: Any, args: Any) -> tuple[int, ...]:
        """The tensors that autograd would write into here instead of making a new one, without a dispatch mode.

        It adds later gradients to the first in place unless that is a view (torch/csrc/autograd/input_buffer.cpp), and
        fills zeros that it has just made (FunctionsManual.cpp), but makes a new tensor while any dispatch mode is active.
        """
        if torch.is_grad_enabled() or not self.phases.in_engine():
            return ()
        if func in _FILLS_ZEROS:
            return tuple(self._ids([args[0]]))
        if func is not aten.add.Tensor or not isinstance(args[1], torch.Tensor):
            return ()
        a, b = args[:2]
        if a.shape != b.shape or a.dtype != b.dtype:
            return ()
        return tuple(self._ids([a])) if not a._is_view() and is_dense(a) else ()


def _large(func: Any, args: Any) -> bool:
    """Whether a factory makes a tensor that is not to be allocated."""
    if func._overloadpacket not in _SIZED:
        return False
    size = next((a for a in args if isinstance(a, (list, tuple))), ())
    count = 1
    for extent in size:
        count *= int(extent)
    return count * 4 >= _LARGE


def _swap(value: Any, by_id: dict[int, torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        return by_id.get(id(value), value)
    if type(value) is list or type(value) is tuple:
        return type(value)(_swap(v, by_id) for v in value)
    if type(value) is dict:
        return {key: _swap(v, by_id) for key, v in value.items()}
    return value


def _unrecordable(func: Any, error: Exception) -> RecordError:
    name = str(func)
    if isinstance(error, UnsupportedOperatorException):
        return RecordError(
            f"'{name}' cannot run on fake tensors",
            users_line(),
            "a custom operator needs a fake kernel: torch.library.register_fake",
        )
    return RecordError(
        f"the result of '{name}' depends on values, which a recording does not compute",
        users_line(),
        "give it a fixed shape while gpusim.record.active(), or leave it out",
    )
