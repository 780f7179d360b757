"""When jobs that arrive at a cluster end, by scheduler, and how many GPUs they need.

    gpusim cluster --gpus "16 x 8 v100" --arrivals "poisson(jobs=1000, rate=20)" --scheduler shortest_first
    gpusim cluster --gpus "? x 8 v100" --arrivals jobs.csv --scheduler best_fit --goal "wait p90 1 h"
    gpusim cluster how_many_gpus                              a shipped question
    gpusim cluster --gpus "64 x 8 h100" --arrivals "poisson(rate=40)" --failures llama3 --every "30 min" --spare 2
    gpusim cluster --gpus "8 v100, 16 p100" --arrivals max_min.trace --rates throughputs.json --scheduler gandiva
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.options import Json, Use, output
from gpusim.cli.output import emit, emit_json

if TYPE_CHECKING:
    from gpusim.studies.cluster.answer import ClusterAnswer


def verb(
    question: Annotated[str, typer.Argument(metavar="[QUESTION]", help="A YAML file, or one that ships: how_many_gpus.")] = "",
    *,
    gpus: Annotated[str, typer.Option(help="Nodes: '16 x 8 v100', '8 v100, 4 p100', a CSV; '? x 8 v100': the fewest.")] = "",
    arrivals: Annotated[str, typer.Option(help="A trace (.trace, .csv), or poisson, diurnal, bursts, like(jobs=1000).")] = "",
    scheduler: Annotated[list[str] | None, typer.Option(help="A policy of kind jobs; default: first_come. Repeatable.")] = None,
    rates: Annotated[str, typer.Option(help="Steps a second: Gavel's JSON; or island(sharing=mps): simulated.")] = "",
    round: Annotated[str, typer.Option(help="Length of a round, where the scheduler answers shares of time.")] = "360 s",
    restart: Annotated[str, typer.Option(help="Time that a job which was stopped needs before it goes on.")] = "0 s",
    failures: Annotated[str, typer.Option(help="llama3; 'gpu 50000 h, nic(speed=0.9, lasts=1 h) 3000 h'; a log (CSV).")] = "",
    every: Annotated[str, typer.Option(help="Between checkpoints of a job: a time, young, daly, adaptive, or never.")] = "",
    save: Annotated[str, typer.Option(help="Time for which a checkpoint stops a job.")] = "0 s",
    detect: Annotated[str, typer.Option(help="Time until a failure is noticed.")] = "1 min",
    repair: Annotated[str, typer.Option(help="Time until a node that has failed is back.")] = "24 h",
    spare: Annotated[str, typer.Option(help="Nodes that stand by for all jobs: '2', or '2 x 8 v100'.")] = "",
    goal: Annotated[str, typer.Option(help="For '?': 'wait p90 1 h', 'jct mean 5 h', 'missed 0.01'.")] = "",
    seed: Annotated[int, typer.Option(help="Of the failures, and of the order of GPU types in rounds.", min=0)] = 0,
    use: Use = None,
    metrics: Annotated[Path | None, typer.Option(help="A file for the metrics over time, as OpenMetrics text.")] = None,
    out: Annotated[Path | None, output("A folder for cluster.json, jobs.csv, a figure and a page.")] = None,
    json: Json = False,
) -> None:
    """When jobs that arrive at a cluster end, by scheduler, and how many GPUs they need."""
    from gpusim.api.cluster import cluster, cluster_question

    if question:
        asked, found = cluster_question(question, tuple(use or ()))
        if not json:
            typer.echo(f"{asked.question}\n")
    elif not gpus or not arrivals:
        raise GpusimError(f"a cluster needs --{'arrivals' if gpus else 'gpus'}, or a file that asks a question",
                          hint="gpusim cluster --help")  # fmt: skip
    else:
        found = cluster(
            gpus, arrivals, scheduler or ["first_come"], goal=goal, rates=rates, round=round, restart=restart,
            failures=failures, every=every, save=save, detect=detect, repair=repair, spare=spare, seed=seed,
            use=tuple(use or ()),
        )  # fmt: skip
    if json:
        emit_json(found.values())
    else:
        _show(found)
    if metrics is not None:
        from gpusim.base.files import write_text
        from gpusim.show.monitoring.cluster_metrics import text

        write_text(metrics, "".join(text(found)))
    if out is not None:
        from gpusim.show.cluster import save_answer, sentence
        from gpusim.show.page.cluster import write_cluster_page

        written = [*save_answer(found, out), write_cluster_page(found, sentence(found), _rows(found), out)]
        if not json:
            typer.echo(f"{out}: {', '.join(path.name for path in written)}")


_COLUMNS = {
    "jct mean": "jct_mean_s", "p50": "jct_p50_s", "p99": "jct_p99_s", "wait mean": "wait_mean_s", "wait p90": "wait_p90_s",
    "makespan": "makespan_s",
}  # fmt: skip


def _show(found: ClusterAnswer) -> None:
    study = found.study
    jobs = "1 job" if len(study.jobs) == 1 else f"{len(study.jobs):,} jobs"
    typer.echo(f"{jobs} on {study.spec.gpus}" + (f", goal: {found.goal}" if found.goal else ""))
    rows = _rows(found)
    emit(rows, columns=list(dict.fromkeys(name for row in rows for name in row)))


def _rows(found: ClusterAnswer) -> list[dict[str, Any]]:
    rows = []
    for row in found.values()["schedulers"]:
        shown = {"scheduler": row["scheduler"]} | ({"nodes": row["nodes"]} if found.nodes else {}) | {"GPUs": row["gpus"]}
        shown |= {said: _time(row[name]) for said, name in _COLUMNS.items()}
        shown |= {"in use": _share(row.get("utilisation")), "idle": _share(row.get("idle")), "apart": _share(row.get("apart"))}
        shown |= {"unfair": f"{row['unfairness_mean']:.3g}", "stops": row["stops"]}
        if "goodput" in row:
            shown |= {"goodput": _share(row["goodput"]), "lost": f"{round(row['lost_gpu_h'], 3):,.4g} GPU h",
                      "restarts": row["interruptions"], "away": _share(row.get("away"))}  # fmt: skip
        if row.get("out_of_memory"):
            shown["out of memory"] = _share(row["out_of_memory"])
        if "missed" in row:
            shown["missed"] = _share(row["missed"])
        if row["ended"] < row["jobs"]:
            shown["never ended"] = row["jobs"] - row["ended"]
        rows.append(shown)
    return rows


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"


def _time(seconds: float) -> str:
    for size, unit in ((86400.0 * 2, "d"), (3600.0, "h"), (60.0, "min")):
        if seconds >= size:
            return f"{seconds / (86400.0 if unit == 'd' else size):.4g} {unit}"
    return f"{seconds:.3g} s"
