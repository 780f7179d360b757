"""Do the shipped experiments still answer as they did, and as what is known from elsewhere demands?

Golden numbers live in tests/golden; `python tests/experiment/test_experiments.py` writes them anew.  Each experiment also
meets a bound or an ordering that does not come from this program.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import known_unified
import pytest
from docs_tool import tool

from gpusim.base.defaults import LATER
from gpusim.experiment import grid, load
from gpusim.experiment.tasks import plan
from gpusim.machine import catalogue
from gpusim.results.folder import load_folder
from gpusim.results.result import FINISHED, HOST_OOM, Result

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml"))
# These run in half a second, which the tests of one experiment share; all others are slow.
QUICK = ("fits", "gpus", "host_memory")
RUN = [pytest.param(name, marks=[] if name in QUICK else [pytest.mark.slow]) for name in NAMES]
METRICS = ("makespan_ns", "h2d_bytes", "d2h_bytes", "swap_ins", "reserved_peak_bytes", "chunks_peak_bytes", "gpu_faults")
UNSAID = {"defrag": "none", **LATER}
AXES = (
    "trace", "transform", "profile", "memory_share", "memory", "host_memory", "place", "evict", "prefetch", "defrag", "release",
    "seed", "tiers", "plan", "unified", "parallel", "placement", "stragglers", "pool", "beside", "tenancy",
)  # fmt: skip


@cache
def results(name: str) -> tuple[Result, ...]:
    loaded = load.experiment(str(ROOT / "experiments" / f"{name}.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        assert not grid.run(plan(loaded, Path(folder)), "", {}).failures
        return tuple(load_folder(Path(folder)))


def label(r: Result) -> str:
    return " ".join(str(r.spec[axis]) for axis in AXES if r.spec.get(axis) not in (None, UNSAID.get(axis)))


def numbers(name: str) -> dict[str, dict[str, Any]]:
    return {label(r): {"outcome": r.outcome, **{m: r.metrics[m] for m in METRICS if m in r.metrics}} for r in results(name)}


def by(rs: tuple[Result, ...], *keys: str) -> dict[Any, Result]:
    """The one result for each combination of these keys; a single key is not wrapped."""
    values = [[r.spec.get(k, LATER.get(k)) for k in keys] for r in rs]
    found = {tuple(v) if len(keys) > 1 else v[0]: r for v, r in zip(values, rs, strict=True)}
    assert len(found) == len(rs)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_first_line_is_the_question(name: str) -> None:
    lines = (ROOT / "experiments" / f"{name}.yaml").read_text("utf-8").splitlines()
    question = load.experiment(name).experiment.question
    assert lines[0] == f"# {question}" and question.endswith("?")
    assert lines[1].startswith("# yaml-language-server: $schema=../")
    assert (ROOT / "experiments" / lines[1].partition("=")[2]).is_file()


@pytest.mark.golden
@pytest.mark.parametrize("name", RUN)
def test_the_numbers_are_those_of_before(name: str) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    now = numbers(name)
    assert now.keys() == golden.keys()
    for run, expected in golden.items():
        assert now[run]["outcome"] == expected["outcome"], run
        # A last bit of a float may differ between processors; a changed decision shows at once.
        assert {**now[run], "outcome": 0} == pytest.approx({**expected, "outcome": 0}, rel=1e-4), run


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_figures_of_the_docs_show_these_numbers(name: str) -> None:
    for figure, of in tool().EXPERIMENTS.items():
        if of.experiment == name:
            kept = tool().manifest()[figure]
            assert tool().shows(of.draw(results(name))) == kept["shows"], f"python docs/figures.py {figure} makes it again"


@pytest.mark.formulas
@pytest.mark.parametrize("name", RUN)
def test_bounds_hold(name: str) -> None:
    """Nothing is faster than without a limit, nothing brings in less than the traffic bound, nothing exceeds its memory."""
    for r in results(name):
        held, below = ("chunks", "host_resident") if "unified" in r.spec else ("reserved", "host")
        assert r.metrics[f"{held}_peak_bytes"] <= r.spec["memory"], label(r)
        assert r.metrics[f"{below}_peak_bytes"] <= r.spec["host_capacity"], label(r)
        if r.outcome == FINISHED and load.experiment(name).experiment.bounds and "makespan_ns" in r.metrics:
            assert r.metrics["makespan_ns"] >= r.bounds["bound_no_limit_ns"], label(r)
            assert r.metrics["h2d_bytes"] >= r.bounds["bound_swap_in_bytes"], label(r)


@pytest.mark.formulas
@pytest.mark.parametrize("name", RUN)
def test_more_memory_is_never_the_difference_between_running_and_not(name: str) -> None:
    """If a program runs in some memory, it runs in any larger one on offer (same machine and policies)."""
    sizes = defaultdict(list)
    for r in results(name):
        kept = ("trace", "transform", "profile", "host_memory", "place", "evict", "prefetch", "defrag", "tiers", "plan")
        key = tuple(r.spec.get(k, LATER.get(k)) for k in kept)
        sizes[key].append((r.spec["memory"], r.finished))
    for key, found in sizes.items():
        finished = [ran for _, ran in sorted(found)]
        assert finished == sorted(finished), key


def eviction(rs: tuple[Result, ...]) -> None:
    """The least memory costs every policy more than the most; LFU, which clings to old favourites, is never the best."""
    found = by(rs, "trace", "evict", "memory_share")
    for trace in {r.spec["trace"] for r in rs}:
        policies = {r.spec["evict"] for r in rs}
        for policy in policies:
            assert found[trace, policy, 0.4].metrics["slowdown"] > found[trace, policy, 1.0].metrics["slowdown"]
        best = min(policies, key=lambda p: found[trace, p, 0.4].metrics["makespan_ns"])
        assert best != "lfu"


def release(rs: tuple[Result, ...]) -> None:
    """LRU that evicts early is LRU in less memory: below a threshold no fewer bytes come in (Mattson et al. 1970), but for
    fragmentation.  Nothing that only evicts earlier comes near what moving less would save."""
    found = {(r.spec["trace"], r.spec["memory_share"], r.spec.get("release", "none")): r for r in rs}
    for (trace, share, policy), r in found.items():
        plain = found[trace, share, "none"].metrics
        if policy == "watermark":
            assert r.metrics["h2d_bytes"] > 0.99 * plain["h2d_bytes"]
        assert r.metrics["makespan_ns"] > 0.9 * plain["makespan_ns"]


def learned(rs: tuple[Result, ...]) -> None:
    """Decoding reads all weights in a loop, on which LRU misses always: nothing is slower, and Belady brings in least.  What
    was learned is no oracle."""
    found = by(rs, "trace", "memory_share", "evict")
    for share in {r.spec["memory_share"] for r in rs}:
        decode = {policy: r for (trace, s, policy), r in found.items() if (trace, s) == ("llama-1b-decode", share)}
        assert max(r.metrics["makespan_ns"] for r in decode.values()) < 1.01 * decode["lru"].metrics["makespan_ns"]
        assert min(decode, key=lambda policy: decode[policy].metrics["h2d_bytes"]) == "belady"
    assert {r.spec["evict"] for r in rs if r.spec["oracles"]} == {"belady"}


def learned_demand(rs: tuple[Result, ...]) -> None:
    """LRU that evicts early is LRU in less memory, whatever foretells the demand."""
    release(rs)


def prefetch(rs: tuple[Result, ...]) -> None:
    """A faster link loses less; knowing the future loses no more than not prefetching."""
    found = by(rs, "profile", "prefetch")
    for policy in {r.spec["prefetch"] for r in rs}:
        slow = [found[p, policy].metrics["slowdown"] for p in ("a100-pcie-80gb", "h100-pcie-80gb", "gh200-96gb")]
        assert slow == sorted(slow, reverse=True)
    for profile in {r.spec["profile"] for r in rs}:
        assert found[profile, "oracle"].metrics["makespan_ns"] <= found[profile, "none"].metrics["makespan_ns"]


def policies(rs: tuple[Result, ...]) -> None:
    """NVLink-C2C (450 GB/s) loses less than PCIe 5, PCIe 5 less than PCIe 4, under the same policies."""
    found = by(rs, "memory_share", "place", "evict", "prefetch", "profile")
    for r in rs:
        if r.spec["profile"] == "a100-pcie-80gb" and r.spec["memory_share"] < 0.7:
            key = [r.spec[k] for k in ("memory_share", "place", "evict", "prefetch")]
            h100, gh200 = (found[*key, p].metrics["stall_ns"] for p in ("h100-pcie-80gb", "gh200-96gb"))
            assert r.metrics["stall_ns"] > h100 > gh200


def allocators(rs: tuple[Result, ...]) -> None:
    """A heap cannot be smaller than what lives in it; powers of two waste most; PyTorch's own program suits PyTorch."""
    found = by(rs, "trace", "place", "memory_share")
    for r in rs:
        if r.outcome == FINISHED:
            assert r.metrics["reserved_peak_bytes"] >= r.metrics["requested_peak_bytes"]
    for trace in {r.spec["trace"] for r in rs}:
        assert (
            found[trace, "buddy", 1.5].metrics["allocated_peak_bytes"]
            > found[trace, "best_fit", 1.5].metrics["allocated_peak_bytes"]
        )
    assert found["gpt-medium-train-snapshot", "pytorch", 1.03].finished


def gpus(rs: tuple[Result, ...]) -> None:
    """V100 before A100 before H100, as every published training benchmark has it; C2C loses least of the Hopper machines."""
    found = by(rs, "profile")
    unlimited = [found[p].bounds["bound_no_limit_ns"] for p in ("v100-sxm2-32gb", "a100-sxm4-80gb", "h100-sxm-80gb")]
    assert unlimited == sorted(unlimited, reverse=True)
    assert found["gh200-96gb"].metrics["slowdown"] < found["h100-sxm-80gb"].metrics["slowdown"]


def fits(rs: tuple[Result, ...]) -> None:
    """19.5 GiB fit 24 GB and more, need swapping on less, and cannot run where there is nowhere to swap to."""
    found = by(rs, "profile")
    for profile in ("a10", "jetson-agx-xavier", "jetson-agx-orin-64gb", "h100-sxm-80gb"):
        assert found[profile].finished and found[profile].metrics["h2d_bytes"] == 0
    for profile in ("t4", "rtx-2080-ti"):
        assert found[profile].finished and found[profile].metrics["h2d_bytes"] > 0
    assert found["jetson-orin-nx-16gb"].outcome == HOST_OOM


def costs(rs: tuple[Result, ...]) -> None:
    """Some policy that knows costs is at least as fast as LRU in every place."""
    places = defaultdict(dict)
    for r in rs:
        places[r.spec["trace"], r.spec["memory_share"]][r.spec["evict"]] = r.metrics["makespan_ns"]
    for found in places.values():
        assert min(v for k, v in found.items() if k.startswith("cost_aware")) <= found["lru"] * 1.01


def checkpointing(rs: tuple[Result, ...]) -> None:
    """Checkpointing computes more and keeps less: slower with room for all, less traffic without."""
    found = by(rs, "profile", "memory", "trace")
    stored, recomputed = "gpt2-small-train", "gpt2-small-train-ckpt"
    sizes = sorted({r.spec["memory"] for r in rs})
    for profile in {r.spec["profile"] for r in rs}:
        roomy = {t: found[profile, sizes[-1], t].metrics for t in (stored, recomputed)}
        tight = {t: found[profile, sizes[1], t].metrics for t in (stored, recomputed)}
        assert roomy[stored]["h2d_bytes"] == roomy[recomputed]["h2d_bytes"] == 0
        assert roomy[recomputed]["compute_busy_ns"] > roomy[stored]["compute_busy_ns"]
        assert tight[recomputed]["h2d_bytes"] < tight[stored]["h2d_bytes"]


def host_memory(rs: tuple[Result, ...]) -> None:
    """What was swapped out at most in a run that finished is what a smaller host lacks."""
    for policy in {r.spec["evict"] for r in rs}:
        own = [r for r in rs if r.spec["evict"] == policy]
        needed = max(r.metrics["host_peak_bytes"] for r in own if r.finished)
        for r in own:
            assert r.outcome == (FINISHED if r.spec["host_memory"] >= needed else HOST_OOM)


def defragmentation(rs: tuple[Result, ...]) -> None:
    """When blocks can be slid together, all free bytes are as good as one piece: what fits by bytes never swaps."""
    found = by(rs, "trace", "memory_share", "defrag")
    for trace in {r.spec["trace"] for r in rs}:
        slid, not_slid = (found[trace, 1.0, defrag].metrics for defrag in ("slide", "none"))
        assert slid["h2d_bytes"] == slid["d2h_bytes"] == 0 < not_slid["h2d_bytes"]
        assert found[trace, 1.0, "slide"].metrics["reserved_peak_bytes"] <= found[trace, 1.0, "slide"].spec["memory"]


def what_if(rs: tuple[Result, ...]) -> None:
    """Recomputing costs at most one more forward pass, a third of the arithmetic, and needs less (Chen et al., 2016).
    Parameter, gradient and two moments of 2 bytes each move to the host (Rajbhandari et al., 2021), which costs more while
    there is room; over PCIe, swapping costs more than any other way."""
    found = by(rs, "profile", "memory", "transform")
    sizes = sorted({r.spec["memory"] for r in rs})
    stored, recomputed, offloaded = "none", "checkpointing", "checkpointing | offload(what=all)"
    for profile in {r.spec["profile"] for r in rs}:
        roomy = {t: found[profile, sizes[-1], t].metrics for t in (stored, recomputed, offloaded)}
        assert 1 < roomy[recomputed]["compute_busy_ns"] / roomy[stored]["compute_busy_ns"] < 4 / 3
        assert roomy[stored]["makespan_ns"] < roomy[recomputed]["makespan_ns"] < roomy[offloaded]["makespan_ns"]
        for size in sizes[:-1]:
            needs = [found[profile, size, t].bounds["bound_swap_in_bytes"] for t in (stored, recomputed, offloaded)]
            assert needs == sorted(needs, reverse=True)
        left = [found[profile, sizes[0], t].spec["host_capacity"] for t in (stored, offloaded)]
        assert left[0] - left[1] == pytest.approx(4 * 2 * 1_235_814_400, rel=1e-3)
    tight = {r.spec["transform"]: r.metrics["makespan_ns"] for r in rs
             if (r.spec["profile"], r.spec["memory"]) == ("a100-pcie-40gb", sizes[0])}  # fmt: skip
    assert max(tight, key=tight.__getitem__) == stored


def oversubscription(rs: tuple[Result, ...]) -> None:
    """Less memory is slower and never brings in less; a link eighteen times as fast loses far less (docs/claims.md)."""
    found = by(rs, "trace", "profile", "memory_share")
    sizes = sorted({r.spec["memory_share"] for r in rs})
    for trace, profile in {(r.spec["trace"], r.spec["profile"]) for r in rs}:
        column = [found[trace, profile, size].metrics for size in sizes]
        for less, more in pairwise(column):
            assert less["slowdown"] > 0.98 * more["slowdown"]
        assert column[0]["slowdown"] > column[-1]["slowdown"]
        assert [m["h2d_bytes"] for m in column] == sorted((m["h2d_bytes"] for m in column), reverse=True)
    for trace in {r.spec["trace"] for r in rs}:
        fifth = {p: found[trace, p, sizes[0]].metrics["slowdown"] for p in ("a100-pcie-80gb", "gh200-96gb")}
        assert fifth["a100-pcie-80gb"] > 4.7 and fifth["gh200-96gb"] < 2.5


def ssd(rs: tuple[Result, ...]) -> None:
    """A host that is full fails without a disk below it; one disk in its place is slower; recomputing beats all of them."""
    found = by(rs, "transform", "profile", "tiers")
    for profile in {r.spec["profile"] for r in rs}:
        assert found["none", profile, "host"].outcome == HOST_OOM
        below, alone = (found["none", profile, t].metrics["makespan_ns"] for t in ("host > nvme", "nvme"))
        direct = found["none", profile, "nvme(direct=1)"].metrics["makespan_ns"]
        assert below < direct <= alone
        assert found["checkpointing", profile, "host > nvme"].metrics["makespan_ns"] < below / 10


def turns(rs: tuple[Result, ...]) -> None:
    """Every step costs more than every second, and so on; what leaves are parameters and state, 6 bytes each."""
    found = by(rs, "profile", "plan")
    for profile in {r.spec["profile"] for r in rs}:
        column = [found[profile, plan].metrics for plan in ("periodic", "periodic(steps=2)", "periodic(steps=4)", "none")]
        assert [m["slowdown"] for m in column] == sorted((m["slowdown"] for m in column), reverse=True)
        for metrics in column:  # all time that is added is idle
            longer = metrics["makespan_ns"] / column[-1]["makespan_ns"]
            idle = 1 - (1 - column[-1]["compute_idle_share"]) / longer
            assert metrics["compute_idle_share"] == pytest.approx(idle, rel=1e-3)
        state = 335_174_458 * 3 * 2
        assert column[0]["h2d_bytes"] == pytest.approx(7 * state, rel=0.02)


def sharing(rs: tuple[Result, ...]) -> None:
    """Two programs that both want the GPU have it in turns for about half of the time each, less what switches take; a MIG
    slice is as fast beside a neighbour as alone, and three of eight memory slices leave none; so is a client of MPS with
    multiprocessors of its own.

    The claim of 40 %: MIG does 20 to 50 % more work than time slices, 10 to 30 % more than MPS, that lies between its bounds: 5
    to 15 % where kernels in waves share evenly, and 15 to 45 % where they come in order of arrival.
    """
    found = by(rs, "profile", "tenancy")
    for profile in {r.spec["profile"] for r in rs}:
        of = {tenancy: r.metrics for (p, tenancy), r in found.items() if p == profile}
        alone, turns, mps = of["exclusive"], of["time_slices"], of["mps"]
        assert alone["sharing_slowdown"] == pytest.approx(1) and alone["fairness"] == pytest.approx(1, abs=1e-3)
        assert turns["fairness"] > 0.99 and 1.6 < turns["sharing_slowdown"] < 2.4
        assert turns["switch_ns"] / turns["makespan_ns"] == pytest.approx(0.115, abs=0.02)
        assert 1 / turns["sharing_slowdown"] + 1 / turns["others_slowdown"] == pytest.approx(turns["work_per_gpu"])
        uneven = of["time_slices(others_slice=200 us)"]
        assert uneven["sharing_slowdown"] < turns["sharing_slowdown"] and uneven["others_slowdown"] > turns["others_slowdown"]
        for tenancy, metrics in of.items():
            free = tenancy.startswith(("mig", "exclusive"))
            assert (metrics["neighbour_cost"] == pytest.approx(1, rel=1e-3)) == free, tenancy
        assert 1 < of["mps(cap=40, others_cap=60)"]["neighbour_cost"] < 1.3, "only the memory's bandwidth is shared"
        mig = of["mig(others_slice=4g.40gb, slice=3g.40gb)"]
        assert 1.2 < mig["work_per_gpu"] / turns["work_per_gpu"] < 1.5
        assert 1.1 < mig["work_per_gpu"] / mps["work_per_gpu"] < 1.3
        in_order, evenly = of["mps(yields=kernels)"], of["mps(yields=waves)"]
        assert 1.05 < mig["work_per_gpu"] / evenly["work_per_gpu"] < 1.15
        assert 1.15 < mig["work_per_gpu"] / in_order["work_per_gpu"] < 1.45
        assert in_order["sharing_slowdown"] > 3 * evenly["sharing_slowdown"] and in_order["others_slowdown"] < 1.06
        for slower, faster in ((in_order, mps), (mps, evenly)):
            assert slower["sharing_slowdown"] > 1.5 * faster["sharing_slowdown"]
            assert slower["others_slowdown"] < faster["others_slowdown"]
        assert of["mig(others_slice=4g.40gb, slice=1g.10gb)"]["unusable_bytes"] > 30 * 2**30 > mig["unusable_bytes"]


def over_commit(rs: tuple[Result, ...]) -> None:
    """One behind the other takes as long as both alone, and turns with all of the memory that and their copies' time.

    Bytes that leave come back, but for those that are away when a program is the last: half of them go each way.
    """
    of = {tenancy: r.metrics for tenancy, r in by(rs, "tenancy").items()}
    both, gpu = 2 * of["exclusive"]["makespan_ns"], catalogue.load("t4").link
    assert of["over_commit(policy=first_come)"]["all_ended_ns"] == pytest.approx(both, rel=1e-3)
    for name in ("nvshare, quantum=10", "nvshare, quantum=1", "suspend_resume, quantum=10"):
        turns = of[f"over_commit(policy={name})"]
        copies = turns["programs_swapped_bytes"] / 2 * (1 / gpu.h2d.value + 1 / gpu.d2h.value) * 1e9
        assert turns["all_ended_ns"] - turns["switch_ns"] == pytest.approx(both + copies, rel=0.005), name
    for policy, loss in (("policy=antman", 0.0), ("policy=tgs", 0.05), ("loss=1, policy=tgs", 1.0)):
        assert of[f"over_commit({policy})"]["sharing_slowdown"] == pytest.approx(1 + loss, abs=0.001)
    assert of["over_commit(policy=salus)"]["all_ended_ns"] == pytest.approx(both, rel=1e-3)
    swapped = [of[f"over_commit({word})"].get("others_swapped_bytes", 0) for word in ("loss=1, policy=tgs", "policy=salus")]
    assert swapped[0] > 0 == swapped[1]
    assert of["over_commit(policy=nvshare, quantum=10)"]["all_ended_ns"] < of["time_slices"]["all_ended_ns"]
    assert of["over_commit(policy=nvshare, quantum=1)"]["all_ended_ns"] > of["time_slices"]["all_ended_ns"]


def double_buffering(rs: tuple[Result, ...]) -> None:
    """Of loads shorter than a step all but the first are hidden, among eight steps; of longer ones all steps but the last.

    More buffers help nothing further.
    """
    found = by(rs, "transform")
    free = found["none"].metrics["makespan_ns"]
    for share in (10, 20, 60):
        one, two = (found[f"data_loader(buffers={n}, share={share}, work=yes)"].metrics["makespan_ns"] for n in (1, 2))
        loads = one - free
        assert two == pytest.approx(loads / 8 + free if loads < free else loads + free / 8, rel=0.01)
    assert found["data_loader(buffers=3, share=60, work=yes)"].metrics["makespan_ns"] == pytest.approx(two, rel=1e-3)


def zero_copy(rs: tuple[Result, ...]) -> None:
    """Optimizer state of 2 + 2 of the 10 bytes a parameter takes in Adam's step: 40 % where little else is in memory."""
    found = by(rs, "trace", "transform", "profile", "plan")
    for trace, transform, profile in {(r.spec["trace"], r.spec["transform"], r.spec["profile"]) for r in rs}:
        kept, moved = (found[trace, transform, profile, p].metrics for p in ("none", "zero_copy"))
        saved = 1 - moved["requested_peak_bytes"] / kept["requested_peak_bytes"]
        assert saved == pytest.approx(0.4, abs=0.005) if transform != "none" else 0.1 < saved < 0.25
        assert moved["makespan_ns"] > kept["makespan_ns"]


def unet3d(rs: tuple[Result, ...]) -> None:
    """16 GB train on 8 GB, in several ways, and half the bytes of each element is the cheapest of them."""
    found = by(rs, "profile", "memory", "transform")
    sizes = sorted({r.spec["memory"] for r in rs})
    for profile in {r.spec["profile"] for r in rs}:
        assert found[profile, sizes[-1], "none"].metrics["requested_peak_bytes"] > 16e9
        tight = {t: found[profile, sizes[0], t] for t in {r.spec["transform"] for r in rs}}
        assert all(r.finished for r in tight.values())
        assert min(tight, key=lambda t: tight[t].metrics["makespan_ns"]) == "precision(to=bf16)"
        assert max(tight, key=lambda t: tight[t].metrics["makespan_ns"]) == "none"


def gpt3(rs: tuple[Result, ...]) -> None:
    """Of 10 bytes for each of 175 billion parameters, 1 / ranks stays with ZeRO-3; with offload less than the claimed 48 GB.

    The host of eight ranks then keeps 8 bytes for each: parameter, gradient and two moments.
    """
    found, weights = by(rs, "parallel", "transform"), 174_604_259_328
    eight, many = found["data=8 zero=3", "none"], found["data=64 zero=3", "none"]
    assert eight.outcome == "oom" and many.finished and len(many.ranks) == 64
    assert many.metrics["requested_peak_bytes"] > 10 * weights / 64
    for ranks in (8, 64):
        host, disk = (found[f"data={ranks} zero=3", f"offload(what=all{to})"] for to in ("", ", to=nvme"))
        assert all(rank.metrics["requested_peak_bytes"] < 20e9 for rank in host.ranks)
        assert disk.metrics["makespan_ns"] > host.metrics["makespan_ns"] > many.metrics["makespan_ns"]
    kept = found["data=8 zero=3", "offload(what=all)"].ranks
    assert sum(2**41 // 8 - rank.spec["host_capacity"] for rank in kept) == pytest.approx(8 * weights, rel=1e-3)


def bloom(rs: tuple[Result, ...]) -> None:
    """176 billion parameters: full training holds at least 8 bytes for each, adapters beside frozen bf16 weights 2.  Only
    adapters on the larger cards with 30 % more have that room, and fragments of segments that cannot grow take what is over.
    FSDP gathers what tensor parallelism splits: 432 GB of 442 leave too little to move tensors in."""
    weights = 176_247_271_424
    for r in rs:
        room = 4 * r.spec["capacity"] + r.spec["host_memory"]
        needed = (2 if "lora" in r.spec["transform"] else 8) * weights
        large = r.spec["profile"] == "dgx-a100" and r.spec["host_memory"] == 96 * 2**30
        adapters = "lora" in r.spec["transform"] and r.spec["parallel"] == "tensor=4"
        assert r.finished == (large and adapters and "expandable" in r.spec["place"]), label(r)
        assert room > needed if r.finished else r.outcome == "host_oom"
        if r.finished:
            assert all(rank.metrics["h2d_bytes"] > 0 for rank in r.ranks) and len(r.ranks) == 4


def bloom_weights(rs: tuple[Result, ...]) -> None:
    """Two bytes for each of 176 billion weights are more than both smaller rooms, 158 GiB and 30 % more, and more than 317 GiB;
    one byte is more than 158 GiB alone.  What is brought in again and again comes over PCIe at no more than its rate."""
    for r in rs:
        small, wide, alone = r.spec["profile"] == "dgx-a100-40gb", r.spec["transform"] == "none", r.spec["evict"] == "none"
        held = (2 if wide else 1) * 176_247_271_424
        room = 4 * r.spec["capacity"] + (0 if alone else r.spec["host_memory"])
        assert r.finished == (room > 1.05 * held and not (wide and r.spec["host_memory"] == 48 * 2**30)), label(r)
        assert small or wide or r.metrics["h2d_bytes"] == 0
        for rank in r.ranks if r.finished else ():
            assert rank.metrics["makespan_ns"] >= rank.metrics["h2d_bytes"] / 26.5


def llama_70b(rs: tuple[Result, ...]) -> None:
    """Bytes for each of 70 billion parameters: 16 in mixed precision with Adam (Rajbhandari et al. 2020, section 3.1), 8 in
    pure bf16, 2 of frozen weights; an eighth on each GPU, or all on the host.  Between GPUs without peer access each brings in
    seven eighths of the weights at least twice a step, over PCIe."""
    weights = 70_553_706_496
    for r in rs:
        chain, cards = r.spec["transform"], r.spec["profile"]
        each = 16 if "master" in chain else 2 if "lora" in chain else 8
        if "offload" in chain:
            assert r.finished == (each * weights < r.spec["host_memory"]), label(r)
        else:
            assert r.finished == (each * weights / 8 + 6e9 < r.spec["capacity"] and (cards == "hgx-h100")), label(r)
        if r.finished:
            assert r.metrics["requested_peak_bytes"] > (0 if "offload" in chain else each * weights / 8)
        if r.finished and cards == "8x-rtx-4090":
            assert r.metrics["makespan_ns"] > 2 * 2 * 2 * weights * 7 / 8 / 25.7


def sublinear(rs: tuple[Result, ...]) -> None:
    """Recomputing each block once costs at most a forward pass, a third; memory then grows slower than the depth."""
    found = by(rs, "trace", "transform")
    depths = {"resnet50-sgd": 16, "resnet101-sgd": 33, "resnet152-sgd": 50}
    for trace in depths:
        stored = found[trace, "none"].metrics
        for transform in {r.spec["transform"] for r in rs} - {"none"}:
            recomputed = found[trace, transform].metrics
            assert 1.2 < recomputed["compute_busy_ns"] / stored["compute_busy_ns"] < 1.4
            assert recomputed["requested_peak_bytes"] < stored["requested_peak_bytes"]
    for transform in ("checkpointing(every=2)", "checkpointing(every=sqrt)"):
        grown = [found[t, transform].metrics["requested_peak_bytes"] for t in ("resnet50-sgd", "resnet152-sgd")]
        assert grown[1] / grown[0] < (50 / 16) ** 0.5


def mixed_precision(rs: tuple[Result, ...]) -> None:
    """Half the bytes of everything is at most half; fp32 masters and fp32 parameters under autocast keep more."""
    peaks = {r.spec["transform"]: r.metrics["requested_peak_bytes"] for r in rs}
    pure, masters, autocast = (
        1 - peaks[t] / peaks["none"]
        for t in ("precision(to=bf16)", "precision(to=bf16, master=yes)", "precision(to=bf16, mode=autocast)")
    )
    assert 0.5 >= pure > masters > autocast > 0


def compression(rs: tuple[Result, ...]) -> None:
    """A codec below the rate of the link never pays; above it, the more the slower the link."""
    found = by(rs, "profile", "transform")
    gpu = [f"compressed_swap(ratio={n}, on=gpu, compress=100 GB/s, decompress=200 GB/s)" for n in (2, 4)]
    plain = {p: found[p, "none"].metrics["makespan_ns"] for p in {r.spec["profile"] for r in rs}}
    for profile, time in plain.items():
        assert found[profile, "compressed_swap(ratio=2)"].metrics["makespan_ns"] > 10 * time
    gains = [plain[p] / found[p, gpu[1]].metrics["makespan_ns"] for p in ("a100-pcie-80gb", "h100-pcie-80gb", "gh200-96gb")]
    assert gains == sorted(gains, reverse=True) and gains[0] > 1.5 and gains[-1] < 1


def virtualisation(rs: tuple[Result, ...]) -> None:
    """What is bound by launches pays for each of them; what is bound by the GPU hides them."""
    found = by(rs, "trace", "profile")
    for trace in {r.spec["trace"] for r in rs}:
        times = [found[trace, p].metrics["makespan_ns"] for p in ("a100-pcie-80gb", "a100-pcie-80gb(launch.eager=22 us)")]
        assert times[1] / times[0] > 1.5 if trace == "llama-1b-decode" else 1 < times[1] / times[0] < 1.05


def numa(rs: tuple[Result, ...]) -> None:
    """Far memory costs a program at most what it costs the copies or the CPU alone, and nothing where copies lose nothing."""
    lost = {"h100-sxm-80gb": 0.999, "p100-sxm2-16gb": 0.311, "gb200": 0.348}  # of the link's rate; the CPU's is 44 %
    found = by(rs, "transform", "profile", "tiers")
    for transform, profile in {(r.spec["transform"], r.spec["profile"]) for r in rs}:
        chains = ("host", "host(numa=interleave)", "host(numa=remote)")
        near, mixed, far = (found[transform, profile, t].metrics["makespan_ns"] for t in chains)
        worst = 1 / min(lost[profile], 0.44 if transform == "offload" else 1.0)
        assert near <= mixed <= far <= worst * near
        assert far / near < 1.01 if worst < 1.01 else far / near > 1.1


def layouts(rs: tuple[Result, ...]) -> None:
    """Stage 3 of ZeRO sends half as much again as data parallelism, stage 1 as much (Rajbhandari et al. 2020, section 7),
    and each holds less than the one before; a pipeline takes at least its work and the bubble of the fastest stage."""
    found = by(rs, "profile", "parallel")
    for profile in {r.spec["profile"] for r in rs}:
        plain, one, three = (found[profile, layout].metrics for layout in ("data=8", "data=8 zero=1", "data=8 zero=3"))
        assert one["collective_bytes"] == plain["collective_bytes"]
        assert three["collective_bytes"] / plain["collective_bytes"] == pytest.approx(1.5, rel=0.01)
        assert plain["reserved_peak_bytes"] > one["reserved_peak_bytes"] > three["reserved_peak_bytes"]
        piped = found[profile, "pipeline=8 microbatches=32"]
        least = min(rank.metrics["compute_busy_ns"] for rank in piped.ranks)
        assert piped.metrics["makespan_ns"] >= max(r.metrics["compute_busy_ns"] for r in piped.ranks) + 7 / 32 * least
        for r in (r for r in rs if r.spec["profile"] == profile):
            assert all(rank.metrics["compute_busy_ns"] <= r.metrics["makespan_ns"] for rank in r.ranks)


def interconnects(rs: tuple[Result, ...]) -> None:
    """A ring over four GPUs passes PCIe with bridges between pairs or without; pairs that only talk to each other gain."""
    found = by(rs, "profile", "parallel")
    for layout in {r.spec["parallel"] for r in rs}:
        bare, bridged = (found[p, layout].metrics["makespan_ns"] for p in ("4x-a100-pcie", "4x-a100-pcie-pairs"))
        assert bridged < 0.9 * bare if layout == "data=2 tensor=2" else bridged == pytest.approx(bare, rel=0.01)


def networks(rs: tuple[Result, ...]) -> None:
    """A network that is slower or farther away makes nothing faster, and every layout over TCP is bound by it.

    RoCE costs 2.13 us at each crossing, which shows where kernels wait for many small exchanges (tensor=16).
    """
    found = by(rs, "profile", "parallel")
    networks = ("infiniband", "roce", "tcp")
    for layout in {r.spec["parallel"] for r in rs}:
        quick, far, slow = (found[f"2 x hgx-h100 over {n}", layout].metrics["makespan_ns"] for n in networks)
        assert quick < far < (1.01 if layout == "tensor=16" else 1.001) * quick and slow > 5 * quick


def stragglers(rs: tuple[Result, ...]) -> None:
    """Where all wait for each other, the whole is as slow as the slowest; a pipeline waits for its slowest stage only."""
    found = by(rs, "parallel", "stragglers")
    for layout in {r.spec["parallel"] for r in rs}:
        lost = found[layout, "3=1.1"].metrics["makespan_ns"] / found[layout, "none"].metrics["makespan_ns"]
        assert 1 <= lost < 1.1
        assert lost < 1.02 if layout.startswith("pipeline") else lost > 1.05


def neighbours(rs: tuple[Result, ...]) -> None:
    """An idle neighbour behind NVLink saves time, a full one none, and one that is reached through the host costs some.

    NVLink's 600 GB/s are 9.4 times PCIe's 64, both directions, nominal: a step gains less, as it does not only swap.
    """
    found = by(rs, "profile", "parallel", "tiers", "pool")
    time = {key: r.metrics["makespan_ns"] for key, r in found.items()}
    for machine in {r.spec["profile"] for r in rs}:
        for layout in ("data=1", "data=8"):
            host = time[machine, layout, "host", "none"]
            blind, wise = (time[machine, layout, "peer(any) > host", pool] for pool in ("interleave", "by_topology"))
            if machine == "8x-rtx-4090":
                assert wise == host < 0.98 * blind
                assert found[machine, layout, "peer(any) > host", "by_topology"].metrics["peer_out_bytes"] == 0
            elif layout == "data=1":
                assert wise <= blind < 0.9 * host and host < 600 / 64 * wise
            else:
                assert wise == pytest.approx(host, rel=0.05) == blind
    linked, unlinked = ("dgx-a100", "data=1", "peer(any) > host"), ("dgx-1-v100", "data=1", "peer(any) > host")
    assert time[*linked, "interleave"] == pytest.approx(time[*linked, "by_topology"], rel=0.01), "all pairs are alike"
    assert time[*unlinked, "interleave"] > 1.02 * time[*unlinked, "by_topology"], "half of the pairs have no link"


KNOWN: dict[str, Callable[[tuple[Result, ...]], None]] = {
    f.__name__: f
    for f in (
        eviction, release, prefetch, policies, allocators, gpus, fits, costs, checkpointing, host_memory, defragmentation,
        what_if, oversubscription, ssd, turns, double_buffering, zero_copy, unet3d, gpt3, sublinear, mixed_precision,
        compression, virtualisation, numa, layouts, interconnects, networks, stragglers, bloom, bloom_weights, llama_70b,
        neighbours, sharing, over_commit, learned, learned_demand,
        *known_unified.KNOWN,
    )
}


def test_every_experiment_has_something_known_from_elsewhere() -> None:
    assert sorted(KNOWN) == NAMES


@pytest.mark.formulas
@pytest.mark.parametrize("name", RUN)
def test_what_is_known_from_elsewhere_holds(name: str) -> None:
    KNOWN[name](results(name))


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        (GOLDEN / f"{each}.json").write_text(json.dumps(numbers(each), indent=0) + "\n")
