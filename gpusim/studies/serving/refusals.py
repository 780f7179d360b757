"""What services cannot be told: words that do not go together, and what the real engine does not start with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusim.base.errors import GpusimError
from gpusim.base.text import join
from gpusim.engine.serving.run import ROUTINGS
from gpusim.machine.profile import Profile

if TYPE_CHECKING:
    from gpusim.studies.serving.setup import ServiceSpec

WAITS = ("vllm@0.11", "vllm@0.33")
"""Schedulers that let a request wait for keys and values while others run."""
POOL = "mixed_pool"
POOLED = ("splitwise",)
"""Schedulers that tell prompts and tokens of a request apart."""
_LEAST_FP8 = {"vllm": 7.5, "sglang": 8.0}
"""Compute capability from which an engine takes weights in fp8 (`Fp8Config.get_min_capability`: vLLM 0.33, SGLang 0.5.23)."""


def check_limits(spec: ServiceSpec, engine: str, gpus: Sequence[Profile]) -> None:
    """What the real engine refuses when it starts, on GPUs of these kinds.  Raises GpusimError."""
    if engine.startswith("vllm@") and spec.max_tokens < spec.max_seqs:
        said = f"vLLM does not start with steps of {spec.max_tokens} tokens and {spec.max_seqs} requests at once"
        raise GpusimError(said, hint=f"a token for each: --max-tokens {spec.max_seqs}, or --max-seqs {spec.max_tokens}")
    least = next((least for name, least in _LEAST_FP8.items() if engine.startswith(name)), 0.0)
    for gpu in gpus:
        capability = gpu.gpu.compute_capability
        if spec.weights.startswith("fp8") and float(capability) < least:
            said = f"'{engine}' has no products of weights in fp8 on {gpu.name}, of compute capability {capability}"
            raise GpusimError(said, hint=f"from {least} on; take --weights bf16")
    if not spec.beside and spec.tenancy != "time_slices":
        said = f"'{spec.tenancy}' says how two services share GPUs, and there is one"
        raise GpusimError(said, hint="--beside, or leave it out")


def check_routing(spec: ServiceSpec, engine: str) -> None:
    """What a mixed pool needs, and which words there are.  Raises GpusimError."""
    known = tuple(word for word in ROUTINGS if word != "given")
    if spec.routing not in known:
        raise GpusimError(f"there is no routing '{spec.routing}'", hint=join(known))
    if spec.step_times and spec.lora:
        raise GpusimError("adapters are not part of given step times", hint="leave out --lora or --step-times")
    if spec.routing == POOL and engine not in POOLED:
        raise GpusimError(f"a mixed pool is not modelled with '{engine}'", hint=f"it is with {join(POOLED)}")
    if spec.routing == POOL and not spec.prefill:
        raise GpusimError("no replica of the mixed pool is for prompts", hint="--prefill 1")
    if spec.prefill and engine in POOLED and spec.routing != POOL:
        raise GpusimError(f"'{engine}' hands prompts over within a mixed pool", hint=f"--routing {POOL}")


_NO_TIERS = {
    "sglang": ": HiCache writes and loads whole nodes of the radix tree, by its own rules",
    "vllm@0.9": ": its first scheduler swaps what it preempts, and keeps no other blocks in host memory",
}
"""Why, of engines that people would look for tiers with."""


def check_split(spec: ServiceSpec, engine: str, replicas: int, own: bool) -> None:
    """What needs a scheduler that waits for keys and values.  Raises GpusimError."""
    handed = spec.prefill if spec.routing != POOL else 0
    for asked, what in ((spec.tiers, "tiers"), (handed, "prompts that come from another engine")):
        if asked and engine not in WAITS and not own:
            why = next((why for name, why in _NO_TIERS.items() if spec.tiers and engine.startswith(name)), "")
            raise GpusimError(f"{what} are not modelled with '{engine}'{why}", hint=f"they are with {join(WAITS)}")
    if spec.prefill >= max(replicas, 1) and spec.prefill:
        said = f"{spec.prefill} of {replicas} replicas compute prompts: none is left to go on with them"
        raise GpusimError(said, hint=f"--prefill {replicas - 1}" if replicas > 1 else "prefill needs two replicas or more")
    if spec.handed and not handed:
        said = "a mixed pool hands keys and values over as they are" if spec.prefill else "no prompts are handed over"
        raise GpusimError(said, hint="leave out the codec" if spec.prefill else "--prefill 1, or leave out the codec")
