"""Where in the program we are: which step and phase, and in which module.  No marks by the user are needed.

A step is forward, backward, optimizer, and clearing the gradients (step0.fwd, .bwd, .opt, .zero).  Backward is told by
autograd, the others by hooks of optimizers and modules.  After a backward pass what needs no gradient still belongs to it
(clipping, unscaling); the next forward pass begins with a module, an operator that builds a graph, or a batch that arrives.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from gpusim.programs.record.adopt import Adopted
from gpusim.programs.record.storages import GPU, Storages
from gpusim.programs.record.tape import Tape
from gpusim.programs.record.where import next_step


class EnoughSteps(BaseException):
    """The steps that were asked for are recorded; nothing of the program but its end may catch it."""


def _outside(operator: str) -> bool:
    """Whether it begins no forward pass: a scaler's, or the detaching of a parameter, of which a master is made."""
    return "_amp_" in operator or "aten.detach" in operator


class Phases:
    """Keeps the phase on the tape up to date."""

    def __init__(self, tape: Tape, storages: Storages, adopted: Adopted, steps: int | None) -> None:
        self._tape, self._storages, self._adopted, self._steps = tape, storages, adopted, steps
        self.step = 0
        self.current = ""  # "" while the program is being set up
        self.backward = False
        self.optimized = self.backward_seen = False
        self._stepping = 0  # optimizers at work, one inside the other
        self._stepped = False  # whether an optimizer has run since the last forward pass
        self.marked = False  # the user names the phases
        self._path: list[str] = []
        self._names: Any = weakref.WeakKeyDictionary()
        self._roots: Any = weakref.WeakSet()
        self._entered: list[tuple[int, str | None]] = []  # autograd's sequence number -> module of the nodes from there on
        self._undo: list[Callable[[], None]] = []

    # --- phases -------------------------------------------------------------------------------------------------------

    def enter(self, kind: str) -> None:
        """The program does forward, backward, optimizer or zero work from now on."""
        if self.marked or self.current == kind:
            return
        if not self.current:
            if kind != "fwd":
                return
            self._tape.begin()
        elif kind == "fwd" and self._stepped:
            self.step, self._stepped = self.step + 1, False
            self._adopted.first = False
            next_step()
            if self._steps is not None and self.step >= self._steps:
                raise EnoughSteps
        self.current = kind
        self._tape.phase(f"step{self.step}.{kind}")

    def mark(self, name: str) -> None:
        """The user names a phase: detection ends."""
        if not self.current:
            self._tape.begin()
        self.marked = True
        self.current = name
        self._tape.phase(name)

    def before(self, func: Any, inputs: list[torch.Tensor]) -> None:
        """An operator is about to run on the GPU."""
        if self.backward or self._stepping or self.current == "fwd" or self.marked:
            return
        if torch._C._current_autograd_node() is not None:  # a backward pass that was started in another way
            self.enter("bwd")
        elif torch.is_grad_enabled() and any(t.requires_grad for t in inputs) and not _outside(str(func)):
            self.enter("fwd")

    def batch_arrives(self) -> None:
        """A tensor is copied to the GPU."""
        if self.current in ("opt", "zero"):
            self.enter("fwd")

    def names(self) -> dict[str, str]:
        """Final names of phases: a program that only runs forward has no steps."""
        return {} if self.optimized or self.backward_seen else {"step0.fwd": "fwd"}

    def in_engine(self) -> bool:
        """Whether autograd itself runs the operator, not a function of Python within it."""
        return torch._C._current_autograd_node() is not None

    # --- modules ------------------------------------------------------------------------------------------------------

    def module(self) -> str | None:
        """The module that the current operator, or the node of the backward pass, belongs to."""
        node = None if self._path else torch._C._current_autograd_node()
        if node is None or node.name().endswith("AccumulateGrad"):
            return self._path[-1] if self._path else None
        at = bisect_right(self._entered, node._sequence_nr(), key=lambda entry: entry[0])
        return self._entered[at - 1][1] if at else None

    def _before_module(self, module: torch.nn.Module, args: Any) -> None:
        if not self._path and not self.backward:
            self._meet(module)
            self.enter("fwd")
        self._path.append(self._names.get(module) or type(module).__name__)
        self._entered.append((torch.autograd._get_sequence_nr(), self._path[-1]))

    def _after_module(self, module: torch.nn.Module, args: Any, out: Any) -> None:
        if self._path:
            self._path.pop()
        self._entered.append((torch.autograd._get_sequence_nr(), self._path[-1] if self._path else None))

    def _meet(self, root: torch.nn.Module) -> None:
        """An outermost module: its parameters, buffers and names."""
        if root in self._roots:
            return
        self._roots.add(root)
        top = type(root).__name__
        for name, module in root.named_modules():
            self._names.setdefault(module, f"{top}.{name}" if name else top)
        self._adopted.module(root)
        for held, category in ((root.parameters(), "param"), (root.buffers(), "buffer")):
            for tensor in held:
                self.tell(tensor, category)
                if tensor.requires_grad and tensor.is_leaf:
                    handle = tensor.register_post_accumulate_grad_hook(self._gradient)
                    self._undo.append(handle.remove)

    def tell(self, tensor: torch.Tensor, category: str) -> None:
        """What kind of tensor this is; a real one is adopted."""
        if self._adopted.takes(tensor, scalars=True):
            self._adopted.fake_of(tensor, GPU, category)
        else:
            self._storages.mark(tensor, category)

    def _gradient(self, parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            self._storages.mark(parameter.grad, "grad")

    # --- hooks --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Phases:
        handles = [
            register_module_forward_pre_hook(self._before_module),
            register_module_forward_hook(self._after_module, always_call=True),
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]
        self._undo += [handle.remove for handle in handles]
        self._wrap(torch.autograd, "backward", self._in_backward)
        self._wrap(torch.autograd, "grad", self._in_backward)
        self._wrap(torch.optim.Optimizer, "zero_grad", self._in_zero)
        return self

    def __exit__(self, *_: object) -> None:
        while self._undo:
            self._undo.pop()()

    def _wrap(self, owner: Any, name: str, around: Callable[..., Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, lambda *args, **kwargs: around(original, *args, **kwargs))
        self._undo.append(lambda: setattr(owner, name, original))

    def _in_backward(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        self.enter("bwd")
        outer, self.backward, self.backward_seen = self.backward, True, True
        try:
            return original(*args, **kwargs)
        finally:
            self.backward = outer
            if self._stepping and not outer:  # a closure of the optimizer's
                self.enter("opt")

    def _in_zero(self, original: Any, *args: Any, **kwargs: Any) -> Any:
        if self.optimized and not self._stepping:  # an optimizer over fp32 masters clears their gradients in its step
            self.enter("zero")
        return original(*args, **kwargs)

    def _before_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._adopted.optimizer(optimizer)
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self.tell(parameter, "param")
                self._gradient(parameter)
        self.optimized = True
        self._stepping += 1
        self.enter("opt")

    def _after_step(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._stepping -= 1
        self._stepped = self._stepped or bool(self.current)
        if self.backward:  # in the hook of a gradient
            self.enter("bwd")
        for state in optimizer.state.values():
            for value in state.values():
                if isinstance(value, torch.Tensor):
                    self._storages.mark(value, "opt")
