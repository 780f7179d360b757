"""What is known from elsewhere of the experiments on unified memory."""

from __future__ import annotations

from typing import Any

from gpusim.results.result import Result

MIB, GIB = 1 << 20, 1 << 30
Results = tuple[Result, ...]
Key = tuple[Any, ...]


def by(rs: Results, *keys: str) -> dict[Key, dict[str, Any]]:
    """The metrics of the one run for each combination of these keys."""
    found = {tuple(r.spec.get(k, "none") for k in keys): r.metrics for r in rs}
    assert len(found) == len(rs)
    return found


def unified_oversubscription(rs: Results) -> None:
    """Every byte that is touched has to come once; a cyclic sweep over more than a first-in-first-out memory misses always, so
    that it moves all of the array in every pass (but where what was evicted is mapped remotely: POWER9, GH200); bandwidth
    varies by a factor of 100 with access pattern and platform (NVIDIA, "Improving GPU Memory Oversubscription Performance",
    2021); a sweep takes less time on a faster link."""
    found = by(rs, "trace", "profile", "memory_share")
    for (trace, profile, share), m in found.items():
        if share >= 1:
            assert m["evicted_bytes"] == 0 and m["makespan_ns"] == found[trace, profile, 2.0]["makespan_ns"]
        if trace == "stream_sweep":
            passes = m["h2d_bytes"] / (512 * MIB)
            assert passes == (1 if share >= 1 else 5) or (profile in ("v100-sxm2-power9", "gh200-96gb") and 1 < passes < 5)
            assert m["touched_per_s"] > 100 * found["random_access", profile, share]["touched_per_s"]
            if share < 1:
                machines = ("v100-pcie-16gb", "a100-pcie-80gb", "h100-pcie-80gb", "gh200-96gb")
                times = [found[trace, machine, share]["makespan_ns"] for machine in machines]
                assert times == sorted(times, reverse=True)


def unified_threshold(rs: Results) -> None:
    """One page in each of 1,024 blocks, with room for all: the driver's own counts (RTX 5070 Ti, driver 595) were 64 KiB for
    each block at 51 % and all of it at 0 %; above 100 % nothing can be, and the page alone comes."""
    found = by(rs, "trace", "memory_share", "unified")
    none, driver, alone = (f"driver{x}" for x in ("(uvm_perf_prefetch_threshold=0)", "", "(uvm_perf_prefetch_threshold=100)"))
    moved = {unified: found["sparse", 2.0, unified]["h2d_bytes"] for unified in (none, driver, alone)}
    assert moved == {none: 2 * GIB, driver: 1024 * 65536, alone: 1024 * 4096}
    faults = {unified: found["stream_sweep", 2.0, unified]["gpu_faults"] for unified in (none, driver, alone)}
    assert faults[none] < faults[driver] and faults[alone] == 512 * MIB // 4096


def unified_advice(rs: Results) -> None:
    """Nothing migrates under zero-copy, and what was prefetched does not fault while there is room; every byte that comes takes
    its time on the link (PCIe 4: 32 GB/s)."""
    found = by(rs, "trace", "memory_share", "unified")
    for (trace, share, unified), m in found.items():
        if unified == "driver(advice=zero_copy)":
            assert m["h2d_bytes"] == 0 and (m["gpu_faults"] == 0 or trace != "random_access")  # what is there is mapped at once
        if unified == "driver(advice=prefetch)" and share > 1:
            assert m["gpu_faults"] == 0 or trace == "iterate"  # there the host takes a page back
            assert m["makespan_ns"] < found[trace, share, "driver"]["makespan_ns"] or trace == "iterate"
        assert m["makespan_ns"] > m["h2d_bytes"] / 32e9 * 1e9


def unified_policies(rs: Results) -> None:
    """A cyclic sweep is LRU's worst case, but not the worst of an oracle (Belady 1966); clean pages need not be copied."""
    found = by(rs, "trace", "unified")
    sweep = {unified: m for (trace, unified), m in found.items() if trace == "stream_sweep"}
    assert sweep["driver(evict=lru)"]["h2d_bytes"] >= sweep["driver"]["h2d_bytes"] * 0.99
    assert sweep["driver(evict=belady)"]["h2d_bytes"] < 0.7 * sweep["driver"]["h2d_bytes"]
    assert sweep["driver(evict=clean_drop)"]["makespan_ns"] < sweep["driver"]["makespan_ns"]
    for trace in ("stream_sweep", "iterate"):
        assert found[trace, "driver(prefetch=none)"]["gpu_faults"] > found[trace, "driver"]["gpu_faults"]


def unified_pingpong(rs: Results) -> None:
    """Mitigation is there to move less.  A CPU that reaches the GPU's memory by itself (POWER9, Grace) needs no copy of it."""
    found = by(rs, "trace", "profile", "unified")
    for profile in ("a100-pcie-80gb", "v100-sxm2-power9", "gh200-96gb"):
        on, off = (found["pingpong_pages", profile, u] for u in ("driver", "driver(uvm_perf_thrashing_enable=0)"))
        assert on["h2d_bytes"] < off["h2d_bytes"] and on["pins"] > 0 == off["pins"]
        for trace in ("pingpong", "pingpong_pages"):
            assert found[trace, profile, "driver(advice=zero_copy)"]["h2d_bytes"] == 0
            stays = found[trace, profile, "driver(advice=preferred_gpu)"]["h2d_bytes"]
            assert (stays > 0) == (profile == "a100-pcie-80gb")


def unified_training(rs: Results) -> None:
    """Page faults lose against whole tensors that are moved as a program knows them (as DeepUM, ASPLOS 2023, measured),
    prefetching against faults wins, and recomputing makes all of them move less."""
    found = by(rs, "transform", "unified")
    times = {key: m["makespan_ns"] for key, m in found.items()}
    for transform in ("none", "checkpointing"):
        assert times[transform, "none"] < times[transform, "driver"]
        assert found[transform, "driver"]["gpu_faults"] > 0 == found[transform, "driver(advice=prefetch)"]["gpu_faults"]
    assert times["none", "driver(advice=prefetch)"] < times["none", "driver"]
    for unified in ("none", "driver", "driver(advice=prefetch)"):
        assert found["checkpointing", unified]["h2d_bytes"] < found["none", unified]["h2d_bytes"]


KNOWN = (
    unified_oversubscription, unified_threshold, unified_advice, unified_policies, unified_pingpong, unified_training,
)  # fmt: skip
