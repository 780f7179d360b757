"""What SGLang's scheduler can be told, under the names of its own options.

Source: ServerArgs and environ.py of sglang 0.5.23 (Apache-2.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpusim.base.errors import PolicyError, suggest
from gpusim.policies.schedule.parts.radix_tables import POLICIES

VERSIONS = ("0.5",)
ORDERS = ("fcfs", "lpm", "lof")
NOT_MODELLED = ("random", "dfs-weight", "priority", "routing-key", "hrrn", "shortest-prefill-first")

# What `state` reads of the parameters, by position.
(
    P_ORDER, P_EVICTION, P_CONSERVATIVE, P_MAX_PREFILL, P_CACHING, P_MAX_NEW, P_IGNORE_EOS, P_MATCH_ALL,
    P_THRESHOLD, P_ESTIMATE, P_CHUNKED, P_NO_OVERLAP,
    P_MIXED,
) = range(13)  # fmt: skip


def numbers(values: Mapping[str, Any]) -> list[float]:
    """The options as numbers; PolicyError for a version or a word that is not known, and for what is not modelled."""
    if str(values["version"]) not in VERSIONS:
        known = ", ".join(f"sglang@{v}" for v in VERSIONS)
        raise PolicyError(f"SGLang {values['version']} is not modelled", hint=f"modelled are {known}")
    order = str(values["schedule_policy"])
    if order in NOT_MODELLED:
        raise PolicyError(f"schedule_policy={order} of SGLang is not modelled", hint="modelled are " + ", ".join(ORDERS))
    for name, words in (("schedule_policy", ORDERS), ("radix_eviction_policy", POLICIES)):
        if str(values[name]) not in words:
            hint = suggest(str(values[name]), words) or "one of " + ", ".join(words)
            raise PolicyError(f"parameter '{name}' of policy 'sglang' is '{values[name]}'", hint=hint)
    for name in ("chunked_prefill", "enable_radix_cache", "ignore_eos", "match_all_waiting", "disable_overlap_schedule",
                 "enable_mixed_chunk"):  # fmt: skip
        if values[name] not in (0, 1):
            raise PolicyError(f"parameter '{name}' of policy 'sglang' is {values[name]}", hint="0 or 1")
    if values["ignore_eos"] and not values["enable_radix_cache"]:
        said = "SGLang admits requests of a fixed length by another rule when its radix cache is off, which is not modelled"
        raise PolicyError(said, hint="leave the radix cache on, or ignore_eos off")
    if not values["schedule_conservativeness"] > 0:
        raise PolicyError("parameter 'schedule_conservativeness' of policy 'sglang' is not above 0", hint="default: 1")
    return [
        float(ORDERS.index(order)), float(POLICIES.index(str(values["radix_eviction_policy"]))),
        float(values["schedule_conservativeness"]), float(values["max_prefill_tokens"]), float(values["enable_radix_cache"]),
        float(values["max_new_tokens"]), float(values["ignore_eos"]), float(values["match_all_waiting"]),
        float(values["tlru_threshold"]), float(values["tlru_next_prompt_estimate"]), float(values["chunked_prefill"]),
        float(values["disable_overlap_schedule"]), float(values["enable_mixed_chunk"] and values["chunked_prefill"]),
    ]  # fmt: skip
