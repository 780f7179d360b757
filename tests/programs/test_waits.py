"""Does a recording know where the host waits for the device, and whether the program needs what it waits for?"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import gpusim
from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import SYNC, Trace
from gpusim.trace.waits import KEY, HostWait, host_waits

SCRIPT = """
import torch

w = torch.randn(64, 64, device="cuda", requires_grad=True)
total = 0.0
for step in range(4):
    x = torch.randn(8, 64).{copy}
    loss = (x @ w).square().mean()
    loss.backward()
    {line}
    w.grad = None
"""
READ = "a value of the GPU is read"


def waits(tmp_path: Path, line: str = "pass", copy: str = 'to("cuda", non_blocking=True)') -> dict[str, HostWait]:
    """Line of the script -> the wait there, in two recorded steps."""
    pytest.importorskip("torch")
    from gpusim.programs.record.script import record_script

    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(line=line, copy=copy))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trace = record_script(script, [], tmp_path / "trace.npz", device="cpu")
    assert (trace.kind == SYNC).sum() == sum(wait.count for wait in host_waits(trace))
    lines = script.read_text().splitlines()
    return {lines[int(wait.line.rpartition(":")[2]) - 1].strip(): wait for wait in host_waits(trace)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("total += loss.item()", READ),
        ("total += float(loss)", READ),
        ('print(f"{loss.item():.3f}")', READ),
        ("torch.cuda.synchronize()", "synchronize()"),
        ("torch.cuda.current_stream().synchronize()", "synchronize()"),
        ("kept = loss.detach().cpu()", "a copy that blocks"),
        ("kept = torch.tensor([1.0, 2.0], device='cuda')", "a copy that blocks"),
    ],
)
def test_each_kind_of_wait_is_recorded_with_its_line(tmp_path: Path, line: str, what: str) -> None:
    found = waits(tmp_path, line)
    assert set(found) == {line} and found[line].what == what and not found[line].decides
    assert found[line].count >= 2


@pytest.mark.slow
def test_what_does_not_block_is_no_wait(tmp_path: Path) -> None:
    assert waits(tmp_path) == {} == waits(tmp_path, "kept = loss.detach().to('cpu', non_blocking=True)")


@pytest.mark.slow
def test_a_batch_that_is_copied_from_pageable_memory_is_waited_for(tmp_path: Path) -> None:
    (found,) = waits(tmp_path, copy="cuda()").values()
    assert found.what == "a copy that blocks" and found.count >= 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [
        "total = 1.0 if loss.item() < 3.0 else total",
        "total = total if loss > 3.0 else 1.0",
        "total += 1.0 if loss.item() else 0.0",
        "a, b = loss.item(), w.sum().item(); total += 1.0 if a + b > 3.0 else 0.0",
    ],
)
def test_a_wait_whose_value_decides_says_so(tmp_path: Path, line: str) -> None:
    assert waits(tmp_path, line)[line].decides


@pytest.mark.slow
def test_of_two_reads_only_the_one_that_a_condition_depends_on_decides(tmp_path: Path) -> None:
    found = waits(tmp_path, "total += loss.item()\n    total = 1.0 if w.sum().item() > 0 else total")
    assert [wait.decides for wait in found.values()] == ["1.0 if" in line for line in found]


def made() -> Trace:
    build = TraceBuilder("made")
    build.begin_phase("step0.fwd")
    x = build.alloc(1 << 20)
    for place in (0, 1, 0, -1, 7):
        build.op("work", [x], [x], flops=1e6)
        build.event(SYNC, place)
    build.meta = {KEY: [{"line": "a.py:1", "what": READ, "decides": False}, {"line": "a.py:2", "what": READ, "decides": True}]}
    return build.finish()


def test_waits_are_counted_by_line_and_others_have_none() -> None:
    assert host_waits(made()) == [
        HostWait("", "", False, 2), HostWait("a.py:1", READ, False, 2), HostWait("a.py:2", READ, True, 1)
    ]  # fmt: skip


def test_waits_are_left_out_by_line_or_all() -> None:
    assert host_waits(gpusim.transform(made(), "without_waits(line=a.py:1)")) == [
        HostWait("", "", False, 2), HostWait("a.py:2", READ, True, 1)
    ]  # fmt: skip
    assert not (gpusim.transform(made(), "without_waits").kind == SYNC).any()
    with pytest.raises(TraceError, match=r"the host does not wait at a.py:3 \(did you mean 'a.py:[12]'"):
        gpusim.transform(made(), "without_waits(line=a.py:3)")
    with pytest.raises(TraceError, match="the host does not wait for the device"):
        gpusim.transform(gpusim.transform(made(), "without_waits"), "without_waits")


def test_a_line_stays_with_its_wait_through_another_transform() -> None:
    kept = gpusim.transform(made(), "without_waits(line=a.py:2)")
    assert {wait.line for wait in host_waits(gpusim.transform(kept, "without_waits(line=a.py:1)"))} == {""}


@pytest.mark.parametrize("told", [None, "x", [3, None], [{"line": 5}]])
def test_damaged_words_about_waits_leave_waits_without_a_line(told: object) -> None:
    trace = made()
    trace.meta[KEY] = told
    assert sum(wait.count for wait in host_waits(trace)) == 5
