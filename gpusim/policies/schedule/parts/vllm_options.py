"""What vLLM's scheduler can be told, under the names of its own options, and what differs from version to version.

Source: SchedulerConfig and CacheConfig of vLLM 0.11.0 and 0.33.0 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.base.errors import PolicyError

VERSIONS: dict[str, dict[str, int]] = {
    "0.11": {"alone_whole": 0, "takes_back": 0, "goes_on": 0, "nameless_first": 0, "passes_over": 1, "counts_admitted": 0,
             "holders_first": 0, "keeps_order": 0},
    "0.33": {"alone_whole": 1, "takes_back": 1, "goes_on": 1, "nameless_first": 1, "passes_over": 0, "counts_admitted": 1,
             "holders_first": 1, "keeps_order": 1},
}  # fmt: skip
"""The rules of each version that has been compared with the real classes (see `vllm_tables`)."""
NEWER = {"scheduler_reserve_full_isl": "auto", "watermark": 0.0}  # options that 0.11 does not have, as they are when unset

# What `state` reads of the parameters, by position.
(
    P_PRIORITY, P_CACHING, P_LONG_PREFILL, P_CHUNKED, P_RESERVE, P_WATERMARK, P_CUTS, P_LORAS, P_ASYNC, P_FORESEES, P_RULES,
) = range(11)  # fmt: skip


def numbers(values: Mapping[str, Any]) -> list[float]:
    """The options of a version, then its rules; PolicyError for a version or a word that is not known."""
    version = str(values["version"])
    if version not in VERSIONS:
        known = ", ".join(f"vllm@{v}" for v in ("0.9", *VERSIONS))
        raise PolicyError(f"vLLM {version} is not modelled", hint=f"modelled are {known}")
    if version == "0.11" and (given := next((o for o, unset in NEWER.items() if values[o] != unset), "")):
        raise PolicyError(f"vLLM 0.11 has no option '{given}'", hint="vllm@0.33 has it")
    ahead = _one_of(values, "async_scheduling", ("0", "1", "auto"))
    if version == "0.11" and ahead == "1":
        raise PolicyError("asynchronous scheduling of vLLM 0.11 is not modelled", hint="that of vllm@0.33 is, its default")
    reserve = _one_of(values, "scheduler_reserve_full_isl", ("0", "1", "auto"))
    return [
        float(_one_of(values, "policy", ("fcfs", "priority")) == "priority"),
        float(_flag(values, "enable_prefix_caching")),
        float(values["long_prefill_token_threshold"]),
        float(_flag(values, "enable_chunked_prefill")),
        float(version != "0.11") if reserve == "auto" else float(reserve),
        float(values["watermark"]),
        float(_one_of(values, "too_long", ("reject", "cut")) == "cut"),
        float(values["max_loras"]),
        float(version != "0.11") if ahead == "auto" else float(ahead),
        float(_flag(values, "ignore_eos")),
        *(float(rule) for rule in VERSIONS[version].values()),
    ]


def _one_of(values: Mapping[str, Any], name: str, words: tuple[str, ...]) -> str:
    word = str(values[name])
    if word not in words:
        raise PolicyError(f"parameter '{name}' of policy 'vllm' is '{word}'", hint="one of " + ", ".join(words))
    return word


def _flag(values: Mapping[str, Any], name: str) -> int:
    if values[name] not in (0, 1):
        raise PolicyError(f"parameter '{name}' of policy 'vllm' is {values[name]}", hint="0 or 1")
    return int(values[name])
