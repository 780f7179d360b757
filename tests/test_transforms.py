"""Transforms: does a transformed trace say what the transformed program would have recorded?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gpusim
from gpusim import transforms
from gpusim.config.experiment import RunSpec
from gpusim.errors import ConfigError, GpusimError, TraceError
from gpusim.experiment.plan import plan
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.roles import ROLES, roles
from gpusim.trace.stats import ROUND, live_bytes
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace

ROOT = Path(__file__).parent.parent


def shipped(name: str) -> Trace:
    return load_trace(ROOT / "traces" / f"{name}.npz")


def peak(trace: Trace) -> int:
    return int(live_bytes(trace, -(-trace.size // ROUND) * ROUND).max())


def story(trace: Trace) -> list[str]:
    """Each event in a word: "+3", "-3", an operator as name(reads > writes), a phase."""
    found = []
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == OP:
            reads, writes = (
                ",".join(str(t) for t in ids[start[arg] : start[arg + 1]])
                for ids, start in ((trace.read_id, trace.read_start), (trace.write_id, trace.write_start))
            )
            found.append(f"{trace.op_names[trace.op[arg]]}({reads} > {writes})")
        elif kind == PHASE:
            found.append(trace.phases[arg])
        else:
            found.append({ALLOC: "+", FREE: "-"}[kind] + str(arg))
    return found


def small_step() -> Trace:
    """Two layers x -> w x -> f(w x) with one weight each and a loss, its backward, and a step of plain SGD.

    Tensors: 0 and 1 weights, 2 input, 3 and 4 of the first layer, 5 and 6 of the second, 7 the loss.
    """
    b = TraceBuilder("small")
    w = [b.alloc(400, "param"), b.alloc(400, "param")]
    x = b.alloc(100, "input")
    b.begin_phase("step0.fwd")
    inner, outer = [], [x]
    for k in (0, 1):
        inner.append(b.alloc(1000, "fwd"))
        b.op("mul", [w[k], outer[-1]], [inner[-1]], flops=8.0, module=f"net.{k}.mul", dtype="float32", read_bytes=500,
             written_bytes=1000)  # fmt: skip
        outer.append(b.alloc(200, "fwd"))
        b.op("act", [inner[-1]], [outer[-1]], module=f"net.{k}.act", dtype="float32", read_bytes=1000, written_bytes=200)
    loss = b.alloc(4, "fwd")
    b.op("loss", [outer[2]], [loss], module="loss", dtype="float32")
    b.begin_phase("step0.bwd")
    above, gradients = b.alloc(200, "bwd"), []
    b.op("loss_backward", [loss, outer[2]], [above], module="loss", dtype="float32")
    b.free(loss)
    b.free(outer[2])
    for k in (1, 0):
        d = b.alloc(1000, "bwd")
        b.op("act_backward", [above, inner[k]], [d], module=f"net.{k}.act", dtype="float32")
        b.free(above)
        b.free(inner[k])
        gradients.append(b.alloc(400, "bwd"))
        b.op("mul_backward_w", [d, outer[k]], [gradients[-1]], module=f"net.{k}.mul", dtype="float32", flops=8.0)
        above = b.alloc(200, "bwd")
        b.op("mul_backward_x", [d, w[k]], [above], module=f"net.{k}.mul", dtype="float32", flops=8.0)
        b.free(d)
        if k:
            b.free(outer[k])
    b.free(above)
    b.begin_phase("step0.opt")
    for k, gradient in zip((1, 0), gradients, strict=True):
        b.op("sgd", [w[k], gradient], [w[k]], dtype="float32")
    b.begin_phase("step0.zero")
    for gradient in gradients:
        b.free(gradient)
    return b.finish()


# --- roles ------------------------------------------------------------------------------------------------------------


def test_roles_of_a_step_written_by_hand() -> None:
    found = [ROLES[r] for r in roles(small_step())]
    assert found[:3] == ["parameter", "parameter", "input"]
    assert found[3:8] == ["activation"] * 5
    assert found[8:] == ["temporary", "temporary", "gradient", "temporary", "temporary", "gradient", "temporary"]


def test_roles_of_recorded_programs_add_up() -> None:
    trace = shipped("gpt2-small-train")
    found = roles(trace)
    held = {role: int(trace.size[found == number].sum()) for number, role in enumerate(ROLES)}
    assert held["gradient"] == 2 * held["parameter"]  # two steps, each parameter has one in each
    states = trace.size[found == ROLES.index("optimizer")]
    assert held["optimizer"] - 4 * (states == 4).sum() == 2 * held["parameter"]  # Adam: two moments, and a counter for each
    trace = shipped("gpt-medium-train")  # no phase is called forward, state is older than the recording
    found = roles(trace)
    held = {role: int(trace.size[found == number].sum()) for number, role in enumerate(ROLES)}
    parameters = int(trace.size[[trace.categories[c] == "param" for c in trace.category]].sum())
    assert (held["gradient"], held["optimizer"]) == (parameters, 2 * parameters)
    assert set(roles(shipped("gpt-medium-train-snapshot"))) == {ROLES.index("unknown")}


# --- checkpointing ----------------------------------------------------------------------------------------------------


def test_checkpointing_of_a_step_written_by_hand() -> None:
    done = gpusim.transform(small_step(), "checkpointing")
    assert story(done)[3:] == [
        "step0.fwd", "+3", "mul(0,2 > 3)", "+4", "act(3 > 4)", "-3",  # what only its own layer reads is dropped,
        "+5", "mul(1,4 > 5)", "+6", "act(5 > 6)", "-5", "+7", "loss(6 > 7)",  # but not 4 and 6, which others read
        "step0.bwd", "+8", "loss_backward(7,6 > 8)", "-7", "-6",
        "+9", "mul(1,4 > 9)", "+10", "act_backward(8,9 > 10)", "-8", "-9",  # made again up to the last that is needed
        "+11", "mul_backward_w(10,4 > 11)", "+12", "mul_backward_x(10,1 > 12)", "-10", "-4",
        "+13", "mul(0,2 > 13)", "+14", "act_backward(12,13 > 14)", "-12", "-13",
        "+15", "mul_backward_w(14,2 > 15)", "+16", "mul_backward_x(14,0 > 16)", "-14", "-16",
        "step0.opt", "sgd(1,11 > 1)", "sgd(0,15 > 0)", "step0.zero", "-11", "-15",
    ]  # fmt: skip
    assert done.flops.sum() == small_step().flops.sum() + 16
    assert done.read_bytes.sum() == small_step().read_bytes.sum() + 1000
    assert done.meta["transforms"] == ["checkpointing"]


def test_checkpointing_is_what_pytorch_does() -> None:
    """The same program, recorded with torch.utils.checkpoint around every layer."""
    recorded, done = shipped("gpt2-small-train-ckpt"), gpusim.transform(shipped("gpt2-small-train"), "checkpointing")
    assert peak(done) == peak(recorded)
    assert (done.tensors, done.events, done.ops) == (recorded.tensors, recorded.events, recorded.ops)
    assert done.flops.sum() == recorded.flops.sum()
    assert done.read_bytes.sum() + done.written_bytes.sum() == recorded.read_bytes.sum() + recorded.written_bytes.sum()


def test_checkpointing_segments() -> None:
    trace = shipped("gpt2-small-train")
    assert gpusim.transform(trace, "checkpointing(every=sqrt)").arg.tolist() == gpusim.transform(
        trace, "checkpointing(every=4)").arg.tolist()  # fmt: skip
    by_pattern = gpusim.transform(trace, "checkpointing(modules=transformer.h.*)")
    assert by_pattern.arg.tolist() == gpusim.transform(trace, "checkpointing(every=1)").arg.tolist()
    only_mlp = gpusim.transform(trace, "checkpointing(modules=mlp)")
    assert trace.ops < only_mlp.ops < by_pattern.ops
    assert peak(trace) > peak(only_mlp) > peak(by_pattern)


# --- the chain --------------------------------------------------------------------------------------------------------


def test_a_chain_is_its_transforms_one_after_another() -> None:
    trace = small_step()
    assert transforms.apply(trace, "none") == transforms.apply(trace, []) == trace
    with pytest.raises(TraceError, match="a single segment"):  # a layer that is made again is not dropped again
        transforms.apply(trace, "checkpointing(modules=net.*, every=2) | checkpointing(modules=net.*, every=2)")


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ("chekpointing", "there is no transform 'chekpointing' (did you mean 'checkpointing'?)"),
        ("checkpointing(evry=2)", "transform 'checkpointing' has no parameter 'evry' (did you mean 'every'?)"),
        ("checkpointing(every=0)", "'every' of transform 'checkpointing' is '0', neither a whole number above 0 nor sqrt"),
        ("checkpointing(modules=hh)", "small: no module matches 'hh' (its modules are like net.0.mul, net.0.act, net.1.mul)"),
        ("checkpointing | | checkpointing", "has an empty step"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(chain: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        transforms.apply(small_step(), chain)
    assert said in str(error.value)


def test_checkpointing_needs_training() -> None:
    with pytest.raises(TraceError, match="needs operators of a forward phase, and there are none"):
        gpusim.transform(shipped("llama-1b-decode"), "checkpointing")


OWN = '''
from gpusim.trace.edit import Edit
from gpusim.transforms import register

@register
def halved(trace, factor=2):
    """All tensors smaller."""
    edit = Edit(trace)
    edit["size"][:] //= factor
    return edit.finish()
'''

YAML = """
question: does it help?
trace: gpt2-small-train
profile: a100-sxm4-80gb
bounds: false
"""


def test_an_experiment_runs_each_transform_under_a_name_of_its_own(tmp_path: Path) -> None:
    from gpusim.commands import load

    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "plain.yaml").write_text(YAML)
    (tmp_path / "axis.yaml").write_text(YAML + 'use: [own.py]\ntransform: [none, checkpointing, "halved(factor=4)"]\n')
    plain, axis = (plan(load.experiment(str(tmp_path / f"{name}.yaml")), tmp_path / name) for name in ("plain", "axis"))
    assert [task.spec.transform for task in axis.grid] == ["none", "checkpointing", "halved(factor=4)"]
    assert axis.grid[0].key == plain.grid[0].key and len({task.key for task in axis.grid}) == 3
    spec = axis.grid[1].spec
    assert replace(spec, transform="none").hash == plain.grid[0].spec.hash != spec.hash
    assert "transform" not in plain.grid[0].spec.plain() and isinstance(spec, RunSpec)
    (tmp_path / "own.py").write_text(OWN.replace("smaller", "much smaller"))
    code = f"""
from pathlib import Path
from gpusim.commands import load
from gpusim.experiment.plan import plan
print(*(task.key for task in plan(load.experiment({str(tmp_path / "axis.yaml")!r}), Path("out")).grid))"""
    keys = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert keys[:2] == [task.key for task in axis.grid[:2]] and keys[2] != axis.grid[2].key


def test_a_transform_that_does_not_exist_is_shown_in_the_experiment(tmp_path: Path) -> None:
    from gpusim.commands import load

    (tmp_path / "e.yaml").write_text(YAML + "transform: [none, checkpoint]\n")
    with pytest.raises(ConfigError, match=r"e.yaml:6:19: transform\[1\]: there is no transform 'checkpoint'"):
        load.experiment(str(tmp_path / "e.yaml"))


def test_importing_gpusim_stays_cheap() -> None:
    code = "import gpusim, sys; gpusim.transform; assert not {'numba', 'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
