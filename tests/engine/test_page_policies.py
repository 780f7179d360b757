"""Policies of users for unified memory: do they decide what they say, about chunks, regions and blocks?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from unified_by_hand import BLOCK, TINY, WHOLE, blocks, one_thread, run, simulate_uvm

import gpusim
from gpusim.base import calls
from gpusim.base.errors import PolicyError
from gpusim.base.yaml.values import PolicySpec
from gpusim.engine.pages import settings, victims
from gpusim.engine.pages.advice import advised
from gpusim.machine.driver_parameters import UvmError
from gpusim.policies import decorators as policy
from gpusim.policies import registry
from gpusim.policies.tenant_memory import TenantSeen, TenantsView
from gpusim.programs.managed.steps import Access, Advise, Array, HostTouch, Kernel, ManagedProgram, Prefetch
from gpusim.results.page_log import CAUSES

pytestmark = pytest.mark.hand_worked


@policy.evict
def highest_array(array, arrived):  # type: ignore[no-untyped-def]
    """The allocation that was made last leaves first, of it what came first."""
    return arrived - 1e12 * array


@policy.evict
def returns(evictions, last_use):  # type: ignore[no-untyped-def]
    """What has left before stays, of others the least recently used leaves."""
    return evictions * 1e12 + last_use


@policy.evict
def rested(now, last_use):  # type: ignore[no-untyped-def]
    """The least recently used, as a score that reads the time."""
    return last_use - now


@policy.prefetch
def as_driver(present, pages, threshold):  # type: ignore[no-untyped-def]
    """The driver's own rule."""
    return present * 100 > pages * threshold


@policy.prefetch
def fixed(pages, most=64):  # type: ignore[no-untyped-def]
    """The naturally aligned `most` pages around a fault."""
    return pages <= most


@policy.prefetch
def two_ahead(pages, distance, stride, sure):  # type: ignore[no-untyped-def]
    """64 KiB of a fault; once blocks have faulted twice at one distance, those up to two ahead."""
    return pages <= 16 if distance == 0 else sure >= 1 and stride == 1 and distance <= 2


@policy.evict
class queue:  # type: ignore[no-untyped-def]
    """What came first leaves first, in plain Python."""

    def __init__(self):
        self.order = {}

    def insert(self, unit, size):
        self.order[unit] = size

    def remove(self, unit, size):
        self.order.pop(unit, None)

    def victim(self, need, locked):
        assert need == BLOCK
        return [unit for unit in self.order if not locked[unit]][:2]


@policy.evict
class stack:  # type: ignore[no-untyped-def]
    """What came last leaves first, as compiled verbs."""

    def state(n_units, capacity, params, seed):
        return np.zeros(1 + n_units, np.int64), np.zeros(1)

    def insert(S, X, unit, size, key):
        S[0] += 1
        S[1 + unit] = S[0]
        return 0

    def touch(S, X, unit, size, key):
        return 0

    def remove(S, X, unit, size, key):
        S[1 + unit] = 0
        return 0

    def victim(S, X, incoming, size, locked):
        best = -1
        for unit in range(len(S) - 1):
            if S[1 + unit] > 0 and not locked[unit] and (best < 0 or S[1 + unit] > S[1 + best]):
                best = unit
        return best


@policy.prefetch
class last_time:  # type: ignore[no-untyped-def]
    """What faulted in a kernel comes when the same kernel begins again; with a fault come 64 KiB at the end of the block."""

    def __init__(self, pages=16):
        self.pages, self.seen = pages, {}

    def launched(self, view, kernel):
        return self.seen.get(kernel, [])

    def faulted(self, view, block, pages):
        assert pages == sorted(pages) and view.array(block) == 0 and view.resident(block) <= 512 and view.free <= view.memory
        self.seen.setdefault(view.kernel, []).append(block)
        return [(block, 512 - self.pages, self.pages)]


@policy.migrate
class second_time:  # type: ignore[no-untyped-def]
    """A block comes the second time that it is asked about."""

    def __init__(self):
        self.asked = {}

    def belongs(self, here, block):
        self.asked[block] = self.asked.get(block, 0) + 1
        return here or self.asked[block] > 1


@policy.migrate
def uncompiled(here, block):  # type: ignore[no-untyped-def]
    """A function with what numba does not know."""
    return here or {"block": block}.get("block", 0) >= 1


@policy.evict(columns=True)
def ranks(last_use):  # type: ignore[no-untyped-def]
    """By rank, for all candidates at once."""
    return np.argsort(last_use)


PAGE = Path(__file__).parents[2] / "docs" / "gpu_ext.md"
OWN = registry.of(
    ranks, highest_array, returns, rested, as_driver, fixed, two_ahead, queue, stack, last_time, second_time, uncompiled
)


def test_a_score_of_the_allocation_keeps_the_first() -> None:
    # Four chunks: blocks 0 and 1 of a, 2 and 3 of b; the fifth is room for two more of b, then a's are still there.
    arrays = [Array("a", 2 * BLOCK), Array("b", 4 * BLOCK)]
    kernel = [one_thread(0), one_thread(512)]
    other = [Kernel("b", [Access("b", index=np.array([k * 512 * 1024]))], (1, 1), (1, 1), ns=0.0) for k in range(4)]
    steps = [HostTouch("a"), HostTouch("b"), *kernel, *other, *kernel]
    for evict, again in (("highest_array", 0), ("driver", 2)):
        result = run(steps, arrays, parameters=WHOLE, evict=evict, own=OWN)
        assert sum(int(s.counts[1]["faults"]) for s in result.steps[-2:]) == again


def silent(last_use):  # type: ignore[no-untyped-def]
    """Has an answer, and does not give it."""
    last_use * 2.0


def wordy(last_use):  # type: ignore[no-untyped-def]
    """A word is no number."""
    return "old" if last_use else "new"


def listed(last_use):  # type: ignore[no-untyped-def]
    """Nor is a list."""
    return [last_use]


@pytest.mark.parametrize(("function", "answer"), [(silent, "None"), (wordy, "'old'"), (listed, "[1.0]")])
def test_an_eviction_policy_that_answers_no_number_is_told(function: Any, answer: str) -> None:
    own = registry.of(policy.evict(function))
    with pytest.raises(PolicyError, match=re.escape(f"answers {answer}, not a number")):
        victims.find(function.__name__, own)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 0, 4, 0], [0, 1, 2, 3, 0, 4, 1], [0, 1, 2, 3, 4] * 3])
def test_a_score_that_reads_the_time_is_lru(order: list[int]) -> None:
    def misses(evict: str) -> int:
        return int(run([HostTouch("a"), blocks(*order)], parameters=WHOLE, evict=evict, own=OWN).counts[1]["evictions"])

    assert misses("rested") == misses("lru")


def test_a_block_that_came_back_stays() -> None:
    # 4 sends 0 away, 0 comes back; 5, 6 and 7 take the room of others, then 1 comes back: 5 leaves, where LRU sends 0 away.
    order = [0, 1, 2, 3, 4, 0, 5, 6, 7, 1, 0]
    for evict, faults in (("returns", 10), ("lru", 11)):
        step = run([HostTouch("a"), blocks(*order)], parameters=WHOLE, evict=evict, own=OWN).steps[-1]
        assert int(step.counts[1]["faults"]) == faults


@pytest.mark.parametrize("seed", range(8))
def test_the_drivers_rule_as_a_users_policy_is_the_driver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    arrays = [Array("a", 5 * BLOCK), Array("b", 3 * BLOCK - 70_000, at=70_000)]
    touched = [rng.integers(0, array.bytes // 4096, 96) * 1024 for array in arrays]
    kernels = [Kernel(x.name, [Access(x.name, tx=1, bx=32, index=i)], (3, 1), (32, 1), ns=1e5)
               for x, i in zip(arrays, touched, strict=True)]  # fmt: skip
    ran = [run([HostTouch("a"), HostTouch("b"), *kernels], arrays, prefetcher=p, own=OWN, log=50_000)
           for p in ("tree", "as_driver")]  # fmt: skip
    assert ran[0].ns == ran[1].ns and ran[0].log.tobytes() == ran[1].log.tobytes()


def test_a_region_policy_has_its_parameters() -> None:
    for text, pages in (("fixed", 64), ("fixed(most=16)", 16), ("fixed(most=512)", 512)):
        counts = run([HostTouch("a"), one_thread(5)], prefetcher=text, own=OWN).steps[-1].counts[1]
        assert int(counts["came"].sum()) == pages


def test_a_block_is_read_where_it_is_until_it_is_hot() -> None:
    # 256 remote reads tell the driver; the policy has the block come at the first notice, or never.
    reads = [Kernel(f"r{k}", [Access("a", index=np.full(32, 32 * k))], (8, 1), (32, 1), ns=1e6) for k in range(64)]
    for promote, came in ((256, True), (1e9, False)):
        counts = run([HostTouch("a", count=BLOCK), *reads], [Array("a", BLOCK)], migrate=f"hot(promote={promote})").counts[1]
        assert int(counts["remote_bytes"]) > 0 and (int(counts["came"].sum()) > 0) is came


def test_a_block_that_rests_leaves_while_the_link_is_idle() -> None:
    wait = Kernel("other", [Access("b", index=np.array([0]))], (1, 1), (1, 1), ns=5e8)
    arrays = [Array("a", BLOCK), Array("b", BLOCK)]
    counts = run([HostTouch("a"), Prefetch("a"), wait, wait, wait], arrays, migrate="hot(promote=0, demote=1e9)").counts[1]
    assert int(counts["evictions"]) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"evict": "staged"}, "evict policy 'staged' reads 'stage', which chunks do not have"),
        ({"evict": "none"}, "evict policy 'none' has no meaning for chunks"),
        ({"evict": "lru(k=2)"}, "policy 'lru' has no parameter 'k'"),
        ({"evict": "lrv"}, "unified memory has no evict policy 'lrv'"),
        ({"prefetch": "next_k"}, "prefetch policy 'next_k' brings tensors before kernels"),
        ({"evict": "ranks"}, "evict policy 'ranks' reads whole columns of candidates"),
        ({"migrate": "hott"}, "there is no migrate policy 'hott'"),
        ({"evict": "fixed"}, "unified memory has no evict policy 'fixed'.*it is of kind 'prefetch': prefetch=fixed"),
        ({"prefetch": "returns"}, "unified memory has no prefetch policy 'returns'.*it is of kind 'evict': evict=returns"),
    ],
)
def test_what_has_no_meaning_is_told(words: dict[str, str], said: str) -> None:
    with pytest.raises((PolicyError, UvmError), match=said.replace("(", r"\(")):
        settings.settings(PolicySpec("driver", tuple(words.items())), OWN)


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 0, 4, 0], [0, 1, 2, 3, 4, 5, 0, 1], [0, 1, 2, 3, 4] * 3])
def test_a_class_in_python_hears_of_chunks(order: list[int]) -> None:
    ran = [run([HostTouch("a"), blocks(*order)], parameters=WHOLE, evict=e, own=OWN) for e in ("queue", "fifo")]
    assert int(ran[0].counts[1]["evictions"]) == int(ran[1].counts[1]["evictions"]) > 0
    assert ran[0].ns == ran[1].ns


def test_a_class_of_compiled_verbs_decides_about_chunks() -> None:
    # Of a loop over five blocks in memory for four, what came last but one leaves: 4 sends 3 away, 3 sends 4 away, ...
    step = run([HostTouch("a"), blocks(*[0, 1, 2, 3, 4] * 3)], parameters=WHOLE, evict="stack", own=OWN).steps[-1]
    assert int(step.counts[1]["faults"]) == 5 + 2 + 2


def test_a_prefetcher_remembers_kernels() -> None:
    """Blocks 0 and 5 fault in the first run, with the last 64 KiB of each; they leave for others, and come back whole, alone,
    while the second run of the kernel, which is long, touches block 6."""
    first, others = replace(blocks(0, 5), name="k"), blocks(1, 2, 3, 4, name="others")
    work = replace(one_thread(6 * 512, *[6 * 512] * 7, name="k"), ns=9 * BLOCK)
    result = run([HostTouch("a"), first, others, work, blocks(0, 5, name="then")], prefetcher="last_time", own=OWN)
    came = [[int(n) for n in step.counts[1]["came"]] for step in result.steps[1:]]
    assert came[0][CAUSES.index("prefetch")] == 2 * 16 and came[0][CAUSES.index("demand")] == 2
    assert came[2][CAUSES.index("prefetch")] == 2 * 512 + 16 and int(result.steps[-1].counts[1]["faults"]) == 0


def test_what_a_gpu_wants_comes_to_that_gpu() -> None:
    """Two GPUs with kernels of two names, of which each has faulted on a block of its own; both begin again, and work."""
    firsts = [blocks(b, name=f"k{g}", gpu=g) for g, b in ((1, 0), (2, 5))]
    again = [replace(one_thread(*[512 * b] * 8, name=f"k{g}", gpu=g), ns=9.0 * BLOCK) for g, b in ((1, 1), (2, 6))]
    arrays = [Array("a", 8 * BLOCK)]
    steps = [HostTouch("a"), *firsts, HostTouch("a"), *again]
    side_by_side = {"prefetcher": "last_time", "own": OWN, "gpus": 2}
    result = simulate_uvm(arrays, steps, TINY, {"uvm_perf_thrashing_enable": 0}, **side_by_side)  # type: ignore[arg-type]
    came = [[int(n) for n in result.steps[-2 + k].counts["came"][k + 1]] for k in (0, 1)]
    assert came == [[1, 512 + 16, 0, 0, 0], [1, 512 + 16, 0, 0, 0]]


def test_a_migration_policy_in_python_remembers_blocks() -> None:
    for name, came in (("second_time", 1), ("uncompiled", 0), ("hot(promote=1e9)", 0)):
        counts = run([HostTouch("a"), *[one_thread(5 + k) for k in range(3)]], migrate=name, own=OWN).counts[1]
        assert (int(counts["came"].sum()) > 0) is bool(came), name
    assert int(run([HostTouch("a"), blocks(3)], migrate="uncompiled", own=OWN).counts[1]["came"].sum()) > 0


@pytest.mark.parametrize(
    ("target", "words", "said"),
    [
        (lambda self, view, block, pages: [99], "prefetcher", "names block 99, and the program has 8"),
        (lambda self, view, block, pages: [(0, 500, 20)], "prefetcher", "wants pages 500 to 520 of block 0, which has 512"),
        (lambda self, view, block, pages: [0.5], "prefetcher", "answers 0.5, not blocks"),
        (lambda self, view, block, pages: {}[block], "prefetcher", "raised KeyError: 3"),
        (lambda self, here: None, "migrate", "answers None, not a number"),
        (lambda self, need, locked: 7, "evict", "chose 7, which is not resident"),
    ],
)
def test_what_a_policy_in_python_does_wrong_is_told(target: Any, words: str, said: str) -> None:
    verb = {"prefetcher": "faulted", "migrate": "belongs", "evict": "victim"}[words]
    kind = words.removesuffix("er")
    wrong = getattr(policy, kind)(type("wrong", (), {verb: target}))
    with pytest.raises(PolicyError, match=re.escape(said)):
        run([HostTouch("a"), blocks(3, 2, 1, 0, 4)], own=registry.of(wrong), **{words: "wrong"})


@pytest.mark.slow
def test_a_users_file_is_named_in_one_word(tmp_path: Any) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from gpusim import policy\n\n@policy.evict\ndef mine(arrived, weight=1.0):\n    return weight * arrived\n")
    ran = [gpusim.simulate("vector_add", on="l4", memory="60 %", unified=f"driver(evict={evict})", use=file, bounds=False)
           for evict in ("fifo", "mine(weight=2)")]  # fmt: skip
    assert ran[0].metrics == ran[1].metrics


@pytest.mark.slow
def test_a_policy_of_chunks_is_refused_for_tensors() -> None:
    with pytest.raises(PolicyError, match="evict policy 'returns' reads 'evictions', which tensors do not have"):
        gpusim.simulate("resnet50-train", on="l4", memory="60 %", evict=returns)



def test_a_tree_for_each_allocation_brings_less_where_most_is_wasted() -> None:
    """Six pages of each block are touched, each beyond what the one before has brought, in memory for a tenth of the blocks."""
    pages = [512 * b + 16 * k for b in range(40) for k in (0, 1, 2, 4, 8, 16)]
    kernels = [one_thread(*pages, name=f"pass {k}") for k in range(3)]
    came = {}
    for prefetcher in ("tree", "forest", "forest(sparse=1.1)", "forest(dense=1)"):
        result = run([HostTouch("a"), *kernels], [Array("a", 40 * BLOCK)], prefetcher=prefetcher)
        came[prefetcher] = int(result.steps[-1].counts[1]["came"].sum())
    # In the driver's tree the sixth fault brings the block; once that is known to be wasted, only 64 KiB come with each fault.
    assert came["tree"] == came["forest(sparse=1.1)"] == 40 * 512
    assert came["forest"] == 40 * 6 * 16 and came["forest(dense=1)"] == 40 * 512


def test_a_static_plan_brings_what_is_accessed_most() -> None:
    """Room for three of five blocks: b (two blocks) is read four times, a and c once: b comes whole, they stay on the host."""
    arrays = [Array("a", 2 * BLOCK), Array("b", 2 * BLOCK), Array("c", BLOCK)]
    sweep = {name: Kernel(name, [Access(name, tx=1, bx=256)], (array.bytes // 1024, 1), (256, 1), ns=0.0)
             for name, array in zip("abc", arrays, strict=True)}  # fmt: skip
    program = ManagedProgram("p", arrays, [*map(HostTouch, "abc"), sweep["a"], sweep["c"], *[sweep["b"]] * 4])
    told = advised(program, "static", 3 * BLOCK)
    assert [(s.array, s.advice) for s in told.steps if isinstance(s, Advise)] == [
        ("a", "preferred_location"), ("a", "accessed_by"), ("c", "preferred_location"), ("c", "accessed_by"),
    ]  # fmt: skip
    assert [s.array for s in told.steps if isinstance(s, Prefetch)] == ["b"]
    result = run(list(told.steps), arrays)
    assert int(result.counts[1]["faults"]) == 0 and int(result.counts[1]["came"].sum()) == 2 * 512


def test_memory_of_the_program_that_runs_last_leaves_first() -> None:
    """Three programs of half of the memory: 0 has run, 1 waits with its memory there, 2 is next but one; 1's turn comes.

    nvshare sends away what has waited longest, which is 2; 2 is the next to run, and 0, which has just run, the last.
    """
    there, waited = (4, 0, 4), (0, 20, 10)
    seen = [TenantSeen(i, 4, there[i], 4 - there[i], True, waited[i], limit=4) for i in range(3)]
    view = TenantsView(now=0, capacity=8, running=0, over=True, tenants=tuple(seen))
    ours, theirs = (registry.get("tenants", name).turn(view) for name in ("msched", "nvshare"))
    assert (ours.tenant, ours.leave) == (1, {0: 4}) and (theirs.tenant, theirs.leave) == (1, {2: 4})


def of_document(file: Path, which: int) -> registry.Registry:
    """The policies of a file that the document shows, by its place there."""
    file.write_text(re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)[which])
    return registry.of(file)


@pytest.mark.documents
def test_the_learners_of_the_document_learn(tmp_path: Any) -> None:
    """A loop over eight blocks in memory for four: from the second time on blocks come while the kernel works on others."""
    mine = of_document(tmp_path / "my_learners.py", 1)
    loop = replace(blocks(*range(8)), ns=8 * 4.0 * BLOCK)  # each touch works for as long as four blocks move
    names = ("tree", "what_followed(ahead=2)")
    tree, learned = (run([HostTouch("a"), loop, loop, loop], prefetcher=name, own=mine) for name in names)
    assert [int(step.counts[1]["faults"]) for step in tree.steps[1:]] == [8, 8, 8]
    first, *later = (int(step.counts[1]["faults"]) for step in learned.steps[1:])
    assert first == 8 and all(n <= 4 for n in later)
    run([HostTouch("a"), loop], migrate="sooner_each_time(promote=256)", own=mine)


@pytest.mark.documents
def test_the_policies_of_the_document_run(tmp_path: Any) -> None:
    mine = of_document(tmp_path / "my_pages.py", 0)
    words = re.search(r"^unified: \[(.*)\]$", PAGE.read_text("utf-8"), re.M)
    assert words is not None
    named = [calls.parse(word.strip('" ')) for word in calls.listed(words[1])]
    assert len(named) == 4
    for _, given in named:
        asked = settings.settings(PolicySpec("driver", tuple(given.items())), mine)
        steps = [HostTouch("a"), blocks(*range(8)), blocks(*range(8))]
        result = run(steps, evict=asked.evict, prefetcher=asked.prefetch, migrate=asked.migrate, own=mine)
        assert int(result.counts[1]["faults"]) > 0


def test_a_policy_brings_blocks_ahead_of_those_that_fault() -> None:
    """Blocks 0, 1 and 2 fault in turn, at one distance twice: behind the third blocks 3 and 4 come, while the link is idle.

    Then 5 faults, whose distance of 3 is new.
    """
    kernel = replace(blocks(0, 1, 2, 3, 4, 5, 6), ns=7 * 3.0 * BLOCK)  # each touch works for as long as three blocks move
    result = run([HostTouch("a"), kernel], own=OWN, prefetcher="two_ahead", platform=replace(TINY, memory=64 * BLOCK))
    assert int(result.counts[1]["faults"]) == 5, "3 and 4 do not fault"
    brought = [int(n) for n in result.counts[1]["came"]]
    assert brought[CAUSES.index("prefetch")] == 5 * 15 + 2 * 512 and brought[CAUSES.index("demand")] == 5
