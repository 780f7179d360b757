"""The referee: recomputes a result from its event log and shares no code with the simulator.

It reads only the log's format, the trace, and numbers of the result's spec; it imports neither engine nor policies nor
the compiled island.  `check` asks, in this order, and stops where nothing further would make sense:

    is every record well formed, does time never fall?                                   activities.well_formed
    did tensors begin, end, and kernels go out in the order of the trace?                activities.program_order
    did every activity start and end once, after it was submitted?                       activities.collect
    did queues keep their turns, links their rates, streams their waits?                 activities.*
    did no blocks overlap, was every read served from a valid copy, did each
    reuse of a block wait for the uses before it?                                        memory.walk
    did policies decide what the log says that they decided?                             decisions.check
    does every activity take its time on this machine, does every wait end with its cause?  times.check
    is every stall that the log tells of one, for its cause and as long?                 stalls.check
    was every row of the timeline a state of the log?                                    timeline.check
    do the bounds follow from the program, the ratios from both?                         bounds.check
    do the metrics equal what the log adds up to?                                        totals.totals

Times need the machine's profile; without one they are not checked.

`ranks.check` asks the same of runs on the devices of one machine, and when bytes arrive of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gpusim.machine.identity import profile_hash
from gpusim.machine.kernels.own_times import OwnTimes
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import Tier
from gpusim.referee import activities, bounds, decisions, ends, memory, rates, timeline, times
from gpusim.referee.numbers import agree, numbers, paced
from gpusim.referee.packing import packing
from gpusim.referee.records import Records
from gpusim.referee.report import Findings, Report, Violation
from gpusim.referee.tiers import tiers
from gpusim.referee.totals import totals
from gpusim.results.log import READ, VERSION
from gpusim.results.result import Result
from gpusim.trace.grain import cut, parse
from gpusim.trace.trace import Trace

__all__ = ["Report", "Violation", "check"]


def check(result: Result, trace: Trace, profile: Profile | None = None, own: OwnTimes | None = None) -> Report:
    """Recompute `result` from its log and the trace it ran; a result without a log is unchecked (ok is None).

    profile  the machine that it ran on; None: times are not checked
    own      the user's own measured times of kernels there

    Linear in the records of the log and the accesses of the trace.
    """
    if result.log is None:
        return Report(ok=None)
    found = Findings()
    recompute(result, trace, profile, own, found)
    return found.report()


def recompute(
    result: Result, trace: Trace, profile: Profile | None, own: OwnTimes | None, found: Findings,
    met: Mapping[int, int] | None = None, judge: times.Judge = ends.check, below: tuple[Tier, ...] = (), *,
    beside: bool = False,
) -> None:  # fmt: skip
    """All of `check`, of a result that has a log.

    met    operators that end with those of other runs, whose ends are left to the judge, and multiprocessors of each
    below  the memories below its device, where others lend some of them
    judge  compares the ends of what the run has started with those that follow; not asked where nothing follows
    beside  other programs run on its device: starts and ends of kernels are left to the judge
    """
    assert result.log is not None
    other = _other(result, trace, profile)
    if other is not None:
        found.say(-1, *other)
        return
    given = trace
    if result.program is not None and result.program.content_hash != trace.content_hash:
        trace = result.program  # which a plan policy has made of it
    machine = None
    if profile is not None:
        codec = {name: rate / 1e9 for name, rate in packing(trace).rates.items()}
        machine = replace(numbers(result.spec, given, trace, profile, codec, own, met, below), beside=beside)
    bounds.footprint(result.spec, given, found)
    whole = trace
    if "grain" in result.spec:
        trace = cut(trace, parse(result.spec["grain"]))
    log = Records(result.log)
    memories = tiers(result.spec)
    # `and` in this order: each line may rely on those before it.
    if activities.well_formed(log, trace, memories, found) and activities.program_order(log, trace, result.finished, found):
        acts = activities.collect(log, trace, memories, result.finished, found, np.fromiter(met or (), np.int64))
        if acts is not None:
            activities.queue_discipline(acts, memories, found)
            limits = {**result.spec.get("rates", {}), **packing(trace).rates}
            rates.link_rates(acts, trace, memories, limits, found)
            activities.streams_in_order(acts, trace, found)
            ledger = memory.walk(log, acts, trace, memories, found)
            timed: dict[str, int | float] = dict(decisions.check(log, found))
            if machine is not None and profile is not None:
                machine = paced(machine, result.spec, trace, profile, acts, met)
                agree(result.spec, machine, memories, found)
                timed |= machine.known | times.check(result, log, acts, trace, memories, machine, found, judge)
                bounds.check(result, trace, whole, machine.duration, packing(trace).on_wire, found)
            timeline.check(result, log, acts, trace, found)
            totals(result, log, acts, trace, memories, ledger, timed, found)


def _other(result: Result, trace: Trace, profile: Profile | None) -> tuple[str, str] | None:
    """What of these is not that of the run, and what it should be; None when all are."""
    spec, program = result.spec, result.program
    if spec.get("trace_hash", trace.content_hash) != trace.content_hash:
        return f"the trace {trace.name} is not the one that ran", "the same content"
    version = spec.get("log_version", 1) if "trace_hash" in spec else VERSION
    if version not in READ:
        return f"the event log is of version {version}", f"{' or '.join(map(str, READ))}, which this program reads: run again"
    if program is not None and spec.get("program_hash") != program.content_hash:
        return f"the program {program.name} is not the one that ran", "the same content"
    if profile is not None and spec.get("profile_hash", ran := profile_hash(profile)) != ran:
        return f"the profile {profile.name} is not that of the machine that ran", "the same numbers"
    return None
