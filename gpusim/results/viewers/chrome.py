"""The Trace Event Format of chrome://tracing, which Perfetto's UI opens as well: JSON, a process per GPU, a thread per lane.

A row begins ("B") and ends ("E"), or is an instant ("i") where it took no time; events stand in the order of time, rows by
rising start.  (A complete event has a duration, and a viewer that adds it to the start may find by rounding that the row ends
behind the start of the next one.)  `args` has what else is known of a row; a flow goes from each cause to its effect; counters
are "C" events.  Times are microseconds with three digits, so none is rounded.

Source: "Trace Event Format", the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from gpusim.results.activities import GROUPS, KINDS, NONE, Activities, Counter
from gpusim.results.viewers.exported import COUNTED, MARK, ExportedRun, RowsRead, flows, in_time, told
from gpusim.trace.importers.json_stream import JsonStream

_EVENTS_AT_ONCE = 1 << 15
_ARGS = ("host", "tenant", "request", "cause", "bytes", "op", "unit")  # columns that stand in args
_USUAL = {"host": 0, "tenant": 0, "request": NONE, "cause": NONE, "bytes": 0, "op": NONE, "unit": NONE}  # and are left out


def write(run: ExportedRun, file: BinaryIO) -> str:
    """Write the run to an open file; returns what to say of it."""
    found = run.activities
    file.write(b'{"otherData":{"' + MARK.encode() + b'":' + json.dumps(run.about()).encode() + b"},\n")
    file.write(b'"displayTimeUnit":"ns","traceEvents":[\n')
    # Every event but the last is followed by a comma: the last one is the name of the process that is there in any case.
    for some in _events(found):
        file.write(",\n".join(some).encode() + b",\n" if some else b"")
    file.write(_process(0).encode() + b"\n]}\n")
    return f"{len(found):,} activities on {len(found.lanes)} lanes, {int(flows(found).sum()):,} flows"


def _events(found: Activities) -> Iterator[list[str]]:
    devices = np.unique(found.rows["device"]).tolist()
    yield [_process(device) for device in devices if device != 0]
    yield _threads(found)
    yield from _rows(found)
    for group in COUNTED:
        for name, series in getattr(found, group).items():
            yield _counter(group, name, series)


def _process(device: int) -> str:
    return f'{{"ph":"M","name":"process_name","pid":{device},"args":{{"name":"GPU {device}"}}}}'


def _threads(found: Activities) -> list[str]:
    """Name and order of each lane, on every device that has rows in it."""
    out = []
    pairs = np.unique(np.stack([found.rows["device"], found.rows["lane"]]), axis=1).T.tolist()
    for device, number in pairs:
        lane, where = found.lanes[number], f'"pid":{device},"tid":{number}'
        order = (GROUPS.index(lane.group) + 1) * 1000 + number
        out.append(f'{{"ph":"M","name":"thread_name",{where},"args":{{"name":{json.dumps(lane.name)}}}}}')
        out.append(f'{{"ph":"M","name":"thread_sort_index",{where},"args":{{"sort_index":{order}}}}}')
    return out


def _rows(found: Activities) -> Iterator[list[str]]:
    names, rows, crossing = [json.dumps(name) for name in found.names], found.rows, flows(found)
    time, row_of, ending = in_time(found)
    for begin in range(0, len(time), _EVENTS_AT_ONCE):
        some = slice(begin, begin + _EVENTS_AT_ONCE)
        of = rows[row_of[some]]
        args = _args(of, ~ending[some])
        took = (of["start"] < of["end"]).tolist()
        columns = (of[name].tolist() for name in ("name", "kind", "device", "lane"))
        out = []
        for t, ends, lasts, said, name, kind, device, lane in zip(
            time[some].tolist(), ending[some].tolist(), took, args, *columns, strict=True
        ):
            where = f'"ts":{_us(t)},"pid":{device},"tid":{lane}'
            if ends:
                out.append(f'{{"ph":"E",{where}}}')
            else:
                letter = '"B"' if lasts else '"i","s":"t"'
                out.append(f'{{"ph":{letter},"name":{names[name]},"cat":"{KINDS[kind]}",{where},"args":{{{said[1:]}}}}}')
        for i in np.flatnonzero(crossing[row_of[some]] & ~ending[some]).tolist():
            out.append(_flow("s", int(row_of[begin + i]), rows[of["cause"][i]]) + "}")
            out.append(_flow("f", int(row_of[begin + i]), of[i]) + ',"bp":"e"}')
        yield out


def _args(rows: Any, wanted: Any) -> list[str]:
    """Of each wanted row what is not as usual, as JSON's members with a comma before each."""
    args = [""] * len(rows)
    for column in _ARGS:
        at = np.flatnonzero(wanted & (rows[column] != _USUAL[column]))
        for i, value in zip(at.tolist(), rows[column][at].tolist(), strict=True):
            args[i] += f',"{column}":{value}'
    return args


def _flow(ph: str, number: int, row: Any) -> str:
    where = f'"ts":{_us(int(row["start"]))},"pid":{row["device"]},"tid":{row["lane"]}'
    return f'{{"ph":"{ph}","name":"cause","cat":"flow","id":{number},{where}'


def _counter(group: str, name: str, series: Counter) -> list[str]:
    said, unit = json.dumps(_titled(group, name)), "bytes/s" if group == "rates" else "bytes"
    return [
        f'{{"ph":"C","name":{said},"cat":"{group}","ts":{_us(t)},"pid":0,"args":{{"{unit}":{value}}}}}'
        for t, value in zip(series[0].tolist(), series[1].tolist(), strict=True)
    ]


def _titled(group: str, name: str) -> str:
    return {"counters": "{}", "owners": "memory of: {}", "rates": "link: {}"}[group].format(name)


def _us(ns: int) -> str:
    """Microseconds, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def read(file: BinaryIO, path: str) -> ExportedRun:
    """What `write` has written.  Raises TraceError."""
    stream = JsonStream(file, path, "traceEvents")
    said = None
    points: dict[str, dict[str, list[tuple[int, int]]]] = {group: {} for group in COUNTED}
    for key, value in stream:
        if key == "otherData":
            said = told(value.get(MARK) if isinstance(value, dict) else None, path)
            rows = RowsRead(path, len(said[1]), said[2])
        elif key == "traceEvents":
            if said is None:
                told(None, path)
            _read_event(value, rows, points)
    if said is None:
        told(None, path)
    assert said is not None
    about, lanes, names = said
    series: dict[str, Any] = {group: {name: rows.counter(found) for name, found in points[group].items()} for group in COUNTED}
    return ExportedRun(**about, activities=Activities(rows.table(), lanes, names, **series))


def _read_event(event: Any, rows: RowsRead, points: dict[str, dict[str, list[tuple[int, int]]]]) -> None:
    if not isinstance(event, dict):
        raise rows.refuse("an event is no object")
    try:
        if event["ph"] in ("B", "i"):
            args, start = {**_USUAL, **event["args"]}, _ns(event["ts"])
            columns = {name: int(args[name]) for name in _ARGS}
            device, lane = int(event["pid"]), int(event["tid"])
            rows.add(
                device, columns["host"], columns["tenant"], columns["request"], lane, rows.kind(event["cat"]),
                rows.names[event["name"]], start, start, columns["cause"], columns["bytes"], columns["op"], columns["unit"],
                track=(device, lane) if event["ph"] == "B" else None,
            )  # fmt: skip
        elif event["ph"] == "E":
            rows.end((int(event["pid"]), int(event["tid"])), _ns(event["ts"]))
        elif event["ph"] == "C":
            group, (value,) = event["cat"], event["args"].values()
            name = event["name"].removeprefix(_titled(group, ""))
            points[group].setdefault(name, []).append((_ns(event["ts"]), int(value)))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise rows.refuse("the event lacks something, or a number is none") from None


def _ns(us: float) -> int:
    """A time in the file as ns: exact below 2^53 of them, which are 104 days."""
    return round(us * 1000)
