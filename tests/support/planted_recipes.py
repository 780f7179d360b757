"""A seed's program: an ordinary body, what is planted into it, and a device of the size at which that shows.

The size is chosen by the real library's answer on an endless device; whether the intention came true is asked afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from planted_bodies import BODIES, Writer
from planted_library import GIB, MIB, Library, Op, Program
from planted_plants import FRAGMENTING, PLANTS, REQUEST, SETTINGS_OF, Body, device_above, live_bytes

ENDLESS = 250 * GIB
SMALLEST = 2 * GIB  # of the devices
# name -> (plants, how the device is chosen, share)
FAMILIES: dict[str, tuple[tuple[str, ...], str, int]] = {
    "nothing": ((), "fine", 22), "harmless": (("harmless",), "fine", 18), "nothing, full": ((), "full", 12),
    "nothing on several": ((), "fine several", 5), "much outside": ((), "outside", 6),
    "shortage": ((), "short", 9), "impossible": ((), "huge", 4), "impossible on several": ((), "huge several", 2),
    "shortage and leak": (("leak", "upcast"), "short", 12),
    "pieces": (("pieces",), "tight", 8), "stream": (("stream",), "tight", 7), "pool": (("pool",), "tight", 6),
    "private_pool": (("private_pool",), "tight", 6), "oversize": (("oversize",), "tight", 6),
    "rounding": (("rounding",), "tight", 8), "leak": (("leak",), "fine", 10), "cached": (("cached",), "fine", 10),
    "cached and leak": (("cached", "leak"), "fine", 6), "pieces and leak": (("leak", "pieces"), "tight", 6),
    "stream and pieces": (("stream", "pieces"), "tight", 4), "rounding and leak": (("rounding", "leak"), "tight", 5),
    "private_pool and leak": (("private_pool", "leak"), "tight", 3),
    "foreign": ((), "foreign", 10), "foreign and leak": (("leak", "upcast"), "foreign", 9),
    "foreign later": (("leak", "upcast"), "foreign later", 9), "foreign and pieces": (("pieces",), "tight foreign", 7),
    "foreign and pool": (("private_pool",), "tight foreign", 4),
    "several, shortage": ((), "short several", 10), "several, pieces": (("pieces",), "tight several", 6),
    "several, leak": (("leak", "upcast"), "short several", 8),
    "pieces, no failure": (("pieces",), "fine", 3), "stream, no failure": (("stream",), "fine", 3),
    "rounding, no failure": (("rounding",), "fine", 2), "private_pool, no failure": (("private_pool",), "fine", 2),
}  # fmt: skip
CONFS = ["", "", "", "", "expandable_segments:True", "garbage_collection_threshold:0.8", "max_split_size_mb:512",
         "roundup_power2_divisions:8"]  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Programs of the devices of one process, and what was planted on the first of them."""

    seed: int
    family: str
    plants: tuple[str, ...]
    devices: tuple[Program, ...]
    subject: int  # the device with the plants

    @property
    def program(self) -> Program:
        return self.devices[self.subject]


def operations(seed: str, plants: tuple[str, ...], late: bool, longest: bool = False) -> tuple[Op, ...]:
    """The operations with these plants; the rest does not depend on which they are."""
    bare = Writer(random.Random(seed))
    body = bare.rng.choice(BODIES[:2] if longest else BODIES)
    body(bare, lambda w, where, step: None)
    found = Body(live_bytes(bare.ops)[0], sum(op[0] == "step" for op in bare.ops))
    w = Writer(random.Random(seed))
    w.rng.choice(BODIES[:2] if longest else BODIES)  # so that the body draws the same numbers again
    rng = random.Random(f"{seed} record")
    start = rng.choice([("load", 0), ("end", 0), ("end", 1)]) if late else None
    hooks = [PLANTS[name](random.Random(f"{seed} {name}"), found) for name in plants]

    def hook(w: Writer, where: str, step: int) -> None:
        for planted in hooks:
            planted(w, where, step)
        if (where, step) == start:
            w.add("record")

    body(w, hook)
    return tuple(w.ops)


def family_of(seed: int) -> str:
    names = [name for name, (_, _, share) in FAMILIES.items() for _ in range(share)]
    return random.Random(f"family {seed}").choice(names)


def intended(family: str) -> set[str]:
    """The causes that a program of the family was meant to have."""
    plants, aim, _ = FAMILIES[family]
    fragmenting = any(plant in FRAGMENTING for plant in plants)
    found = {plant for plant in plants if plant in ("leak", "cached")} | ({"fragmentation"} if fragmenting else set())
    meant = {"short": ["shortage"], "huge": ["shortage", "impossible"], "foreign": ["shortage", "foreign"],
             "tight": ["fragmentation"]}  # fmt: skip
    found |= set(meant.get(aim.split()[0], []))
    if aim == "tight foreign":
        found.add("foreign")
    return found | ({"other_device"} if aim in ("short several", "tight several") else set())


def case(seed: int, library: Library) -> Case | None:
    """None: on no device does this program do what was intended."""
    family = family_of(seed)
    plants, aim, _ = FAMILIES[family]
    rng = random.Random(f"case {seed}")
    late = rng.random() < (0.75 if "cached" in plants else 0.35)
    tight = aim.startswith("tight") and plants[-1] != "private_pool"
    usual = [conf for conf in CONFS if not (tight and conf.startswith(("expandable", "roundup")))]
    conf = rng.choice(next((SETTINGS_OF[p] for p in plants if p in SETTINGS_OF), usual))
    context = rng.randrange(300, 620) * MIB
    program = Program(conf, ENDLESS, 0, operations(str(seed), plants, late, aim.startswith("short")))
    sized = _sized(program, aim, context, rng, library)
    if sized is None or sized.total < SMALLEST:
        return None
    devices = [sized]
    if "several" in aim:
        for k in range(rng.choice([1, 1, 2])):
            ops = operations(f"{seed} device {k}", (), late)
            other = Program(conf, sized.total, rng.randrange(300, 620) * MIB, ops)
            if not library.run(other).served:
                other = replace(other, ops=(*ops[: len(ops) // 20], ("record",)) if late else ops[: len(ops) // 20])
            if library.run(other).served:
                devices.append(other)
    subject = rng.randrange(len(devices))
    devices[0], devices[subject] = devices[subject], devices[0]
    return Case(seed, family, plants, tuple(devices), subject)


@dataclass(frozen=True)
class Unsized:
    """A program on an endless device, where it held so many bytes at peak; what else is to go by.

    context  bytes in use outside of PyTorch in any process; how: a word on what is aimed at
    """

    program: Program
    held: int
    context: int
    how: str
    rng: random.Random
    library: Library

    def on(self, total: int, outside: int) -> Program:
        return replace(self.program, total=total, outside=outside)

    def until_failure(self, sized: Program) -> Program | None:
        """The program ends with its first failed request, which is to be in the recording."""
        run = self.library.run(sized)
        if run.aborted or run.failed <= sized.start:
            return None
        return replace(sized, ops=sized.ops[: run.failed + 1])


def _sized(program: Program, aim: str, context: int, rng: random.Random, library: Library) -> Program | None:
    dry = library.run(program)
    first, *rest = aim.split()
    return None if dry.aborted else SIZES[first](Unsized(program, dry.peak(0), context, " ".join(rest), rng, library))


def _fine(x: Unsized) -> Program:
    return x.on(device_above(x.held + x.context + 64 * MIB, x.rng), x.context)


def _full(x: Unsized) -> Program | None:
    """Hardly anything left, and all served."""
    total = (x.held + x.context) // MIB * MIB + x.rng.randrange(1, 200) * MIB
    sized = x.on(total, x.context)
    return sized if x.library.run(sized).served else None


def _outside(x: Unsized) -> Program:
    """Much in use outside of PyTorch, and room for all."""
    total = device_above((x.held + x.context) * 1.4, x.rng)
    return x.on(total, int((total - x.held) * x.rng.uniform(0.5, 0.95)))


def _short(x: Unsized) -> Program | None:
    """A device that lacks a part of some large request."""
    found = _lacking(x)
    return found and x.until_failure(x.on(found[1] + x.context, x.context))


def _lacking(x: Unsized, least: int = 0) -> tuple[int, int] | None:
    """(operation, bytes): with so much the program comes to a request that is clearly more, and fails there."""
    dry, record, rises = x.library.run(x.program), 0, list[tuple[int, int, int]]()
    for n, live in enumerate(dry.live):
        gap = live - record
        if n > x.program.start and gap > max(live // 40, 2 * least):
            rises.append((n, record, gap))
        record = max(record, live)
    late = [rise for rise in rises if rise[0] > len(x.program.ops) // 2]
    for n, before, gap in x.rng.sample(late, min(8, len(late))) or x.rng.sample(rises, min(8, len(rises))):
        for part in (x.rng.uniform(0.2, 0.5), 0.7, 0.85):
            offered = (before + int(gap * part)) // MIB * MIB
            if x.library.run(x.on(offered, 0)).failed == n:
                return n, offered
    return None


def _huge(x: Unsized) -> Program | None:
    total = device_above(x.held + x.context + 64 * MIB, x.rng)
    request = int(total * x.rng.uniform(1.05, 30))
    stack = "attention.py:19:scores>model.py:52:forward>train.py:88:main"
    return x.until_failure(x.on(total, x.context).with_op(len(x.program.ops), ("a", 10**6, request, 0, stack)))


def _foreign(x: Unsized) -> Program | None:
    """Another process takes what this one would have needed, from the start or from some step on."""
    total = device_above(x.held + x.context + 2 * GIB, x.rng)
    found = _lacking(x, total // 100)
    if found is None:
        return None
    failing, offered = found
    outside = total - offered
    if x.how == "later":
        held = x.library.run(x.on(total, x.context)).held
        steps = [n for n, op in enumerate(x.program.ops[:failing]) if op[0] == "step" and n > x.program.start]
        if not steps or held[steps[-1]] > offered:
            return None
        return x.until_failure(x.on(total, x.context).with_op(steps[-1], ("outside", outside)))
    return x.until_failure(x.on(total, outside))


def _tight(x: Unsized) -> Program | None:
    """Room for the live bytes and the last request, not for them and the pieces between."""
    wanted = [n for n, op in enumerate(x.program.ops) if op[0] == "a" and op[4] == REQUEST]
    small = int(str(x.program.ops[wanted[-1]][2])) < 16 * MIB
    if small:
        wanted = [n for n in wanted if int(str(x.program.ops[n][2])) < 16 * MIB]
    for last in reversed(wanted[-6:]):
        emptied = x.library.run(x.program.with_op(last, ("e",)))
        low, room = emptied.live[last] + int(str(x.program.ops[last][2])), emptied.held[last + 1]
        for _ in range(4):
            offered = room - x.rng.randrange(2 * MIB) - 1 if small else int(low + (room - low) * x.rng.uniform(0.05, 0.9))
            total = device_above(room + 3 * GIB, x.rng) if x.how == "foreign" else -(-(offered + x.context) // MIB) * MIB
            sized = x.on(total, total - offered)
            if x.library.run(sized).failed == last:
                return x.until_failure(sized)
    return None


SIZES: dict[str, Callable[[Unsized], Program | None]] = {
    "fine": _fine, "full": _full, "outside": _outside, "short": _short, "huge": _huge, "foreign": _foreign, "tight": _tight,
}  # fmt: skip
