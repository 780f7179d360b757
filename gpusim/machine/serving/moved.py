"""What a step of a served model moves: bytes of the GPU's memory by part, and bytes that it sends in collectives."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.machine.serving.shape import ServedModel

F64 = npt.NDArray[np.float64]

# Of one GPU.  Read once a step: all weights but those of experts, those of all experts, which a token has CHOSEN of EXPERTS.
# Keys and values of a token; what norms, rotations and activations move for a token, and sampling for a request; what is sent.
WEIGHTS, EXPERT_WEIGHTS, CHOSEN, EXPERTS, CACHE, OTHER, SAMPLING, SENT = range(8)
NUMBERS = 8


def moved(model: ServedModel, ways: int) -> F64:
    """The numbers by name, of a model that is split over so many GPUs; the embedding is looked up, not read."""
    heads, kv_heads = model.heads_on(ways)
    experts = model.layers * model.expert_bytes(ways)
    row, head, kept = 2 * model.width, 2 * heads * model.head_size, 2 * kv_heads * model.head_size
    inner = 2 * (model.shared if model.experts else model.hidden) // ways
    layer = 8 * row + 2 * (head + kept) + 4 * kept + (3 if model.gated else 2) * inner
    found = np.zeros(NUMBERS)
    found[WEIGHTS] = model.weight_bytes(ways) - model.head_bytes(ways) - experts
    found[EXPERT_WEIGHTS], found[CHOSEN], found[EXPERTS] = experts, model.chosen, max(model.experts, 1)
    found[CACHE], found[OTHER], found[SAMPLING] = model.token_bytes(ways), model.layers * layer + 2 * row, 14 * model.vocabulary
    found[SENT] = (2 * model.layers + 1) * row * 2 * (ways - 1) / ways  # a ring of all-reduces
    return found
