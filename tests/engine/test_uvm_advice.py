"""Does the search find the hint that is known to be best?  Small programs made so that one is."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, TINY, one_thread

from gpusim.base.yaml.find import find
from gpusim.engine.pages import account, advisor
from gpusim.engine.pages.advice import advised
from gpusim.engine.pages.simulate import simulate_uvm
from gpusim.engine.pages.tensors import AllocatorPass
from gpusim.machine.driver_parameters import UvmError
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel, ManagedProgram
from gpusim.show.faults import advice as in_words
from gpusim.trace.files import load_trace
from gpusim.trace.roles import ROLES
from gpusim.trace.workload import build


def sweep(array: str, blocks: int, times: int, write: bool = False) -> Kernel:
    """A warp of threads after the other touches all bytes, `times` over."""
    threads = blocks * BLOCK // 4
    return Kernel("sweep", [Access(array, write, tx=1, bx=256, outer=0)], (threads // 256, 1), (256, 1), (1, times), ns=0.0)


def found(program: ManagedProgram, names: Sequence[str] = (), platform: Any = TINY, **more: Any) -> advisor.Advised:
    def makespan(said: str) -> float:
        told = advised(program, said)
        result = simulate_uvm(told.arrays, told.steps, platform)
        return math.inf if result.failed else result.ns

    plain = simulate_uvm(program.arrays, program.steps, platform)
    names = names or advisor.candidates(account.of(plain))
    return advisor.search(names, lambda said: [makespan(s) for s in said], plain.ns, **more)


def test_what_both_sides_write_a_little_of_in_turns_stays_with_the_cpu_and_is_mapped() -> None:
    turn = [HostTouch("ball", count=4096), one_thread(0, array="ball", write=True)]
    program = ManagedProgram("ping-pong", [Array("ball", BLOCK), Array("still", BLOCK)], turn * 8)
    best = found(program)
    assert [s.said for s in best.steps] == ["ball:zero_copy"]
    assert best.steps[0].about == "preferred location CPU, accessed by the GPU"
    assert best.steps[0].after_ns < best.base_ns / 4


@pytest.mark.slow
def test_what_both_sides_only_read_is_read_mostly() -> None:
    turn = [HostTouch("table", write=False), sweep("table", 2, 8)]
    program = ManagedProgram("shared", [Array("table", 2 * BLOCK)], [HostTouch("table"), *turn * 6])
    assert [s.said for s in found(program).steps] == ["table:read_mostly"]


@pytest.mark.slow
def test_a_cyclic_sweep_over_more_than_fits_is_read_from_afar() -> None:
    program = ManagedProgram("sweep", [Array("a", 6 * BLOCK)], [HostTouch("a"), *[sweep("a", 6, 1)] * 4])
    assert [s.said for s in found(program).steps] == ["a:zero_copy"]


@pytest.mark.slow
def test_what_is_used_often_while_it_is_there_is_not_read_from_a_slow_afar() -> None:
    slow = replace(TINY, link=replace(TINY.link, remote_rate=1e7))
    program = ManagedProgram("reuse", [Array("a", 6 * BLOCK)], [HostTouch("a"), *[sweep("a", 6, 1)] * 2])
    assert "zero_copy" not in found(program, platform=slow).said


@pytest.mark.slow
def test_two_allocations_need_a_hint_each_and_get_them_one_after_the_other() -> None:
    turn = [
        HostTouch("ball", count=4096), one_thread(0, array="ball", write=True),
        HostTouch("table", write=False), sweep("table", 1, 8),
    ]  # fmt: skip
    program = ManagedProgram("both", [Array("ball", BLOCK), Array("table", BLOCK)], turn * 8)
    best = found(program)
    assert {s.said for s in best.steps} == {"ball:zero_copy", "table:read_mostly"}
    first, second = best.steps
    assert first.before_ns == best.base_ns and second.before_ns == first.after_ns > second.after_ns
    assert {f.said for f in best.alone} == {"ball:zero_copy", "table:read_mostly"}


def test_a_star_means_all_allocations_that_begin_so() -> None:
    program = ManagedProgram("roles", [Array("weights_0", BLOCK), Array("weights_1", BLOCK), Array("x", BLOCK)], [])
    assert [s.array for s in advised(program, "weights_*:read_mostly").steps] == ["weights_0", "weights_1"]
    with pytest.raises(UvmError, match=r"no allocation of roles is called 'grad_\*'"):
        advised(program, "grad_*:read_mostly")


def test_segments_of_a_training_step_are_named_and_ordered_by_what_they_hold() -> None:
    trace = load_trace(find("trace", "resnet50-sgd"))
    heap = AllocatorPass(build(trace, np.ones(trace.ops, np.int64)), "pytorch")
    held = [array.name.rpartition("_")[0] for array in heap.arrays]
    assert held == sorted(held, key=ROLES.index) and {"parameter", "activation"} <= set(held)
    sizes = {array.name: array.bytes for array in heap.arrays}
    assert all(offset + size <= sizes[name] for tensor in heap.pieces for name, offset, size in tensor)


def made_up(takes: dict[str, float]) -> advisor.Simulate:
    return lambda said: [takes.get(s, 100.0) for s in said]


def test_a_search_ends_where_nothing_helps_and_keeps_to_its_programs() -> None:
    assert advisor.search(["a"], made_up({"a:prefetch": 99.5}), 100.0).steps == []  # half a percent is no help
    little = advisor.search(["a", "b"], made_up({"a:prefetch": 50.0}), 100.0, most=7)
    assert (little.tried, [s.said for s in little.steps]) == (7, ["a:prefetch"])
    assert advisor.search([], made_up({}), 100.0).tried == 0


def test_beside_the_best_hint_that_comes_first_which_helped_alone() -> None:
    asked: list[str] = []

    def simulate(said: Sequence[str]) -> list[float]:
        asked.extend(said)
        return made_up({"a:read_mostly": 60.0, "b:discard": 90.0, "a:read_mostly b:discard": 50.0})(said)

    best = advisor.search(["a", "b"], simulate, 100.0)
    assert best.said == "a:read_mostly b:discard"
    assert asked[len(advisor.WORDS) * 2] == "a:read_mostly b:discard"
    assert asked[-1].startswith("a:read_mostly b:")
    beside = advisor.search(["b"], simulate, 100.0, most=1, beside="a:read_mostly")
    assert beside.tried == 1 and asked[-1] == f"a:read_mostly b:{advisor.WORDS[0]}"


def test_findings_read_like_advice_and_survive_a_file() -> None:
    best = advisor.Advised(
        12.3e9, [advisor.Finding("edges", "preferred_gpu", 12.3e9, 3.1e9), advisor.Finding("nodes", "prefetch", 3.1e9, 2e9)],
        [advisor.Finding("edges", "preferred_gpu", 12.3e9, 3.1e9), advisor.Finding("nodes", "prefetch", 12.3e9, 12.5e9),
         advisor.Finding("seen", "discard", 12.3e9, math.inf)], 18,
    )  # fmt: skip
    assert in_words(best, 1e9) == (
        "What would help (18 programs were simulated)\n"
        "  preferred location GPU for `edges`: 12.3× → 3.10×, 9.2 s saved\n"
        "  and cudaMemPrefetchAsync of what a kernel touches, before it for `nodes`: 3.10× → 2.00×, 1.1 s saved\n"
        "Alone, on one allocation, at best\n"
        "  cudaMemPrefetchAsync of what a kernel touches, before it for `nodes`: 12.3× → 12.5×, 200 ms lost\n"
        "  `seen`: every hint fails\n"
        "As a run: unified: driver(advice=edges:preferred_gpu nodes:prefetch)"
    )
    assert "12.3 s → 3.1 s, 9.2 s saved" in in_words(best)
    assert advisor.from_plain(json.loads(json.dumps(best.plain()))) == best
    assert in_words(advisor.Advised(1.0, [], [], 6)) == "No hint helps: 6 programs were simulated."


@pytest.mark.parametrize("name", ["a", "b"])
def test_only_what_costs_something_is_tried(name: str) -> None:
    program = ManagedProgram("one", [Array("a", BLOCK), Array("b", BLOCK)], [one_thread(0, array=name)])
    result = simulate_uvm(program.arrays, program.steps, TINY)
    assert advisor.candidates(account.of(result)) == [name]
