"""A served model as its products: which matrices one GPU multiplies for a token, how many heads it has, what it sends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from gpusim.base.errors import GpusimError
from gpusim.base.text import join

WEIGHTS = ("bf16", "fp8", "fp8_block")
"""Element types of weights: 16 bits; 8 bits with one scale for a matrix or row; 8 bits with one for each block of 128 x 128."""
CACHES = ("bf16", "fp8")
"""Element types of keys and values."""


class MatrixShape(NamedTuple):
    """So many equal weight matrices of `k` inputs and `n` outputs on one GPU, in the type of their products."""

    n: int
    k: int
    layers: int
    dtype: str


@dataclass(frozen=True)
class ServedModel:
    """A decoder as it is served; widths in elements.

    gated     three matrices in a feed-forward part instead of two
    experts   of each layer's feed-forward part, `chosen` for each token; 0: a plain one
    shared    inner width of an expert that every token has
    context   tokens of the longest sequence; 0: unknown
    weights   type of the weights, one of WEIGHTS; embedding and head are of 16 bits
    cache     type of keys and values, one of CACHES
    """

    name: str
    layers: int
    width: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    vocabulary: int
    gated: bool = True
    experts: int = 0
    chosen: int = 0
    shared: int = 0
    context: int = 0
    weights: str = "bf16"
    cache: str = "bf16"

    def __post_init__(self) -> None:
        for value, known, what in ((self.weights, WEIGHTS, "weights"), (self.cache, CACHES, "keys and values")):
            if value not in known:
                raise GpusimError(f"there are no step times of {what} in '{value}'", hint=f"there are of {join(known)}")

    def divides(self, ways: int) -> None:
        """Raises GpusimError when the model cannot be split over so many GPUs."""
        if ways < 1 or self.heads % ways or (self.kv_heads % ways and ways % self.kv_heads):
            raise GpusimError(
                f"{self.heads} heads on {self.kv_heads} of keys and values cannot be split over {ways} GPUs",
                hint="the number of GPUs divides the heads, and the KV heads or a multiple of them",
            )

    def heads_on(self, ways: int) -> tuple[int, int]:
        """Heads and KV heads on each of so many GPUs."""
        return self.heads // ways, max(self.kv_heads // ways, 1)

    def matrices(self, ways: int) -> list[MatrixShape]:
        """Weight matrices of all layers on one of so many GPUs; those of experts apart."""
        heads, kv_heads = self.heads_on(ways)
        found = [
            MatrixShape((heads + 2 * kv_heads) * self.head_size, self.width, self.layers, self.weights),
            MatrixShape(self.width, heads * self.head_size, self.layers, self.weights),
        ]
        if self.experts:
            found.append(MatrixShape(self.experts, self.width, self.layers, "bf16"))
        for inner in (self.shared,) if self.experts else (self.hidden,):
            if inner:
                found.append(MatrixShape((2 if self.gated else 1) * inner // ways, self.width, self.layers, self.weights))
                found.append(MatrixShape(self.width, inner // ways, self.layers, self.weights))
        return found

    def head(self, ways: int) -> MatrixShape:
        """The matrix that scores the words."""
        return MatrixShape(-(-self.vocabulary // ways), self.width, 1, "bf16")

    def weight_bytes(self, ways: int) -> int:
        """Bytes of all weights on one of so many GPUs; embedding and head are two matrices, norms are left out."""
        size = {"bf16": 2, "fp8": 1, "fp8_block": 1}
        plain = sum(shape.n * shape.k * shape.layers * size[shape.dtype] for shape in self.matrices(ways))
        return plain + self.layers * self.expert_bytes(ways) + 2 * self.head_bytes(ways)

    def expert_bytes(self, ways: int) -> int:
        """Bytes of all experts of a layer on one of so many GPUs."""
        return 3 * self.experts * self.width * (self.hidden // ways) * (2 if self.weights == "bf16" else 1)

    def head_bytes(self, ways: int) -> int:
        """Bytes of the head on one of so many GPUs; of the embedding, too."""
        return 2 * self.head(ways).n * self.width

    def layer_bytes(self, ways: int) -> int:
        """Bytes of one layer's weights on one of so many GPUs."""
        return (self.weight_bytes(ways) - 2 * self.head_bytes(ways)) // self.layers

    def layer_flops(self) -> float:
        """Of one token in one layer, all GPUs together; attention apart."""
        plain = 2.0 * sum(shape.n * shape.k for shape in self.matrices(1))
        experts = 6.0 * self.chosen * self.width * self.hidden if self.experts else 0.0
        return plain + experts

    def token_bytes(self, ways: int) -> int:
        """Bytes of one token's keys and values on one of so many GPUs, of all layers."""
        return 2 * self.layers * self.heads_on(ways)[1] * self.head_size * (2 if self.cache == "bf16" else 1)
