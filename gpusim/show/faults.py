"""A fault report in words and tables: what the time went to and why, faults by cause, bytes, and which allocations thrash."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpusim.base.text import join, table
from gpusim.base.units import show_bytes, show_fraction, show_time
from gpusim.results.faults import BESIDE, FAULTS, TIMES, AllocationFaults, FaultReport, percentile
from gpusim.show.view import human

if TYPE_CHECKING:
    from gpusim.engine.pages.advisor import Advised, Finding  # compiled code comes with it, which no figure needs

MOST = 8         # allocations of a table
LITTLE = 0.02    # share of the makespan below which nothing is said of a part
FEW_TWICE = 1e-4  # share of duplicates below which nothing is said of them
FEW = 8          # faults of a batch that its fixed costs are hardly shared by


def verdict(report: FaultReport, free_ns: float | None = None) -> str:
    """What the time went to and why, in sentences.

    free_ns  the makespan with memory for everything, when it is known: what is above is the price of too little
    """
    said = [_ping_pong(report), _remote(report), _driver(report, _lost(report, free_ns) > 0), _waste(report)]
    return " ".join(filter(None, [brief(report, free_ns), *said]))


def brief(report: FaultReport, free_ns: float | None = None) -> str:
    """The first of these sentences: what the time went to, and the allocation with most pages that come again."""
    return " ".join(filter(None, [_headline(report, free_ns), _thrash(report)]))


def _headline(report: FaultReport, free_ns: float | None) -> str:
    if report.failed:
        return f"It ended early: {report.failed}."
    total = report.makespan_ns
    own = report.times["gpu"] + report.times["cpu"]
    if free_ns is not None and (lost := _lost(report, free_ns)):
        return (
            f"{_share(lost, total)} of the {show_time(total)} are lost: with room for everything the fastest of these settings "
            f"takes {show_time(free_ns)}, so this is {human('slowdown', total / free_ns)}."
        )
    if own >= (1 - LITTLE) * total:
        return f"Nearly all of the {show_time(total)} is the program's own work."
    parts = sorted(((ns, TIMES[name]) for name, ns in report.times.items() if name not in ("gpu", "cpu")), reverse=True)
    largest = join([f"{words} {_share(ns, total)}" for ns, words in parts[:3] if ns > LITTLE * total])
    return f"Of {show_time(total)}, {_share(own, total)} is the program's own work; {largest}."


def _lost(report: FaultReport, free_ns: float | None) -> float:
    """ns above the reference; 0 where they are few or not known, and where nothing had to leave, so that memory suffices."""
    if free_ns is None or not report.moved("went", "eviction"):
        return 0.0
    lost = report.makespan_ns - free_ns
    return lost if lost > LITTLE * free_ns else 0.0


def _share(part: float, total: float) -> str:
    return f"{100 * part / total:.0f} %" if total else "-"


def _thrash(report: FaultReport) -> str:
    """The allocation with most pages that come again, and the order in which it is accessed."""
    again = report.sum("again")
    came = report.moved("came")
    if not came or again < LITTLE * came:
        return ""
    worst = max(report.allocations, key=lambda a: a.again)
    of, all_of = show_bytes(again), show_bytes(came)
    moved = f"{'The' if of == all_of else f'{of} of the'} {all_of} that came to the GPU had been evicted from it before"
    times = worst.brought / worst.bytes
    whose = f"{worst.name} came {times:.1f} times over" if times > 1 else f"{show_bytes(worst.again)} of it are {worst.name}"
    room = f"{show_bytes(report.memory_bytes)} for {show_bytes(report.footprint_bytes)}"
    why = ""
    if worst.swept and times > 1:
        way = "its first byte to its last" if worst.swept > 0 else "its last byte to its first"
        why = (
            f": it is asked for from {way}, again and again, and what was served first leaves first, just before its next turn"
        )
    return f"{moved} ({room}); {whose}{why}."


def _ping_pong(report: FaultReport) -> str:
    worst = max(report.allocations, key=lambda a: a.ping_pong, default=None)
    if worst is None or worst.ping_pong < LITTLE * max(report.moved("came"), 1) or not worst.ping_pong:
        return ""
    did = [(f"{word} {n:,}", n) for word, n in (("throttled", worst.faults["throttled"]), ("pinned", worst.pinned)) if n]
    pages = "page" if did and did[-1][1] == 1 else "pages"
    held = f"; the driver {' and '.join(text for text, _ in did)} {pages}" if did else ""
    back = sum(worst.went.values()) - worst.went["eviction"]
    return (
        f"{worst.name} goes to and fro: the CPU took {show_bytes(back)} from the GPU, "
        f"and {show_bytes(worst.ping_pong)} came back{held}."
    )


def _remote(report: FaultReport) -> str:
    if report.times["remote"] < LITTLE * report.makespan_ns:
        return ""
    worst = max(report.allocations, key=lambda a: a.remote)
    return (
        f"Kernels wait {_share(report.times['remote'], report.makespan_ns)} of the time for memory that stays on the other "
        f"side of the link, most of it {worst.name} ({show_bytes(worst.remote)})."
    )


def _driver(report: FaultReport, with_share: bool) -> str:
    """Batches that are small make faults expensive.  with_share: what of the time that is was not said before."""
    batches = report.processes[0].batches if report.processes else sum(count for _, count in report.batches)
    if not batches or report.times["driver"] < 0.25 * report.makespan_ns:
        return ""
    half = percentile(report.batches, 0.5)
    cost = show_time(report.times["driver"] / batches)
    share = _share(report.times["driver"], report.makespan_ns)
    work = f"The driver works {cost} on the host"
    if with_share:
        work = f"The driver's work on the host is {share} of the time, {cost}"
    few = ": a fault at a time costs most" if half <= FEW else ""
    if report.processes:  # sizes are known of all processes together
        return f"{work} for each of {batches:,} batches."
    return (
        f"{work} for each of {batches:,} batches, "
        f"half of which have {f'{half} faults or fewer' if half > 1 else 'one fault'}{few}."
    )


def _waste(report: FaultReport) -> str:
    wasted, ahead = report.sum("wasted"), report.moved("came", "prefetch", "explicit")
    if ahead == 0 or wasted < 0.1 * ahead:
        return ""
    return f"{show_bytes(wasted)} were prefetched, and evicted or migrated away untouched."


def text(report: FaultReport, name: str, free_ns: float | None = None) -> str:
    """What `gpusim faults` prints of one run."""
    parts = [name, verdict(report, free_ns), *report.told]
    parts.append(table(_times(report), ("where the time went", "time", "share")))
    if report.beside:
        parts.append(table(_beside(report), ("what went side by side", "time", "of makespan")))
    if report.processes:
        together = _processes(report)
        parts.append(table(together, list(together[0])))
    parts += [f"Faults    {_faults(report)}", f"Batches   {_batches(report)}", f"Bytes     {_bytes(report)}"]
    rows = _allocations(report.allocations[:MOST])
    parts.append(table(rows, list(rows[0])))
    if len(report.allocations) > MOST:
        parts.append(f"... and {len(report.allocations) - MOST} more allocations")
    return "\n\n".join(part for part in parts if part)


def markdown(report: FaultReport, name: str, free_ns: float | None = None) -> str:
    """The same as a section of report.md, shorter."""
    rows = _allocations(report.allocations[:MOST])
    lines = ["| " + " | ".join(rows[0]) + " |", "| --- |" + " ---: |" * (len(rows[0]) - 1)]
    lines += ["| " + " | ".join(str(v) for v in row.values()) + " |" for row in rows]
    facts = [f"Faults: {_faults(report)}.", f"Batches: {_batches(report)}.", f"Bytes: {_bytes(report)}."]
    return "\n\n".join([f"{name}", verdict(report, free_ns), "\n".join(f"- {fact}" for fact in facts), "\n".join(lines)])


def advice(found: Advised, free_ns: float | None = None) -> str:
    """What helps, and by how much."""
    tried = f"{found.tried} programs were simulated"
    if not found.steps:
        return f"No hint helps: {tried}." if found.tried else "No hint was tried: no allocation costs much."
    if free_ns is not None and found.base_ns <= (1 + LITTLE) * free_ns:
        free_ns = None  # as fast as with room for everything: times say more than slowdowns of one
    lines = [f"What would help ({tried})"]
    lines += [f"  {'and ' if k else ''}{_finding(step, free_ns)}" for k, step in enumerate(found.steps)]
    others = [f for f in found.alone if f.said != found.steps[0].said]
    if others:
        lines.append("Alone, on one allocation, at best")
        lines += [f"  {_finding(f, free_ns)}" for f in others]
    return "\n".join([*lines, f"As a run: unified: driver(advice={found.said})"])


def _finding(found: Finding, free_ns: float | None) -> str:
    """ "preferred location GPU for `edges`: 12.3x -> 3.1x, 8.2 s saved"."""
    before, after = (_over(ns, free_ns) for ns in (found.before_ns, found.after_ns))
    saved = found.before_ns - found.after_ns
    if not math.isfinite(found.after_ns):
        return f"`{found.allocation}`: every hint fails"
    worth = f"{show_time(saved)} saved" if saved > 0 else f"{show_time(-saved)} lost" if saved < 0 else "nothing changes"
    return f"{found.about} for `{found.allocation}`: {before} → {after}, {worth}"


def _over(ns: float, free_ns: float | None) -> str:
    return human("slowdown", ns / free_ns) if free_ns else show_time(ns)


def _times(report: FaultReport) -> list[dict[str, object]]:
    return [
        {"where the time went": TIMES[name], "time": show_time(ns), "share": _share(ns, report.makespan_ns)}
        for name, ns in sorted(report.times.items(), key=lambda item: -item[1]) if ns >= 1.0
    ]  # fmt: skip


def _processes(report: FaultReport) -> list[dict[str, object]]:
    """The processes that have the GPU together, the run's own first."""
    return [
        {
            "process": f"{number} {one.name}", "makespan": show_time(one.makespan_ns), "GPU faults": one.faults,
            "batches": one.batches, "came": show_bytes(one.came), "came again": show_bytes(one.again),
            "chunks evicted for it": one.made_room, "evicted of it": show_bytes(one.lost),
        }
        for number, one in enumerate(report.processes)
    ]  # fmt: skip


def _beside(report: FaultReport) -> list[dict[str, object]]:
    """Kernels of several streams or GPUs, and copies beside work: their own times add up to more than the time that passed."""
    return [
        {"what went side by side": words, "time": show_time(ns), "of makespan": _share(ns, report.makespan_ns)}
        for name, words in BESIDE.items() if (ns := report.beside.get(name, 0.0))
    ]  # fmt: skip


def _faults(report: FaultReport) -> str:
    asked = [f"{FAULTS[k]} {n:,}" for k in list(FAULTS)[:4] if (n := report.total(k))]
    gpu = report.total("gpu_reads") + report.total("gpu_writes")
    why = [f"{FAULTS[k]} {n:,}" for k in list(FAULTS)[4:] if (n := report.total(k))]
    of = ", of these" if len(asked) == 1 else f"; of the {gpu:,} of the GPU:"
    return f"{', '.join(asked) or 'none'}" + (f"{of} {', '.join(why)}" if why else "")


def _batches(report: FaultReport) -> str:
    sizes = report.batches
    count = sum(n for _, n in sizes)
    if not count:
        return "none"
    fetched = sum(size * n for size, n in sizes)
    middle, high, most = percentile(sizes, 0.5), percentile(sizes, 0.9), sizes[-1][0]
    c, of_all = report.counts, ""
    each = f"{most} faults" if middle == fetched / count == most else (
        f"{fetched / count:.1f} faults (median {middle}, p90 {high}, largest {most})"
    )  # fmt: skip
    if report.processes:
        of_all = f"; those of all processes: {count:,} of {each}"
        count, fetched = c["batches"], c["fetched"]
        if not count:
            return f"none{of_all}"
        each = f"{fetched / count:.1f} faults"
    twice = c["duplicates"] / fetched
    of = f"{show_fraction(twice)} duplicates" if twice > FEW_TWICE else ""
    of += f"{', ' if of else ''}{c['satisfied']:,} already served" if c["satisfied"] else ""
    dropped = f"{c['dropped']:,} dropped, " if c["dropped"] else ""
    of = f"of {fetched:,} fetched {of}; " if of else ""
    return f"{count:,} of {each}; {of}{dropped}{c['replays']:,} replays{of_all}"


def _bytes(report: FaultReport) -> str:
    moved = {
        "demanded": report.moved("came", "demand"), "prefetched": report.moved("came", "prefetch"),
        "by cudaMemPrefetchAsync": report.moved("came", "explicit"), "by access counters": report.moved("came", "counter"),
        "came again": report.sum("again"), "wasted": report.sum("wasted"),
        "evicted": report.moved("went", "eviction"), "of these clean": report.sum("evicted_clean"),
        "to the CPU": report.moved("went") - report.moved("went", "eviction"), "ping-pong": report.sum("ping_pong"),
        "remote": report.sum("remote"),
    }  # fmt: skip
    return ", ".join(f"{words} {show_bytes(n)}" for words, n in moved.items() if n) or "none"


def _allocations(allocations: Sequence[AllocationFaults]) -> list[dict[str, str]]:
    """Worst first: what thrashes, then what took longest to serve."""
    of_cpu = any(a.cpu_service_ns for a in allocations)
    return [
        {
            "allocation": a.name, "size": show_bytes(a.bytes),
            "GPU faults": f"{a.faults['gpu_reads'] + a.faults['gpu_writes']:,}",
            "CPU faults": f"{a.faults['cpu_reads'] + a.faults['cpu_writes']:,}", "came": _size(a.brought),
            "came again": _size(a.again), "ping-pong": _size(a.ping_pong), "wasted": _size(a.wasted), "remote": _size(a.remote),
            "serving GPUs": show_time(a.service_ns) if a.service_ns else "-",
            **({"serving CPU": show_time(a.cpu_service_ns) if a.cpu_service_ns else "-"} if of_cpu else {}),
        }
        for a in allocations
    ]  # fmt: skip


def _size(value: int) -> str:
    return show_bytes(value) if value else "-"
