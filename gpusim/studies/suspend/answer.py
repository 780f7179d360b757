"""From the words of a suspend (model, machine, how often) to the time of each cycle, and which way is the fastest."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, UnitError, suggest
from gpusim.base.units import BYTES, TIME, parse, show_bytes
from gpusim.machine import catalogue, suspending
from gpusim.machine.profile import Profile
from gpusim.machine.suspending import FILES, Process, SleepCosts, SuspendStep, total
from gpusim.programs.zoo.served import served, weight_tensors

WAYS = LEVEL_1, LEVEL_2, CHECKPOINT = ("sleep(level=1)", "sleep(level=2)", "checkpoint")
_MOST = 10**6  # cycles after which no other way becomes the fastest


@dataclass(frozen=True, kw_only=True)
class SuspendSpec:
    """A suspend in words; see `gpusim suspend --help`."""

    model: str
    machine: str
    how: tuple[str, ...] = WAYS
    cycles: int = 1
    memory: float = 0.9
    weights: str = "bf16"
    gpus: int = 1
    buffers: str = "none"
    files: str = FILES[0]
    pin: str = ""
    drain: str = ""


@dataclass(frozen=True)
class SuspendWay:
    """A way to suspend: the steps of the first cycle and of each later one, out of the GPU and back."""

    name: str
    first: tuple[list[SuspendStep], list[SuspendStep]]
    later: tuple[list[SuspendStep], list[SuspendStep]]
    host: float

    def ns(self, cycles: int) -> float:
        """Of so many cycles."""
        one, each = (sum(map(total, cycle)) for cycle in (self.first, self.later))
        return one + (cycles - 1) * each if cycles else 0.0


@dataclass(frozen=True)
class SuspendAnswer:
    """dropped: bytes of keys and values that a sleep loses."""

    spec: SuspendSpec
    process: Process
    ways: tuple[SuspendWay, ...]
    dropped: float

    def best(self, cycles: int) -> SuspendWay:
        """The fastest for so many cycles; of equals the first."""
        return min(self.ways, key=lambda way: way.ns(cycles))

    def changes(self) -> list[tuple[int, SuspendWay]]:
        """(cycles, way): from how many cycles on which way is the fastest."""
        found, at = [(1, self.best(1))], 1
        while self.best(_MOST) is not found[-1][1]:
            now = found[-1][1]
            low, high = at, _MOST  # times grow by equal steps, so what was overtaken stays behind
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if self.best(middle) is now else (low, middle)
            at = high
            found.append((at, self.best(at)))
        return found

    def rows(self) -> list[dict[str, Any]]:
        """A row for each way; times in s."""
        rows = []
        for way in self.ways:
            first, later = way.first, way.later
            rows.append({
                "how": way.name, "out_first_s": total(first[0]) / 1e9, "back_first_s": total(first[1]) / 1e9,
                "out_later_s": total(later[0]) / 1e9, "back_later_s": total(later[1]) / 1e9,
                "all_s": way.ns(self.spec.cycles) / 1e9, "host_bytes": int(way.host),
            })  # fmt: skip
        return rows

    def steps(self) -> list[dict[str, Any]]:
        """A row for each step of the first cycle; later_s: of a later one."""
        rows = []
        for way in self.ways:
            for side, now, then in zip(("out", "back"), way.first, way.later, strict=True):
                later = {step.what: step.ns for step in then}
                rows += [{"how": way.name, "": side, "step": step.what, "bytes": int(step.size), "first_s": step.ns / 1e9,
                          "later_s": later.get(step.what, 0.0) / 1e9} for step in now]  # fmt: skip
        return rows

    def values(self) -> dict[str, Any]:
        """All of it by name."""
        return {
            "weights_bytes": self.process.weights, "allocated_bytes": int(self.process.allocated),
            "dropped_bytes": int(self.dropped), "ways": self.rows(), "steps": self.steps(),
            "fastest": [{"from_cycles": cycles, "how": way.name} for cycles, way in self.changes()],
        }  # fmt: skip


def answer(spec: SuspendSpec) -> SuspendAnswer:
    """Raises GpusimError for what cannot be answered, with the reason."""
    profile = catalogue.load(spec.machine)
    if not 0 < spec.memory <= 1:
        raise GpusimError(f"memory is {spec.memory:g}", hint="the share of the GPU's memory that the engine takes, as 0.9")
    if spec.cycles < 1:
        raise GpusimError(f"{spec.cycles} cycles are no suspend", hint="1 at least")
    if spec.files not in FILES:
        raise GpusimError(f"files come from '{spec.files}'", hint=suggest(spec.files, FILES))
    process = _process(spec, profile)
    there = process.buffers if spec.buffers == "all" else 0 if spec.buffers == "none" else _size(spec.buffers)
    missing = max(0, process.buffers - there)
    costs = replace(SleepCosts(), pin=_time("pin", spec.pin)) if spec.pin else SleepCosts()
    drain = _time("drain", spec.drain) if spec.drain else 0.0
    ways = tuple(_way(name, spec, profile, process, missing, (costs, drain)) for name in map(_known, spec.how))
    return SuspendAnswer(spec, process, ways, process.allocated - process.weights)


def _process(spec: SuspendSpec, profile: Profile) -> Process:
    model = served(spec.model, spec.weights, timed=False)
    model.divides(spec.gpus)
    allocated = spec.memory * profile.memory.capacity.value
    process = Process(weight_tensors(model, spec.gpus), allocated)
    if process.weights > allocated:
        each = f"each of {spec.gpus} GPUs" if spec.gpus > 1 else "one GPU"
        raise GpusimError(
            f"the weights of '{spec.model}' take {show_bytes(process.weights)} on {each}, and the engine has "
            f"{show_bytes(int(allocated))} of '{profile.name}'", hint="more GPUs, a larger one, or weights of fewer bits",
        )  # fmt: skip
    return process


def _way(
    name: str, spec: SuspendSpec, profile: Profile, process: Process, missing: float, said: tuple[SleepCosts, float]
) -> SuspendWay:  # fmt: skip
    costs, drain = said
    room, gpus = profile.host.capacity.value, spec.gpus
    need = {LEVEL_1: process.buffers, LEVEL_2: 0, CHECKPOINT: process.allocated + profile.context.value}[name]
    if need * gpus > room:
        raise GpusimError(
            f"{name} keeps {show_bytes(int(need * gpus))} in host memory, and the host of '{profile.name}' has "
            f"{show_bytes(int(room))}", hint=f"{LEVEL_2} keeps nothing there",
        )  # fmt: skip
    if name == CHECKPOINT:
        each = suspending.checkpoint(profile, process, drain), suspending.restore(profile, process)
        return SuspendWay(name, each, each, need)
    level = 1 if name == LEVEL_1 else 2
    back = suspending.wake(profile, process, level, spec.files, costs)
    first = suspending.sleep(profile, process, level, missing, costs)
    return SuspendWay(name, (first, back), (suspending.sleep(profile, process, level, 0.0, costs), back), need)


def _known(word: str) -> str:
    name, given = split(word, "a way to suspend")
    found = f"{name}({', '.join(f'{key}={value}' for key, value in given.items())})" if given else name
    if found not in WAYS:
        raise GpusimError(f"'{word}' is no way to suspend", hint=", ".join(WAYS))
    return found


def _size(word: str) -> int:
    try:
        return int(parse(word, BYTES))
    except UnitError:
        raise GpusimError(f"buffers are '{word}'", hint="none, all, or a size as 8 GiB") from None


def _time(name: str, word: str) -> float:
    try:
        return float(parse(word, TIME))
    except UnitError:
        raise GpusimError(f"{name} is '{word}'", hint="a time, as 119 ms") from None

