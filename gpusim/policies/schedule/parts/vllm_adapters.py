"""LoRA adapters of running requests: no more of them than the engine has slots for.

Source: vLLM's v1/core/sched/scheduler.py of 0.11.0 and 0.33.0 (Apache-2.0), `scheduled_loras`, in own words.
"""

from __future__ import annotations

from gpusim.base.compiled import kernel, outlined
from gpusim.policies.schedule.parts.tables import N_RUNNING, RequestTable, StepTable
from gpusim.policies.schedule.parts.vllm_tables import LORA_STEP, LORAS, MAX_LORAS, VllmTables


@kernel
def run_adapter(own: VllmTables, requests: RequestTable, r: int) -> None:
    """Request r runs: its adapter is one of those at work."""
    which = requests.adapter[r]
    if which > 0 and own.adapter[which] != own.word[LORA_STEP]:
        own.adapter[which] = own.word[LORA_STEP]
        own.word[LORAS] += 1


@outlined
def count_adapters(own: VllmTables, requests: RequestTable, step: StepTable) -> None:
    """Those of the running requests, once a step, before waiting ones are tried."""
    if own.option[MAX_LORAS] == 0:
        return
    own.word[LORA_STEP] += 1
    own.word[LORAS] = 0
    for i in range(step.word[N_RUNNING]):
        run_adapter(own, requests, own.running[i])


@kernel
def lacks_slot(own: VllmTables, requests: RequestTable, r: int) -> bool:
    """Request r cannot start in this step: all slots are taken, and none by its adapter."""
    which = requests.adapter[r]
    full = own.option[MAX_LORAS] > 0 and own.word[LORAS] >= own.option[MAX_LORAS]
    return bool(full and which > 0 and own.adapter[which] != own.word[LORA_STEP])
