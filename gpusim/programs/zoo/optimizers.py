"""Optimizers by name and by implementation: what a step holds beside gradients and states differs between them.

foreach   all parameters of a group at once, with temporaries as large as they are: PyTorch's default on a GPU
fused     one kernel, no temporaries
loop      one parameter after the other, temporaries as large as the largest
backward  each parameter as soon as its gradient is complete, which is then freed (torch's tutorial, torchtune)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

IMPLEMENTATIONS: Mapping[str, Mapping[str, bool]] = {
    "foreach": {"foreach": True}, "fused": {"fused": True}, "loop": {"foreach": False}, "backward": {"foreach": True},
}  # fmt: skip
BLOCK, LEAST = 256, 4096  # bitsandbytes: numbers that share a scale; parameters below `LEAST` keep their state in fp32


@torch.library.custom_op("gpusim::adam8bit", mutates_args=("parameter", "first", "second", "scales"))
def _adam8bit(parameter: Tensor, gradient: Tensor, first: Tensor, second: Tensor, scales: Tensor) -> None:
    """One kernel that reads and writes all of it; only its memory is of interest."""


class Adam8bit(Optimizer):
    """Adam with both states in 8 bits by blocks, as bitsandbytes keeps them on a GPU: 2 bytes a parameter and the scales."""

    def __init__(self, params: Iterable[nn.Parameter]) -> None:
        super().__init__(params, {})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    state = self.state[p] or self._start(p)
                    _adam8bit(p, p.grad, state["first"], state["second"], state["scales"])

    def _start(self, p: Tensor) -> dict[str, Tensor]:
        dtype = torch.uint8 if p.numel() >= LEAST else torch.float32
        self.state[p] = {
            "first": torch.zeros_like(p, dtype=dtype), "second": torch.zeros_like(p, dtype=dtype),
            "scales": torch.zeros(2 * -(-p.numel() // BLOCK), device=p.device),
        }  # fmt: skip
        return self.state[p]


class Masters(Optimizer):
    """Another optimizer over fp32 copies of the parameters; gradients are converted for the step."""

    def __init__(self, params: list[nn.Parameter], make: Callable[[list[nn.Parameter]], Optimizer]) -> None:
        super().__init__(params, {})
        self.learned = params
        self.masters = [nn.Parameter(p.detach().float()) for p in params]
        self.inner = make(self.masters)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for p, master in zip(self.learned, self.masters, strict=True):
            master.grad = None if p.grad is None else p.grad.float()
        self.inner.step()
        self.inner.zero_grad()
        for p, master in zip(self.learned, self.masters, strict=True):
            p.copy_(master)


ADAPTIVE: Mapping[str, Callable[..., Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=1e-3),
    "momentum": partial(torch.optim.SGD, lr=1e-3, momentum=0.9),
    "adam": partial(torch.optim.Adam, lr=1e-4),
    "adamw": partial(torch.optim.AdamW, lr=1e-4),
    "adafactor": torch.optim.Adafactor,
}


def make(name: str, update: str, params: list[nn.Parameter], masters: bool) -> Optimizer | None:
    """The optimizer over `params`; None where gradients are all that is wanted, or where hooks take the steps."""
    if name == "none":
        return None

    def one(of: list[nn.Parameter]) -> Optimizer:
        return Adam8bit(of) if name == "adam8bit" else ADAPTIVE[name](of, **IMPLEMENTATIONS[update])

    def whole(of: list[nn.Parameter]) -> Optimizer:
        return Masters(of, one) if masters else one(of)

    if update != "backward":
        return whole(params)
    for p in params:
        p.register_post_accumulate_grad_hook(partial(_at_once, whole([p])))
    return None


def _at_once(optimizer: Optimizer, parameter: Tensor) -> None:
    optimizer.step()
    parameter.grad = None
