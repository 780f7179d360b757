"""Serve many models on few GPUs: what is loaded from disk or host memory, and how long requests wait for it.

    gpusim models --models "llama-8b x 16" --machine "4 x l40s" --rate 1 --pool "128 GiB"
    gpusim models --models "llama-8b x 32, llama-70b(tensor=4) x 4" --machine hgx-h100 --servers 4 --placement random
    gpusim models --models "llama-8b x 8" --machine l40s --loader safetensors --keep "60 s"
    gpusim models host_memory_for_models                      a shipped question: all combinations of its axes
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.cli.asked import needed
from gpusim.cli.options import Json, Use, output
from gpusim.cli.output import emit, emit_json, emit_points

if TYPE_CHECKING:
    from gpusim.studies.models.answer import ModelsAnswer

MOST_ROWS = 12


def verb(
    question: Annotated[str, typer.Argument(metavar="[QUESTION]", help="A YAML file, or one that ships.")] = "",
    *,
    models: Annotated[str, typer.Option(help="'llama-8b x 16, llama-70b(tensor=4) x 2': most wanted first.")] = "",
    machine: Annotated[str, typer.Option(help="A profile, '4 x l40s' or a whole machine; each host has one disk.")] = "",
    servers: Annotated[int, typer.Option(help="So many of the machine.", min=1)] = 1,
    requests: Annotated[str, typer.Option(help="A file of arrivals, or drawn(prompt=512, output=128, requests=1000).")] = "",
    rate: Annotated[float, typer.Option(help="Requests a second of all models; 0: at their own times.", min=0)] = 1.0,
    spread: Annotated[float, typer.Option(help="Deviation of the times between requests over their mean.", min=0)] = 1.0,
    skew: Annotated[float, typer.Option(help="The k-th model is wanted as 1 / k**skew.", min=0)] = 1.0,
    loader: Annotated[str, typer.Option(help="pipelined(chunk=16 MiB, threads=4), safetensors(readahead=128 KiB).")] = "",
    pool: Annotated[str, typer.Option(help="Host memory of a server that keeps models; default: half of it.")] = "",
    evict: Annotated[str, typer.Option(help="Which model leaves it: any evict policy that needs no clock; default: lru.")] = "",
    keep: Annotated[str, typer.Option(help="How long an idle model stays; default: until another needs its GPUs.")] = "",
    placement: Annotated[str, typer.Option(help="Which server: soonest (estimated end of its load), random.")] = "",
    boot: Annotated[str, typer.Option(help="What an engine needs beside its weights: '5 s'; default: nothing.")] = "",
    engine: Annotated[str, typer.Option(help="The scheduler of each model's engine; default: vllm@0.33.")] = "",
    memory: Annotated[float, typer.Option(help="Share of each GPU's memory that an engine takes.", min=0.01, max=1.0)] = 0.9,
    seed: Annotated[int, typer.Option(help="Of arrivals, models and random placement.", min=0)] = 0,
    use: Use = None,
    out: Annotated[Path | None, output("A folder for models.json, or for summary.csv and the figure of a question.")] = None,
    json: Json = False,
) -> None:
    """Serve many models on few GPUs: what is loaded from disk or host memory, and how long requests wait for it."""
    if question:
        answer_question(question, out, json=json)
        return
    needed("many models need", "models", models=models, machine=machine)
    from gpusim.api.models import models as run

    given: dict[str, Any] = {
        "requests": requests, "loader": loader, "pool": pool, "evict": evict, "keep": keep, "placement": placement,
        "boot": boot, "engine": engine,
    }  # fmt: skip
    words = {name: value for name, value in given.items() if value}
    found = run(
        models, machine, servers=servers, rate=rate, spread=spread, skew=skew, memory=memory, seed=seed, use=tuple(use or ()),
        **words,
    )  # fmt: skip
    if out is not None:
        from gpusim.base.files import write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "models.json", found.values())
    if json:
        emit_json(found.values())
    else:
        _show(found)


def answer_question(word: str, out: Path | None, *, json: bool = False) -> None:
    """Print a row for each combination of a question; keep them in a folder, with a figure."""
    from gpusim.api.models import models_question

    def save(*given: Any) -> list[Path]:
        from gpusim.show.models import save_rows_and_figure

        return save_rows_and_figure(*given)

    emit_points(*models_question(word), out, save, as_json=json)


def _show(found: ModelsAnswer) -> None:
    from gpusim.studies.models.questions import numbers_of

    typer.echo(f"{found.heading()}\n")
    emit([numbers_of(found)])
    typer.echo("")
    rows = found.by_model()
    emit(rows[:MOST_ROWS])
    if len(rows) > MOST_ROWS:
        typer.echo(f"... and {len(rows) - MOST_ROWS} models more; --json has all")
    typer.echo(f"\n{found.limit()}.")
