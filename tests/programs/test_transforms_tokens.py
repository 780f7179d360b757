"""Sequence and expert parallelism: do ranks exchange what the papers say, and hold their share of tokens and experts?"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from test_transforms_parallel import shipped

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs import transforms
from gpusim.programs.ranks.layout import RankLayout, parse_layout
from gpusim.programs.ranks.matching import matched
from gpusim.trace.build import TraceBuilder
from gpusim.trace.exchanges import parse_exchange
from gpusim.trace.roles import ACTIVATION, PARAMETER, roles
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.formulas

LAYERS, HIDDEN = 12, 8 * 1024 * 768 * 2  # of gpt2-small-train: blocks; bytes of an activation
WIDTH, INNER, TOKENS, EXPERTS, CHOSEN = 64, 256, 100, 8, 2


def exchanged(trace: Trace) -> tuple[Counter[tuple[str, str]], Counter[str]]:
    """How many exchanges of each kind there are in forward and backward of the first step, and their bytes."""
    calls, moved = Counter[tuple[str, str]](), Counter[str]()
    for operator in np.flatnonzero(trace.exchange >= 0).tolist():
        said, phase = parse_exchange(trace.exchanges[int(trace.exchange[operator])]), trace.phases[int(trace.phase[operator])]
        if phase.startswith("step0"):
            calls[said.kind, phase.removeprefix("step0.")] += 1
            moved[said.kind] += said.size
    return calls, moved


def test_reduce_scatters_and_all_gathers_stand_for_all_reduces() -> None:
    """Korthikanti et al. 2023, figure 5: two of each in a layer's forward and two reduce-scatters in its backward; gathers
    there are of two gradients, and again of the two inputs.  The head gathers once in each, and the two embeddings a gradient
    each; that of the positions is summed over the batch of 8 before."""
    gpt2 = shipped("gpt2-small-train")
    plain, _ = exchanged(transforms.apply(gpt2, "tensor_parallel(ranks=4)"))
    calls, moved = exchanged(transforms.apply(gpt2, "tensor_parallel(ranks=4, sequence=yes)"))
    assert plain == {("all_reduce", "fwd"): 2 * LAYERS, ("all_reduce", "bwd"): 2 * LAYERS}
    assert calls == {
        ("all_gather", "fwd"): 2 * LAYERS + 1, ("reduce_scatter", "fwd"): 2 * LAYERS,
        ("all_gather", "bwd"): 4 * LAYERS + 1 + 2, ("reduce_scatter", "bwd"): 2 * LAYERS,
    }  # fmt: skip
    assert moved["reduce_scatter"] == 4 * LAYERS * HIDDEN and moved["all_gather"] == (6 * LAYERS + 3) * HIDDEN + HIDDEN // 8


def test_each_rank_keeps_its_share_of_the_activations() -> None:
    """Korthikanti et al., equation 4: all of a layer's activations are divided, where equation 2 leaves norms and residuals."""
    gpt2 = shipped("gpt2-small-train")

    def kept(chain: str) -> int:
        trace = transforms.apply(gpt2, chain)
        writer = np.full(trace.tensors, -1)
        writer[trace.write_id] = np.repeat(np.arange(trace.ops), np.diff(trace.write_start))
        of_block = np.array([".h." in name for name in trace.modules] + [False])[trace.module]
        return int(trace.size[(roles(trace) == ACTIVATION) & (writer >= 0) & of_block[writer]].sum())

    whole, tensor, both = (kept(f"tensor_parallel(ranks={chain})") for chain in ("1", "4", "4, sequence=yes"))
    assert both == pytest.approx(whole / 4, rel=0.002) and tensor > 1.5 * both


def test_work_stays_where_it_was() -> None:
    """Products do the same with and without; norms and residuals read and write a fourth."""
    gpt2 = shipped("gpt2-small-train")
    without, with_ = (transforms.apply(gpt2, f"tensor_parallel(ranks=4, sequence={said})") for said in ("no", "yes"))
    assert with_.flops.sum() == pytest.approx(without.flops.sum())

    def read(trace: Trace, name: str) -> int:
        return int(trace.read_bytes[np.array([name in op for op in trace.op_names])[trace.op]].sum())

    assert read(with_, "native_layer_norm.") == pytest.approx(read(without, "native_layer_norm.") / 4, rel=0.01)
    assert read(with_, "mm.") == read(without, "mm.")


def mixture(steps: int = 1) -> Trace:
    """A layer of experts, each of two matrices, between a router and what adds up their results: SGD without the router."""
    b, rows = TraceBuilder("mixture"), TOKENS * CHOSEN // EXPERTS
    into = [b.alloc(2 * WIDTH * INNER, "param") for _ in range(EXPERTS)]
    back = [b.alloc(2 * WIDTH * INNER, "param") for _ in range(EXPERTS)]
    layer = "net.layers.0.mlp"
    for step in range(steps):
        x = b.alloc(2 * TOKENS * WIDTH, "input")
        b.begin_phase(f"step{step}.fwd")
        mixed = b.alloc(2 * TOKENS * WIDTH, "fwd")
        b.op("zeros_like", (x,), (mixed,), module=layer)
        kept = []
        for e in range(EXPERTS):
            mine, inner, out = (b.alloc(2 * rows * size, "fwd") for size in (WIDTH, INNER, WIDTH))
            flops = 2.0 * rows * WIDTH * INNER
            b.op("index", (x,), (mine,), module=layer)
            b.op("mm", (mine, into[e]), (inner,), module=f"{layer}.experts.{e}", flops=flops)
            b.op("mm", (inner, back[e]), (out,), module=f"{layer}.experts.{e}", flops=flops)
            b.op("index_add_", (mixed, out), (mixed,), module=layer)
            b.free(out)
            kept.append((mine, inner))
        b.begin_phase(f"step{step}.bwd")
        gradients = []
        for e in reversed(range(EXPERTS)):
            mine, inner = kept.pop()
            d_out, d_inner, d_mine = (b.alloc(2 * rows * size, "bwd") for size in (WIDTH, INNER, WIDTH))
            b.op("index_select", (mixed,), (d_out,), module=layer)
            for read, weight, made in ((inner, back[e], d_inner), (mine, into[e], d_mine)):
                flow = d_out if made == d_inner else d_inner
                gradients.append(b.alloc(2 * WIDTH * INNER, "bwd"))
                b.op("mm", (flow, read), (gradients[-1],), module=f"{layer}.experts.{e}", flops=flops)
                b.op("mm", (flow, weight), (made,), module=f"{layer}.experts.{e}", flops=flops)
            b.op("index_put", (d_mine,), (), module=layer)
            for tensor in (mine, inner, d_out, d_inner, d_mine):
                b.free(tensor)
        b.free(mixed)
        b.begin_phase(f"step{step}.opt")
        weights = [w for e in reversed(range(EXPERTS)) for w in (back[e], into[e])]
        b.op("_foreach_add_", (*weights, *gradients), weights)
        for gradient in gradients:
            b.free(gradient)
    return b.finish()


def test_tokens_travel_to_their_experts_and_back() -> None:
    """Lepikhin et al., GShard, section 2.2: two all-to-alls forward and two backward, each of all tokens times experts chosen.
    A rank has its share of experts' parameters, and experts work as much in all as before."""
    plain = mixture()
    for ranks in (2, 4, 8):
        made = transforms.apply(plain, f"expert_parallel(ranks={ranks})")
        calls, moved = exchanged(made)
        assert calls == {("all_to_all", "fwd"): 2, ("all_to_all", "bwd"): 2}
        assert moved["all_to_all"] == 4 * 2 * TOKENS * CHOSEN * WIDTH
        assert made.flops.sum() == plain.flops.sum()
        parameters = roles(made) == PARAMETER
        assert int(made.size[parameters].sum()) == 2 * EXPERTS // ranks * 2 * WIDTH * INNER
        at = np.array(["experts" in name for name in made.modules] + [False])[made.module]
        products = at & (np.array(made.op_names)[made.op] == "mm")
        assert int(products.sum()) == 6 * EXPERTS // ranks
        order = "".join("A" if op.endswith("all_to_all") else "e" if e else "." for op, e in zip(
            np.array(made.op_names)[made.op], products, strict=True
        ))  # fmt: skip
        forward, backward = "e" * (2 * EXPERTS // ranks), "e" * (4 * EXPERTS // ranks)
        assert order == f"{'.' * 9}A{forward}A{'.' * 8}{'.' * 8}A{backward}A{'.' * 8}."


def test_gradients_of_experts_are_summed_where_the_same_experts_are() -> None:
    layout = parse_layout("data=8 expert=4 microbatches=2")
    program = transforms.apply(mixture(), layout.transform(0))
    texts = [program.exchanges[number] for number in program.exchange[program.exchange >= 0]]
    groups = Counter(parse_exchange(text).group for text in texts)
    assert groups == {"expert": 8, "expert_data": 1}, "four exchanges in each of two passes; nothing but experts learns here"
    found = matched([program] * 8, layout.members)
    assert {one.ranks for one in found if one.kind == "all_reduce"} == {(d, d + 4) for d in range(4)}
    assert {one.ranks for one in found if one.kind == "all_to_all"} == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_layouts_of_tokens_and_experts() -> None:
    said = {"data": 4, "tensor": 2, "sequence": True, "pipeline": 4, "microbatches": 8, "schedule": "zero_bubble"}
    layout = parse_layout(said)
    assert layout == parse_layout(str(layout)) == RankLayout(4, 2, 4, 0, 8, "zero_bubble", 1, True, 1)
    assert layout.transform(0) == (
        "tensor_parallel(ranks=2, sequence=yes) | pipeline(stages=4, stage=1, microbatches=8, schedule=zero_bubble) | "
        "data_parallel(ranks=4)"
    )
    assert RankLayout(data=8, expert=4).members(5, "expert") == (4, 5, 6, 7)
    assert RankLayout(data=8, expert=4).members(5, "expert_data") == (1, 5)


@pytest.mark.parametrize(("said", "message"), [
    ("data=2 sequence=true", "sequence=true divides tokens over the tensor-parallel ranks, and there is one"),
    ("tensor=2 sequence=2", "sequence is '2'"), ("context=2", "context parallelism is not simulated"),
    ("data=8 expert=3", "expert=3 divides experts over data-parallel ranks, and there are 8"),
    ("data=8 expert=4 zero=1", "expert=4 beside zero=1 is not simulated"),
    ("data=2 schedule=gpipe", "schedule=gpipe orders the stages of a pipeline, and there is one"),
    ("pipeline=4 microbatches=8 chunks=2", "the schedule 1f1b has one run of layers on each stage, not 2"),
    ("pipeline=4 microbatches=6 schedule=interleaved chunks=2", "6 is no multiple of that"),
])  # fmt: skip
def test_a_layout_that_cannot_be_is_refused(said: str, message: str) -> None:
    with pytest.raises(GpusimError, match=message):
        parse_layout(said)


def test_programs_without_what_is_divided_are_refused() -> None:
    with pytest.raises(TraceError, match="it has no experts to divide over 8 ranks"):
        transforms.apply(shipped("gpt2-small-train"), "expert_parallel(ranks=8)")
    with pytest.raises(TraceError, match="8 experts do not divide evenly over 3 ranks"):
        transforms.apply(mixture(), "expert_parallel(ranks=3)")
