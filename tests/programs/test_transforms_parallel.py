"""Sharding and offloading: do memory and traffic follow the published formulas, and is a small program right by hand?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from model_states import ALL, LAYERS, P, model_states
from test_transforms import story

from gpusim.base.errors import GpusimError, TraceError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.programs import transforms
from gpusim.programs.transforms.parameters import SMALL, parameters
from gpusim.referee import check
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.roles import STEP, lives, phase_kinds
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import COLLECTIVE, COPY_IN, COPY_OUT, HOST_WORK, NVME_READ, NVME_WRITE, OP, Trace
from gpusim.trace.training import updates

pytestmark = pytest.mark.formulas

ROOT = Path(__file__).parents[2]


def shipped(name: str) -> Trace:
    return load_trace(ROOT / "traces" / f"{name}.npz")


def at_step(trace: Trace) -> int:
    """Live bytes when the optimizer step runs, or would have."""
    return int(live_bytes(trace, trace.size)[np.flatnonzero(trace.kind == OP)[-1]])


def moved(trace: Trace, activity: int) -> int:
    return int(trace.read_bytes[trace.activity == activity].sum())


@pytest.mark.parametrize(("ranks", "stage", "bytes_each"), [
    (64, 1, 4 + 12 / 64), (64, 2, 2 + 14 / 64), (64, 3, 16 / 64), (4, 1, 4 + 12 / 4), (4, 2, 2 + 14 / 4), (4, 3, 16 / 4),
])  # fmt: skip
def test_zero_needs_what_its_paper_says(ranks: int, stage: int, bytes_each: float) -> None:
    """Figure 1: 16 P of model states become 4 P + 12 P / n, 2 P + 14 P / n, 16 P / n."""
    trace = model_states()
    assert at_step(trace) == 16 * ALL
    assert at_step(transforms.apply(trace, f"zero(stage={stage},ranks={ranks})")) == bytes_each * ALL


@pytest.mark.parametrize(("chain", "volume"), [
    ("data_parallel(ranks=64)", 2), ("zero(stage=1,ranks=64)", 2), ("zero(stage=2,ranks=64)", 2),
    ("zero(stage=3,ranks=64)", 3 - 1 / LAYERS),
])  # fmt: skip
def test_ranks_send_what_the_paper_says(chain: str, volume: float) -> None:
    """Section 7: data parallelism moves twice the gradients, stages 1 and 2 as much, stage 3 half as much again.

    The last layer, with which backward begins where forward ended, is gathered once for both.
    """
    made = transforms.apply(model_states(steps=3), chain)
    assert moved(made, COLLECTIVE) == 3 * volume * 2 * ALL * 63 / 64


@pytest.mark.parametrize(("bucket", "collectives"), [("1 B", 4), ("256 kB", 2), ("257 kB", 2), ("25 MiB", 1)])
def test_gradients_go_when_a_bucket_is_full(bucket: str, collectives: int) -> None:
    """128 kB each: one by one, by two, by three and the last, all four."""
    made = transforms.apply(model_states(steps=1), f"data_parallel(ranks=2,bucket={bucket})")
    assert int((made.activity == COLLECTIVE).sum()) == collectives
    assert moved(made, COLLECTIVE) == 2 * ALL


def test_stage_3_gathers_a_block_while_the_one_before_computes() -> None:
    """Two layers, by hand: weights 0 and 1, input 2.  Both are gathered before the first computes; each goes after its use."""
    b = TraceBuilder("two layers")
    weights = [b.alloc(2000, "param"), b.alloc(2000, "param")]
    x = b.alloc(100, "input")
    b.begin_phase("step0.fwd")
    for layer in range(2):
        out = b.alloc(100, "fwd")
        b.op("mm", (weights[layer], x), (out,), module=f"l.{layer}")
        x = out
    b.begin_phase("step0.bwd")
    gradient = b.alloc(2000, "bwd")
    b.op("mm", (x, weights[1]), (gradient,), module="l.1")
    b.begin_phase("step0.opt")
    b.op("sgd", (gradient, weights[1]), (weights[1],))
    trace = b.finish()
    told = story(transforms.apply(trace, "zero(stage=3,ranks=2,bucket=1 B)"))
    assert told == [
        "+0", "+1", "+2", "step0.fwd",
        "+3", "gpusim::all_gather(0 > 3)", "+4", "gpusim::all_gather(1 > 4)",
        "+5", "mm(3,2 > 5)", "-3", "+6", "mm(4,5 > 6)",
        "step0.bwd", "+7", "mm(6,4 > 7)", "+8", "gpusim::reduce_scatter(7 > 8)", "-7", "-4",
        "step0.opt", "sgd(8,1 > 1)",
    ]  # fmt: skip


def test_offloaded_state_lives_on_the_host_and_the_cpu_makes_the_step() -> None:
    """On the GPU 2 P of parameters are left; gradients go out, parameters come back, in each step.

    The CPU reads state, gradient and parameter, 16 P, and writes state and parameter, 14 P.
    """
    made = transforms.apply(model_states(), "offload")
    assert at_step(made) == 2 * ALL
    assert (moved(made, COPY_OUT), moved(made, COPY_IN)) == (2 * 2 * ALL, 2 * 2 * ALL)
    work = made.activity == HOST_WORK
    assert (made.read_bytes[work].tolist(), made.written_bytes[work].tolist()) == ([16 * ALL] * 2, [14 * ALL] * 2)
    assert made.meta["host_bytes"] == (12 + 2) * ALL
    assert "_fused_adam_" not in [made.op_names[i] for i in made.op]


def test_memory_of_offloaded_copies_is_staged_or_pinned_for_each() -> None:
    """Two buckets of gradients leave, the parameters come back: what the CPU does before each, and on which stream."""
    def around(memory: str) -> list[str]:
        made = transforms.apply(model_states(), f"offload(bucket=1 KiB, memory={memory})")
        at = np.flatnonzero(made.kind == OP)
        told = [(made.op_names[made.op[o]], int(made.stream[e])) for e, o in zip(at, made.arg[at], strict=True)]
        return [f"{name.removeprefix('gpusim::')}:{stream}" for name, stream in told if name.startswith("gpusim::")]

    pool, outs = around("pool"), around("pool").index("cpu_step:1")
    assert outs > 1 and pool == (["copy_out:1"] * outs + ["cpu_step:1", "copy_in:1"]) * 2, "two steps"
    staged = ["pageable_out:0", "copy_out:0"] * outs + ["cpu_step:0", "pageable_in:0", "copy_in:0"]
    assert around("pageable") == staged * 2
    again = ["host_free:0", "host_alloc:0"]
    fresh = [*again, "copy_out:1"] * outs + ["cpu_step:1", *again, "copy_in:1"]
    assert around("fresh") == (fresh * 2)[1:], "before the first copy there is nothing to give back"


def test_offloaded_parameters_come_in_block_by_block() -> None:
    """Of 2 P only the block at work and the next are there; forward and backward bring each in, the last once for both."""
    made = transforms.apply(model_states(), "offload(what=all,to=nvme)")
    assert int(live_bytes(made, made.size).max()) <= 2 * 2 * P + 2 * ALL  # gradients of one bucket
    read_in = 2 * (2 * LAYERS - 1) * 2 * P
    assert moved(made, COPY_IN) == read_in
    assert moved(made, NVME_READ) == read_in + 2 * 12 * ALL
    assert moved(made, NVME_WRITE) == 2 * (12 + 2) * ALL
    assert (made.meta["host_bytes"], made.meta["nvme_bytes"]) == (2 * ALL, 14 * ALL)


def test_offload_after_zero_moves_only_the_share_of_the_rank() -> None:
    made = transforms.apply(model_states(), "zero(stage=2,ranks=4) | offload")
    assert (moved(made, COPY_OUT), moved(made, COPY_IN)) == (2 * 2 * ALL // 4, 2 * 2 * ALL // 4)
    assert made.meta["host_bytes"] == 14 * ALL // 4


@pytest.mark.parametrize("stage", [2, 3])
def test_what_is_recorded_as_a_gradient_is_offloaded_once(stage: int) -> None:
    """Recorders name gradients so; what a pass works on before it scatters is none that leaves for the host."""
    plain = model_states()
    named = replace(plain, categories=tuple("grad" if name == "bwd" else name for name in plain.categories))
    said, unsaid = (transforms.apply(one, f"zero(stage={stage},ranks=4) | offload(what=all)") for one in (named, plain))
    assert moved(said, COPY_OUT) == moved(unsaid, COPY_OUT) == 2 * 2 * ALL // 4
    assert said.meta["host_bytes"] == unsaid.meta["host_bytes"]


def test_gradients_cast_for_masters_are_of_the_share_too() -> None:
    """Whatever a step makes, casts among it, is of one rank's share of the parameters."""
    trace = transforms.apply(shipped("gpt2-small-train-fp32"), "precision(to=bf16, master=yes)")
    made = transforms.apply(trace, "zero(stage=3, ranks=64)")
    of_step, of_share = (one.size[phase_kinds(one)[lives(one)[0]] == STEP] for one in (trace, made))
    large = of_step[of_step > SMALL]
    assert of_share[: len(of_step)][of_step > SMALL].tolist() == (-(-large // 64)).tolist() and len(large) > 300


def test_offload_after_zero_3_is_bandwidth_centric() -> None:
    """Each rank brings in its part of every block over its own link, and the ranks gather the blocks from each other; the step
    is made on the part, which is all of the parameters that the rank holds (ZeRO-Infinity, section 6.1)."""
    whole = transforms.apply(model_states(), "offload(what=all)")
    made = transforms.apply(model_states(), "zero(stage=3,ranks=4) | offload(what=all)")
    assert moved(made, COPY_IN) == moved(whole, COPY_IN) // 4
    assert moved(made, COLLECTIVE) >= moved(whole, COPY_IN) * 3 // 4
    kept = transforms.apply(model_states(), "zero(stage=3,ranks=4) | offload")
    assert moved(kept, COPY_IN) == 2 * 2 * ALL // 4  # what each step has updated
    work = kept.activity == HOST_WORK
    assert kept.read_bytes[work].tolist() == [16 * ALL // 4] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("name", "layers", "activation"), [
    ("gpt2-small-train", 12, 8 * 1024 * 768 * 2), ("llama-1b-train", 16, 2 * 2048 * 2048 * 2),
    ("bert-large-train", 24, 16 * 512 * 1024 * 2),
])  # fmt: skip
def test_tensor_parallelism_reduces_as_megatron_does(name: str, layers: int, activation: int) -> None:
    """Two all-reduces of the activations in each layer's forward and two in its backward (Shoeybi et al., figure 4)."""
    made = transforms.apply(shipped(name), "tensor_parallel(ranks=4)")
    at = np.flatnonzero(made.activity == COLLECTIVE)
    assert len(at) == 2 * 4 * layers  # two steps
    assert moved(made, COLLECTIVE) == 2 * 4 * layers * activation * 2 * 3 // 4
    words = np.array([phase.rpartition(".")[2] for phase in made.phases])[made.phase[at]]
    assert (words == "fwd").sum() == (words == "bwd").sum()


def test_tensor_parallelism_keeps_gradients_and_state_as_split_as_the_weights() -> None:
    from gpusim.trace.roles import GRADIENT, OPTIMIZER, PARAMETER, roles

    trace = shipped("llama-1b-train")
    made = transforms.apply(trace, "tensor_parallel(ranks=8)")
    share = {}
    for role in (PARAMETER, GRADIENT, OPTIMIZER):
        before, after = (t.size[(roles(t) == role) & (t.size > 512)].sum() for t in (trace, made))
        share[role] = after / before
    # Of 1,235,814,400 parameters 973,078,528 are in layers' matrices (hidden 2048, 8192 between, 16 layers, 8 KV heads of 64).
    split = 16 * (2048 * 2048 * 2 + 2 * 2048 * 512 + 3 * 2048 * 8192)
    assert share[PARAMETER] == pytest.approx(1 - split / 1_235_814_400 * 7 / 8, abs=1e-6)
    assert share[GRADIENT] == pytest.approx(share[PARAMETER], abs=1e-4)
    assert share[OPTIMIZER] == pytest.approx(share[PARAMETER], abs=1e-4)


@pytest.mark.parametrize("chain", ["none", "precision(to=bf16, mode=autocast)"])
def test_a_bias_is_split_with_the_columns_it_is_added_to(chain: str) -> None:
    """In GPT-2 those of attention's first product and of the MLP's; its gradient comes in parts already."""
    trace = transforms.apply(shipped("gpt2-small-train-fp32"), chain)
    made = transforms.apply(trace, "tensor_parallel(ranks=2)")
    before, after = (np.sort(t.size[parameters(t)]) for t in (trace, made))
    layers, width, element = 12, 768, 4
    assert (before == 3 * width * element).sum() == (before == 4 * width * element).sum() == layers
    assert (after == 3 * width * element // 2).sum() == (after == 4 * width * element // 2).sum() == layers
    for step in updates(made):  # each gradient is as large as its parameter
        assert len(step.parameters) == 148 and (made.size[step.gradients] == made.size[step.parameters]).all()


@pytest.mark.conformance
@pytest.mark.parametrize("chain", [
    "data_parallel", "zero(stage=1)", "zero(stage=2)", "zero(stage=3)", "offload", "offload(what=all)",
    "offload(what=all,to=nvme)", "zero(stage=3) | offload(what=all)", "tensor_parallel", "tensor_parallel | zero(stage=3)",
    "checkpointing | zero(stage=2) | offload",
])  # fmt: skip
def test_what_comes_out_runs_and_passes_the_referee(chain: str) -> None:
    trace = transforms.apply(shipped("gpt2-small-train"), chain)
    result = simulate(trace, catalogue.load("h100-sxm-80gb"), capacity_bytes=9_000_000_000, prefetch="next_k", log=True)
    assert result.finished
    assert check(result, trace).violations == ()


@pytest.mark.parametrize(("chain", "error", "says"), [
    ("zero(stage=4)", GpusimError, "the stages are 1, 2 and 3"),
    ("zero(bucket=25)", GpusimError, "25"),
    ("offload(what=optimiser)", GpusimError, "did you mean 'optimizer'"),
    ("offload(to=disk)", GpusimError, "known: host, nvme"),
    ("offload(memory=frsh)", GpusimError, "did you mean 'fresh'"),
    ("offload(what=parameters)", GpusimError, "write what=all"),
])  # fmt: skip
def test_a_wrong_parameter_is_named(chain: str, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        transforms.apply(model_states(), chain)


def test_a_trace_that_lacks_what_is_needed_is_refused() -> None:
    for chain, says in (("zero", "no gradients"), ("offload", "no gradients"), ("data_parallel", "no gradients")):
        with pytest.raises(TraceError, match=says):
            transforms.apply(shipped("llama-1b-decode"), chain)
    with pytest.raises(TraceError, match="tensor_parallel needs which tensors each operator reads and writes"):
        transforms.apply(shipped("gpt-medium-infer-snapshot"), "tensor_parallel")


def test_weights_of_inference_can_stay_on_the_host() -> None:
    trace = shipped("llama-1b-decode")
    made = transforms.apply(trace, "offload(what=parameters)")
    assert made.meta["host_bytes"] == pytest.approx(2 * 1_235_814_400, rel=1e-4)
    assert int(live_bytes(made, made.size).max()) < int(live_bytes(trace, trace.size).max()) / 3
