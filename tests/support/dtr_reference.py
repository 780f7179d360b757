"""DTR's simulator (github.com/uwsampl/dtr-prototype @ eff53cc, simrd), plainly: how it reads a log, and how it replays one.

Written from its rules alone, and shares nothing with the importer or with `plan/parts/recompute`: names stand for tensors,
tensors for storages, every line becomes actions on them, and the replay does what the rules say, one sentence after another.
A mutation makes new storages.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
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


class Schedule:
    def __init__(self) -> None:
        self.storage: list[int] = []  # of each tensor
        self.size: list[int] = []  # of each storage
        self.held: list[int] = []  # of each tensor: how many names it has
        self.names: dict[str, int] = {}  # name -> tensor
        self.constants: set[int] = set()  # storages
        self.actions: list[tuple[str, Any]] = []  # compute: (ns, inputs, outputs); the others: a tensor

    def tensor(self, name: str, size: int, alias: int | None) -> int:
        if alias is None:
            self.size.append(size)
        self.storage.append(len(self.size) - 1 if alias is None else self.storage[alias])
        self.held.append(1)
        self.names[name] = len(self.storage) - 1
        return self.names[name]

    def bind(self, name: str, tensor: int) -> None:
        self.names[name] = tensor
        self.held[tensor] += 1
        self.actions.append(("get", tensor))

    def drop(self, tensor: int) -> None:
        self.held[tensor] -= 1
        self.actions.append(("release", tensor))

    def read(self, lines: list[dict[str, Any]]) -> None:
        rest = iter(lines)
        for line in rest:
            match line["INSTRUCTION"]:
                case "CONSTANT":
                    made = self.tensor(line["NAME"], int(next(rest)["MEMORY"]), None)
                    self.constants.add(self.storage[made])
                    self.actions += [("compute", (0, [], [made])), ("pin", made)]
                case "CALL":
                    inputs = [self.names[name] for name in line["ARGS"]]
                    made_of: list[int] = []
                    for result in line["RESULT"]:
                        size, alias = int(next(rest)["MEMORY"]), int(next(rest)["ALIAS"])
                        made_of.append(self.tensor(result, size, None if alias == -1 else inputs[alias]))
                    self.actions.append(("compute", (int(line["TIME"]), inputs, made_of)))
                case "MUTATE":
                    inputs = [self.names[name] for name in line["ARGS"]]
                    old = [inputs[i] for i in line["MUTATE"]]
                    names = [line["ARGS"][i] for i in line["MUTATE"]]
                    new = [self.tensor(name, self.size[self.storage[t]], None) for name, t in zip(names, old, strict=True)]
                    self.actions.append(("compute", (int(line["TIME"]), inputs, new)))
                    for tensor in old:
                        self.drop(tensor)
                case "COPY":
                    self.bind(line["DST"], self.names[line["SRC"]])
                case "COPY_FROM":
                    self.drop(self.names[line["DST"]])
                    self.bind(line["DST"], self.names[line["SRC"]])
                case "RELEASE" if line["NAME"] in self.names:
                    self.drop(self.names[line["NAME"]])
        self.actions += [("pin", tensor) for tensor in self.names.values() if self.held[tensor] > 0]


def schedule(log: bytes) -> Schedule:
    lines = [json.loads(line) for line in log.splitlines()]
    starts = [i for i, line in enumerate(lines) if line.get("ANNOTATION") == "START"]
    made = Schedule()
    made.read(lines[starts[0] + 1 :] if starts else lines)
    return made


def baseline(log: bytes) -> Baseline:
    """The facts of a run that never has to evict."""
    read = schedule(log)
    computes = [what for action, what in read.actions if action == "compute"]
    peak_v1, _ = _run(read, set())
    peak_v2, end = _run(read, read.constants)
    return Baseline(
        len(computes), len(read.size), sum(read.size[s] for s in read.constants), sum(cost for cost, _, _ in computes),
        peak_v1, peak_v2, end,
    )  # fmt: skip


def _run(schedule: Schedule, kept: set[int]) -> tuple[int, int]:
    """(most bytes at once, bytes at the end); a storage goes with its last reference, unless it is kept."""
    held, memory, peak = [0] * len(schedule.size), 0, 0
    there: set[int] = set()
    for action, what in schedule.actions:
        if action == "compute":
            for tensor in what[2]:
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


# --- the replay under a budget ----------------------------------------------------------------------------------------


@dataclass(eq=False)
class Tensor:
    storage: Storage
    run: Run
    size: int  # 0 of an alias
    defined: bool = False
    children: list[Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Run:
    """An operator that was run once, with what it read and made."""

    cost: int
    parents: list[Tensor]
    outputs: list[Tensor] = field(default_factory=list)


@dataclass(eq=False)
class Class:
    """A node of the union-find forest of evicted storages."""

    value: int
    parent: Class | None = None

    def root(self) -> Class:
        node = self
        while node.parent is not None:
            node = node.parent
        at = self
        while at.parent is not None:
            at.parent, at = node, at.parent
        return node


@dataclass(eq=False)
class Storage:
    root: int  # number of the tensor that it was made for
    size: int
    node: Class = field(default_factory=lambda: Class(0))
    tensors: list[Tensor] = field(default_factory=list)
    material: bool = False
    external: int = 0
    locks: int = 0
    pinned: bool = False
    last: float = float("-inf")

    def cost(self) -> int:
        return sum(run.cost for run in {t.run for t in self.tensors})

    def parents(self) -> set[Storage]:
        return {p.storage for t in self.tensors for p in t.run.parents}

    def children(self) -> set[Storage]:
        return {c.storage for t in self.tensors for c in t.children}

    def gone(self) -> Iterator[Storage]:
        return (s for s in self.parents() | self.children() if not s.material and s is not self)

    def beyond(self, way: str) -> int:
        """The cost of all evicted storages that a chain of evicted storages leads to."""
        found: set[Storage] = set()
        open_ = [self]
        while open_:
            for s in getattr(open_.pop(), way)():
                if not s.material and s is not self and s not in found:
                    found.add(s)
                    open_.append(s)
        return sum(s.cost() for s in found)


class Failed(Exception):
    pass


class Replay:
    """One run; `keep` False: released constants are freed."""

    def __init__(self, schedule: Schedule, heuristic: str, budget: int, limit: float, keep: bool = True) -> None:
        self.schedule, self.heuristic, self.budget, self.limit, self.keep = schedule, heuristic, budget, limit, keep
        self.clock, self.memory, self.peak, self.model, self.remat = 1, 0, 0, 0, 0
        self.tensors: list[Tensor] = []
        self.storages: dict[int, Storage] = {}
        self.pool: list[Storage] = []
        self.victims: list[int] = []
        self.evicted = self.eager = self.reruns = self.runs = 0
        self.status = "ok"
        try:
            for action, what in schedule.actions:
                getattr(self, action)(what)
        except Failed as reason:
            self.status = str(reason)

    @property
    def digest(self) -> str:
        return hashlib.sha256("".join(f"{v}\n" for v in self.victims).encode()).hexdigest()[:16]

    def facts(self) -> tuple[Any, ...]:
        """The columns of dtr_results.csv from `status` to the last, without the overhead."""
        return (
            self.status, self.clock - 1, self.model, self.remat, len(self.victims), self.eager, self.reruns, self.evicted,
            self.peak, self.memory, self.runs, self.digest,
        )  # fmt: skip

    def compute(self, what: tuple[int, list[int], list[int]]) -> None:
        cost, inputs, outputs = what
        run = Run(cost, [self.tensors[i] for i in inputs])
        for number in outputs:
            of = self.schedule.storage[number]
            fresh = of not in self.storages
            storage = self.storages.setdefault(of, Storage(number, self.schedule.size[of]))
            tensor = Tensor(storage, run, storage.size if fresh else 0)
            storage.tensors.append(tensor)
            storage.external += 1
            run.outputs.append(tensor)
            self.tensors.append(tensor)
        for parent in run.parents:
            parent.children += run.outputs
        self.materialise(run.outputs[0], first=True)
        for tensor in run.outputs:
            tensor.storage.last = self.clock

    def get(self, tensor: int) -> None:
        self.tensors[tensor].storage.external += 1

    def release(self, tensor: int) -> None:
        storage = self.tensors[tensor].storage
        storage.external -= 1
        if storage.external == 0 and storage.material and not (storage.pinned and self.keep):
            self.evict(storage)
            self.eager += 1

    def pin(self, number: int) -> None:
        tensor = self.tensors[number]
        if not tensor.defined:
            self.materialise(tensor)
        if not tensor.storage.pinned:
            self.lock(tensor.storage)
            tensor.storage.pinned = True

    def lock(self, storage: Storage) -> None:
        storage.locks += 1
        if storage in self.pool:
            self.pool.remove(storage)

    def unlock(self, storage: Storage) -> None:
        storage.locks -= 1
        if storage.locks == 0:
            self.pool.append(storage)

    def materialise(self, tensor: Tensor, first: bool = False) -> None:
        run = tensor.run
        for parent in run.parents:
            parent.storage.last = self.clock
        defined = [p.defined for p in run.parents]
        for parent in (p for p, there in zip(run.parents, defined, strict=True) if there):
            self.lock(parent.storage)
        for parent in (p for p, there in zip(run.parents, defined, strict=True) if not there):
            if not parent.defined:
                self.materialise(parent)
            self.lock(parent.storage)
        need = sum(t.size for t in run.outputs)
        while self.memory + need > self.budget:
            if not self.pool:
                raise Failed("oom")
            victim = self.choose()
            self.victims.append(victim.root)
            self.evicted += victim.size
            self.evict(victim)
        self.clock += run.cost
        self.memory += need
        self.peak = max(self.peak, self.memory)
        there = [t for t in run.outputs if t.defined]
        fresh = [t for t in run.outputs if not t.defined and t is not tensor] + [tensor]
        for made in fresh:
            made.defined = True
            if not made.storage.material:
                self.appear(made.storage)
        self.memory -= sum(t.size for t in there)
        for parent in run.parents:
            self.unlock(parent.storage)
        if first:
            self.model, self.runs = self.model + run.cost, self.runs + 1
        else:
            self.remat, self.reruns = self.remat + run.cost, self.reruns + 1
        if self.remat > self.limit:
            raise Failed("thrash")

    def appear(self, storage: Storage) -> None:
        storage.material = True
        if storage.locks == 0:
            self.pool.append(storage)
        storage.node.root().value -= storage.cost()

    def evict(self, storage: Storage) -> None:
        storage.material = False
        self.memory -= storage.size
        if storage in self.pool:
            self.pool.remove(storage)
        for tensor in storage.tensors:
            tensor.defined = False
        storage.node = Class(storage.cost())
        for other in storage.gone():
            a, b = storage.node.root(), other.node.root()
            if a is not b:
                b.parent, a.value = a, a.value + b.value

    def choose(self) -> Storage:
        best, victim = float("inf"), self.pool[0]
        for storage in self.pool:
            h = self.value(storage)
            if h == 0:
                return storage
            if h <= best:
                best, victim = h, storage
        return victim

    def value(self, s: Storage) -> float:
        above, below = 1, 1
        match self.heuristic:
            case "lru":
                return s.last
            case "size":
                below = s.size
            case "msps":
                above, below = s.cost() + s.beyond("parents"), s.size
            case "dtr_local":
                above, below = s.cost(), s.size * (self.clock - int(s.last))
            case "dtr_eq":
                classes = {o.node.root() for o in s.gone()}
                above, below = s.cost() + sum(c.value for c in classes), s.size * (self.clock - int(s.last))
            case "dtr":
                above = s.cost() + s.beyond("parents") + s.beyond("children")
                below = s.size * (self.clock - int(s.last))
        return above / below if below else float("inf")
