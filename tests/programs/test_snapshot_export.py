"""Is an exported run a memory snapshot that PyTorch's tools, and our own importer, read?"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.policies import registry
from gpusim.policies.trials.allocator_replay import replay
from gpusim.policies.trials.allocator_requests import of_trace
from gpusim.programs.recordings import import_trace
from gpusim.show.snapshot import dump, snapshot
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC, FREE, SEGMENT_ALLOC, Trace

TRACES = Path(__file__).parents[2] / "traces"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return load_trace(TRACES / "gpt2-small-train.npz")


@pytest.mark.parametrize("place", ["pytorch", "best_fit", "tlsf"])
def test_our_importer_reads_back_the_same_program(trace: Trace, place: str, tmp_path: Path) -> None:
    done = replay(of_trace(trace), registry.get("place", place), log=True)
    file = tmp_path / "run.pickle"
    file.write_bytes(dump(snapshot(done.log, trace, title="", microseconds=False)))
    back = import_trace(file)
    for kind in (ALLOC, FREE):
        was = trace.size[trace.arg[trace.kind == kind]]
        now = back.size[back.arg[back.kind == kind]]
        assert np.array_equal(was[was > 0], now[now > 0])
    assert int((back.kind == SEGMENT_ALLOC).sum()) == done.counts["device_allocs"]
    assert back.meta["start"]["segments"] == back.meta["start"]["tensors"] == 0


def test_segments_are_tiled_by_their_blocks(trace: Trace) -> None:
    done = replay(of_trace(trace), registry.get("place", "pytorch"), log=True)
    found = snapshot(done.log, trace, title="")
    assert sum(s["total_size"] for s in found["segments"]) == done.S[0]
    for segment in found["segments"]:
        at = segment["address"]
        for block in segment["blocks"]:
            assert block["address"] == at
            at += block["size"]
        assert at == segment["address"] + segment["total_size"]
        assert segment["allocated_size"] == sum(b["size"] for b in segment["blocks"] if b["state"] == "active_allocated")


def test_a_program_that_frees_all_it_has_leaves_free_blocks() -> None:
    trace = load_trace(TRACES / "gpt-medium-infer.npz")
    done = replay(of_trace(trace), registry.get("place", "pytorch"), log=True)
    segments = snapshot(done.log, trace, title="", microseconds=False)["segments"]
    assert len(segments) > 1
    for segment in segments:
        (block,) = segment["blocks"]
        assert (block["state"], block["address"], block["size"]) == ("inactive", segment["address"], segment["total_size"])


@pytest.mark.slow
def test_pytorch_reads_it(trace: Trace) -> None:
    viz = pytest.importorskip("torch.cuda._memory_viz", reason="torch is not installed")
    done = replay(of_trace(trace), registry.get("place", "pytorch"), log=True)
    found = pickle.loads(dump(snapshot(done.log, trace, title="")))
    assert "total_reserved" in viz.segsum(found)
    assert "cudaMalloc" in viz.trace(found)
    assert len(viz.trace_plot(found)) > 1000


def test_the_verb(tmp_path: Path) -> None:
    out = tmp_path / "x.pickle"
    done = CliRunner().invoke(app, ["export", "gpt2-small-train", "--place", "best_fit", "-o", str(out)])
    assert done.exit_code == 0 and "events" in done.stdout
    assert pickle.loads(out.read_bytes())["device_traces"][0]
    wrong = CliRunner().invoke(app, ["export", "gpt2-small-train", "--format", "pytroch"])
    assert wrong.exit_code == 2 and "did you mean 'pytorch'" in wrong.stderr
