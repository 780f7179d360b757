"""LoRA adapters of a served model: their bytes, and how long the products of a step with them take.

Beside each product with weights (n x k) an adapter of rank r has two: shrink, with A (r x k), and expand, with B (n x r), whose
output is added to that of the weights.  Matrices that engines fuse keep adapters of their own: query, key and value, gate and
up.  Each of both is one kernel for all adapters of a step; it reads the matrices of every adapter once, reads and writes the
rows of its tokens, and takes what a kernel takes that moves as many bytes.

Source: Chen et al., Punica, arXiv:2310.18547 (SGMV); vLLM's lora/ops/triton_ops and lora/layers (Apache-2.0), in own words.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.machine.profile import Profile
from gpusim.machine.serving import step
from gpusim.machine.serving.build import operator_model
from gpusim.machine.serving.engines import costs
from gpusim.machine.serving.shape import ServedModel
from gpusim.machine.serving.tables import installed

F64 = npt.NDArray[np.float64]
TOKENS, ADAPTERS = 18, 11  # octaves of the grid
ELEMENT, BETWEEN = 2, 4  # bytes: of weights and activations; of what shrink hands to expand


@dataclass(frozen=True)
class AdapterShape:
    """Adapters of one rank beside all weight matrices of a model that is split over `ways` GPUs, or those of attention only."""

    model: ServedModel
    rank: int
    ways: int = 1
    attention: bool = False

    def __post_init__(self) -> None:
        if self.model.experts:
            raise GpusimError(f"adapters beside experts are not modelled, and {self.model.name} has them")

    def matrices(self) -> list[tuple[int, int, int]]:
        """(outputs, inputs, how many matrices are fused) of each product of a layer on one GPU."""
        fused = (3, 1, 2 if self.model.gated else 1, 1)
        found = [(m.n, m.k, parts) for m, parts in zip(self.model.matrices(self.ways), fused, strict=True)]
        return found[:2] if self.attention else found

    @property
    def bytes(self) -> int:
        """Of one adapter on each GPU."""
        return ELEMENT * self.model.layers * sum(self.rank * (parts * k + n) for n, k, parts in self.matrices())

    @property
    def copies(self) -> int:
        """Tensors of one adapter, each of which is copied to its slot by itself."""
        return 2 * self.model.layers * sum(parts for _, _, parts in self.matrices())


def adapter_times(shape: AdapterShape, machine: Profile, engine: str) -> F64:
    """Log ns of a step's products with adapters: by tokens that have one (rows) and by adapters, `step.STEPS` an octave."""
    added, version, _ = costs(engine)
    operators = operator_model(machine, added.framework, version, installed())
    m = np.exp2(np.arange(0, TOKENS * step.STEPS + 1) / step.STEPS)[:, None]
    d = np.exp2(np.arange(0, ADAPTERS * step.STEPS + 1) / step.STEPS)[None, :]
    ns = np.zeros((m.size, d.size))
    for n, k, parts in shape.matrices():
        between = BETWEEN * parts * shape.rank * m
        ns += operators.stream(ELEMENT * (m * k + d * parts * shape.rank * k) + between)
        ns += operators.stream(ELEMENT * (2 * m * n + d * shape.rank * n) + between)
    return np.log(ns * shape.model.layers)
