"""Does a DTR log become the program that DTR's simulator runs, and does an exported trace come back whole?"""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from dtr_reference import baseline
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from gpusim.base.errors import TraceError
from gpusim.cli.app import app
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.durations import durations
from gpusim.programs.recordings import import_trace
from gpusim.trace.build import TraceBuilder, make_trace
from gpusim.trace.exporters import export_trace
from gpusim.trace.files import load_trace
from gpusim.trace.importers.dtr import read
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace

TRACES = Path(__file__).parents[2] / "traces"
WITH_OPERATORS = sorted(path.stem for path in TRACES.glob("*.npz") if "snapshot" not in path.stem)


def line(instruction: str, **fields: Any) -> dict[str, Any]:
    return {"INSTRUCTION": instruction, **fields}


def constant(name: str, size: int) -> list[dict[str, Any]]:
    return [line("CONSTANT", NAME=name), line("MEMORY", NAME=name, MEMORY=str(size))]


def call(name: str, args: list[str], time: int, **results: tuple[int, int]) -> list[dict[str, Any]]:
    """results: name=(bytes, alias)."""
    made = [line("CALL", NAME=name, ARGS=args, RESULT=list(results), TIME=str(time))]
    for result, (size, alias) in results.items():
        made += [line("MEMORY", NAME=result, MEMORY=str(size)), line("ALIAS", NAME=result, ALIAS=str(alias))]
    return made


def log(*lines: dict[str, Any] | list[dict[str, Any]]) -> bytes:
    flat = [each for part in lines for each in (part if isinstance(part, list) else [part])]
    return b"".join(json.dumps(each).encode() + b"\n" for each in flat)


START, BACKWARD = line("ANNOTATE", ANNOTATION="START"), line("ANNOTATE", ANNOTATION="BACKWARD")
# w is copied; t is a view of it, which keeps its storage when both names of w are gone; a is changed in place.
PROGRAM = log(
    constant("old", 7), START, constant("w", 100), line("COPY", DST="w2", SRC="w"), line("RELEASE", NAME="w"),
    call("t", ["w2"], 5, t=(0, 0)), line("RELEASE", NAME="w2"), line("RELEASE", NAME="old"),
    call("mm", ["t", "t"], 20, a=(40, -1), b=(8, -1)), BACKWARD,
    line("MUTATE", NAME="add_", ARGS=["a", "b"], MUTATE=[0], TIME="3"), line("RELEASE", NAME="b"),
    call("mul", ["a"], 9, g=(40, -1)), line("COPY_FROM", DST="a", SRC="g"), line("RELEASE", NAME="g"),
    line("RELEASE", NAME="t"),
)  # fmt: skip


def accesses(trace: Trace) -> list[tuple[list[int], list[int]]]:
    """What each operator reads, in order, and writes."""
    return [
        (
            trace.read_id[trace.read_start[o] : trace.read_start[o + 1]].tolist(),
            sorted(trace.write_id[trace.write_start[o] : trace.write_start[o + 1]].tolist()),
        )
        for o in range(trace.ops)
    ]


def events(trace: Trace, *kinds: int) -> list[tuple[int, int]]:
    kept = np.isin(trace.kind, kinds or (ALLOC, FREE, OP))
    return list(zip(trace.kind[kept].tolist(), trace.arg[kept].tolist(), strict=True))


def exported(trace: Trace, **options: Any) -> bytes:
    out = io.BytesIO()
    export_trace(trace, "dtr", out, **options)
    return out.getvalue()


def peak(trace: Trace) -> int:
    return int(live_bytes(trace, trace.size).max())


def test_a_log_is_the_program_that_its_lines_say(tmp_path: Path) -> None:
    (tmp_path / "x.log").write_bytes(PROGRAM)
    trace = import_trace(tmp_path / "x.log")
    assert trace.size.tolist() == [100, 40, 8, 40]  # w, a, b, g
    assert events(trace, ALLOC, FREE, OP, PHASE) == [
        (ALLOC, 0), (PHASE, 0), (OP, 0), (ALLOC, 1), (ALLOC, 2), (OP, 1), (PHASE, 1), (OP, 2), (FREE, 2), (ALLOC, 3), (OP, 3),
        (FREE, 1), (FREE, 0),
    ]  # fmt: skip
    assert accesses(trace) == [([0], []), ([0, 0], [1, 2]), ([1, 2], [1]), ([1], [3])]
    assert trace.duration.tolist() == [5, 20, 3, 9] and [trace.op_names[o] for o in trace.op] == ["t", "mm", "add_", "mul"]
    assert trace.read_bytes.tolist() == [0, 100, 48, 40] and trace.written_bytes.tolist() == [0, 48, 40, 40]
    assert trace.phases == ("step0.fwd", "step0.bwd") and trace.phase.tolist() == [0, 0, 1, 1]
    assert [trace.categories[c] for c in trace.category] == ["constant", "fwd", "fwd", "bwd"]
    assert trace.meta["format"] == "dtr" and trace.meta["releases_of_older_names"] == 1


def test_mutations_read_as_copies_are_new_tensors() -> None:
    trace = read(PROGRAM, "x", mutations="copies")
    assert trace.size.tolist() == [100, 40, 8, 40, 40]  # the second 40 is what add_ makes of a
    assert accesses(trace)[2:] == [([1, 2], [3]), ([3], [4])]
    assert events(trace)[5:] == [(ALLOC, 3), (OP, 2), (FREE, 1), (FREE, 2), (ALLOC, 4), (OP, 3), (FREE, 3), (FREE, 0)]
    assert peak(trace) == 100 + 40 + 8 + 40 and peak(read(PROGRAM, "x")) == 100 + 40 + 40


def agrees_with_the_simulator(data: bytes) -> None:
    trace, facts = read(data, "x", mutations="copies"), baseline(data)
    constants = trace.category == (trace.categories.index("constant") if "constant" in trace.categories else -1)
    assert facts.operators == trace.ops + constants.sum() and facts.storages == trace.tensors
    assert facts.cost == trace.duration.sum() and facts.constant_bytes == trace.size[constants].sum()
    assert facts.peak_v1 == peak(trace)


def test_a_log_is_read_as_its_simulator_reads_it() -> None:
    agrees_with_the_simulator(PROGRAM)
    facts = baseline(PROGRAM)
    assert (facts.operators, facts.storages, facts.cost, facts.constant_bytes) == (5, 5, 37, 100)
    assert (facts.peak_v1, facts.peak_v2, facts.end_v2) == (188, 188, 140)  # the released constant w stays with V2


@pytest.mark.slow
@given(st.integers(0, 2**32), st.integers(1, 60))
def test_any_log_is_read_as_its_simulator_reads_it(seed: int, length: int) -> None:
    agrees_with_the_simulator(made_up(Random(seed), length))


def made_up(random: Random, length: int) -> bytes:
    """A log of calls with views, mutations, copies and releases, in no sensible order."""
    names, made = ["c0"], [START, *constant("c0", 64)]
    for fresh in range(length):
        args = [random.choice(names) for _ in range(random.randint(1, 3))]
        what = random.choice(["CALL", "CALL", "MUTATE", "COPY", "COPY_FROM", "RELEASE", "CONSTANT"])
        new = [f"n{fresh}"]
        if what == "CALL":
            new = [f"n{fresh}.{i}" for i in range(random.randint(1, 3))]
            results = {n: (random.randint(0, 99), random.randint(-1, len(args) - 1)) for n in new}
            made += call("op", args, random.randint(0, 50), **{n: (0 if a >= 0 else s, a) for n, (s, a) in results.items()})
        elif what == "MUTATE":
            changed = [args.index(a) for a in dict.fromkeys(args)][: random.randint(1, 2)]
            made.append(line("MUTATE", NAME="op_", ARGS=args, MUTATE=changed, TIME="4"))
        elif what == "CONSTANT":
            made += constant(new[0], random.randint(0, 99))
        elif what == "COPY":
            made.append(line("COPY", DST=new[0], SRC=args[0]))
        elif what == "COPY_FROM" and len(names) > 1:
            made.append(line("COPY_FROM", **dict(zip(("DST", "SRC"), random.sample(names, 2), strict=True))))
        elif what == "RELEASE" and len(names) > 1:
            made.append(line("RELEASE", NAME=names.pop(random.randrange(len(names)))))
        names += new if what in ("CALL", "CONSTANT", "COPY") else []
    return log(made)


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_OPERATORS)
def test_a_trace_comes_back_from_its_log(name: str) -> None:
    trace = load_trace(TRACES / f"{name}.npz")
    times = durations(trace, load("a100-sxm4-80gb"))[0]
    data = exported(trace, duration=times)
    back = read(data, "x")
    assert np.array_equal(back.size, trace.size) and events(back) == events(trace)
    assert accesses(back) == accesses(trace) and np.array_equal(back.duration, times)
    assert [back.op_names[o] for o in back.op] == [trace.op_names[o] for o in trace.op]
    assert baseline(data).cost == times.sum()
    agrees_with_the_simulator(data)
    assert exported(back) == data


def test_operators_that_dtr_does_not_know_come_back() -> None:
    build = TraceBuilder("odd")
    stats, data, batch = build.alloc(8), build.alloc(100), build.alloc(70)
    build.alloc(5)  # never used
    mean = build.alloc(9)
    build.op("mean", [batch], [mean], duration=5)
    build.op("load", [], [data], duration=1)  # writes what was there before, without reading it
    out = build.alloc(50)
    build.op("norm", [data], [out, stats], duration=2)  # makes one tensor and changes another
    build.op("item", [out], [], duration=3)
    build.op("adam", [out, data], [stats], duration=4)
    build.free(mean)
    trace = build.finish()
    written = exported(trace)
    back = read(written, "x")
    assert events(back) == events(trace) and accesses(back) == accesses(trace) and back.size.tolist() == trace.size.tolist()
    assert accesses(back) == [([2], [4]), ([], [1]), ([1], [0, 5]), ([5], []), ([5, 1], [0])]
    assert back.duration.tolist() == [5, 1, 2, 3, 4]
    assert written.count(b'"CONSTANT"') == 4  # all but the results of mean and norm
    agrees_with_the_simulator(written)


def test_without_operators_or_times_there_is_no_log() -> None:
    trace = load_trace(TRACES / "gpt2-small-train.npz")
    with pytest.raises(TraceError, match=r"operator 0 of 'gpt2-small-train' has no recorded time.*--on MACHINE"):
        exported(trace)
    with pytest.raises(TraceError, match=r"a DTR log needs .* which bare does not say"):
        exported(make_trace("bare", {"size": [1], "kind": [ALLOC], "arg": [0]}))


@pytest.mark.slow
def test_the_verb_writes_a_log_that_import_reads(tmp_path: Path) -> None:
    def gpusim(*words: str) -> str:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        return done.output

    said = gpusim("export", "resnet50-train", "--format", "dtr", "--on", "v100-sxm2-32gb", "-o", f"{tmp_path}/r.log")
    assert "485 constants" in said
    gpusim("import", f"{tmp_path}/r.log")
    assert load_trace(tmp_path / "r.npz").ops == 2067
    gpusim("export", f"{tmp_path}/r.npz", "--format", "dtr", "-o", f"{tmp_path}/again.log")  # the times are recorded now
    assert (tmp_path / "again.log").read_bytes() == (tmp_path / "r.log").read_bytes()


A = constant("a", 10)


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([line("RELEASE", NAME="b")], "x:3: this line releases 'b', which never appeared"),
        ([line("RELEASE", NAME="a")] * 2, "x:4: this line releases 'a', which was already released"),
        (call("mm", ["abc"], 1, r=(1, -1)), "x:3: this line reads 'abc', which never appeared"),
        ([line("COPY", DST="b", SRC="c")], "x:3: this line copies 'c', which never appeared"),
        ([line("COPY", DST="a", SRC="a")], "x:3: the name 'a' is given again, but it is still in use"),
        (call("mm", ["a"], 1, r=(1, 1)), "x:5: ALIAS is 1, but the operator has 1 arguments"),
        (call("mm", ["a"], 1, r=(-4, -1)), "x:5: .*the size -4 is negative"),
        (call("mm", ["a"], -1, r=(4, -1)), "x:3: TIME is -1"),
        (call("mm", ["a"], 1, r=(4, -1))[:2], "x:4: here should stand the ALIAS of 'r', not the end of the file"),
        ([call("mm", ["a"], 1, r=(4, -1))[0], A[0]], "x:4: here should stand the MEMORY of 'r', not CONSTANT"),
        ([line("MEMORY", NAME="a", MEMORY="3")], "x:3: nothing asks for the size of 'a'"),
        ([line("ALIAS", NAME="a", ALIAS="0")], "x:3: nothing asks what 'a' is a view of"),
        ([line("MUTATE", NAME="f", ARGS=["a"], MUTATE=[1], TIME="1")], "x:3: MUTATE is not a list of indices of the 1 arg"),
        ([line("RELEAS", NAME="a")], "x:3: unknown instruction 'RELEAS' .did you mean 'RELEASE'"),
        ([line("CALL", NAME="f", ARGS=["a"], RESULT=[], TIME="soon")], "x:3: TIME of a CALL is 'soon', not a whole number"),
        ([{"INSTRUCTION": ["RELEASE"]}], "x:3: unknown instruction"),
        ([line("RELEASE")], "x:3: NAME of a RELEASE is missing"),
        ([line("CALL", NAME="f", ARGS=[1], RESULT=[], TIME="1")], "x:3: ARGS holds something else than names"),
        (call("mm", ["a"], 1, r=(4, -1), s=(2**70, -1)), "x:7: .*overflows 64 bits"),
    ],
)  # fmt: skip
def test_a_bad_line_is_named(lines: list[dict[str, Any]], words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read(log(A, lines), "x")


def test_a_damaged_line_is_named() -> None:
    with pytest.raises(TraceError, match=r"x:14: this line is not an instruction of a DTR log \(is the file cut short"):
        read(b"\n".join(PROGRAM.splitlines()[:13]) + b'\n{"INSTRUCTION":"CA', "x")
    with pytest.raises(TraceError, match="mutations are not 'copy'"):
        read(PROGRAM, "x", mutations="copy")
