"""Several passes before a step, on several GPUs: what is reduced when, in which pieces and types."""

from __future__ import annotations

import numpy as np
import pytest
from model_states import ALL, LAYERS, model_states

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs import transforms
from gpusim.programs.ranks.layout import RankLayout
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COLLECTIVE, Trace

pytestmark = pytest.mark.formulas

THREE = "accumulate(steps=3)"
EACH = 2 * 1000


def two_layers() -> Trace:
    """Two weights of a thousand numbers of 16 bits, and their gradients."""
    b = TraceBuilder("two layers")
    weights = [b.alloc(EACH, "param") for _ in range(2)]
    x = b.alloc(100, "input")
    b.begin_phase("step0.fwd")
    for layer, weight in enumerate(weights):
        b.op("mm", (weight, x), (x,), module=f"l.{layer}", dtype="float16")
    b.begin_phase("step0.bwd")
    gradients = []
    for layer in (1, 0):
        gradients.append(b.alloc(EACH, "grad"))
        b.op("mm", (x, weights[layer]), (gradients[-1],), module=f"l.{layer}", dtype="float16")
    b.begin_phase("step0.opt")
    b.op("sgd", (*gradients, *weights), weights)
    return b.finish()


def named(trace: Trace, name: str) -> np.ndarray:
    """The operators of this name."""
    return np.flatnonzero(np.array([word == f"gpusim::{name}" for word in trace.op_names])[trace.op])


def sent(trace: Trace, name: str) -> int:
    """Bytes of the whole of what these exchange."""
    return sum(int(trace.exchanges[trace.exchange[o]].split()[2]) for o in named(trace, name).tolist())


@pytest.mark.parametrize(("chain", "kind", "times"), [
    ("data_parallel(ranks=4)", "all_reduce", 1), ("data_parallel(ranks=4, once=no)", "all_reduce", 3),
    ("zero(stage=1, ranks=4)", "reduce_scatter", 1), ("zero(stage=2, ranks=4)", "reduce_scatter", 3),
    ("zero(stage=3, ranks=4)", "reduce_scatter", 3),
])  # fmt: skip
def test_sums_are_reduced_once_where_the_rank_has_them_whole(chain: str, kind: str, times: int) -> None:
    made = transforms.apply(model_states(steps=2), f"{THREE} | {chain}")
    assert sent(made, kind) == 2 * times * 2 * ALL, "two steps, 2 bytes a parameter"


def test_what_is_scattered_is_added_in_shares() -> None:
    plain = transforms.apply(model_states(steps=1), THREE)
    made = transforms.apply(plain, "zero(stage=2, ranks=4)")
    adds = [trace.op_names.index("aten.add_.Tensor") for trace in (plain, made)]
    before, after = (int(trace.written_bytes[trace.op == add].sum()) for trace, add in zip((plain, made), adds, strict=True))
    assert before == 2 * 2 * ALL and after == before // 4


def test_stage_3_scatters_block_by_block_as_fsdp_does() -> None:
    """A flat tensor of each block (2 bytes a parameter), converted to the type in which it is sent and divided there (4)."""
    made = transforms.apply(two_layers(), "zero(stage=3, ranks=4, reduced=fp32)")
    flat, convert, scatter = (named(made, name) for name in ("flatten", "convert", "reduce_scatter"))
    assert len(flat) == len(convert) == len(scatter) == 2
    assert (flat < convert).all() and (convert < scatter).all(), "in this order for each block"
    assert set(made.read_bytes[flat]) == set(made.written_bytes[flat]) == {EACH}
    assert set(made.read_bytes[convert]) == {EACH + 2 * EACH} and set(made.written_bytes[convert]) == {2 * EACH + 2 * EACH}
    assert sent(made, "reduce_scatter") == 2 * 2 * EACH


def test_buckets_of_bytes_are_neither_flattened_nor_converted() -> None:
    made = transforms.apply(model_states(steps=1), "zero(stage=3, ranks=4, bucket=1 B)")
    assert not len(named(made, "flatten")) and int((made.activity == COLLECTIVE).sum()) > LAYERS


def test_a_type_that_is_none_is_refused() -> None:
    with pytest.raises(GpusimError, match="cannot be exchanged in 'fp23'"):
        transforms.apply(model_states(), "zero(reduced=fp23)")
    with pytest.raises(TraceError, match="the type of its gradients cannot be told"):
        transforms.apply(model_states(), "zero(reduced=fp32)")


@pytest.mark.parametrize("layout", [RankLayout(tensor=2, microbatches=2), RankLayout(data=2, tensor=2, zero=2, microbatches=2)])
def test_layouts_accumulate_before_they_divide(layout: RankLayout) -> None:
    transforms.check(layout.transform(0))
