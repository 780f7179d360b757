"""`gpusim oom` as it is typed: a script, the error's text, several files, what it names in tables and how wide they are."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from bump_allocator import BUMP
from oom_snapshots import GIB, MIB, Expandable
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.programs.recordings import import_trace
from gpusim.studies.fragmentation.holders import BEFORE, holders

LEAKY = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256))
optimizer = torch.optim.AdamW(model.parameters())
history = []
for step in range(20):
    x = torch.randn(1024, 256)
    model(x).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    history.append(x)
"""
# PyTorch's own words, of a GPU on which another process has 11.7 GiB.
MESSAGE = (
    "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 15.77 GiB of which 64.00 MiB is free. "
    "Including non-PyTorch memory, this process has 4.00 GiB memory in use."
)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["oom", *map(str, words)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


def failed(live: int) -> dict[str, Any]:
    """So many MiB live in PyTorch when 1 GiB is asked for, of which the device has 64 MiB."""
    device = Expandable(0)
    device.alloc(live * MIB)
    device.oom(GIB, free=64 * MIB)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    return {"segments": [device.segment()], "device_traces": [device.events], "allocator_settings": settings}


@pytest.mark.slow
def test_a_script_is_recorded_and_its_leak_named(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    Path("train.py").write_text(LEAKY)
    command = [sys.executable, "-m", "gpusim", "oom", "train.py", "--capacity", "64 MiB", "--no-figures", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    [leak] = found["leaks"]
    assert leak["per_step"] == 1024 * 256 * 4 and leak["bytes"] == leak["per_step"] * leak["tensors"]
    assert "leak" in [cause["kind"] for cause in found["causes"]]
    assert found["advice"][0]["setting"].startswith("free what each step leaves behind")
    assert (tmp_path / "results" / "oom-train" / "train.npz").is_file()


@pytest.mark.slow
def test_memory_of_another_process_is_named_when_the_message_tells_the_total() -> None:
    Path("s.pickle").write_bytes(pickle.dumps(failed(4000)))
    Path("error.txt").write_text(MESSAGE)
    plain = json.loads(said("s.pickle", "--no-figures", "--json").stdout)
    assert [cause["kind"] for cause in plain["causes"]] == ["shortage"]
    for message in (MESSAGE, "error.txt"):
        found = json.loads(said("s.pickle", "--message", message, "--no-figures", "--json").stdout)
        [foreign] = [cause for cause in found["causes"] if cause["kind"] == "foreign"]
        assert foreign["bytes"] == round(15.77 * GIB) - (4000 + 64) * MIB
        assert found["device"] == round(15.77 * GIB) and found["capacity"] == (4000 + 64) * MIB


def test_an_allocator_of_ones_own_is_tried_beside_what_the_program_ran_with() -> None:
    Path("own.py").write_text(BUMP)
    words = ("gpt-medium-infer-snapshot", "--try", "bump", "--json")
    found = json.loads(said(*words, "--use", "own.py", "--format", "png").stdout)
    held = {tried["label"]: tried["held"] for tried in found["candidates"]}
    assert held["bump"] == [80 * GIB] * 2 > held["default settings"]  # it takes the whole device at once
    assert Path("results/oom-gpt-medium-infer-snapshot/heap.png").is_file()  # drawn by another process
    assert "there is no place policy 'bump'" in said(*words, code=2).stderr
    assert "there is no file 'none.py' (--use takes a Python file" in said(*words, "--use", "none.py", code=2).stderr


def test_a_capacity_below_what_was_held_is_refused() -> None:
    Path("s.pickle").write_bytes(pickle.dumps(failed(4000)))
    assert "the program held 3.91 GiB, more than a capacity of 1 GiB" in said("s.pickle", "--capacity", "1 GiB", code=2).stderr


def test_of_several_files_a_broken_one_is_left_out_and_named() -> None:
    good = pickle.dumps(failed(4000))
    Path("good.pickle").write_bytes(good)
    Path("cut.pickle").write_bytes(good[: len(good) // 2])
    done = said("good.pickle", "cut.pickle", "--no-figures")
    assert "left out: cut.pickle: the pickle is cut short or damaged" in done.stderr
    assert done.stdout.startswith("Out of memory on a request of 1 GiB")
    assert "cut short" in said("cut.pickle", "cut.pickle", "--no-figures", code=2).stderr


def test_a_file_that_is_not_there_is_called_that() -> None:
    assert "nothere.pickle: there is no such file" in said("nothere.pickle", code=2).stderr


@pytest.mark.slow
def test_lines_have_room_in_a_terminal_and_settings_are_named_as_users_write_them() -> None:
    done = said("gpt-medium-train-snapshot", "--no-figures").stdout
    assert max(map(len, done.splitlines())) <= 120
    assert "expandable_segments:True" in done and "pytorch(conf" not in done and "(as it ran)" in done
    assert "cudaMallocAsync" not in done
    others = said("gpt-medium-train-snapshot", "--no-figures", "--others").stdout
    assert "backend:cudaMallocAsync" in others and max(map(len, others.splitlines())) <= 120


def test_what_lives_since_before_the_recording_is_called_that() -> None:
    snapshot = failed(100)
    snapshot["device_traces"][0] = snapshot["device_traces"][0][-1:]  # the history begins after the allocation
    Path("s.pickle").write_bytes(pickle.dumps(snapshot))
    trace = import_trace(Path("s.pickle"), None)
    assert [(row.name, row.bytes) for row in holders(trace, trace.events)["stack"]] == [(BEFORE, 100 * MIB)]
