"""Real tensors that take part: each is stood for by a fake one while the recording lasts, and keeps its values.

What the program changes in Python objects that are older than the recording is put back at the end: gradients, the tensors
that a module holds, and the state of an optimizer.
"""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils.weak import WeakIdKeyDictionary, WeakTensorKeyDictionary

from gpusim.programs.record.schema import is_wrapper, tensors
from gpusim.programs.record.standins import keep
from gpusim.programs.record.storages import GPU, Storages


class Adopted:
    """Real tensors -> their fakes, and what to put back."""

    def __init__(self, storages: Storages, default: str) -> None:
        self.fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._storages = storages
        self.default = default  # the home of what names no device: GPU or HOST
        self.host_work = 0  # inside data loaders everything stays on the host
        self._fakes: Any = WeakTensorKeyDictionary()
        self._staying: Any = WeakTensorKeyDictionary()
        self._gradients: list[tuple[Any, torch.Tensor | None]] = []
        self._modules: Any = WeakIdKeyDictionary()
        self._optimizers: Any = WeakIdKeyDictionary()
        self.first = True  # what is met in the first step was there before it

    def takes(self, tensor: torch.Tensor, scalars: bool = False) -> bool:
        """Whether a real tensor stands for one on the GPU: any but a scalar, where all that names no device is there."""
        if isinstance(tensor, FakeTensor) or is_wrapper(type(tensor)):
            return False
        if tensor in self._fakes:
            return self._storages.home(self._fakes[tensor]) == GPU
        with torch._C.DisableTorchFunction():
            on_host = tensor.device.type == "cpu" and tensor not in self._staying
        return on_host and self.default == GPU and not self.host_work and (scalars or tensor.dim() > 0)

    def stays(self, made: Any) -> None:
        """Real tensors that the program made on the host on purpose, where what names no device is on the GPU."""
        if self.default == GPU and not self.host_work:
            self._staying.update(dict.fromkeys((t for t in tensors((made,)) if t.dim() and t not in self._fakes), True))

    def fake_of(self, tensor: torch.Tensor, home: str, category: str = "") -> torch.Tensor:
        """The fake that stands for a real tensor, made when it is first met."""
        fake = self._fakes.get(tensor)
        if fake is None:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch(), torch.no_grad():
                plain = tensor.detach()
            with torch._C.DisableTorchFunction():
                fake = self.fake_mode.from_tensor(plain, static_shapes=True)
            self._fakes[tensor] = fake
            if tensor.is_leaf and tensor.requires_grad:
                had = tensor.grad is not None and not _made_here(tensor.grad)  # of masters it may be of this recording
                self._gradients.append((weakref.ref(tensor), tensor.grad if had else None))
                category = category or "param"
        if self._storages.find(fake) is None:
            older = bool(category) or self.first
            self._storages.add(fake, home, category or "input", before=older and home == GPU)
            keep(self._storages, fake, tensor)
        return fake

    def module(self, module: torch.nn.Module) -> None:
        """A module's tensors may be replaced: remember them."""
        for part in module.modules():
            if part not in self._modules and not any(map(_made_here, _held(part))):
                self._modules[part] = (dict(part._parameters), dict(part._buffers))

    def optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step: remember its state if it serves real parameters."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        if optimizer in self._optimizers or any(map(_made_here, parameters)):
            return
        self._optimizers[optimizer] = {
            p: {key: _own_copy(value) for key, value in state.items()} for p, state in optimizer.state.items()
        }
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor) and value.dim():
                    self.fake_of(value, GPU, "opt")

    def restore(self) -> None:
        """Everything that is older than the recording as it was."""
        for reference, gradient in self._gradients:
            tensor = reference()
            if tensor is not None:
                tensor.grad = gradient
        for part, (parameters, buffers) in self._modules.items():
            part._parameters.update(parameters)
            part._buffers.update(buffers)
        for optimizer, state in self._optimizers.items():
            optimizer.state.clear()
            optimizer.state.update(state)


def _held(module: torch.nn.Module) -> list[torch.Tensor]:
    return [t for t in (*module._parameters.values(), *module._buffers.values()) if t is not None]


def _made_here(tensor: torch.Tensor) -> bool:
    return isinstance(tensor, FakeTensor)


def _own_copy(value: Any) -> Any:
    """Scalars of the host go on being computed during the recording: their values are kept."""
    if isinstance(value, torch.Tensor) and not value.dim():
        with torch._C._DisableTorchDispatch():
            return value.clone()
    return value
