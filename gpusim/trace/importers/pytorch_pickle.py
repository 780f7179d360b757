"""PyTorch memory snapshots: the pickle that `torch.cuda.memory._dump_snapshot` writes."""

from __future__ import annotations

from typing import Any

from gpusim.base.errors import TraceError
from gpusim.trace.build import TraceBuilder
from gpusim.trace.importers.pickle_scan import load_plain
from gpusim.trace.importers.pytorch_causes import causes
from gpusim.trace.importers.pytorch_parts import ACTIONS, IN_USE, LIVE_STATES, Event, RecordedBlock, Snapshot
from gpusim.trace.importers.pytorch_ranges import RecordedSegment
from gpusim.trace.importers.pytorch_settings import settings_of
from gpusim.trace.importers.pytorch_state import to_trace
from gpusim.trace.trace import Trace

_MAX_FRAMES = 200
_KEPT_FRAMES = 8


def read(data: bytes, path: str, *, name: str | None = None, device: int | None = None, frames: bool = True) -> Trace:
    """The trace of one device.

    device  which one, when several were recorded
    frames  name a tensor's category by the innermost Python frame of its allocation, "file.py:function", if recorded
    """
    root = load_plain(data, path)
    if not isinstance(root, dict) or not isinstance(root.get("segments"), list):
        raise TraceError("this pickle is not a PyTorch memory snapshot: it has no list of segments", path)
    traces = root.get("device_traces") or []
    if not isinstance(traces, list) or not all(isinstance(t, list) for t in traces):
        raise TraceError("the snapshot's device_traces are damaged", path)
    chosen = _device(root["segments"], traces, device, path)
    snapshot, names, pools = Snapshot(), _FrameNames(frames), _Pools()
    build = TraceBuilder(name or "snapshot", path)
    for segment in root["segments"]:
        if _get(segment, "device", int, path, 0) == chosen:
            _add_segment(segment, snapshot, names, pools, path)
    stacks = []
    for entry in traces[chosen] if 0 <= chosen < len(traces) else []:
        event = _event(entry, names, pools, path)
        if event is not None:
            snapshot.events.append(event)
            stacks.append(entry.get("frames"))
    snapshot.causes = causes(snapshot.events, stacks)
    if any(event.action == "segment_map" for event in snapshot.events):
        for segment in root["segments"]:
            addr = segment["address"]
            if "is_expandable" not in segment and addr in snapshot.segments:  # old: the events tell it
                snapshot.segments[addr] = snapshot.segments[addr]._replace(mapped=True)
    meta: dict[str, object] = {
        "format": "pytorch",
        "device": chosen,
        "alloc_conf": settings_of(root.get("allocator_settings"), _maps(snapshot)),
    }
    if names.stacks:
        meta["stacks"] = names.stacks
    return to_trace(snapshot, build, meta)


def _device(segments: list[Any], traces: list[Any], wanted: int | None, path: str) -> int:
    """The device to read: the wanted one, or the only one with segments or events."""
    present = {_get(segment, "device", int, path, 0) for segment in segments}
    present |= {number for number, events in enumerate(traces) if events}
    listed = ", ".join(map(str, sorted(present)[:16]))
    if wanted is not None:
        if wanted not in present:
            raise TraceError(f"the snapshot holds nothing of device {wanted}", path, f"it holds: {listed or 'nothing'}")
        return wanted
    if len(present) > 1:
        raise TraceError(f"the snapshot holds {len(present)} devices: {listed}", path, "choose one, as device=0 or --device 0")
    return present.pop() if present else 0


def _maps(snapshot: Snapshot) -> bool:
    """The program used expandable segments."""
    return any(segment.mapped for segment in snapshot.segments.values()) or any(
        event.action in ("segment_map", "segment_unmap") for event in snapshot.events
    )


class _Pools:
    """Private pools by number, in the order in which they are met; 0 is none of them."""

    def __init__(self) -> None:
        self.known = {(0, 0): 0}

    def of(self, told: Any, missing: int) -> int:
        if type(told) in (tuple, list) and len(told) == 2 and type(told[0]) is type(told[1]) is int:
            return self.known.setdefault(tuple(told), len(self.known))
        return missing


def _add_segment(segment: Any, snapshot: Snapshot, names: _FrameNames, pools: _Pools, path: str) -> None:
    addr, stream = _get(segment, "address", int, path), _get(segment, "stream", int, path, 0)
    size = _get(segment, "total_size", int, path)
    mapped, kind, number = segment.get("is_expandable"), segment.get("segment_type"), segment.get("registration_counter")
    snapshot.segments[addr] = RecordedSegment(
        size, stream, mapped is True, kind == "small" if kind in ("small", "large") else None,
        pools.of(segment.get("segment_pool_id"), 0), number if type(number) is int else -1,
    )  # fmt: skip
    for block in _get(segment, "blocks", list, path):
        size = _get(block, "size", int, path)
        at = _get(block, "address", int, path, addr)
        state = _get(block, "state", str, path)
        if state in LIVE_STATES:
            requested = _get(block, "requested_size", int, path, size)
            snapshot.blocks[at] = RecordedBlock(requested, stream, names.of(block), size)
            if state != IN_USE:
                snapshot.waiting.add(at)
        addr = at + size  # old files give no block addresses: add up the sizes


def _event(entry: Any, names: _FrameNames, pools: _Pools, path: str) -> Event | None:
    """One entry of the ring buffer, None for actions that say nothing of memory."""
    if type(entry) is dict:
        action, size = entry.get("action"), entry.get("size")
        addr = entry.get("device_free", -1) if action == "oom" else entry.get("addr", 0)
        stream, time_us = entry.get("stream", 0), entry.get("time_us", -1)
        if type(action) is str and action not in ACTIONS:
            return None
        # One test for all fields: there may be millions of entries.
        if type(action) is str and int is type(addr) is type(size) is type(stream) is type(time_us):
            category = names.of(entry) if action == "alloc" else "unknown"
            return Event(action, addr, size, stream, time_us, category, pool=pools.of(entry.get("pool_id"), -1))
    for key, kind in (("action", str), ("size", int), ("addr", int), ("stream", int), ("time_us", int)):
        _get(entry, key, kind, path, None if key in ("action", "size") else 0)  # raises at the one that is wrong
    raise TraceError("an event of the snapshot has a field that is not a whole number", path, "is the file damaged?")


def _get(entry: Any, key: str, kind: type, path: str, default: Any = None) -> Any:
    """A field of the expected type; a damaged snapshot is refused, a field that old releases lack has a default."""
    value = entry.get(key, default) if isinstance(entry, dict) else None
    if type(value) is not kind:
        raise TraceError(f"the snapshot is damaged: '{key}' is not {kind.__name__}", path)
    return value


class _FrameNames:
    """Names an allocation by the innermost Python frame of its stack; stacks are shared, so each is read once."""

    def __init__(self, wanted: bool) -> None:
        self.wanted, self.known, self.keep = wanted, dict[int, str](), list[Any]()
        self.stacks: dict[str, list[str]] = {}  # name -> the Python frames of the first stack of that name, innermost first

    def of(self, entry: dict[str, Any]) -> str:
        frames = entry.get("frames")
        if not self.wanted or not isinstance(frames, list):
            return "unknown"
        if id(frames) not in self.known:
            self.known[id(frames)] = self._name(frames[:_MAX_FRAMES])
            self.keep.append(frames)  # so that no other list gets its id
        return self.known[id(frames)]

    def _name(self, frames: list[Any]) -> str:
        stack = []
        for frame in frames:
            file = frame.get("filename") if isinstance(frame, dict) else None
            # Only strings: the text of nested lists could be endless.
            if isinstance(file, str) and file.endswith(".py") and "/torch/" not in file:
                function, line = frame.get("name"), frame.get("line")
                stack.append((file.rsplit("/", 1)[-1][:80], function[:80] if isinstance(function, str) else "", line))
        if not stack:
            return "unknown"
        name = f"{stack[0][0]}:{stack[0][1]}"
        if name not in self.stacks:
            self.stacks[name] = [
                f"{file}:{line} {function}" if type(line) is int and 0 <= line < 2**31 else f"{file} {function}"
                for file, function, line in stack
                if not function.endswith("_call_impl")  # torch.nn.Module's own, two for each of the program's
            ][:_KEPT_FRAMES]
        return name
