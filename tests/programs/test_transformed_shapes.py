"""After any transform an operator's shape is that of its own arithmetic and bytes, or it has none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpusim.programs import zoo  # noqa: E402
from gpusim.programs.record.recording import Recording  # noqa: E402
from gpusim.programs.transforms import registry  # noqa: E402
from gpusim.trace.shapes import TYPES, without  # noqa: E402
from gpusim.trace.trace import Trace  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::gpusim.programs.record.where.RecordWarning")

PARAMETERS = {
    "accumulate": "steps=2", "batch": "factor=2", "sequence": "factor=2", "precision": "to=fp32", "pipeline": "stages=2",
    "tensor_parallel": "ranks=2", "data_parallel": "ranks=2", "zero": "ranks=2", "lora": "rank=4", "checkpointing": "every=1",
}  # fmt: skip


@cache
def recorded() -> Trace:
    program = zoo.build("gpt2-small(batch=2, seq=64)")
    with Recording(steps=2) as recording:
        program.run()
    assert recording.trace is not None
    return recording.trace


def facts(trace: Trace, text: Callable[[str], str], *columns: str) -> set[tuple[Any, ...]]:
    """What the operators with a shape are: the shape, and what was counted of them."""
    return {
        (text(trace.shapes[trace.shape[o]]), *(getattr(trace, column)[o].item() for column in columns))
        for o in range(trace.ops)
        if trace.shape[o] >= 0
    }


def test_the_transforms_are_all_here() -> None:
    assert {entry.name for entry in registry.entries()} >= PARAMETERS.keys()


@pytest.mark.parametrize("name", [entry.name for entry in registry.entries()])
def test_a_shape_stays_with_what_was_recorded_with_it(name: str) -> None:
    before = recorded()
    after = registry.apply(before, f"{name}({PARAMETERS.get(name, '')})")
    columns, text = ["flops", "read_bytes", "written_bytes"], str
    if name == "precision":  # types change, dimensions do not
        columns, text = ["flops"], lambda shape: without(shape, TYPES)
    assert facts(after, text, *columns) <= facts(before, text, *columns)
    assert after.ops and (after.shape >= 0).any()


def test_another_batch_changes_the_shape_of_all_that_works_on_samples() -> None:
    """The optimizer works on parameters, which stay; the products of the layers grow."""
    before = recorded()
    after = registry.apply(before, "batch(factor=2)")
    names = [before.op_names[op] for op in before.op]
    assert after.ops == before.ops
    for o, name in enumerate(names):
        if name.startswith("aten._foreach"):
            assert after.shapes[after.shape[o]] == before.shapes[before.shape[o]]
        elif name.startswith(("aten.addmm", "aten.native_layer_norm", "aten._scaled_dot_product")):
            assert after.flops[o] >= before.flops[o] and after.shape[o] == -1


def test_a_cast_of_another_type_says_no_types() -> None:
    before = recorded()
    said = {text for text in before.shapes if "bfloat16" in text}
    after = registry.apply(before, "precision(to=fp32)")
    left = {after.shapes[s] for s in after.shape if s >= 0}
    assert said and not said & left
