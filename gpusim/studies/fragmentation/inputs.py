"""What the doctor reads: traces and recordings, every device of a snapshot that holds several."""

from __future__ import annotations

import contextlib
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.base.files import make_folder
from gpusim.base.yaml.find import find, names
from gpusim.programs.recordings import import_trace
from gpusim.studies.fragmentation.moment import held_bytes
from gpusim.trace.files import load_trace
from gpusim.trace.importers.pickle_scan import load_plain
from gpusim.trace.importers.recording import open_recording, read_bytes
from gpusim.trace.trace import ALLOC, FREE, OOM, Trace

STEPS = 5  # of a script that is recorded: what every step leaves behind shows from the fourth on

Warn = Callable[[str], object]


def open_all(file: str, warn: Warn = lambda sentence: None) -> dict[int, Trace]:
    """Device -> its trace; a trace, or a recording of one device, is that of its own device, or of device 0."""
    devices = _devices(file)
    if len(devices) < 2:
        trace = open_trace(file, None, warn)
        return {int(trace.meta.get("device") or 0): trace}
    found = {}
    for device in devices:
        try:
            found[device] = open_trace(file, device, warn)
        except TraceError as error:
            warn(f"device {device}: {error}")
    if not found:
        raise TraceError("no device of this snapshot tells anything", file)
    return found


def choose(traces: dict[int, Trace], device: int | None) -> int:
    """The device asked for; else the one on which a request failed, else the one that held most."""
    if device is not None:
        if device not in traces:
            listed = ", ".join(map(str, traces))
            raise TraceError(f"there is nothing of device {device}", hint=f"there is: {listed}")
        return device
    return max(traces, key=lambda d: (*_failed(traces[d]), int(held_bytes(traces[d]).max(initial=0)), -d))


def _failed(trace: Trace) -> tuple[bool, bool]:
    """Whether a request failed, and whether the program ended with it."""
    failed = np.flatnonzero(trace.kind == OOM)
    return bool(len(failed)), bool(len(failed) and not np.isin(trace.kind[failed[-1] :], (ALLOC, FREE)).any())


def _devices(file: str) -> list[int]:
    """The devices of a PyTorch snapshot; [] for other files."""
    path = Path(file).expanduser()
    if path.suffix == ".npz" or not path.is_file():
        return []
    with open_recording(path) as opened:
        if opened.read(1) != b"\x80":
            return []
    root = load_plain(read_bytes(path), str(path))
    if not isinstance(root, dict):
        return []
    segments, traces = root.get("segments"), root.get("device_traces")
    present = set()
    if isinstance(segments, list):
        present = {segment.get("device", 0) for segment in segments if isinstance(segment, dict)}
    if isinstance(traces, list):
        present |= {number for number, events in enumerate(traces) if events}
    return sorted(device for device in present if type(device) is int)


def open_trace(file: str, device: int | None, warn: Warn = lambda sentence: None) -> Trace:
    """A trace by name or path, or a foreign recording, imported on the way."""
    path = Path(file).expanduser()
    if path.suffix == ".npz" or not path.is_file():
        if path.is_dir() and file not in names("trace"):
            raise TraceError("this is a folder", file, "give a trace (.npz) or a recording")
        if not path.is_file() and (path.suffix or "/" in file) and file not in names("trace"):
            raise TraceError("there is no such file", file)
        trace = load_trace(find("trace", file))
        if device is not None:
            raise TraceError("--device chooses one GPU of a snapshot", file, "leave it out: a trace is of one")
    else:
        options: dict[str, Any] = {} if device is None else {"device": device}
        trace = import_trace(path, None, **options)
        for warning in trace.meta.get("warnings", ()):
            warn(warning)
    if not trace.tensors:
        raise TraceError("the trace allocates nothing", file)
    return trace


def folder_of(script: str) -> Path:
    """Where the recording of a script is kept where no folder is named."""
    return Path("results") / f"oom-{Path(script).stem}"


def record(words: Sequence[str], folder: Path | None, warn: Warn = lambda sentence: None) -> Trace:
    """The trace of a script that is run without a GPU; `words` are its name and arguments.  What it prints goes to stderr.

    Tensors that name no device stay on the host, as they do without gpusim.  If then nothing runs on the GPU, the script is one
    for the CPU, and is recorded once more with all of them on the GPU.
    """
    from gpusim.programs.record.script import record_script
    from gpusim.programs.record.where import NothingRan

    script = Path(words[0])
    target = folder or folder_of(words[0])
    make_folder(target)
    file = target / f"{script.stem}.npz"
    with warnings.catch_warnings(record=True) as said, contextlib.redirect_stdout(sys.stderr):
        try:
            trace = record_script(script, words[1:], file, steps=STEPS, device="cpu")
        except NothingRan:
            warn(f"{script} names no GPU: recorded with all of its tensors there")
            trace = record_script(script, words[1:], file, steps=STEPS, device="cuda")
    for sentence in dict.fromkeys(str(warning.message) for warning in said if "gpusim" in warning.category.__module__):
        warn(sentence)
    return trace
