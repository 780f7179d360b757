"""Does each foreign format become the trace that its file describes, and is each mistake named with its line?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import FORMATS, import_trace
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace
from gpusim.trace.trace import ALLOC, FREE, OOM, OP, PHASE, Trace, columns

DATA = Path(__file__).parents[1] / "data" / "traces"
SHIPPED = Path(__file__).parents[2] / "traces"


def imported(tmp_path: Path, text: str, **options: Any) -> Trace:
    path = tmp_path / "recording"
    path.write_text(text)
    return import_trace(path, **options)


def refused(tmp_path: Path, text: str | bytes, *words: str, **options: Any) -> None:
    path = tmp_path / "recording"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    with pytest.raises(TraceError) as error:
        import_trace(path, **options)
    said = str(error.value)
    assert said.startswith(str(path)) and "\n" not in said
    for word in words:
        assert word in said, said


def events(trace: Trace) -> list[tuple[int, int]]:
    return list(zip(trace.kind.tolist(), trace.arg.tolist(), strict=True))


# --- the recorder ---

HEADER = json.dumps({"ops": ["mm", "add"], "modules": ["layer"], "workload": "tiny"})


def recording(*lines: Any) -> str:
    return "\n".join([HEADER, *(json.dumps(line) for line in lines)])


def test_a_recording_is_what_its_lines_say(tmp_path: Path) -> None:
    trace = imported(
        tmp_path,
        recording(
            ["a", 7, 100, "param", "cpu"], ["p", "step0.fwd"], ["a", 9, 50, "step0.fwd", "cpu"],
            ["o", 0, [7], [9], 100, 50, 1000, "bfloat16", 0], ["f", 7], ["o", 1, [9], [9], 50, 50, 0, "float32", None],
            ["p", "decode12"], ["a", 10, 1, "decode12", "cpu"],
        ),
    )  # fmt: skip
    assert trace.name == "tiny" and trace.size.tolist() == [100, 50, 1]
    assert events(trace) == [(ALLOC, 0), (PHASE, 0), (ALLOC, 1), (OP, 0), (FREE, 0), (OP, 1), (PHASE, 1), (ALLOC, 2)]
    assert [trace.categories[c] for c in trace.category] == ["param", "fwd", "decode"]
    assert [trace.op_names[o] for o in trace.op] == ["mm", "add"]
    assert trace.read_id.tolist() == [0, 1] and trace.write_id.tolist() == [1, 1]
    assert trace.flops.tolist() == [1000.0, 0.0] and trace.read_bytes.tolist() == [100, 50]
    assert trace.module.tolist() == [0, -1] and [trace.dtypes[d] for d in trace.dtype] == ["bfloat16", "float32"]
    assert "times" in trace.meta["lacks"]


def test_a_resized_storage_is_a_free_and_a_new_tensor(tmp_path: Path) -> None:
    trace = imported(
        tmp_path,
        recording(["a", 0, 10, "param", "cpu"], ["z", 0, 20], ["o", 0, [0], [], 20, 0, 0, "float32", None], ["f", 0]),
    )
    assert trace.size.tolist() == [10, 20] and trace.read_id.tolist() == [1]
    assert events(trace) == [(ALLOC, 0), (FREE, 0), (ALLOC, 1), (OP, 0), (FREE, 1)]
    assert [trace.categories[c] for c in trace.category] == ["param", "param"] and trace.meta["resized_storages"] == 1


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (["f", 5], ["frees storage 5, which never appeared"]),
        (["f", 1], ["frees storage 1, which was already freed"]),
        (["a", 0, 1, "param", "cpu"], ["storage 0 appears again", "still live"]),
        (["a", 1, 1, "param", "cpu"], ["storage 1 appears again", "was freed"]),
        (["a", 2, -1, "param", "cpu"], ["size -1 is negative"]),
        (["a", 2, 2**63, "param", "cpu"], ["overflows 64 bits"]),
        (["a", 2, 1.5, "param", "cpu"], ["not a recorder event"]),
        (["o", 0, [1], [], 0, 0, 0, "float32", None], ["reads storage 1, which was already freed"]),
        (["o", 0, [], [8], 0, 0, 0, "float32", None], ["writes storage 8, which never appeared"]),
        (["o", 2, [], [], 0, 0, 0, "float32", None], ["not a recorder event"]),
        (["o", 0, [[]], [], 0, 0, 0, "float32", None], ["not a recorder event"]),
        (["x"], ["not a recorder event"]),
        ({}, ["not a recorder event"]),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, line: Any, words: list[str]) -> None:
    good = [["a", 0, 10, "param", "cpu"], ["a", 1, 10, "param", "cpu"], ["f", 1]]
    refused(tmp_path, recording(*good, line), "recording:5: ", *words)


def test_a_recording_cut_in_the_middle_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, recording(["a", 0, 10, "param", "cpu"])[:-5], "recording:2: this line is not JSON", "cut short")
    packed = (DATA / "gpt-medium-infer.jsonl.gz").read_bytes()
    refused(tmp_path, packed[: len(packed) // 2], "gzip data is cut short")


def test_a_real_recording_is_the_shipped_trace() -> None:
    trace, shipped = import_trace(DATA / "gpt-medium-infer.jsonl.gz"), load_trace(SHIPPED / "gpt-medium-infer.npz")
    for (name, a), (_, b) in zip(columns(trace), columns(shipped), strict=True):
        assert np.array_equal(a, b) or name == "shape", name  # which this recording lacks
    assert (trace.shape == -1).all() and (shipped.shape >= 0).all()


# --- RMM ---


def test_an_rmm_log_with_recycled_pointers(tmp_path: Path) -> None:
    trace = imported(
        tmp_path,
        "Thread,Time,Action,Pointer,Size,Stream\n"
        "1,23:59:59.999999,allocate,0x100,10,0\n"
        "1,00:00:00.000001,free,0x100,10,0\n"
        "2,00:00:00.000001,allocate,0x100,20,0x55d0\n"
        "1,00:00:00.000000,allocate,(nil),0,0x2\n"
        "2,00:00:00.000003,allocate,(nil),0,0x2\n"
        "2,00:00:00.000003,allocate failure,(nil),99,0\n"
        "2,00:00:00:000004,free,(nil),0,0x2\n"
        "1,00:00:00.000005,free,0x900,77,0\n",
    )
    assert trace.size.tolist() == [77, 10, 20, 0, 0]  # the one freed at 0x900 is older than the log
    assert events(trace) == [
        (ALLOC, 0), (ALLOC, 1), (FREE, 1), (ALLOC, 2), (ALLOC, 3), (ALLOC, 4), (OOM, -1), (FREE, 4), (FREE, 0),
    ]  # fmt: skip
    assert trace.time.tolist() == [-1, 0, 2000, 2000, 2000, 4000, 4000, 5000, 6000]  # over midnight, one step back held
    assert trace.meta["streams"] == ["0", "0x55d0", "0x2@1", "0x2@2"] and trace.stream.tolist()[1:6] == [0, 0, 1, 2, 3]
    assert trace.bytes[6] == 99 and trace.addr[3] == 0x100 and trace.addr[4] == -1
    assert trace.meta["threads"] == 2 and trace.meta["times_out_of_order"] == 1
    assert trace.meta["warnings"] == ["1 frees are of allocations older than the log"]


def test_a_free_prefers_the_allocation_of_its_size(tmp_path: Path) -> None:
    trace = imported(tmp_path, "Action,Pointer,Size\nallocate,0x1,5\nallocate,0x1,6\nfree,0x1,5\nfree,0x1,6\n")
    assert events(trace)[2:] == [(FREE, 0), (FREE, 1)] and "times" in trace.meta["lacks"]


def test_an_rmm_log_as_written_by_its_adaptor() -> None:
    trace = import_trace(DATA / "rmm.csv")
    lines = [line.split(",") for line in (DATA / "rmm.csv").read_text().splitlines()[1:]]
    sizes = [int(line[4]) for line in lines if line[2] == "allocate"]
    assert trace.size.tolist() == sizes and (trace.kind == FREE).sum() == sum(line[2] == "free" for line in lines)


def test_mistakes_in_an_rmm_log_are_named(tmp_path: Path) -> None:
    head = "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01.000000,allocate,0x1,5,0\n"
    refused(tmp_path, head + "1,00:00:01.000000,alocate,0x1,5,0", ":3:", "'alocate'", "did you mean 'allocate'")
    refused(tmp_path, head + "1,00:00:01.000000,allocate,zz,5,0", ":3:", "'zz' is not a pointer")
    refused(tmp_path, head + "1,01.000000,allocate,0x2,5,0", ":3:", "HH:MM:SS")
    refused(tmp_path, head + "1,00:00:01.000000,allocate,0x2,many,0", ":3:", "'many' in column 'size'")
    refused(tmp_path, head + "1,00:00:01.000000,allocate", ":3:", "3 values, but there are 6 columns")
    twice = "1,00:00:01.000000,free,0x1,5,0\n" * 2
    refused(tmp_path, head + twice, ":4:", "pointer 0x1 was already freed")


# --- minimalloc ---


def test_the_minimalloc_example() -> None:
    trace = import_trace(DATA / "minimalloc.csv")
    assert trace.size.tolist() == [4, 4, 4, 4, 4]
    # b1 [0,3), b3 [0,9), b5 [0,21); b1 leaves before b2 [3,9) comes; b2 and b3 leave before b4 [9,21) comes
    assert [kind for kind, _ in events(trace)] == [ALLOC] * 3 + [FREE, ALLOC, FREE, FREE, ALLOC, FREE, FREE]
    assert [tensor for _, tensor in events(trace)] == [0, 1, 2, 0, 3, 3, 1, 4, 4, 2]


def test_minimalloc_offsets_are_addresses_and_mistakes_have_lines(tmp_path: Path) -> None:
    trace = imported(tmp_path, "id,lower,upper,size,offset\na,0,2,8,16\nb,1,3,8,24\n")
    assert trace.addr.tolist() == [16, 24, 16, 24]
    refused(tmp_path, "id,lower,upper,size\na,5,5,8\n", ":2:", "'a' ends at 5, not after its start")
    refused(tmp_path, "id,lower,upper,size\na,0,5,8\na,0,5,8\n", ":3:", "'a' is there twice")
    refused(tmp_path, "id,lower,upper,size\na,0,5,-8\n", ":2:", "negative")


# --- plain CSV ---


def test_a_plain_csv_with_names_that_are_used_again(tmp_path: Path) -> None:
    trace = imported(
        tmp_path,
        "# my own\n"
        "event,tensor,size,name,reads,writes,duration_ns,time_ns,category,dtype\n"
        "alloc,w,10,,,,,500,param,\n"
        "phase,,,fwd,,,,,,\n"
        "alloc,x,20,,,,,600,,\n"
        "op,,,mul,w w,x,30,,,float16\n"
        "free,x,,,,,,700,,\n"
        "alloc,x,40,,,,,,,\n",
        name="mine",
    )
    assert trace.name == "mine" and trace.size.tolist() == [10, 20, 40] and trace.duration.tolist() == [30]
    assert trace.time.tolist() == [0, -1, 100, -1, 200, -1] and trace.phases == ("fwd",)
    assert trace.read_bytes.tolist() == [10] and trace.written_bytes.tolist() == [20]
    assert trace.meta["lacks"] == ["streams", "flops", "addresses"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("event,tensor,sise\n", [":1:", "no column 'sise'", "did you mean 'size'"]),
        ("event,tensor\n", [":1:", "'size' is missing"]),
        ("event,tensor,size,size\n", [":1:", "'size' is there twice"]),
        ("event,tensor,size\nallok,a,1\n", [":2:", "'allok'", "did you mean 'alloc'"]),
        ("event,tensor,size\nalloc,a,1\nalloc,a,1\n", [":3:", "'a' is allocated again"]),
        ("event,tensor,size\nalloc,alpha,1\nfree,alhpa,\n", [":3:", "never allocated", "did you mean 'alpha'"]),
        ("event,tensor,size\nalloc,a,1\nfree,a,\nfree,a,\n", [":4:", "already freed"]),
        ("event,tensor,size,reads\nalloc,a,1,\nfree,a,,\nop,,,a\n", [":4:", "reads tensor 'a'", "already freed"]),
        ("event,tensor,size\nalloc,a,-1\n", [":2:", "negative"]),
        ("event,tensor,size\nalloc,a,99999999999999999999\n", [":2:", "overflows"]),
        ("event,tensor,size\nalloc,a,4 MiB\n", [":2:", "'4 MiB'", "whole number"]),
        ("event,tensor,size,stream\nalloc,a,1,-3\n", [":2:", "'stream' is -3"]),
        ("event,tensor,size,time_ns\nalloc,a,1,5\nalloc,b,1,4\n", [":3:", "falls from 5 to 4"]),
        ("event,tensor,size\nalloc,a\n", [":2:", "2 values"]),
    ],
)  # fmt: skip
def test_mistakes_in_a_plain_csv_are_named(tmp_path: Path, text: str, words: list[str]) -> None:
    refused(tmp_path, text, *words)


@pytest.mark.slow
def test_a_plain_csv_of_many_names_is_what_a_builder_makes_of_it(tmp_path: Path) -> None:
    """Tables grow, names of tensors that are gone are forgotten, pieces have quotes: against the same program, built."""
    random, build = np.random.default_rng(1), TraceBuilder("csv")
    lines, live, size = ["event,tensor,size,name,reads,writes,flops,category"], dict[str, int](), dict[str, int]()
    for i in range(60_000):
        if len(live) < 3 or random.random() < 0.5:
            # A name in hundred is used again, some are long, one piece has quotes.
            name = f"t{i if i % 100 else 0}" + "x" * (200 if i % 1000 == 7 else 0)
            if name in live:
                continue
            size[name], category = int(random.integers(1, 2**40)), ("", "param", "fwd")[i % 3]
            live[name] = build.alloc(size[name], category or "unknown")
            lines.append(f"alloc,{name},{size[name]},,,,,{category}")
        elif random.random() < 0.6:
            name = list(live)[0 if i % 2 else -1]
            lines.append(f'"free","{name}",,,,,,' if 20_000 < i < 20_050 else f"free, {name}\t,,,,,,")
            build.free(live.pop(name))
        else:
            a, b = (list(live)[int(k)] for k in random.integers(0, len(live), 2))
            flops, text = ((5.0, "5"), (1.5e9, "1.5e9"), (2.0**60 + 256, str(2**60 + 256)))[i % 3]
            lines.append(f"op,,,mm{i % 7},{a} {b} {a},{b},{text},")
            build.op(
                f"mm{i % 7}", [live[a], live[b], live[a]], [live[b]], flops=flops, written_bytes=size[b],
                read_bytes=sum(size[t] for t in {a, b}),
            )  # fmt: skip
    found = imported(tmp_path, "\n".join(lines))
    made = build.finish()
    names = sorted(made.categories)
    assert sorted(found.categories) == names and found.op_names == made.op_names
    for (column, values), (_, expected) in zip(columns(found), columns(made), strict=True):
        if column != "category":
            assert np.array_equal(values, expected), column
    assert [found.categories[c] for c in found.category] == [made.categories[c] for c in made.category]
    # A name that the tables have forgotten is still known to have been there.
    refused(tmp_path, "\n".join([*lines, "free,t1,,,,,,"]), f":{len(lines) + 1}:", "'t1', which was already freed")


# --- the door ---


@pytest.mark.parametrize("pack", [False, True])
def test_formats_are_recognised_by_content(tmp_path: Path, pack: bool) -> None:
    texts = {
        "recorder": recording(["a", 0, 1, "param", "cpu"]),
        "rmm": "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01.000000,allocate,0x1,5,0\n",
        "minimalloc": "id,lower,upper,size\na,0,1,2\n",
        "csv": "size,tensor,event\n1,a,alloc\n",
        "mooncake": '{"timestamp": 0, "input_length": 4, "output_length": 2, "hash_ids": [0]}\n',
        "azure-llm": "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n",
        "pytorch-csv": "# final segments\nkind,addr,size,stream,extra\nA,0,5,0,\n",
    }
    for format, text in texts.items():
        path = tmp_path / "unnamed"
        path.write_bytes(gzip.compress(text.encode()) if pack else text.encode())
        assert import_trace(path).meta["format"] == format
    assert set(texts) < set(FORMATS)


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    refused(tmp_path, "", "the file is empty")
    refused(tmp_path, "hello\nworld\n", "cannot tell which format", "pytorch-csv")
    refused(tmp_path, b"PK\x03\x04rest", "zip file", "needs no import")
    refused(tmp_path, b"\x1f\x8bnot gzip", "gzip data is cut short or damaged")
    graph = b"\x5e\x12\x10\n\x06schema\xea\x01\x051.0.1\x12\t\n\x03pidh\xa6\xff\x06"  # how the protobuf form begins
    refused(tmp_path, graph, "not one of a Chakra graph", "as its converters write it")
    refused(tmp_path, '{"schema": "x", "workload_graph": []}', "the graph has no operators")
    refused(tmp_path, recording(), "no option 'kineto'", "--with is for PyTorch execution traces", kineto="k.json")
    refused(tmp_path, "x", "no trace format 'recoder'", "did you mean 'recorder'", format="recoder")
    refused(tmp_path, recording(), "no option 'devise'", format="recorder", devise=1)
    refused(tmp_path, "event,tensor,size\n" + "x" * (2 << 20), ":2:", "million characters")
    with pytest.raises(TraceError, match="no such file"):
        import_trace(tmp_path / "missing")


def test_more_than_the_limit_is_refused_without_unpacking_it(tmp_path: Path) -> None:
    from gpusim.programs.recordings import read_bytes

    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(bytes(10**7)))
    with pytest.raises(TraceError, match="larger than"):
        read_bytes(path, max_bytes=10**6)


SAMPLES = {
    "recorder": recording(["a", 0, 10, "param", "cpu"], ["o", 0, [0], [0], 1, 1, 1, "float32", 0], ["p", "x"], ["f", 0]),
    "rmm": "Thread,Time,Action,Pointer,Size,Stream\n1,00:00:01.000000,allocate,0x1,5,0\n1,00:00:01.000001,free,0x1,5,0\n",
    "minimalloc": "id,lower,upper,size,offset\na,0,1,2,0\nb,1,7,3,9\n",
    "csv": "event,tensor,size,reads,flops,time_ns\nalloc,a,10,,,5\nop,,,a,1e9,6\nfree,a,,,,7\n",
    "pytorch-csv": "kind,addr,size,stream,extra\nseg,0,99,0,small\nblk,0,9,0,active_allocated:5\nA,0,5,0,1\nF,9,5,0,2\n",
    "memory-timeline": "[[-1, 1, 8, 7], [5, 2, 8, 4],\n[6, 3, -8, 4], [6, 3, 8, 5], [7, 4, -8, 5]]",
    "kineto": json.dumps({"traceEvents": [
        {"ph": "i", "name": "[memory]", "pid": 1, "tid": 2, "ts": 1.5,
         "args": {"Device Type": 1, "Device Id": 0, "Addr": 9, "Bytes": 512, "Total Allocated": 600}},
        {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 3, "dur": 2,
         "args": {"device": 0, "stream": 7, "correlation": 4}},
        {"ph": "X", "cat": "cuda_runtime", "name": "l", "pid": 1, "tid": 2, "ts": 2, "args": {"correlation": 4}},
        {"ph": "X", "cat": "cpu_op", "name": "aten::add_", "pid": 1, "tid": 2, "ts": 2, "dur": 3,
         "args": {"External id": 1, "Input Dims": [[128]], "Input type": ["float"]}},
    ]}, indent=0),
    "execution-trace": json.dumps({"schema": "1.0.1", "nodes": [
        {"name": "aten::relu", "id": 2, "rf_id": 1, "parent": 1, "op_schema": "relu(Tensor a) -> Tensor",
         "inputs": [[1, 2, 0, 8, 4, "cuda:0"]], "input_types": ["Tensor(float)"], "outputs": [[3, 4, 0, 8, 4, "cuda:0"]]},
    ]}, indent=0),
}  # fmt: skip


WORDS = [*'0-9,:.[]{}"\n xe', "-1", "9" * 30, "\0", "ü"]


@pytest.mark.slow
@settings(max_examples=300)
@given(
    format=st.sampled_from(sorted(SAMPLES)),
    edits=st.lists(st.tuples(st.floats(0, 1), st.sampled_from(WORDS)), max_size=4),
    cut=st.floats(0.2, 1),
)  # fmt: skip
def test_no_damage_does_worse_than_a_sentence(
    tmp_path_factory: Any, format: str, edits: list[tuple[float, str]], cut: float
) -> None:
    text = SAMPLES[format]
    for place, put in edits:
        at = int(place * len(text))
        text = text[:at] + put + text[at + 1 :]
    path = tmp_path_factory.mktemp("f") / "x"
    path.write_text(text[: int(cut * len(text)) + 1], encoding="utf-8")
    try:
        import_trace(path, format)
    except TraceError as error:
        assert str(error).startswith(str(path)) and "\n" not in str(error)
