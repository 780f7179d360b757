"""What a trace can answer.  A snapshot knows no accesses, most imports no arithmetic: a verb asks before it computes.

A gap that an importer has filled (`meta["filled"]`) is none: what it assumed stands in the trace's meta.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from gpusim.base.errors import TraceError
from gpusim.trace.trace import ALLOC, KERNEL, Trace


@dataclass(frozen=True)
class Answers:
    """The questions that a trace can answer.

    allocator  what the program allocated and freed, in its order: what an allocator does with it
    accesses   which tensors each operator reads and writes: what eviction, swapping and recomputing cost
    times      how long operators take: each kernel's time was recorded, or follows from its flops and bytes
    flops      the arithmetic of the operators: times on another machine, of another type or another batch
    """

    allocator: bool
    accesses: bool
    times: bool
    flops: bool

    @property
    def given(self) -> tuple[str, ...]:
        """The names of those that it answers, in the order of the class."""
        return tuple(name for name in NEEDS if getattr(self, name))

    @property
    def missing(self) -> tuple[str, ...]:
        """The names of the others."""
        return tuple(name for name in NEEDS if not getattr(self, name))


NEEDS = tuple(field.name for field in fields(Answers))

# What each is called when it is missing.
_MISSING = {
    "allocator": "what was allocated and when it was freed",
    "accesses": "which tensors each operator reads and writes",
    "times": "how long its operators take (recorded times, or flops to model them)",
    "flops": "the flops of its operators",
}
_RECORD = "record the program with `gpusim record`"
_USE = "; `gpusim oom` compares allocators on what is there"
_INSTEAD = {
    "allocator": f"{_RECORD}, or import a memory snapshot of it",
    "accesses": f"{_RECORD}, which sees them",
    "times": f"{_RECORD}, or import a profile with kernel times",
    "flops": f"{_RECORD}, which counts them",
}


def answers(trace: Trace) -> Answers:
    """What the trace can answer, found from its columns, and from what its importer says it lacks and has filled."""
    filled = set(trace.meta.get("filled", {}))
    lacks = set(trace.meta.get("lacks", ())) - filled
    modelled = "operators" in filled  # the importer made operators of something else, with their accesses
    flops = trace.ops > 0 and "flops" not in lacks and ("flops" in filled or not modelled or bool(trace.flops.any()))
    kernels = trace.activity == KERNEL
    return Answers(
        allocator=bool((trace.kind == ALLOC).any()) and not lacks & {"allocations", "frees"},
        accesses=len(trace.read_id) + len(trace.write_id) > 0 and (modelled or "accesses" not in lacks),
        times=trace.ops > 0 and (flops or bool((trace.duration[kernels] >= 0).all())),
        flops=flops,
    )


def require(trace: Trace, need: str | Sequence[str], verb: str) -> None:
    """Raises TraceError with the reason, and what to do instead, when the trace cannot answer what `verb` needs.

    need  some of the names of `Answers`
    verb  what was asked for, as a subject: "gpusim plan", "eviction under lru"
    """
    can = answers(trace)
    for name in [need] if isinstance(need, str) else need:
        if not getattr(can, name):
            raise TraceError(f"{verb} needs {_MISSING[name]}, which {trace.name} does not say", hint=instead(can, name))


def lacking(name: str, need: str) -> str:
    """What a trace of this name lacks, as a clause: "x does not say which tensors each operator reads and writes"."""
    return f"{name} does not say {_MISSING[need]}"


def unanswered(name: str, missing: Sequence[str]) -> str:
    """What results of a trace of this name leave out; `missing` as in `Answers`.  "" where that is nothing."""
    left = {"allocator": "memory", "accesses": "swaps", "times": "times"}
    said = [words for need, words in left.items() if need in missing]
    first = next((need for need in ("accesses", "times", "allocator") if need in missing), "")
    return f"{lacking(name, first)}: its results are without {' and '.join(said)}" if said else ""


def instead(can: Answers, need: str) -> str:
    """What to do where `need` is missing: how to get it, and what the trace is good for as it is."""
    return f"{_INSTEAD[need]}{_USE if can.allocator and need != 'allocator' else ''}"
