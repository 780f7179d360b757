"""A decoder's parts, the bytes of their weights, and the operators that each runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpusim.base.errors import GpusimError

ATTENTION, MLP, EMBEDDING, HEAD = "attention", "mlp", "embedding", "head"


class BlockKernel(NamedTuple):
    """One operator: its name, arithmetic, and the bytes that it reads and writes, weights included."""

    name: str
    flops: float
    read: int
    written: int


@dataclass(frozen=True)
class Decoder:
    """Widths of a decoder, in elements.

    gated         three matrices in the feed-forward part instead of two
    element       bytes of an activation and of a cached key or value
    weight_bits   bits of a stored weight, scales included: 16, or about 4.5 of 4-bit groups
    cache_bits    the same of the cache
    """

    layers: int
    width: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    gated: bool = False
    tied: bool = True
    head_size: int = 0
    element: int = 2
    weight_bits: float = 16
    cache_bits: float = 16

    def __post_init__(self) -> None:
        if self.heads % self.kv_heads or (not self.head_size and self.width % self.heads):
            raise GpusimError(
                f"a width of {self.width}, {self.heads} heads and {self.kv_heads} KV heads do not go together",
                hint="heads divide the width, KV heads divide the heads",
            )

    @property
    def size(self) -> int:
        """Elements of a head."""
        return self.head_size or self.width // self.heads

    @property
    def kv_width(self) -> int:
        """Elements of the keys of one token, and of its values."""
        return self.size * self.kv_heads

    def matrices(self, part: str) -> list[tuple[int, int]]:
        """(inputs, outputs) of the weight matrices of a part, in the order of their use."""
        inner = self.size * self.heads
        return {
            ATTENTION: [(self.width, inner), (self.width, self.kv_width), (self.width, self.kv_width), (inner, self.width)],
            MLP: [(self.width, self.hidden)] * (2 if self.gated else 1) + [(self.hidden, self.width)],
            EMBEDDING: [(self.vocabulary, self.width)],
            HEAD: [(self.width, self.vocabulary)],
        }[part]

    def stored(self, part: str) -> int:
        """Bytes of a part's weights as they are kept; a tied head has none of its own."""
        if part == HEAD and self.tied:
            return 0
        return int(sum(n * m for n, m in self.matrices(part)) * self.weight_bits / 8)

    def weights(self) -> int:
        """Bytes of all weights as they are kept."""
        blocks = self.layers * (self.stored(ATTENTION) + self.stored(MLP))
        return blocks + self.stored(EMBEDDING) + self.stored(HEAD)

    def cached(self, batch: int, tokens: int) -> int:
        """Bytes of one layer's keys and values of so many tokens of each sample."""
        return int(2 * batch * tokens * self.kv_width * self.cache_bits / 8)

    @property
    def packed(self) -> bool:
        """Whether stored weights are smaller than what the GPU computes with."""
        return self.weight_bits < 8 * self.element

    def attention(
        self, batch: int, tokens: int, context: int, scores: bool = True, fused_bits: bool = False
    ) -> list[BlockKernel]:
        """Operators of an attention part on `tokens` new tokens of each sample that see `context` in all.

        scores      whether the scores are computed here
        fused_bits  products read the stored bits (llama.cpp) instead of unpacked weights
        """
        q, k, v, out = (self._product(pair, batch * tokens, fused_bits) for pair in self.matrices(ATTENTION))
        found = [self._norm(batch * tokens), q, k, v]
        if scores:
            found += self._scores(batch, tokens, context)
        return [*found, out, self._elementwise("aten.add", 2, batch * tokens, self.width)]

    def mlp(self, batch: int, tokens: int, fused_bits: bool = False) -> list[BlockKernel]:
        """Operators of a feed-forward part."""
        rows = batch * tokens
        *up, down = (self._product(pair, rows, fused_bits) for pair in self.matrices(MLP))
        act = [self._elementwise("aten.silu" if self.gated else "aten.relu", 1, rows, self.hidden)]
        act += [self._elementwise("aten.mul", 2, rows, self.hidden)] if self.gated else []
        return [self._norm(rows), *up, *act, down, self._elementwise("aten.add", 2, rows, self.width)]

    def head(self, batch: int, fused_bits: bool = False) -> list[BlockKernel]:
        """Norm, scores of the words for the last token of each sample, and the likeliest."""
        product = self._product((self.width, self.vocabulary), batch, fused_bits)
        return [self._norm(batch), product, BlockKernel("aten.argmax", 0, batch * self.vocabulary * self.element, 8 * batch)]

    def unpack(self, elements: int, bits: float, moves: float = 0) -> BlockKernel:
        """From stored bits to elements that products can read; `moves`: bytes for each element, when it is not one kernel."""
        if moves:
            return BlockKernel("aten.mul", 0, int(elements * moves / 2), int(elements * moves / 2))
        return BlockKernel("aten.mul", 0, int(elements * bits / 8), elements * self.element)

    def _product(self, matrix: tuple[int, int], rows: int, fused_bits: bool) -> BlockKernel:
        inputs, outputs = matrix
        bits = self.weight_bits if fused_bits else 8 * self.element
        read = int(inputs * outputs * bits / 8) + rows * inputs * self.element
        return BlockKernel("aten.addmm", 2.0 * rows * inputs * outputs, read, rows * outputs * self.element)

    def _scores(self, batch: int, tokens: int, context: int) -> list[BlockKernel]:
        e, heads = self.element, batch * self.heads
        keys = batch * context * self.kv_width * e
        rows, table = heads * tokens * self.size * e, heads * tokens * context * e
        flops = 2.0 * heads * tokens * context * self.size
        return [
            BlockKernel("aten.bmm", flops, rows + keys, table),
            BlockKernel("aten._softmax", 0, table, table),
            BlockKernel("aten.bmm", flops, table + keys, rows),
        ]

    def _norm(self, rows: int) -> BlockKernel:
        return self._elementwise("aten.native_layer_norm", 1, rows, self.width)

    def _elementwise(self, name: str, operands: int, rows: int, width: int) -> BlockKernel:
        moved = rows * width * self.element
        return BlockKernel(name, 0, operands * moved, moved)
