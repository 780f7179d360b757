"""The real PyTorch allocator and the model of it, both fed programs of commands and answering in the same lines."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from gpusim.policies import registry
from gpusim.policies.contract import CAPACITY
from gpusim.policies.place.parts import arena
from gpusim.policies.place.parts import driver_memory as device
from gpusim.policies.place.parts.bins import ADDR
from gpusim.policies.place.parts.pytorch import counting, events, layout, rules

Command = tuple[Any, ...]
POOL_CODES = {
    "new": rules.POOL_NEW, "begin": rules.POOL_BEGIN, "end": rules.POOL_END, "release": rules.POOL_RELEASE,
    "empty": rules.POOL_EMPTY, "nosplit": rules.POOL_NO_SPLIT, "oom": rules.POOL_ON_OOM,
}  # fmt: skip
# What a program may have changed of the settings that PyTorch does not reset by itself.
STICKY = "expandable_segments:False,large_segment_size_mb:20"
COMPLETED, RELEASED = ("free_completed",), ("segment_free", "segment_unmap")
SUMS = [
    layout.ALL_STATS + kind
    for kind in (layout.RESERVED_BYTES, layout.ALLOCATED_BYTES, layout.ACTIVE_BYTES, layout.REQUESTED_BYTES,
                 layout.INACTIVE_SPLIT_BYTES, layout.SEGMENT)
]  # fmt: skip
ORDERED = ("inactive_split", "inactive_split_bytes")  # their peaks depend on the order of completed frees


@dataclass(frozen=True)
class Program:
    conf: str
    total: int
    commands: tuple[Command, ...]
    device: str = "lowest"

    def without(self, start: int, end: int) -> Program:
        return replace(self, commands=self.commands[:start] + self.commands[end:])

    def text(self) -> str:
        return "\n".join([f"conf {self.conf or '-'}", f"total {self.total}", *(" ".join(map(str, c)) for c in self.commands)])


def read_cases(text: str) -> Iterator[tuple[str, Program, list[str]]]:
    """(family, program, the library's answers) of a file of cases."""
    for part in text.split("\ncase ")[1:]:
        head, answers = part.split("\nanswers\n")
        (family, choice), conf, total, *commands = (line.split() for line in head.splitlines())
        said = [[int(word) if word.isdigit() else word for word in words] for words in commands]
        yield (
            family, Program(conf[1].replace("-", ""), int(total[1]), tuple(map(tuple, said)), choice), answers.splitlines(),
        )  # fmt: skip


class Oracle:
    """One process of the real library; it is started anew when a program's reset left something behind."""

    def __init__(self, binary: str) -> None:
        self.binary = os.path.expanduser(binary)
        self.process: subprocess.Popen[str] | None = None
        self.runs: tuple[int, str] | None = None

    def run(self, case: Program) -> list[str] | None:
        """The lines printed; None when the library aborted."""
        if self.process is None or self.runs != (case.total, case.device):
            self.close()
            self.start(case)
        assert self.process is not None and self.process.stdin is not None and self.process.stdout is not None
        sticky = STICKY + (",throw_on_cudamalloc_oom:False" if "/2.11" not in self.binary else "")
        conf = ",".join(part for part in [sticky, case.conf] if part)
        text = [f"S {conf}", *(" ".join(map(str, c)) for c in case.commands), "t", "R", "."]
        lines = []
        try:
            self.process.stdin.write("\n".join(text) + "\n")
            self.process.stdin.flush()
            for line in self.process.stdout:
                if line == ".\n":
                    break
                lines.append(line.rstrip("\n"))
            else:
                lines = []
        except BrokenPipeError:
            lines = []
        if not lines or lines[-1] != "= reset 0" or "reserve:" in conf:
            self.close()
        return lines[:-1] if lines else None

    def start(self, case: Program) -> None:
        env = {k: v for k, v in os.environ.items() if k not in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")}
        env |= {"FAKECUDA_TOTAL": str(case.total), "FAKECUDA_ADDR": {"lowest": "firstfit"}.get(case.device, case.device)}
        self.process = subprocess.Popen(
            [self.binary], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.runs = case.total, case.device

    def close(self) -> None:
        if self.process is not None:
            assert self.process.stdin is not None
            with contextlib.suppress(BrokenPipeError):
                self.process.stdin.close()
            self.process.wait()
            self.process = None


class Model:
    """The policy `pytorch`, its answers written as the oracle's."""

    def __init__(self, case: Program, release: str) -> None:
        self.case, self.release = case, release
        params = {"conf": case.conf, "release": release, "device": case.device}
        self.policy = registry.get("place", {"name": "pytorch", "params": params})
        units = 1 + max([command[1] for command in case.commands if command[0] in "afr"], default=0)
        self.S = events.listen(self.policy.state(case.total, units, units, self.policy.params))
        self.dangling = False

    def run(self) -> list[str]:
        lines: list[str] = []
        for n, command in enumerate(self.numbered()):
            lines += self.carry_out(n, command)
            self.dangling = self.dangling or self.forgets()
        return lines + self.statistics()

    def forgets(self) -> bool:
        """Here the library deletes a released pool that still owns memory: it counts each growth of an expandable segment
        once, and each unmapping, of which there may be more.  What it does with the pool's blocks from then on is undefined.
        """
        slots = range(layout.FIRST_PRIVATE, layout.FIRST_PRIVATE + layout.MAX_PRIVATE * layout.PRIVATE_WORDS,
                      layout.PRIVATE_WORDS)  # fmt: skip
        return any(
            self.S[k + layout.STATE] == layout.FREEABLE and self.S[k + layout.GROWN] <= 0 < self.S[k + layout.OWNED]
            for k in slots
        )

    def numbered(self) -> Iterator[Command]:
        """Commands of which the oracle counts each, the others carried out on the way."""
        for command in self.case.commands:
            if command[0] in "afrep":
                yield command
            else:
                self.set(*command)

    def set(self, what: str, value: Any) -> None:
        verb = self.policy.command
        if what == "C":
            self.S[CAPACITY] = value
        elif what == "F":
            verb(self.S, rules.SET_FRACTION, round(float(value) * rules.SCALE), 0)
        elif what == "S":
            for code, a, b in rules.commands(value, self.release):
                verb(self.S, code, a, b)
        else:
            verb(self.S, rules.HOLD if what == "h" else rules.UNHOLD, value, 0)

    def carry_out(self, n: int, command: Command) -> list[str]:
        what, *args = command
        S, policy, addr, name = self.S, self.policy, -1, args[0] if args else 0
        if what == "a":
            unit, size, stream = args
            addr = int(policy.alloc(S, unit, size, stream))
            addr = addr if size else -2
        elif what == "f":
            block = int(S[S[arena.UNITS] + name])
            addr = int(S[block + ADDR]) if block else -1
            policy.free(S, name, 0)
        elif what == "r":
            policy.use(S, name, args[1])
        elif what == "e":
            policy.release(S, 1 << 62)
        else:
            name = args[1]
            policy.command(S, POOL_CODES[args[0]], name, 1)
        heard = [f"+ {action} {a} {size} {stream}" for action, a, size, stream in events.heard(S)] if what != "r" else []
        return [*heard, f"= {n} {what} {name} {addr} " + " ".join(str(S[word]) for word in SUMS)]

    def statistics(self) -> list[str]:
        now, lines = counting.statistics(self.S), []
        for name in dict.fromkeys(key.rpartition(".")[0] for key in now if "." in key):
            lines.append(f"# {name} " + " ".join(str(now[f"{name}.{k}"]) for k in ("current", "peak", "allocated", "freed")))
        counters = [f"# {key} {value}" for key, value in now.items() if "." not in key]
        return [*lines, *counters, f"# device_used {self.S[device.USED]}"]


def difference(case: Program, real: list[str], model: list[str]) -> str:
    """The first difference, or ""."""
    hashed = COMPLETED + (RELEASED if any(command[:2] == ("p", "release") for command in case.commands) else ())
    left, unordered = normal(real, hashed)
    counted = any("num_oom_rejections" in line for line in real)  # since 2.12
    right, _ = normal([line for line in model if counted or "num_oom_rejections" not in line], hashed)
    for a, b in zip(left, right, strict=False):
        if a != b and not (unordered and a[0] == b[0] and a[0].startswith(ORDERED)):
            return f"the library: {a}, the model: {b}"
    return "" if len(left) == len(right) else f"{len(left)} lines against {len(right)}"


def normal(lines: list[str], hashed: tuple[str, ...]) -> tuple[list[tuple[str, ...]], bool]:
    """Lines without what is not compared, runs of hashed events sorted, statistics by name; whether frees were in a run.

    hashed: events that come in the order of a hash table, of streams or of released pools
    """
    found: list[tuple[str, ...]] = []
    stats: list[tuple[str, ...]] = []
    unordered, run = False, 0
    for line in lines:
        words = tuple(line.split())
        if words[0] == "#":
            if words[1] not in ("device_refused", "max_split_size"):
                stats.append(words[1:])
        else:
            run = run + 1 if words[1] in hashed and found and words[1] == found[-1][1] else 1
            found.append(words)
            if run > 1:
                unordered = unordered or words[1] == "free_completed"
                found[-run:] = sorted(found[-run:])
    return found + sorted(stats), unordered
