"""Run a model whose experts do not fit the GPU: time per token, hits, bytes over the link, and what limits it.

    gpusim experts --model mixtral-8x7b --machine rtx-4090 --bits 4 --evict lru,lfu,belady
    gpusim experts --model mixtral-8x7b --machine a100-pcie-40gb --like fiddler --cpu "2 TFLOP/s"
    gpusim experts --model mixtral-8x7b --machine rtx-4090 --routing recorded.txt.gz --cache "4 a layer" --guess gate
    gpusim experts expert_cache                               a shipped question: all combinations of its axes
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.calls import listed
from gpusim.cli.asked import needed
from gpusim.cli.options import Json, Use, output
from gpusim.cli.output import emit, emit_json, emit_points

if TYPE_CHECKING:
    from gpusim.studies.experts.setup import ExpertAnswer


def verb(
    question: Annotated[str, typer.Argument(metavar="[QUESTION]", help="A YAML file, or one that ships: expert_cache.")] = "",
    *,
    model: Annotated[str, typer.Option(help="A model with experts: mixtral-8x7b, nllb-moe-54b, switch-large-128.")] = "",
    machine: Annotated[str, typer.Option(help="A profile; of a whole machine one GPU is used.")] = "",
    routing: Annotated[str, typer.Option(help="A recorded file, or drawn(skew=1, sticky=0.2); default: drawn(skew=1).")] = "",
    like: Annotated[str, typer.Option(help="As a system does: mixtral-offloading, moe-infinity, pre-gated, fiddler, ...")] = "",
    batch: Annotated[int, typer.Option(help="Sequences that run together.", min=1)] = 1,
    cache: Annotated[str, typer.Option(help="Room for experts: fit, 64, 4 a layer, 25 %, 12 GiB; default: fit.")] = "",
    evict: Annotated[str, typer.Option(help="Which expert leaves, one policy or several: lru,lfu,belady; default: lru.")] = "",
    start: Annotated[str, typer.Option(help="What is there at first: first, layers, popular, empty.")] = "",
    guess: Annotated[str, typer.Option(help="Which experts are copied ahead: none, gate(hit=0.8), exact, history.")] = "",
    cpu: Annotated[str, typer.Option(help="What its cores reach, '2 TFLOP/s': it computes what takes a copy longer.")] = "",
    source_memory: Annotated[str, typer.Option("--from", help="Where experts come from: pinned, pageable, nvme.")] = "",
    bits: Annotated[int, typer.Option(help="Of a number of an expert's weights: 16, 8, 4, 3, 2; 32.")] = 16,
    memory: Annotated[float, typer.Option(help="Share of the GPU's memory that is used.", min=0.01, max=1.0)] = 0.9,
    seed: Annotated[int, typer.Option(help="Of the guesses.", min=0)] = 0,
    use: Use = None,
    out: Annotated[Path | None, output("A folder for experts.json, or for summary.csv and the figure of a question.")] = None,
    json: Json = False,
) -> None:
    """Run a model whose experts do not fit the GPU: time per token, hits, bytes over the link, and what limits it."""
    if question:
        answer_question(question, out, json=json)
        return
    needed("a run of experts needs", "experts", model=model, machine=machine)
    from gpusim.api.experts import experts

    given: dict[str, Any] = {
        "routing": routing, "cache": cache, "start": start, "guess": guess, "cpu": cpu, "source_memory": source_memory,
    }  # fmt: skip
    words = {name: value for name, value in given.items() if value}
    words |= {"batch": batch, "bits": bits, "memory": memory, "seed": seed, "use": tuple(use or ())}
    policies = [{"evict": name} for name in listed(evict)] if evict else [{}]
    found = [experts(model, machine, like=like, **words | policy) for policy in policies]
    if out is not None:
        from gpusim.base.files import write_json

        out.mkdir(parents=True, exist_ok=True)
        write_json(out / "experts.json", [one.values() for one in found])
    if json:
        emit_json([one.values() for one in found])
    else:
        _show(found)


def answer_question(word: str, out: Path | None, *, json: bool = False) -> None:
    """Print a row for each combination of a question; keep them in a folder, with a figure."""
    from gpusim.api.experts import expert_question

    def save(*given: Any) -> list[Path]:
        from gpusim.show.experts import save_rows_and_figure

        return save_rows_and_figure(*given)

    emit_points(*expert_question(word), out, save, as_json=json)


def _show(found: list[ExpertAnswer]) -> None:
    from gpusim.studies.experts.questions import numbers_of

    first = found[0]
    spec, model, routing = first.setup.spec, first.setup.times.model, first.setup.routing
    batch = "one sequence" if spec.batch == 1 else f"{spec.batch} sequences"
    how = f"recorded routing ({routing.source})" if routing.recorded else "drawn routing"
    typer.echo(
        f"{spec.model} on {spec.machine}, {batch} at a time: {model.sparse} layers of {model.experts} experts of "
        f"{model.expert_bytes / 1e6:,.1f} MB, {model.chosen} for a token; {how}\n"
    )
    emit([{"evict": one.setup.spec.evict, **numbers_of(one)} for one in found])
    for one in found:
        label = f"{one.setup.spec.evict}: " if len(found) > 1 else ""
        typer.echo(f"\n{label}Limited by {one.limit()}.", nl=False)
    typer.echo("")
