"""Perfetto's protobuf: a process track per GPU, a track per lane below it, flows from cause to effect, counters.

Written and read with the classes of the `perfetto` package, an extra.  Every row is a slice, or an instant where it took no
time; slices and instants stand by rising start.  The first packet says what the run was.

Source: perfetto.dev, "Synthetic track events" and protos/perfetto/trace/track_event.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np

from gpusim.base.errors import GpusimError, TraceError
from gpusim.results.activities import GROUPS, KINDS, NONE, Activities
from gpusim.results.viewers.exported import COUNTED, MARK, ExportedRun, RowsRead, flows, in_time, told

_SEQUENCE = 1
_ROOT = 1  # uuid of the track that says what the run was; those of devices follow, then lanes, then counters
_DEVICES, _LANES, _COUNTERS = 1 << 8, 1 << 20, 1 << 32
_TITLES = {"counters": "memory", "owners": "memory by owner", "rates": "links"}
_ANNOTATED = ("host", "tenant", "request", "cause", "bytes", "op", "unit")
_USUAL = (0, 0, NONE, NONE, 0, NONE, NONE)
_PACKETS_AT_ONCE = 1 << 13


def _classes() -> Any:
    """The module of the protobuf classes.  GpusimError where it is not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise GpusimError("Perfetto's format needs the package perfetto", hint="pip install 'gpusim[export]'") from None
    return perfetto_trace_pb2


def write(run: ExportedRun, file: BinaryIO) -> str:
    """Write the run to an open file; returns what to say of it.  GpusimError where the package is not installed."""
    pb, found = _classes(), run.activities
    writer = _Writer(pb, found)
    for packets in (writer.head(run), writer.tracks(), writer.rows(), writer.counters()):
        some = pb.Trace()
        for packet in packets:
            some.packet.append(packet)
            if len(some.packet) == _PACKETS_AT_ONCE:
                file.write(some.SerializeToString(deterministic=True))
                some = pb.Trace()
        file.write(some.SerializeToString(deterministic=True))  # traces joined are a trace
    return f"{len(found):,} activities on {len(found.lanes)} tracks, {writer.flows:,} flows"


class _Writer:
    def __init__(self, pb: Any, found: Activities) -> None:
        self.pb, self.found = pb, found
        self.annotations = {name: i for i, name in enumerate((*_ANNOTATED, MARK), 1)}
        self.flows = 0

    def packet(self, **fields: Any) -> Any:
        flags = self.pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        return self.pb.TracePacket(trusted_packet_sequence_id=_SEQUENCE, sequence_flags=flags, **fields)

    def head(self, run: ExportedRun) -> Iterator[Any]:
        """The mark by which the file is known, all words of it, and what the run was: an instant on a track of its own."""
        pb = self.pb
        first = self.packet(track_descriptor=pb.TrackDescriptor(uuid=_ROOT, name=MARK))
        first.sequence_flags = pb.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        first.first_packet_on_sequence = True
        yield first
        second = self.packet()
        words = second.interned_data
        words.event_names.extend(pb.EventName(iid=i, name=name) for i, name in enumerate(self.found.names, 1))
        words.event_categories.extend(pb.EventCategory(iid=i, name=kind) for i, kind in enumerate(KINDS, 1))
        words.debug_annotation_names.extend(
            pb.DebugAnnotationName(iid=i, name=name) for name, i in self.annotations.items()
        )
        yield second
        said = pb.DebugAnnotation(name_iid=self.annotations[MARK], string_value=json.dumps(run.about()))
        event = pb.TrackEvent(type=pb.TrackEvent.TYPE_INSTANT, track_uuid=_ROOT, name=run.title, debug_annotations=[said])
        yield self.packet(timestamp=0, track_event=event)

    def tracks(self) -> Iterator[Any]:
        """A track for each device, below it one for each lane; tracks of counters."""
        pb, found = self.pb, self.found
        explicit = pb.TrackDescriptor.EXPLICIT
        pairs = np.unique(np.stack([found.rows["device"], found.rows["lane"]]), axis=1).T.tolist()
        for device in sorted({0, *(device for device, _ in pairs)}):
            process = pb.ProcessDescriptor(pid=device + 1, process_name=f"GPU {device}")
            yield self.packet(
                track_descriptor=pb.TrackDescriptor(uuid=_DEVICES + device, process=process, child_ordering=explicit)
            )
        for device, number in pairs:
            lane = found.lanes[number]
            rank = (GROUPS.index(lane.group) + 1) * 1000 + number
            yield self.packet(track_descriptor=pb.TrackDescriptor(
                uuid=_uuid(device, number), parent_uuid=_DEVICES + device, name=lane.name, sibling_order_rank=rank,
            ))  # fmt: skip
        for group, name, uuid in self._series():
            unit = {"unit_name": "bytes/s"} if group == "rates" else {"unit": pb.CounterDescriptor.UNIT_SIZE_BYTES}
            yield self.packet(track_descriptor=pb.TrackDescriptor(
                uuid=uuid, parent_uuid=_DEVICES, name=f"{_TITLES[group]}: {name}", counter=pb.CounterDescriptor(**unit),
            ))  # fmt: skip

    def _series(self) -> Iterator[tuple[str, str, int]]:
        number = _COUNTERS
        for group in COUNTED:
            for name in getattr(self.found, group):
                yield group, name, number
                number += 1

    def rows(self) -> Iterator[Any]:
        """Begin and end of each row in the order of time."""
        pb, rows = self.pb, self.found.rows
        instant = (rows["start"] == rows["end"]).tolist()
        columns = (column.tolist() for column in in_time(self.found))
        flow_in, flow_out = self._flows()
        begin, end, at_once = pb.TrackEvent.TYPE_SLICE_BEGIN, pb.TrackEvent.TYPE_SLICE_END, pb.TrackEvent.TYPE_INSTANT
        track = (_LANES + rows["device"].astype(np.int64) * (1 << 12) + rows["lane"]).tolist()
        name, kind = (rows["name"] + 1).tolist(), (rows["kind"].astype(np.int64) + 1).tolist()
        said = list(zip(*(rows[column].tolist() for column in _ANNOTATED), strict=True))
        flag, make, event_of = pb.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE, pb.TracePacket, pb.TrackEvent
        for t, row, ending in zip(*columns, strict=True):
            if ending:
                event = event_of(type=end, track_uuid=track[row])
            else:
                event = event_of(
                    type=at_once if instant[row] else begin, track_uuid=track[row], name_iid=name[row],
                    category_iids=(kind[row],), debug_annotations=self._annotated(said[row]),
                )  # fmt: skip
                if row in flow_in:
                    event.terminating_flow_ids.append(row + 1)
                if row in flow_out:
                    event.flow_ids.extend(flow_out[row])
            yield make(timestamp=t, trusted_packet_sequence_id=_SEQUENCE, sequence_flags=flag, track_event=event)

    def _annotated(self, values: tuple[int, ...]) -> list[Any]:
        make = self.pb.DebugAnnotation
        return [make(name_iid=i, int_value=v) for i, (v, usual) in enumerate(zip(values, _USUAL, strict=True), 1) if v != usual]

    def _flows(self) -> tuple[set[int], dict[int, list[int]]]:
        """Rows at which a flow ends, and of each cause the flows that begin there."""
        into = np.flatnonzero(flows(self.found))
        out: dict[int, list[int]] = {}
        for effect, cause in zip(into.tolist(), self.found.rows["cause"][into].tolist(), strict=True):
            out.setdefault(cause, []).append(effect + 1)
        self.flows = len(into)
        return set(into.tolist()), out

    def counters(self) -> Iterator[Any]:
        kind = self.pb.TrackEvent.TYPE_COUNTER
        for group, name, uuid in self._series():
            times, values = getattr(self.found, group)[name]
            for t, value in zip(times.tolist(), values.tolist(), strict=True):
                event = self.pb.TrackEvent(type=kind, track_uuid=uuid, counter_value=value)
                yield self.packet(timestamp=t, track_event=event)


def _uuid(device: int, lane: int) -> int:
    return _LANES + device * (1 << 12) + lane


def read(file: BinaryIO, path: str) -> ExportedRun:
    """What `write` has written.  Raises TraceError; GpusimError where the package is not installed."""
    pb = _classes()
    from google.protobuf.message import DecodeError

    trace = pb.Trace()
    try:
        trace.ParseFromString(file.read())
    except DecodeError:
        raise TraceError("the protobuf is damaged or cut short", path, "copy the file again") from None
    return _Reader(pb, trace, path).run()


class _Reader:
    def __init__(self, pb: Any, trace: Any, path: str) -> None:
        self.pb, self.trace, self.path = pb, trace, path
        self.said, self.lanes, self.names = told(self._about(), path)
        self.rows = RowsRead(path, len(self.lanes), self.names)
        words = trace.packet[1].interned_data
        self.kinds = {word.iid: self.rows.kind(word.name) for word in words.event_categories}
        self.columns = {word.iid: word.name for word in words.debug_annotation_names}
        self.points: dict[int, list[tuple[int, int]]] = {}

    def _about(self) -> Any:
        """What the third packet says of the run; None where it says nothing of the sort."""
        packets = self.trace.packet
        for annotation in packets[2].track_event.debug_annotations if len(packets) > 2 else ():
            try:
                return json.loads(annotation.string_value)
            except (ValueError, RecursionError):
                return None
        return None

    def run(self) -> ExportedRun:
        event_of = self.pb.TrackEvent
        series: dict[int, tuple[str, str]] = {}
        for packet in self.trace.packet:
            if packet.HasField("track_descriptor"):
                self._track(packet.track_descriptor, series)
                continue
            event, t = packet.track_event, packet.timestamp
            if event.track_uuid == _ROOT:
                continue
            if event.type == event_of.TYPE_COUNTER:
                self.points.setdefault(event.track_uuid, []).append((t, event.counter_value))
            elif event.type == event_of.TYPE_SLICE_END:
                self.rows.end(event.track_uuid, t)
            elif event.type == event_of.TYPE_SLICE_BEGIN:
                self._begin(event, t, event.track_uuid)
            elif event.type == event_of.TYPE_INSTANT:
                self._begin(event, t, None)
        counted: dict[str, Any] = {group: {} for group in COUNTED}
        for uuid, (group, name) in series.items():
            counted[group][name] = self.rows.counter(self.points.get(uuid, []))
        return ExportedRun(**self.said, activities=Activities(self.rows.table(), self.lanes, self.names, **counted))

    def _track(self, track: Any, series: dict[int, tuple[str, str]]) -> None:
        if track.uuid >= _COUNTERS:
            said = str(track.name)  # bytes where they are no UTF-8
            title, _, name = said.partition(": ")
            group = next((group for group, known in _TITLES.items() if known == title), None)
            if group is None:
                raise self.rows.refuse(f"there is no counter {said[:40]!r}")
            series[track.uuid] = (group, name)

    def _begin(self, event: Any, t: int, track: int | None) -> None:
        values = dict(zip(_ANNOTATED, _USUAL, strict=True))
        for annotation in event.debug_annotations:
            column = self.columns.get(annotation.name_iid)
            if column not in values:
                raise self.rows.refuse("it says what no activity has")
            values[column] = annotation.int_value
        kind = self.kinds.get(event.category_iids[0] if event.category_iids else 0)
        if kind is None or not 0 < event.name_iid <= len(self.names):
            raise self.rows.refuse("it has no kind, or no name")
        device, lane = divmod(event.track_uuid - _LANES, 1 << 12)
        self.rows.add(
            device, values["host"], values["tenant"], values["request"], lane, kind, event.name_iid - 1, t, t, values["cause"],
            values["bytes"], values["op"], values["unit"], track=track,
        )  # fmt: skip
