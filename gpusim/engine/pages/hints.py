"""cudaMemAdvise: what a program says of an allocation, and which of two hints the driver follows."""

from __future__ import annotations

from typing import Any

from gpusim.base.errors import suggest
from gpusim.engine.pages import aside
from gpusim.engine.pages.driver_tables import ATS, CPU, NONE, WRITABLE, DriverState
from gpusim.machine.driver_parameters import UvmError
from gpusim.programs.managed.steps import ADVICE, Advise


def advise(M: DriverState, step: Advise, first: int, outer: int) -> list[str]:
    """Follow the hint for the pages [first, outer); what there is to tell of it."""
    if step.advice not in ADVICE:
        raise UvmError(f"unknown advice {step.advice!r}", hint=suggest(step.advice, ADVICE))
    per_block = int(M.state["per_block"][0])
    blocks = M.blocks[first // per_block : (outer - 1) // per_block + 1]
    told = contradictions(step, blocks[0])
    if step.advice == "read_mostly" and blocks["kind"][0] == ATS:
        told = [f"{step.array}: read_mostly has no effect: a reader that uses the host's page tables gets no copy"]
    if step.advice == "read_mostly":
        blocks["read_mostly"] = blocks["kind"] != ATS
        for p in range(int(M.state["processors"][0])):
            aside.unmap_remote(M, first, outer, p)
            store_no_more(M, first // per_block, (outer - 1) // per_block + 1, p)
    elif step.advice == "unset_read_mostly":
        blocks["read_mostly"] = 0
        aside.collapse(M, first, outer)
        for p in range(int(M.state["processors"][0])):
            if blocks["accessed_by"][0] >> p & 1:
                aside.map_accessed_by(M, first, outer, p)
    elif step.advice == "preferred_location":
        blocks["preferred"] = step.processor
        aside.unmap_remote(M, first, outer, step.processor)
    elif step.advice == "unset_preferred_location":
        blocks["preferred"] = NONE
    elif step.advice == "accessed_by":
        blocks["accessed_by"] |= 1 << step.processor
        aside.map_accessed_by(M, first, outer, step.processor)
    else:
        blocks["accessed_by"] &= ~(1 << step.processor)
        aside.unmap_remote(M, first, outer, step.processor)
    return told


def store_no_more(M: DriverState, first: int, outer: int, p: int) -> None:
    """Processor p may only read the pages of these blocks (uvm_policy.c, va_block_set_read_duplication_locked)."""
    if M.blocks["kind"][first] != ATS:
        at = (3 * p + WRITABLE) * len(M.blocks)  # as `row` has it
        M.bits[at + first : at + outer] = 0


def contradictions(step: Advise, block: Any) -> list[str]:
    """Which of this hint and those given before wins, and why."""
    array, who = step.array, called(step.processor)
    preferred, accessed_by, read_mostly = int(block["preferred"]), int(block["accessed_by"]), bool(block["read_mostly"])
    if step.advice == "read_mostly":
        others = ["preferred_location"] * (preferred != NONE) + ["accessed_by"] * (accessed_by != 0)
    else:
        others = [step.advice] if read_mostly and step.advice in ("preferred_location", "accessed_by") else []
    told = [f"{array}: read_mostly wins over {other}: each reader of a page gets a copy of its own" for other in others]
    if step.advice == "preferred_location" and preferred not in (NONE, step.processor):
        told.append(f"{array}: preferred_location {who} replaces {called(preferred)}: an allocation has one, the last")
    both = step.advice == "preferred_location" and accessed_by & (1 << step.processor)
    if both or (step.advice == "accessed_by" and preferred == step.processor):
        told.append(f"{array}: preferred_location {who} wins over accessed_by {who}: pages move there, and remote access ends")
    return told


def called(processor: int) -> str:
    return "CPU" if processor == CPU else f"GPU {processor}"
