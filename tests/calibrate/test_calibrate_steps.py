"""Whole training steps: is an offloaded step the one that hooks would run, and what does a folder of measured steps say?

No GPU is asked for anything: the programs are recorded on fake tensors or written down, the measured numbers made up.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hand_worked import machine
from test_calibrate_readers import run

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure import chosen_gpu as device
from gpusim.calibrate.measure import cuda
from gpusim.calibrate.steps import measure
from gpusim.calibrate.steps.compare import compare
from gpusim.calibrate.steps.offloaded import offloaded, saved
from gpusim.calibrate.steps.recording import OFFLOAD, PREFETCH, RESIDENT, MeasuredStep, read, write
from gpusim.engine.run.simulate import simulate
from gpusim.machine.profile import Profile
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import Trace

SIZE = 4_000_000  # bytes: 400 us to the device, 500 us to the host


def step() -> Trace:
    """Forward a, b of 1 ms each, backward b, a of 2 ms each; a parameter and a small tensor are used by all of them."""
    builder = TraceBuilder("step")
    weight, small = builder.alloc(SIZE, "param"), builder.alloc(1000)
    builder.begin_phase("step0.fwd")
    made = []
    for _ in range(2):
        made.append(builder.alloc(SIZE))
        builder.op("forward", (weight, *made[:-1], small), (made[-1],), duration=1_000_000)
    builder.begin_phase("step0.bwd")
    for u in reversed(made):
        builder.op("backward", (weight, u, small), (), duration=2_000_000)
        builder.free(u)
    return builder.finish()


def ns(trace: Trace, profile: Profile) -> int:
    return int(simulate(trace, profile, place="cuda_malloc").metrics["makespan_ns"])


def test_activations_are_what_the_backward_pass_needs_again() -> None:
    """Tensor 2 is touched last by the second forward operator and needed by the last backward one; neither weight nor small."""
    assert saved(step()) == [(2, 1, 3), (3, 1, 2)]


def test_awaited_copies_stand_in_the_way() -> None:
    """2 ms forward, two copies out of 501 us, backward 4 ms with two copies in of 401 us before its operators."""
    assert ns(step(), machine()) == 6_000_000
    assert ns(offloaded(step(), OFFLOAD), machine()) == 6_000_000 + 2 * 501_000 + 2 * 401_000


def test_a_host_that_waits_pays_for_it() -> None:
    """Each copy out costs 9 us more than a queued one."""
    profile = machine({"link.latency_synchronised": 10_000.0})
    assert ns(offloaded(step(), OFFLOAD), profile) == 6_000_000 + 2 * 510_000 + 2 * 401_000


def test_copies_on_a_second_stream_run_beside_the_kernels() -> None:
    """Out from 2 ms on, 1002 us; then both come back, 802 us: the first backward operator waits for the first of them."""
    made = offloaded(step(), PREFETCH)
    assert sorted(set(made.stream.tolist())) == [0, 1]
    assert ns(made, machine()) == 2_000_000 + 1_002_000 + 401_000 + 4_000_000


def folder(at: Path, steps: list[MeasuredStep]) -> Path:
    save_trace(step(), at / "step.npz")
    write(at, {"gpu": "made up"}, steps)
    return at


def some() -> list[MeasuredStep]:
    whole = MeasuredStep("program", RESIDENT, 6e6, 6e6, 6e6, 10, 3 * SIZE, 4 * SIZE, 0, "step.npz")
    return [whole, replace(whole, way=OFFLOAD, step_ns=8_000_000, moved_bytes=2 * SIZE, trace="")]


def test_measured_steps_are_compared_number_by_number(tmp_path: Path) -> None:
    found = {(f.way, f.what): f for f in compare(folder(tmp_path, some()), machine())}
    assert found[RESIDENT, "step"].error == 0
    assert found[OFFLOAD, "bytes to the host"].error == 0
    assert found[OFFLOAD, "step"].simulated == 7_804_000
    assert found[OFFLOAD, "step"].error == pytest.approx(7.804 / 8 - 1)
    assert found[RESIDENT, "allocated peak"].simulated >= 3 * SIZE


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"way": "ofload"}, "no way to keep activations.*offload"),
        ({"step_ns": float("nan")}, "nan, which cannot be measured"),
        ({"reserved_peak": -1}, "-1, which cannot be measured"),
        ({"repeats": "ten"}, "'ten', which is no number"),
        ({"trace": "other.npz"}, "other.npz', which is not in the folder"),
        ({"speed": 1}, "unknown key 'speed'"),
    ],
)
def test_what_cannot_be_is_said(tmp_path: Path, change: dict[str, object], said: str) -> None:
    path = folder(tmp_path, some()) / "steps.json"
    text = json.loads(path.read_text())
    text["steps"][1] |= change
    path.write_text(json.dumps(text))
    with pytest.raises(MeasurementError, match=said) as error:
        read(tmp_path)
    assert "step 2" in str(error.value)


def test_a_folder_without_steps_and_a_machine_without_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match=r"steps.json.*cannot be read"):
        read(tmp_path)
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(MeasurementError, match="no GPU"):
            measure.measure(tmp_path / "out")
        assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_recorded_model_is_offloaded(tmp_path: Path) -> None:
    """GPT-2 small on fake tensors: at the width of 768 a layer saves several activations of more than a MiB."""
    pytest.importorskip("torch")
    from gpusim.programs.zoo.traced import record_zoo

    trace = record_zoo("gpt2-small(batch=1, steps=1)", {}, tmp_path / "gpt2.npz")
    moved = saved(trace)
    assert len(moved) >= 5 * 12
    made = offloaded(trace, PREFETCH)
    assert made.ops == trace.ops + 2 * len(moved)
    assert int(made.read_bytes[made.activity == 2].sum()) == sum(int(trace.size[u]) for u, *_ in moved)


def test_all_of_it_says_before_it_begins_that_there_is_no_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("there is a driver")
    assert run("calibrate", "all", "-o", tmp_path / "here") == 2
    said = capsys.readouterr().err
    assert said == "gpusim: there is no NVIDIA driver on this machine, so no GPU can be measured\n"
    assert not (tmp_path / "here").exists()


def test_all_of_it_says_before_it_begins_that_there_is_no_such_profile(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda, "load", lambda: None)
    monkeypatch.setattr(device, "cards", lambda *_: [device.Card(0, "NVIDIA H300", 110, "", None, "")])
    assert run("calibrate", "all", "-o", tmp_path / "here") == 2
    assert capsys.readouterr().err == "gpusim: the catalogue has no 'H300' (say with --base which profile is nearest)\n"
    assert not (tmp_path / "here").exists()


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder(tmp_path, some())
    assert run("calibrate", "replay", tmp_path, "--on", "a100-sxm4-80gb") == 0
    assert "of 2 steps are within 10% of the time that was measured" in capsys.readouterr().out


class Stream:
    """A stream of a device that has none: everything happens at once."""

    def __init__(self, *_: object, **__: object) -> None: ...

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def record(self) -> None: ...

    def wait_stream(self, other: object) -> None: ...

    def wait_event(self, event: object) -> None: ...


@pytest.mark.slow
@pytest.mark.parametrize("way", [OFFLOAD, PREFETCH])
def test_the_hooks_give_back_what_they_were_given(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU: gradients are those without hooks, bit by bit, though what was saved has left and its place is another's."""
    torch = pytest.importorskip("torch")
    from gpusim.calibrate.steps.hooks import kept

    for name in ("Stream", "Event", "current_stream", "default_stream"):
        monkeypatch.setattr(torch.cuda, name, Stream)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda tensor, stream: None)
    torch.manual_seed(1)
    layers = [torch.nn.Linear(512, 512) for _ in range(12)]
    model = torch.nn.Sequential(*(part for layer in layers for part in (layer, torch.nn.GELU())))
    data = torch.randn(1024, 512)  # 2 MiB, as every activation

    def gradients(chosen: str) -> tuple[list[torch.Tensor], int, int]:
        model.zero_grad()
        with kept(chosen, model, "cpu") as moving:
            loss = model(data).square().mean()
        loss.backward()
        left = 0 if moving is None else sum(there is not None for there in moving._host) + len(moving._back)
        return [p.grad.clone() for p in model.parameters()], moving.moved if moving else 0, left

    plain, nothing, _ = gradients(RESIDENT)
    found, moved, left = gradients(way)
    assert all(torch.equal(a, b) for a, b in zip(plain, found, strict=True))
    # The data, what each layer hands to its GELU and that to the next layer, and the last GELU's to the square.
    assert nothing == 0 and moved == 25 * (2 << 20)
    assert left == 0, "nothing stays behind"


@pytest.mark.slow
def test_steps_run_and_are_recorded_without_the_packages_of_the_simulator(tmp_path: Path) -> None:
    """Where numba, pydantic and so on raise: a model is built and trained, a snapshot is read, a trace is written."""
    pytest.importorskip("torch")
    from gpusim.calibrate.measure.bundle import bundle

    absent = tmp_path / "absent"
    absent.mkdir()
    for name in ("simpy", "pydantic", "yaml", "numba", "typer", "matplotlib", "rich"):
        (absent / f"{name}.py").write_text(f"raise ImportError('{name}')")
    app = tmp_path / "gpusim-measure.pyz"
    assert bundle(app) < 1 << 20
    snapshot = Path(__file__).parents[1] / "data" / "traces" / "medium_512_inference.snapshot.pickle.gz"
    program = f"""
import sys
sys.path.insert(0, {str(app)!r})
from gpusim.calibrate.steps import plain
plain.install()
from pathlib import Path
from gpusim.programs import zoo
from gpusim.calibrate.steps.hooks import kept
from gpusim.programs.record.on_gpu import GpuRecording, assemble
from gpusim.trace.files import load_trace, save_trace
from gpusim.programs.recordings import import_trace
zoo.build("gpt2-small(batch=1, seq=8)").step()
save_trace(import_trace(Path({str(snapshot)!r}), "pytorch", name="x", device=0, frames=False), Path("x.npz"))
"""
    run_it = [sys.executable, "-c", program]
    done = subprocess.run(run_it, cwd=tmp_path, env={"PYTHONPATH": str(absent)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    assert load_trace(tmp_path / "x.npz").tensors > 100
    asked = [sys.executable, str(app), "-o", "m.csv", "--quick", "--only", "host", "--steps", "steps"]
    done = subprocess.run(asked, cwd=tmp_path, env={"PYTHONPATH": str(absent)}, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2 and "PyTorch sees no GPU here" in done.stderr and not (tmp_path / "m.csv").exists()
