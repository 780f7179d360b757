"""What a program tells the driver about its memory, in a word: the table of all advice that an experiment may name.

Each word turns a managed program into the one that its author would have written with that hint.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from gpusim.base.errors import suggest
from gpusim.machine.driver_parameters import UvmError
from gpusim.programs.managed.steps import (
    Access,
    Advise,
    Discard,
    Free,
    HostTouch,
    Kernel,
    ManagedProgram,
    Prefetch,
    Start,
    Step,
)

CPU, GPU = 0, 1
ENDLESS = 1 << 62
MIGRATING = 0.1  # share of the memory that a static plan leaves for pages that come and go


@dataclass(frozen=True)
class Advice:
    about: str
    hints: tuple[tuple[str, int], ...] = ()  # cudaMemAdvise of an allocation before anything else: advice, processor
    steps: Callable[[ManagedProgram, Container[str]], Iterator[Step]] | None = None  # or the steps in place of the program's
    plan: Callable[[ManagedProgram, Container[str], int], Iterator[Step]] | None = None  # or those for so many bytes of memory


class AdviceError(UvmError):
    """What a program would tell the driver is about what it does not have."""


def advised(program: ManagedProgram, said: str, memory: int = ENDLESS) -> ManagedProgram:
    """The program with what is said: a word for all allocations, or `name:word`, several with spaces between.

    memory: bytes of the GPU for managed pages.  `name*` means all allocations whose names begin so.  Raises UvmError for an
    unknown word, AdviceError for an allocation.
    """
    for part in said.split():
        name, colon, word = part.rpartition(":")
        if not (meant := _meant(program, part)) and colon:
            hint = suggest(name, _known(program))
            raise AdviceError(f"advice '{part}': no allocation of {program.name} is called '{name}'", hint=hint)
        program = _advised(program, meant, find(word), memory)
    return program


def for_one(program: ManagedProgram, said: str, others: Sequence[ManagedProgram]) -> str:
    """What is said, without what only programs beside this one have allocations for."""
    return " ".join(
        part for part in said.split() if _meant(program, part) or not any(_meant(other, part) for other in others)
    )


def _known(program: ManagedProgram) -> list[str]:
    return [array.name for array in program.arrays if array.kind != "device"]


def _meant(program: ManagedProgram, part: str) -> list[str]:
    """The allocations that one of several words is about."""
    name, colon, _ = part.rpartition(":")
    begins, star, _ = name.partition("*")
    return [k for k in _known(program) if (k.startswith(begins) if star else k == name or not colon)]


def check(said: str) -> None:
    """Raises UvmError for a word that there is not."""
    for part in said.split():
        find(part.rpartition(":")[2])


def find(word: str) -> Advice:
    if word not in ADVICE:
        raise UvmError(f"there is no advice '{word}'", hint=suggest(word, ADVICE))
    return ADVICE[word]


def _advised(program: ManagedProgram, names: list[str], advice: Advice, memory: int) -> ManagedProgram:
    hints = [Advise(name, *hint) for name in names for hint in advice.hints]
    steps: Iterable[Step] = advice.steps(program, frozenset(names)) if advice.steps else program.steps
    if advice.plan:
        steps = advice.plan(program, frozenset(names), memory)
    return replace(program, steps=(*hints, *steps))


def _prefetching(program: ManagedProgram, names: Container[str]) -> Iterator[Step]:
    """cudaMemPrefetchAsync of what a kernel touches, before it, on its stream."""
    sizes = {array.name: array.bytes for array in program.arrays}
    for step in program.steps:
        if isinstance(step, Kernel):
            ranges: dict[str, list[tuple[int, int]]] = {}
            for access in step.accesses:
                if access.array in names:
                    ranges.setdefault(access.array, []).append(reach(access, step, sizes[access.array]))
            for name, found in ranges.items():
                for first, end in merged(found):
                    yield Prefetch(name, step.gpu, first, end - first)
        yield step


def reach(access: Access, kernel: Kernel, size: int) -> tuple[int, int]:
    """The bytes [first, end) of its allocation that an access may touch: exact for an affine one, else all of it."""
    whole = access.elements * access.bytes if access.elements is not None else size
    if access.index is not None or access.random is not None or access.wraps:
        return 0, whole
    ways = zip(
        (access.tx, access.ty, access.bx, access.by, access.inner, access.outer),
        (*kernel.block, *kernel.grid, *kernel.steps),
        strict=True,
    )
    low = high = access.start
    for stride, count in ways:
        low, high = low + min(stride * (count - 1), 0), high + max(stride * (count - 1), 0)
    return max(low * access.bytes, 0), min((high + 1) * access.bytes, whole)


def merged(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same bytes in ranges that do not touch, in rising order; empty ones are left out."""
    out: list[tuple[int, int]] = []
    for first, end in sorted(ranges):
        if end <= first:
            continue
        if out and first <= out[-1][1]:
            out[-1] = out[-1][0], max(out[-1][1], end)
        else:
            out.append((first, end))
    return out


def _discarding(program: ManagedProgram, names: Container[str]) -> Iterator[Step]:
    """Discard arrays after their last use, except those that are freed anyway."""
    last: dict[str, int] = {}
    for i, step in enumerate(program.steps):
        for name in touched(step):
            last[name] = i
    for i, step in enumerate(program.steps):
        yield step
        if not isinstance(step, Free):
            yield from (Discard(name) for name in touched(step) if name in names and last[name] == i)


def _populating(program: ManagedProgram, names: Container[str]) -> Iterator[Step]:
    """All of these allocations are brought to the GPU before the run is timed."""
    begins = max((i for i, step in enumerate(program.steps) if isinstance(step, Start)), default=0)
    yield from program.steps[:begins]
    yield from (Prefetch(array.name) for array in program.arrays if array.name in names)
    yield from program.steps[begins:]


def touched(step: Step) -> list[str]:
    """The allocations that a step reads, writes or frees."""
    if isinstance(step, Kernel):
        return list(dict.fromkeys(access.array for access in step.accesses))
    return [step.array] if isinstance(step, HostTouch | Prefetch | Discard | Free) else []


def _static(program: ManagedProgram, names: Container[str], memory: int) -> Iterator[Step]:
    """A plan from the program's text, after SUV (Pratheek B et al., MICRO 2024).

    Allocations are prefetched whole, those with most accesses for each of their bytes first, as far as they fit beside a
    share of the memory for pages that migrate.  Of the others those with less than two accesses for each byte stay on the
    host and are read over the link.  The paper also places parts of allocations, and has a compiler find the accesses, which
    a managed program states.  None of its numbers is reproduced.
    """
    sizes = {array.name: array.bytes for array in program.arrays if array.name in names and array.kind == "managed"}
    used = dict.fromkeys(sizes, 0)
    for step in program.steps:
        if isinstance(step, Kernel):
            for access in step.accesses:
                if access.array in used:
                    used[access.array] += accessed(access, step)
    worth = sorted(sizes, key=lambda name: -used[name] / sizes[name])
    left, resident = int(memory * (1 - MIGRATING)), set[str]()
    for name in worth:
        if sizes[name] <= left:
            resident.add(name)
            left -= sizes[name]
    remote = [name for name in worth if name not in resident and used[name] < 2 * sizes[name]]
    for name in remote:
        yield from (Advise(name, "preferred_location", CPU), Advise(name, "accessed_by", GPU))
    waiting = set(resident)
    for step in program.steps:
        if isinstance(step, Kernel):
            for name in touched(step):
                if name in waiting:
                    waiting.discard(name)
                    yield Prefetch(name, step.gpu)
        yield step


def accessed(access: Access, kernel: Kernel) -> int:
    """Bytes that all threads of a kernel ask for in an access."""
    threads = kernel.grid[0] * kernel.grid[1] * kernel.block[0] * kernel.block[1]
    return threads * kernel.steps[0] * kernel.steps[1] * access.bytes


ADVICE = {
    "none": Advice("as the program itself says"),
    "prefetch": Advice("cudaMemPrefetchAsync of what a kernel touches, before it", steps=_prefetching),
    "populate": Advice("cudaMemPrefetchAsync of all of it before the run is timed", steps=_populating),
    "zero_copy": Advice("preferred location CPU, accessed by the GPU: nothing migrates",
                        (("preferred_location", CPU), ("accessed_by", GPU))),
    "preferred_gpu": Advice("preferred location GPU", (("preferred_location", GPU),)),
    "accessed_by": Advice("accessed by the GPU: mapped wherever it is", (("accessed_by", GPU),)),
    "read_mostly": Advice("read mostly: every reader gets a copy", (("read_mostly", GPU),)),
    "static": Advice("a plan from the program: what is accessed most comes whole, what is read once stays", plan=_static),
    "discard": Advice("discard after the last use: evicted without a copy", steps=_discarding),
}  # fmt: skip
