"""Whether each family of cases reaches its branch of vLLM's real scheduler: in how many cases a line of it is executed.

    python -m vllm_branches RELEASE CASES SEED [FAMILY ...]
    python -m vllm_branches ahead CASES SEED [FAMILY ...]       of 0.33.0, scheduled ahead, and the branches of that
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from typing import Any

import real_classes
from vllm_cases import Case, cases
from vllm_compare import AHEAD, environment, version_of

from gpusim.base.errors import GpusimError

SCHEDULER, POOL, MANAGER, SINGLE, UTILS = (
    "sched/scheduler.py", "block_pool.py", "kv_cache_manager.py", "single_type_kv_cache_manager.py", "sched/utils.py",
)  # fmt: skip
Lines = dict[str, tuple[str, int]]


def _always(case: Case) -> bool:
    return True


def _odd_block(case: Case) -> bool:
    return case["block_size"] > 16 or bool(case["block_size"] & (case["block_size"] - 1))


def _long_prompt(case: Case) -> bool:
    return any(len(r["prompt"]) > case["max_tokens"] for r in case["requests"])


def _cut(case: Case) -> bool:
    return any(len(r["prompt"]) + r["out"] > case["max_len"] for r in case["requests"])


# What each family is there for: in words, the line of vLLM 0.11.0 and 0.33.0 that stands for it, and what holds of the case.
BRANCHES: dict[str, tuple[str, Lines, Callable[[Case], bool]]] = {
    "fcfs": ("the last of the running is preempted", {"0.11": (SCHEDULER, 271), "0.33": (SCHEDULER, 970)}, _always),
    "priority": (
        "a victim was in the step already", {"0.11": (SCHEDULER, 269), "0.33": (SCHEDULER, 952)}, _always,
    ),
    "caching_off": ("blocks are taken without a prefix cache", {"0.11": (POOL, 282), "0.33": (POOL, 736)}, _always),
    "block_sizes": ("a block of unusual size is named", {"0.11": (POOL, 229), "0.33": (POOL, 299)}, _odd_block),
    "few_blocks": ("a request preempts itself", {"0.11": (SCHEDULER, 285), "0.33": (SCHEDULER, 980)}, _always),
    "many_blocks": ("a block that was found leaves the free list", {"0.11": (POOL, 335), "0.33": (POOL, 807)}, _always),
    "long_prefill_threshold": (
        "a prompt is held to the threshold", {"0.11": (SCHEDULER, 218), "0.33": (SCHEDULER, 845)}, _always,
    ),
    "whole_prompts": (
        "a whole prompt is too long for the step", {"0.11": (SCHEDULER, 434), "0.33": (SCHEDULER, 1344)}, _always,
    ),
    "admission_gate": (
        "a request is not admitted (0.33: since it would not fit as a whole)",
        {"0.11": (SCHEDULER, 483), "0.33": (MANAGER, 548)}, _always,
    ),
    "watermark": ("the watermark counts", {"0.33": (MANAGER, 525)}, _always),
    "long_prompts": (
        "a prompt is computed in several steps", {"0.11": (SCHEDULER, 296), "0.33": (SCHEDULER, 997)}, _long_prompt,
    ),
    "bursts": ("all places are taken", {"0.11": (SCHEDULER, 338), "0.33": (SCHEDULER, 1074)}, _always),
    "identical_prefixes": ("two blocks hold the same", {"0.11": (POOL, 73), "0.33": (POOL, 95)}, _always),
    "nested_prefixes": ("a look-up finds blocks", {"0.11": (SINGLE, 279), "0.33": (SINGLE, 799)}, _always),
    "aborts": ("a running request is aborted", {"0.11": (SCHEDULER, 1138), "0.33": (SCHEDULER, 3008)}, _always),
    "too_long": ("the longest sequence ends a request", {"0.11": (UTILS, 48), "0.33": (UTILS, 118)}, _cut),
    "lora": (
        "a request waits since no slot is free for its adapter", {"0.11": (SCHEDULER, 372), "0.33": (SCHEDULER, 1101)}, _always,
    ),
    "loads": ("a load ends", {"0.11": (SCHEDULER, 1261), "0.33": (SCHEDULER, 3501)}, _always),
}  # fmt: skip


# Of asynchronous scheduling, in whatever family: lines of 0.33.0's scheduler.
AHEAD_BRANCHES = {
    "the last token is under way": 813,
    "output under way ends a preempted request": 2494,
    "output comes for a request that has gone": 2335,
    "blocks are named when their tokens come": 2412,
    "a victim's blocks may still be written": 942,
    "blocks of an ended request are free a step later": 3117,
}


def lines(release: str, drawn: Iterable[Case]) -> dict[str, Any]:
    """Per file its executable `lines`, and `reached`: in how many cases of each family each line has been executed."""
    text = "".join(json.dumps(case) + "\n" for case in drawn)
    command = ["nice", sys.executable, "-m", "real_vllm_lines", str(real_classes.folder(release))]
    ran = subprocess.run(command, input=text, stdout=subprocess.PIPE, text=True, check=False, env=environment())
    if ran.returncode:
        raise GpusimError("the real scheduler stopped")
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def table(release: str, drawn: Iterable[Case], ahead: bool = False) -> str:
    """A row for each family: its branch, and in how many of its cases that is reached; then the lines of each file."""
    version, kept = version_of(release), list(drawn)
    found = lines(release, [case for case in kept if BRANCHES[case["family"]][2](case)])
    rows = [f"{'family':24s} {'cases':>6s} {'reached':>8s}  branch (vLLM {version})"]
    for family, (what, places, _) in BRANCHES.items():
        count = sum(case["family"] == family for case in kept)
        if count == 0:
            continue
        file, line = places.get(version, ("", 0))
        reached = found[file]["reached"].get(str(line), {}).get(family, 0) if file else "-"
        rows.append(f"{family:24s} {count:6d} {reached:>8}  {what}")
    for what, line in AHEAD_BRANCHES.items() if ahead else ():
        cases_of = found[SCHEDULER]["reached"].get(str(line), {})
        rows.append(f"{sum(cases_of.values()):6d} cases of {len(cases_of):2d} families: {what}")
    for file, seen in found.items():
        executed = len(set(seen["lines"]) & {int(line) for line in seen["reached"]})
        rows.append(f"{file:34s} {executed:4d} of {len(seen['lines']):4d} lines of functions")
    return "\n".join(rows)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    said, number, seed, *chosen = sys.argv[1:]
    families = tuple(chosen) or tuple(BRANCHES)
    drawn_cases = cases(int(number), int(seed), families, ahead=said == "ahead")
    print(table(AHEAD if said == "ahead" else said, drawn_cases, said == "ahead"))
