"""A model with experts as it runs where not all of them are on the GPU: bytes of an expert and of the rest, and their times.

A *stack* is a run of layers that a pass goes through, an encoder or a decoder; of it every `every`-th layer has experts.
Kernels are those of the kernel-time model (`operators`), launched one by one, as a framework without CUDA graphs launches them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.base.yaml import document
from gpusim.machine.profile import Profile
from gpusim.machine.serving.operators import OperatorModel
from gpusim.machine.serving.shape import ServedModel

F64 = npt.NDArray[np.float64]
I64 = npt.NDArray[np.int64]

DATA = Path(__file__).parent / "data" / "expert_models.yaml"
BITS = (2, 3, 4, 8, 16, 32)
"""Of a number of an expert's weights."""
_LAYER_KERNELS, _EXPERT_KERNELS = 10, 4
"""Launches of a plain layer (as in `build`), and of an expert: two products, activation, sum."""


@dataclass(frozen=True)
class LayerStack:
    """So many layers, every `every`-th with experts; `cross`: they attend to what an encoder has made."""

    layers: int
    every: int = 1
    cross: bool = False

    @property
    def sparse(self) -> int:
        """Layers with experts."""
        return self.layers // self.every


@dataclass(frozen=True)
class ExpertModel:
    """Widths in elements.

    hidden   inner width of an expert; dense: of a feed-forward part without experts; shared: of an expert that every token has
    stacks   the decoder, or encoder and decoder
    gated    three matrices in a feed-forward part instead of two
    bits     of a number of an expert's weights; all other weights have 16, or 32 as well
    """

    name: str
    width: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocabulary: int
    experts: int
    chosen: int
    stacks: tuple[LayerStack, ...]
    gated: bool = True
    dense: int = 0
    shared: int = 0
    bits: int = 16

    def __post_init__(self) -> None:
        if self.bits not in BITS:
            raise GpusimError(f"experts of {self.bits} bits are not modelled", hint=f"there are {', '.join(map(str, BITS))}")

    @property
    def sparse(self) -> int:
        """Layers with experts, of all stacks."""
        return sum(stack.sparse for stack in self.stacks)

    @property
    def expert_numbers(self) -> int:
        """Weights of one expert."""
        return (3 if self.gated else 2) * self.width * self.hidden

    @property
    def expert_bytes(self) -> int:
        """Of one expert of one layer."""
        return self.expert_numbers * self.bits // 8

    @property
    def plain_size(self) -> int:
        """Bytes of a weight that is no expert's."""
        return max(self.bits // 8, 2)

    @property
    def plain_bytes(self) -> int:
        """Of all weights but experts; embedding and head are two matrices, or one where there is an encoder."""
        numbers = self.width * self.vocabulary * (1 if len(self.stacks) > 1 else 2)
        for stack in self.stacks:
            for sparse, layers in ((True, stack.sparse), (False, stack.layers - stack.sparse)):
                numbers += layers * sum(n * k for n, k in self.products(stack, sparse))
                numbers += layers * 2 * self.width * self.kv_heads * self.head_size * stack.cross  # of the encoder's tokens
        return self.plain_size * numbers

    @property
    def head_bytes(self) -> int:
        """Of the matrix that scores the words."""
        return self.plain_size * self.width * self.vocabulary

    def turn_bytes(self, stack: LayerStack) -> int:
        """Of the weights but experts from behind one layer with experts to the next."""
        numbers = sum(n * k for n, k in self.products(stack, True))
        return self.plain_size * (numbers + (stack.every - 1) * sum(n * k for n, k in self.products(stack, False)))

    @property
    def token_bytes(self) -> int:
        """Of one token's keys and values, in the layers that keep them."""
        return 4 * self.stacks[-1].layers * self.kv_heads * self.head_size

    def products(self, stack: LayerStack, sparse: bool) -> list[tuple[int, int]]:
        """(outputs, inputs) of a layer's products, experts left out."""
        rows, kept = self.heads * self.head_size, self.kv_heads * self.head_size
        found = [(rows + 2 * kept, self.width), (self.width, rows)]
        if stack.cross:
            found += [(rows, self.width), (self.width, rows)]
        if sparse:
            found.append((self.experts, self.width))
        for inner in filter(None, (self.shared if sparse else self.dense,)):
            found += [((2 if self.gated else 1) * inner, self.width), (self.width, inner)]
        return found


def of_served(model: ServedModel, bits: int = 16) -> ExpertModel:
    """A decoder of the zoo.  Raises GpusimError for one without experts."""
    if not model.experts:
        raise GpusimError(f"'{model.name}' has no experts", hint="mixtral-8x7b, qwen3-30b-a3b, nllb-moe-54b, switch-large-128")
    return ExpertModel(
        model.name, model.width, model.heads, model.kv_heads, model.head_size, model.hidden, model.vocabulary, model.experts,
        model.chosen, (LayerStack(model.layers),), model.gated, shared=model.shared, bits=bits,
    )  # fmt: skip


@cache
def described() -> dict[str, dict[str, Any]]:
    """Models with experts that are not in the zoo, by name; each with its source."""
    found: dict[str, dict[str, Any]] = document.read(DATA).data
    return found


def of_described(name: str, bits: int = 16) -> ExpertModel:
    """One of `described`."""
    facts = {key: value for key, value in described()[name].items() if key != "source"}
    stacks = tuple(LayerStack(**stack) for stack in facts.pop("stacks"))
    return ExpertModel(name=name, stacks=stacks, bits=bits, **facts)


@dataclass(frozen=True)
class ExpertTimes:
    """ns of a model's parts on a machine."""

    model: ExpertModel
    operators: OperatorModel

    @property
    def machine(self) -> Profile:
        """Where."""
        return self.operators.machine

    @property
    def launch(self) -> float:
        """ns between two launches of an eager framework."""
        return float(max(self.machine.launch.eager.value, self.machine.launch.submit.value))

    def experts(self, most: int) -> I64:
        """(most + 1,) ns of an expert on the GPU, for 0, 1, ... tokens.

        Products are those of 16 bits; one token's, which take as long as reading the weights, shrink or grow with the bits, and
        the others by as much.  Unpacking is not counted, nor that 32 bits are multiplied more slowly.
        """
        m, model = np.arange(1.0, most + 1), self.model
        ns = self.operators.gemm("bf16", m, (2 if model.gated else 1) * model.hidden, model.width)
        ns = ns + self.operators.gemm("bf16", m, model.width, model.hidden)
        ns = ns - ns[0] * (1 - model.bits / 16)
        ns = ns + self.operators.stream((6 if model.gated else 4) * model.hidden * m)
        ns = ns + self.operators.stream(6 * model.width * m)
        return _whole(np.maximum(ns, _EXPERT_KERNELS * self.launch))

    def on_cpu(self, most: int, compute: float) -> I64:
        """(most + 1,) ns of an expert on the CPU, whose cores reach so many operations a second; its tokens' rows go there and
        back.  No less than reading its weights from the host's memory takes.
        """
        m, host, link = np.arange(1.0, most + 1), self.machine.host, self.machine.link
        read = self.model.expert_bytes / host.bandwidth.value * 1e9
        ns = np.maximum(read, 2.0 * self.model.expert_numbers * m / compute * 1e9)
        rows = 2.0 * self.model.width * m
        ns = ns + rows / link.d2h.value * 1e9 + rows / link.h2d.value * 1e9 + 2 * link.latency_synchronised.value
        return _whole(ns)

    def plain(self, stack: LayerStack, requests: F64, tokens: F64, context: F64, prompt: F64) -> tuple[F64, F64]:
        """(P,) passes of so many requests with so many tokens each, the last of which sees `context` tokens: ns before the gate
        of a layer with experts, from the end of the experts before; ns behind the last experts, the head with it.
        """
        sparse, dense = (self._layer(stack, kind, requests, tokens, context, prompt) for kind in (True, False))
        before = sparse + (stack.every - 1) * dense
        after = (stack.layers % stack.every) * dense
        if stack == self.model.stacks[-1]:
            head = self.operators.gemm("bf16", requests, float(self.model.vocabulary), float(self.model.width))
            after = after + np.maximum(head, self.launch)
        return before, after

    def _layer(self, stack: LayerStack, sparse: bool, requests: F64, tokens: F64, context: F64, prompt: F64) -> F64:
        model, of, m = self.model, self.operators, requests * tokens
        ns = np.zeros_like(m)
        for n, k in model.products(stack, sparse):
            ns = ns + of.gemm("bf16", m, float(n), float(k))
        heads = (model.heads, model.kv_heads, model.head_size)
        one = tokens == 1
        ns = ns + np.where(one, of.decode("bf16", requests, context, *heads), of.prefill("bf16", requests, tokens, *heads))
        if stack.cross:
            ns = ns + of.decode("bf16", requests, np.maximum(prompt, 1.0), *heads)
        row = 2.0 * model.width * m
        ns = ns + 2 * of.stream(4 * row, normed=True) + of.stream(4 * row)
        return np.maximum(ns, _LAYER_KERNELS * self.launch)


def _whole(ns: F64) -> I64:
    return np.concatenate([[0], np.rint(ns)]).astype(np.int64)
