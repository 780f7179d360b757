"""cudaMemAdvise: what a program says of an allocation, and which of two hints the driver follows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpusim.base.errors import suggest
from gpusim.engine.pages import aside
from gpusim.engine.pages.driver_tables import ATS, CPU, NONE, DriverState
from gpusim.machine.driver_parameters import BLOCK_BYTES, UvmError
from gpusim.programs.managed.layout import Span
from gpusim.programs.managed.steps import ADVICE, Advise


def number(step: Advise) -> int:
    """Of the hint.  UvmError for one that there is not."""
    if step.advice not in ADVICE:
        raise UvmError(f"unknown advice {step.advice!r}", hint=suggest(step.advice, ADVICE))
    return ADVICE.index(step.advice)


def advise(M: DriverState, step: Advise, first: int, outer: int) -> None:
    """Follow the hint for the pages [first, outer), now."""
    aside.advise(M, first, outer, number(step), step.processor)


def told(M: DriverState, steps: Iterable[Any], spans: Mapping[str, Span]) -> list[str]:
    """What there is to tell of the hints of a program, in their order."""
    given: dict[str, dict[str, int]] = {}
    found = []
    for step in steps:
        if isinstance(step, Advise):
            ats = step.array in spans and M.blocks["kind"][spans[step.array].first // BLOCK_BYTES] == ATS
            so_far = given.setdefault(step.array, {"preferred": NONE, "accessed_by": 0, "read_mostly": 0})
            if step.advice == "read_mostly" and ats:
                found.append(f"{step.array}: read_mostly has no effect: a reader that uses the host's page tables gets no copy")
            else:
                found += contradictions(step, so_far)
            _keep(step, so_far, ats)
    return list(dict.fromkeys(found))


def _keep(step: Advise, given: dict[str, int], ats: bool) -> None:
    unset, hint = step.advice.startswith("unset_"), step.advice.removeprefix("unset_")
    if hint == "read_mostly":
        given["read_mostly"] = not unset and not ats
    elif hint == "preferred_location":
        given["preferred"] = NONE if unset else step.processor
    elif unset:
        given["accessed_by"] &= ~(1 << step.processor)
    else:
        given["accessed_by"] |= 1 << step.processor


def contradictions(step: Advise, given: Mapping[str, int]) -> list[str]:
    """Which of this hint and those given before wins, and why."""
    array, who = step.array, called(step.processor)
    preferred, accessed_by, read_mostly = given["preferred"], given["accessed_by"], bool(given["read_mostly"])
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
