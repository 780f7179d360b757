"""A model that can be run: training steps, or requests to it.

It is made and run where the recorder makes all tensors fake, and tells it only the names of phases that it cannot see itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpusim.record import phase
from gpusim.zoo.catalogue import Asked, Value
from gpusim.zoo.layers import Cache

DTYPES = {"fp32": torch.float32, "autocast": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# The loop over parameters is never used on a GPU: foreach says so where the tensors do not.
OPTIMIZERS: Mapping[str, Callable[..., torch.optim.Optimizer]] = {
    "sgd": partial(torch.optim.SGD, lr=1e-3, foreach=True),
    "momentum": partial(torch.optim.SGD, lr=1e-3, momentum=0.9, foreach=True),
    "adam": partial(torch.optim.Adam, lr=1e-4, foreach=True),
    "adamw": partial(torch.optim.AdamW, lr=1e-4, foreach=True),
    "adafactor": partial(torch.optim.Adafactor, foreach=True),
}


@dataclass
class Program:
    """name is what `gpusim.zoo.build` makes the same program from; optimizer is None where nothing is trained."""

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    inputs: dict[str, Tensor]
    options: Mapping[str, Value]

    def run(self) -> None:
        """All steps."""
        for _ in range(int(self.options["steps"])):
            self.step()

    def step(self) -> None:
        """One training step, or one request."""
        with self.autocast():
            if self.optimizer is None:
                with torch.no_grad():
                    return self.generate() if "decode" in self.options else self.infer()
            loss = self.model(**self.inputs)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def infer(self) -> None:
        self.model(**self.inputs)

    def generate(self) -> None:
        """The prompt in one piece, then one token after the other, each the likeliest."""
        cache = Cache()
        phase("prefill")
        ids = self.model(**self.inputs, cache=cache).argmax(-1)
        for token in range(int(self.options["decode"])):
            phase(f"decode{token}")
            ids = self.model(ids, cache=cache).argmax(-1)

    def autocast(self) -> AbstractContextManager[Any]:
        return torch.autocast("cuda", torch.bfloat16) if self.options["dtype"] == "autocast" else nullcontext()


def make(asked: Asked) -> Program:
    """Model, inputs and optimizer of what was asked for."""
    options, trains = asked.options, asked.options["mode"] == "train"
    module = import_module(f"gpusim.zoo.{asked.entry.family}")
    shape = {key: options[key] for key in ("batch", "seq", "image") if key in options}
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where the recorder is at work, it is
    with _default(DTYPES[str(options["dtype"])]), torch.device(device):
        model = module.Model(**asked.entry.config).train(trains)
        inputs = model.inputs(**shape)
    if not trains:
        del inputs["labels"]
        return Program(asked.spec, model, None, inputs, options)
    if options["checkpointing"]:
        for block in model.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    learned = [p for p in model.parameters() if p.requires_grad]
    return Program(asked.spec, model, OPTIMIZERS[str(options["optimizer"])](learned), inputs, options)


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """Parameters and random inputs made inside are of this type, as after `model.to(dtype)`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
