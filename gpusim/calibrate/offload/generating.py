"""From a published generation to its program: what each system does with what it keeps outside of the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gpusim.base.errors import GpusimError
from gpusim.calibrate.offload.cases import OffloadCase
from gpusim.programs.blockwise import Decoder, GenerationLoad, Placement, generation
from gpusim.programs.blockwise.placement import Memory, Where
from gpusim.trace.trace import Trace

# FlexGen: attention and feed-forward parts are layers of their own, all streams are waited for after each batch, the cache is
# not pinned (flexllmgen/flex_opt.py generation_loop_overlap_multi_batch, pytorch_backend.py).  Its CPU attention copies 16-bit
# keys and values to a 32-bit workspace (3 bytes moved for 1), transposes them there (4) and multiplies (2): 9 bytes for 1; on
# the GPU it transposes them, too.  It unpacks 4-bit groups by six operators, 13 bytes for an element (compression.py).
# Accelerate copies a module's weights when it is called; vLLM a layer's.  ZeRO-Inference fetches ahead, module by module.
# Accelerate and ZeRO-Inference run transformers' models, which append to their cache by copying it.
# llama.cpp multiplies with packed weights; the CPU computes what it holds, and the head unless all layers are on the GPU.
SYSTEMS: Mapping[str, Placement] = {
    "FlexGen": Placement(barrier=True, cache_memory="relay", attention_passes=9, unpack_moves=13, cache_moves=4),
    "ZeRO-Inference": Placement(cache_moves=4),
    "Accelerate": Placement(memory="pageable", cache_moves=4),
    "vLLM": Placement(parts=False),
    "llama.cpp": Placement(parts=False, unpacks=False),
}
# Weights in memory that is not pinned: FlexGen copies them to a pinned buffer itself, else the driver does.
_UNPINNED: Mapping[str, Memory] = {"FlexGen": "relay"}


def program(case: OffloadCase) -> Trace:
    """The trace of what was measured: the whole generation, or its decoding alone."""
    if case.prompt is None or case.generate is None or case.vocabulary is None:
        raise GpusimError(f"case '{case.name}' generates nothing")
    work = GenerationLoad(case.gpu_batch, case.prompt, case.generate, case.batch // case.gpu_batch, prefill=case.phase == "all")
    return generation(decoder(case), placement(case), work, case.name)


def decoder(case: OffloadCase) -> Decoder:
    """Its shapes."""
    assert case.vocabulary is not None
    gated = not case.model.startswith(("OPT", "BLOOM"))
    return Decoder(
        case.layers, case.hidden, case.heads, case.kv_heads or case.heads, case.ffn, case.vocabulary, gated, tied=not gated,
        head_size=128 if case.model.startswith("Qwen3") else 0, weight_bits=case.weight_bits, cache_bits=case.cache_bits,
    )  # fmt: skip


def placement(case: OffloadCase) -> Placement:
    """What is where, by the case's own words and its system's ways."""
    usual = SYSTEMS[case.system]
    on_cpu = case.layers_on_cpu
    resting: Where = "host" if case.activations == "host" and not on_cpu else "gpu"
    return replace(
        usual,
        weights_host=case.weights.get("host", 0.0), weights_nvme=case.weights.get("nvme", 0.0),
        cache="gpu" if case.cache == "split" else case.cache, hidden=resting,
        memory=_UNPINNED.get(case.system, "pageable") if case.pinned == "no" else usual.memory,
        ahead=case.prefetch == "yes", attention="gpu" if on_cpu else case.attention,
        cpu_blocks=on_cpu, cpu_head=on_cpu > 0,
    )  # fmt: skip


def value(case: OffloadCase, seconds: float) -> float:
    """The measured quantity of a run that took so long."""
    assert case.generate is not None
    return seconds / case.generate if case.unit == "s/token" else case.batch * case.generate / seconds
