"""Does the account of a program's kernels add up, and what does a user's own table change?"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import ProfileError, TraceError
from gpusim.machine.catalogue import load
from gpusim.machine.kernels.durations import BASIS, BOUND, MEASURED, durations, load_own_times
from gpusim.machine.kernels.user_table import read
from gpusim.studies.kernels import BASES, BOUNDS, HOST, study
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

pytestmark = pytest.mark.fast

SHAPE = "4096x4096 4096x4096 -> 4096x4096"
HEADER = "gpu,operator,dtype,shape,time_us\n"


def products(count: int = 2) -> Trace:
    build = TraceBuilder("t")
    for _ in range(count):
        build.op("aten.mm.default", [], [], flops=2.0 * 4096**3, read_bytes=2**26, written_bytes=2**25, dtype="bfloat16")
    build.op("my_kernel", [], [], dtype="bfloat16")
    made = build.finish()
    return replace(made, shape=np.array([0] * count + [-1], np.int32), shapes=(SHAPE,))


def of_shapes(*sides: tuple[int, int, int]) -> Trace:
    build = TraceBuilder("t")
    build.alloc(2**34)
    for m, n, k in sides:
        shape, read, made = f"{m}x{k} {k}x{n} -> {m}x{n}", 2 * k * (m + n), 2 * m * n
        build.op("aten.mm", [], [], flops=2.0 * m * n * k, read_bytes=read, written_bytes=made, dtype="bfloat16", shape=shape)
    return build.finish()


def written(tmp_path: Path, *rows: str) -> Path:
    (tmp_path / "mine.csv").write_text(HEADER + "".join(f"{row}\n" for row in rows))
    return tmp_path / "mine.csv"


def test_the_classes_add_up_and_what_is_blind_is_named() -> None:
    trace, a100 = replace(products(), meta={"format": "record"}), load("a100-sxm4-80gb")
    found = study(trace, a100)
    values = found.values()
    assert values["kernels_ns"] == durations(trace, a100).ns.sum() == sum(each["ns"] for each in values["classes"])
    assert [each["class"] for each in values["classes"]] == ["gemm", "other"] and values["decides"] == "gemm"
    assert values["classes"][0]["bound"] == "compute" and values["classes"][1]["bound"] == HOST
    assert list(values["unknown"]) == ["my_kernel"] and 0 < values["unknown"]["my_kernel"] < 0.01
    assert "my_kernel (" in found.sentences()[1]


def test_a_users_table_counts_before_the_model_and_shows_what_contradicts(tmp_path: Path) -> None:
    a100 = load("a100-sxm4-80gb")
    rows = [f"a100-sxm4-80gb,aten::mm,bfloat16,{SHAPE},{time}" for time in (600, 500, 750)]
    own = load_own_times(written(tmp_path, *rows), a100)
    found = durations(products(), a100, own=own)
    assert found.ns[:2].tolist() == [600_000] * 2
    assert (found.low[0], found.high[0]) == pytest.approx((math.log(500 / 600), math.log(750 / 600)))
    assert own.table.contradictions() == [f"3 rows of mm bfloat16 {SHAPE} are 1.50x apart: 500 to 750 us; the median counts"]


def test_shapes_near_those_of_a_users_table_are_corrected_and_far_ones_are_not(tmp_path: Path) -> None:
    a100 = load("a100-sxm4-80gb")
    sides = [(m, n, 4096) for m in (3072, 4096, 6144) for n in (3072, 4096, 6144)]
    asked = of_shapes((5000, 5000, 4096), (64, 64, 64))
    plain = durations(asked, a100)
    half = zip(sides, (durations(of_shapes(*sides), a100).ns / 2).tolist(), strict=True)
    rows = [f"a100-sxm4-80gb,mm,bfloat16,{m}x{k} {k}x{n} -> {m}x{n},{ns / 1e3}" for (m, n, k), ns in half]
    found = durations(asked, a100, own=load_own_times(written(tmp_path, *rows), a100))
    assert found.ns[0] / plain.ns[0] == pytest.approx(0.5, rel=0.1) and found.ns[1] == plain.ns[1]
    assert found.basis[0] == MEASURED and found.low[0] < 0 < found.high[0]


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        (f"h100-sxm-80gb,mm,bfloat16,{SHAPE},5", ProfileError, "the table has kernel times of h100-sxm-80gb, not of a100-"),
        (f"a100-sxm4-80gb,mm,bfloat16,{SHAPE},fast", TraceError, "mine.csv:2: 'fast' is no time in microseconds"),
        (f"a100-sxm4-80gb,mm,bfloat16,{SHAPE},-1", TraceError, "mine.csv:2: '-1' is no time in microseconds"),
        ("a100-sxm4-80gb,mm,bfloat16,4096 by 4096,5", TraceError, "mine.csv:2: the shape '4096 by 4096' lacks its '->'"),
        ("a100-sxm4-80gb,mm", TraceError, "mine.csv:2: this line has not 5 cells"),
    ],
)  # fmt: skip
def test_a_table_that_is_wrong_is_refused_in_a_sentence(tmp_path: Path, row: str, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        read(written(tmp_path, row), load("a100-sxm4-80gb"))


def test_another_table_is_refused(tmp_path: Path) -> None:
    a100, path = load("a100-sxm4-80gb"), tmp_path / "other.csv"
    for content, said in (("m,n,k\n1,2,3\n", "the first line is not 'gpu,operator"), (HEADER, "the table has no rows")):
        path.write_text(content)
        with pytest.raises(TraceError, match=re.escape(f"{path}: {said}")):
            read(path, a100)
    with pytest.raises(TraceError, match=r"none.csv: the table cannot be read: No such file or directory$"):
        read(tmp_path / "none.csv", a100)


def test_a_table_that_no_operator_is_in_is_said(tmp_path: Path) -> None:
    a100 = load("a100-sxm4-80gb")
    other, same = (
        load_own_times(written(tmp_path, f"a100-sxm4-80gb,mm,bfloat16,{shape},600"), a100)
        for shape in ("64x64 64x64 -> 64x64", SHAPE)
    )
    assert study(products(), a100, own=other).notes[0].startswith("No operator has the name, type and shape")
    assert study(products(), a100, own=same).notes == []


def test_times_that_are_not_there_are_not_scaled() -> None:
    a100 = load("a100-sxm4-80gb")
    with pytest.raises(TraceError, match="t has no recorded times to scale"):
        study(products(), a100, given=load("t4"))


def test_the_words_of_the_table_are_explained() -> None:
    found = study(replace(products(), meta={"format": "record"}), load("a100-sxm4-80gb"))
    assert found.sentences()[0].endswith(" four times out of five, and most of that interval comes from gemm.")
    bound, basis = found.legend()
    assert bound.startswith("Bound: host = the host, which takes longer") and "launch" not in bound
    shown = {row["basis"] for row in found.rows()}
    assert {word for word in BASES if f"{word} = " in basis} == shown
    assert set(BASES) == set(BASIS) and {*BOUNDS, "compute", "memory"} == {*BOUND, HOST}


def test_the_call_gives_rows_and_text(tmp_path: Path) -> None:
    own = written(tmp_path, f"a100-sxm4-80gb,mm,bfloat16,{SHAPE},600")
    found = gpusim.kernel_times(products(), on="a100-sxm4-80gb", own=own)
    assert found.frame()["ns"].tolist()[0] == 1_200_000 and "gemm" in str(found)
    slow = replace(products(), duration=np.array([10**6, 10**6, -1]))
    scaled = gpusim.kernel_times(slow, on="h100-sxm-80gb", recorded_on="a100-sxm4-80gb").values["classes"][0]
    assert scaled["basis"] == "scaled" and 0.25e6 < scaled["ns"] / 2 < 0.5e6


def test_what_the_host_submits_more_slowly_than_it_runs_is_said() -> None:
    """1000 kernels of an empty kernel's time: 6 ms of an eager host, which a graph and long kernels do not wait for."""
    build = TraceBuilder("short")
    for _ in range(1000):
        build.op("my_kernel", [], [])
    short, a100 = build.finish(), load("a100-sxm4-80gb")
    eager = study(replace(short, meta={"format": "record"}), a100)
    assert eager.values()["host_ns"] == 6_000_000 > eager.ns
    assert any("it submits 1,000 operators in 6 ms, 6 us each" in said for said in eager.sentences())
    graph = study(replace(short, meta={"submission": "graph"}), a100)
    assert graph.values()["host_ns"] == 0 and not any("it submits" in said for said in graph.sentences())
    long = study(replace(products(), meta={"format": "record"}), a100)
    assert long.values()["host_ns"] == 18_000 and not any("it submits" in said for said in long.sentences())
