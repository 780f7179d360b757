"""Which rank saves how much of a state: all alike, or as Megatron-LM does with a distributed optimizer.

There each rank has its part of the optimizer, and the weights are saved by the ranks of the first replica alone.  Ranks are
numbered over tensor parallelism first, then over replicas, then over stages of the pipeline.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.base.errors import GpusimError


@dataclass(frozen=True)
class SavingRanks:
    """How ranks divide what is saved.

    tensor, pipeline  degrees that divide the weights; 0: all ranks save alike
    weights           their share of the state
    """

    tensor: int = 0
    pipeline: int = 0
    weights: float = 1 / 7

    @property
    def alike(self) -> bool:
        return not (self.tensor or self.pipeline)

    @property
    def model(self) -> int:
        """Ranks of a replica."""
        return max(1, self.tensor) * max(1, self.pipeline)

    def replicas(self, ranks: int) -> int:
        """Raises GpusimError where the ranks are no whole replicas."""
        count, rest = divmod(ranks, self.model)
        if rest:
            divided = f"tensor={max(1, self.tensor)}, pipeline={max(1, self.pipeline)}"
            hint = f"a multiple of {self.model} GPUs, with --least and --unit as well"
            raise GpusimError(f"{ranks} GPUs are no whole replicas of a model over {self.model} ({divided})", hint=hint)
        return count

    def saved(self, state: float, nodes: int, gpus: int) -> set[tuple[float, ...]]:
        """Bytes that each GPU of a node saves; of nodes that differ."""
        ranks = nodes * gpus
        if self.alike:
            return {(state / ranks,) * gpus}
        tensor, replicas = max(1, self.tensor), self.replicas(ranks)
        rest, own = state * (1 - self.weights) / ranks, state * self.weights / self.model
        parts = [rest + (own if rank // tensor % replicas == 0 else 0.0) for rank in range(ranks)]
        return {tuple(parts[first : first + gpus]) for first in range(0, ranks, gpus)}

    def loaded(self, state: float, ranks: int) -> float:
        """Bytes that each rank loads: its part of the optimizer, and the weights that it computes with."""
        if self.alike:
            return state / ranks
        return state * (1 - self.weights) / ranks + state * self.weights / self.model

    def read(self, state: float, ranks: int) -> float:
        """Bytes that all ranks read: the weights once for each replica."""
        return state if self.alike else state * (1 - self.weights + self.weights * self.replicas(ranks))
