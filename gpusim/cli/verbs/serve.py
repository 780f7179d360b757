"""Serve requests with a model on a machine: latencies, goodput, memory; or the largest rate within objectives.

    gpusim serve --model llama-8b --machine h100-sxm-80gb --requests "drawn(prompt=1024, output=128)" --rate 5
    gpusim serve --model llama-8b --machine "4 x l40s" --requests azure-code --slo "ttft 2 s, tpot 100 ms"
    gpusim serve kv_tiers                                     a shipped question: all combinations of its axes
    gpusim serve --model llama-70b --machine hgx-h100 --tensor 4 --requests mooncake.jsonl --tiers "host(500 GB)"
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.asked import needed
from gpusim.cli.options import Jobs, Json, Use, output
from gpusim.cli.output import emit, emit_json, emit_question

if TYPE_CHECKING:
    from gpusim.studies.serving.answer import ServingAnswer

_ROWS = {
    "time to first token": "ttft", "time per output token": "tpot", "latency": "latency", "queued": "queued",
}  # fmt: skip


def verb(
    question: Annotated[str, typer.Argument(metavar="[QUESTION]", help="A YAML file, or one that ships: kv_tiers.")] = "",
    *,
    model: Annotated[str, typer.Option(help="A model of the zoo: llama-8b (`gpusim zoo`).")] = "",
    machine: Annotated[str, typer.Option(help="A profile, '4 x l40s', or a whole machine.")] = "",
    requests: Annotated[str, typer.Option(help="A file of arrivals (CSV, JSON lines), or drawn(prompt=1024).")] = "",
    engine: Annotated[str, typer.Option(help="Scheduler and version: vllm@0.33, sglang@0.5, static.")] = "vllm@0.33",
    tensor: Annotated[int, typer.Option(help="GPUs over which each replica is split.", min=1)] = 1,
    replicas: Annotated[int, typer.Option(help="Replicas; 0: as many as there are GPUs for.", min=0)] = 0,
    prefill: Annotated[int, typer.Option(help="Replicas that compute prompts only; others go on with them.", min=0)] = 0,
    handed: Annotated[str, typer.Option(help="Codec of keys and values that they hand over: fp8, int8, int4.")] = "",
    rate: Annotated[float, typer.Option(help="Requests a second; 0: as the file has them.", min=0.0)] = 0.0,
    at_once: Annotated[int, typer.Option(help="So many clients, each of which waits for its answer.", min=0)] = 0,
    count: Annotated[int, typer.Option(help="Only so many requests, from the first.", min=0)] = 0,
    slo: Annotated[str, typer.Option(help="Objectives: 'ttft 500 ms, tpot 50 ms'.")] = "",
    find: Annotated[
        str | None, typer.Option(help="rate: the largest (so with --slo); gpus: the fewest; kv_tier: the smallest of --tiers.")
    ] = None,
    attainment: Annotated[float, typer.Option(help="Share of the requests that have to meet them.", min=0.0, max=1.0)] = 0.9,
    tiers: Annotated[str, typer.Option(help="Memories below for keys and values: 'host(64 GiB, fp8) > remote(1 TB)'.")] = "",
    when: Annotated[
        str, typer.Option(help="What goes there: write_through, selective, write_back, write_all.")
    ] = "write_through",
    offload: Annotated[str, typer.Option(help="Weights below the GPU: 'split(layers=20)', 'stream(layers=20)'.")] = "",
    lora: Annotated[str, typer.Option(help="Adapters: 'rank=16, max_loras=8, max_cpu_loras=64'.")] = "",
    weights: Annotated[str, typer.Option(help="Type of the weights: bf16, fp8.")] = "bf16",
    cache: Annotated[str, typer.Option(help="Type of keys and values: bf16, fp8.")] = "bf16",
    max_seqs: Annotated[int, typer.Option(help="Requests that run at once.", min=1)] = 256,
    max_tokens: Annotated[int, typer.Option(help="Tokens of a step.", min=1)] = 8192,
    max_len: Annotated[int, typer.Option(help="Tokens of the longest sequence; 0: what the model takes.", min=0)] = 0,
    block: Annotated[int, typer.Option(help="Tokens of a block of keys and values.", min=1)] = 16,
    memory: Annotated[float, typer.Option(help="Share of the GPUs' memory that the engine takes.", min=0.01, max=1.0)] = 0.9,
    routing: Annotated[str, typer.Option(help="least_busy, round_robin, least_tokens, mixed_pool.")] = "least_busy",
    step_times: Annotated[str, typer.Option(help="A CSV of what steps take: FILE or FILE(hardware=h100).")] = "",
    beside: Annotated[str, typer.Option(help="A second service there: 'llama-1b(memory=0.3, requests=drawn)'.")] = "",
    tenancy: Annotated[str, typer.Option(help="How GPUs pass between both: time_slices(slice=2 ms), mps.")] = "time_slices",
    price: Annotated[str, typer.Option(help="Of a GPU hour: 2.5, or 'h100=2.5, a100=1.2'; tells what tokens cost.")] = "",
    seed: Annotated[int, typer.Option(help="Of the arrivals.", min=0)] = 0,
    use: Use = None,
    metrics: Annotated[Path | None, typer.Option(help="A file of OpenMetrics under vLLM's names, a sample a second.")] = None,
    log: Annotated[bool, typer.Option("--log", help="With -o, also a page of requests, steps and memory over time.")] = False,
    out: Annotated[Path | None, output("A folder for serving.json, requests.csv and a figure.")] = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Serve requests with a model on a machine: latencies, goodput, memory; or the largest rate within objectives."""
    if question:
        from gpusim.experiment.pool import cores

        answer_question(question, out, jobs or cores(), json=json)
        return
    needed("a service needs", "serve", model=model, machine=machine, requests=requests)
    if log and out is None:
        raise GpusimError("--log makes a page, and nothing says where", hint="-o FOLDER")
    from gpusim.api.serving import serve

    found = serve(
        model, machine, requests, rate=rate, slo=slo, find=find, attainment=attainment, at_once=at_once, count=count, seed=seed,
        price=price, log=log, engine=engine, tensor=tensor, replicas=replicas, prefill=prefill, handed=handed, tiers=tiers,
        when=when, lora=lora, offload=offload, weights=weights, cache=cache, max_seqs=max_seqs, max_tokens=max_tokens,
        max_len=max_len, block=block, memory=memory, routing=routing, step_times=step_times, beside=beside, tenancy=tenancy,
        use=tuple(use or ()),
    )  # fmt: skip
    if json:
        emit_json(found.values())
    else:
        _show(found)
    if metrics is not None:
        from gpusim.base.files import write_text
        from gpusim.show.monitoring.vllm_metrics import text

        write_text(metrics, "".join(text(found.served, model)))
    if out is not None:
        written = _save(found, out, log)
        if not json:
            typer.echo(f"{out}: {', '.join(path.name for path in written)}")


def _save(found: ServingAnswer, out: Path, log: bool) -> list[Path]:
    """The files of an answer, with a page where its log was kept."""
    from gpusim.show.serving import save_answer

    written = save_answer(found, out)
    if log:
        from gpusim.show.page.service import write_service_page

        tables = {
            "": _latencies(found.metrics()), **({"Replicas": kinds} if (kinds := _kinds(found)) else {}),
            **({"Tiers, in chunks": _tiers(found)} if found.tiers else {}),
        }  # fmt: skip
        written.append(write_service_page(found, _sentence(found, found.metrics()), tables, out))
    return written


def answer_question(word: str, out: Path | None, jobs: int = 1, force: bool = False, json: bool = False) -> None:
    """Print a row for each combination of a question, and keep them in a folder."""
    from gpusim.api.serving import serve_question

    asked, rows = serve_question(word, out, jobs=jobs, force=force)
    emit_question(asked, rows, as_json=json)
    if out is not None:
        from gpusim.show.serving_question import save_figure

        names = [path.name for path in save_figure(asked, rows, out)]
        if not json:
            typer.echo(f"\n{out}: {', '.join(['summary.csv', *names])}")


def _show(found: ServingAnswer) -> None:
    service, numbers = found.service, found.metrics()
    spec, count = service.spec, len(service.groups)
    split = f", each on {spec.tensor} GPUs" if spec.tensor > 1 else ""
    typer.echo(f"{spec.model} on {spec.machine}, {spec.engine}: {count} replica{'s' if count > 1 else ''}{split}; "
               f"room for {service.cached_tokens:,} tokens of keys and values")  # fmt: skip
    if kinds := _kinds(found):
        emit(kinds)
        typer.echo("")
    if found.searched():
        typer.echo(found.searched())
    if found.tried:
        emit(list(found.tried))
        typer.echo("")
    typer.echo(
        f"{numbers['finished']:,} of {numbers['requests']:,} requests finished in {numbers['makespan_ns'] / 1e9:.4g} s: "
        f"{numbers['requests_per_s']:.3g} a second, {numbers['output_tokens_per_s']:,.0f} tokens of output a second\n"
    )
    emit(_latencies(numbers))
    typer.echo("")
    typer.echo(_sentence(found, numbers))
    if found.beside is not None:
        other, told = found.beside, found.beside.metrics()
        typer.echo(f"\nBeside it {other.service.spec.model}, room for {other.service.cached_tokens:,} tokens:\n")
        emit(_latencies(told))
        typer.echo("")
        typer.echo(_sentence(other, told))
    for tier in found.tiers:
        typer.echo(f"{tier['tier']}: {tier['stored']:,} chunks stored, {tier['loaded']:,} loaded, {tier['evicted']:,} evicted")
    if found.tiers and not any(tier["stored"] for tier in found.tiers):
        typer.echo("Tiers keep what prompts have in common: recorded hashes, or those of chats(...) and drawn(prefix=...).")


def _sentence(found: ServingAnswer, numbers: dict[str, float]) -> str:
    said = []
    if "goodput_per_s" in numbers:
        goodput = f"{numbers['goodput_per_s']:.3g} requests a second"
        said.append(f"{numbers['attainment']:.1%} meet the objectives: a goodput of {goodput}.")
    if numbers["finished"]:
        said += _served(found, numbers)
    if numbers["rejected"]:
        count = f"{numbers['rejected']:,.0f} request{'s were' if numbers['rejected'] > 1 else ' was'}"
        said.append(f"{count} rejected: {_reasons(found)}.")
    if not numbers["finished"]:
        return " ".join([*said, "No request finished."])
    if "cost_per_million_tokens" in numbers:
        said.append(f"A million tokens of output cost {numbers['cost_per_million_tokens']:.3g}.")
    if found.service.spec.step_times:
        return " ".join([*said, f"Step times are those of {found.service.spec.step_times}."])
    low, high = found.spread
    said += [emulated] if (emulated := found.emulated()) else []
    said.append(f"Step times are modelled: {low:.2f} to {high:.2f} of what they say, four times out of five.")
    return " ".join(said)


def _served(found: ServingAnswer, numbers: dict[str, float]) -> list[str]:
    said = []
    if found.limit:
        said.append(f"Limited by {found.limit}.")
    elif found.search is None:
        said.append("Requests hardly ever wait: the service bears more.")
    running, full = f"{numbers['running_mean']:.3g}", f"{numbers['kv_peak_share']:.0%}"
    each = " on each engine" if len(found.served.engines) > 1 else ""
    said.append(f"On average {running} requests run at once{each}; keys and values take {full} of their room at most.")
    if numbers["hit_share"] > 0:
        said.append(f"The prefix cache has {numbers['hit_share']:.1%} of the tokens looked up.")
    if found.service.offload is not None:
        said.append(found.service.offload.said(found.times))
    if numbers["tier_share"] > 0:
        said.append(f"{numbers['tier_share']:.1%} of the prompts' tokens come from memories below.")
    if numbers["handed_share"] > 0:
        said.append(f"{numbers['handed_share']:.1%} of the prompts' tokens are handed over from other GPUs.")
    if numbers["slowed_share"] >= 0.001:
        said.append(f"Copies make steps {numbers['slowed_share']:.1%} longer.")
    return said


def _latencies(numbers: dict[str, float]) -> list[dict[str, str]]:
    return [
        {"": said, **{f"{which} [ms]": _ms(numbers[f"{name}_{which}_ns"]) for which in ("mean", "p50", "p90", "p99")}}
        for said, name in _ROWS.items()
    ]


def _kinds(found: ServingAnswer) -> list[dict[str, str]]:
    return [{name: _short(value) for name, value in row.items()} for row in found.kinds()]


def _tiers(found: ServingAnswer) -> list[dict[str, str]]:
    names = ("tier", "chunks", "peak", "stored", "loaded", "evicted")
    return [{name: _short(tier[name]) for name in names} for tier in found.tiers]


def _short(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,.3g}" if isinstance(value, float) and value < 1000 else f"{value:,.0f}"


def _reasons(found: ServingAnswer) -> str:
    reasons = sorted({int(reason) for reason in found.served.refused if reason})
    said = "; ".join(found.served.reasons[reason] for reason in reasons)
    return f"{said} ({_longest(found)})" if "longest sequence" in said else said


def _longest(found: ServingAnswer) -> str:
    service = found.service
    room = min(kind.blocks for kind in service.kinds) * service.spec.block
    if service.spec.max_len:
        return f"--max-len is {service.spec.max_len:,} tokens"
    if service.model.context and service.model.context <= room:
        return f"{service.spec.model} takes {service.model.context:,} tokens"
    return f"all blocks of a replica hold {room:,} tokens"


def _ms(ns: Any) -> str:
    return "-" if math.isnan(ns) else f"{ns / 1e6:,.3g}" if ns < 1e9 else f"{ns / 1e6:,.0f}"
