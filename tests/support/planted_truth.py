"""What is wrong with a program, and what other settings would hold: each from the real library's answers."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from dataclasses import dataclass, field, replace

from planted_library import GIB, MIB, Library, Program, Run
from planted_recipes import ENDLESS, Case
from planted_savings import savings

SHARE = 0.02  # of the device's memory: below it nothing is wrong, and no setting is worth setting
UNSURE = (0.014, 0.033)  # a share in between is too close to call
STEPS = 5  # at fewer steps growth is not called a leak


class TooClose(Exception):
    """A figure lies so near its limit that the label would be a matter of taste."""


class NotPlanted(Exception):
    """Without the plant the real library answers the same."""


@dataclass
class Truth:
    """causes: kinds; details: of fragmentation; figures: bytes; leak: the stack; settings: see `savings`."""

    figures: dict[str, int]
    causes: list[str] = field(default_factory=list)
    details: list[str] = field(default_factory=list)
    leak: str = ""
    settings: dict[str, dict[str, object]] = field(default_factory=dict)

    def add(self, cause: str, nbytes: int) -> None:
        self.causes.append(cause)
        self.figures[cause] = nbytes


def truth(case: Case, library: Library) -> Truth:
    """Raises TooClose, NotPlanted."""
    program = case.program
    run = library.run(program)
    if run.aborted:
        raise TooClose("the library aborted")
    start = program.start
    found = Truth({"held": run.peak(start), "live": max(run.live[start:]), "total": program.total,
                   "outside": program.outside_at_end()})  # fmt: skip
    (_waste if run.served else _failure)(case, run, library, found)
    grown, stack = growth(program)
    if sure(grown / program.total):
        found.add("leak", grown)
        found.leak = stack
    found.settings = savings(program, library)
    found.causes.sort()
    found.details.sort()
    return found


def sure(share: float) -> bool:
    """Whether it is above SHARE; raises TooClose."""
    if UNSURE[0] < share < UNSURE[1]:
        raise TooClose(f"{share:.1%}")
    return share >= SHARE


def _failure(case: Case, run: Run, library: Library, found: Truth) -> None:
    program, last = case.program, case.program.ops[-1]
    request, live, outside = -(-int(str(last[2])) // 512) * 512, run.live[-1], found.figures["outside"]
    found.figures |= {"request": request, "live_at_failure": live, "held_at_failure": run.held[-1]}
    lacks, beyond = live + request - (program.total - outside), live + request - program.total
    if abs(lacks) < program.total // 200 + 4 * MIB or abs(beyond) < program.total // 200:
        raise TooClose(f"lacks {lacks / MIB:.0f} MiB")
    if lacks > 0:
        found.add("shortage", lacks)
    else:
        found.add("fragmentation", run.held[-1] - live)
        found.details += _details(case, library)
    if beyond > 0:
        found.causes.append("impossible")
    if _is_foreign(program, outside, library):
        found.add("foreign", outside)
    roomy = [_has_room(other, request, library) for other in case.devices if other is not program]
    if any(roomy):
        found.causes.append("other_device")


def _is_foreign(program: Program, outside: int, library: Library) -> bool:
    """Whether what is outside is more than is normal, and the request would be served were it not."""
    normal = max(GIB, int(SHARE * program.total))
    if abs(outside - normal) < normal // 5:
        raise TooClose("outside")
    served = {library.run(program.with_outside(nbytes)).served for nbytes in (normal // 2, normal)}
    if outside > normal and len(served) > 1:
        raise TooClose("foreign")
    return outside > normal and served == {True}


def _has_room(other: Program, request: int, library: Library) -> bool:
    ops = (*other.ops, ("a", 10**7, request, 0, ""))
    margin = other.total // 20
    found = {library.run(replace(other, ops=ops, outside=max(0, other.outside + more))).served for more in (-margin, margin)}
    if len(found) > 1:
        raise TooClose("room on another device")
    return found == {True}


def _details(case: Case, library: Library) -> list[str]:
    """The plants without which the same request is served; where it takes several of them, all of those."""
    plants = [plant for plant in case.plants if plant in UNDO]
    found = [plant for plant in plants if library.run(UNDO[plant](case.program)).served]
    if not found and plants:
        program = case.program
        for plant in plants:
            program = UNDO[plant](program)
        found = plants if library.run(program).served else []
    if not found:
        raise NotPlanted("fragmentation")
    return found


def _no_keepers(program: Program) -> Program:
    """The blocks between the pieces come first of all, so that nothing lies between."""
    keepers = tuple(op for op in program.ops if op[0] == "a" and "keep" in str(op[4]))
    return replace(program, ops=keepers + tuple(op for op in program.ops if op not in set(keepers)))


def _one_stream(program: Program) -> Program:
    return replace(program, ops=tuple((*op[:3], 0, op[4]) if op[0] == "a" else op for op in program.ops))


def _one_pool(program: Program) -> Program:
    return replace(program, ops=tuple(op for op in program.ops if op[0] != "p"))


def _no_setting(program: Program) -> Program:
    return replace(program, conf="")


# A plant's pattern undone: no neighbours, one stream, one pool, no setting.
UNDO = {"pieces": _no_keepers, "pool": _no_keepers, "stream": _one_stream, "private_pool": _one_pool,
        "oversize": _no_setting, "rounding": _no_setting}  # fmt: skip


def _waste(case: Case, run: Run, library: Library, found: Truth) -> None:
    """Memory held and not used, in a program that was served all."""
    program, live = case.program, found.figures["live"]
    least = needed(program, library)
    found.figures |= {"cached": cache_unused(program, run, library), "needed": least, "fragmentation": least - live}
    if sure(found.figures["cached"] / program.total):
        found.causes.append("cached")
    if sure((least - live) / program.total):
        found.causes.append("fragmentation")
        plants = [plant for plant in case.plants if plant in UNDO]
        found.details += [p for p in plants if needed(UNDO[p](program), library) - live < (least - live) // 2]
        if plants and not found.details:
            raise NotPlanted("fragmentation")
    if not found.causes and found.figures["held"] - live > UNSURE[0] * program.total:
        raise TooClose("waste of neither kind")
    for other in case.devices:
        if other is not program:
            answer = library.run(other)
            wasted = answer.peak(other.start) - max(answer.live[other.start:])
            if max(wasted, cache_unused(other, answer, library)) > UNSURE[0] * other.total:
                raise TooClose("waste on another device")


def cache_unused(program: Program, run: Run, library: Library) -> int:
    """By how much an empty_cache at a moment of the recording's first half lowers what is held from then on."""
    start, end = program.start, len(program.ops)
    middle = (start + end) // 2
    moments = {start + (middle - start) * k // 12 for k in range(13)}
    moments |= {n + 1 for n in range(start, middle) if program.ops[n][0] in ("step", "record")}
    best = 0
    for at in sorted(moments):
        if run.peak(at) - run.live[at] > best:  # as much may be returned, no more
            emptied = library.run(program.with_op(at, ("e",)))
            best = max(best, run.peak(at) - emptied.peak(at + 1))
    return best


def needed(program: Program, library: Library) -> int:
    """The least that the device must offer for the recorded part, which begins with an empty_cache, to be served."""
    at = program.start
    free = library.run(replace(program, total=ENDLESS, outside=0))
    low, high = max(free.live[at:]), free.peak(at)
    emptied = replace(program, total=ENDLESS, outside=0).with_op(at, ("e",))
    while high - low > max(8 * MIB, program.total // 2000):
        middle = (low + high) // 2
        limited = library.run(emptied.with_op(at + 1, ("outside", ENDLESS - middle)))
        if limited.served and limited.peak(at + 2) <= middle:
            high = middle
        else:
            low = middle
    return high


def growth(program: Program) -> tuple[int, str]:
    """(bytes, stack): the most that one stack allocated in every recorded step and that stays to the end."""
    ends = [n for n, op in enumerate(program.ops) if op[0] == "step" and n >= program.start]
    freed = {op[1] for op in program.ops if op[0] == "f"}
    per: dict[str, list[int]] = defaultdict(lambda: [0] * len(ends))
    for n, op in enumerate(program.ops):
        if op[0] == "a" and op[1] not in freed and program.start <= n and (step := bisect_left(ends, n)) < len(ends):
            per[str(op[4])][step] += int(str(op[2]))
    most = max(((sum(row), stack) for stack, row in per.items() if all(row[1:])), default=(0, ""))
    if len(ends) >= STEPS:
        return most
    if len(ends) > 1 and most[0] > UNSURE[0] * program.total:
        raise TooClose(f"growth in {len(ends)} steps")
    return 0, ""
