"""Pipeline parallelism: does a stage hold what the schedule says, and does what leaves one stage arrive at the next?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_transforms_parallel import moved, shipped

from gpusim.base.errors import GpusimError
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.programs import transforms
from gpusim.referee import check
from gpusim.trace.build import TraceBuilder
from gpusim.trace.exchanges import parse_exchanges
from gpusim.trace.roles import PARAMETER, roles
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import COLLECTIVE, Trace

pytestmark = pytest.mark.formulas

ROOT = Path(__file__).parents[2]
LAYERS, W, A = 8, 10_000, 1_000  # bytes of a layer's weight, of its activation


def chain(steps: int = 1) -> Trace:
    """Layers x -> w x, each keeping its input for backward; SGD."""
    b = TraceBuilder("chain")
    weights = [b.alloc(W, "param") for _ in range(LAYERS)]
    for step in range(steps):
        kept = [b.alloc(A, "input")]
        b.begin_phase(f"step{step}.fwd")
        for layer, weight in enumerate(weights):
            kept.append(b.alloc(A, "fwd"))
            b.op("mm", (weight, kept[-2]), (kept[-1],), module=f"net.layers.{layer}")
        b.begin_phase(f"step{step}.bwd")
        gradients = []
        flow = b.alloc(A, "bwd")
        b.op("ones_like", (kept[-1],), (flow,))
        b.free(kept.pop())
        for layer in reversed(range(LAYERS)):
            gradients.append(b.alloc(W, "bwd"))
            before = b.alloc(A, "bwd")
            b.op("mm", (flow, kept[-1], weights[layer]), (gradients[-1], before), module=f"net.layers.{layer}")
            b.free(flow)
            b.free(kept.pop())
            flow = before
        b.free(flow)
        b.begin_phase(f"step{step}.opt")
        b.op("_foreach_add_", (*weights, *reversed(gradients)), weights)
        for gradient in gradients:
            b.free(gradient)
    return b.finish()


@pytest.mark.parametrize(("stage", "microbatches", "held"), [(1, 8, 4), (2, 8, 3), (3, 8, 2), (4, 8, 1), (1, 2, 2), (4, 2, 1)])
def test_a_stage_holds_the_activations_of_so_many_microbatches(stage: int, microbatches: int, held: int) -> None:
    """Of 8 layers each of 4 stages has 2.  Each microbatch in flight keeps the inputs of its 2 layers; at the end of a forward
    its output is there too until it is sent, and while backward runs what flows through it: 1 to 3 activations more.  The
    program's own input, which the first stage has, is one tensor for all microbatches."""
    made = transforms.apply(chain(), f"pipeline(stages=4,stage={stage},microbatches={microbatches})")
    weights = roles(made) == PARAMETER
    assert int(made.size[weights].sum()) == 2 * W
    small = np.where(made.size == A, made.size, 0)
    peak = int(live_bytes(made, small).max()) // A
    shared = held - 1 if stage == 1 else 0
    assert 2 * held - shared <= peak <= 2 * held - shared + 3


def test_the_order_is_one_forward_one_backward() -> None:
    made = transforms.apply(chain(), "pipeline(stages=4,stage=3,microbatches=3)")
    marks = [made.phases[a].rpartition(".")[2] for k, a in zip(made.kind, made.arg, strict=True) if k == 3]
    assert marks == ["fwd", "fwd", "bwd", "fwd", "bwd", "bwd", "opt"]


def test_what_one_stage_sends_the_next_receives() -> None:
    """Activations forward, gradients backward, one of each a microbatch and boundary."""
    sent, received = {}, {}
    for stage in range(1, 5):
        made = transforms.apply(chain(), f"pipeline(stages=4,stage={stage},microbatches=2)")
        said = [one for number in made.exchange[made.exchange >= 0] for one in parse_exchanges(made.exchanges[number])]
        sent[stage] = sum(one.size for one in said if one.kind == "send")
        received[stage] = sum(one.size for one in said if one.kind == "receive")
    assert sent == {1: 2 * A, 2: 4 * A, 3: 4 * A, 4: 2 * A} == received


def test_stages_add_up_to_the_program() -> None:
    """Operators and parameters of a real model: every one on exactly one stage."""
    trace = shipped("gpt2-small-train")
    parts = [transforms.apply(trace, f"pipeline(stages=4,stage={s},microbatches=1)") for s in (1, 2, 3, 4)]
    kernels = [int((np.char.find(np.array(p.op_names)[p.op], "mm") >= 0).sum()) for p in parts]
    assert sum(kernels) == int((np.char.find(np.array(trace.op_names)[trace.op], "mm") >= 0).sum())
    total = int(trace.size[roles(trace) == PARAMETER].sum())
    tied = 50257 * 768 * 2  # the embedding is used by the first stage and by the last
    assert sum(int(p.size[roles(p) == PARAMETER].sum()) for p in parts) == total + tied
    hidden = 8 * 1024 * 768 * 2
    assert moved(parts[1], COLLECTIVE) >= 2 * 4 * hidden


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["gpt2-small-train", "llama-1b-train", "bert-large-train"])
def test_what_comes_out_runs_and_passes_the_referee(name: str) -> None:
    for stage in (1, 4):
        trace = transforms.apply(shipped(name), f"pipeline(stages=4,stage={stage},microbatches=4)")
        result = simulate(trace, catalogue.load("a100-sxm4-80gb"), log=True)
        assert result.finished
        assert check(result, trace).violations == ()
        assert trace.meta["pipeline"]["bubble"] == 0.75


def test_what_is_impossible_is_said() -> None:
    with pytest.raises(GpusimError, match="of 4 stages"):
        transforms.apply(chain(), "pipeline(stages=4,stage=5)")
    with pytest.raises(GpusimError, match="at most stages=8"):
        transforms.apply(chain(), "pipeline(stages=9)")


def test_an_input_that_backward_frees_is_there_for_every_microbatch() -> None:
    """As `chain` has it: each pass reads it, and only after the last it is gone."""
    made = transforms.apply(chain(), "accumulate(steps=3)")
    reads = np.flatnonzero(np.isin(made.op, [made.op_names.index("mm")]))
    assert len(reads) == 3 * 2 * LAYERS
