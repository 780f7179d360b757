"""Are exported runs what Perfetto and Chrome read, and is what they hold the run?  Perfetto's own protobuf classes judge."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb
from test_activities import ran
from test_activities_unified import of_recorded

from gpusim.base.errors import GpusimError, TraceError
from gpusim.results.activities import KINDS, NONE, activities
from gpusim.results.viewers import chrome, perfetto, tables
from gpusim.results.viewers.exported import COUNTED, ExportedRun, exported

FORMATS = (chrome, perfetto)
RUNS: tuple[dict[str, Any], ...] = (
    {}, {"streams": 3, "share": "sms, memory"}, {"tiers": "host(capacity=32MiB) > nvme"}, {"unified": 1},
)  # fmt: skip


def run(seed: int, unified: int = 0, **choices: Any) -> ExportedRun:
    return exported(*(of_recorded(seed) if unified else ran(seed, **choices)))


def written(format: Any, found: ExportedRun) -> bytes:
    file = io.BytesIO()
    format.write(found, file)
    return file.getvalue()


@pytest.mark.parametrize("format", FORMATS, ids=["chrome", "perfetto"])
@pytest.mark.parametrize("choices", RUNS, ids=str)
def test_what_is_written_is_what_is_read(format: Any, choices: dict[str, Any]) -> None:
    before = run(5, **choices)
    data = written(format, before)
    after = format.read(io.BytesIO(data), "file")
    old, new = before.activities, after.activities
    for column in old.rows.dtype.names:
        if column == "name":
            assert [new.names[n] for n in new.rows["name"]] == [old.names[n] for n in old.rows["name"]]
        else:
            assert np.array_equal(new.rows[column], old.rows[column]), column
    assert (new.lanes, new.names) == (old.lanes, old.names)
    for group in COUNTED:
        series, again = getattr(old, group), getattr(new, group)
        assert list(series) == list(again)
        for name, (times, values) in series.items():
            assert np.array_equal(again[name][0], times) and np.array_equal(again[name][1], values), name
    assert (after.title, after.key, after.outcome) == (before.title, before.key, before.outcome)
    assert (after.spec, after.metrics) == (before.spec, before.metrics)
    assert written(format, after) == data


def events(found: ExportedRun) -> tuple[Any, list[Any]]:
    trace = pb.Trace.FromString(written(perfetto, found))
    return trace, [packet for packet in trace.packet if packet.HasField("track_event")]


@pytest.mark.parametrize("choices", RUNS, ids=str)
def test_slices_of_a_track_begin_and_end_in_turn(choices: dict[str, Any]) -> None:
    """By the protobuf alone: what Perfetto would draw on each track is what ran there."""
    found = run(8, **choices)
    trace, packets = events(found)
    words = {word.iid: word.name for packet in trace.packet for word in packet.interned_data.event_names}
    kinds = {word.iid: word.name for packet in trace.packet for word in packet.interned_data.event_categories}
    tracks = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    drawn: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    begun: dict[int, Any] = {}
    assert [p.timestamp for p in packets[1:] if p.track_event.type != pb.TrackEvent.TYPE_COUNTER] == sorted(
        p.timestamp for p in packets[1:] if p.track_event.type != pb.TrackEvent.TYPE_COUNTER
    )
    for packet in packets[1:]:
        event, track = packet.track_event, tracks[packet.track_event.track_uuid]
        assert event.track_uuid in tracks and packet.sequence_flags == pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        if event.type == pb.TrackEvent.TYPE_SLICE_BEGIN:
            assert event.track_uuid not in begun, "a slice begins while another one is there"
            begun[event.track_uuid] = packet
        elif event.type == pb.TrackEvent.TYPE_SLICE_END:
            first = begun.pop(event.track_uuid)
            row = (words[first.track_event.name_iid], kinds[first.track_event.category_iids[0]])
            drawn[track.name].append((*row, first.timestamp, packet.timestamp))
        elif event.type == pb.TrackEvent.TYPE_INSTANT:
            row = (words[event.name_iid], kinds[event.category_iids[0]])
            drawn[track.name].append((*row, packet.timestamp, packet.timestamp))
    assert not begun
    expected: dict[str, list[tuple[str, str, int, int]]] = defaultdict(list)
    for row in found.activities.rows:
        lane = found.activities.lanes[row["lane"]].name
        expected[lane].append((found.activities.names[row["name"]], KINDS[row["kind"]], int(row["start"]), int(row["end"])))
    assert {name: sorted(rows) for name, rows in drawn.items()} == {name: sorted(rows) for name, rows in expected.items()}
    below = {track.parent_uuid for track in tracks.values() if track.parent_uuid}
    processes = {uuid: track.process.process_name for uuid, track in tracks.items() if track.HasField("process")}
    assert below <= set(processes) and set(processes.values()) == {"GPU 0"}


def test_flows_go_from_a_cause_to_its_effect() -> None:
    found = run(8, streams=3, share="sms, memory")
    rows = found.activities.rows
    _, packets = events(found)
    out, into = {}, {}
    for packet in packets:
        for flow in packet.track_event.flow_ids:
            assert flow not in out
            out[flow] = (packet.timestamp, packet.track_event.track_uuid)
        for flow in packet.track_event.terminating_flow_ids:
            assert flow not in into
            into[flow] = (packet.timestamp, packet.track_event.track_uuid)
    causes = [row for row in rows if row["cause"] != NONE and KINDS[row["kind"]] != "stall"]
    crossing = [row for row in causes if rows["lane"][row["cause"]] != row["lane"]]
    assert set(out) == set(into) and len(out) == len(crossing) > 10
    assert sorted((start, end) for (start, _), (end, _) in ((out[f], into[f]) for f in out)) == sorted(
        (int(rows["start"][row["cause"]]), int(row["start"])) for row in crossing
    )
    assert all(out[flow][0] <= into[flow][0] and out[flow][1] != into[flow][1] for flow in out)


def test_counters_have_their_units() -> None:
    found = run(2)
    trace, packets = events(found)
    counters = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.track_descriptor.HasField("counter")}
    points = defaultdict(list)
    for packet in packets:
        if packet.track_event.type == pb.TrackEvent.TYPE_COUNTER:
            points[counters[packet.track_event.track_uuid].name].append((packet.timestamp, packet.track_event.counter_value))
    times, values = found.activities.counters["allocated"]
    assert points["memory: allocated"] == list(zip(times.tolist(), values.tolist(), strict=True))
    assert max(value for _, value in points["memory: allocated"]) == found.metrics["allocated_peak_bytes"]
    units = {track.name: track.counter.unit_name or track.counter.unit for track in counters.values()}
    assert units["memory: allocated"] == pb.CounterDescriptor.UNIT_SIZE_BYTES and units["links: h2d"] == "bytes/s"
    assert any(name.startswith("memory by owner: ") for name in units)


def test_a_chrome_trace_is_json_with_exact_times() -> None:
    found = run(8, streams=3)
    tree = json.loads(written(chrome, found))
    assert tree["displayTimeUnit"] == "ns"
    phases = Counter(event["ph"] for event in tree["traceEvents"])
    assert phases["B"] + phases["i"] == len(found.activities) and phases["B"] == phases["E"] > phases["i"] > 0
    assert phases["s"] == phases["f"] > 0 and phases["C"] > 10
    begun: dict[tuple[int, int], list[Any]] = defaultdict(list)
    ended: dict[int, float] = {}
    rows = [event for event in tree["traceEvents"] if event["ph"] in "Bi"]
    for event in tree["traceEvents"]:
        if event["ph"] == "B":
            assert not begun[event["pid"], event["tid"]], "a row begins while another one of its lane is there"
            begun[event["pid"], event["tid"]].append(event)
        elif event["ph"] == "E":
            ended[id(begun[event["pid"], event["tid"]].pop())] = event["ts"]
    for event, row in zip(rows, found.activities.rows, strict=True):
        assert round(event["ts"] * 1000) == row["start"]
        assert round(ended.get(id(event), event["ts"]) * 1000) == row["end"]
        assert found.activities.lanes[event["tid"]].name == found.activities.lanes[row["lane"]].name
    flows = {ph: {e["id"]: e for e in tree["traceEvents"] if e["ph"] == ph} for ph in "sf"}
    assert set(flows["s"]) == set(flows["f"]) and all(e["ts"] <= flows["f"][i]["ts"] for i, e in flows["s"].items())
    named = {(e["pid"], e["tid"]): e["args"]["name"] for e in tree["traceEvents"] if e.get("name") == "thread_name"}
    assert set(named.values()) == {lane.name for lane in found.activities.lanes}


def test_what_is_no_exported_run_is_refused() -> None:
    found = run(1)
    good = json.loads(written(chrome, found))

    def refused(match: str, **changed: Any) -> None:
        with pytest.raises(TraceError, match=match):
            chrome.read(io.BytesIO(json.dumps({**good, **changed}).encode()), "file")

    about = good["otherData"]["gpusim-run"]
    refused("does not say that it is a run of gpusim", otherData={})
    refused("of version '2'", otherData={"gpusim-run": {**about, "gpusim-run": 2}})
    refused("what the file says of the run is damaged", otherData={"gpusim-run": {**about, "lanes": [["a", "b", 0]]}})
    rows = [event for event in good["traceEvents"] if event["ph"] in "BiE"]
    refused("row 0: there is no kind of activity 'dance'", traceEvents=[{**rows[0], "cat": "dance"}])
    refused("there is no lane 99", traceEvents=[{**rows[0], "tid": 99}])
    first = next(event for event in rows if event["ph"] == "B")
    end = {"ph": "E", "pid": first["pid"], "tid": first["tid"]}
    refused("ends before it starts", traceEvents=[{**first, "ts": 9}, {**end, "ts": 8}])
    refused("some activities have no end", traceEvents=[first])
    refused("something ends that did not begin", traceEvents=[{**end, "ts": 8}])
    refused("a number of it is that of no run", traceEvents=[{**rows[0], "ph": "i", "ts": -9}])
    later = [{**event, "ph": "i"} for event in rows if event["ph"] == "B"]
    refused("starts before the one that stands before it", traceEvents=later[::-1])
    refused("a cause that is not there", traceEvents=[{**rows[0], "ph": "i", "args": {"cause": 7}}])
    data = written(perfetto, found)
    with pytest.raises(TraceError, match="damaged or cut short"):
        perfetto.read(io.BytesIO(data[: len(data) // 2]), "file")
    with pytest.raises(TraceError, match="does not say that it is a run of gpusim"):
        perfetto.read(io.BytesIO(pb.Trace(packet=[pb.TracePacket(timestamp=1)] * 4).SerializeToString()), "file")
    cut = pb.Trace.FromString(data)
    del cut.packet[next(i for i, p in enumerate(cut.packet) if p.track_event.type == pb.TrackEvent.TYPE_SLICE_END)]
    with pytest.raises(TraceError, match="some activities have no end"):
        perfetto.read(io.BytesIO(cut.SerializeToString()), "file")


def test_a_missing_package_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    found = run(1)
    monkeypatch.setitem(sys.modules, "perfetto.protos.perfetto.trace", None)
    with pytest.raises(GpusimError, match=r"needs the package perfetto.*pip install 'gpusim\[export\]'"):
        written(perfetto, found)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(GpusimError, match=r"'parquet' needs the package pyarrow.*pip install 'gpusim\[export\]'"):
        tables.write({"a": [1]}, "parquet", io.BytesIO(), {})


@pytest.mark.parametrize("format", tables.FORMATS)
def test_tables_hold_rows_with_their_units(format: str) -> None:
    import pyarrow
    from pyarrow import feather, parquet

    result, trace = ran(3, streams=2)
    found = activities(result, trace)
    file = io.BytesIO()
    assert tables.write(tables.of_activities(found), format, file, {"title": "x"}) == f"{len(found):,} rows, 14 columns"
    file.seek(0)
    table = parquet.read_table(file) if format == "parquet" else feather.read_table(file)
    assert table.column("start").to_pylist() == found.rows["start"].tolist()
    assert table.column("name").to_pylist() == [found.names[n] for n in found.rows["name"]]
    assert table.column("kind").to_pylist() == [KINDS[k] for k in found.rows["kind"]]
    assert table.schema.field("start").metadata == {b"unit": b"ns"}
    assert json.loads(table.schema.metadata[b"gpusim"]) == {"title": "x"}

    others = [ran(seed, evict=evict)[0] for seed, evict in ((1, "lru"), (2, "fifo"))]
    file = io.BytesIO()
    tables.write(tables.of_runs(others), format, file, {})
    file.seek(0)
    table = parquet.read_table(file) if format == "parquet" else feather.read_table(file)
    assert table.column("makespan_ns").to_pylist() == [r.metrics["makespan_ns"] if r.finished else None for r in others]
    assert table.schema.field("makespan_ns").metadata[b"unit"] == b"ns"
    assert table.schema.field("makespan_ns").type == pyarrow.int64()
    assert table.column("evict").to_pylist() == ["lru", "fifo"]
