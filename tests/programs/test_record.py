"""Does a recording hold what the program did, leave the program as it was, and say what it cannot record?"""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import torch.nn.functional as F  # noqa: E402
from torch import nn  # noqa: E402
from typer.testing import CliRunner  # noqa: E402

import gpusim  # noqa: E402
from gpusim.cli.app import app  # noqa: E402
from gpusim.programs.record import where  # noqa: E402
from gpusim.programs.record.where import RecordError, RecordWarning  # noqa: E402
from gpusim.trace.files import load_trace  # noqa: E402
from gpusim.trace.trace import ALLOC, COPY_IN, COPY_OUT, FREE, KERNEL, OP, PHASE, Trace  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::gpusim.programs.record.where.RecordWarning")
CUBLAS = 8_519_680


def events(trace: Trace) -> list[str]:
    """The events as short words: "+fwd 16" an alloc by category, "-3" a free, "mm 0 1 > 2" an operator, "fwd:" a phase."""
    words = []
    for kind, arg in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True):
        if kind == ALLOC:
            words.append(f"+{trace.categories[trace.category[arg]]} {trace.size[arg]}")
        elif kind == FREE:
            words.append(f"-{arg}")
        elif kind == PHASE:
            words.append(f"{trace.phases[arg]}:")
        elif kind == OP:
            name = trace.op_names[trace.op[arg]].removeprefix("aten.").split(".")[0]
            reads, writes = (
                " ".join(map(str, ids[start[arg] : start[arg + 1]]))
                for ids, start in ((trace.read_id, trace.read_start), (trace.write_id, trace.write_start))
            )
            words.append(f"{name} {reads} > {writes}")
    return words


def names(trace: Trace) -> list[str]:
    return [trace.op_names[op].removeprefix("aten.").split(".")[0] for op in trace.op]


def peak(trace: Trace) -> int:
    sign = np.where(trace.kind == ALLOC, 1, np.where(trace.kind == FREE, -1, 0))
    return int(np.cumsum(sign * np.where(sign != 0, trace.size[np.where(sign != 0, trace.arg, 0)], 0)).max())


def trained(model: nn.Module, *inputs: Any, steps: int = 1, make: Any = torch.optim.SGD, **options: Any) -> Trace:
    with gpusim.record(fake=True, **options) as recording:
        optimizer = make(model.parameters(), lr=0.1)
        for _ in range(steps):
            model(*inputs).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    return recording.trace


# --- what is recorded -------------------------------------------------------------------------------------------------


@pytest.mark.hand_worked
@pytest.mark.slow
def test_a_training_step_by_hand() -> None:
    """One linear layer, 2 x 3 -> 2 x 4 in float32: y = xW', sum; the gradient of W is a product; SGD writes in place."""
    assert events(trained(nn.Linear(3, 4, bias=False), torch.ones(2, 3))) == [
        "+param 48", "+input 24",
        "step0.fwd:",
        "+fwd 32", f"+workspace {CUBLAS}", "mm 1 0 > 2 3",
        "+fwd 4", "sum 2 > 4", "-2",
        "step0.bwd:",
        "+bwd 4", "ones_like 4 > 5",
        "+grad 48", f"+workspace {CUBLAS}", "+workspace 32", "mm 5 1 > 6 7 8", "-8",  # the gradient of a sum is an expanded 1
        "-5", "-4",
        "step0.opt:",
        "_foreach_add_ 0 6 > 0",
        "step0.zero:",
        "-6",
    ]  # fmt: skip


@pytest.mark.slow
def test_flops_bytes_types_and_modules() -> None:
    trace = trained(nn.Sequential(nn.Linear(3, 4, bias=False), nn.ReLU()), torch.ones(2, 3))
    product = names(trace).index("mm")
    assert trace.flops[product] == 2 * 2 * 3 * 4
    assert (trace.read_bytes[product], trace.written_bytes[product]) == (24 + 48, 32)
    assert trace.dtypes[trace.dtype[product]] == "float32"
    backward = names(trace).index("threshold_backward")
    assert [trace.modules[trace.module[op]] for op in (product, backward)] == ["Sequential.0", "Sequential.1"]


@pytest.mark.slow
def test_adam_runs_foreach_and_keeps_its_counters_on_the_host() -> None:
    trace = trained(nn.Linear(3, 4), torch.ones(2, 3), steps=2, make=torch.optim.AdamW)
    assert names(trace).count("_foreach_addcdiv_") == 2  # once a step, for all parameters
    state = [int(trace.size[t]) for t in range(trace.tensors) if trace.categories[trace.category[t]] == "opt"]
    assert sorted(state)[-4:] == [48, 48, 48, 48]
    assert 4 not in state  # no counter


@pytest.mark.slow
def test_two_steps_are_alike_and_numbered() -> None:
    trace = trained(nn.Linear(3, 4), torch.ones(2, 3), steps=2)
    assert trace.phases == tuple(f"step{n}.{kind}" for n in (0, 1) for kind in ("fwd", "bwd", "opt", "zero"))
    first, second = (np.flatnonzero(np.char.startswith([trace.phases[p] for p in trace.phase], f"step{n}")) for n in (0, 1))
    assert [names(trace)[op] for op in first] == [names(trace)[op] for op in second]


@pytest.mark.slow
def test_inference_has_no_steps_and_marks_name_phases() -> None:
    model = nn.Linear(3, 4)
    with gpusim.record(fake=True) as plain, torch.no_grad():
        model(torch.ones(2, 3))
    with gpusim.record(fake=True) as marked, torch.no_grad():
        gpusim.record.phase("prefill")
        model(torch.ones(2, 3))
        gpusim.record.phase("decode0")
        model(torch.ones(1, 3))
    assert plain.trace.phases == ("fwd",)
    assert marked.trace.phases == ("prefill", "decode0")
    assert {"prefill", "decode"} < set(marked.trace.categories)


@pytest.mark.slow
def test_the_peak_is_that_of_memtracker() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    def program() -> Any:
        model = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
        return model, torch.optim.SGD(model.parameters(), foreach=True), torch.randn(8, 32, 64)

    def step(model: Any, optimizer: Any, x: Any) -> None:
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    with FakeTensorMode():
        parts, tracker = program(), MemTracker()
        tracker.track_external(*parts)
        with tracker:
            step(*parts)
    truth = max(sum(kinds.values()) - kinds.get("Total", 0) for kinds in tracker.get_tracker_snapshot("peak").values())
    with gpusim.record(fake=True) as recording:
        step(*program())
    trace = recording.trace
    workspaces = sum(int(s) for s, c in zip(trace.size, trace.category, strict=True) if trace.categories[c] == "workspace")
    assert peak(trace) - workspaces == truth


@pytest.mark.slow
def test_views_share_tied_weights_are_one_and_a_resize_is_seen() -> None:
    with gpusim.record(fake=True) as recording:
        table, head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
        head.weight = table.weight
        y = head(table(torch.zeros(3, dtype=torch.int64)))
        y.t().reshape(-1)[:2].view(2)
        y.detach().resize_(10, 10)
    trace = recording.trace
    sizes = [int(trace.size[t]) for t in range(trace.tensors)]
    assert sizes.count(5 * 4 * 4) == 1
    assert sizes.count(400) == 1
    assert trace.arg[trace.kind == FREE].tolist()[-1] == sizes.index(60)  # the storage of 3 x 5 that was resized


@pytest.mark.slow
def test_checkpointing_computes_twice() -> None:
    from torch.utils.checkpoint import checkpoint

    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.GELU())

        def forward(self, x: Any) -> Any:
            return checkpoint(self.inner, x, use_reentrant=False)

    trace = trained(Twice(), torch.ones(2, 4))
    backward = [trace.phases[p] == "step0.bwd" for p in trace.phase]
    assert [b for b, name in zip(backward, names(trace), strict=True) if name == "addmm"] == [False, True]


@pytest.mark.slow
def test_accumulated_gradients_are_added_in_place_and_live_on() -> None:
    model = nn.Linear(3, 4, bias=False)
    with gpusim.record(fake=True) as recording:
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
    trace = recording.trace
    assert names(trace).count("add_") == 1
    assert [trace.categories[c] for c in trace.category].count("grad") == 1


# --- as on CUDA -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "mask", "kernel"),
    [
        (torch.bfloat16, False, "_scaled_dot_product_flash_attention"),
        (torch.bfloat16, True, "_scaled_dot_product_efficient_attention"),
        (torch.float32, False, "_scaled_dot_product_efficient_attention"),
        (torch.float64, False, "bmm"),
    ],
)
def test_attention_runs_the_kernel_of_cuda(dtype: Any, mask: bool, kernel: str) -> None:
    with gpusim.record(fake=True) as recording:
        q = torch.randn(2, 4, 16, 32, dtype=dtype, requires_grad=True)
        bias = torch.zeros(16, 16, dtype=torch.bool) if mask else None
        F.scaled_dot_product_attention(q, q, q, attn_mask=bias).sum().backward()
    found = names(recording.trace)
    assert kernel in found
    assert (f"{kernel}_backward" in found) == (kernel != "bmm")
    assert not any(name.endswith("for_cpu") for name in found)


def test_the_flash_kernel_of_the_cpu_has_a_formula() -> None:
    from gpusim.programs.record.flops import flops

    op = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
    q = torch.randn(2, 4, 16, 32)
    assert flops(op, (q, q, q), {}, None) == 2 * 2 * (2 * 4) * 16 * 16 * 32


@pytest.mark.slow
def test_autocast_casts_weights_once_and_norms_not_at_all() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4))
    with gpusim.record(fake=True) as recording, torch.autocast("cuda", torch.bfloat16):
        model(model(torch.ones(2, 4))).sum().backward()
    trace = recording.trace
    norm = names(trace).index("native_layer_norm")
    assert trace.dtypes[trace.dtype[norm]] == "float32"
    forward = [name for name, p in zip(names(trace), trace.phase, strict=True) if trace.phases[p] == "step0.fwd"]
    # Two weights and two biases once; the first input; twice the input of the norm and of the second product.
    assert forward.count("_to_copy") == 4 + 1 + 2 * 2


def test_the_lists_of_autocast_are_those_of_cuda() -> None:
    from gpusim.programs.record.autocast import FLOAT32, INTO_FLOAT32, LOWER, WIDEST

    ours = {*LOWER, *FLOAT32, *INTO_FLOAT32, *WIDEST}
    theirs = {
        name.removeprefix("aten::")
        for name in torch._C._dispatch_get_registrations_for_dispatch_key("AutocastCUDA")
        if name.startswith("aten::")
    }
    # Never called here, or refused there.
    unfit = {"cudnn_convolution", "cudnn_convolution_transpose", "_cudnn_rnn", "binary_cross_entropy"}
    assert theirs - ours <= unfit
    assert not {name for name in ours - theirs if _exists(name)}


def _exists(name: str) -> bool:
    packet, _, overload = name.partition(".")
    return hasattr(torch.ops.aten, packet) and (overload or "default") in getattr(torch.ops.aten, packet).overloads()


@pytest.mark.slow
@pytest.mark.parametrize(("gpu", "size"), [("ampere", CUBLAS), ("hopper", 33_554_432)])
def test_a_workspace_for_each_thread_that_multiplies(gpu: str, size: int) -> None:
    trace = trained(nn.Linear(3, 4), torch.ones(2, 3), gpu=gpu)
    taken = trace.size[trace.category == trace.categories.index("workspace")].tolist()
    assert [found for found in taken if found > 1000] == [size] * 2


@pytest.mark.slow
def test_cudnn_gives_its_workspace_back() -> None:
    trace = trained(nn.Conv2d(1, 2, 3), torch.ones(1, 1, 8, 8), cudnn_workspace=4096)
    sizes = [int(trace.size[t]) for t in range(trace.tensors)]
    assert sizes.count(4096) == 2  # forward and backward
    assert {sizes.index(4096)} < set(trace.arg[trace.kind == FREE].tolist())


@pytest.mark.slow
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inference_mode_runs_the_same_operators(mode: Any) -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    with gpusim.record(fake=True) as recording, mode():
        model(torch.ones(2, 3))
    assert names(recording.trace) == ["addmm", "relu"]


def test_resizing_in_inference_mode_is_one_kernel() -> None:
    """Python's own decomposition would make dozens of it."""
    images = torch.empty(2, 3, 32, 32)
    with gpusim.record(None, fake=True) as recording, torch.inference_mode():
        F.interpolate(images, size=(48, 48), mode="bicubic")
    assert names(recording.trace) == ["upsample_bicubic2d"]


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_model_is_copied_whole(device: str) -> None:
    with gpusim.record(fake=True, device=device) as recording:
        model = nn.Linear(3, 3, bias=False).cuda()
        model.tied = model.weight
        other = copy.deepcopy(model)
        assert other.weight.is_cuda
        assert isinstance(other.weight, nn.Parameter)
        assert other.weight is other.tied is not model.weight
        average = torch.optim.swa_utils.AveragedModel(model)
        other(model(torch.ones(2, 3, device="cuda"))).sum().backward()
        average.update_parameters(model)
        assert other.weight.grad is not None
    sizes = [size for size, c in zip(recording.trace.size, recording.trace.category, strict=True)
             if recording.trace.categories[c] in ("param", "input") and size == 36]  # fmt: skip
    assert len(sizes) == 3  # the model, its copy, its average


@pytest.mark.slow
def test_recurrent_networks_and_encoders_run(recwarn: Any) -> None:
    with gpusim.record(fake=True, device="cpu") as recording:
        model = nn.LSTM(4, 4).cuda()
        encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1), 2).cuda()
        encoder(model(torch.ones(3, 2, 4, device="cuda"))[0]).sum().backward()
    assert "native_layer_norm" in names(recording.trace)
    assert not [w for w in recwarn if "cuDNN" in str(w.message)]


@pytest.mark.slow
def test_what_programs_annotate_with_is_a_class() -> None:
    with gpusim.record(fake=True, device="cuda"):
        for kind in (torch.cuda.CUDAGraph, torch.cuda.Stream, torch.cuda.Event, torch.Generator):
            assert kind | None
        torch.ones(2, 2).sum()


@pytest.mark.slow
def test_a_library_that_asks_for_values_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    library = tmp_path / "installed"
    library.mkdir()
    (library / "asking.py").write_text("def ask(x):\n    return bool(x.sum() > 0)\n\ndef count(x):\n    return int(x.sum())\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(library)])
    monkeypatch.setattr(where, "_INSTALLED", (str(library),))
    monkeypatch.setattr(where, "_is_users", lambda file: file.endswith("train.py"))
    text = "import torch, asking\nx = torch.ones(2, 2, device='cuda')\nasking.ask(x.mm(x))\nasking.count(x)\n"
    result = run(tmp_path, text, monkeypatch=monkeypatch)
    assert "train.py:3: a condition asks for a value that is not computed" in result.stderr
    assert "while recording, in asking.py:2: taken as true" in result.stderr
    assert "train.py:4: the program turns a tensor's value into an integer" in result.stderr
    assert ", in asking.py:5 (" in result.stderr


@pytest.mark.slow
def test_devices_as_a_program_names_them() -> None:
    with gpusim.record(fake=True, device="cpu") as recording:
        with torch.device("cuda"):
            made = torch.ones(3)
        there = torch.ones(3).to("cuda:0")
        back = (there + made).cpu()
        devices = [str(t.device) for t in (made, there, back, torch.empty(2, device="meta"))]
        assert devices == ["cuda:0", "cuda:0", "cpu", "meta"]
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda and torch.arange(3).get_device() == 0
        assert torch.ones_like(back).is_cpu
    assert names(recording.trace) == ["ones", "_to_copy", "add", "_to_copy", "zeros", "arange"]


# --- the program is left as it was ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("device", "unnamed"), [("cuda", "cuda"), ("cpu", "cpu")])
@pytest.mark.parametrize("data", [1.0, [1.0, 2.0]])
def test_data_of_the_program_is_where_it_says(device: str, unnamed: str, data: Any) -> None:
    with gpusim.record(fake=True, device=device):
        x = torch.ones(2, 2, device="cuda")
        x.mm(x)
        assert torch.tensor(data).device.type == unnamed
        assert torch.as_tensor(data, device="cuda").device.type == "cuda"
        assert x.new_tensor(data).device.type == "cuda"
        host = torch.tensor(data, device="cpu") + 1
        assert (host.device.type, host.flatten().tolist()[0]) == ("cpu", 2.0)
        assert (torch.tensor(data, device="cuda") + x[0]).device.type == "cuda"


@pytest.mark.slow
def test_data_of_the_program_is_copied_to_the_gpu() -> None:
    with gpusim.record(fake=True, device="cpu") as recording:
        w = torch.ones(2, 2, device="cuda")
        gpusim.record.phase("mine")
        w.mm(torch.tensor([[1.0, 2.0], [3.0, 4.0]], device="cuda"))
    assert events(recording.trace) == [
        "+input 16", "mine:", "+input 16", "_to_copy  > 1", "+mine 16", f"+workspace {CUBLAS}", "mm 0 1 > 2 3", "-1", "-2",
    ]  # fmt: skip
    assert recording.trace.activity.tolist() == [COPY_IN, KERNEL]


@pytest.mark.slow
def test_batch_norm_counts_its_batches_on_the_gpu() -> None:
    trace = trained(nn.Sequential(nn.Flatten(0), nn.Unflatten(0, (2, 2)), nn.BatchNorm1d(2)), torch.ones(4))
    counted = [n for n, op in enumerate(trace.op) if trace.op_names[op].startswith("aten.add_") and trace.written_bytes[n] == 8]
    assert len(counted) == 1
    with gpusim.record(fake=True) as recording:
        norm = nn.BatchNorm1d(2)
        norm(torch.ones(2, 2))
        assert norm.num_batches_tracked.is_cuda
    assert "add_" in names(recording.trace)


@pytest.mark.slow
def test_integers_are_counted_as_on_cuda() -> None:
    with gpusim.record(fake=True) as recording:
        counts = torch.histc(torch.randint(8, (64,), dtype=torch.int32), bins=8, min=0, max=7)
        assert (counts.shape, counts.dtype) == ((8,), torch.int32)
    assert "histc" in names(recording.trace)


@pytest.mark.slow
def test_a_real_model_comes_back_untouched() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(8, 3)
    model(x).sum().backward()
    optimizer.step()
    values = {key: value.clone() for key, value in model.state_dict().items()}
    gradients = [p.grad.clone() for p in model.parameters()]
    counters = [float(state["step"]) for state in optimizer.state.values()]
    with gpusim.record(fake=True):
        model.half().float()
        model(x).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(torch.equal(values[key], value) for key, value in model.state_dict().items())
    assert all(torch.equal(a, p.grad) for a, p in zip(gradients, model.parameters(), strict=True))
    assert [float(state["step"]) for state in optimizer.state.values()] == counters
    assert type(next(model.parameters())) is nn.Parameter
    assert not torch.cuda.is_available() or torch.cuda.device_count()  # the real answer again
    model(x).sum().backward()


@pytest.mark.slow
def test_the_same_program_gives_the_same_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        with gpusim.record(tmp_path / f"{name}.npz", fake=True, name="same"):
            nn.Linear(3, 4)(torch.ones(2, 3)).sum().backward()
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert load_trace(tmp_path / "a.npz").name == "same"


# --- scripts ----------------------------------------------------------------------------------------------------------

SCRIPT = """
import argparse
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int)
parser.add_argument("--amp", action="store_true")
options = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
torch.cuda.manual_seed_all(0)
data = TensorDataset(torch.randn(64, 8), torch.randint(0, 4, (64,)))
loader = DataLoader(data, batch_size=16, shuffle=True, num_workers=2, pin_memory=True)
model = nn.Sequential(nn.Linear(8, options.width), nn.ReLU(), nn.Dropout(0.1), nn.Linear(options.width, 4)).to(device)
assert next(model.parameters()).is_cuda and str(next(model.parameters()).device) == "cuda:0"
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
scaler = torch.amp.GradScaler("cuda", enabled=options.amp)
for epoch in range(1000):
    total = 0.0
    for x, y in loader:
        x, y = x.to(device, non_blocking=True), y.cuda(non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16, enabled=options.amp):
            loss = F.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        schedule.step()
        total += loss.item()
        print(f"loss {loss.item():.3f}, mean {total / 16:.3f}, {torch.cuda.max_memory_allocated() / 2**20:.1f} MiB")
    torch.cuda.synchronize()
    torch.save(model.state_dict(), "model.pt")
"""


def run(tmp_path: Path, text: str, *more: str, monkeypatch: Any) -> Any:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(text)
    return CliRunner().invoke(app, ["record", "train.py", *more, "-o", "out.npz"])


@pytest.mark.slow
@pytest.mark.parametrize("amp", [False, True])
def test_a_training_script_as_it_is(tmp_path: Path, monkeypatch: Any, amp: bool) -> None:
    result = run(tmp_path, SCRIPT, "--width", "32", *(["--amp"] if amp else []), "--steps", "3", monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output
    trace = load_trace(tmp_path / "out.npz")
    assert [phase for phase in trace.phases if phase.endswith("opt")] == [f"step{n}.opt" for n in range(3)]
    assert sum(trace.activity == COPY_IN) == 2 * 2  # batches of steps 1 and 2; the first one is there before its step
    assert "loss ?, mean ?" in result.stderr
    assert "train.py:34: a value that is not computed" in result.stderr
    assert not (tmp_path / "model.pt").exists()
    kinds = {trace.categories[c] for c in trace.category}
    assert {"param", "input", "grad", "opt", "workspace"} < kinds
    product = trace.dtypes[trace.dtype[names(trace).index("addmm")]]
    assert product == ("float16" if amp else "float32")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("while loss > 0: pass", "a loop ends by a value"),
        ("x[x > 0].sum()", "depends on values"),
        ("range(int(loss))", "into an integer"),
        ("loss.detach().cpu().numpy()", ".numpy()"),
        ("x.split(x.sum(1).tolist())", ".tolist()"),
        ("x[:, : loss.item()]", "sizes by a value"),
        ("int(loss.item())", "sizes by a value"),
        ("torch.zeros(loss.item())", "a value that a recording does not compute"),
        ("torch.arange(loss.item())", "as long as a value says"),
        ("torch.cuda.CUDAGraph()", "CUDA graphs"),
        ("torch.library.define('mine::op', '(Tensor x) -> Tensor'); "
         "torch.library.impl('mine::op', 'cpu', lambda x: x.clone()); torch.ops.mine.op(x)", "fake"),
        ("x.data_ptr()", "asks for a tensor's address"),
        ("raise ValueError('my own')", "ValueError: my own"),
        ("raise SystemExit(3)", "exit code 3"),
        ("import not_there", "not_there"),
    ],
)  # fmt: skip
def test_what_cannot_be_recorded_is_said_with_its_line(tmp_path: Path, monkeypatch: Any, line: str, said: str) -> None:
    text = f"import torch\nx = torch.randn(4, 4, device='cuda')\nloss = x.mm(x).sum()\n{line}\n"
    result = run(tmp_path, text, monkeypatch=monkeypatch)
    assert result.exit_code == 2, (result.output, result.exception)
    assert "train.py:4: " in result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr
    assert not (tmp_path / "out.npz").exists()


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        ("loss.item() > 0.5", "true"),
        ("loss.item() > 2", "false"),
        ("loss > 2", "false"),
        ("not torch.isfinite(loss)", "true"),  # what was asked for, not what follows from it
        ("torch.isnan(loss)", "false"),
        ("torch.isnan(loss).item()", "false"),
        ("torch.isinf(x).any() or torch.isnan(x).any()", "false"),
        ("(x.isfinite().all() & (x == 1).any())", "true"),
        ("torch.zeros(3, dtype=torch.int64, device='cuda').max() == 0", "true"),
        ("torch.tensor(7, device='cuda') in (6, 7)", "true"),
        ("loss.item() < float('inf')", "true"),
        ("loss", "true"),
    ],
)
def test_a_condition_goes_the_way_of_a_run_without_trouble(
    tmp_path: Path, monkeypatch: Any, condition: str, outcome: str
) -> None:  # fmt: skip
    text = f"import torch\nx = torch.randn(4, 4, device='cuda')\nloss = x.mm(x).sum()\nprint('took', bool({condition}))\n"
    result = run(tmp_path, text, monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output
    told = [line for line in result.stderr.splitlines() if "a condition asks" in line]
    assert told and all("train.py:4: " in line for line in told)
    assert told[-1].endswith(f"taken as {outcome}")
    assert f"took {outcome.title() if not condition.startswith('not') else 'False'}" in result.stderr


@pytest.mark.slow
def test_ranges_are_decorators_and_an_accelerator_answers() -> None:
    with gpusim.record(fake=True, device="cpu"):

        @torch.cuda.nvtx.range("step")
        def step() -> Any:
            return torch.ones(2, 2, device=torch.accelerator.current_accelerator()).sum()

        assert step().is_cuda
        assert (torch.accelerator.device_count(), torch.accelerator.current_device_index()) == (1, 0)
        assert not torch.accelerator.current_stream().is_capturing()
        gone = torch.ones(2, 2, device="cuda")
        assert torch.accelerator.memory_allocated() == torch.cuda.memory_allocated() >= gone.nbytes


@pytest.mark.slow
def test_an_optimizer_that_never_says_no_grad_has_its_own_phase() -> None:
    class Plain(torch.optim.Optimizer):
        def __init__(self, params: Any, lr: float) -> None:
            super().__init__(params, {"lr": lr})

        def step(self, closure: Any = None) -> None:
            for p in self.param_groups[0]["params"]:
                decayed = p * 0.5  # makes a graph
                p.data.add_(decayed.data + p.grad.data, alpha=-0.1)

    trace = trained(nn.Linear(3, 4, bias=False), torch.ones(2, 3), steps=2, make=Plain)
    phases = [trace.phases[p] for p in trace.phase]
    in_optimizer = [name for name, phase in zip(names(trace), phases, strict=True) if phase.endswith(".opt")]
    assert in_optimizer == ["mul", "add", "add_"] * 2
    assert {phase for phase in phases if phase.startswith("step1")} == {"step1.fwd", "step1.bwd", "step1.opt"}


@pytest.mark.slow
def test_an_optimizer_in_the_backward_pass() -> None:
    with gpusim.record(fake=True) as recording:
        model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Linear(4, 5, bias=False))
        optimizers = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}

        def update(p: Any) -> None:
            optimizers[p].step()
            optimizers[p].zero_grad()

        for p in model.parameters():
            p.register_post_accumulate_grad_hook(update)
        for _ in range(2):
            model(torch.ones(2, 3)).sum().backward()
    trace = recording.trace
    order = [trace.phases[arg] for kind, arg in zip(trace.kind, trace.arg, strict=True) if kind == PHASE]
    assert order[:2] == ["step0.fwd", "step0.bwd"]
    assert "step1.opt" in order
    grads = [t for t in range(trace.tensors) if trace.categories[trace.category[t]] == "grad"]
    first, second = (trace.events - 1 - trace.arg[::-1].tolist().index(t) for t in grads[:2])
    assert first != second
    assert trace.kind[trace.arg == grads[0]].tolist().count(FREE) == 1  # each gradient goes before the next one is there


@pytest.mark.slow
def test_activations_wait_on_the_host() -> None:
    with gpusim.record(fake=True, device="cpu") as recording:
        model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).cuda()
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            loss = model(torch.randn(64, 8).cuda()).square().mean()
        loss.backward()
    trace = recording.trace
    by_phase = [(trace.phases[p], int(a)) for p, a in zip(trace.phase, trace.activity, strict=True)]
    assert ("step0.fwd", COPY_OUT) in by_phase
    assert ("step0.bwd", COPY_IN) in by_phase


@pytest.mark.slow
def test_a_product_copies_the_matrix_that_cublas_cannot_take() -> None:
    with gpusim.record(fake=True) as recording:
        x = torch.ones(4, 6)
        x.t() @ x  # as it lies
        torch.ones(1, 1).expand(6, 4) @ x
    trace = recording.trace
    sizes = [int(s) for s, c in zip(trace.size, trace.category, strict=True) if trace.categories[c] == "workspace"]
    assert sizes == [CUBLAS, 6 * 4 * 4]
    copied = next(t for t in range(trace.tensors) if trace.categories[trace.category[t]] == "workspace" and trace.size[t] == 96)
    assert copied in trace.arg[trace.kind == FREE]


@pytest.mark.slow
def test_one_rank_of_a_group_of_processes(monkeypatch: Any) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    sizes = {}
    for world in (1, 4):
        monkeypatch.setenv("WORLD_SIZE", str(world))
        monkeypatch.setenv("RANK", "0")
        with gpusim.record(fake=True, device="cpu") as recording:
            torch.distributed.init_process_group("nccl")
            assert torch.distributed.get_backend() == "nccl"
            model = fully_shard(nn.Linear(16, 64, bias=False).cuda(), mesh=init_device_mesh("cuda", (world,)))
            optimizer = torch.optim.Adam(model.parameters())
            model(torch.ones(2, 16, device="cuda")).sum().backward()
            optimizer.step()
        trace = recording.trace
        sizes[world] = sorted(int(s) for s, c in zip(trace.size, trace.category, strict=True) if trace.categories[c] == "opt")
        assert any("allgather" in name for name in trace.op_names) == (world > 1)
        assert not torch.distributed.is_initialized()
    assert {world: found[:2] for world, found in sizes.items()} == {1: [4096, 4096], 4: [1024, 1024]}  # shards of the moments


def test_a_placeholder_in_a_tensor_of_the_host_is_told(tmp_path: Path, monkeypatch: Any) -> None:
    text = '''import torch
x = torch.randn(4, 4, device='cuda')
losses = torch.zeros(2)
losses[0] = x.mm(x).sum().item()
print(torch.tensor([x.sum().tolist()]).mean())
(x * x.sum().item()).sum()
'''
    result = run(tmp_path, text, monkeypatch=monkeypatch)
    assert result.exit_code == 0, result.output
    told = [line.split(":")[3] for line in result.stderr.splitlines() if "put into a tensor of the host" in line]
    assert told == ["4", "5"]
    assert "tensor(1.)" in result.stderr


def test_a_script_that_uses_no_gpu_is_told_how_to(tmp_path: Path, monkeypatch: Any) -> None:
    text = "import torch\ntorch.nn.Linear(4, 4)(torch.randn(2, 4)).sum().backward()\n"
    result = run(tmp_path, text, monkeypatch=monkeypatch)
    assert result.exit_code == 2
    assert "nothing ran on the GPU" in result.stderr
    assert run(tmp_path, text, "--device", "cuda", monkeypatch=monkeypatch).exit_code == 0
    assert load_trace(tmp_path / "out.npz").ops > 0


@pytest.mark.slow
def test_options_that_do_not_exist() -> None:
    with pytest.raises(RecordError, match=r"'hoper'.*hopper"):
        gpusim.record(fake=True, gpu="hoper")
    with pytest.raises(RecordError, match="no folder 'nowhere'"):
        gpusim.record("nowhere/a.npz", fake=True)
    with pytest.raises(RecordError, match="already running"), gpusim.record(fake=True), gpusim.record(fake=True):
        pass


@pytest.mark.parametrize(("words", "says"), [
    (["--mode"], "'--mode' has no value"),
    (["batch", "4"], "'batch' is no option"),
    (["--btch", "4"], "did you mean 'batch'"),
])  # fmt: skip
def test_options_of_a_model_that_are_wrong(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, ["record", "--zoo", "gpt2-small", *words])
    assert done.exit_code == 2
    assert says in done.stderr


def test_without_torch_one_sentence() -> None:
    code = """
import sys
sys.modules["torch"] = None
import gpusim
try:
    gpusim.record("x.npz")
except gpusim.base.errors.GpusimError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "recording needs PyTorch (pip install 'gpusim[torch]')", done.stderr


@pytest.mark.slow
def test_a_program_can_tell_that_it_is_recorded() -> None:
    assert not gpusim.record.active()
    with pytest.warns(RecordWarning, match="shows as"), gpusim.record(fake=True):
        assert gpusim.record.active()
        x = torch.ones(3, 3)
        assert f"{x.mm(x).sum().item():.2f}" == f"{x.mm(x).sum():.2f}" == "?"
        with pytest.raises(TypeError):
            f"{x.mm(x):.2f}"
    assert not gpusim.record.active()
