"""LoRA adapters of a service, in words: rank=16, max_loras=8, max_cpu_loras=64; of S-LoRA, which has no slots, rank=16."""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.machine.serving.adapters import AdapterShape
from gpusim.machine.serving.shape import ServedModel

ENGINES = ("vllm@0.11", "vllm@0.33", "slora")
POOLED = "slora"
"""The one whose adapters lie in the pool of keys and values."""
"""Schedulers that mind the adapters of requests."""
MOST = {"rank": 512, "max_loras": 1024, "max_cpu_loras": 1_000_000}


@dataclass(frozen=True)
class LoraWord:
    """rank of all adapters; how many a step has at most; how many the host's memory holds."""

    rank: int = 16
    max_loras: int = 1
    max_cpu_loras: int = 0

    @property
    def in_host(self) -> int:
        """Adapters in the host's memory: as many as slots when nothing is said, as vLLM has it."""
        return self.max_cpu_loras or self.max_loras


def lora_of(text: str) -> LoraWord | None:
    """What the word says; None for "".  Raises GpusimError."""
    if not text.strip():
        return None
    given: dict[str, int] = {}
    for part in text.split(","):
        name, _, value = (x.strip() for x in part.partition("="))
        if name not in MOST:
            hint = suggest(name, MOST) or "rank=16, max_loras=8, max_cpu_loras=64"
            raise GpusimError(f"adapters have no '{name}'", hint=hint)
        if not value.isdecimal() or not 1 <= int(value) <= MOST[name]:
            raise GpusimError(f"adapters cannot have {name}={value}", hint=f"a number from 1 to {MOST[name]:,}")
        given[name] = int(value)
    found = LoraWord(**given)
    if found.in_host < found.max_loras:
        raise GpusimError(
            f"the host holds {found.in_host} adapters, fewer than the {found.max_loras} of a step", hint="raise max_cpu_loras"
        )
    return found


def with_slots(engine: str, lora: LoraWord | None, model: ServedModel, ways: int) -> str:
    """The scheduler, which is told how many adapters a step may have, or how large one is."""
    if lora is None:
        return engine
    option = f"max_loras={lora.max_loras}"
    if engine.startswith(POOLED):
        size = AdapterShape(model, lora.rank, ways, attention=True).bytes
        option = f"adapter_cells={-(-size // round(model.token_bytes(ways)))}"
    return f"{engine[:-1]}, {option})" if engine.endswith(")") else f"{engine}({option})"


def check(engine: str, lora: LoraWord | None) -> None:
    """Raises GpusimError for an engine whose adapters are not modelled."""
    if lora is not None and engine not in ENGINES:
        raise GpusimError(f"adapters are not modelled with '{engine}'", hint=f"they are with {join(ENGINES)}")
    if lora is not None and engine == POOLED and (lora.max_loras, lora.max_cpu_loras) != (1, 0):
        said = "S-LoRA has no slots for adapters: they lie in the pool of keys and values, and all in the host's memory"
        raise GpusimError(said, hint=f'lora="rank={lora.rank}"')
