"""What a program would hold under other settings, by the real library."""

from __future__ import annotations

from dataclasses import replace

from planted_library import Library, Op, Program, Run

SETTINGS = (
    "", "expandable_segments:True", "max_split_size_mb:128", "max_split_size_mb:512", "roundup_power2_divisions:8",
    "garbage_collection_threshold:0.8", "large_segment_size_mb:64",
)  # fmt: skip


def savings(program: Program, library: Library) -> dict[str, dict[str, object]]:
    """Under each setting: whether all is served, the bytes held at peak in the recorded part, the bytes saved.

    Where recording began late, what the program did before is not recorded.  Both are intervals then, over three ways to
    come to the recorded part: the whole program under the setting; only the blocks that were live, in order of address; and
    all that was held, the setting switched at that moment.  What is saved is against the recorded setting in the same way.
    A setting of which the library cannot be asked each way is left out.
    """
    ways = [_whole, *([_from_live, _switched] if program.start else [])]
    own = {way: way(program, program.conf, library) for way in ways}
    found: dict[str, dict[str, object]] = {}
    for conf in dict.fromkeys((program.conf, *SETTINGS)):
        served, held, saved, unknown = set[bool](), list[int](), list[int](), False
        for way in ways:
            before, after = own[way], own[way] if conf == program.conf else way(program, conf, library)
            if before is None or after is None:
                unknown = True
                continue
            served.add(after[0])
            if after[0]:
                held.append(after[1])
                saved.append(before[1] - after[1])
        if unknown:
            continue
        serves: object = served.pop() if len(served) == 1 else "unsure"
        found[conf] = {"serves": serves, "held": _ends(held), "saves": _ends(saved)}
    return found


def _ends(values: list[int]) -> list[int]:
    return [min(values), max(values)] if values else []


Answered = tuple[bool, int] | None  # whether all is served, bytes held at peak; None: the library cannot be asked


def _answered(program: Program, run: Run, start: int) -> Answered:
    taken = [(n, int(str(op[1]))) for n, op in enumerate(program.ops) if op[0] == "outside"]
    # What this program holds under the setting, no other one could have taken.
    if run.aborted or any(run.held[n] > program.total - outside for n, outside in taken):
        return None
    return run.served, run.peak(start)


def _whole(program: Program, conf: str, library: Library) -> Answered:
    return _answered(program, library.run(replace(program, conf=conf)), program.start)


def _from_live(program: Program, conf: str, library: Library) -> Answered:
    fresh, at = from_live(program, library)
    return _answered(fresh, library.run(replace(fresh, conf=conf)), at)


def _switched(program: Program, conf: str, library: Library) -> Answered:
    if conf == program.conf:
        return _whole(program, conf, library)
    if "max_split" in conf + program.conf:  # the library cannot change it once there are blocks
        return None
    return _answered(program, library.run(program, switch=(program.start, switched(conf))), program.start)


def switched(conf: str) -> str:
    """Some settings are not reset by leaving them out."""
    parts = {"expandable_segments": "False", "large_segment_size_mb": "20"}
    parts |= dict(part.split(":") for part in conf.split(",") if part)
    return ",".join(f"{name}:{value}" for name, value in parts.items())


def from_live(program: Program, library: Library) -> tuple[Program, int]:
    """The recorded part alone, from the blocks that were live; and the operation at which it begins."""
    start, begun = program.start, list[object]()
    live, address, pool = dict[object, Op](), dict[object, int](), dict[object, object]()
    run = library.run(replace(program, ops=program.ops[:start]), events=True)
    for n, lines in run.events:
        for words in lines:
            if words[0] == "alloc":
                address[program.ops[n][1]] = int(words[1])
    for op in program.ops[:start]:
        if op[0] == "a":
            live[op[1]] = op
            pool[op[1]] = begun[-1] if begun else None
        elif op[0] == "f":
            live.pop(op[1], None)
        elif op[0] == "p":
            begun = [*begun, op[2]] if op[1] == "begin" else [k for k in begun if k != op[2]]
    ops: list[Op] = []
    for op in sorted(live.values(), key=lambda op: address[op[1]]):
        k = pool[op[1]]
        ops += [op] if k is None else [("p", "begin", k), op, ("p", "end", k)]
    ops += [("p", "begin", k) for k in begun]
    return replace(program, ops=(*ops, *program.ops[start:])), len(ops)
