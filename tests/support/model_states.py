"""A step in mixed precision with Adam as the ZeRO paper counts it (section 3.1): for each of P parameters 2 bytes, 2 of
gradient and 12 of optimizer state."""

from __future__ import annotations

from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

LAYERS, P = 4, 64_000  # parameters of one layer
ALL = P * LAYERS


def model_states(steps: int = 2) -> Trace:
    """Layers in fp16, one weight each, whose forward and backward keep next to nothing; fp32 master, momentum and variance."""
    b = TraceBuilder("states")
    weights = [b.alloc(2 * P, "param") for _ in range(LAYERS)]
    states: list[int] = []
    for step in range(steps):
        x = b.alloc(0, "input")
        b.begin_phase(f"step{step}.fwd")
        kept = [x]
        for layer, weight in enumerate(weights):
            kept.append(b.alloc(0, "fwd"))
            b.op("mm", (weight, kept[-2]), (kept[-1],), module=f"net.layers.{layer}", flops=1e6)
        b.begin_phase(f"step{step}.bwd")
        gradients = []
        for layer in reversed(range(LAYERS)):
            gradients.insert(0, b.alloc(2 * P, "bwd"))
            b.op("mm", (kept[layer], weights[layer]), (gradients[0],), module=f"net.layers.{layer}", flops=2e6)
        b.begin_phase(f"step{step}.opt")
        if not states:
            states = [b.alloc(12 * P, "opt") for _ in weights]
            b.op("zeros", (), states)
        b.op(
            "_fused_adam_", (*weights, *gradients, *states), (*weights, *states), flops=10 * P * LAYERS,
            read_bytes=16 * P * LAYERS, written_bytes=14 * P * LAYERS,
        )  # fmt: skip
        for tensor in (*gradients, *kept):
            b.free(tensor)
    return b.finish()
