"""What is wrong with a program, and what other settings would hold: each from the real library's answers."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from planted_library import GIB, MIB, Library, Op, Program, Run
from planted_plants import PLANTS
from planted_recipes import ENDLESS, Case

SETTINGS = (
    "", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512", "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.8", "large_segment_size_mb:64",
)  # fmt: skip
SHARE = 0.02  # of the device's memory: below it nothing is wrong, and no setting is worth setting
UNSURE = (0.014, 0.033)  # a share in between is too close to call
STEPS = 5  # at fewer steps growth is not called a leak


class TooClose(Exception):
    """A figure lies so near its limit that the label would be a matter of taste."""


class NotPlanted(Exception):
    """Without the plant the real library answers the same."""


@dataclass
class Truth:
    """causes: kinds; details: of fragmentation; figures: bytes; settings: see `savings`."""

    causes: list[str]
    details: list[str]
    figures: dict[str, int]
    leak: str
    settings: dict[str, dict[str, object]]


def truth(case: Case, library: Library) -> Truth:
    """Raises TooClose, NotPlanted."""
    program = case.program
    run = library.run(program)
    if run.aborted:
        raise TooClose("the library aborted")
    causes: list[str] = []
    details: list[str] = []
    start = program.start
    figures = {"held": run.peak(start), "live": max(run.live[start:]), "total": program.total,
               "outside": program.outside_at_end()}  # fmt: skip
    if not run.served:
        _failure(case, run, library, causes, details, figures)
    else:
        _waste(case, run, library, causes, details, figures)
    grown, stack = growth(program)
    if sure(grown / program.total):
        causes.append("leak")
        figures["leak"] = grown
    settings = savings(program, run, library)
    return Truth(sorted(causes), sorted(details), figures, stack if "leak" in causes else "", settings)


def sure(share: float) -> bool:
    """Whether it is above SHARE; raises TooClose."""
    if UNSURE[0] < share < UNSURE[1]:
        raise TooClose(f"{share:.1%}")
    return share >= SHARE


def _failure(
    case: Case, run: Run, library: Library, causes: list[str], details: list[str], figures: dict[str, int]
) -> None:
    program, last = case.program, case.program.ops[-1]
    request, live, outside = int(str(last[2])), run.live[-1], figures["outside"]
    request = -(-request // 512) * 512
    offered, normal = program.total - outside, max(GIB, int(SHARE * program.total))
    figures |= {"request": request, "live_at_failure": live, "held_at_failure": run.held[-1]}
    lacks = live + request - offered
    if abs(lacks) < program.total // 200 + 4 * MIB:
        raise TooClose(f"lacks {lacks / MIB:.0f} MiB")
    if lacks > 0:
        causes.append("shortage")
        figures["shortage"] = lacks
        beyond = live + request - program.total
        if abs(beyond) < program.total // 200:
            raise TooClose("impossible or not")
        if beyond > 0:
            causes.append("impossible")
    else:
        causes.append("fragmentation")
        details += _details(case, library)
        figures["fragmentation"] = run.held[-1] - live
    if abs(outside - normal) < normal // 5:
        raise TooClose("outside")
    if outside > normal:
        returned = {library.run(program.with_outside(nbytes)).served for nbytes in (normal // 2, normal)}
        if len(returned) > 1:
            raise TooClose("foreign")
        if returned == {True}:
            causes.append("foreign")
            figures["foreign"] = outside
    others = [other for k, other in enumerate(case.devices) if k != case.subject]
    roomy = [_has_room(other, request, library) for other in others]
    if any(roomy):
        causes.append("other_device")


def _has_room(other: Program, request: int, library: Library) -> bool:
    ops = (*other.ops, ("a", 10**7, request, 0, ""))
    margin = other.total // 20
    found = {library.run(replace(other, ops=ops, outside=max(0, other.outside + more))).served for more in (-margin, margin)}
    if len(found) > 1:
        raise TooClose("room on another device")
    return found == {True}


def _details(case: Case, library: Library) -> list[str]:
    """The plants without which the same request is served; where it takes several of them, all of those."""
    fragmenting = [p for p in case.plants if p in PLANTS and p not in ("leak", "cached", "harmless")]
    found = [p for p in fragmenting if _without(case, p, library)]
    if not found and len(fragmenting) > 1 and all(_without(case, p, library) for p in [tuple(fragmenting)]):
        found = fragmenting
    if not found:
        raise NotPlanted("fragmentation")
    return found


def _without(case: Case, plants: str | tuple[str, ...], library: Library) -> bool:
    """Whether the last request is served when the pattern is undone: no neighbours, one stream, one pool, no setting."""
    program = case.program
    for plant in [plants] if isinstance(plants, str) else plants:
        program = UNDO[plant](program)
    return library.run(program).served


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


UNDO = {"pieces": _no_keepers, "pool": _no_keepers, "stream": _one_stream, "private_pool": _one_pool,
        "oversize": _no_setting, "rounding": _no_setting}  # fmt: skip


def _waste(case: Case, run: Run, library: Library, causes: list[str], details: list[str], figures: dict[str, int]) -> None:
    """Memory held and not used, in a program that was served all."""
    program = case.program
    wasted = figures["held"] - figures["live"]
    unused = cache_unused(program, run, library)
    figures |= {"cached": unused, "needed": needed(program, library)}
    between = figures["needed"] - figures["live"]
    figures["fragmentation"] = between
    if sure(unused / program.total):
        causes.append("cached")
    if sure(between / program.total):
        causes.append("fragmentation")
        at_end = [p for p in case.plants if p in UNDO]
        undone = {p: needed(UNDO[p](program), library) - figures["live"] for p in at_end}
        details += [p for p in at_end if undone[p] < between // 2]
        if at_end and not details:
            raise NotPlanted("fragmentation")
    if not causes and wasted / program.total > UNSURE[0]:
        raise TooClose(f"waste of {wasted / program.total:.1%}")


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
    spans = [[*span] for span in zip([program.start, *ends], ends, strict=False)]
    per: dict[str, list[int]] = defaultdict(lambda: [0] * len(spans))
    step = 0
    for n, op in enumerate(program.ops):
        if n < program.start:
            continue
        while step < len(spans) and n > spans[step][1]:
            step += 1
        # what follows a step's mark before the next forward belongs to the next
        if op[0] == "a" and op[1] not in freed and step < len(spans):
            per[str(op[4])][step] += int(str(op[2]))
    rows = [(sum(row), stack) for stack, row in per.items() if all(row[1:])]
    most = max(rows, default=(0, ""))
    if len(ends) < STEPS:
        if len(ends) > 1 and most[0] > UNSURE[0] * program.total:
            raise TooClose(f"growth in {len(ends)} steps")
        return 0, ""
    return most


def savings(program: Program, run: Run, library: Library) -> dict[str, dict[str, object]]:
    """Under each setting: whether all is served, and the bytes held at peak in the recorded part, as an interval.

    Where recording began late, what the program did before is not recorded.  The interval spans the whole program run
    under the setting, the recorded part alone from the blocks that were live (in order of address), and the recorded part
    from all that was held then, the setting switched at that moment.
    """
    found: dict[str, dict[str, object]] = {}
    for conf in dict.fromkeys((program.conf, *SETTINGS)):
        runs = [(library.run(replace(program, conf=conf)), program.start)]
        if program.start:
            fresh, at = from_live(program, library)
            runs.append((library.run(replace(fresh, conf=conf)), at))
            if "max_split" not in conf + program.conf and conf != program.conf:
                runs.append((library.run(program, switch=(program.start, switched(conf))), program.start))
        if conf == program.conf:
            runs = runs[:1]
        runs = [(r, at) for r, at in runs if not r.aborted]
        served = [r.served for r, _ in runs]
        held = [r.peak(at) for r, at in runs if r.served]
        found[conf] = {"serves": all(served) if all(served) or not any(served) else "unsure",
                       "held": [min(held), max(held)] if held else []}  # fmt: skip
    return found


def switched(conf: str) -> str:
    """Some settings are not reset by leaving them out."""
    parts = {"expandable_segments": "False", "large_segment_size_mb": "20"}
    parts |= dict(part.split(":") for part in conf.split(",") if part)
    return ",".join(f"{name}:{value}" for name, value in parts.items())


def from_live(program: Program, library: Library) -> tuple[Program, int]:
    """The recorded part alone, from the blocks that were live; and the operation at which it begins."""
    start, live, address = program.start, dict[object, Op](), dict[object, int]()
    run = library.run(replace(program, ops=program.ops[:start]), events=True)
    for n, lines in run.events:
        op = program.ops[n]
        if op[0] == "a":
            address[op[1]] = next(int(line[1]) for line in lines if line[0] == "alloc")
    for op in program.ops[:start]:
        if op[0] == "a":
            live[op[1]] = op
        elif op[0] == "f":
            live.pop(op[1], None)
    first = sorted(live.values(), key=lambda op: address[op[1]])
    open_pools, pool_of = list[object](), dict[object, object]()
    for op in program.ops[:start]:
        if op[0] == "p":
            open_pools = [*open_pools, op[2]] if op[1] == "begin" else [p for p in open_pools if p != op[2]]
        elif op[0] == "a" and open_pools:
            pool_of[op[1]] = open_pools[-1]
    ops: list[Op] = []
    for op in first:
        inside = pool_of.get(op[1])
        ops += [op] if inside is None else [("p", "begin", inside), op, ("p", "end", inside)]
    ops += [*(("p", "begin", pool) for pool in open_pools), *program.ops[start:]]
    return replace(program, ops=tuple(ops)), len(ops) - len(program.ops) + start
