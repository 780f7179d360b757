"""A model that can be run: training steps, or requests to it.

It is made and run where the recorder makes all tensors fake, and tells it only the names of phases that it cannot see itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from gpusim.programs.record import phase
from gpusim.programs.zoo import optimizers
from gpusim.programs.zoo.catalogue import Asked, Value
from gpusim.programs.zoo.layers import Attend, Cache

LOADS = ("gpusim.programs.zoo",)  # packages whose modules are imported by name
DTYPES = {
    "fp32": torch.float32, "autocast": torch.float32, "autocast-fp16": torch.float32, "bf16": torch.bfloat16,
    "fp16": torch.float16,
}  # fmt: skip
AUTOCAST = {"autocast": torch.bfloat16, "autocast-fp16": torch.float16}


@dataclass
class ModelProgram:
    """name is what `gpusim.programs.zoo.build` makes the same program from.

    optimizer  None where no step is taken after the backward pass
    held       the model's last output, where the program keeps it
    """

    name: str
    model: nn.Module
    optimizer: torch.optim.Optimizer | None
    inputs: dict[str, Tensor]
    options: Mapping[str, Value]
    held: Tensor | None = None

    def run(self) -> None:
        """All steps."""
        for _ in range(int(self.options["steps"])):
            self.step()

    def step(self) -> None:
        """One training step, or one request."""
        if self.options["mode"] == "infer":
            with self.autocast(), torch.no_grad():
                return self.generate() if "decode" in self.options else self.infer()
        for _ in range(int(self.options["accumulate"])):
            loss = self.loss()
            if self.options["gradients"] == "late":
                self.model.zero_grad()
            loss.backward()
            del loss
        if self.optimizer is not None:
            self.optimizer.step()
        if self.options["gradients"] != "late":
            (self.optimizer or self.model).zero_grad(set_to_none=self.options["gradients"] == "cleared")

    def loss(self) -> Tensor:
        """The loss of a batch, or the sum of what the model answers."""
        with self.autocast():
            if self.options.get("loss") != "sum":
                return self.model(**self.inputs)
            outputs = self.model(**{name: x for name, x in self.inputs.items() if name != "labels"})
            return outputs.sum()

    def hold(self, module: nn.Module, inputs: Any, output: Tensor) -> None:
        """A hook of the model's last layer."""
        self.held = output

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
        dtype = AUTOCAST.get(str(self.options["dtype"]))
        return torch.autocast("cuda", dtype) if dtype else nullcontext()


def make(asked: Asked) -> ModelProgram:
    """Model, inputs and optimizer of what was asked for."""
    options, trains = asked.options, asked.options["mode"] == "train"
    module = import_module(f"gpusim.programs.zoo.{asked.entry.family}")
    shape = {key: options[key] for key in ("batch", "seq", "image", "padding") if key in options}
    device = "cuda" if torch.cuda.is_available() else "cpu"  # where the recorder is at work, it is
    with _default(DTYPES[str(options["dtype"])]), torch.device(device):
        model = module.Model(**asked.entry.config).train(trains)
        inputs = model.inputs(**shape)
    for part in model.modules():
        if isinstance(part, Attend):
            part.how = str(options["attention"])
    if not trains:
        del inputs["labels"]
        return ModelProgram(asked.spec, model, None, inputs, options)
    if options["checkpointing"]:
        for block in model.blocks:
            block.forward = partial(checkpoint, block.forward, use_reentrant=False)
    learned = [p for p in model.parameters() if p.requires_grad]
    optimizer = optimizers.make(str(options["optimizer"]), str(options["update"]), learned, bool(options["masters"]))
    program = ModelProgram(asked.spec, model, optimizer, inputs, options)
    if options.get("outputs") == "held":
        model.head.register_forward_hook(program.hold)
    return program


@contextmanager
def _default(dtype: torch.dtype) -> Iterator[None]:
    """Parameters and random inputs made inside are of this type, as after `model.to(dtype)`."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
