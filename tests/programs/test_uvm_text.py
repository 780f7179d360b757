"""Does a program's text mean what it says?  Patterns against plain enumeration, mistakes at their line, shipped programs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.base.errors import ConfigError
from gpusim.programs.managed import patterns
from gpusim.programs.managed.steps import Access, Advise, Discard, Free, HostTouch, Kernel, ManagedProgram, Prefetch, Start
from gpusim.programs.managed.text import load

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
SHIPPED = sorted((ROOT / "traces" / "programs").glob("*.yaml"))


def program(tmp_path: Path, text: str) -> ManagedProgram:
    file = tmp_path / "mine.yaml"
    file.write_text(text, "utf-8")
    return load(file)


def kernel(tmp_path: Path, arrays: str, rest: str) -> Kernel:
    step = program(tmp_path, f"arrays: {arrays}\nsteps: [{{kernel: k, {rest}}}]\n").steps[0]
    assert isinstance(step, Kernel)
    return step


def elements(k: Kernel, a: Access, room: int) -> Counter[int]:
    """How often each element is touched, by the definition in pattern.py."""
    gx, gy, bx, by = (np.arange(n) for n in (*k.grid, *k.block))
    inner, outer = (np.arange(n) for n in k.steps)
    axes = np.meshgrid(gx, gy, bx, by, inner, outer, indexing="ij")
    strides = (a.bx, a.by, a.tx, a.ty, a.inner, a.outer)
    at = a.start + sum(axis * stride for axis, stride in zip(axes, strides, strict=True)).ravel()
    if a.index is not None:
        at = a.index[at[(at >= 0) & (at < len(a.index))]]
    return Counter(at[(at >= 0) & (at < (a.elements or room))].tolist())


def once(*which: int) -> Counter[int]:
    return Counter(which)


def test_the_text_and_python_make_the_same_program() -> None:
    text = load(ROOT / "traces" / "programs" / "vector_add.yaml")
    assert len((ROOT / "traces" / "programs" / "vector_add.yaml").read_text().splitlines()) <= 12
    n = 64 * MIB
    add = patterns.vector_add("a", "b", "c", n)
    read = [HostTouch("a"), HostTouch("b"), Start(), Kernel("add", add.accesses, add.grid), HostTouch("c", write=False)]
    assert list(text.steps) == read
    assert [(a.name, a.bytes) for a in text.arrays] == [(x, 256 * MIB) for x in "abc"]
    assert text.footprint == 768 * MIB


def test_steps_in_their_order(tmp_path: Path) -> None:
    p = program(tmp_path, """
arrays: {a: 3 MiB, b: {bytes: 64 KiB, kind: system, at: 4 KiB}}
steps:
  - {advise: [a, b], hint: preferred_location, processor: cpu}
  - {prefetch: a, first: 1 MiB, count: 2 MiB}
  - {prefetch: b, stream: 1}
  - repeat: 2
    steps:
      - {host_read: a, to: 1 MiB}
  - {discard: b, first: 4 KiB}
  - free: [b, a]
""".replace("to: 1 MiB", "count: 1 MiB"))  # fmt: skip
    assert list(p.steps) == [
        Advise("a", "preferred_location", 0), Advise("b", "preferred_location", 0), Prefetch("a", 1, MIB, 2 * MIB),
        Prefetch("b", stream=1),
        HostTouch("a", False, 0, MIB), HostTouch("a", False, 0, MIB), Discard("b", 4096), Free("b"), Free("a"),
    ]  # fmt: skip
    assert (p.arrays[1].kind, p.arrays[1].at) == ("system", 4096)
    assert p.footprint == (2 + 1) * 2 * MIB
    assert [s.where.rpartition(":")[2] for s in p.steps] == ["4", "4", "5", "6", "9", "9", "10", "11", "11"]


def test_what_the_program_waits_for_before_a_step_of_the_host(tmp_path: Path) -> None:
    """One step about several arrays waits once."""
    p = program(tmp_path, """
arrays: {a: 1 MiB, b: 1 MiB}
steps:
  - {advise: [a, b], hint: read_mostly, after: 1}
  - {advise: b, hint: read_mostly}
  - {discard: [a, b], after: none}
""")  # fmt: skip
    assert [step.after for step in p.steps if isinstance(step, Advise | Discard)] == [(1,), (), None, (), ()]


def test_streaming_covers_an_array_once_with_any_number_of_threads(tmp_path: Path) -> None:
    everything = once(*range(1000))
    for rest in ("block: 64", "threads: 128, block: 64", "grid: 3, block: 32", "threads: 100, block: 100"):
        k = kernel(tmp_path, "{a: 4000 B}", f"{rest}, accesses: [{{read: a}}]")
        assert elements(k, k.accesses[0], 1000) == everything, rest
    wide = kernel(tmp_path, "{a: 4000 B}", "accesses: [{write: a, bytes: 16 B, start: 2, elements: 200}]")
    assert elements(wide, wide.accesses[0], 250) == once(*range(2, 200)) and wide.accesses[0].write


def test_repeats_touch_again(tmp_path: Path) -> None:
    k = kernel(tmp_path, "{a: 4000 B}", "threads: 256, repeats: 3, accesses: [{read: a}]")
    assert elements(k, k.accesses[0], 1000) == Counter(dict.fromkeys(range(1000), 3))


def test_strides_and_chunks(tmp_path: Path) -> None:
    every = once(*range(0, 4096, 48))
    for stride, rest in (("48", ""), ("192 B", "threads: 32, block: 32, ")):
        k = kernel(tmp_path, "{a: 16 KiB}", f"{rest}accesses: [{{read: a, pattern: strided(stride={stride})}}]")
        assert elements(k, k.accesses[0], 4096) == every
    k = kernel(tmp_path, "{a: 16 KiB}", "block: 64, accesses: [{read: a, pattern: block_strided(chunk=1 KiB)}]")
    assert (k.grid, k.steps) == ((16, 1), (4, 1))
    assert elements(k, k.accesses[0], 4096) == once(*range(4096))
    first = Kernel("k", k.accesses, (1, 1), k.block, (1, 1))
    assert elements(first, k.accesses[0], 4096) == once(*range(64))
    dealt = kernel(tmp_path, "{a: 16 KiB}", "block: 64, threads: 512, accesses: [{read: a, pattern: block_strided}]")
    assert (dealt.grid, dealt.steps) == ((8, 1), (8, 1))


def test_indices(tmp_path: Path) -> None:
    k = kernel(tmp_path, "{a: 16 KiB}", 'accesses: [{read: a, pattern: "shuffled(unit=256 B, seed=3)"}]')
    got = elements(k, k.accesses[0], 4096)
    assert got == once(*range(0, 4096, 64)) and list(got) != sorted(got)
    k = kernel(tmp_path, "{a: 8 MiB}", 'accesses: [{update: a, pattern: "sparse(pages=3, seed=3)"}]')
    assert [a.write for a in k.accesses] == [False, True]
    pages = [e // 1024 for e in elements(k, k.accesses[0], 2 * MIB)]
    assert Counter(p // 512 for p in pages) == Counter(dict.fromkeys(range(4), 3)) and len(set(pages)) == 12
    k = kernel(tmp_path, "{a: 64 KiB}", 'accesses: [{read: a, pattern: "zipf(alpha=1, accesses=50000)"}]')
    counts = sorted(elements(k, k.accesses[0], 16384).values(), reverse=True)
    harmonic = sum(1 / n for n in range(1, 16385))
    assert counts[0] == pytest.approx(50000 / harmonic, rel=0.05) and counts[9] == pytest.approx(5000 / harmonic, rel=0.15)
    np.save(tmp_path / "index.npy", np.array([5, 0, 5, 7], np.int32))
    k = kernel(tmp_path, "{a: 64 KiB}", "accesses: [{read: a, pattern: gather(path=index.npy)}]")
    assert elements(k, k.accesses[0], 16384) == Counter({5: 2, 0: 1, 7: 1})


def test_matrices(tmp_path: Path) -> None:
    shape = "{a: {shape: [16, 64]}}"
    k = kernel(tmp_path, shape, "block: [32, 8], accesses: [{read: a, pattern: stencil}]")
    middle = [elements(k, a, 1024) for a in k.accesses]
    assert k.grid == (2, 2) and middle[2] == once(*range(1024))
    assert sorted(min(m) for m in middle) == [0, 0, 0, 1, 64]  # what lies outside is skipped
    assert sum(middle[0].values()) == 15 * 64
    assert len(kernel(tmp_path, shape, 'block: [8, 8], accesses: [{read: a, pattern: stencil(points=9)}]').accesses) == 9
    k = kernel(tmp_path, shape, "block: [8, 8], accesses: [{read: a, pattern: transposed}]")
    assert k.grid == (2, 8) and elements(k, k.accesses[0], 1024) == once(*range(1024))
    warp = Kernel("k", k.accesses, (1, 1), (8, 1))
    assert elements(warp, k.accesses[0], 1024) == once(*range(0, 512, 64))


def test_the_tiles_of_a_product(tmp_path: Path) -> None:
    """c = a b, 64 x 128 from 64 x 32 and 32 x 128, in tiles of 16 x 16."""
    k = kernel(tmp_path, "{a: {shape: [64, 32]}, b: {shape: [32, 128]}, c: {shape: [64, 128]}}", """block: [16, 2], accesses:
      [{read: a, pattern: "tiles(walk=right, depth=2)"}, {read: b, pattern: "tiles(walk=down, depth=2)"},
       {write: c, pattern: tiles}]""")  # fmt: skip
    assert (k.grid, k.steps) == ((8, 4), (8, 2))
    a, b, c = k.accesses
    assert elements(k, a, 64 * 32) == Counter(dict.fromkeys(range(64 * 32), 8))  # once for each of eight tiles of c in its row
    assert elements(k, b, 32 * 128) == Counter(dict.fromkeys(range(32 * 128), 4))
    assert elements(k, c, 64 * 128) == Counter(dict.fromkeys(range(64 * 128), 2))
    corner = Kernel("k", k.accesses, (1, 1), k.block, k.steps)  # the tile of c at the top left
    assert set(elements(corner, a, 64 * 32)) == {y * 32 + x for y in range(16) for x in range(32)}
    assert set(elements(corner, b, 32 * 128)) == {y * 128 + x for y in range(32) for x in range(16)}
    assert set(elements(corner, c, 64 * 128)) == {y * 128 + x for y in range(16) for x in range(16)}


def test_a_search_visits_every_reachable_node_level_by_level(tmp_path: Path) -> None:
    text = """
arrays: {nodes: 4000 B, edges: 12000 B, seen: 4000 B}
steps:
  - kernel: level
    frontier: {nodes: 1000, degree: 3, seed: 5, start: 7}
    block: 64
    accesses: [{read: nodes, pattern: node}, {read: edges, pattern: edge}, {update: seen, pattern: neighbour}]
"""
    steps: list[Any] = list(program(tmp_path, text).steps)
    edges: dict[int, list[int]] = {}
    for k in steps:
        assert [a.array for a in k.accesses] == ["nodes", "edges", "seen", "seen"] and k.steps == (3, 1)
        level = list(elements(k, k.accesses[0], 1000))
        assert elements(k, k.accesses[1], 3000) == once(*(3 * v + e for v in level for e in range(3)))
        assert set(elements(k, k.accesses[0], 1000).values()) == {3}
        to = k.accesses[2].index.tolist()
        edges |= {v: to[3 * t : 3 * t + 3] for t, v in enumerate(level)}
    depth, level, seen = 0, [7], {7}
    while level:
        assert list(elements(steps[depth], steps[depth].accesses[0], 1000)) == level
        level = sorted({w for v in level for w in edges[v]} - seen)
        seen |= set(level)
        depth += 1
    assert depth == len(steps) and len(seen) > 900


MISTAKES: list[tuple[str, str, int, str, str]] = [
    # arrays, steps, line of the mistake, what is told, the hint
    ("{a: 1 MiB}", "- {host_write: b}", 3, "no array is called 'b'", "known: a"),
    ("{edges: 1 MiB}", "- {advise: edge, hint: read_mostly}", 3, "no array is called 'edge'", "did you mean 'edges'?"),
    ("{a: 1 MiB}", "- {advise: a, hint: read_mosty}", 3, "cannot be 'read_mosty'", "did you mean 'read_mostly'"),
    ("{a: 1 MiB}", "- {kernal: k}", 3, "a step begins with what it does", "did you mean 'kernel'?"),
    ("{a: 1 MiB}", "- {free: a, host_read: a}", 3, "are two steps", "one after the other"),
    ("{a: 1 MiB}", "- repeat: 2\n    steps: [start]", 4, "starts once", ""),
    ("{a: 1 MiB}", "- stat", 3, "a step begins with what it does", "did you mean 'start'?"),
    ("{a: 1 MiB}", "- free: a\n  - host_read: a", 4, "'a' was freed on line 3", ""),
    ("{a: 1 MiB}", "- repeat: 2\n    steps:\n      - free: a", 3, "freed only once", "behind the repeat"),
    ("{a: 1 MiB}", "- {prefetch: a, first: 1 MiB}", 3, "byte 1,048,576 lies outside of 'a', which has 1,048,576", ""),
    ("{a: 1 MiB}", "- {host_read: a, count: 2 MiB}", 3, "bytes 0 to 2,097,152 lie outside of 'a'", ""),
    ("{a: 1 MiB}", "- kernel: k\n    accesses:\n      - {read: a, elements: 262145}", 5,
     "k: segmentation fault at 0x100000, behind the 262,144 elements of 'a'", "need 1,048,580 bytes, and it has 1,048,576"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, start: 262144}]}", 3,
     "k: segmentation fault at 0x100000, behind the 262,144 elements of 'a'", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: straming}]}", 3, "no pattern 'straming'", "'streaming'"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: strided}]}", 3, "needs its stride", "strided(stride=...)"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: random(sed=1)}]}", 3, "no parameter 'sed'", "'seed'"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: strided(stride=3 B)}]}", 3, "no whole number", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: stencil}]}", 3, "needs a matrix", "shape"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: block_strided}]}", 3, "how many chunks?", "a chunk"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: sparse(pages=1, seed=2)}]}", 3, "within its brackets",
     "quotes"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, write: a}]}", 3, "one of read, write and update", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: node}]}", 3, "a kernel with a frontier", ""),
    ("{a: 1 MiB}", "- {kernel: k, threads: 4, grid: 2, accesses: [{read: a}]}", 3, "threads and grid", "leave one"),
    ("{a: 1 MiB}", "- {kernel: k, grid: [8, 70000], accesses: [{read: a}]}", 3, "2,147,483,647 by 65,535 thread blocks", ""),
    ("{a: 1 MiB}", "- {kernel: k, flops: 1e9, time: 1 ms, accesses: [{read: a}]}", 3, "time and flops", "leave one"),
    ("{a: 1 MiB}", "- {kernel: k, flops: 1.5, accesses: [{read: a}]}", 3, "a whole number", ""),
    ("{a: 1 MiB}", "- {kernel: k, frontier: {nodes: 300000}, accesses: [{read: a, pattern: node}]}", 3,
     "'a' has 262,144 elements for 300,000", "a larger array"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: gather(path=none.npy)}]}", 3, "cannot be read", ""),
    ("{a: {shape: [4, 4], bytes: 1 MiB}}", "- host_read: a", 1, "needs its bytes or its shape", "one of both"),
    ("{a: 0 B}", "- host_read: a", 1, "'a' is empty", ""),
    ("{a: 1024}", "- host_read: a", 1, "1024 has no unit", ""),
    ("{a: -1 MiB}", "- host_read: a", 1, "'-1 MiB' is negative", ""),
    ("{a: {bytes: 1 MiB, element: 0 B}}", "- host_read: a", 1, "'a' has elements of 0 bytes", ""),
    ("{a: {bytes: 4 KiB, at: 2 MiB}}", "- host_read: a", 1, "multiple of 4 KiB below 2 MiB, not at 2,097,152 B", ""),
    ("{a: {bytes: 4 KiB, at: 100 B}}", "- host_read: a", 1, "multiple of 4 KiB below 2 MiB, not at 100 B", ""),
    ("{a b: 4 KiB}", "- host_read: a b", 1, "'a b' is no name of an array", "letters"),
    ("{}", "- start", 1, "a program needs arrays", "arrays: {a: 64 MiB}"),
    ("{a: {shape: [4]}}", "- host_read: a", 1, "'arrays.a.shape' must have at least 2 entries", ""),
    ("{a: {shape: [4, 4, 4]}}", "- host_read: a", 1, "'arrays.a.shape' must have at most 2 entries, not 3", ""),
    ("{a: 1 MiB}", "- start", 2, "no step stands behind start", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: []}", 3, "'accesses' must have at least 1 entry, not 0", ""),
    ("{a: 1 MiB}", "- {host_read: a, count: 0 B}", 3, "a range of 0 bytes", ""),
    ("{a: 1 MiB}", "- {free: [a, a]}", 3, "'a' is freed twice", ""),
    ("{a: 1 MiB}", "- {advise: a}", 3, "key 'hint' is missing", ""),
    ("{a: 1 MiB}", "- {kernel: k, block: [64, 32], accesses: [{read: a}]}", 3, "at most 1,024 threads", ""),
    ("{a: 1 MiB}", "- {kernel: k, grid: 2.5, accesses: [{read: a}]}", 3, "grid: 2.5 is neither a whole number nor two", "256"),
    ("{a: 1 MiB}", "- {kernel: k, block: [256], accesses: [{read: a}]}", 3, "block: [256] is neither a whole number", ""),
    ("{a: 1 MiB}", "- {host_read: a, after: [7]}\n  - {kernel: k, stream: 1, accesses: [{read: a}]}", 3,
     "nothing runs in stream 7", "streams of this program: 1"),
    ("{a: 1 MiB}", "- {prefetch: a, gpu: 2}", 3, "no stream is given", "to: 2"),
    ("{a: 1 MiB}", "- wiat", 3, "a step begins with what it does", "did you mean 'wait'?"),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, bytes: 0 B}]}", 3, "an access of 0 bytes", ""),
    ("{a: 4 KiB}", "- {kernel: k, accesses: [{read: a, bytes: 8 KiB}]}", 3,
     "k: an access of 8,192 bytes does not fit 'a', which has 4,096", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: random(seed=x)}]}", 3, "must be a whole number, not 'x'", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: random(seed=-1)}]}", 3, "'random' is -1, which is below 0", ""),
    ("{a: 1 MiB}", "- {kernel: k, accesses: [{read: a, pattern: sparse(pages=600)}]}", 3, "512 pages, not 600", ""),
    ("{a: {shape: [64, 64]}}", "- {kernel: k, accesses: [{read: a, pattern: tiles(depth=0)}]}", 3, "which is below 1", ""),
    ("{a: 1 MiB}", "- {kernel: k, frontier: {degree: 4}, accesses: [{read: a, pattern: node}]}", 3,
     "key 'nodes' is missing in 'frontier'", ""),
    ("{a: 1 MiB}", "- {kernel: k, frontier: {nodes: 10, start: 10}, accesses: [{read: a, pattern: node}]}", 3,
     "begins at node 10, and the last of 10 nodes is 9", ""),
]  # fmt: skip


@pytest.mark.parametrize(("arrays", "steps", "line", "told", "hint"), MISTAKES)
def test_a_mistake_is_told_at_its_line(tmp_path: Path, arrays: str, steps: str, line: int, told: str, hint: str) -> None:
    with pytest.raises(ConfigError) as error:
        program(tmp_path, f"arrays: {arrays}\nsteps:\n  {steps}\n")
    problem, *more = error.value.problems
    assert bool(more) == ("brackets" in told)  # without quotes what is behind the comma is a key of its own
    assert told in problem.message and hint in problem.hint, str(problem)
    assert (problem.line, Path(problem.file).name) == (line, "mine.yaml"), str(problem)


def test_an_index_that_leaves_its_array_is_a_segmentation_fault(tmp_path: Path) -> None:
    np.save(tmp_path / "index.npy", np.array([5, 1024]))
    with pytest.raises(ConfigError, match="k: segmentation fault at 0x1000, index 1,024 of 'a', which has 1,024 elements"):
        kernel(tmp_path, "{a: 4 KiB}", "accesses: [{read: a, pattern: gather(path=index.npy)}]")


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as error:
        steps = "  - host_read: b\n  - repeat: 2\n    steps:\n      - host_write: c\n  - []\n"
        program(tmp_path, f"arrays: {{a: 1 MiB}}\nsteps:\n{steps}")
    assert [p.line for p in error.value.problems] == [3, 6, 7]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_shipped_programs_say_what_they_are_and_touch_their_arrays(path: Path) -> None:
    lines = path.read_text("utf-8").splitlines()
    assert lines[0].startswith("# ") and any(line.startswith("# Source: ") for line in lines[1:4])
    p = load(path)
    assert p.name == path.stem and p.footprint <= 8 << 30
    touched = {a.array for s in p.steps if isinstance(s, Kernel) for a in s.accesses}
    assert touched == {a.name for a in p.arrays}
