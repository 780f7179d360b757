"""Whole steps of which a slice of the tables is held out, against the same steps of all tables.

A step is put together from measured operators both times; what it takes on a GPU as a whole was not measured.  Its host part is
left out of both, and steps that need nothing of the slice are not counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.calibrate.serving.slices import F64, RANGES, HeldOut, Mask, Slice, hiding, in_range, without
from gpusim.machine import catalogue
from gpusim.machine.serving import step
from gpusim.machine.serving.build import Exchanges, ServedStepTimes, assembled
from gpusim.machine.serving.engines import costs
from gpusim.machine.serving.operators import OperatorModel
from gpusim.machine.serving.tables import MeasuredOperators, ServingTables, order
from gpusim.programs.zoo.served import served

MODELS = (("llama-8b", "bf16", 1), ("qwen3-32b", "bf16", 2), ("llama-70b", "fp8", 4), ("llama-70b", "bf16", 8))
"""Model, type of its weights, GPUs."""
STEP = "step"
_SAME = 1e-9  # of the logarithm: the slice hid nothing that the step needs
DECODES = [(b, kv) for b in (1, 4, 16, 32, 64, 128, 256) for kv in (256, 1024, 4096)]
PROMPTS = [(n, q) for n in (1, 2, 4) for q in (256, 1024, 2048)]


def compositions() -> list[tuple[list[int], list[int]]]:
    """Steps as (tokens before, tokens in it) of each request: decode, prompts, a prompt's second chunk, and mixed ones."""
    found = [([kv] * b, [1] * b) for b, kv in DECODES]
    found += [([0] * n, [q] * n) for n, q in PROMPTS]
    found += [([4096], [1024]), ([8192], [2048])]
    found += [([kv] * b + [0], [1] * b + [1024]) for b, kv in DECODES if b >= 16]
    return found


def steps_within(tables: ServingTables) -> Iterator[HeldOut]:
    """Each model's head count, and each range of batches, hidden in turn."""
    for name, weights, ways in MODELS:
        if tables.gemm(weights) is None:
            continue
        heads, kv_heads = served(name).heads_on(ways)
        whole = _totals(_times(_own(tables), name, weights, ways))

        def of_heads(rows: MeasuredOperators, heads: int = heads) -> Mask:
            return np.asarray(rows.dims["heads"] == heads, np.bool_)

        seen = tables.decode("bf16")
        if seen is not None and ((seen.dims["heads"] == heads) & (seen.dims["kv_heads"] == kv_heads)).any():
            hidden: dict[str, Slice] = {"decode": of_heads, "prefill": of_heads}
            yield _held("heads", tables, name, weights, ways, hiding(tables, hidden), whole)
        for i in range(max(len(ranges) for _, ranges in RANGES.values())):
            masks = {kind: in_range(dim, *ranges[min(i, len(ranges) - 1)]) for kind, (dim, ranges) in RANGES.items()}
            yield _held("batch", tables, name, weights, ways, hiding(tables, masks), whole)


def steps_of_the_version_before(tables: ServingTables) -> Iterator[HeldOut]:
    """Each model's steps from the second newest version of products and attention, where there are two."""
    places = (("gemm", "gemm"), ("attention", "generation_attention"), ("attention", "context_attention"))
    versions = sorted({version for place in places for version in tables.versions(*place)}, key=order)
    if len(versions) < 2:
        return
    before = _own(replace(tables, version=versions[-2]))
    for name, weights, ways in MODELS:
        if tables.gemm(weights) is not None:
            yield _held("version", tables, name, weights, ways, before, _totals(_times(_own(tables), name, weights, ways)))


def steps_elsewhere(tables: ServingTables) -> Iterator[HeldOut]:
    """Each model's steps from what is known without the machine's tables."""
    found = without(tables)
    rule = "GPU, from its kin" if found.tables is not None else "GPU, from the form"
    for name, weights, ways in MODELS:
        if tables.gemm(weights) is not None:
            whole = _totals(_times(_own(tables), name, weights, ways))
            yield _held(rule, tables, name, weights, ways, found, whole)


def _own(tables: ServingTables) -> OperatorModel:
    machine = catalogue.load(tables.machine)
    return OperatorModel(machine, tables, machine)


def _held(
    rule: str, tables: ServingTables, name: str, weights: str, ways: int, without_slice: OperatorModel,
    whole: F64,
) -> HeldOut:  # fmt: skip
    log = np.log(_totals(_times(without_slice, name, weights, ways)) / whole)
    touched = log[np.abs(log) > _SAME]
    return HeldOut(rule, tables.machine, tables.framework, STEP, weights, touched)


def _times(operators: OperatorModel, name: str, weights: str, ways: int) -> ServedStepTimes:
    """Without collectives, which no slice holds out."""
    added, _, _ = costs("vllm")
    model = served(name, weights)
    silent = _Silent(operators, ways, None, ())
    return assembled(
        operators, model, added, silent, engine="vllm", most_tokens=8192, most_requests=256, graphs=False, overlap=True
    )


class _Silent(Exchanges):
    """Exchanges that take no time."""

    def ns(self, size: F64) -> F64:
        return np.zeros_like(size)


def _totals(times: ServedStepTimes) -> F64:
    """(S,) ns of the compositions without the host."""
    found = []
    for before, tokens in compositions():
        parts = times.of(before, tokens)
        found.append(float(parts.ns - parts.parts[step.PARTS[step.HOST]]))
    if min(found) <= 0:
        raise GpusimError("a step takes no time")
    return np.array(found)
