"""Does the file that `gpusim export --as torch` writes move and recompute in PyTorch what the simulation did?

A small model is recorded without a GPU, run with a plan, and run again by PyTorch for CPUs with the file that was written.
"""

from __future__ import annotations

import ast
import importlib.util
import json
import os
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import gpusim
from gpusim.base.errors import ResultError
from gpusim.cli.app import app
from gpusim.show.torch_plan.of_run import code_of
from gpusim.show.torch_plan.plan import torch_plan
from gpusim.trace.trace import COPY_IN, COPY_OUT, Trace

torch = pytest.importorskip("torch", reason="the plan's code is for PyTorch: pip install 'gpusim[torch]'")
pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BATCH, WIDTH, MACHINE = 256, 128, "a100-pcie-40gb"
EXPERIMENT = """
question: "What does {transform} cost?"
trace: {trace}
transform: ["{transform}"]
profile: a100-pcie-40gb
policies: {{place: "{place}", evict: lru}}
bounds: false
figures: []
"""


class Block(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        h = self.up(self.norm(x))
        return x + self.down(torch.nn.functional.gelu(h) * torch.sigmoid(h))


class Network(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(WIDTH, WIDTH)
        self.blocks = torch.nn.ModuleList(Block() for _ in range(3))
        self.last = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for block in self.blocks:
            x = block(x)
        return self.last(x).relu()


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two training steps of the network, recorded; the folder is the working directory."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    network = Network()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    with gpusim.record(tmp_path / "network.npz", fake=True):
        for _ in range(2):
            torch.nn.functional.mse_loss(network(x), y).backward()
            optimizer.step()
            optimizer.zero_grad()
    return tmp_path / "network.npz"


def simulate(experiment: str, out: str) -> None:
    done = CliRunner().invoke(app, ["run", experiment, "-o", out, "--no-figures", "-j", "1"])
    assert done.exit_code == 0, done.stderr


def written_text(program: Path, transform: str, place: str = "pytorch") -> str:
    """The file that is written for a run of the program with this transform."""
    Path("plan.yaml").write_text(EXPERIMENT.format(trace=program.name, transform=transform, place=place))
    simulate("plan.yaml", "out")
    done = CliRunner().invoke(app, ["export", "out", "--as", "torch", "-o", "planned.py"])
    assert done.exit_code == 0, done.stderr
    return Path("planned.py").read_text()


def written(program: Path, transform: str, place: str = "pytorch") -> Any:
    """The module that was written for a run of the program with this transform."""
    written_text(program, transform, place)
    spec = importlib.util.spec_from_file_location("planned", "planned.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def gradients(network: Any, planned: Any, x: Any, y: Any) -> list[Any]:
    """Of one step, under the plan if it has something to say around forward."""
    with planned.plan(network, x, y) if hasattr(planned, "plan") else nullcontext():
        loss = torch.nn.functional.mse_loss(network(x), y)
    loss.backward()
    return [parameter.grad for parameter in network.parameters()]


def one_step(planned: Any) -> tuple[list[Any], list[Any]]:
    """Gradients of a step with the plan, and without."""
    torch.manual_seed(1)
    network, plain = Network(), Network()
    plain.load_state_dict(network.state_dict())
    x, y = torch.randn(BATCH, WIDTH), torch.randn(BATCH, WIDTH)
    if hasattr(planned, "apply"):
        assert planned.apply(network) is network
    return gradients(network, planned, x, y), gradients(plain, None, x, y)


def names(trace: Trace, activity: int) -> Counter[int]:
    """Bytes -> how many copies of the second step move so many."""
    last = np.array([name.startswith("step1") for name in trace.phases])[trace.phase]
    return Counter(trace.read_bytes[last & (trace.activity == activity)].tolist())


@pytest.mark.parametrize("least", ["1 KiB", "200 KiB"])
def test_hooks_move_the_tensors_that_the_simulation_moved(program: Path, least: str) -> None:
    planned = written(program, f"save_on_host(least={least})")
    with_plan, without = one_step(planned)
    assert all(torch.equal(a, b) for a, b in zip(with_plan, without, strict=True))
    simulated = gpusim.transform(gpusim.load_trace(program), f"save_on_host(least={least})")
    assert planned.MOVED == names(simulated, COPY_OUT) == names(simulated, COPY_IN) == planned.SIMULATED["MOVED"]
    assert len(planned.MOVED) >= 1 and sum(planned.MOVED.values()) >= 6


@pytest.mark.parametrize("keep", ["", "aten.addmm", "aten.native_layer_norm + aten.mul.Tensor"])
def test_checkpoints_recompute_the_operators_that_the_simulation_recomputed(program: Path, keep: str) -> None:
    """Each block again, without the operators whose results a selective policy keeps."""
    chain = f"checkpointing(keep={keep})" if keep else "checkpointing"
    planned = written(program, chain)
    with_plan, without = one_step(planned)
    assert all(torch.equal(a, b) for a, b in zip(with_plan, without, strict=True))
    recorded = gpusim.load_trace(program)
    assert planned.BLOCKS == ("blocks.0", "blocks.1", "blocks.2") and planned.ROOT == "Network"
    known = {name: count for name, count in planned.RECOMPUTED.items() if name in recorded.op_names}
    assert known == planned.SIMULATED["RECOMPUTED"] and sum(known.values()) >= 6
    assert not any(name.startswith(tuple(planned.KEEP)) for name in known) if keep else "aten.addmm.default" in known
    simulated = gpusim.transform(recorded, chain)
    assert simulated.ops - recorded.ops == 2 * sum(known.values())  # two steps
    with pytest.raises(TypeError, match="the plan is for a Network, not a Linear"):
        planned.apply(torch.nn.Linear(1, 1))


def test_the_allocators_settings_and_parts_of_a_batch_are_written(program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTORCH_CUDA_ALLOC_CONF", raising=False)
    planned = written(program, "batch(factor=0.5) | accumulate(steps=2)", "pytorch(conf=expandable_segments:True)")
    assert os.environ["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert [len(x) for (x,) in planned.parts_of(torch.zeros(6, 2))] == [3, 3]
    with pytest.raises(ValueError, match="5 samples are not 2 equal parts"):
        next(planned.parts_of(torch.zeros(5)))
    assert "forward and backward run 2 times before optimizer.step()" in planned.__doc__


@pytest.mark.parametrize(("to", "made"), [("momentum", "SGD"), ("adafactor", "Adafactor")])
def test_another_optimizer_is_made_of_torchs_own(program: Path, to: str, made: str) -> None:
    optimizer = written(program, f"optimizer(to={to})").make_optimizer(torch.nn.Linear(2, 2).parameters(), lr=0.5)
    assert type(optimizer).__name__ == made and optimizer.defaults["lr"] == 0.5
    assert optimizer.defaults.get("momentum", 0.9) == 0.9


def test_eight_bit_adam_is_that_of_its_library(program: Path) -> None:
    text = written_text(program, "optimizer(to=adam8bit)")
    assert "bitsandbytes.optim.Adam8bit(parameters, **options)" in text and "import bitsandbytes" in text


def test_the_file_says_where_it_comes_from(program: Path) -> None:
    planned = written(program, "checkpointing")
    (key,) = [folder.name for folder in Path("out/runs").iterdir()]
    for said in (f"From run {key} of out", "network.npz", "transform  checkpointing", f"profile    {MACHINE}", f"--run {key}"):
        assert said in planned.__doc__
    text = Path("planned.py").read_text()
    assert ast.get_docstring(ast.parse(text)) and max(map(len, text.splitlines())) <= 128


@pytest.mark.parametrize(
    ("spec", "metrics", "why"),
    [
        ({"evict": "lru"}, {"swap_outs": 7}, "the 7 evictions of lru cannot be said in PyTorch: its allocator evicts nothing"),
        ({"place": "best_fit"}, {}, "the allocator best_fit cannot be said in PyTorch"),
        ({"unified": "driver"}, {}, "unified memory cannot be said"),
        ({"release": "watermark"}, {}, "the release policy watermark cannot be said"),
        ({"plan": "dtr"}, {}, "'dtr' cannot be said in PyTorch: it decides tensor by tensor while the program runs"),
        ({"transform": "checkpointing(every=2)"}, {}, "segments of 2 blocks"),
        ({"transform": "checkpointing | save_on_host(least=1 B)"}, {}, "save_on_host behind checkpointing"),
        ({"transform": "save_on_host(least=1 B, ahead=2)"}, {}, "a hook is not told which one backward needs next"),
        ({"transform": "save_on_host(least=1 B, memory=fresh)"}, {}, "keeps what it has pinned"),
        ({"transform": "save_on_host(least=1 B, most=1)"}, {}, "a hook knows sizes only"),
        ({"transform": "zero(stage=1)"}, {}, "FSDP spreads gradients too"),
        ({"transform": "tensor_parallel"}, {}, "for the model's author to say"),
        ({"transform": "optimizer(to=lion)"}, {}, "torch.optim has none of that name"),
        ({}, {}, "the run changes nothing of the program"),
    ],
)
def test_what_pytorch_cannot_do_is_refused_with_the_reason(
    program: Path, spec: dict[str, Any], metrics: dict[str, Any], why: str
) -> None:
    with pytest.raises(ResultError, match=why.replace("(", r"\(").replace(")", r"\)")):
        torch_plan(spec, metrics, gpusim.load_trace(program))


def test_fsdp_gets_the_settings_of_the_simulated_stage(program: Path) -> None:
    trace = gpusim.load_trace(program)
    made = torch_plan({"transform": "zero(stage=3,ranks=4) | offload(what=all)"}, {}, trace)
    assert made.parts["sharded"] == {
        "UNITS": ("blocks.0", "blocks.1", "blocks.2"), "RANKS": 4, "RESHARD_AFTER_FORWARD": True, "ON_HOST": True,
        "PIN_MEMORY": True,
    }  # fmt: skip
    assert made.apply == ["shard"]


def test_the_best_of_a_folder_is_written_and_another_named_where_it_cannot_be(program: Path) -> None:
    text = EXPERIMENT.format(trace="gpt2-small-train", transform="none", place="pytorch")
    Path("two.yaml").write_text(text.replace('["none"]', "[none, checkpointing]"))
    simulate("two.yaml", "two")
    key = next(f.name for f in Path("two/runs").iterdir() if "checkpointing" in (f / "result.json").read_text())
    with pytest.raises(ResultError, match=f"changes nothing of the program.*--run {key}"):
        code_of(Path("two"))
    assert code_of(Path("two"), key)[0] == key and code_of(Path("two/runs") / key)[0] == key
    for path, key, why in ((Path("."), None, "not a results folder"), (Path("two"), "0", "there is no run '0'")):
        with pytest.raises(ResultError, match=why):
            code_of(path, key)
    done = CliRunner().invoke(app, ["export", "two", "--as", "jax"])
    assert done.exit_code == 2 and "a run cannot be written as 'jax'" in done.stderr


def test_a_proposal_of_advice_is_written_by_its_rank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tries = ["--try", "checkpointing", "--try", "swapping"]
    words = ["gpt2-small-train", "--on", "rtx-2080-ti", *tries, "-o", "advice", "-q", "--json"]
    done = CliRunner().invoke(app, ["advise", *words])
    assert done.exit_code == 0, done.stderr
    assert [p["change"] for p in json.loads(done.stdout)["proposals"]] == ["checkpointing"]
    done = CliRunner().invoke(app, ["export", "advice", "--as", "torch"])
    assert done.exit_code == 0 and done.stdout.startswith("gpt2-small-train-1.py: "), done.stderr
    assert "Proposal 1 of gpusim advise" in Path("gpt2-small-train-1.py").read_text()
    done = CliRunner().invoke(app, ["export", "advice", "--as", "torch", "--run", "9"])
    assert done.exit_code == 2 and "there is no proposal 9 (the ranks are 1 to 1)" in done.stderr
