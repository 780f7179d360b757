"""How many tokens a request of SGLang's may have and make."""

from __future__ import annotations

from gpusim.base.compiled import kernel
from gpusim.policies.schedule.parts.sglang_tables import MAX_LEN, MAX_NEW, PAGE, PAGES_THERE, SglangTables
from gpusim.policies.schedule.parts.tables import RequestTable, StepTable


@kernel
def most_tokens(own: SglangTables) -> int:
    """Of the longest sequence, prompt and output."""
    return min(own.option[MAX_LEN], own.option[PAGES_THERE] * own.option[PAGE]) - 1


@kernel
def allowed(own: SglangTables, requests: RequestTable, r: int) -> int:
    """Tokens that the request is allowed to make."""
    asked = own.option[MAX_NEW] if own.option[MAX_NEW] else requests.output[r]
    return min(max(asked, requests.output[r]), most_tokens(own) - requests.prompt[r] - 1)


@kernel
def makes_its_last(own: SglangTables, requests: RequestTable, step: StepTable, r: int) -> bool:
    """The request makes a token; whether that is its last one."""
    step.made[r] += 1
    return bool(step.made[r] >= min(requests.output[r], allowed(own, requests, r)))
