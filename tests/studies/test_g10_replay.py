"""Does the paged replay do what the rules of the G10 study say, by hand on small programs, and to the cycle on its own?"""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plain_python import interpreted

from gpusim.base.errors import GpusimError
from gpusim.studies.g10.conditions import Conditions
from gpusim.studies.g10.extent_tables import DEVICE, HOST, NOWHERE, SSD
from gpusim.studies.g10.kernel_program import KernelProgram
from gpusim.studies.g10.paged_replay import PagedReplay, ReplayPolicy, replay
from gpusim.studies.g10.study import Case, G10Study, load, read_plan

pytestmark = pytest.mark.hand_worked

TRACES = Path(__file__).parents[2] / "traces" / "g10"
PAGE = 4096
# A tick of 2,000 cycles moves 2 pages each way, 1 of them over the SSD, and makes 4; a page takes 1,000 cycles over PCIe.
SMALL = Conditions(hertz=10**9, burst=2, pcie=4.096, ssd=2.048, alloc_us=500 / PAGE / 1000, device_gib=4 * PAGE / 2**30,
                   host_gib=8 * PAGE / 2**30)  # fmt: skip


def program(
    *kernels: tuple[list[int], list[int]], pages: list[int], weights: tuple[int, ...] = (), ns: int = 100
) -> KernelProgram:
    """Kernels as (inputs, outputs) of tensors with so many pages."""
    uses: list[list[int]] = [[k for k, both in enumerate(kernels) if t in both[0] + both[1]] for t in range(len(pages))]
    reads = [[k for k, both in enumerate(kernels) if t in both[0]] for t in range(len(pages))]
    n = len(kernels)
    lasting = np.isin(np.arange(len(pages)), weights)
    begin = np.array([0 if lasting[t] else at[0] for t, at in enumerate(uses)])
    end = np.array([n if lasting[t] else (at[-1] + 1 if at else int(begin[t]) + 1) for t, at in enumerate(reads)])
    ms = np.full(n, ns / 1e6)
    inputs = tuple(np.array(i, np.int64) for i, _ in kernels)
    outputs = tuple(np.array([t for t in o if t not in i], np.int64) for i, o in kernels)
    walk = tuple(np.concatenate(both) for both in zip(inputs, outputs, strict=True))
    unread = np.array([not r for r in reads]) & ~lasting
    sizes = np.array(pages) * PAGE
    return KernelProgram("small", sizes, lasting, begin, end, unread, ms, ms, ms, ("op",) * n, inputs, outputs, walk)


def links(done: PagedReplay, iteration: int = 0) -> dict[str, int]:
    row = done.iterations[iteration]
    return {name: int(row[name]) for name in ("host_in", "host_out", "ssd_in", "ssd_out", "created")}


def test_what_a_tick_moves() -> None:
    assert (SMALL.tick, SMALL.ssd_pages, SMALL.allocs, SMALL.device_pages, SMALL.host_pages) == (2000, 1, 4, 4, 8)
    study = Conditions()
    assert (study.tick, study.ssd_pages, study.allocs) == (15_599, 10, 3_899)
    assert (study.device_pages, study.host_pages) == (10_485_760, 33_554_432)


@pytest.mark.slow
def test_a_weight_comes_from_the_ssd_one_page_a_tick() -> None:
    """Three pages, in the ticks at 0, 2,000 and 4,000; what the faults are said to cost is later."""
    done = replay(program(([0], []), pages=[3], weights=(0,)), SMALL, ReplayPolicy(), iterations=1)
    # The SSD's share of the time: 3 pages at 2.048 GB/s are 6,000 cycles, and the kernel's 100.
    assert done.cycles.tolist() == [6100] and links(done)["ssd_in"] == 3
    row = done.launches[0, 0]
    assert (row["start"], row["end"], row["from_ssd"], row["device_used"]) == (0, 6100, 3, 3)


def test_new_pages_are_made_at_once_but_cost_bytes_over_pcie() -> None:
    """All four are made in the tick at 0, but cost 4 x 1,000 cycles; nothing has crossed a link."""
    done = replay(program(([], [0]), ([0], []), pages=[4]), SMALL, ReplayPolicy(), iterations=1)
    assert done.launches["end"].tolist() == [[4100, 4200]]
    assert links(done) == {"host_in": 0, "host_out": 0, "ssd_in": 0, "ssd_out": 0, "created": 4}


def test_the_oldest_arrival_leaves_for_the_host_and_to_use_a_page_does_not_make_it_younger() -> None:
    """a, b, c of one page each and d of two; a is used again before d comes, and leaves for it all the same."""
    p = program(([], [0]), ([], [1]), ([], [2]), ([0], []), ([1, 2], [3]), ([0, 1, 2], []), pages=[1, 1, 1, 2])
    done = replay(p, SMALL, ReplayPolicy(), iterations=1)
    assert done.launches[0]["new"].tolist() == [1, 1, 1, 0, 2, 0]
    assert done.launches[0]["from_host"].tolist() == [0, 0, 0, 0, 0, 1]  # a
    # a for d.  Then a comes back for b, which the same kernel needs: it turns round and comes for c, and c for one page of d.
    assert (links(done)["host_out"], links(done)["host_in"]) == (4, 3)


def test_a_full_host_passes_on_to_the_ssd() -> None:
    """Four pages are made anew twice: of the four old ones two fit the host, the others go on, one a tick."""
    p = program(([], [0]), ([], [1]), ([0, 1], []), pages=[4, 4])
    tight = replace(SMALL, host_gib=2 * PAGE / 2**30, device_gib=8 * PAGE / 2**30)
    assert list(links(replay(p, tight, ReplayPolicy(), iterations=1)).values()) == [0, 0, 0, 0, 8]
    p = program(([], [0]), ([], [1]), ([1], []), ([0], []), pages=[4, 4])
    done = replay(p, replace(tight, device_gib=4 * PAGE / 2**30), ReplayPolicy(), iterations=1)
    # Kernel 1, from 4,100 on: two leave for the host in the tick at 6,000, one each for the SSD at 8,000 and 10,000.
    assert done.launches[0, 1]["start"] == 4100 and done.launches[0, 1]["end"] == 10_000
    assert links(done)["ssd_out"] >= 2 and done.launches[0, 3]["from_ssd"] == 2 and done.launches[0, 3]["from_host"] == 2


def test_what_is_dead_is_dropped_by_deepum_and_written_out_by_the_order_of_arrival() -> None:
    p = program(([], [0]), ([0], []), ([], [1]), ([1], []), pages=[4, 4])
    assert links(replay(p, SMALL, ReplayPolicy(), iterations=1))["host_out"] == 4
    assert links(replay(p, SMALL, ReplayPolicy(degree=1, drops=True), iterations=1))["host_out"] == 0


def test_deepum_asks_for_what_the_kernel_so_far_ahead_needs() -> None:
    """The weight of kernel 3 is on its way from kernel 1 on; alone it comes when kernel 3 asks."""
    p = program(([], [0]), ([0], []), ([0], []), ([1], []), pages=[1, 1], weights=(1,), ns=3000)
    assert replay(p, SMALL, ReplayPolicy(), iterations=1).launches[0, 3]["from_ssd"] == 1
    done = replay(p, SMALL, ReplayPolicy(degree=2, drops=True), iterations=1)
    assert done.launches[0, 3]["from_ssd"] == 0 and done.launches[0, 3]["end"] - done.launches[0, 3]["start"] == 3000


def test_hints_are_followed_in_their_order() -> None:
    """a leaves as planned while kernel 1 runs and is back for kernel 3; b is made ahead, and freed."""
    p = program(([], [0]), ([2], []), ([2], []), ([0], []), ([], [1]), pages=[2, 1, 1], weights=(2,), ns=10_000)
    hints = [(1, 0, HOST), (2, 0, DEVICE), (3, 1, DEVICE), (5, 1, NOWHERE)]
    done = replay(p, SMALL, ReplayPolicy(), hints)
    assert links(done) == {"host_in": 2, "host_out": 2, "ssd_in": 1, "ssd_out": 0, "created": 3}
    assert done.launches[0]["from_host"].sum() == 0 and done.launches[0]["new"].tolist() == [2, 0, 0, 0, 0]
    assert links(done, 1)["created"] == 1  # freed when the second iteration began, made again; a never was
    to_ssd = replay(p, SMALL, ReplayPolicy(), [(1, 0, SSD)])
    assert links(to_ssd)["ssd_out"] == 2 and to_ssd.launches[0, 3]["from_ssd"] == 2


def test_a_kernel_larger_than_the_device_is_refused() -> None:
    with pytest.raises(GpusimError, match=r"'small': a kernel works on 5 pages.*the device has 4"):
        replay(program(([], [0]), pages=[5]), SMALL, ReplayPolicy())


POLICIES = {"fifo": ReplayPolicy(), "deepum": ReplayPolicy(degree=2, drops=True), "g10": ReplayPolicy()}


def drawn(seed: int) -> tuple[KernelProgram, Conditions, list[tuple[int, int, int]]]:
    """A random program whose memories are too small, and random hints."""
    rng = np.random.default_rng(seed)
    pages = rng.integers(1, 40, 12).tolist()
    kernels: list[tuple[list[int], list[int]]] = []
    for _ in range(30):
        used = rng.choice(12, rng.integers(1, 4), replace=False).tolist()
        cut = int(rng.integers(0, len(used) + 1))
        kernels.append((used[:cut], used[cut:]))
    kernels.append((list(range(0, 12, 4)), [t for t in range(12) if not any(t in i + o for i, o in kernels)][:2]))
    p = program(*kernels, pages=pages, weights=(0, 1), ns=int(rng.integers(100, 100_000)))
    widest = max(int(p.size[w].sum()) // PAGE for w in p.walk)
    c = replace(SMALL, burst=8, pcie=16.384, ssd=4.096, device_gib=(widest + int(rng.integers(0, 30))) * PAGE / 2**30,
                host_gib=int(rng.integers(0, 120)) * PAGE / 2**30)  # fmt: skip
    hints = [(int(rng.integers(0, 31)), int(rng.integers(0, 12)), int(rng.choice([SSD, HOST, DEVICE]))) for _ in range(40)]
    return p, c, hints


def figures(done: PagedReplay) -> list[Any]:
    return [done.iterations.tolist(), done.launches.tolist()]


@pytest.mark.agreement
@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_steady_ticks_at_once_change_nothing(policy: str) -> None:
    for seed in range(40):
        p, c, hints = drawn(seed)
        given = hints if policy == "g10" else []
        one_by_one = replay(p, c, POLICIES[policy], given, steady=False)
        assert figures(replay(p, c, POLICIES[policy], given)) == figures(one_by_one), seed
        assert one_by_one.iterations["host_in"].sum() <= one_by_one.iterations["host_out"].sum()


@pytest.mark.agreement
@pytest.mark.slow
def test_plain_python_gives_the_same() -> None:
    assert interpreted("test_g10_replay", "t.all_drawn()") == json.loads(json.dumps(all_drawn()))


def all_drawn() -> list[Any]:
    return [
        figures(replay(*drawn(seed)[:2], policy, drawn(seed)[2] if name == "g10" else []))
        for seed in range(3)
        for name, policy in POLICIES.items()
    ]


# --- the study's own figures


STUDY = G10Study()
SHIPPED = [row for row in STUDY.figures(["11"]) if (TRACES / f"{row.case.program}.jsonl.gz").is_file()]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("row", SHIPPED, ids=lambda row: f"{row.case.program}-{row.case.policy}")
def test_published_figures(row: Any) -> None:
    """All policies of figure 11 on the shipped traces, with our own planner: every cycle, every page."""
    loaded = load(row.case.program, TRACES)
    assert loaded is not None
    outcome = STUDY.run(row.case, loaded)
    assert outcome.cycles == row.cycles
    if row.pages:
        assert outcome.pages == tuple(row.pages.values())


# Both iterations, from the logs of example_results/overall_slowdown_cdf.
BOTH = {
    ("bert_base", 256, "deepUM"): (15_792_275_567, 10_992_552_904),
    ("bert_base", 256, "lru"): (28_867_913_422, 23_580_084_389),
    ("bert_base", 256, "prefetch_lru"): (15_468_851_602, 8_773_229_325),
    ("vit", 1280, "deepUM"): (13_535_642_275, 9_069_040_214),
    ("vit", 1280, "lru"): (33_413_420_253, 29_519_610_761),
    ("vit", 1280, "prefetch_lru"): (11_873_537_851, 6_647_685_439),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", BOTH, ids=lambda case: "-".join(map(str, case)))
def test_both_iterations(case: tuple[str, int, str]) -> None:
    loaded = load(f"{case[0]}_b{case[1]}", TRACES)
    assert loaded is not None
    assert STUDY.run(Case(*case, 128, 3.2, 15.754), loaded).iterations == BOTH[case]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert_base_b256", "vit_b1280"])
def test_our_planner_makes_the_plan_of_the_study(name: str) -> None:
    from gpusim.studies.g10.plans import g10

    loaded = load(name, TRACES)
    assert loaded is not None
    theirs = read_plan(TRACES / "plans" / f"{name}.g10plan.csv.gz", loaded)
    assert g10(loaded, Conditions()) == theirs


@pytest.mark.slow
def test_a_bad_plan_is_named(tmp_path: Path) -> None:
    import gzip

    loaded = load("bert_base_b256", TRACES)
    assert loaded is not None
    for row, words in (("0,5,moon", "not a row of a G10 plan"), ("0,9999,gpu", "tensor 9999 is not in 'bert_base-b256'")):
        with gzip.open(tmp_path / "bad.csv.gz", "wt", newline="") as file:
            csv.writer(file).writerows([["issue_kernel", "tensor", "to"], row.split(",")])
        with pytest.raises(GpusimError, match=rf"bad.csv.gz:2: .*{words}"):
            read_plan(tmp_path / "bad.csv.gz", loaded)
