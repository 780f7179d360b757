"""The answer of a study in words and rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

from gpusim.base.text import join, table
from gpusim.base.units import show_bytes, show_time
from gpusim.machine.kernels.remarks import emulated
from gpusim.programs.transforms.scaling import recorded_size
from gpusim.studies.capacity import report_ranks
from gpusim.studies.capacity.assumptions import Assumption, of_machine, of_program
from gpusim.studies.capacity.assumptions import values as assumption_values
from gpusim.studies.capacity.machine import estimates
from gpusim.studies.capacity.need import BYTES_PER_PARAMETER, count, rule_of_thumb
from gpusim.studies.capacity.study import CapacityStudy, MachineAnswer, Way
from gpusim.studies.capacity.times import WHERE


def rows(found: CapacityStudy) -> list[dict[str, Any]]:
    """A row for each machine, the best answer first."""
    return [_row(a, a.best(), found) for a in ordered(found)]


def rows_of_several(found: CapacityStudy) -> list[dict[str, Any]]:
    """A row for each machine that needs several GPUs, or could do better with them."""
    return [_row(a, way, found) for a in ordered(found) if (way := a.best(several=True))]


def ordered(found: CapacityStudy) -> list[MachineAnswer]:
    """The machines on which it fits as it is, then those that can be helped, then the others; the faster first."""
    return sorted(
        found.answers,
        key=lambda a: (not a.fits, (way := a.best()) is None, (way and way.step_ns) or 0, -a.capacity, a.profile.name),
    )


def _row(a: MachineAnswer, way: Way | None, found: CapacityStudy) -> dict[str, Any]:
    return {
        "machine": a.profile.name,
        "has": show_bytes(a.capacity),
        "fits": "yes" if a.fits else "no",
        "with": "" if a.fits else str(way.remedy) if way else "nothing that was tried",
        **({"GPUs": way.remedy.gpus} if way and way.remedy.gpus > 1 else {}),
        "reserves": show_bytes(way.reserved) if way else "",
        **({} if found.timeless else _times(a, way)),
        **({} if found.timeless or (way and way.remedy.gpus > 1) else {"largest batch": _batch(a, found)}),
        **({"emulates": ", ".join(types)} if (types := emulated(found.need.trace, a.profile)) else {}),
    }


def _times(a: MachineAnswer, way: Way | None) -> dict[str, str]:
    if way is None or way.step_ns is None:
        return {"step, estimated": "", "slowdown, estimated": ""}
    return {"step, estimated": way.bar.shown(way.step_ns), "slowdown, estimated": f"{a.slowdown(way) or 1.0:.2f}x"}


def _batch(a: MachineAnswer, found: CapacityStudy) -> str:
    """In samples where the recording says how many it has, else in recorded batches."""
    times = a.batch if a.helped is None else a.helped
    if not times:
        return "" if times is None else "none"
    if recorded_size(found.need.trace, ("batch",)):
        return f"{times:,.0f}"
    return f"{times:.2f} x" if times < 10 else f"{times:.0f} x"


def heading(found: CapacityStudy) -> str:
    """What the program needs, of what that consists, and the rule of thumb beside it."""
    n = found.need
    parts = sorted(n.by_role.items(), key=lambda item: -item[1])
    lines = [
        f"{n.trace.name} needs {show_bytes(n.reserved)} (reserved; {show_bytes(n.live)} allocated): "
        + ", ".join(f"{name} {show_bytes(size)}" for name, size in parts),
    ]
    thumb = rule_of_thumb(n.trace)
    if thumb:
        number = count(n.trace)
        lines.append(
            f"Rule of thumb, {BYTES_PER_PARAMETER} bytes for each of {number:,} parameters: {show_bytes(thumb)}, "
            f"{thumb / n.reserved - 1:+.0%} from that; it knows nothing of activations"
        )
    return "\n".join(lines)


def assumed(found: CapacityStudy) -> list[Assumption]:
    """Every assumption of the answer."""
    trace = found.need.trace
    return [*of_program(trace), *of_machine(trace, found.settings, [a.profile for a in found.answers])]


def remarks(found: CapacityStudy) -> list[str]:
    """What is to be said of times, emulated types and estimated numbers, a sentence each."""
    lines = of_times(found)
    guessed = Counter(path for a in found.answers for path in estimates(a.profile))
    if guessed:
        of = len(found.answers)
        words = ", ".join(f"{path} ({number} of {of} machines)" for path, number in guessed.most_common())
        lines.append(f"Estimated numbers of the profiles, each machine's in fit.json: {words}.")
    return lines


def of_times(found: CapacityStudy) -> list[str]:
    """What is to be said of times and emulated types."""
    lines = [f"No times: {found.timeless}" if found.timeless else f"{WHERE}{_deciding(found)}."]
    lines += _host_bound(found)
    emulating: dict[tuple[str, str], list[str]] = {}
    for a in found.answers:
        for pair in emulated(found.need.trace, a.profile).items():
            emulating.setdefault(pair, []).append(a.profile.name)
    for (name, by), machines in emulating.items():
        lines.append(f"{name} is emulated in {by} on {join(machines)}: as much memory, and slower.")
    return lines


def _host_bound(found: CapacityStudy) -> list[str]:
    """On which machines the host takes longer to submit a step than the GPU to run it, as a sentence."""
    slow = [a for a in found.answers if a.bar.host_bound and not found.timeless]
    if not slow:
        return []
    most = max(slow, key=lambda a: a.bar.host_ns - a.bar.device_ns)
    bar, of = most.bar, f"{len(slow)} of {len(found.answers)} machines" if len(found.answers) > 1 else most.profile.name
    return [
        f"A step is bound by the host on {of}: it submits {bar.operators:,} operators in {show_time(bar.host_ns)}, longer than "
        f"the {show_time(bar.device_ns)} of the GPU on {most.profile.name}. A CUDA graph would leave the GPU's time: "
        f"{most.profile.name}(launch.eager=0 us, launch.submit=0 us)."
    ]


def _deciding(found: CapacityStudy) -> str:
    """On which classes of kernels the intervals depend most."""
    most = Counter(a.bar.decides for a in found.answers if a.bar.decides)
    of = f" of {len(found.answers)} machines" if len(found.answers) > 1 else ""
    words = join([f"{what} ({number}{of})" if of else what for what, number in most.most_common()])
    return f"; most of it comes from the kernels of class {words}" if most else ""


def answer(found: CapacityStudy) -> str:
    """One sentence."""
    fits = [a for a in found.answers if a.fits]
    helped = [a for a in found.answers if not a.fits and a.best()]
    ranked = {a.profile for a in found.ranks if a.best}
    together = [a for a in found.answers if not a.best() and (a.ways or a.profile.name in ranked)]
    words = f"It fits {len(fits)} of {len(found.answers)} machines as it is"
    if fits and (step := ordered(found)[0].ways[0].step_ns) is not None:
        first = ordered(found)[0]
        words += f", fastest on {first.profile.name} with an estimated {first.ways[0].bar.shown(step)} a step"
    if helped:
        words += f"; {len(helped)} more when tensors are recomputed or moved elsewhere"
    if together:
        words += f"; {len(together)} only as one of several GPUs"
    return words + "."


def untried(found: CapacityStudy) -> str:
    """Which machines needed none of what was to be tried, as a sentence; "" where all did."""
    ranked = {a.profile for a in found.ranks}
    names = [a.profile.name for a in found.answers if a.fits and a.profile.name not in ranked]
    if not names:
        return ""
    where = join(names) if len(names) < 4 else f"{len(names)} of {len(found.answers)} machines"
    return f"Nothing was tried on {where}: the program fits as it is. `gpusim advise` tries what would help all the same."


def apart(found: CapacityStudy, gpus: int) -> list[str]:
    """Why nothing that takes so many GPUs helps, a sentence for each machine on which that is so."""
    said = []
    for a in found.answers:
        reasons = [why for remedy, why in a.refused.items() if f"ranks={gpus}" in remedy]
        if reasons and not a.best(several=True):
            said.append(f"{gpus} x {a.profile.name} do not help: {join(list(dict.fromkeys(reasons)))}.")
    return said


def text(found: CapacityStudy, asked: int | None = None, program: str = "", made: str = "") -> str:
    """The whole answer, as `gpusim fit` prints it.

    asked    GPUs for which something was to be tried; None: nothing was asked for
    program  the trace as `gpusim run` reads it, and the command that makes it where it is kept in no file
    """
    lines = [heading(found), "", "Assumed:", *(f"  {line}" for line in assumed(found)), "", _table(rows(found))]
    if several := rows_of_several(found):
        lines += ["", "As one of several GPUs, whose peers are not simulated:", "", _table(several)]
    if found.ranks:
        lines += ["", "Over the GPUs of a machine, all ranks simulated:", "", _table(report_ranks.rows(found.ranks))]
    lines += [f"not tried: {chain} ({why})" for chain, why in found.impossible.items()]
    lines += [words for words in (untried(found), *apart(found, asked)) if words] if asked else []
    if asked and asked > 1:
        lines += report_ranks.unknown([a.profile.name for a in found.answers], found.ranks, asked)
    lines += ["", *remarks(found), "", answer(found), *report_ranks.sentences(found.ranks)]
    if again := report_ranks.commands(found.ranks, program or found.need.trace.name, found.settings):
        commands = [made, *again] if made else again
        lines += ["", "Each of them again, with a table of its ranks:", *(f"  {line}" for line in commands)]
    return "\n".join(lines)


def _table(found: list[dict[str, Any]]) -> str:
    return table(found, list(found[0])) if found else ""


def values(found: CapacityStudy, program: str = "") -> dict[str, Any]:
    """All of it as JSON values; sizes in bytes, times in ns; `program` as in `text`."""
    n = found.need
    return {
        "trace": n.trace.name,
        "assumptions": assumption_values(assumed(found)),
        "remarks": remarks(found),
        "live_bytes": n.live,
        "reserved_bytes": n.reserved,
        "at_peak": n.by_role,
        "parameters": count(n.trace),
        "rule_of_thumb_bytes": rule_of_thumb(n.trace),
        "remedies": {chain: {"live_bytes": x.live, "reserved_bytes": x.reserved} for chain, x in found.needs.items()},
        "impossible": found.impossible,
        "machines": [
            {
                "profile": a.profile.name, "capacity_bytes": a.capacity, "fits": a.fits, "free_ns": a.free_ns,
                "largest_batch": a.batch, "largest_batch_with": a.helped, "refused": a.refused,
                "emulated": tuple(emulated(n.trace, a.profile)), "estimated_numbers": estimates(a.profile),
                "ways": [
                    *(_way(a, way) for way in a.ways), *report_ranks.ways(found.ranks, a.profile.name, a.free_ns),
                ],
            }
            for a in ordered(found)
        ],
        "ranks": report_ranks.values(found.ranks, program or n.trace.name, found.settings),
    }  # fmt: skip


def _way(a: MachineAnswer, way: Way) -> dict[str, Any]:
    times: dict[str, Any] = {"step_ns": None, "slowdown": None}
    if way.step_ns is not None:
        low, high = way.bar.interval(way.step_ns)
        times = {
            "step_ns": way.step_ns, "low_ns": low, "high_ns": high, "basis": "estimated", "decides": way.bar.decides,
            "device_ns": way.bar.device_ns, "host_ns": way.bar.host_ns,
            "slowdown": a.slowdown(way),
        }  # fmt: skip
    return {"remedy": str(way.remedy), "gpus": way.remedy.gpus, "reserved_bytes": way.reserved, **times}
