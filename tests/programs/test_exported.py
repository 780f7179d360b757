"""What comes back of a run that was exported: its operators and nothing else; foreign traces keep their meaning."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.run.simulate import simulate
from gpusim.machine.catalogue import load
from gpusim.programs.generate.synth import random_program
from gpusim.programs.managed.text import load as read
from gpusim.programs.recordings import import_trace
from gpusim.results.viewers import chrome, perfetto
from gpusim.results.viewers.exported import ExportedRun, exported
from gpusim.trace.answers import answers
from gpusim.trace.build import TraceBuilder, make_trace
from gpusim.trace.trace import COPY_IN, OP, PHASE, Trace
from gpusim.trace.workload import build

FORMATS = {"chrome": chrome, "perfetto": perfetto}
PROFILE = load("l4")


def ran(seed: int = 4, memory: float = 0.7, **choices: Any) -> tuple[ExportedRun, Trace]:
    trace = phased(random_program(seed, ops=60, streams=2))
    peak = int(simulate(trace, PROFILE).metrics["requested_peak_bytes"])
    result = simulate(trace, PROFILE, capacity_bytes=int(peak * memory), log=True, **choices)
    return exported(result, trace), trace


def phased(trace: Trace) -> Trace:
    """The program in three phases, of which the first comes again, and some operators before them."""
    at = np.flatnonzero(trace.kind == OP)[[10, 25, 40]]
    kept = ("size", "op", "read_start", "read_id", "write_start", "write_id", "read_bytes", "written_bytes", "flops")
    columns = {name: getattr(trace, name) for name in kept}
    added = {"kind": [PHASE] * 3, "arg": [0, 1, 0], "stream": [0] * 3}
    columns |= {name: np.insert(getattr(trace, name), at, values) for name, values in added.items()}
    return make_trace("phased", columns, {"op_names": trace.op_names, "phases": ("fwd", "bwd")})


def written(run: ExportedRun, format: str, path: Path) -> Path:
    with path.open("wb") as file:
        FORMATS[format].write(run, file)
    return path


@pytest.mark.parametrize("format", FORMATS)
def test_operators_come_back_with_their_times(format: str, tmp_path: Path) -> None:
    run, trace = ran(share="none")
    back = import_trace(written(run, format, tmp_path / "run"))
    assert (back.name, back.ops, back.tensors) == (trace.name, trace.ops, 0)
    assert [back.op_names[o] for o in back.op] == [trace.op_names[o] for o in trace.op]
    assert np.array_equal(back.stream[back.kind == OP], trace.stream[trace.kind == OP])
    assert np.array_equal(back.phase, trace.phase) and back.phases == trace.phases == ("fwd", "bwd")
    assert np.bincount(trace.phase + 1).tolist() == [10, 35, 15]
    kernels = run.activities.of_kind("kernel")
    kernels = kernels[np.argsort(kernels["op"])]
    assert np.array_equal(back.duration, kernels["end"] - kernels["start"])
    assert np.array_equal(back.device_time, kernels["start"])
    can = answers(back)
    assert (can.allocator, can.accesses, can.times, can.flops) == (False, False, True, False)
    assert back.meta["format"] == f"gpusim-{format}" and back.meta["recorded_on"] == "l4"
    assert {"allocations", "accesses", "host times"} <= set(back.meta["lacks"])
    assert back.meta["left_out"]["swap_out"] == run.metrics["swap_outs"]
    assert back.meta["run"]["metrics"] == run.metrics and back.meta["warnings"] == []
    again = simulate(back, PROFILE, share="none")
    assert again.metrics["compute_busy_ns"] == run.metrics["compute_busy_ns"]


def test_a_packed_file_and_another_name(tmp_path: Path) -> None:
    run, _ = ran()
    path = tmp_path / "run.pftrace.gz"
    path.write_bytes(gzip.compress(written(run, "perfetto", tmp_path / "x").read_bytes()))
    assert import_trace(path, name="mine").name == "mine"


def test_a_run_that_ended_early_says_so(tmp_path: Path) -> None:
    trace = random_program(4, ops=60)
    result = simulate(trace, PROFILE, capacity_bytes=int(trace.size.max()) * 3 // 2, log=True)
    assert result.outcome == "oom"
    back = import_trace(written(exported(result, trace), "chrome", tmp_path / "run"))
    assert 0 < back.ops < trace.ops and "the run ended early (oom)" in back.meta["warnings"][0]


def test_under_unified_memory_stalls_are_not_the_programs(tmp_path: Path) -> None:
    work = build(random_program(3, ops=40), np.random.default_rng(3).integers(1000, 90_000, 40))
    result = simulate_unified(work, PROFILE, capacity_bytes=work.live_peak * 7 // 10, log=True)
    back = import_trace(written(exported(result, work.trace), "perfetto", tmp_path / "run"))
    # When warps stop and go on is seen at ticks: up to 1 ns for each batch.
    ticks = 4 + int(result.metrics["fault_batches"])
    assert back.ops == work.trace.ops and (np.abs(back.duration - work.duration) <= ticks).all()


def test_a_managed_program_is_no_trace(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text("arrays: {a: 4 MiB}\nsteps:\n  - kernel: k\n    accesses: [{read: a}]\n")
    result = simulate_unified(read(tmp_path / "p.yaml"), PROFILE, log=True)
    with pytest.raises(TraceError, match=r"has no operators: managed programs have steps, which are no trace"):
        import_trace(written(exported(result, None), "chrome", tmp_path / "run"))


def test_copies_of_the_program_keep_their_bytes(tmp_path: Path) -> None:
    build = TraceBuilder("copies")
    build.op("in", (), (), read_bytes=1 << 20, activity=COPY_IN, stream=3)
    build.op("k", (), (), duration=500)
    trace = build.finish()
    back = import_trace(written(exported(simulate(trace, PROFILE, log=True), trace), "chrome", tmp_path / "run"))
    assert (back.activity.tolist(), back.read_bytes.tolist()) == ([COPY_IN, 0], [1 << 20, 0])


def test_other_traces_keep_their_meaning(tmp_path: Path) -> None:
    kernel = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 3, "dur": 2,
              "args": {"device": 0, "stream": 7, "correlation": 4}}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({"otherData": {"of": "somebody"}, "traceEvents": [kernel]}))
    assert import_trace(path).meta["format"] == "kineto"
    path.write_text(json.dumps({"note": "gpusim-run", "traceEvents": [kernel]}))
    assert import_trace(path).meta["format"] == "kineto"
    path.write_bytes(bytes([0x0A, 0x07, 0x50, 0x01, 0x6A, 0x03, 0x01, 0x02, 0x03]))
    with pytest.raises(TraceError, match="a Perfetto trace is read back only where gpusim export has written it"):
        import_trace(path)
