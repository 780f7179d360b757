"""After any transform an operator's shape, as many times as it says, is that of its own arithmetic and bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from gpusim.programs import zoo  # noqa: E402
from gpusim.programs.record.recording import Recording  # noqa: E402
from gpusim.programs.transforms import registry  # noqa: E402
from gpusim.programs.zoo.catalogue import FAMILIES, Asked  # noqa: E402
from gpusim.programs.zoo.model_program import make  # noqa: E402
from gpusim.programs.zoo.models import ModelEntry  # noqa: E402
from gpusim.trace.edit import Edit  # noqa: E402
from gpusim.trace.shapes import SCALE, TYPES, parse, without  # noqa: E402
from gpusim.trace.trace import SYNC, Trace  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::gpusim.programs.record.where.RecordWarning")

PARAMETERS = {
    "accumulate": "steps=2", "batch": "factor=2", "sequence": "factor=2", "precision": "to=fp32", "pipeline": "stages=2",
    "tensor_parallel": "ranks=2", "data_parallel": "ranks=2", "zero": "ranks=2", "lora": "rank=4", "checkpointing": "every=1",
    "expert_parallel": "ranks=2",
}  # fmt: skip


MIXTURE = {"layers": 2, "width": 32, "hidden": 48, "heads": 4, "groups": 2, "vocabulary": 50, "experts": 2, "chosen": 1}


@cache
def recorded(experts: bool = False) -> Trace:
    small = Asked(ModelEntry("small", "moe", 0, "", MIXTURE), FAMILIES["moe"].options("train") | {"batch": 2, "seq": 64})
    program = make(small) if experts else zoo.build("gpt2-small(batch=2, seq=64)")
    with Recording(steps=2) as recording:
        program.run()
    assert recording.trace is not None
    edit = Edit(recording.trace)
    edit.insert(recording.trace.events, SYNC, 0)  # a wait at the end, which `without_waits` leaves out
    return edit.finish()


def facts(trace: Trace, text: Callable[[str], str], *columns: str) -> set[tuple[Any, ...]]:
    """What the operators with a shape are: the shape, and what was counted of them."""
    return {
        (text(trace.shapes[trace.shape[o]]), *(getattr(trace, column)[o].item() for column in columns))
        for o in range(trace.ops)
        if trace.shape[o] >= 0
    }


def test_the_transforms_are_all_here() -> None:
    assert {entry.name for entry in registry.entries()} >= PARAMETERS.keys()


@pytest.mark.parametrize("name", [entry.name for entry in registry.entries() if entry.name != "recorded_times"])
def test_a_shape_stays_with_what_was_recorded_with_it(name: str) -> None:
    """Of all transforms but the one that only says of which machine recorded times are."""
    before = recorded(experts=name == "expert_parallel")
    after = registry.apply(before, f"{name}({PARAMETERS.get(name, '')})")
    if name == "precision":  # types change, dimensions do not
        assert facts(after, lambda shape: without(shape, TYPES), "flops") <= facts(before, lambda s: without(s, TYPES), "flops")
    else:
        left = facts(after, str, *COUNTED) - facts(before, str, *COUNTED)
        known = facts(before, str, *COUNTED)
        assert not [each for each in left if not so_many_times(each, known)]
    assert after.ops and (after.shape >= 0).any()


COUNTED = ("flops", "read_bytes", "written_bytes")


def so_many_times(fact: tuple[Any, ...], known: set[tuple[Any, ...]]) -> bool:
    """Whether `scale` is the ratio to what was recorded with the shape, of flops or, where there are none, of bytes."""
    text, flops, read, written = fact
    plain, scale = without(text, (SCALE,)), parse(text).scale
    counted = [(f, flops) if f else (r + w, read + written) for t, f, r, w in known if t == plain]
    return any(now == pytest.approx(scale * then, rel=1e-3) for then, now in counted)


def test_another_batch_scales_all_that_works_on_samples() -> None:
    """The optimizer works on parameters, which stay; the products of the layers grow."""
    before = recorded()
    after = registry.apply(before, "batch(factor=2)")
    names = [before.op_names[op] for op in before.op]
    assert after.ops == before.ops
    for o, name in enumerate(names):
        then, now = before.shapes[before.shape[o]], after.shapes[after.shape[o]]
        if name.startswith("aten._foreach"):
            assert now == then
        elif name.startswith(("aten.addmm", "aten._scaled_dot_product")):
            assert after.flops[o] == 2 * before.flops[o] and parse(now).scale == 2 and without(now, (SCALE,)) == then


def test_a_cast_of_another_type_says_no_types() -> None:
    before = recorded()
    said = {text for text in before.shapes if "bfloat16" in text}
    after = registry.apply(before, "precision(to=fp32)")
    left = {after.shapes[s] for s in after.shape if s >= 0}
    assert said and not said & left
