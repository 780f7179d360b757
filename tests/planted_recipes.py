"""A seed's program: an ordinary body, what is planted into it, and a device of the size at which that shows.

The size is chosen by the real library's answer on an endless device; whether the intention came true is asked afterwards.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from planted_bodies import BODIES, Writer
from planted_library import GIB, MIB, Library, Op, Program
from planted_plants import PLANTS, REQUEST, SETTINGS_OF, Body, live_bytes, live_bytes, device_above

ENDLESS = 250 * GIB
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
    "foreign": ((), "foreign", 10), "foreign and leak": (("leak", "upcast"), "foreign", 9), "foreign later": (("leak", "upcast"), "foreign later", 9),
    "foreign and pieces": (("pieces",), "tight foreign", 7), "foreign and pool": (("private_pool",), "tight foreign", 4),
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
    found = Body(*live_bytes(bare.ops), sum(op[0] == "step" for op in bare.ops))
    w = Writer(random.Random(seed))
    w.rng.choice(BODIES[:2] if longest else BODIES)
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


def case(seed: int, library: Library) -> Case | None:
    """None: on no device does this program do what was intended."""
    family = family_of(seed)
    plants, aim, _ = FAMILIES[family]
    rng = random.Random(f"case {seed}")
    # How late a recording begins is drawn for all; a leak needs the steps to be seen.
    late = rng.random() < (0.75 if "cached" in plants else 0.35)
    tight = aim.startswith("tight") and plants[-1] != "private_pool"
    usual = [conf for conf in CONFS if not (tight and conf[:1] in "er" and conf)]
    conf = rng.choice(next((SETTINGS_OF[p] for p in plants if p in SETTINGS_OF), usual))
    context = rng.randrange(300, 620) * MIB
    program = Program(conf, ENDLESS, 0, operations(str(seed), plants, late, aim.startswith("short")))
    sized = _sized(program, aim.split()[0], rng, context, library, " ".join(aim.split()[1:]))
    if sized is None:
        return None
    devices = [sized]
    if "several" in aim:
        for k in range(rng.choice([1, 1, 2])):
            ops = operations(f"{seed} device {k}", (), late)
            other = Program(conf, sized.total, rng.randrange(300, 620) * MIB, ops)
            if not library.run(other).served:
                other = replace(other, ops=ops[: len(ops) // 20])  # an almost empty one
            devices.append(other)
    subject = rng.randrange(len(devices))
    devices[0], devices[subject] = devices[subject], devices[0]
    return Case(seed, family, plants, tuple(devices), subject)


def _sized(program: Program, aim: str, rng: random.Random, context: int, library: Library, how: str) -> Program | None:
    dry = library.run(program)
    if dry.aborted:
        return None
    live, held = max(dry.live[program.start:]), dry.peak(0)  # fmt: skip
    return SIZES[aim](program, rng, context, live, held, library, how)


Sizing = Callable[[Program, random.Random, int, int, int, Library, str], Program | None]


def _fine(program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str) -> Program:
    return replace(program, total=device_above(held + context + 64 * MIB, rng), outside=context)


def _full(program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str) -> Program | None:
    """Hardly anything left, and all served."""
    total = (held + context) // MIB * MIB + rng.randrange(1, 200) * MIB
    sized = replace(program, total=total, outside=context)
    return sized if library.run(sized).served else None


def _outside(program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str) -> Program:
    """Much in use outside of PyTorch, and room for all."""
    total = device_above((held + context) * 1.4, rng)
    return replace(program, total=total, outside=int((total - held) * rng.uniform(0.5, 0.95)))


def _short(program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str) -> Program | None:
    """A device that lacks a part of some large request."""
    found = _lacking(program, rng, library)
    return found and _until_failure(replace(program, total=found[1] + context, outside=context), library)


def _lacking(program: Program, rng: random.Random, library: Library, least: int = 0) -> tuple[int, int] | None:
    """(operation, bytes): with so much the program comes to a request that is clearly more, and fails there."""
    dry, record, rises = library.run(program), 0, list[tuple[int, int, int]]()
    for n, live in enumerate(dry.live):
        gap = live - record
        if n > program.start and gap > max(live // 40, 2 * least):
            rises.append((n, record, gap))
        record = max(record, live)
    late = [rise for rise in rises if rise[0] > len(program.ops) // 2]
    for n, before, gap in rng.sample(late, min(8, len(late))) or rng.sample(rises, min(8, len(rises))):
        for part in (rng.uniform(0.2, 0.5), 0.7, 0.85):
            offered = (before + int(gap * part)) // MIB * MIB
            if library.run(replace(program, total=offered, outside=0)).failed == n:
                return n, offered
    return None


def _huge(program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str) -> Program | None:
    total = device_above(held + context + 64 * MIB, rng)
    request = int(total * rng.uniform(1.05, 30))
    ops = (*program.ops, ("a", 10**6, request, 0, "attention.py:19:scores>model.py:52:forward>train.py:88:main"))
    return _until_failure(replace(program, total=total, outside=context, ops=ops), library)


def _foreign(
    program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str
) -> Program | None:
    """Another process takes what this one would have needed, from the start or from some step on."""
    total = device_above(held + context + 2 * GIB, rng)
    found = _lacking(program, rng, library, total // 100)
    if found is None:
        return None
    failing, offered = found
    outside = total - offered
    if how == "later":
        held = library.run(replace(program, total=offered, outside=0)).held
        steps = [n for n, op in enumerate(program.ops[:failing]) if op[0] == "step" and n > program.start]
        if not steps or held[steps[-1]] > offered:
            return None
        return _until_failure(replace(program, total=total, outside=context).with_op(steps[-1], ("outside", outside)), library)
    return _until_failure(replace(program, total=total, outside=outside), library)


def _tight(program: Program, rng: random.Random, context: int, live: int, held: int, library: Library, how: str) -> Program | None:
    """Room for the live bytes and the last request, not for them and the pieces between."""
    wanted = [n for n, op in enumerate(program.ops) if op[0] == "a" and op[4] == REQUEST]
    small = int(str(program.ops[wanted[-1]][2])) < 16 * MIB
    if small:
        wanted = [n for n in wanted if int(str(program.ops[n][2])) < 16 * MIB]
    for last in reversed(wanted[-6:]):
        emptied = library.run(program.with_op(last, ("e",)))
        low, room = emptied.live[last] + int(str(program.ops[last][2])), emptied.held[last + 1]
        for _ in range(4):
            offered = room - rng.randrange(2 * MIB) - 1 if small else int(low + (room - low) * rng.uniform(0.05, 0.9))
            total = device_above(room + 3 * GIB, rng) if how == "foreign" else -(-(offered + context) // MIB) * MIB
            sized = replace(program, total=total, outside=total - offered)
            if library.run(sized).failed == last:
                return _until_failure(sized, library)
    return None


def _until_failure(program: Program, library: Library) -> Program | None:
    """The program ends with its first failed request, which is to be in the recording."""
    run = library.run(program)
    if run.aborted or run.failed <= program.start:
        return None
    return replace(program, ops=program.ops[: run.failed + 1])


SIZES: dict[str, Sizing] = {
    "fine": _fine, "full": _full, "outside": _outside, "short": _short, "huge": _huge, "foreign": _foreign, "tight": _tight,
}  # fmt: skip
