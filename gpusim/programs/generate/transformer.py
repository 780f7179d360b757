"""The shape of a transformer and the sizes of its tensors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from gpusim.base.errors import GpusimError
from gpusim.programs.generate.tape import AffineSize, RequestTape


@dataclass(frozen=True)
class Dimensions:
    """A decoder whose sequences have a length that changes: sizes are affine in it.

    element  bytes of a parameter and of an activation: 2 or 4; statistics, losses and softmax are in 4
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    context: int
    batch: int
    element: int

    def __post_init__(self) -> None:
        if self.width % self.heads or self.heads % self.kv_heads:
            raise GpusimError(
                f"a width of {self.width}, {self.heads} heads and {self.kv_heads} KV heads do not go together",
                hint="heads divide the width, KV heads divide the heads",
            )
        if self.element not in (2, 4):
            raise GpusimError(f"parameters of {self.element} bytes are not modelled", hint="dtype_bytes is 2 or 4")

    @property
    def head(self) -> int:
        """Width of a head."""
        return self.width // self.heads

    @property
    def kv_width(self) -> int:
        return self.head * self.kv_heads

    def tokens(self, elements: int, bytes: int = 0) -> AffineSize:
        """So many elements for each token of the batch."""
        return AffineSize(0, self.batch * elements * (bytes or self.element))

    def positions(self, bytes: int) -> AffineSize:
        """So many bytes for each position, whatever the batch."""
        return AffineSize(0, bytes)

    def weight(self, *dims: int) -> AffineSize:
        size = self.element
        for dim in dims:
            size *= dim
        return AffineSize(size)

    @cached_property
    def activation(self) -> AffineSize:
        return self.tokens(self.width)

    @cached_property
    def wide(self) -> AffineSize:
        """An activation inside the MLP."""
        return self.tokens(self.hidden)

    @cached_property
    def exact(self) -> AffineSize:
        """An activation in float32."""
        return self.tokens(self.width, 4)

    @cached_property
    def statistic(self) -> AffineSize:
        """A float32 for each token."""
        return self.tokens(1, 4)

    def cast(self, tape: RequestTape, unit: int, size: AffineSize) -> int:
        """From float32 to the type of the activations or back: no tensor of its own when they are float32."""
        return tape.new(size) if self.element < 4 else tape.share(unit)


def attention(tape: RequestTape, shape: Dimensions) -> list[int]:
    """What fused attention leaves: output, log-sum-exp for the backward pass, seed and offset of its random numbers."""
    lse = shape.tokens(shape.heads, 4)
    small = (16, 8) if shape.element < 4 else (8, 8)  # flash attention's and the memory-efficient kernel's
    return [tape.new(shape.activation), tape.new(lse), *(tape.new(AffineSize(n)) for n in small)]


def loss_forward(tape: RequestTape, shape: Dimensions, hidden: int) -> list[int]:
    """Logits of all positions and their cross entropy; answers what the backward pass needs."""
    logits = tape.new(shape.tokens(shape.vocabulary))
    exact = shape.cast(tape, logits, shape.tokens(shape.vocabulary, 4))
    padded = tape.new(AffineSize(8 * shape.batch, 8 * shape.batch))  # labels, shifted by one
    labels = tape.new(shape.tokens(1, 8))
    log_softmax = tape.new(shape.tokens(shape.vocabulary, 4))
    loss, weight = tape.new(AffineSize(4)), tape.new(AffineSize(4))
    tape.free(exact, padded, logits)
    return [hidden, labels, log_softmax, loss, weight]


def loss_backward(tape: RequestTape, shape: Dimensions, saved: list[int]) -> tuple[int, int, list[int]]:
    """(gradient of the embedding, gradient of the hidden state, what lives until the pass is over)."""
    hidden, labels, log_softmax, loss, weight = saved
    size = shape.tokens(shape.vocabulary, 4)
    one = tape.new(AffineSize(4))
    picked = tape.new(size)
    tape.free(labels, weight)
    softmax = tape.new(size)
    tape.free(picked, log_softmax)
    logits = shape.cast(tape, softmax, shape.tokens(shape.vocabulary))
    tape.free(softmax)
    embedding = tape.new(shape.weight(shape.vocabulary, shape.width))
    gradient = tape.new(shape.activation)
    tape.free(logits, hidden)
    return embedding, gradient, [one, loss]


def embedding_backward(tape: RequestTape, shape: Dimensions, head: int, gradient: int) -> int:
    """Embedding and output head are one parameter: the sum of both gradients."""
    table = shape.weight(shape.vocabulary, shape.width)
    own = tape.new(table)
    tape.free(gradient)
    total = tape.new(table)
    tape.free(head, own)
    return total
