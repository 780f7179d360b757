"""What XLA's text dump of a buffer assignment says, section by section; older versions have all sections in one file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from gpusim.base.errors import TraceError
from gpusim.trace.importers.recording import open_recording

SUFFIX = "-buffer-assignment.txt"
_SECTIONS = ("BufferAssignment:", "Used values:", "  InstructionSequence:", "  BufferLiveRange:", "  Live ranges at ")
_ASSIGNMENT, _USED, _SCHEDULE, _RANGES, _PEAK = _SECTIONS
_ALLOCATION = re.compile(r"allocation (\d+): size (\d+)(.*):$")
_VALUE = re.compile(r" value: <(\d+) ([^\s{]+)(\{[\d,]*\})?(?: \(\w+\))? @(\d+)> \(size=(\d+),offset=(\d+)\): \(?(\w*)")
_USED_VALUE = re.compile(r"<(\d+) .*@\d+>$")
_USE = re.compile(r"  (\S+), operand \d+")
_MADE = re.compile(r" from instruction: (?:ROOT )?%?(\S+) = (.*)")
_RANGE = re.compile(r"    (\S+\{[\d,]*\}):(\d+)-(\d+)$")
_LIVE = re.compile(r"    \S+: (\d+) bytes")
_HOST = 5  # memory space of the host


@dataclass
class BufferAllocation:
    size: int
    what: str  # ", parameter 0, shape ...", ", preallocated-temp", ...


@dataclass
class Value:
    maker: str  # instruction
    allocation: int
    size: int
    offset: int
    dtype: str  # in XLA's words
    start: int = -1  # instructions of the schedule, both included; -1: not in the live ranges
    end: int = -1
    users: list[str] = field(default_factory=list)


@dataclass
class Dump:
    allocations: list[BufferAllocation] = field(default_factory=list)
    values: dict[int, Value] = field(default_factory=dict)
    by_key: dict[str, Value] = field(default_factory=dict)  # instruction with the index of its shape -> value
    makers: dict[str, str] = field(default_factory=dict)  # instruction -> its text
    schedule: list[str] = field(default_factory=list)
    total: int = 0  # bytes of all allocations, as XLA states
    peak_at: int = -1  # instruction
    peak: int = 0  # bytes of the values that live there, as XLA states
    host: int = 0  # bytes of values in the host's memory, which are left out


def stem(path: str) -> str:
    """X of the files X-buffer-assignment.txt, X-live-range.txt, ..."""
    return Path(path).name.removesuffix(".gz").removesuffix(SUFFIX)


def beside(path: str, suffix: str) -> Iterator[str]:
    """Lines of another file of the dump; none where it is missing."""
    for packed in ("", ".gz"):
        other = Path(path).with_name(stem(path) + suffix + packed)
        if other.is_file() and other.name != Path(path).name:
            with open_recording(other) as file:
                yield from lines(file)
            return


def lines(file: Iterator[bytes]) -> Iterator[str]:
    for line in file:
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def parse(file: Iterator[bytes], path: str) -> Dump:
    """The dump whose first file this is.  Raises TraceError."""
    dump = Dump()
    for part in (lines(file), beside(path, "-buffer-assignment-values.txt"), beside(path, "-live-range.txt")):
        try:
            _parse(part, dump, path)
        except (ValueError, IndexError):
            raise TraceError("a number of this dump cannot be read", path, "was the dump cut short?") from None
    if not dump.allocations:
        raise TraceError("this dump has no allocations", path, f"the file to import is X{SUFFIX}")
    if not dump.schedule or not any(value.start >= 0 for value in dump.values.values()):
        raise TraceError("the live ranges of this dump are missing", path, f"keep X-live-range.txt beside X{SUFFIX}")
    if not dump.makers:
        raise TraceError("what uses the values is missing", path, f"keep X-buffer-assignment-values.txt beside X{SUFFIX}")
    return dump


def _parse(part: Iterator[str], dump: Dump, path: str) -> None:
    section, value = "", Value("", -1, 0, 0, "")
    for line in part:
        if heading := next((s for s in _SECTIONS if line.startswith(s)), ""):
            section = heading
            if section == _PEAK:
                dump.peak_at = int(line.removeprefix(_PEAK).split()[0])
        elif line.startswith("Total bytes used: "):
            dump.total = int(line.split()[3])
        elif section == _ASSIGNMENT:
            _assign(line, dump, path)
        elif section == _USED:
            if found := _USED_VALUE.match(line):
                value = dump.values.get(int(found[1]), Value("", -1, 0, 0, ""))
            elif found := _USE.match(line):
                value.users.append(found[1])
            elif found := _MADE.match(line):
                dump.makers[found[1]] = found[2]
        elif section == _SCHEDULE:
            dump.schedule.append(line.split(":", 1)[-1])
        elif section == _RANGES and (found := _RANGE.match(line)):
            if found[1] in dump.by_key:
                ranged = dump.by_key[found[1]]
                ranged.start, ranged.end = int(found[2]), int(found[3])
        elif section == _PEAK and (found := _LIVE.match(line)):
            dump.peak += int(found[1])


def _assign(line: str, dump: Dump, path: str) -> None:
    if found := _ALLOCATION.match(line):
        if int(found[1]) != len(dump.allocations):
            raise TraceError(f"allocation {len(dump.allocations)} is missing", path, "was the dump cut short?")
        dump.allocations.append(BufferAllocation(int(found[2]), found[3]))
    elif found := _VALUE.match(line):
        if int(found[4]) == _HOST:
            dump.host += int(found[5])
            return
        value = Value(found[2], len(dump.allocations) - 1, int(found[5]), int(found[6]), found[7])
        dump.values[int(found[1])] = dump.by_key[found[2] + (found[3] or "{}")] = value
        if value.offset + value.size > dump.allocations[-1].size:
            raise TraceError(f"the value {found[2]} ends beyond its allocation {value.allocation}", path)
