"""What of a decoder is where, when it is copied, and what computes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from gpusim.base.errors import GpusimError, suggest

Where = Literal["gpu", "host", "nvme"]
Memory = Literal["pinned", "relay", "pageable"]


@dataclass(frozen=True)
class Placement:
    """Places of tensors between uses, and the schedule of their copies.

    weights_host, weights_nvme  shares of each part's weights; the rest is on the GPU
    cache, hidden      keys and values; activations between parts of a block
    memory, cache_memory
                       of the host's side of weights, of the cache: pinned; relay: the CPU copies to a pinned buffer first;
                       pageable: the driver stages, and nothing else is issued meanwhile
    ahead              the next part's weights are copied while this part computes
    barrier            the GPU is waited for after each batch of each part (FlexGen)
    parts              a block's attention and feed-forward parts are brought in apart; else a block at once
    attention          what computes the scores of new tokens after the prompt
    attention_passes   bytes that the CPU moves for attention, for each byte of the cache: 1 reads it once
    cpu_blocks         the first blocks, whose weights and cache the CPU keeps and works on
    cpu_head           it computes the head, too
    unpacks            whether stored weights are unpacked on the GPU before use; else products read them as they are
    unpack_moves       bytes that the GPU moves to unpack one element, of weights or cache; 0: one kernel reads bits and writes
                       elements
    cache_moves        bytes that it moves for each cached element of each new token before the scores: 4 copies the cache
    """

    weights_host: float = 0.0
    weights_nvme: float = 0.0
    cache: Where = "gpu"
    hidden: Where = "gpu"
    memory: Memory = "pinned"
    cache_memory: Memory = "pinned"
    ahead: bool = True
    barrier: bool = False
    parts: bool = True
    attention: Literal["gpu", "cpu"] = "gpu"
    attention_passes: float = 1.0
    cpu_blocks: int = 0
    cpu_head: bool = False
    unpacks: bool = True
    unpack_moves: float = 0.0
    cache_moves: float = 0.0

    def __post_init__(self) -> None:
        if min(self.weights_host, self.weights_nvme) < 0 or self.weights_host + self.weights_nvme > 1 + 1e-9:
            raise GpusimError(
                f"shares of weights of {self.weights_host} on the host and {self.weights_nvme} on disk",
                hint="together at most 1",
            )
        for name, known in (("cache", Where), ("hidden", Where), ("memory", Memory), ("cache_memory", Memory)):
            if (given := getattr(self, name)) not in get_args(known):
                hint = suggest(given, get_args(known)) or "known: " + ", ".join(get_args(known))
                raise GpusimError(f"`{name}` of a placement is '{given}'", hint=hint)
        if self.attention == "cpu" and self.cache == "gpu":
            raise GpusimError("attention on the CPU needs a cache that is not on the GPU", hint="cache='host'")
        if self.hidden == "nvme":
            raise GpusimError("activations between parts are on the GPU or the host", hint="hidden='host'")

    @property
    def away(self) -> float:
        """Share of the weights that is copied before each use."""
        return self.weights_host + self.weights_nvme
