"""Transforms: does a transformed trace say what the transformed program would have recorded?"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import gpusim
from gpusim.base.errors import ConfigError, GpusimError, TraceError
from gpusim.experiment.spec import RunSpec
from gpusim.experiment.tasks import plan
from gpusim.programs import transforms
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.roles import ROLES, roles
from gpusim.trace.stats import ROUND, live_bytes
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace

ROOT = Path(__file__).parents[2]


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


@pytest.mark.hand_worked
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


@pytest.mark.hand_worked
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
        ("offload | zero", "transform 'zero' comes before 'offload', not after it (write zero | offload)"),
        ("zero(stage=3) | tensor_parallel", "'tensor_parallel' comes before 'zero'"),
        ("pipeline | batch(factor=2)", "'batch' comes before 'pipeline'"),
        ("data_parallel | zero", "'data_parallel' and 'zero' exclude each other"),
        ("offload | offload(what=all)", "'offload' is in the chain twice"),
    ],
)
def test_what_cannot_be_done_is_refused_in_one_sentence(chain: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        transforms.apply(small_step(), chain)
    assert said in str(error.value)


def test_what_was_done_before_counts_as_part_of_the_chain() -> None:
    done = gpusim.transform(shipped("gpt2-small-train"), "checkpointing | zero")
    with pytest.raises(GpusimError, match="'lora' comes before 'zero'"):
        transforms.apply(done, "lora")
    assert transforms.apply(done, "offload").meta["transforms"] == ["checkpointing", "zero", "offload"]


def test_checkpointing_needs_training() -> None:
    with pytest.raises(TraceError, match="needs operators of a forward phase, and there are none"):
        gpusim.transform(shipped("llama-1b-decode"), "checkpointing")


OWN = '''
from gpusim.trace.edit import Edit
from gpusim.programs.transforms import register

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


@pytest.mark.slow
def test_an_experiment_runs_each_transform_under_a_name_of_its_own(tmp_path: Path) -> None:
    from gpusim.experiment import load

    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "plain.yaml").write_text(YAML)
    (tmp_path / "axis.yaml").write_text(YAML + 'use: [own.py]\ntransform: [none, checkpointing, "halved(factor=4)"]\n')
    plain, axis = (plan(load.experiment(str(tmp_path / f"{name}.yaml")), tmp_path / name) for name in ("plain", "axis"))
    assert [task.spec.transform for task in axis.grid] == ["none", "checkpointing", "halved(factor=4)"]
    assert axis.grid[0].key == plain.grid[0].key and len({task.key for task in axis.grid}) == 3
    spec = axis.grid[1].spec
    assert replace(spec, transform="none").hash == plain.grid[0].spec.hash != spec.hash
    assert "transform" not in plain.grid[0].spec.plain() and isinstance(spec, RunSpec)
    (tmp_path / "own.py").write_text(OWN.replace("factor=2", "factor=3"))
    code = f"""
from pathlib import Path
from gpusim.experiment import load
from gpusim.experiment.tasks import plan
print(*(task.key for task in plan(load.experiment({str(tmp_path / "axis.yaml")!r}), Path("out")).grid))"""
    keys = subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, capture_output=True, text=True).stdout.split()
    assert keys[:2] == [task.key for task in axis.grid[:2]] and keys[2] != axis.grid[2].key


@pytest.mark.slow
def test_a_run_through_a_transform_of_ones_own_is_checked_with_its_file(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "own.yaml").write_text(YAML + "use: [own.py]\ntransform: halved\n")

    def gpusim(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", "from gpusim.cli.app import main; main()", *words]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )

    assert gpusim("run", "own.yaml", "-o", "out", "--log", "--no-figures").returncode == 0
    right = "1 run is right, 0 wrong, 0 without an event log\n"
    assert gpusim("check", "out").stdout == right, "the file is where it was"
    (tmp_path / "own.py").rename(tmp_path / "moved.py")
    asked = gpusim("check", "out")
    assert asked.returncode == 2 and "no transform 'halved' (name the file that has it: --use FILE)" in asked.stderr
    assert gpusim("check", "out", "--use", "moved.py").stdout == right
    (tmp_path / "moved.py").rename(tmp_path / "own.py")
    assert gpusim("export", "out", "--use", "own.py", "-o", "own.pickle").returncode == 0


def test_a_transform_that_does_not_exist_is_shown_in_the_experiment(tmp_path: Path) -> None:
    from gpusim.experiment import load

    (tmp_path / "e.yaml").write_text(YAML + "transform: [none, checkpoint]\n")
    with pytest.raises(ConfigError, match=r"e.yaml:6:19: transform\[1\]: there is no transform 'checkpoint'"):
        load.experiment(str(tmp_path / "e.yaml"))


@pytest.mark.slow
def test_importing_gpusim_stays_cheap() -> None:
    code = "import gpusim, sys; gpusim.transform; assert not {'numba', 'numpy', 'torch'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


# --- roles of the others: against recordings --------------------------------------------------------------------------


def compare(done: Trace, recorded: Trace) -> tuple[float, float, float]:
    """How far the peak, the number of operators and the arithmetic are from the recording's, as shares of it."""
    return peak(done) / peak(recorded) - 1, done.ops / recorded.ops - 1, float(done.flops.sum() / recorded.flops.sum()) - 1


@pytest.mark.slow
def test_precision_is_what_was_recorded_in_the_other_format() -> None:
    fp32, bf16 = shipped("gpt2-small-train-fp32"), shipped("gpt2-small-train")
    for base, chain, recorded in ((fp32, "precision(to=bf16)", bf16), (bf16, "precision(to=fp32)", fp32)):
        peaks, operators, flops = compare(gpusim.transform(base, chain), recorded)
        assert abs(peaks) < 3e-4 and operators == flops == 0, chain
    back = gpusim.transform(bf16, "precision(to=fp32) | precision(to=bf16)")
    assert abs(peak(back) / peak(bf16) - 1) < 3e-4 and back.ops == bf16.ops


@pytest.mark.hand_worked
def test_precision_by_hand() -> None:
    """Half the bytes of all that is float32; no loss that would be computed otherwise, so no casts."""
    done = gpusim.transform(small_step(), "precision(to=bf16)")
    assert story(done) == story(small_step())
    assert (2 * done.size == small_step().size).all() and {done.dtypes[d] for d in done.dtype} == {"bfloat16"}
    assert (2 * done.read_bytes == small_step().read_bytes).all()


@pytest.mark.hand_worked
def test_masters_by_hand() -> None:
    done = gpusim.transform(small_step(), "precision(to=bf16, master=yes)")
    assert story(done)[:5] == ["+0", "+1", "+2", "+3", "+4"]  # weights, their masters, the input
    assert done.size[:5].tolist() == [200, 200, 400, 400, 50]
    begin = story(done).index("step0.opt")
    cast = "aten._to_copy.default"
    assert story(done)[begin + 1 :][:9] == [
        "+17", f"{cast}(12 > 17)", "+18", f"{cast}(15 > 18)", "sgd(3,17 > 3)", "sgd(2,18 > 2)",
        "aten._foreach_copy_.default(3,2 > 1,0)", "-17", "-18",
    ]  # fmt: skip
    assert done.size[[12, 15, 17, 18]].tolist() == [200, 200, 400, 400]


def linear_step() -> Trace:
    """x (8 x 4, fp32) through a linear layer of 4 to 6 and a loss; its backward."""
    b = TraceBuilder("linear")
    w, bias, x = b.alloc(96, "param"), b.alloc(24, "param"), b.alloc(128, "input")
    b.begin_phase("step0.fwd")
    y, loss = b.alloc(192, "fwd"), b.alloc(4, "fwd")
    b.op("aten.addmm.default", [bias, x, w], [y], module="net.0", dtype="float32", flops=384.0, read_bytes=248,
         written_bytes=192)  # fmt: skip
    b.op("aten.mse_loss.default", [y], [loss], module="net", dtype="float32", read_bytes=192, written_bytes=4)
    b.begin_phase("step0.bwd")
    dy = b.alloc(192, "bwd")
    b.op("aten.mse_loss_backward.default", [loss, y], [dy], module="net", dtype="float32")
    b.free(loss)
    b.free(y)
    dw, db = b.alloc(96, "bwd"), b.alloc(24, "bwd")
    b.op("aten.mm.default", [x, dy], [dw], module="net.0", dtype="float32", flops=384.0)
    b.op("aten.sum.dim_IntList", [dy], [db], module="net.0", dtype="float32")
    b.free(dy)
    b.begin_phase("step0.opt")
    b.op("sgd", [w, bias, dw, db], [w, bias], dtype="float32")
    b.begin_phase("step0.zero")
    b.free(dw)
    b.free(db)
    return b.finish()


@pytest.mark.hand_worked
def test_autocast_by_hand() -> None:
    """The product runs in bf16: its operands are cast, its gradients cast back; the loss runs in fp32."""
    done = gpusim.transform(linear_step(), "precision(to=bf16, mode=autocast)")
    to = "aten._to_copy.default"
    assert story(done)[3:] == [
        "step0.fwd", "+3", f"{to}(1 > 3)", "+4", f"{to}(2 > 4)", "+5", f"{to}(0 > 5)", "+6", "+7",
        "aten.addmm.default(3,4,5 > 6)",
        "+8", f"{to}(6 > 8)", "aten.mse_loss.default(8 > 7)", "-3", "-5", "-6",  # weights are kept until forward ends
        "step0.bwd", "+9", "aten.mse_loss_backward.default(7,8 > 9)", "-8", "-7",
        "+10", "+11", f"{to}(9 > 11)", "+12", "+13", "aten.mm.default(4,11 > 10)",
        "+14", f"{to}(10 > 12)", "-10", "-4", "-9", "aten.sum.dim_IntList(11 > 14)", f"{to}(14 > 13)", "-14", "-11",
        "step0.opt", "sgd(0,1,12,13 > 0,1)", "step0.zero", "-12", "-13",
    ]  # fmt: skip
    assert done.size.tolist() == [96, 24, 128, 12, 64, 48, 96, 4, 192, 192, 48, 96, 96, 24, 12]


@pytest.mark.hand_worked
def test_accumulation_by_hand() -> None:
    done = gpusim.transform(linear_step(), "accumulate(steps=2)")
    add = "aten.add_.Tensor"
    once = [
        "step0.fwd", "+3", "+4", "aten.addmm.default(1,2,0 > 3)", "aten.mse_loss.default(3 > 4)", "step0.bwd", "+5",
        "aten.mse_loss_backward.default(4,3 > 5)", "-4", "-3", "+6", "+7", "aten.mm.default(2,5 > 6)",
        "aten.sum.dim_IntList(5 > 7)", "-5",
    ]  # fmt: skip
    again = [
        "step0.fwd", "+8", "+9", "aten.addmm.default(1,2,0 > 8)", "aten.mse_loss.default(8 > 9)", "step0.bwd", "+10",
        "aten.mse_loss_backward.default(9,8 > 10)", "-9", "-8", "+11", "+12",
        "aten.mm.default(2,10 > 11)", f"{add}(6,11 > 6)", "-11", "aten.sum.dim_IntList(10 > 12)", f"{add}(7,12 > 7)", "-12",
        "-10",
    ]  # fmt: skip
    assert story(done)[3:] == [*once, *again, "step0.opt", "sgd(0,1,6,7 > 0,1)", "step0.zero", "-6", "-7"]
    assert done.flops.sum() == 2 * linear_step().flops.sum()


@pytest.mark.hand_worked
def test_batch_and_sequence_by_hand() -> None:
    trace, done = linear_step(), gpusim.transform(linear_step(), "batch(factor=3)")
    assert done.size.tolist() == [96, 24, 384, 576, 4, 576, 96, 24]  # not parameters, gradients, the loss
    assert done.flops.tolist() == (3 * trace.flops).tolist()
    assert done.read_bytes[0] == 96 + 24 + 384 and done.written_bytes[0] == 576
    assert gpusim.transform(trace, "batch(to=24, of=8)").size.tolist() == done.size.tolist()
    with pytest.raises(TraceError, match=r"its meta does not say its batch \(add of=N"):
        gpusim.transform(trace, "batch(to=24)")


def test_sizes_are_fitted_to_recordings(tmp_path: Path) -> None:
    """Two steps to three times: a line through 1 and 2 that a recording of 4 confirms, or does not."""
    from gpusim.trace.edit import Edit
    from gpusim.trace.files import save_trace

    def of(batch: int, extra: int = 0) -> Trace:
        edit = Edit(linear_step())
        edit["size"][2:6] = [128 * batch, 192 * batch + 100, 4, 192 * batch + extra]
        return edit.finish()

    for batch, extra in ((2, 0), (4, 0), (5, 5000)):
        save_trace(of(batch, extra), tmp_path / f"{batch}.npz")
    files = {n: tmp_path / f"{n}.npz" for n in (2, 4, 5)}
    done = gpusim.transform(of(1), f"batch(factor=3, fit={files[2]})")
    assert done.size.tolist() == of(3).size.tolist()
    assert done.meta["warnings"][-1] == (
        "batch scaled 3 times by a line through 2 recordings, with none left to check it; 3 times is beyond them"
    )
    done = gpusim.transform(of(1), f"batch(factor=3, fit={files[2]};{files[4]})")
    assert done.size.tolist() == of(3).size.tolist()
    assert "by a line through 2 recordings, largest error on 1 more: 0.00% of" in done.meta["warnings"][-1]
    done = gpusim.transform(of(1), f"batch(factor=3, fit={files[2]};{files[5]})")
    assert "by a parabola through 3 recordings" in done.meta["warnings"][-1]
    with pytest.raises(TraceError, match="linear and small are not the same program"):
        edit = Edit(small_step())
        edit["size"][2] = 999
        save_trace(edit.finish(), tmp_path / "small.npz")
        gpusim.transform(of(1), f"batch(factor=3, fit={tmp_path / 'small.npz'})")


@pytest.mark.hand_worked
def test_optimizers_by_hand() -> None:
    done = gpusim.transform(linear_step(), "optimizer(to=momentum)")
    begin = story(done).index("step0.opt")
    assert story(done)[begin + 1 :] == [
        "+8", "aten.clone.default(6 > 8)", "+9", "aten.clone.default(7 > 9)",  # the first step makes the state
        "aten._foreach_add_.List(0,1,8,9 > 0,1)", "step0.zero", "-6", "-7",
    ]  # fmt: skip
    assert done.size[8:].tolist() == [96, 24]
    done = gpusim.transform(linear_step(), "optimizer(to=adam)")
    assert done.size[8:].tolist() == [96, 96, 24, 24, 96, 24]  # two moments of each, then the denominators
    assert story(done)[-5:] == ["-12", "-13", "step0.zero", "-6", "-7"]
    done = gpusim.transform(linear_step(), "optimizer(to=adam8bit)")
    assert done.size[8:].tolist() == [28, 28, 10, 10]  # a byte for each of 24 and 6 elements, and one float
    trace = shipped("gpt2-small-train")
    state = {to: peak(gpusim.transform(trace, f"optimizer(to={to})")) for to in ("sgd", "momentum", "adam")}
    parameters = 248_879_616
    assert state["momentum"] - state["sgd"] == pytest.approx(parameters, rel=1e-3)
    assert state["adam"] - state["momentum"] == pytest.approx(parameters, rel=1e-3)
    assert peak(shipped("gpt2-small-train")) == pytest.approx(state["adam"], rel=1e-4)


@pytest.mark.hand_worked
@pytest.mark.slow
def test_lora_by_hand() -> None:
    """W stays: no gradient of it, nor of the bias; A (1 x 4) and B (6 x 1) train."""
    done = gpusim.transform(linear_step(), "lora(rank=1, optimizer=sgd)")
    mm = "aten.mm.default"
    assert story(done) == [
        "+0", "+1", "+2", "+3", "+4", "step0.fwd", "+5", "+6", "aten.addmm.default(3,4,0 > 5)",
        "+7", f"{mm}(4,1 > 7)", "+8", f"{mm}(7,2 > 8)", "+9", "aten.mul.Tensor(8 > 9)", "-8",
        "+10", "aten.add.Tensor(5,9 > 10)", "-9", "-5", "aten.mse_loss.default(10 > 6)",
        "step0.bwd", "+11", "aten.mse_loss_backward.default(6,10 > 11)", "-6", "-10",
        "+12", "aten.mul.Tensor(11 > 12)", "+13", f"{mm}(12,7 > 13)", "+14", f"{mm}(12,2 > 14)", "-12", "-7",
        "+15", f"{mm}(14,4 > 15)", "-14", "-11",
        "step0.opt", "aten._foreach_add_.List(1,2,15,13 > 1,2)", "step0.zero", "-15", "-13",
    ]  # fmt: skip
    assert done.size[[1, 2, 7, 8, 13, 15]].tolist() == [16, 24, 32, 192, 24, 16]
    assert done.flops.sum() == 384 + 2 * (8 * 4 + 8 * 6) + 2 * (2 * 8 * 6 + 8 * 4)


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ("precision(to=int4)", "there is no format 'int4' (known: fp32, bf16, fp16, fp8)"),
        ("precision(to=fp32)", "linear: its parameters already are float32"),
        ("precision(mode=autocast, master=yes)", "autocast keeps the parameters as they are: master goes with mode=pure"),
        ("optimizer(to=adan)", "there is no optimizer 'adan' (did you mean 'adam'"),
        ("lora(targets=q_proj)", "linear: no module matches 'q_proj'"),
        ("lora | lora(rank=0)", "'rank' of transform 'lora' is '0', not a whole number above 0"),
        ("sequence", "sequence needs a factor or a target (sequence(factor=2) or sequence(to=16))"),
        ("batch(factor=2, to=3)", "batch takes a factor or `to`, not both"),
        ("precision | precision(to=fp16, mode=autocast)", "autocast starts from fp32 parameters, and these are bfloat16"),
    ],
)
def test_other_transforms_refuse_in_one_sentence(chain: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        gpusim.transform(linear_step(), chain)
    assert said in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-large-train", "llama-1b-train", "resnet50-train", "gpt-medium-train"])
def test_every_transform_of_shipped_programs_is_a_program(name: str) -> None:
    """`finish` checks it; and what a chain reports is what was asked for."""
    trace = shipped(name)
    chains = ["precision(to=fp16)", "precision(to=fp8)", "accumulate", "batch(factor=2)", "sequence(factor=2)"]
    chains += [f"optimizer(to={to})" for to in ("sgd", "momentum", "adam", "adamw", "lion", "adafactor", "adam8bit")]
    if trace.modules:
        chains += ["checkpointing", "lora", "lora | checkpointing", "batch(factor=0.25) | accumulate(steps=4) | checkpointing"]
    for chain in chains:
        done = gpusim.transform(trace, chain)
        assert done.meta["transforms"] == chain.split(" | ")
    half = gpusim.transform(trace, "batch(factor=0.5) | accumulate(steps=2)")
    assert half.flops.sum() == pytest.approx(trace.flops.sum(), rel=1e-6)
    if name != "gpt-medium-train":  # whose gradients, held for another forward, outweigh its activations
        assert peak(half) < peak(trace)
