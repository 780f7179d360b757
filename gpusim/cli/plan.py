"""`gpusim plan`: what a plan policy decides for a program on a machine, as a file that can be read, changed and run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import typer

from gpusim.base.errors import PolicyError
from gpusim.cli.output import emit, emit_json


def plan(
    name: str, machine: str, policy: str, *, memory: str, tiers: str, evict: str, out: Path | None, use: Sequence[str],
    json: bool,
) -> None:  # fmt: skip
    """Run the program as planned; write the plan, and the program when the policy had rewritten it."""
    from gpusim.base.files import write_text
    from gpusim.base.yaml.find import find
    from gpusim.base.yaml.values import capacity
    from gpusim.engine.run.simulate import simulate
    from gpusim.machine import catalogue
    from gpusim.machine.roofline import durations
    from gpusim.machine.tiers import parse
    from gpusim.policies.contract import EVICT, PREFETCH
    from gpusim.policies.plan.file import written
    from gpusim.trace.answers import require
    from gpusim.trace.files import load_trace, save_trace
    from gpusim.trace.workload import build

    trace, profile = load_trace(find("trace", name)), catalogue.load(machine)
    require(trace, ("accesses", "times"), "gpusim plan")
    work = build(trace, durations(trace, profile)[0])
    whole = int(profile.memory.capacity.value - profile.context.value)
    room = capacity(memory).resolve(work.live_peak, whole)
    below = parse(tiers, profile)
    result = simulate(trace, profile, plan=policy, tiers=tiers, evict=evict, capacity_bytes=room, work=work, use=use)
    if result.schedule is None:
        raise PolicyError(f"'{policy}' plans nothing")
    path = out or Path(f"{trace.name}-{policy.partition('(')[0]}.csv")
    write_text(path, written(result.schedule, [tier.name for tier in below]))
    files = [path]
    if result.program is not None:
        files.append(path.with_suffix(".npz"))
        save_trace(result.program, files[-1])
    size, actions = (result.program or trace).size, result.schedule.actions
    of = {word: actions["unit"][actions["verb"] == verb] for word, verb in (("evict", EVICT), ("prefetch", PREFETCH))}
    of["remote"] = result.schedule.remote
    rows: list[dict[str, Any]] = [
        {"action": word, "rows": len(units), "tensors": len(np.unique(units)), "bytes": int(size[units].sum())}
        for word, units in of.items()
    ]
    done = {name: result.metrics[name] for name in ("plan_evictions", "plan_prefetches", "plan_skipped", "makespan_ns")}
    if json:
        emit_json({"files": files, "planned": rows, "outcome": result.outcome, **done})
        return
    typer.echo(f"{' and '.join(map(str, files))}: what {policy} plans for {trace.name} on {profile.name}\n")
    emit(rows)
    skipped = f"{done['plan_skipped']:,} of its actions could not be carried out"
    typer.echo(f"\nThe run {'finished' if result.finished else 'ended: ' + result.outcome}; {skipped}.")
