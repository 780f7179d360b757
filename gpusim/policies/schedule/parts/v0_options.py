"""What vLLM's v0 scheduler can be told, under the names of its own options.

Source: SchedulerConfig and CacheConfig of vLLM 0.9.2 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.base.errors import PolicyError

WORDS = {
    "version": ("0.9",), "policy": ("fcfs", "priority"), "enable_prefix_caching": ("0", "1"),
    "enable_chunked_prefill": ("0", "1"), "preemption_mode": ("recompute", "swap"), "too_long": ("reject", "cut"),
}  # fmt: skip
P_PRIORITY, P_CACHING, P_CHUNKED, P_SWAPS, P_CUTS, P_HOST, P_WATERMARK = range(7)  # what `state` reads


def numbers(values: Mapping[str, Any]) -> list[float]:
    """The options as numbers; PolicyError for a word that is not known, and for what does not go together."""
    for name, words in WORDS.items():
        if str(values[name]) not in words:
            raise PolicyError(f"parameter '{name}' of policy 'vllm_v0' is '{values[name]}'", hint="one of " + ", ".join(words))
    swaps, by_priority = values["preemption_mode"] == "swap", values["policy"] == "priority"
    if swaps and by_priority:
        raise PolicyError("vLLM 0.9 stops when a request is swapped out for one of higher priority", hint="let it recompute")
    if swaps and values["num_cpu_blocks"] < 1:
        raise PolicyError("preemption_mode=swap needs blocks in the host's memory", hint="set num_cpu_blocks")
    return [
        float(by_priority), float(values["enable_prefix_caching"]), float(values["enable_chunked_prefill"]), float(swaps),
        float(values["too_long"] == "cut"), float(values["num_cpu_blocks"]), float(values["watermark"]),
    ]  # fmt: skip
