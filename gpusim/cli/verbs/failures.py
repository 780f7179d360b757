"""How long a training run takes on machines that fail, and how often to save it.

    gpusim failures --machine "128 x hgx-h100" --state llama-70b --storage "100 GB/s"
    gpusim failures --machine "128 x hgx-h100" --state 1.1TB --storage "20 GB/s" --checkpoint sync --find interval
    gpusim failures --machine "16 x hgx-h100" --state llama-70b --storage "20 GB/s" --failures log.csv --work "7 d"
    gpusim failures checkpoints                               a shipped question: all combinations of its axes
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.asked import needed
from gpusim.cli.options import Json, Use, output
from gpusim.cli.output import emit, emit_json, emit_points

if TYPE_CHECKING:
    from gpusim.studies.failures.answer import LongRunAnswer

_PHASES = {
    "computing": "computing", "copying": "stopped for checkpoints", "blocked": "blocked by a checkpoint on its way",
    "down": "noticing, restarting, loading", "short": "waiting for nodes",
}  # fmt: skip


def verb(
    question: Annotated[str, typer.Argument(metavar="[QUESTION]", help="A YAML file, or one that ships: checkpoints.")] = "",
    *,
    machine: Annotated[str, typer.Option(help="A whole machine: '128 x hgx-h100'.")] = "",
    state: Annotated[str, typer.Option(help="What is saved: a model of the zoo (14 bytes a parameter), or a size.")] = "",
    work: Annotated[str, typer.Option(help="Time of the training if nothing fails.")] = "30 d",
    step: Annotated[str, typer.Option(help="Time of a step; checkpoints are taken between steps.")] = "",
    failures: Annotated[str, typer.Option(help="llama3; 'gpu 50000 h, nic 9 d, rack(nodes=4) 900 d'; a log (CSV).")] = "llama3",
    checkpoint: Annotated[str, typer.Option(help="sync, two_phase(agent=1), peers(copies=1, each=10).")] = "two_phase",
    every: Annotated[str, typer.Option(help="A time, or a policy: young, daly, adaptive, one's own.")] = "daly",
    storage: Annotated[str, typer.Option(help="What the storage takes from all nodes together: '100 GB/s'.")] = "",
    spare: Annotated[int, typer.Option(help="Of the machine's nodes, those that stand by.", min=0)] = 0,
    least: Annotated[int, typer.Option(help="Nodes with which the job goes on; 0: only with all.", min=0)] = 0,
    unit: Annotated[int, typer.Option(help="Nodes by which it shrinks at once.", min=1)] = 1,
    restart: Annotated[str, typer.Option(help="Time to place and start the program.")] = "5 min",
    detect: Annotated[str, typer.Option(help="Time until a failure is noticed.")] = "1 min",
    repair: Annotated[str, typer.Option(help="Time until a broken node is back.")] = "24 h",
    program: Annotated[str, typer.Option(help="A trace of the training: its steps are simulated on what is left.")] = "",
    parallel: Annotated[str, typer.Option(help="How the job's GPUs divide it, beside data: 'tensor=8 zero=1'.")] = "",
    host: Annotated[str, typer.Option(help="A node's processes: 'rank 8 x 24 GB, loader 64 x 4 GB + 20 MB/h'.")] = "",
    margin: Annotated[str, typer.Option(help="Memory of a GPU that the program does without, for retired pages.")] = "",
    find: Annotated[str, typer.Option(help="interval: the best one.")] = "",
    runs: Annotated[int, typer.Option(help="Runs at a time, with failures of their own.", min=1)] = 200,
    seed: Annotated[int, typer.Option(help="Of the failures.", min=0)] = 0,
    use: Use = None,
    out: Annotated[Path | None, output("A folder for numbers, the log of a run and its page, or rows and a figure.")] = None,
    json: Json = False,
) -> None:
    """How long a training run takes on machines that fail, and how often to save it."""
    if question:
        answer_question(question, out, json=json)
        return
    needed("a long run needs", "failures", machine=machine, state=state)
    from gpusim.api.failures import endure

    found = endure(
        machine, state, runs=runs, seed=seed, find=find, work=work, step=step, failures=failures, checkpoint=checkpoint,
        every=every, storage=storage, spare=spare, least=least, unit=unit, restart=restart, detect=detect, repair=repair,
        program=program, parallel=parallel, host=host, margin=margin, use=tuple(use or ()),
    )  # fmt: skip
    if json:
        emit_json(found.values())
    else:
        _show(found)
    if out is not None:
        from gpusim.show.failures import save_answer

        written = save_answer(found, _sentence(found.values()), out)
        if not json:
            typer.echo(f"{out}: {', '.join(path.name for path in written)}")


def answer_question(word: str, out: Path | None, *, json: bool = False) -> None:
    """Print a row for each combination of a question; keep them in a folder, with a figure."""
    from gpusim.api.failures import training_question

    def save(*given: Any) -> list[Path]:
        from gpusim.show.failures import save_rows_and_figure

        return save_rows_and_figure(*given)

    emit_points(*training_question(word), out, save, as_json=json)


def _show(found: LongRunAnswer) -> None:
    v, run = found.values(), found.run
    nodes = f"{v['nodes']:,} node{'s' if v['nodes'] > 1 else ''}"
    typer.echo(
        f"{nodes} of {run.job.gpus} GPUs, {_time(v['between_interruptions_h'] * 3600)} between interruptions on "
        f"average; a checkpoint of {v['checkpoint_bytes'] / 1e9:,.4g} GB stops the job for {_time(v['stop_s'])} and is safe "
        f"after {_time(v['safe_after_s'])}"
    )
    policy = str(run.policy.spec)
    why = " (the best of the intervals below)" if found.tried else "" if policy.partition("(")[0] == "every" else f" ({policy})"
    typer.echo(f"a checkpoint every {_time(v['interval_s'])} of work{why}")
    for sentence in found.sentences():
        typer.echo(sentence)
    if found.tried:
        emit([{"interval": _time(ns / 1e9), "time [h]": mean.value / 3.6e12, "+- [h]": mean.half / 3.6e12}
              for ns, mean in sorted(found.tried)])  # fmt: skip
    typer.echo("")
    emit([{"": said, "[h]": v[f"{name}_h"], "of all": v[f"{name}_h"] / v["total_h"]} for name, said in _PHASES.items()])
    typer.echo("")
    typer.echo(_sentence(v))
    if v["short_h"] > max(0.5 * (v["total_h"] - v["work_h"]), 0.01 * v["total_h"]):
        typer.echo("Most of what is lost is waiting for nodes: try --spare, or --least with fewer nodes.")


def _sentence(v: dict[str, Any]) -> str:
    return (
        f"{v['work_h']:,.5g} h of work take {v['total_h']:,.5g} h (+- {v['total_half_h']:.2g}, {v['runs']:,} "
        f"run{'s' if v['runs'] > 1 else ''}): {v['effective']:.2%} of the time is work that counts. {v['interruptions']:.1f} "
        f"interruptions, {v['lost_h']:.3g} h of work done twice."
    )


def _time(seconds: float) -> str:
    if seconds == float("inf"):
        return "no end"
    for size, unit in ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s")):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e3:.3g} ms"
