"""Training of a transformer whose batches are as long as their longest sequence: no two steps have the same sizes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gpusim.programs.generate import training
from gpusim.programs.generate.schedule import RequestSchedule, play
from gpusim.programs.generate.transformer import Dimensions
from gpusim.programs.lengths import draw as distributions

CHUNK = 1 << 10  # steps


def variable_training(
    *, hours: float = 24.0, steps_per_hour: float = 2160.0, lengths: str = "lognormal", typical: int = 300,
    spread: float = 0.6, longest: int = 1024, pad_to: int = 8, batch: int = 8, model: str = "gpt2", layers: int = 12,
    width: int = 768, heads: int = 12, kv_heads: int = 0, hidden: int = 0, vocabulary: int = 50257,
    dtype_bytes: int = 2, checkpointing: bool = False, ends: bool = False, seed: int = 0,
) -> RequestSchedule:  # fmt: skip
    """Training of a transformer on batches of sequences of different lengths, each padded to its longest sequence.

    One step is PyTorch's in eager mode with Adam: parameters first, then inputs, activations, logits and loss, gradients
    in reverse, the optimizer's state in the first step and its temporaries in each.

    hours           how long it trains
    steps_per_hour  steps in an hour
    lengths         fixed, uniform, lognormal, zipf, azure-conv, azure-code or mooncake (recorded prompt and output)
    typical         tokens: median of lognormal lengths, value of fixed ones
    spread          standard deviation of the logarithm of lognormal lengths, exponent of zipf ones
    longest         tokens: longer sequences are cut
    pad_to          tokens: batches are padded to a multiple of it; the buckets of a bucketing sampler
    batch           sequences
    model           gpt2 or llama
    layers, width, heads, vocabulary
                    the transformer's shape
    kv_heads        0: as many as heads
    hidden          width inside the MLP; 0: 4 x width
    dtype_bytes     of parameters and activations: 2 or 4
    checkpointing   1: each layer's activations are computed again in the backward pass
    ends            1: gives everything back when its time is over
    seed            of the lengths
    """
    shape = Dimensions(
        layers, width, heads, kv_heads or heads, hidden or 4 * width, vocabulary, longest, batch, dtype_bytes
    )  # fmt: skip
    tape = training.tape(model, shape, checkpointing)
    steps = max(1, int(hours * steps_per_hour))
    rng = np.random.Generator(np.random.PCG64(seed))
    drawn = distributions.draw(rng, steps * batch, lengths, typical=typical, spread=spread, longest=longest)
    number = np.minimum(-(-drawn.reshape(steps, batch).max(axis=1) // pad_to) * pad_to, longest)
    time = (np.arange(steps) * (3_600_000 / steps_per_hour)).astype(np.int64)

    def plays() -> Iterator[Any]:
        yield play(tape.start)
        for at in range(0, steps, CHUNK):
            made = play(tape.step, len(number[at : at + CHUNK]))
            made["time"], made["number"] = time[at : at + CHUNK], number[at : at + CHUNK]
            if at == 0:
                made["first"][0], made["end"][0] = tape.first
            yield made
        if ends:
            ending = play(tape.end)
            ending["time"] = round(hours * 3_600_000)
            yield ending

    return RequestSchedule("variable_training", tape.rows, plays, tape.units)
