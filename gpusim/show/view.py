"""What figures and tables ask of results: which axes vary, what a run is called, what a number reads like."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gpusim.base.defaults import LATER
from gpusim.base.errors import UnitError
from gpusim.base.text import join
from gpusim.base.units import BYTES, FRACTION, RATE, parse, show_bytes, show_fraction, show_rate, show_time
from gpusim.machine.tenancy import OVER_COMMIT
from gpusim.results.metrics import METRICS, same
from gpusim.results.references import RATIOS
from gpusim.results.result import FOR_REFEREE, HOST_OOM, OOM, Result

POLICIES = (  # what is chosen on a machine
    "place", "evict", "prefetch", "defrag", "plan", "release", "pool", "grain", "unified", "tenancy",
)  # fmt: skip
# Keys that follow from others, or that only the referee needs.
_DERIVED = {
    "trace_hash", "profile_hash", "hardware", "capacity", "footprint", "rates", "slots", "durations_hash",
    "oracle", "oracles", "log", "use", *FOR_REFEREE,
}  # fmt: skip
OF_DRIVER = {"evict": "driver", "prefetch": "tree"}  # what decides under unified memory where nothing else is named
OF_RANKS = ("parallel", "placement", "stragglers")
# Runs that differ in these have other references.
REFERENCE = ("profile", "trace", "transform", "active_thread_percentage", *OF_RANKS)
_REPEAT = "seed"  # runs that differ in nothing else are repetitions of each other
ORACLE = "*"
ALL_ENDED = "all_ended_ns"
OVERSUBSCRIPTION = "oversubscription"  # an axis: the memory share's reciprocal
FULL = {"nvme": "disk full", "peer": "peer full", "cxl": "CXL full", "remote": "remote host full"}  # the last tier, when it is


def varying(results: Sequence[Result]) -> list[str]:
    """The keys of `spec` in which the results differ, in order of appearance; neither derived keys nor the seed.

    Memory written as a share hides the bytes that follow from it; a machine hides the memory that it comes with.
    """
    keys = [key for key in dict.fromkeys(key for r in results for key in r.spec) if key not in _DERIVED | {_REPEAT}]
    several = [key for key in keys if any(r.spec.get(key) != results[0].spec.get(key) for r in results)]
    values = {key: {repr(v): v for v in (r.spec.get(key) for r in results)}.values() for key in several}
    differ = [key for key in several if len({text(key, value) for value in values[key]}) > 1]
    hidden = set()
    if results and all(r.spec.get("memory_share") is not None for r in results):
        hidden.add("memory")
    elif "memory" in keys:
        hidden.add("memory_share")
        of_machine = {(str(r.spec.get("profile")), r.spec.get("memory")) for r in results}
        if len(of_machine) == len({machine for machine, _ in of_machine}) > 1:
            hidden.add("memory")
    # What a transform keeps there is no room for swaps; ranks share their host.
    if {"profile", "host_memory", "tiers", "transform", *OF_RANKS} & set(differ):
        hidden.add("host_capacity")
    if "tenancy" in differ:  # it says what part of the GPU the program has
        hidden |= {"memory", "active_thread_percentage"}
    return [key for key in differ if key not in hidden]


@dataclass(frozen=True)
class Layout:
    """The part that each varying key plays in a comparison."""

    across: str  # the numeric key of the horizontal axis, "" when there is none
    lines: tuple[str, ...]  # policy keys that tell lines (or bars) apart
    panels: tuple[str, ...]  # the other keys: one panel per combination


def layout(results: Sequence[Result]) -> Layout:
    """Memory goes along the axis, then any other number; policies become lines, or else tiers or transforms; the rest becomes
    panels."""
    keys = varying(results)
    lines = tuple(key for key in POLICIES if key in keys)
    if "pool" in lines and "tiers" in keys:  # the memories among which it chooses
        lines = ("tiers", *lines)
    others = [key for key in keys if key not in lines]
    numbers = [key for key in others if all(number(r.spec.get(key)) is not None for r in results)]
    # A share outranks bytes, memory outranks the rest.
    numbers.sort(key=lambda key: (key != "memory_share", key != "memory"))
    across = numbers[0] if numbers else ""
    if not lines:  # nothing but programs or machines differ: programs are compared, on each machine, or else machines
        rest = [key for key in others if key != across]
        # Shares of what each program needs are no memory in which programs could be compared: machines are, for each.
        first = "profile" if any(r.spec.get("memory_share") is not None for r in results) else "trace"
        lines = tuple(sorted(rest, key=lambda key: (key != "tiers", key != "transform", key != first, key != "trace"))[:1])
    return Layout(across, lines, tuple(key for key in others if key != across and key not in lines))


def along(result: Result, key: str) -> float:
    """Where the run stands on the axis of that key; 0 where it says nothing of it."""
    if key == OVERSUBSCRIPTION:
        share = number(result.spec.get("memory_share"))
        return 1 / share if share else 0.0
    return number(result.spec.get(key)) or 0.0


def number(value: Any) -> float | None:
    """A plain number, or a size, share or rate as written in an experiment, as a number; None when it is neither."""
    if isinstance(value, bool) or value is None:
        return None
    if isinstance(value, int | float):
        return float(value)
    return _parsed(value) if isinstance(value, str) else None


@lru_cache(maxsize=4096)
def _parsed(value: str) -> float | None:
    for kind in (FRACTION, BYTES, RATE):
        try:
            return float(parse(value, kind))
        except UnitError:
            continue
    return None


def text(key: str, value: Any) -> str:
    """The value of a spec key for people: "60 %", "16 GiB", "lru", "cost_aware(staleness=2)"."""
    value = LATER.get(key) if value is None else value
    if isinstance(value, Mapping):
        name = str(value.get("name", next(iter(value), "")))
        inner = value.get(name, {k: v for k, v in value.items() if k != "name"})
        values = ", ".join(f"{k}={v}" for k, v in inner.items()) if isinstance(inner, Mapping) else str(inner)
        return f"{name}({values})" if values else name
    return _text(key, value) if isinstance(value, str | int | float) or value is None else str(value)


def said(result: Result, key: str) -> Any:
    """The value of a spec key; under unified memory of the driver's victims and prefetcher, or of what is in their place."""
    value, unified = result.spec.get(key), result.spec.get("unified")
    if value is not None or key not in OF_DRIVER or unified in (None, "none"):
        return value
    named = re.search(rf"\b{key}=(\w+(?:\([^)]*\))?)", str(unified))
    return named[1] if named else OF_DRIVER[key]


@lru_cache(maxsize=16384, typed=True)  # runs of a large grid have few different values
def _text(key: str, value: str | float | None) -> str:
    if key == "transform" and value == "none":
        return "as recorded"
    if value is None:
        return "none" if key in POLICIES else "-"
    if isinstance(value, int | float) and not isinstance(value, bool):
        if key == "memory_share":
            return show_fraction(value)
        if key in ("memory", "host_memory", "host_capacity"):
            return show_bytes(value)
        return f"{value:,.6g}"
    return str(value)


def name(result: Result, keys: Iterable[str]) -> str:
    """What these keys are in this run, joined: "lru + next_k"; what all results share when there are no keys.

    A plan, release policy or grain that is the default is left out beside others: "lru", "lru + 2 MiB".
    """
    keys = list(keys)
    said_of = [key for key in keys if key != "pool" or key in result.spec] or keys  # without lenders there is no pool
    parts = [(text(key, result.spec.get(key)), result.spec.get(key, LATER.get(key)) == LATER.get(key)) for key in said_of]
    said = [word for word, default in parts if not default] or list(dict.fromkeys(word for word, _ in parts))
    return " + ".join(said)


def line_name(result: Result, lines: Sequence[str]) -> str:
    """The name of the run's line: its varying policies, or its eviction policy when none varies."""
    return name(result, lines or [key for key in ("evict",) if key in result.spec]) or "run"


def place_name(result: Result, keys: Sequence[str]) -> str:
    """The run's panel: "A100 · gpt2 · 60 % memory"."""
    parts = []
    for key in keys:
        words = text(key, result.spec.get(key))
        if key in ("memory", "memory_share"):
            words += " memory"
        elif key in ("host_memory", "host_capacity"):
            words += " host memory"
        elif number(result.spec.get(key)) is not None:
            words = f"{key} {words}"
        parts.append(words)
    return " · ".join(parts)


def kind_of(keys: Sequence[str]) -> str:
    """What the values of these keys are, in words: "eviction policy and prefetch policy"."""
    words = {
        "evict": "eviction policy", "prefetch": "prefetch policy", "place": "allocator", "defrag": "defragmentation policy",
        "plan": "plan", "release": "release policy", "pool": "pool policy", "profile": "machine", "trace": "program",
        "unified": "unified memory",
    }  # fmt: skip
    return join([words.get(key, key) for key in keys]) or "eviction policy"


def value(result: Result, metric: str) -> float | None:
    """A metric or bound of a run; slowdown follows from its parts; None when it was not measured or did not finish.

    A run out of memory has no makespan that could be compared, whatever its clock showed when it stopped.
    """
    compared = METRICS[metric].unit == "ns" or metric in RATIOS
    if compared and not result.finished and not metric.startswith("bound_"):
        return None
    found = result.metrics.get(metric, result.bounds.get(metric))
    if found is None and metric in RATIOS:
        return ratio(result.metrics.get("makespan_ns"), result.bounds.get(RATIOS[metric]))
    return None if found is None or not math.isfinite(found) else float(found)


def ratio(above: float | None, below: float | None) -> float | None:
    return above / below if above is not None and below else None


def least_makespan(result: Result) -> float | None:
    """ns below which no eviction policy gets: the time without a memory limit, or that of the bytes that must come in over the
    device's link at its full rate; None where that is not known, or where bytes come another way."""
    free, least = value(result, "bound_no_limit_ns"), value(result, "bound_swap_in_bytes")
    rate = (result.spec.get("rates") or {}).get("h2d")
    if free is None or least is None or not rate or "tiers" in result.spec or result.spec.get("remote"):
        return None
    return max(free, least / float(rate) * 1e9)


def main_metric(results: Sequence[Result]) -> str:
    """What a comparison is about, by what varies.

    Policies: slowdown where a run without memory limit is known for each finished run.  Allocators that are equally
    fast, or of which some times are not known: the memory that they hold.  Machines or programs, transformed or not:
    makespan.  Layouts of ranks, which do different numbers of batches at once: the time for one.  Programs that take turns with
    memory that does not suffice for all: the time until all have ended, as one may have ended before another begins.  Where no
    times are known: the bytes that come in, or else the memory that is held.
    """
    finished = [r for r in results if r.finished]
    differ = varying(results)
    if finished and not {*OF_RANKS}.isdisjoint(differ) and all("batch_ns" in r.metrics for r in finished):
        return "batch_ns"
    if over_committed(finished):
        return ALL_ENDED
    if results and not any("makespan_ns" in r.metrics for r in results):
        moved = any("h2d_bytes" in r.metrics for r in results)
        return "h2d_bytes" if moved and differ != ["place"] else "reserved_peak_bytes"
    competing = [key for key in POLICIES if key in differ]
    slow = [value(r, "slowdown") for r in finished]
    known = [v for v in slow if v is not None]
    if competing == ["place"] and finished:
        times = known if len(known) == len(slow) else [v for r in finished if (v := value(r, "makespan_ns")) is not None]
        held = all("reserved_peak_bytes" in r.metrics for r in finished)
        if held and (len(times) < len(finished) or same(min(times), max(times))):
            return "reserved_peak_bytes"
    if not known or len(known) < len(slow) or (not competing and len(results) > 1 and _compares_places(results)):
        return "makespan_ns"
    return "slowdown"


def over_committed(results: Sequence[Result]) -> bool:
    """Programs beside each other, in some of the runs with more memory than there is."""
    return any(str(r.spec.get("tenancy", "")).startswith(OVER_COMMIT) for r in results) and all(
        ALL_ENDED in r.metrics for r in results
    )


def _compares_places(results: Sequence[Result]) -> bool:
    return not set(REFERENCE).isdisjoint(varying(results))


def pick(results: Sequence[Result], most: int) -> tuple[list[Result], str]:
    """At most `most` runs for a figure that shows them one by one, and a note of what was left out.

    Held fast first is what the policies compete over: the smallest memory in which half of the runs finish (or one
    does), then the first such machine and program.
    """
    chosen = list(results)
    plan = layout(chosen)
    for key in (plan.across, *plan.panels):
        if len(chosen) <= most or not key:
            continue
        values = {text(key, r.spec.get(key)): r.spec.get(key) for r in chosen}
        order = sorted(values.values(), key=lambda v: number(v) or 0.0) if key == plan.across else list(values.values())
        shares = [_finishing([r for r in chosen if r.spec.get(key) == v]) for v in order]
        held = order[next((i for least in (0.5, 1e-9, 0.0) for i, s in enumerate(shares) if s >= least))]
        chosen = [r for r in chosen if r.spec.get(key) == held]
    chosen = chosen[:most]
    if len(chosen) == len(results):
        return chosen, ""
    left = varying(chosen)
    held_keys = [key for key in varying(results) if key not in left]
    where = place_name(chosen[0], held_keys)
    return chosen, f"{len(chosen)} of {len(results)} runs are shown" + (f": {where}." if where else ".")


def _finishing(results: Sequence[Result]) -> float:
    """The share of the runs that finish."""
    return sum(1 for r in results if r.finished) / len(results)


def run_name(result: Result, keys: Sequence[str], alone: str = "evict") -> str:
    """One run among others: its policies, then its place; its policy of kind `alone` when nothing varies."""
    policies = name(result, [key for key in keys if key in POLICIES])
    place = place_name(result, [key for key in keys if key not in POLICIES])
    words = " · ".join(part for part in (policies, place) if part)
    return words or name(result, [key for key in (alone,) if key in result.spec]) or "run"


def contenders(results: Sequence[Result]) -> list[Result]:
    """The runs that compete for the best: oracles only when there is nothing else."""
    return [r for r in results if not r.oracle] or list(results)


def ending(result: Result) -> str:
    """How the run ended, in words: "" when it finished."""
    if result.finished:
        return ""
    last = str((result.failure or {}).get("memory")).rstrip("0123456789")
    if result.outcome == HOST_OOM and last in FULL:
        return FULL[last]
    return {OOM: "out of memory", HOST_OOM: "host out of memory"}.get(result.outcome, result.outcome)


def human(metric: str, number: float | None) -> str:
    """A metric's value with its unit: "1.23 s", "3.4 GiB", "1.52x", "12 %"."""
    if number is None:
        return "-"
    declared = METRICS[metric]
    if metric in RATIOS:
        return f"{number:.3g}×" if number >= 10 else f"{number:.2f}×"
    if declared.unit == "ns":
        return show_time(number)
    if declared.unit == "B":
        return show_bytes(number)
    if declared.unit == "1":
        return show_fraction(number)
    if declared.unit == "1/s":
        return show_rate(number) if metric == "touched_per_s" else show_rate(number).replace("B/s", "/s")
    return f"{number:,.0f}"


def scale(kind: str, largest: float) -> tuple[float, str]:
    """(divisor, unit) in which an axis that reaches `largest` reads well; kind is "ns" or "B"."""
    steps = (
        ((2.0**40, "TiB"), (2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B"))
        if kind == "B"
        else ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))
    )
    return next(((d, u) for d, u in steps if abs(largest) >= d), steps[-1])


def main_unit(metric: str, largest: float) -> tuple[float, str]:
    """Divisor and axis label of a metric whose axis reaches `largest`; a remark stands after two spaces."""
    if metric == "slowdown":
        return 1.0, "slowdown [×]  (1 = no memory limit)"
    if metric == "over_oracle":
        return 1.0, "makespan over oracle eviction [×]"
    if metric == "over_best_plan":
        return 1.0, "makespan over the best plan found [×]"
    if metric == "touched_per_s":
        return 1e9, "bytes touched [GB/s]"
    declared = METRICS[metric]
    if declared.unit in ("ns", "B"):
        divisor, word = scale(declared.unit, largest)
        return divisor, f"{declared.label} [{word}]"
    return (0.01, f"{declared.label} [%]") if declared.unit == "1" else (1.0, declared.header)
