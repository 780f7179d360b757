"""KV blocks of a replica: what an engine's share of the memory leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.machine.profile import Profile
from gpusim.machine.serving.adapters import AdapterShape
from gpusim.machine.serving.shape import ServedModel
from gpusim.studies.serving.kinds import Below
from gpusim.studies.serving.lora import POOLED, lora_of

if TYPE_CHECKING:
    from gpusim.studies.serving.setup import ServiceSpec


MOST = 0.9  # of the memory, by default


class NoRoomError(GpusimError):
    """Weights leave no room for keys and values."""


def blocks_of(spec: ServiceSpec, profile: Profile, model: ServedModel, offload: Below) -> int:
    """KV blocks of a replica: what the engine's share of the memory leaves beside weights and what a step needs."""
    share = spec.memory * profile.memory.capacity.value
    weights, step = model.weight_bytes(spec.tensor), step_bytes(model, spec)
    lora = lora_of(spec.lora)
    apart = lora is not None and not spec.engine.startswith(POOLED)
    slots = lora.max_loras * AdapterShape(model, lora.rank, spec.tensor).bytes if lora is not None and apart else 0
    left = share - profile.context.value
    if offload is not None:
        tokens, weights = offload.tokens(left, step, spec.max_tokens), offload.device_bytes(spec.max_tokens)
    else:
        tokens = (left - weights - step - slots) / model.token_bytes(spec.tensor)
    blocks = int(tokens // spec.block)
    if blocks < 2 and tokens >= 2:
        said = f"{profile.name} has room for {int(tokens):,} tokens of keys and values, less than two blocks of {spec.block:,}"
        raise GpusimError(said, hint="choose smaller blocks")
    if blocks < 2:
        sizes = f"{show_bytes(weights)} of weights and {show_bytes(step)} of a step's tensors"
        sizes += f", {show_bytes(slots)} of adapters" if slots else ""
        beside = "; `gpusim experts` keeps experts there, for batches of a fixed size" if model.experts else ""
        more = f"give the engine more of the memory (memory={MOST}), " if spec.memory < MOST else ""
        smaller = "" if spec.weights == "fp8" else "take smaller weights (weights=fp8), "
        raise NoRoomError(
            f"{spec.model} leaves no room for keys and values on {profile.name}: {sizes} of {show_bytes(share)}",
            hint=f"{more}split each replica over more GPUs (tensor={2 * spec.tensor}), {smaller}or keep layers in "
            f"host memory (offload=\"stream(layers={model.layers // 2})\"){beside}",
        )
    return blocks


def step_bytes(model: ServedModel, spec: ServiceSpec) -> int:
    """What the tensors of the largest step take on each GPU: its widest layer's, and all words' scores in fp32 and 16 bits.

    An estimate; engines measure it by a step of `max_tokens` tokens when they start.
    """
    inner = (model.chosen * model.hidden if model.experts else model.hidden) // spec.tensor
    layer = 2 * spec.max_tokens * (2 * model.width + (3 if model.gated else 2) * inner)
    return layer + 6 * spec.max_seqs * model.vocabulary // spec.tensor
