"""A managed program as text: `traces/programs/NAME.yaml` → ManagedProgram, with every mistake told at its line.

The words are in `text_model.py`, the access patterns in `forms.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from gpusim.base.errors import ConfigError, GpusimError, Problem, suggest
from gpusim.base.yaml import document, validate
from gpusim.base.yaml.document import Document, Path_
from gpusim.machine.driver_parameters import BLOCK_BYTES
from gpusim.programs.managed import forms, graph, patterns, recorded
from gpusim.programs.managed import text_model as words
from gpusim.programs.managed.layout import lay_out
from gpusim.programs.managed.steps import (
    Access,
    Advise,
    Array,
    Discard,
    Free,
    HostTouch,
    Kernel,
    ManagedProgram,
    Prefetch,
    Start,
    Step,
    Wait,
    on_stream,
)

NAME = re.compile(r"\w[\w.-]*")  # of an array: what advice can name
PAGE = 4096
MOST_STEPS = 1_000_000
MOST_BLOCKS = (1 << 31) - 1, 65_535  # of a grid's two dimensions: CUDA C++ Programming Guide, compute capabilities
MOST_THREADS = 1024  # of a block: CUDA C++ Programming Guide, technical specifications
PROCESSOR = {"cpu": 0, "gpu": 1}  # others by their numbers


def load(path: Path) -> ManagedProgram:
    """The program in a YAML file.  Raises ConfigError with all its mistakes, in the order of the file."""
    return _Reader(document.read(path), path.parent).program(path.stem)


class _Reader:
    def __init__(self, whole: Document, folder: Path) -> None:
        self.whole, self.folder = whole, folder
        self.problems: list[Problem] = []
        self.arrays: dict[str, words.ArrayText] = {}
        self.freed: dict[str, int] = {}  # array -> line
        self.awaited: list[tuple[Path_, tuple[int, ...]]] = []  # where a step waits for streams, and for which

    def program(self, name: str) -> ManagedProgram:
        said = validate.build(words.ProgramText, self.whole)
        for array, a in said.arrays.items():
            if (a.bytes is None) == (a.shape is None):
                self._complain(("arrays", array), f"'{array}' needs its bytes or its shape", "write one of both")
            elif not a.element:
                self._complain(("arrays", array), f"'{array}' has elements of 0 bytes")
            elif not _bytes(a):
                self._complain(("arrays", array), f"'{array}' is empty")
            elif a.at >= BLOCK_BYTES or a.at % PAGE:
                wanted = "at a multiple of 4 KiB below 2 MiB"
                self._complain(("arrays", array, "at"), f"'{array}' must begin {wanted}, not at {a.at:,} B")
            elif not NAME.fullmatch(array):
                self._complain(("arrays", array), f"'{array}' is no name of an array", "letters, digits, _, - and .", True)
            self.arrays[array] = a
        if not said.arrays:
            self._complain(("arrays",), "a program needs arrays that it touches", "write arrays: {a: 64 MiB}", True)
        if self.problems:
            raise ConfigError(self.problems)
        steps: list[Step] = []
        self._steps(("steps",), said.steps, steps)
        self._check_streams(steps)
        if not self.problems and (not steps or isinstance(steps[-1], Start)):
            self._complain(("steps",), "no step stands behind start, so that there is nothing to time", at_key=True)
        if self.problems:
            raise ConfigError(sorted(dict.fromkeys(self.problems), key=lambda p: (p.line, p.col)))
        return ManagedProgram(name, self._allocations(), steps)

    def _check_streams(self, steps: list[Step]) -> None:
        """A step that waits for a stream in which nothing runs waits for nothing."""
        used = sorted({step.stream or 0 for step in steps if on_stream(step)})
        for path, streams in self.awaited:
            for stream in streams:
                if used and stream not in used:
                    known = f"streams of this program: {', '.join(map(str, used))}"
                    self._complain((*path, "after"), f"after: nothing runs in stream {stream}", known)

    def _allocations(self) -> list[Array]:
        return [Array(k, _bytes(a), a.at, a.kind) for k, a in self.arrays.items()]

    def _complain(self, path: Path_, message: str, hint: str = "", at_key: bool = False) -> None:
        self.problems.append(self.whole.problem(path, message, hint, at_key))

    def _line(self, path: Path_) -> int:
        return self.whole.problem(path, "").line

    def _steps(self, path: Path_, said: list[Any], out: list[Step]) -> None:
        for k, step in enumerate(said):
            self._step((*path, k), step, out)

    def _step(self, path: Path_, said: Any, out: list[Step]) -> None:
        if said == words.START:
            if path[:-1] != ("steps",) or any(isinstance(step, Start) for step in out):
                self._complain(path, "a program starts once, and not within a repeat")
            out.append(Start())
            return
        if said == words.WAIT:
            out.append(Wait())
            return
        verb = self._verb(path, said)
        if not verb:
            return
        try:
            step: Any = validate.build(words.STEPS[verb], self.whole.part(path), self.arrays)
        except ConfigError as error:
            self.problems += error.problems
            return
        for name in self._names(step):
            if name in self.freed:
                self._complain(path, f"'{name}' was freed on line {self.freed[name]}")
        where = f"{self.whole.file}:{self._line(path)}"
        if isinstance(after := getattr(step, "after", None), list):
            self.awaited.append((path, tuple(after)))
        if isinstance(step, words.RepeatText):
            self._repeat(path, step, out)
        elif isinstance(step, words.KernelText):
            out += self._kernels(path, step, where)
        elif isinstance(step, words.RecordingText):
            out += self._recorded(path, step)
        elif isinstance(step, words.AdviseText):
            hint, processor, after = step.hint, _processor(step.processor), _streams(step.after)
            out += [Advise(name, hint, processor, where, () if k and after is not None else after)
                    for k, name in enumerate(step.advise)]  # fmt: skip
        elif isinstance(step, words.FreeText):
            for name in dict.fromkeys(name for name in step.free if step.free.count(name) > 1):
                self._complain((*path, "free"), f"'{name}' is freed twice")
            out += [Free(name, where) for name in step.free]
            self.freed |= dict.fromkeys(step.free, self._line(path))
        else:
            out += self._ranges(path, step, where)

    def _verb(self, path: Path_, said: Any) -> str:
        """The key that says what a step is; "" when that has to be told."""
        keys = [str(key) for key in said] if isinstance(said, dict) else [str(said)]
        verbs = [key for key in keys if key in words.STEPS]
        if len(verbs) == 1 and isinstance(said, dict):
            return verbs[0]
        if len(verbs) > 1:
            self._complain(path, f"'{verbs[0]}' and '{verbs[1]}' are two steps", "write them one after the other")
        else:
            hint = suggest(keys[0] if keys else "", (*words.STEPS, words.START, words.WAIT))
            self._complain(path, "a step begins with what it does", hint)
        return ""

    def _names(self, step: Any) -> list[str]:
        if isinstance(step, words.KernelText):
            return [a.read or a.write or a.update or "" for a in step.accesses]
        return next((v for k in words.STEPS if isinstance(v := getattr(step, k, None), list)), [])

    def _repeat(self, path: Path_, said: words.RepeatText, out: list[Step]) -> None:
        once: list[Step] = []
        self._steps((*path, "steps"), said.steps, once)
        if said.repeat > 1 and any(isinstance(step, Free) for step in once):
            self._complain(path, "what is freed in a repeated step is freed only once", "free it behind the repeat")
        elif len(out) + said.repeat * len(once) > MOST_STEPS:
            self._complain(path, f"{said.repeat * len(once):,} steps are more than {MOST_STEPS:,}")
        else:
            out += once * said.repeat

    def _recorded(self, path: Path_, said: words.RecordingText) -> Iterator[Step]:
        places = {name: recorded.Place(_bytes(a), a.address) for name, a in self.arrays.items()}
        try:
            yield from recorded.kernels(self.folder / said.recording, places)
        except GpusimError as error:
            self._complain(path, f"{error.where}: {error.message}", error.hint)

    def _ranges(self, path: Path_, said: Any, where: str) -> Iterator[Step]:
        """Steps for bytes [first, first + count) of arrays."""
        after = None if isinstance(said, words.PrefetchText) else _streams(said.after)
        if isinstance(said, words.PrefetchText) and said.stream is None and said.gpu != 1:
            self._complain((*path, "gpu"), "gpu says whose stream it is, and no stream is given",
                           f"write to: {said.gpu} for where the pages go, or give it a stream", True)  # fmt: skip
        for name in self._names(said):
            size = _bytes(self.arrays[name])
            count = size - said.first if said.count is None else said.count
            if said.first >= size:
                self._complain((*path, "first"), f"byte {said.first:,} lies outside of '{name}', which has {size:,}")
            elif count <= 0:
                self._complain((*path, "count"), "a range of 0 bytes")
            elif said.first + count > size:
                end = said.first + count
                self._complain((*path, "count"), f"bytes {said.first:,} to {end:,} lie outside of '{name}', which has {size:,}")
            elif isinstance(said, words.HostText):
                yield HostTouch(name, said.host_write is not None, said.first, said.count, where, after)
            elif isinstance(said, words.PrefetchText):
                yield Prefetch(name, _processor(said.to), said.first, said.count, where, said.stream, said.gpu)
            else:
                yield Discard(name, said.first, said.count, where, after)
            after = after if after is None else ()  # the program waits once for all that one step is about

    def _kernels(self, path: Path_, said: words.KernelText, where: str) -> Iterator[Kernel]:
        before = len(self.problems)
        if said.threads and said.grid:
            self._complain((*path, "grid"), "threads and grid both say how large the kernel is", "leave one of them out", True)
        if said.block[0] * said.block[1] > MOST_THREADS:
            self._complain((*path, "block"), f"a thread block has at most {MOST_THREADS:,} threads", at_key=True)
        if said.grid and not all(size <= most for size, most in zip(said.grid, MOST_BLOCKS, strict=True)):
            wide, high = (f"{most:,}" for most in MOST_BLOCKS)
            self._complain((*path, "grid"), f"a grid has at most {wide} by {high} thread blocks", at_key=True)
        if said.flops and said.time is not None:
            self._complain((*path, "flops"), "time and flops both say how long the kernel takes", "leave one of them out", True)
        for k, a in enumerate(said.accesses):
            at = (*path, "accesses", k)
            if sum(name is not None for name in (a.read, a.write, a.update)) != 1:
                self._complain(at, "an access is one of read, write and update")
            elif (a.pattern.name in words.IN_SEARCH) != (said.frontier is not None):
                patterns_ = ", ".join(words.IN_SEARCH)
                self._complain(at, f"{patterns_} are the patterns of a kernel with a frontier, and its only ones")
            elif a.bytes == 0:
                self._complain((*at, "bytes"), "an access of 0 bytes")
            elif not self._room(a):
                has = f"'{_name(a)}', which has {_bytes(self.arrays[_name(a)]):,}"
                self._complain(at, f"{said.kernel}: an access of {self._size(a):,} bytes does not fit {has}")
            elif a.elements and a.elements > self._room(a):
                fault = self._fault(said.kernel, a, self._room(a))
                self._complain(
                    (*at, "elements"),
                    f"{fault}, behind the {self._room(a):,} elements of '{_name(a)}'",
                    f"{a.elements:,} need {a.elements * self._size(a):,} bytes, and it has {_bytes(self.arrays[_name(a)]):,}",
                )
        if len(self.problems) > before:
            return
        if said.frontier:
            yield from self._search(path, said, said.frontier, where)
            return
        threads = said.threads or (said.grid[0] * said.block[0] if said.grid and said.grid[1] * said.block[1] == 1 else 0)
        accesses: list[Access] = []
        grids, steps = [], (1, 1)
        for k, a in enumerate(said.accesses):
            try:
                laid = forms.lay(a.pattern, self._target(a, said, threads))
            except GpusimError as error:
                self._complain((*path, "accesses", k), error.message, error.hint)
                return
            if not self._inside(path, k, said.kernel, a, laid.accesses):
                return
            accesses += self._both(a, laid.accesses)
            grids.append(laid.grid)
            steps = laid.steps if k == 0 else (max(steps[0], laid.steps[0]), max(steps[1], laid.steps[1]))
        grid = said.grid or tuple(next((g[d] for g in grids if g[d]), 1) for d in (0, 1))
        if said.repeats > 1 and steps[1] > 1:
            self._complain((*path, "repeats"), "a walk of tiles is not repeated", "put the kernel into a repeat", True)
        steps = (said.steps or steps[0], max(said.repeats, steps[1]))
        shape = cast(tuple[int, int], grid), said.block, steps
        yield Kernel(said.kernel, accesses, *shape, said.time, said.gpu, said.stream, where, flops=said.flops)

    def _inside(self, path: Path_, k: int, kernel: str, said: words.AccessText, accesses: list[Access]) -> bool:
        """Does an index stay within its array, and does the pattern begin in it?"""
        room = self._room(said)
        if said.start >= room:
            fault = self._fault(kernel, said, said.start)
            self._complain((*path, "accesses", k, "start"), f"{fault}, behind the {room:,} elements of '{_name(said)}'")
            return False
        for x in accesses:
            if x.index is not None and x.index.size:
                wrong = int(x.index.min()) if x.index.min() < 0 else int(x.index.max())
                if not 0 <= wrong < room:
                    at = f"index {wrong:,} of '{_name(said)}', which has {room:,} elements"
                    self._complain((*path, "accesses", k), f"{self._fault(kernel, said, wrong)}, {at}")
                    return False
        return True

    def _fault(self, kernel: str, said: words.AccessText, element: int) -> str:
        """The beginning of what is told of a kernel that leaves an array; addresses are those of the simulated machine."""
        first = lay_out(self._allocations())[_name(said)].first
        return f"{kernel}: segmentation fault at {first + element * self._size(said):#x}"

    def _search(self, path: Path_, said: words.KernelText, search: words.FrontierText, where: str) -> Iterator[Kernel]:
        """One kernel for each level."""
        if search.nodes * search.degree > forms.MOST:
            graph_ = f"{search.nodes:,} nodes of {search.degree} edges have {search.nodes * search.degree:,}"
            self._complain((*path, "frontier"), f"{graph_}, more than {forms.MOST:,}", at_key=True)
            return
        if search.start >= search.nodes:
            nodes = f"the last of {search.nodes:,} nodes is {search.nodes - 1:,}"
            self._complain((*path, "frontier", "start"), f"the search begins at node {search.start:,}, and {nodes}")
            return
        need = {"node": search.nodes, "edge": search.nodes * search.degree, "neighbour": search.nodes}
        for k, a in enumerate(said.accesses):
            room, wanted = self._room(a), need[a.pattern.name]
            if room < wanted:
                message = f"'{_name(a)}' has {room:,} elements for {wanted:,}"
                self._complain((*path, "accesses", k), message, "a larger array, or fewer nodes")
                return
        for level, neighbours in graph.levels(search.nodes, search.degree, search.seed, search.start):
            each, block = search.degree, said.block[0]
            edges = level[:, None] * each + np.arange(each)
            index = {"node": level, "edge": edges.ravel(), "neighbour": neighbours.ravel()}
            accesses: list[Access] = []
            for a in said.accesses:
                k = 1 if a.pattern.name == "node" else each  # entries of a thread
                at = Access(_name(a), False, self._size(a), tx=k, bx=k * block, inner=k > 1, index=index[a.pattern.name])
                accesses += self._both(a, [at])
            grid = patterns.grid_for(len(level), block)
            shape = grid, said.block, (each, said.repeats)
            yield Kernel(said.kernel, accesses, *shape, said.time, said.gpu, said.stream, where, flops=said.flops)

    def _both(self, said: words.AccessText, accesses: list[Access]) -> list[Access]:
        """Those of a pattern as the text wants them: from an element on, bounded, and for an update once more to write."""
        moved = [
            replace(x, write=said.write is not None, start=x.start + said.start, elements=said.elements) for x in accesses
        ]  # fmt: skip
        return moved + [replace(x, write=True) for x in moved] if said.update else moved

    def _target(self, said: words.AccessText, kernel: words.KernelText, threads: int) -> forms.Target:
        a = self.arrays[_name(said)]
        size = self._size(said)
        shape = a.shape and (a.shape[0], a.shape[1] * a.element // size)
        return forms.Target(_name(said), _bytes(a), size, False, shape, kernel.block, threads, self.folder)

    def _size(self, said: words.AccessText) -> int:
        return said.bytes or self.arrays[_name(said)].element

    def _room(self, said: words.AccessText) -> int:
        return _bytes(self.arrays[_name(said)]) // self._size(said)


def _name(said: words.AccessText) -> str:
    return said.read or said.write or said.update or ""


def _bytes(a: words.ArrayText) -> int:
    return a.shape[0] * a.shape[1] * a.element if a.shape else a.bytes or 0


def _processor(said: str | int) -> int:
    return said if isinstance(said, int) else PROCESSOR[said]


def _streams(said: str | list[int]) -> tuple[int, ...] | None:
    """None: all."""
    return None if said == "all" else () if isinstance(said, str) else tuple(said)
