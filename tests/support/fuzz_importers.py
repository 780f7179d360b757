"""Does every damaged recording either become a trace or end in one sentence?  A developer's command; tests run some of it.

    python tests/support/fuzz_importers.py --rounds 2000 [--format kineto] [--seed 1]

A small valid file of each format is damaged (`damaged.py`) and imported.  Whatever happens other than a trace, or one
TraceError that names the file in one line, is shown with the file's seed.
"""

from __future__ import annotations

import argparse
import io
import pickle
import sqlite3
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import numpy as np
from chakra_graphs import ALL_REDUCE, COLLECTIVE, COMP, SEND, graph, node
from damaged import HOSTILE, HUGE, damaged_bytes, damaged_lines, damaged_tree, outcome, text
from nsys_exports import NEW, OLD, Export
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import FORMATS, import_trace
from gpusim.results.viewers import chrome, perfetto
from gpusim.trace.importers.libcachesim import RECORD


def _node(number: int, parent: int, inputs: list[Any], outputs: list[Any], name: str = "aten::relu") -> dict[str, Any]:
    schema = "relu(Tensor a) -> Tensor" if inputs else ""
    return {"name": name, "id": number, "rf_id": number, "parent": parent, "op_schema": schema, "inputs": inputs,
            "input_types": ["Tensor(float)"] * len(inputs), "outputs": outputs}  # fmt: skip


def _attrs(number: int, parent: int, inputs: list[Any], outputs: list[Any]) -> dict[str, Any]:
    schema = {"name": "op_schema", "type": "string", "value": "relu(Tensor a) -> Tensor"}
    attrs = [{"name": "rf_id", "type": "uint64", "value": number}, schema]
    return {"id": number, "name": "aten::relu", "ctrl_deps": parent, "attrs": attrs,
            "inputs": {"values": inputs, "shapes": [[8]], "types": ["Tensor(float)"]},
            "outputs": {"values": outputs, "shapes": [[8]], "types": ["Tensor(float)"]}}  # fmt: skip


def _tensor(storage: int) -> list[Any]:
    return [storage + 10, storage, 0, 8, 4, "cuda:0"]


def _memory(ts: float, size: int, addr: int) -> dict[str, Any]:
    args = {"Device Type": 1, "Device Id": 0, "Addr": addr, "Bytes": size, "Total Allocated": 600, "Total Reserved": 900}
    return {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": ts, "args": args}


def _span(cat: str, name: str, ts: float, dur: float, tid: int = 2, pid: int = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}


def _begin(name: str, cat: str, ts: float, tid: int, **args: Any) -> dict[str, Any]:
    return {"ph": "B", "name": name, "cat": cat, "ts": ts, "pid": 0, "tid": tid, "args": args}


def _end(ts: float, tid: int) -> dict[str, Any]:
    return {"ph": "E", "ts": ts, "pid": 0, "tid": tid}


EXPORTED = {
    "otherData": {"gpusim-run": {
        "gpusim-run": 1, "title": "t l4", "key": "k", "outcome": "finished", "spec": {"trace": "t", "profile": "l4"},
        "metrics": {"makespan_ns": 9000}, "paged": True, "names": ["mm", "fwd", "copy", "stall_swap_in"],
        "lanes": [["phases", "phase", 0], ["stream 0", "stream", 0], ["stream 3", "stream", 3], ["swap in", "copy engine", 0],
                  ["stream 0: stalls", "stall", 0]],
    }},
    "traceEvents": [
        _begin("fwd", "phase", 1, 0, op=0), _begin("mm", "kernel", 1, 1, op=0), _begin("copy", "copy_in", 2, 2, op=1, bytes=64),
        _begin("copy", "swap_in", 2, 3, unit=1, bytes=9), _end(3, 2), _end(3.5, 1),
        _begin("stall_swap_in", "stall", 3.5, 4, op=2, cause=3), _end(5, 3), _end(5, 4),
        _begin("mm", "kernel", 5, 1, op=2, cause=3), _end(9, 0), _end(9, 1),
        {"ph": "C", "name": "allocated", "cat": "counters", "ts": 1, "pid": 0, "args": {"bytes": 64}},
        {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": "GPU 0"}},
    ],
}  # fmt: skip
TREES: dict[str, list[Any]] = {
    "gpusim-chrome": [EXPORTED],
    "kineto": [{"schemaVersion": 1, "traceEvents": [
        _memory(1.5, 512, 9), _span("user_annotation", "ProfilerStep#1", 1, 90),
        _span("cpu_op", "aten::add_", 2, 3, **{"External id": 1, "Input Dims": [[128]], "Input type": ["float"]}),
        _span("cuda_runtime", "cudaLaunchKernel", 2, 1, correlation=4),
        _span("kernel", "k", 3, 2, 7, 0, device=0, stream=7, correlation=4),
        _span("gpu_memcpy", "Memcpy HtoD", 6, 2, 7, 0, device=0, stream=7, correlation=5, bytes=64),
        _span("cuda_runtime", "cudaStreamSynchronize", 8, 1), _memory(9, -512, 9),
    ]}],
    "execution-trace": [
        {"schema": "1.0.1", "nodes": [
            _node(3, 2, [_tensor(1)], [_tensor(2)]), _node(4, 2, [_tensor(2), [_tensor(1)]], [_tensor(3)]),
            _node(2, 1, [_tensor(1)], [_tensor(3)], "aten::mlp"), _node(1, 1, [], [], "[root]"),
        ]},
        {"schema": "1.1.1-chakra.0.0.4", "nodes": [
            _attrs(3, 2, [_tensor(1)], [_tensor(2)]), _attrs(2, 1, [_tensor(2)], [_tensor(3)]), _attrs(1, 1, [], []),
        ]},
    ],
    "chakra": [{"workload_graph": [
        {"Id": 1, "Name": "mm", "NodeType": 4, "data_deps": [], "runtime": 9, "is_cpu_op": False},
        {"Id": 2, "Name": "ar", "NodeType": 7, "data_deps": [1], "is_cpu_op": False, "comm_type": 0, "comm_size": 64},
        {"Id": 3, "Name": "s", "NodeType": 5, "data_deps": [2], "is_cpu_op": False, "comm_dst": 1, "comm_size": 64},
        {"Id": 4, "Name": "step", "NodeType": 4, "data_deps": [3, 2], "runtime": 5, "is_cpu_op": True},
    ]}],
    "memory-timeline": [
        [[-1, 0, 8, 0], [0, 1, 8, 4], [5, 2, 8, 4], [6, 3, -8, 4]], [[-1, 1, 8, 7], [5, 2, 8, 4], [7, 3, -8, 5]],
    ],
}  # fmt: skip

GRAPH = graph(
    node(1, "mm", COMP, us=9, is_cpu_op=False, num_ops=10**9, tensor_size=4096),
    node(4, "step", COMP, [3, 2], 5, is_cpu_op=True),
    node(2, "ar", COLLECTIVE, [1], 9, is_cpu_op=False, comm_type=ALL_REDUCE, comm_size=64, pg_name="tp"),
    node(3, "s", SEND, [2], is_cpu_op=False, comm_dst=1, comm_size=64),
)
RECORDING = [
    {"ops": ["mm", "add"], "modules": ["layer"], "workload": "tiny"}, ["a", 7, 100, "param", "cpu"], ["p", "step0.fwd"],
    ["a", 9, 50, "step0.fwd", "cpu"], ["o", 0, [7], [9], 100, 50, 1000, "bfloat16", 0], ["z", 9, 60], ["f", 7],
]  # fmt: skip
G10 = [
    {"format": "g10-neutral-trace/1", "net": "n", "batch": 1, "n_kernels": 2, "n_tensors": 2},
    {"t": 0, "bytes": 4096, "global": 1, "ws": 0}, {"t": 1, "bytes": 4096, "global": 0, "ws": 0, "first": 0, "end": 2},
    {"k": 0, "op": "a", "ms": 1.0, "ms_in_fault": 1.5, "ms_all_fault": 2.0, "in": [0], "out": [1], "req": [0, 1]},
    {"k": 1, "op": "a_Backward", "ms": 1.0, "ms_in_fault": 1.5, "ms_all_fault": 2.0, "in": [1], "out": [], "req": [1]},
]  # fmt: skip
DTR = [
    {"INSTRUCTION": "CONSTANT", "NAME": "w"}, {"INSTRUCTION": "MEMORY", "NAME": "w", "MEMORY": "100"},
    {"INSTRUCTION": "CALL", "NAME": "mm", "ARGS": ["w", "w"], "RESULT": ["a"], "TIME": "20"},
    {"INSTRUCTION": "MEMORY", "NAME": "a", "MEMORY": "40"}, {"INSTRUCTION": "ALIAS", "NAME": "a", "ALIAS": "-1"},
    {"INSTRUCTION": "MUTATE", "NAME": "add_", "ARGS": ["a", "w"], "MUTATE": [0], "TIME": 3},
    {"INSTRUCTION": "COPY", "DST": "b", "SRC": "a"}, {"INSTRUCTION": "COPY_FROM", "DST": "b", "SRC": "w"},
    {"INSTRUCTION": "ANNOTATE", "ANNOTATION": "BACKWARD"}, {"INSTRUCTION": "RELEASE", "NAME": "a"},
]  # fmt: skip
MOONCAKE = [
    {"timestamp": 0, "input_length": 600, "output_length": 20, "hash_ids": [0, 1]},
    {"timestamp": 5, "input_length": 512, "output_length": 3, "hash_ids": [0]},
]
JSON_LINES = {"recorder": RECORDING, "g10": G10, "dtr": DTR, "mooncake": MOONCAKE}

TABLES = {
    "libcachesim": "time,obj_id,obj_size\n0,a,10\n1,b,5\n2,a,30\n",
    "pytorch-csv": "kind,addr,size,stream,extra\nseg,0,99,0,small\nblk,0,9,0,active_allocated:5\nA,0,5,0,1\nF,9,5,0,2\n",
    "rmm": "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01.000000,allocate,0x1,5,0\n1,00:00:01.000001,free,0x1,5,0x2\n",
    "minimalloc": "id,lower,upper,size,offset\na,0,1,2,0\nb,1,7,3,9\n",
    "azure-llm": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:47.0,17,3\n",
    "csv": "event,tensor,size,reads,writes,flops,time_ns,duration_ns\n"
           "alloc,a,10,,,,5,\nop,,,a,a,1e9,6,3\nphase,,,,,,6,\nfree,a,,,,,7,\n",
}  # fmt: skip

FRAMES = [{"filename": "f.py", "name": "g", "line": 3}]
SNAPSHOT = {
    "segments": [{"device": 0, "address": 4096, "total_size": 2097152, "stream": 0, "segment_type": "small",
                  "is_expandable": False, "blocks": [
                      {"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": FRAMES},
                      {"address": 4608, "size": 2096640, "state": "inactive"}]}],
    "device_traces": [[
        {"action": "segment_alloc", "addr": 4096, "size": 2097152, "stream": 0, "time_us": 1},
        {"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 2, "frames": FRAMES},
        {"action": "alloc", "addr": 4608, "size": 100, "stream": 0, "time_us": 3, "frames": []},
        {"action": "free_requested", "addr": 4608, "size": 100, "stream": 0, "time_us": 4, "frames": []},
        {"action": "free_completed", "addr": 4608, "size": 100, "stream": 0, "time_us": 4, "frames": []},
        {"action": "oom", "device_free": 7, "size": 10**9, "stream": 0, "time_us": 5},
        {"action": "snapshot", "addr": 0, "size": 0, "stream": 0, "time_us": 6},
    ]],
    "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1},
}  # fmt: skip

XLA = (Path(__file__).parents[1] / "trace" / "test_xla.py").read_text("utf-8").partition('HAND = """')[2].partition('"""')[0]


def _nsys(random: Random, path: Path) -> None:
    path.unlink(missing_ok=True)
    export = Export(path, random.choice((OLD, NEW)))
    export.add("StringIds", id=5, value="kernel")
    export.alloc(10, 4096, 512)
    export.alloc(11, 8192, 4096, 4)
    export.work("KERNEL", 12, 13, 20, shortName=5, demangledName=5)
    export.work("MEMCPY", 14, 21, 25, bytes=64, copyKind=1)
    fault = {"start": 14, "end": 15, "globalPid": 7 << 24, "deviceId": 0, "address": 8200}
    export.add("CUDA_UM_GPU_PAGE_FAULT_EVENTS", **fault, numberOfPageFaults=1, faultAccessType=2)
    export.free(30, 4096, 512)
    tables = [name for name in export.columns if not name.startswith(("META", "ENUM")) or random.random() < 0.1]
    for _ in range(random.randint(1, 3)):
        table = random.choice(tables)
        column, value = random.choice(export.columns[table]), random.choice(HOSTILE)
        value = "9" * 5000 if value == HUGE else value if isinstance(value, str | float | None) else str(value)
        if random.random() < 0.1:
            export.database.execute(f"DROP TABLE IF EXISTS {table}")
        else:
            number = int(value) if isinstance(value, str) and value.lstrip("-").isdigit() and len(value) < 18 else value
            with suppress(sqlite3.OperationalError):  # the table was dropped
                export.database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid % 2 = {random.randint(0, 1)}", [number])
    export.done()
    if random.random() < 0.2:
        path.write_bytes(damaged_bytes(path.read_bytes(), random))


def _perfetto(random: Random, structured: bool) -> bytes:
    """The run of EXPORTED as Perfetto's protobuf; where `structured`, with packets changed, gone or twice."""
    file = io.BytesIO()
    perfetto.write(chrome.read(io.BytesIO(text(EXPORTED).encode()), "run"), file)
    trace = perfetto_trace_pb2.Trace.FromString(file.getvalue())
    for _ in range(random.randint(1, 3) if structured else 0):
        i = random.randrange(len(trace.packet))
        change = random.choice(("gone", "twice", "time", "track", "words", "value"))
        event = trace.packet[i].track_event
        if change == "gone":
            del trace.packet[i]
        elif change == "twice":
            trace.packet.append(trace.packet[i])
        elif change == "time":
            trace.packet[i].timestamp = random.choice((0, 7, 2**53, 2**63, 2**64 - 1))
        elif change == "track":
            event.track_uuid = random.choice((0, 1, 2**20, 2**20 + 77, 2**32, 2**64 - 1))
        elif change == "words":
            event.name_iid, event.category_iids[:] = random.choice((0, 99)), random.choice(([], [99], [1]))
        elif event.debug_annotations:
            event.debug_annotations[0].int_value = random.choice((-2, 2**40, 2**63 - 1, -(2**63)))
            event.debug_annotations[0].name_iid = random.choice((0, 1, 7, 99))
    data: bytes = trace.SerializeToString()
    return data if structured else damaged_bytes(data, random)


def write(format: str, random: Random, path: Path) -> None:
    """A damaged file of this format."""
    if format == "nsys":
        return _nsys(random, path)
    structured = random.random() < 0.75
    if format == "chakra" and random.random() < 0.5:
        data, structured = GRAPH, False
    elif format in TREES:
        tree = random.choice(TREES[format])
        data = text(damaged_tree(tree, random) if structured else tree).encode()
    elif format in JSON_LINES:
        lines = JSON_LINES[format]
        data = "".join(text(line) + "\n" for line in (damaged_tree(lines, random) if structured else lines)).encode()
    elif format == "gpusim-perfetto":
        data, structured = _perfetto(random, structured), False
    elif format == "pytorch":
        tree = damaged_tree(SNAPSHOT, random) if structured else SNAPSHOT
        data = pickle.dumps(tree, random.choice((2, 4)))
    elif format == "xla":
        lines = XLA.splitlines()
        data = "\n".join(damaged_lines(lines, random, random.choice(" ,=:")) if structured else lines).encode()
    elif format == "libcachesim" and random.random() < 0.5:
        rows = np.array([(0, 1, 100, 4), (0, 2, 30, 3), (1, 2, 30, -1), (2, 1, 100, -1)], RECORD)
        data, structured = rows.tobytes(), False
    else:
        lines = TABLES[format].splitlines()
        data = "\n".join(damaged_lines(lines, random) if structured else lines).encode()
    whole = format == "gpusim-perfetto" or (structured and random.random() < 0.9)
    path.write_bytes(data if whole else damaged_bytes(data, random))


def problem(format: str, seed: str, path: Path) -> str:
    """What an import of the damaged file did wrong, "" for nothing."""
    write(format, Random(seed), path)
    try:
        error = outcome(lambda: import_trace(path, format), TraceError)
    except BaseException as wrong:  # what a user would be told is a bug
        return f"{type(wrong).__name__}: {str(wrong)[:200]}"
    if error is not None and (not str(error).startswith(str(path)) or "\n" in str(error) or len(str(error)) > 600):
        return f"a bad sentence: {str(error)[:300]!r}"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--format", choices=FORMATS)
    parser.add_argument("--seed", default="0")
    options = parser.parse_args()
    wrong: dict[tuple[str, str], str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for format in [options.format] if options.format else FORMATS:
            warm(format, Path(folder) / format)
            for i in range(options.rounds):
                found = problem(format, seed := f"{options.seed}/{format}/{i}", Path(folder) / format)
                if found:
                    wrong.setdefault((format, found[:60]), f"{format} {seed}: {found}")
    print("\n".join(wrong.values()) or "nothing wrong")
    return 1 if wrong else 0


def warm(format: str, path: Path) -> None:
    """Import a few files without limits: what is compiled or loaded at first is not the file's doing."""
    for i in range(4):
        write(format, Random(f"warm {i}"), path)
        try:
            import_trace(path, format)
        except Exception:
            continue


if __name__ == "__main__":
    sys.exit(main())
