"""Do profiles of PyTorch become the traces that they describe: tensors, kernels, their times and accesses?"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import TraceError
from gpusim.machine.kernels.classes import class_of
from gpusim.programs.recordings import import_trace
from gpusim.trace.importers.kineto_events import MemoryInstant
from gpusim.trace.importers.kineto_memory import pair
from gpusim.trace.iterations import iterations
from gpusim.trace.submission import EAGER, GRAPH, submission
from gpusim.trace.trace import ACTIVITIES, ALLOC, FREE, OP, PHASE, SYNC, Trace

DATA = Path(__file__).parents[1] / "data" / "traces"


def raw(name: str) -> Any:
    return json.loads(gzip.decompress((DATA / name).read_bytes()))


def instants(name: str) -> list[dict[str, int]]:
    """What [memory] events of the GPU say, in the order of time."""
    events = sorted((e for e in raw(name)["traceEvents"] if e.get("name") == "[memory]"), key=lambda e: e["ts"])
    return [e["args"] for e in events if e["args"]["Device Type"] == 1]


def in_use(trace: Trace) -> np.ndarray[Any, Any]:
    """Bytes in use after each alloc and free."""
    allocs, frees = trace.kind == ALLOC, trace.kind == FREE
    changes = np.where(allocs, trace.bytes, 0)
    changes[frees] = -trace.size[trace.arg[frees]]
    return np.cumsum(changes)[allocs | frees]


def operator(trace: Trace, op: int) -> tuple[str, list[int], list[int]]:
    """(name, reads, writes)"""
    sides = []
    for start, ids in ((trace.read_start, trace.read_id), (trace.write_start, trace.write_id)):
        sides.append(ids[start[op] : start[op + 1]].tolist())
    return trace.op_names[trace.op[op]], *sides


# --- real profiles ---


@pytest.mark.slow
def test_bytes_in_use_are_what_the_profile_says_after_every_event() -> None:
    trace = import_trace(DATA / "kineto_v100_ddp.json.gz")
    memory = instants("kineto_v100_ddp.json.gz")
    stated = [m["Total Allocated"] for m in memory]
    assert in_use(trace)[-len(stated) :].tolist() == stated
    assert trace.meta["recorded_peak"]["allocated"] == max(stated) and "warnings" in trace.meta
    older = trace.tensors - sum(m["Bytes"] > 0 for m in memory)
    assert trace.meta["filled"]["start"] == f"{in_use(trace)[older - 1]} bytes from before the profile, as tensors: {older}"


@pytest.mark.slow
def test_each_kernel_is_an_operator_with_its_time_and_the_name_of_its_launcher() -> None:
    trace = import_trace(DATA / "kineto_v100_ddp.json.gz")
    work = [e for e in raw("kineto_v100_ddp.json.gz")["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    assert trace.ops == len(work) and trace.duration.sum() == 1000 * sum(e["dur"] for e in work)
    names = Counter(trace.op_names[op] for op in trace.op)
    assert names["aten.mm"] > 9 and class_of("aten.mm") == "gemm"  # a name that the model of kernel times knows
    touched = set(trace.read_id.tolist()) | set(trace.write_id.tolist())
    assert len(touched) > 0.99 * trace.tensors


@pytest.mark.slow
def test_an_old_profile_has_no_addresses_and_a_free_takes_the_latest_of_its_size() -> None:
    trace = import_trace(DATA / "kineto_v100_resnet50.json.gz")
    sizes = [m["Bytes"] for m in instants("kineto_v100_resnet50.json.gz")]
    assert np.diff(in_use(trace))[-len(sizes) + 1 :].tolist() == sizes[1:]
    assert "addresses" in trace.meta["lacks"] and (trace.addr == -1).all()
    assert {name.partition(".")[2] for name in trace.phases} == {"fwd", "bwd"} and (iterations(trace) == 0).any()
    conv = [operator(trace, op) for op in range(trace.ops) if trace.op_names[trace.op[op]] == "aten.cudnn_convolution"]
    assert conv and all(writes for _, _, writes in conv)  # each writes the output that it has allocated


def test_a_profile_of_an_amd_gpu_without_memory_says_what_is_missing() -> None:
    trace = import_trace(DATA / "kineto_mi250.json.gz")
    assert trace.ops == 16 and trace.tensors == 0 and trace.meta["device"] == 2 and trace.meta["streams"] == [0]
    assert any("profile_memory=True" in warning for warning in trace.meta["warnings"])
    assert [trace.op_names[op] for op in trace.op[:3]] == ["aten.copy_", "aten.addmm", "aten.addmm"]
    assert Counter(ACTIVITIES[a] for a in trace.activity) == {"kernel": 14, "copy_in": 2}
    assert trace.read_bytes[trace.activity == 1].tolist() == [2560, 2560]  # the launch says how many
    assert trace.duration[0] == 22441 and (trace.kind == SYNC).sum() == 1


def test_a_memory_timeline_keeps_bytes_by_category() -> None:
    rows = raw("memory_timeline.raw.json.gz")
    trace = import_trace(DATA / "memory_timeline.raw.json.gz")
    live = Counter[int]()
    for _, action, size, _ in rows:
        live[0] += size if action != 3 else 0
    assert in_use(trace)[-1] == live[0] and trace.tensors == sum(action in (1, 2) for _, action, _, _ in rows)
    final = Counter[str]()
    for _, _, size, kind in rows:
        final[("param", "opt", "input", "temporary", "activation", "grad", "autograd", "unknown")[kind]] += size
    freed = set(trace.arg[trace.kind == FREE].tolist())
    left = Counter[str]()
    for tensor in set(range(trace.tensors)) - freed:
        left[trace.categories[trace.category[tensor]]] += int(trace.size[tensor])
    assert left == Counter({name: size for name, size in final.items() if size})
    assert (np.diff(trace.time[trace.time >= 0]) >= 0).all()


# --- worked by hand ---

LAUNCH, WORK = "cuda_runtime", "kernel"


def op(name: str, ts: int, dur: int, tid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "pid": 9, "tid": tid, "ts": ts, "dur": dur, "args": args}


def kernel(ts: int, dur: int, launched: int, correlation: int, *, tid: int = 1, device: int = 0, stream: int = 7) -> list[Any]:
    args = {"correlation": correlation}
    return [
        {"ph": "X", "cat": LAUNCH, "name": "cudaLaunchKernel", "pid": 9, "tid": tid, "ts": launched, "dur": 1, "args": args},
        {"ph": "X", "cat": WORK, "name": "k", "pid": 0, "tid": stream, "ts": ts, "dur": dur,
         "args": {**args, "device": device, "stream": stream}},
    ]  # fmt: skip


def memory(ts: int, size: int, addr: int, *, total: int) -> dict[str, Any]:
    args = {"Device Type": 1, "Device Id": 0, "Bytes": size, "Addr": addr, "Total Allocated": total}
    return {"ph": "i", "s": "t", "name": "[memory]", "pid": 9, "tid": 1, "ts": ts, "args": args}


def profile(tmp_path: Path, *events: Any, **options: Any) -> Trace:
    flat = [e for each in events for e in (each if isinstance(each, list) else [each])]
    path = tmp_path / "profile.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": flat}, indent=1))
    return import_trace(path, **options)


def test_accesses_follow_allocations_frees_and_shapes(tmp_path: Path) -> None:
    shapes = {"Input Dims": [[128], [256]], "Input type": ["float", "float"]}
    trace = profile(
        tmp_path,
        memory(10, 512, 0x1000, total=4096),  # tensor 1; 3584 bytes, tensor 0, were there before
        op("aten::fill_", 11, 4, **{"Input Dims": [[128], []], "Input type": ["float", "Scalar"]}), *kernel(20, 3, 12, 1),
        memory(16, 1024, 0x2000, total=5120), op("aten::zero_", 17, 3), *kernel(24, 2, 18, 2),  # tensor 2
        op("aten::add", 30, 10, **shapes), memory(31, 512, 0x3000, total=5632),  # tensor 3
        *kernel(40, 6, 33, 3), *kernel(47, 2, 36, 4),
        memory(50, -512, 0x1000, total=5120),
    )  # fmt: skip
    assert trace.size.tolist() == [3584, 512, 1024, 512]
    assert trace.addr[trace.kind == ALLOC].tolist() == [-1, 0x1000, 0x2000, 0x3000]
    assert operator(trace, 0) == ("aten.fill_", [], [1])
    assert operator(trace, 1) == ("aten.zero_", [], [2])
    assert operator(trace, 2) == ("aten.add", [1, 2], [3])  # both inputs by their sizes, the output as it allocates it
    assert operator(trace, 3) == ("aten.add", [1, 2], [3])  # its second kernel, before the free of tensor 1
    assert trace.duration.tolist() == [3000, 2000, 6000, 2000]
    assert trace.read_bytes.tolist() == [0, 0, 1152, 384] and trace.written_bytes.tolist() == [512, 1024, 384, 128]
    assert trace.time[trace.kind == OP].tolist() == [2000, 8000, 23000, 26000]


def test_kernels_of_a_cuda_graph_were_not_submitted_one_by_one(tmp_path: Path) -> None:
    def of_graph(ts: int, correlation: int) -> list[Any]:
        launch, *work = kernel(ts, 1, 3, correlation)
        return [{**launch, "name": "cudaGraphLaunch"}, *work]

    eager = [kernel(20 + i, 1, 10 + i, i) for i in (2, 3)]
    graph = profile(tmp_path, of_graph(4, 1), *of_graph(6, 1)[1:], *of_graph(8, 1)[1:], *eager)
    assert graph.ops == 5 and submission(graph) == GRAPH, "three of five"
    other = profile(tmp_path, of_graph(4, 1), *eager)
    assert submission(other) == EAGER and "submission" not in other.meta, "one of three"


def launched(tmp_path: Path, **args: Any) -> Trace:
    """A kernel whose event has these args as well, and one whose has not."""
    launch, work = kernel(4, 1, 1, 1)
    return profile(tmp_path, launch, {**work, "args": {**work["args"], **args}}, kernel(8, 1, 2, 2))


def test_a_kernel_has_the_launch_configuration_that_was_recorded(tmp_path: Path) -> None:
    told = {"grid": [4, 2, 1], "block": [128, 1, 1], "registers per thread": 40, "shared memory": 1024}
    trace = launched(tmp_path, **told)
    assert trace.launches == ("grid=4x2x1 block=128x1x1 registers=40 shared=1024",)
    assert trace.launch.tolist() == [0, -1]
    assert launched(tmp_path, grid=[0, 0, 0], block=[0, 0, 0]).launches == (), "was not recorded"
    with pytest.raises(TraceError, match=r"'grid' .* is none of a kernel"):
        launched(tmp_path, grid=[4, -2, 1], block=[128, 1, 1])


def test_copies_touch_one_tensor_of_the_gpu(tmp_path: Path) -> None:
    def copy(ts: int, launched: int, correlation: int, how: str) -> list[Any]:
        launch, work = kernel(ts, 5, launched, correlation)
        return [launch, {**work, "cat": "gpu_memcpy", "name": f"Memcpy {how}", "args": {**work["args"], "bytes": 512}}]

    shapes = {"Input Dims": [[128], [128]], "Input type": ["float", "float"]}
    trace = profile(
        tmp_path,
        memory(1, 512, 0x1000, total=512), memory(2, 512, 0x2000, total=1024), *kernel(4, 1, 3, 1),
        op("aten::copy_", 10, 5, **shapes), *copy(20, 11, 2, "HtoD (Pageable -> Device)"),
        op("aten::copy_", 30, 5, **shapes), *copy(40, 31, 3, "DtoH (Device -> Pageable)"),
    )  # fmt: skip
    assert [operator(trace, i) for i in range(3)] == [("k", [], [0, 1]), ("aten.copy_", [], [1]), ("aten.copy_", [1], [])]
    assert [ACTIVITIES[a] for a in trace.activity] == ["kernel", "copy_in", "copy_out"]
    assert trace.read_bytes.tolist() == [0, 512, 512]


def test_phases_are_steps_and_their_parts(tmp_path: Path) -> None:
    def mark(name: str, ts: int, dur: int) -> dict[str, Any]:
        return {**op(name, ts, dur), "cat": "user_annotation"}

    backward = "autograd::engine::evaluate_function: MmBackward0"
    trace = profile(
        tmp_path,
        mark("ProfilerStep#3", 0, 100), mark("Optimizer.zero_grad#SGD.zero_grad", 1, 5), *kernel(3, 1, 2, 1),
        op("aten::mm", 10, 5), *kernel(12, 1, 11, 2), op(backward, 20, 5, tid=2), *kernel(23, 1, 21, 3, tid=2),
        mark("Optimizer.step#SGD.step", 30, 5), *kernel(33, 1, 31, 4),
        mark("ProfilerStep#4", 100, 50), *kernel(112, 1, 111, 5),
    )  # fmt: skip
    named = [trace.phases[a] for a in trace.arg[trace.kind == PHASE]]
    assert named == ["step3.zero", "step3.fwd", "step3.bwd", "step3.opt", "step4.fwd"]
    unmarked = profile(
        tmp_path,
        mark("ProfilerStep#3", 0, 100), *kernel(12, 1, 11, 2), op("torch::autograd::AccumulateGrad", 20, 5, tid=2),
        *kernel(23, 1, 21, 3, tid=2), *kernel(33, 1, 31, 4), mark("ProfilerStep#4", 100, 50), *kernel(112, 1, 111, 5),
    )  # fmt: skip
    named = [unmarked.phases[a] for a in unmarked.arg[unmarked.kind == PHASE]]
    assert named == ["step3.fwd", "step3.bwd", "step3.opt", "step4.fwd"]


def test_of_joined_files_a_kernel_belongs_to_the_latest_launch_before_it(tmp_path: Path) -> None:
    trace = profile(tmp_path, op("a", 10, 5), op("b", 100, 5), *kernel(20, 1, 11, 7), *kernel(110, 1, 101, 7))
    assert [operator(trace, i)[0] for i in range(2)] == ["a", "b"]


def test_several_devices_need_a_choice(tmp_path: Path) -> None:
    events = [kernel(20, 1, 11, 1, device=0), kernel(30, 1, 21, 2, device=3, stream=20)]
    with pytest.raises(TraceError, match=r"holds 2 devices: 0, 3 \(choose one"):
        profile(tmp_path, *events)
    assert profile(tmp_path, *events, device=3).meta["streams"] == [20]
    with pytest.raises(TraceError, match=r"nothing of device 1 \(it holds: 0, 3\)"):
        profile(tmp_path, *events, device=1)


def at(time: int, size: int, addr: int = -1, total: int = -1) -> MemoryInstant:
    return MemoryInstant(time, 0, size, addr, total, -1)


def test_frees_are_paired_by_address_or_by_size() -> None:
    by_address = pair([at(0, 8, 1), at(1, 8, 2), at(2, -8, 1), at(3, -8, 9)])
    assert by_address.tensor == [1, 2, 1, 0] and by_address.older == [(8, 9)] and by_address.guessed == 0
    by_size = pair([at(0, 8), at(1, 8), at(2, -8), at(3, -16)])
    assert by_size.tensor == [1, 2, 2, 0] and by_size.older == [(16, -1)] and by_size.guessed == 1
    reused = pair([at(0, 8, 1), at(1, 4, 1), at(2, -4, 1)])
    assert reused.lost == {1: 0} and reused.tensor == [0, 1, 1]


def test_bytes_that_do_not_add_up_are_counted() -> None:
    lives = pair([at(0, 8, 1, 108), at(1, 8, 2, 116), at(2, -8, 1, 100)])
    assert lives.older == [(100, -1)] and (lives.agreeing, lives.stated) == (2, 3)


# --- what cannot be read ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"traceEvents": [\n{"ph": "X", "ts": 1},\n{"ph": "i", "na', ":3: the JSON ends early (is the file cut short?)"),
        ('{"traceEvents": [\n{"ph": "X", "ts": 1}\n{"ph": "i"}]}', ":3: ',' or ']' is missing"),
        ('{"traceEvents": [\n{"ph": "X",, "ts": 1}' + " " * 99 + "]}", ":2: this is not JSON: Expecting property name"),
        ('{"traceEvents": []}\n{"traceEvents": []}', ":2: more follows the end of the JSON (were two files joined?"),
        ('{"traceEvents": [\n{"ph": "X", "cat": "kernel", "name": "k"}\n]}', ":2: the event that ends here"),
        ('{"traceEvents": [\n7]}', ":2: the event that ends here"),
        ('{"traceEvents": []}', "neither GPU kernels nor [memory] events of a GPU (profile with activities="),
        ('{"traceEvents": [' + '{"a":' * 99999, "nested too deeply"),
        ("[[1, 2, 3], [[4, 5]]]", ":1: row 0 is not [time, action, bytes, category] (export_memory_timeline"),
        ("[[5, 2, 8, 7],\n[6, 4, -9, 7]]", ":2: row 1 is of 9 bytes of category unknown, which nothing holds"),
        ('{"workload_graph": [\n{"Id": 1}]}', "this JSON is no Chakra graph"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_its_line(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    path.write_text(text)
    with pytest.raises(TraceError) as error:
        import_trace(path)
    assert str(error.value).startswith(str(path)) and said in str(error.value), str(error.value)


def test_values_that_straddle_the_window_are_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpusim.trace.importers import json_stream

    text = '\ufeff{"a": [1, "ü\\u00fc{"], "rows": [ 12345, -1.5e3 , true, {"b": [null]}, "x" ] , "c": 77}\n'
    expected = [("a", [1, "üü{"]), *(("rows", v) for v in (12345, -1500.0, True, {"b": [None]}, "x")), ("c", 77)]
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    for chunk in range(1, 40):
        monkeypatch.setattr(json_stream, "_CHUNK", chunk)
        with path.open("rb") as file:
            assert list(json_stream.JsonStream(file, "x", "rows")) == expected
