"""Programs of one device, and what the real library answers to them."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

Op = tuple[object, ...]
MIB, GIB = 1 << 20, 1 << 30
BASE = 0x7F0000000000  # where the first device's addresses begin in a recording
COUNTED = "aferp"  # operations that the library answers with a line


@dataclass(frozen=True)
class Program:
    """What one device is asked for.

    conf     PYTORCH_CUDA_ALLOC_CONF
    total    bytes of the device
    outside  bytes of it in use outside of PyTorch at the start
    ops      ("a", id, bytes, stream, stack)   ("f", id)   ("e",) empty_cache   ("p", "begin"|"end", pool)
             ("outside", bytes) from now on   ("record",) history is switched on   ("step",) a step ends
    """

    conf: str
    total: int
    outside: int
    ops: tuple[Op, ...]

    @property
    def start(self) -> int:
        """The operation from which the recording goes on."""
        return next((n for n, op in enumerate(self.ops) if op[0] == "record"), 0)

    def outside_at_end(self) -> int:
        return next((int(str(op[1])) for op in reversed(self.ops) if op[0] == "outside"), self.outside)

    def with_outside(self, nbytes: int) -> Program:
        return replace(self, outside=nbytes, ops=tuple(op for op in self.ops if op[0] != "outside"))

    def with_op(self, at: int, op: Op) -> Program:
        return replace(self, ops=(*self.ops[:at], op, *self.ops[at:]))


@dataclass
class Run:
    """After each operation: bytes held, bytes requested and live; where a request failed; the events and last segments."""

    held: list[int] = field(default_factory=list)
    live: list[int] = field(default_factory=list)
    failed: int = -1  # the first operation that failed
    events: list[tuple[int, list[list[str]]]] = field(default_factory=list)
    segments: list[list[str]] = field(default_factory=list)
    aborted: bool = False

    @property
    def served(self) -> bool:
        return self.failed < 0 and not self.aborted

    def peak(self, start: int, end: int | None = None) -> int:
        return max(self.held[start:end], default=0)


class Library:
    """The real library: one process for each setting, since settings outlive a reset."""

    def __init__(self, binary: str) -> None:
        self.binary = os.path.expanduser(binary)
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.runs = 0

    def run(self, program: Program, *, events: bool = False, switch: tuple[int, str] | None = None) -> Run:
        """switch: (operation, settings from there on)"""
        text = [f"C {max(0, program.total - program.outside)}", "O es" if events else "O s"]
        for n, op in enumerate(program.ops):
            if switch and switch[0] == n:
                text.append(f"S {switch[1]}")
            if op[0] == "outside":
                text.append(f"C {max(0, program.total - int(str(op[1])))}")
            elif op[0] == "a":
                text.append("a " + " ".join(map(str, op[1:4])))
            elif str(op[0]) in COUNTED:
                text.append(" ".join(map(str, op)))
        lines = self._say(program.conf, [*text, *(["O", "s"] if events else []), "R", "."])
        if not lines or lines[-1] != "= reset 0" or switch:
            self._close(program.conf)
        return _parse(program.ops, lines)

    def _say(self, conf: str, text: list[str]) -> list[str]:
        self.runs += 1
        process = self.processes.get(conf) or self._start(conf)
        assert process.stdin is not None and process.stdout is not None
        lines: list[str] = []
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write("\n".join(text) + "\n")
            process.stdin.flush()
            for line in process.stdout:
                if line == ".\n":
                    return lines
                lines.append(line.rstrip("\n"))
        return []

    def _start(self, conf: str) -> subprocess.Popen[str]:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
        env |= {"FAKECUDA_TOTAL": str(256 * GIB), "PYTORCH_CUDA_ALLOC_CONF": conf}
        self.processes[conf] = subprocess.Popen(
            [self.binary], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        return self.processes[conf]

    def _close(self, conf: str) -> None:
        process = self.processes.pop(conf)
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()

    def close(self) -> None:
        for conf in list(self.processes):
            self._close(conf)


def _parse(ops: Sequence[Op], lines: Iterable[str]) -> Run:
    run, pending = Run(), list[list[str]]()
    counted = iter([n for n, op in enumerate(ops) if str(op[0]) in COUNTED])
    held = live = 0
    for line in lines:
        words = line.split()
        if words[0] == "+":
            pending.append(words[1:])
        elif words[0] == "#":
            run.segments.append(words[1:])
        elif words[1] == "reset":
            break
        else:
            n = next(counted)
            if words[2] == "error":
                run.aborted = True
                continue
            while len(run.held) < n:  # operations in between that have no answer
                run.held.append(held)
                run.live.append(live)
            held, live = int(words[5]), int(words[8])
            run.held.append(held)
            run.live.append(live)
            if words[2] == "a" and words[4] == "-1" and run.failed < 0:
                run.failed = n
            if pending:
                run.events.append((n, pending))
                pending = []
    else:
        run.aborted = True
    while len(run.held) < len(ops):
        run.held.append(held)
        run.live.append(live)
    return run
