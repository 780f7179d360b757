"""Do the shipped experiments still answer as they did, and as what is known from elsewhere demands?

Golden numbers live in tests/golden; `python tests/test_experiments.py` writes them anew.  Each experiment also meets a bound
or an ordering that does not come from this program.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gpusim.commands import load
from gpusim.experiment import grid
from gpusim.experiment.plan import plan
from gpusim.results.result import FINISHED, HOST_OOM, Result

ROOT = Path(__file__).parents[1]
GOLDEN = ROOT / "tests" / "golden"
NAMES = sorted(path.stem for path in (ROOT / "experiments").glob("*.yaml"))
METRICS = ("makespan_ns", "h2d_bytes", "d2h_bytes", "swap_ins", "reserved_peak_bytes")
UNSAID = {"defrag": "none", "transform": "none", "release": "none"}
AXES = (
    "trace", "transform", "profile", "memory_share", "memory", "host_memory", "place", "evict", "prefetch", "defrag", "release",
    "seed",
)  # fmt: skip


@cache
def results(name: str) -> tuple[Result, ...]:
    loaded = load.experiment(str(ROOT / "experiments" / f"{name}.yaml"))
    with tempfile.TemporaryDirectory() as folder:
        done = grid.run(plan(loaded, Path(folder)), "", {})
    assert not done.failures
    return tuple(done.results)


def label(r: Result) -> str:
    return " ".join(str(r.spec[axis]) for axis in AXES if r.spec.get(axis) not in (None, UNSAID.get(axis)))


def numbers(name: str) -> dict[str, dict[str, Any]]:
    return {label(r): {"outcome": r.outcome, **{m: r.metrics[m] for m in METRICS}} for r in results(name)}


def by(rs: tuple[Result, ...], *keys: str) -> dict[Any, Result]:
    """The one result for each combination of these keys; a single key is not wrapped."""
    found = {tuple(r.spec[k] for k in keys) if len(keys) > 1 else r.spec[keys[0]]: r for r in rs}
    assert len(found) == len(rs)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_the_first_line_is_the_question(name: str) -> None:
    lines = (ROOT / "experiments" / f"{name}.yaml").read_text("utf-8").splitlines()
    question = load.experiment(name).experiment.question
    assert lines[0] == f"# {question}" and question.endswith("?")
    assert lines[1].startswith("# yaml-language-server: $schema=../")
    assert (ROOT / "experiments" / lines[1].partition("=")[2]).is_file()


@pytest.mark.parametrize("name", NAMES)
def test_the_numbers_are_those_of_before(name: str) -> None:
    golden = json.loads((GOLDEN / f"{name}.json").read_text())
    now = numbers(name)
    assert now.keys() == golden.keys()
    for run, expected in golden.items():
        assert now[run]["outcome"] == expected["outcome"], run
        # A last bit of a float may differ between processors; a changed decision shows at once.
        assert {m: now[run][m] for m in METRICS} == pytest.approx({m: expected[m] for m in METRICS}, rel=1e-4), run


@pytest.mark.parametrize("name", NAMES)
def test_bounds_hold(name: str) -> None:
    """Nothing is faster than without a limit, nothing brings in less than the traffic bound, nothing exceeds its memory."""
    for r in results(name):
        assert r.metrics["reserved_peak_bytes"] <= r.spec["memory"], label(r)
        assert r.metrics["host_peak_bytes"] <= r.spec["host_capacity"], label(r)
        if r.outcome == FINISHED:
            assert r.metrics["makespan_ns"] >= r.bounds["bound_no_limit_ns"], label(r)
            assert r.metrics["h2d_bytes"] >= r.bounds["bound_swap_in_bytes"], label(r)


@pytest.mark.parametrize("name", NAMES)
def test_more_memory_is_never_the_difference_between_running_and_not(name: str) -> None:
    """If a program runs in some memory, it runs in any larger one on offer (same machine and policies)."""
    sizes = defaultdict(list)
    for r in results(name):
        kept = ("trace", "transform", "profile", "host_memory", "place", "evict", "prefetch", "defrag")
        key = tuple(r.spec[k] for k in kept)
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


KNOWN: dict[str, Callable[[tuple[Result, ...]], None]] = {
    f.__name__: f
    for f in (
        eviction, release, prefetch, policies, allocators, gpus, fits, costs, checkpointing, host_memory, defragmentation,
        what_if,
    )
}


def test_every_experiment_has_something_known_from_elsewhere() -> None:
    assert sorted(KNOWN) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_what_is_known_from_elsewhere_holds(name: str) -> None:
    KNOWN[name](results(name))


if __name__ == "__main__":
    for each in sys.argv[1:] or NAMES:
        (GOLDEN / f"{each}.json").write_text(json.dumps(numbers(each), indent=0) + "\n")
