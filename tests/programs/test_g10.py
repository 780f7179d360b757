"""Does a G10 trace become the program that its header sums up?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.importers.g10 import read
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE

INCEPTION = Path(__file__).parents[1] / "data" / "traces" / "g10_inceptionv3_b512.jsonl.gz"


def small(**changes: Any) -> bytes:
    """A weight w, an activation a of three kernels, a workspace and a gradient; changes: "t1": {...}, "k0": {...}, ..."""
    rows: dict[str, dict[str, Any]] = {
        "header": {"format": "g10-neutral-trace/1", "net": "Tiny", "batch": 4, "n_kernels": 3, "n_tensors": 4},
        "t0": {"t": 0, "bytes": 10, "global": 1, "ws": 0, "first": None, "end": None, "out_only": 0},
        "t1": {"t": 1, "bytes": 5000, "global": 0, "ws": 0, "first": 0, "end": 2, "out_only": 0},
        "t2": {"t": 2, "bytes": 77, "global": 0, "ws": 1, "first": 0, "end": 1, "out_only": 1},
        "t3": {"t": 3, "bytes": 20, "global": 0, "ws": 0, "first": 1, "end": 3, "out_only": 0},
        "k0": {"k": 0, "op": "Conv2d_Forward", "ms": 0.25, "in": [0], "out": [1, 2], "ws": 2, "req": [0, 2, 1]},
        "k1": {"k": 1, "op": "Conv2d_Backward_Input", "ms": 1.5, "in": [0, 1], "out": [3], "ws": None, "req": [3, 1, 0]},
        "k2": {"k": 2, "op": "Conv2d_Apply_Grad", "ms": 0.000004, "in": [0, 3], "out": [0], "ws": None, "req": [3, 0]},
    }
    for name, row in rows.items():
        if "k" in row:
            row |= {"ms_in_fault": 2.0, "ms_all_fault": 3}
        row |= changes.get(name, {})
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows.values())


def test_a_trace_is_what_its_lines_say(tmp_path: Path) -> None:
    (tmp_path / "tiny.jsonl").write_bytes(small())
    trace = import_trace(tmp_path / "tiny.jsonl")
    assert trace.name == "tiny-b4" and trace.size.tolist() == [10, 5000, 77, 20]
    assert list(zip(trace.kind.tolist(), trace.arg.tolist(), strict=True)) == [
        (ALLOC, 0), (PHASE, 0), (ALLOC, 1), (ALLOC, 2), (OP, 0), (FREE, 2), (PHASE, 1), (ALLOC, 3), (OP, 1), (FREE, 1), (OP, 2),
        (FREE, 3),
    ]  # fmt: skip
    assert trace.read_id.tolist() == [0, 1, 0, 3, 0] and trace.write_id.tolist() == [2, 1, 3, 0]  # in the order of req
    assert trace.duration.tolist() == [250_000, 1_500_000, 4] and trace.read_bytes.tolist() == [10, 5010, 30]
    assert [trace.categories[c] for c in trace.category] == ["param", "fwd", "workspace", "bwd"]
    assert trace.meta["fault_ns"] == {"in": [2_000_000] * 3, "all": [3_000_000] * 3} and trace.meta["warnings"] == []


@pytest.mark.oracle
def test_a_real_trace_has_the_sums_of_its_header() -> None:
    with gzip.open(INCEPTION) as file:
        said = json.loads(file.readline())
    trace = import_trace(INCEPTION)
    paged = -(-trace.size // 4096) * 4096
    assert (trace.name, trace.ops, trace.tensors) == ("inceptionv3-b512", said["n_kernels"], said["n_tensors"])
    assert trace.duration.sum() == round(said["ideal_ms"] * 1e6)
    assert paged.sum() == said["total_bytes_one_iter_paged"]
    assert paged[trace.category == trace.categories.index("param")].sum() == said["weight_bytes"]
    live = live_bytes(trace, paged)
    assert live.max() == said["live_peak_bytes_paged"]
    assert live[trace.kind == OP].argmax() == said["live_peak_kernel"]
    touched = [
        int(paged[np.union1d(trace.read_id[r0:r1], trace.write_id[w0:w1])].sum())
        for r0, r1, w0, w1 in zip(
            trace.read_start[:-1], trace.read_start[1:], trace.write_start[:-1], trace.write_start[1:], strict=True
        )
    ]
    assert max(touched) == said["max_kernel_working_set_bytes"] == touched[said["max_kernel_working_set_kernel"]]
    assert "Apache-2.0" in trace.meta["licence"]
    assert trace.meta["warnings"] == ["53 s of the kernel times do not depend on the batch: compare with this study only"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"header": {"n_kernels": 4}}, "x:8: there are 3 kernels, but the header says 4 .is the file cut short"),
        ({"header": {"n_tensors": 5}}, "x:5: there are 4 tensors, but the header says 5"),
        ({"header": {"batch": "4"}}, "x:1: 'batch' is missing, or not int"),
        ({"t2": {"t": 3}}, "x:4: tensor 3 stands where tensor 2 is due"),
        ({"t1": {"bytes": -1}}, "x:3: 'bytes' is -1"),
        ({"t1": {"end": None}}, "x:3: 'end' is missing, or not int"),
        ({"t1": {"end": 4}}, "x:3: tensor 1 lives from kernel 0 to before kernel 4"),
        ({"k1": {"in": [9]}}, "x:7: kernel 1 uses tensor 9, but there are 4"),
        ({"k1": {"in": ["1"]}}, "x:7: kernel 1 uses tensor 1, but there are 4"),
        ({"k2": {"in": [1]}}, "x:8: kernel 2 uses tensor 1, which lives from kernel 0 to before kernel 2"),
        ({"k0": {"ms": -0.5}}, "x:6: 'ms' is -0.5"),
        ({"k0": {"ms": None}}, "x:6: 'ms' is missing, or not float"),
    ],
)
def test_a_bad_line_is_named(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read(small(**changes), "x")


def test_a_trace_cut_short_is_refused() -> None:
    whole = small()
    with pytest.raises(TraceError, match="x:8: this line is not a JSON object"):
        read(whole[:-20], "x")
    with pytest.raises(TraceError, match="x:7: there are 2 kernels, but the header says 3"):
        read(whole[: whole.rindex(b'{"k"')], "x")
    with pytest.raises(TraceError, match="there are 0 kernels"):
        read(whole[: whole.index(b'{"k"')], "x")
