"""Do exported accesses count the same misses in libCacheSim as in our own replay, and do they come back?"""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import arc_paper
import numpy as np
import pytest
from golden_replay import OBJECTS, UNEQUAL, load_benchmark, unequal_sizes
from typer.testing import CliRunner

from gpusim.base.errors import TraceError
from gpusim.cli.app import app
from gpusim.policies import registry
from gpusim.policies.trials.misses import replay
from gpusim.programs.recordings import import_trace
from gpusim.trace.build import TraceBuilder
from gpusim.trace.exporters import export_trace
from gpusim.trace.exporters.libcachesim import requests
from gpusim.trace.files import load_trace
from gpusim.trace.importers.libcachesim import RECORD, is_binary, read
from gpusim.trace.trace import ALLOC, OP, Trace

pytestmark = pytest.mark.oracle

TRACES = Path(__file__).parents[2] / "traces"
RIVALS = {policy: rival for policy, (rival, _) in load_benchmark().RIVALS.items()}
PAGE = 16 * 2**20


def tiny() -> Trace:
    build = TraceBuilder("tiny")
    a, b, none = build.alloc(100), build.alloc(30), build.alloc(0)
    build.op("mm", [a, a, none], [b])
    build.op("add_", [b], [b])
    build.free(b)
    build.op("relu", [a], [])
    return build.finish()


def exported(trace: Trace, format: str, **options: Any) -> bytes:
    out = io.BytesIO()
    export_trace(trace, format, out, **options)
    return out.getvalue()


def test_each_tensor_that_an_operator_touches_is_one_request() -> None:
    assert exported(tiny(), "libcachesim-csv").decode().splitlines() == [
        "time,obj_id,obj_size,next_access_vtime", "0,1,100,4", "0,2,30,3", "1,2,30,-1", "2,1,100,-1",
    ]  # fmt: skip
    rows = np.frombuffer(exported(tiny(), "oracleGeneral"), RECORD)
    assert rows.tolist() == [(0, 1, 100, 4), (0, 2, 30, 3), (1, 2, 30, -1), (2, 1, 100, -1)]


def test_at_page_grain_each_page_is_one_request() -> None:
    lines = exported(tiny(), "libcachesim-csv", grain=64).decode().splitlines()
    assert lines[1:] == ["0,1,64,5", "0,2,64,6", "0,3,64,4", "1,3,64,-1", "2,1,64,-1", "2,2,64,-1"]


def test_what_cannot_be_written_is_said() -> None:
    build = TraceBuilder("large")
    build.op("zero_", [], [build.alloc(2**32)])
    large = build.finish()
    with pytest.raises(TraceError, match=r"4,294,967,296 bytes does not fit the 32 bits of oracleGeneral .--grain 2MiB"):
        exported(large, "oracleGeneral")
    assert b"0,1,4294967296,-1" in exported(large, "libcachesim-csv")
    with pytest.raises(TraceError, match=r"make 4,294,967,296 requests .take larger pages"):
        exported(large, "oracleGeneral", grain=1)
    with pytest.raises(TraceError, match=r"a list of requests needs .* which gpt-medium-infer-snapshot does not say"):
        exported(load_trace(TRACES / "gpt-medium-infer-snapshot.npz"), "oracleGeneral")


@pytest.mark.slow
@pytest.mark.parametrize("grain", [0, PAGE])
@pytest.mark.parametrize("format", ["oracleGeneral", "libcachesim-csv"])
@pytest.mark.parametrize("name", ["gpt2-small-train-ckpt", "resnet50-train"])
def test_libcachesim_counts_the_misses_that_we_count(name: str, format: str, grain: int, tmp_path: Path) -> None:
    library = pytest.importorskip("libcachesim")
    trace = load_trace(TRACES / f"{name}.npz")
    (tmp_path / "requests").write_bytes(exported(trace, format, grain=grain))
    # Pages count as one unit each: in bytes, ARC and S3-FIFO there move their targets by single bytes.
    how = library.ReaderInitParam(ignore_obj_size=bool(grain), has_header=True, has_header_set=True, delimiter=",")
    how.time_field, how.obj_id_field, how.obj_size_field = 1, 2, 3
    kind = library.TraceType.CSV_TRACE if format == "libcachesim-csv" else library.TraceType.ORACLE_GENERAL_TRACE
    reader = library.TraceReader(str(tmp_path / "requests"), kind, how)
    found = requests(trace, grain)
    ids, size = found.object.astype(np.int32), np.maximum(found.size, 1)
    unit = grain or 1
    for share in (0.1, 0.3, 0.6):
        capacity = max(int(size.max()), int(size.sum() * share)) // unit
        for policy in RIVALS if grain else UNEQUAL:
            if policy == "belady" and format != "oracleGeneral":
                continue  # its CSV reader passes over the next access
            reader.reset()
            misses = getattr(library, RIVALS[policy])(capacity, hashpower=16).process_trace(reader)[0] * len(ids)
            ours = replay(ids, 1 if grain else size, capacity, registry.get("evict", policy))
            assert ours.misses == round(misses), (policy, share)


UNITS = {
    "one": lambda: np.ones(OBJECTS, np.int64),
    "1 to 9": unequal_sizes,
    "1 to 9 KiB": lambda: unequal_sizes() * 1024,
    "a few large": lambda: np.where(np.arange(OBJECTS) % 5 == 0, 64, 1),
    "any": lambda: np.maximum(1, np.random.RandomState(3).lognormal(3, 1.5, OBJECTS)).astype(np.int64),
}


@pytest.mark.slow
@pytest.mark.parametrize("sizes", UNITS)
@pytest.mark.parametrize("name", ["zipf", "scans", "loops", "phases"])
def test_arc_counts_what_its_paper_says(name: str, sizes: str) -> None:
    requests, table = load_benchmark().sequences(8000, OBJECTS)[name], UNITS[sizes]()
    for share in (0.02, 0.1, 0.3):
        capacity = max(int(table.sum() * share), int(table.max()))
        paper = arc_paper.misses(requests.tolist(), dict(enumerate(table.tolist())), capacity)
        assert replay(requests, table, capacity, registry.get("evict", "arc")).misses == paper, share


def test_arc_of_libcachesim_depends_on_the_unit_of_sizes(tmp_path: Path) -> None:
    """Why it is not what decides for objects of several sizes: KiB and bytes are the same memory and the same objects."""
    pytest.importorskip("libcachesim")
    requests, table = load_benchmark().sequences(8000, OBJECTS)["phases"], unequal_sizes()
    counts = {}
    for factor in (1, 1024):
        rival = load_benchmark().Rival(tmp_path, requests, table * factor)
        theirs = rival.run("arc", int(table.sum() * 0.3) * factor)[0]
        ours = replay(requests, table * factor, int(table.sum() * 0.3) * factor, registry.get("evict", "arc")).misses
        counts[factor] = theirs, ours
    assert counts[1][0] != counts[1024][0] and counts[1][1] == counts[1024][1]


@pytest.mark.parametrize("format", ["oracleGeneral", "libcachesim-csv"])
def test_requests_become_a_trace_again(format: str, tmp_path: Path) -> None:
    (tmp_path / "requests").write_bytes(exported(tiny(), format))
    back = import_trace(tmp_path / "requests")
    assert back.size.tolist() == [100, 30] and back.read_id.tolist() == [0, 1, 1, 0]
    assert list(zip(back.kind.tolist(), back.arg.tolist(), strict=True)) == [
        (ALLOC, 0), (OP, 0), (ALLOC, 1), (OP, 1), (OP, 2), (OP, 3),
    ]  # fmt: skip
    assert back.time.tolist() == [0, 0, 0, 0, 10**9, 2 * 10**9] and back.read_bytes.tolist() == [100, 30, 30, 100]
    real = load_trace(TRACES / "resnet50-train.npz")
    was, now = requests(real), requests(read(exported(real, format), "x"))
    assert np.array_equal(was.next, now.next) and np.array_equal(was.size[was.object], now.size[now.object])


def test_an_object_is_as_large_as_it_is_ever_asked_for() -> None:
    trace = read(b"obj_id,obj_size\nx,10\ny,5\nx,30\n", "x")
    assert trace.size.tolist() == [30, 5] and trace.read_bytes.tolist() == [10, 5, 30]
    assert trace.meta["warnings"] == ["1 requests ask for less than their object's size"]


def test_the_binary_form_is_told_from_others() -> None:
    rows = np.frombuffer(exported(tiny(), "oracleGeneral"), RECORD).copy()
    assert is_binary(rows.tobytes()) and is_binary(rows.tobytes()[:-3])
    from_zero = rows.copy()
    from_zero["next"][rows["next"] > 0] -= 1
    never = rows.copy()
    never["next"][rows["next"] < 0] = 2**63 - 1
    assert is_binary(from_zero.tobytes()) and is_binary(never.tobytes())
    wrong = rows.copy()
    wrong["next"][0] = 2  # request 2 is of another object, and so is the one after it
    wrong["id"][2] = 9
    assert not is_binary(wrong.tobytes()) and not is_binary(b"") and not is_binary(bytes(48))
    for other in (TRACES.parent / "tests" / "data" / "traces").iterdir():
        assert not is_binary(other.read_bytes()[: 1 << 16]), other


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,obj_id,obj_size\n1,a,5\n0,b,5\n", "x:3: time falls from 1 to 0"),
        ("time,obj_id,obj_size\n1,a,5\n1,b,-5\n", "x:3: the size -5 is negative"),
        ("time,obj_id,obj_size\n1,a,5\n5000000000,b,5\n", "x:3: time goes from 1 to 5000000000 .its unit is the second"),
        ("time,obj_id,obj_size\n1,a,99999999999999999\n", "x: tensor 0"),
        ("time,obj_id,obj_size\n1,a,five\n", "x:2: 'five' in column 'obj_size' is not a whole number"),
        ("time,obj_id,obj_size\n1,a\n", "x:2: the line has 2 values, but there are 3 columns"),
        ("time,obj_id,obj_size\n", "x:1: there are no requests"),
        ("time,obj_id,size\n1,a,5\n", "x:1: there is no column 'size' .did you mean 'obj_size'"),
    ],
)
def test_a_bad_line_is_named(text: str, words: str) -> None:
    with pytest.raises(TraceError, match=words):
        read(text.encode(), "x")


def test_a_bad_record_is_named() -> None:
    data = exported(tiny(), "oracleGeneral")
    with pytest.raises(TraceError, match="x: the last of 4 records is cut short"):
        read(data[:-1], "x")
    rows = np.frombuffer(data, RECORD).copy()
    rows["time"][1] = 7
    with pytest.raises(TraceError, match="x: request 2: time falls from 7 to 1"):
        read(rows.tobytes(), "x")


@pytest.mark.slow
def test_the_verb(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["export", "resnet50-train", "--format", "oracleGeneral", "--grain", "2MiB", "-o", f"{tmp_path}/r.bin"]
    )
    assert done.exit_code == 0 and "55,840 requests" in done.output
    assert CliRunner().invoke(app, ["import", f"{tmp_path}/r.bin"]).exit_code == 0
    assert load_trace(tmp_path / "r.npz").ops == 55840
    for wrong in (["--on", "h100-sxm5-80gb"], ["--run", "x"], ["--place", "tlsf"], ["--format", "dtr", "--grain", "2MiB"]):
        done = CliRunner().invoke(
            app, ["export", "resnet50-train", "--format", "oracleGeneral", *wrong, "-o", f"{tmp_path}/no"]
        )
        assert done.exit_code != 0 and not (tmp_path / "no").exists()
