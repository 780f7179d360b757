"""Write what a plan policy decides as a CSV file, which the plan policy `file` runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from gpusim.base.errors import PolicyError
from gpusim.cli import complete, words
from gpusim.cli.options import Json, Machine, MachineOnce, Trace, Use, output
from gpusim.cli.output import emit, emit_json


def verb(
    name: Trace,
    before: MachineOnce = None,
    *,
    policy: Annotated[
        str, typer.Option("--plan", help="The plan policy, with its parameters.", autocompletion=complete.policies)
    ],
    on: Machine = None,
    use: Use = None,
    memory: Annotated[str, typer.Option("--memory", help="Device memory: a size, or a share of the footprint.")] = "capacity",
    tiers: Annotated[str, typer.Option("--tiers", help="The memories below, nearest first: 'host > nvme'.")] = "host",
    evict: Annotated[str, typer.Option("--evict", help="Eviction policy for what the plan does not cover.")] = "lru",
    out: Annotated[Path | None, output("The file to write; default: TRACE-PLAN.csv.")] = None,
    json: Json = False,
) -> None:
    """Run the program as planned; write the plan, and the program when the policy had rewritten it."""
    from gpusim.base.files import write_text
    from gpusim.base.yaml.values import capacity
    from gpusim.engine.run.simulate import simulate
    from gpusim.machine.kernels.durations import durations
    from gpusim.machine.tiers import parse
    from gpusim.policies.contract import EVICT, PREFETCH
    from gpusim.policies.plan.file import written
    from gpusim.trace.answers import require
    from gpusim.trace.files import save_trace
    from gpusim.trace.workload import build

    trace, profile = words.trace(name), words.machine(on, "gpusim plan", before)
    require(trace, ("accesses", "times"), "gpusim plan")
    work = build(trace, durations(trace, profile).ns)
    room = capacity(memory).resolve(work.live_peak, words.room(profile))
    below = parse(tiers, profile)
    result = simulate(trace, profile, plan=policy, tiers=tiers, evict=evict, capacity_bytes=room, work=work, use=use or ())
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
