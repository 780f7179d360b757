"""How DTR's simulator (github.com/uwsampl/dtr-prototype @ eff53cc, simrd) reads a log, and what a run without limit gives.

Written from its rules alone, and shares nothing with the importer: names stand for tensors, tensors for storages, and
every line becomes actions on them.  A mutation makes new storages.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Baseline:
    """Bytes and ns."""

    operators: int  # constants included
    storages: int
    constant_bytes: int
    cost: int
    peak_v1: int  # released constants are freed
    peak_v2: int  # constants stay for ever
    end_v2: int


class _Schedule:
    def __init__(self) -> None:
        self.storage: list[int] = []  # of each tensor
        self.size: list[int] = []  # of each storage
        self.names: dict[str, int] = {}  # name -> tensor
        self.actions: list[tuple[str, Any]] = []

    def tensor(self, name: str, size: int, alias: int | None) -> int:
        if alias is None:
            self.size.append(size)
        self.storage.append(len(self.size) - 1 if alias is None else self.storage[alias])
        self.names[name] = len(self.storage) - 1
        return self.names[name]

    def read(self, lines: list[dict[str, Any]]) -> None:
        rest = iter(lines)
        for line in rest:
            match line["INSTRUCTION"]:
                case "CONSTANT":
                    made = self.tensor(line["NAME"], int(next(rest)["MEMORY"]), None)
                    self.actions += [("compute", (0, [made])), ("pin", made)]
                case "CALL":
                    inputs = [self.names[name] for name in line["ARGS"]]
                    made_of: list[int] = []
                    for result in line["RESULT"]:
                        size, alias = int(next(rest)["MEMORY"]), int(next(rest)["ALIAS"])
                        made_of.append(self.tensor(result, size, None if alias == -1 else inputs[alias]))
                    self.actions.append(("compute", (int(line["TIME"]), made_of)))
                case "MUTATE":
                    names = [line["ARGS"][i] for i in line["MUTATE"]]
                    old = [self.names[name] for name in names]
                    new = [self.tensor(name, self.size[self.storage[t]], None) for name, t in zip(names, old, strict=True)]
                    self.actions.append(("compute", (int(line["TIME"]), new)))
                    self.actions += [("release", t) for t in old]
                case "COPY":
                    self.names[line["DST"]] = self.names[line["SRC"]]
                    self.actions.append(("get", self.names[line["DST"]]))
                case "COPY_FROM":
                    self.actions.append(("release", self.names[line["DST"]]))
                    self.names[line["DST"]] = self.names[line["SRC"]]
                    self.actions.append(("get", self.names[line["DST"]]))
                case "RELEASE" if line["NAME"] in self.names:
                    self.actions.append(("release", self.names[line["NAME"]]))


def baseline(log: bytes) -> Baseline:
    """The facts of a run that never has to evict."""
    lines = [json.loads(line) for line in log.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.get("ANNOTATION") == "START"]
    schedule = _Schedule()
    schedule.read(lines[starts[0] + 1 :] if starts else lines)
    pinned = {schedule.storage[what] for action, what in schedule.actions if action == "pin"}
    peak_v1, _ = _run(schedule, set())
    peak_v2, end = _run(schedule, pinned)
    computes = [what for action, what in schedule.actions if action == "compute"]
    return Baseline(
        len(computes), len(schedule.size), sum(schedule.size[s] for s in pinned), sum(cost for cost, _ in computes),
        peak_v1, peak_v2, end,
    )  # fmt: skip


def _run(schedule: _Schedule, kept: set[int]) -> tuple[int, int]:
    """(most bytes at once, bytes at the end); a storage goes with its last reference, unless it is kept."""
    held, memory, peak = [0] * len(schedule.size), 0, 0
    there: set[int] = set()
    for action, what in schedule.actions:
        if action == "compute":
            for tensor in what[1]:
                storage = schedule.storage[tensor]
                held[storage] += 1
                if storage not in there:
                    there.add(storage)
                    memory += schedule.size[storage]
            peak = max(peak, memory)
        elif action == "get":
            held[schedule.storage[what]] += 1
        elif action == "release":
            storage = schedule.storage[what]
            held[storage] -= 1
            if held[storage] == 0 and storage not in kept:
                there.remove(storage)
                memory -= schedule.size[storage]
    return peak, memory
