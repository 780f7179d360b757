"""The command line: each verb is one call into gpusim.cli, imported when it is asked for.

Exit codes: 0 done; 1 a bug, or a run of a grid that failed by one; 2 something the user can act on; 130 interrupted.
"""

from __future__ import annotations

import atexit
import gc
from pathlib import Path
from typing import Annotated

import typer

from gpusim.cli import calibrate
from gpusim.cli.ending import Verbs
from gpusim.cli.optional import Optional

app = typer.Typer(
    cls=Verbs,
    name="gpusim",
    help="Replay recorded GPU programs under competing swap, allocator and prefetch policies.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

app.add_typer(calibrate.app, name="calibrate")

Json = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Change one key; a list (a,b) is an axis of the grid. Repeatable."),
]
Out = Annotated[Path | None, typer.Option("--output", "-o", help="Where to write; default: beside the input.")]


@app.command(cls=Optional)
def run(
    experiment: Annotated[str, typer.Argument(help="An experiment's YAML file, or the name of a shipped one.")],
    overrides: Set = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="The results folder; default: results/NAME.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes; default: as many as help.")] = None,
    uncertainty: Annotated[
        int | None,
        typer.Option(
            "--uncertainty", metavar="[N]", min=0, max=10_000,
            help="Repeat every run on N machines (16 if N is left out) that the profile's error bars allow: intervals, ties, "
            "and the number that would change who is best. 0 for none.",
        ),
    ] = None,
    log: Annotated[bool, typer.Option("--log", help="Keep the event log of every run, for `gpusim check`.")] = False,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figures.")] = True,
    formats: Annotated[str, typer.Option("--format", help="Of the figures: some of png,svg,pdf.")] = "png,svg,pdf",
    force: Annotated[bool, typer.Option("--force", help="Run again what is already there.")] = False,
    allow_large: Annotated[bool, typer.Option("--allow-large", help="Allow a grid of very many runs.")] = False,
    json: Json = False,
) -> None:
    """Run an experiment: all runs of its grid, a table, and figures."""
    from gpusim.cli.run import run as verb

    raise typer.Exit(
        verb(
            experiment,
            overrides or [],
            out,
            uncertainty=uncertainty,
            jobs=jobs,
            log=log,
            figures=figures,
            formats=formats,
            force=force,
            allow_large=allow_large,
            json=json,
        )
    )


@app.command()
def validate(
    file: Annotated[str, typer.Argument(help="An experiment or a hardware profile.")],
    overrides: Set = None,
    json: Json = False,
) -> None:
    """Say all that is wrong with an experiment or profile."""
    from gpusim.cli.validate import validate as verb

    verb(file, overrides or [], json=json)


@app.command()
def plot(
    folder: Annotated[Path, typer.Argument(help="A results folder.")],
    figure: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            help="Only this one; default: those of the experiment. Repeatable. One of policy_comparison, memory_over_time, "
            "time_breakdown, traffic, oversubscription, fault_map, fragmentation, address_map.",
        ),
    ] = None,
    out: Out = None,
    formats: Annotated[str, typer.Option("--format", help="Some of png,svg,pdf.")] = "png,svg,pdf",
    json: Json = False,
) -> None:
    """Draw the figures of a results folder again."""
    from gpusim.cli.look import plot as verb

    verb(folder, figure or [], out, formats=formats, json=json)


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A results folder.")],
    b: Annotated[Path | None, typer.Argument(metavar="[B]", help="Another one, of the same experiment.")] = None,
    json: Json = False,
) -> None:
    """Show one table of results, or what changed from A to B."""
    from gpusim.cli.look import compare as verb

    verb(a, b, json=json)


@app.command()
def faults(
    what: Annotated[str, typer.Argument(metavar="FOLDER", help="A results folder, or an experiment, which is run first.")],
    run: Annotated[str | None, typer.Argument(metavar="[RUN]", help="Which run: its number, or its key.")] = None,
    advise: Annotated[
        bool | None,
        typer.Option("--advise/--no-advise", help="Find the hints that help, by simulation; default: where that is soon done."),
    ] = None,
    most: Annotated[int | None, typer.Option("--most", min=1, help="Programs that are simulated for it; default: 40.")] = None,
    json: Json = False,
) -> None:
    """Explain the page faults of a run under unified memory: causes, batches, bytes, time, and which hints would help."""
    from gpusim.cli.faults import faults as verb

    raise typer.Exit(verb(what, run, advise, most, json=json))


@app.command()
def check(
    folder: Annotated[Path, typer.Argument(help="A results folder, or the folder of one run.")],
    trace: Annotated[Path | None, typer.Option("--trace", help="The trace, when it is not found by its name.")] = None,
    use: Annotated[list[str] | None, typer.Option("--use", help="The Python file of your own transforms. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Recompute every result independently, from its event log."""
    from gpusim.cli.check import check as verb

    raise typer.Exit(verb(folder, trace, use or [], json=json))


@app.command(context_settings={"ignore_unknown_options": True})
def record(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="SCRIPT [ARGS]", help="A PyTorch script with its arguments and options.")
    ] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="The trace to write; default: SCRIPT.npz.")] = None,
    zoo: Annotated[
        str | None, typer.Option("--zoo", metavar="MODEL", help="Instead of a script; with its options, as --batch 4.")
    ] = None,
    steps: Annotated[int | None, typer.Option(min=1, help="End after so many training steps; default: 2.")] = None,
    name: Annotated[str | None, typer.Option(help="The trace's name; default: that of the file, or the model's.")] = None,
    device: Annotated[str | None, typer.Option(help="Where tensors live that name no device: cuda or cpu.")] = None,
    gpu: Annotated[str, typer.Option(help="Whose libraries: volta, turing, ampere, ada, hopper or blackwell.")] = "ampere",
    cudnn: Annotated[str, typer.Option(metavar="BYTES", help="What cuDNN takes during a convolution, as '64 MiB'.")] = "0 B",
    json: Json = False,
) -> None:
    """Record a PyTorch program as a trace, without a GPU: nothing is computed, whatever its size."""
    from gpusim.base.units import parse_bytes
    from gpusim.cli.record import record as verb

    verb(
        program or [], out, zoo,
        json=json, name=name, steps=steps, device=device or ("cuda" if zoo else "cpu"), gpu=gpu,
        cudnn_workspace=parse_bytes(cudnn),
    )  # fmt: skip


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A recording, in any format that docs/traces.md lists.")],
    out: Out = None,
    format: Annotated[str | None, typer.Option("--format", help="Its format, when it cannot be told by the content.")] = None,
    name: Annotated[str | None, typer.Option("--name", help="The trace's name; default: the recording's own.")] = None,
    device: Annotated[int | None, typer.Option("--device", min=0, help="Which GPU, when several were recorded.")] = None,
    kineto: Annotated[Path | None, typer.Option("--with", help="The Kineto trace of the same run: times.")] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="An option of the format, see docs/traces.md. Repeatable."),
    ] = None,
    json: Json = False,
) -> None:
    """Turn a foreign recording into a trace (.npz)."""
    from gpusim.cli.traces import import_file as verb

    verb(file, out, format, name=name, device=device, kineto=kineto, options=options or [], json=json)


@app.command(context_settings={"ignore_unknown_options": True})
def fit(
    program: Annotated[
        list[str] | None, typer.Argument(metavar="TRACE", help="A trace, or a recording; with --zoo, its options: --batch 4.")
    ] = None,
    zoo: Annotated[str | None, typer.Option("--zoo", metavar="MODEL", help="A model of the zoo instead, recorded now.")] = None,
    profile: Annotated[
        list[str] | None, typer.Option("--profile", help="Machines, or all, the default. Repeatable, or separated by commas.")
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="Where it does not fit, try this: 'checkpointing | offload', 'swapping'. Repeatable."),
    ] = None,
    allocator: Annotated[
        str, typer.Option(metavar="CONF", help="Settings of PyTorch's allocator, as 'expandable_segments:True'.")
    ] = "",
    context: Annotated[
        str | None, typer.Option(metavar="BYTES", help="What driver and libraries take; default: as each profile says.")
    ] = None,
    gpu: Annotated[
        str, typer.Option(help="Of a model of the zoo: whose libraries, volta, turing, ampere, ada, hopper or blackwell.")
    ] = "ampere",
    cudnn: Annotated[
        str, typer.Option("--cudnn-workspace", metavar="BYTES", help="Of a model of the zoo: cuDNN's, in a convolution.")
    ] = "0 B",
    out: Annotated[Path | None, typer.Option("--output", "-o", help="A folder; default: results/fit-NAME.")] = None,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figure.")] = True,
    formats: Annotated[str, typer.Option("--format", help="Of the figure: some of png,svg,pdf.")] = "png,svg,pdf",
    json: Json = False,
) -> None:
    """Will it fit?  A program on every machine: what it needs, what makes it fit, and what that costs."""
    from gpusim.cli.fit import fit as verb

    verb(
        program or [], zoo, profile or [], tries or [], out, allocator=allocator, context=context, gpu=gpu, cudnn=cudnn,
        figures=figures, formats=formats, json=json,
    )  # fmt: skip


@app.command()
def adapt(
    trace: Annotated[str, typer.Argument(help="A trace with one or more training steps.")],
    profile: Annotated[str, typer.Argument(help="The machine.")],
    controller: Annotated[str, typer.Option(help="Who decides: aimd, bisect, fixed, with parameters.")] = "aimd",
    rounds: Annotated[int, typer.Option(min=1, help="So many replays of the trace, each with its batch.")] = 20,
    memory: Annotated[str | None, typer.Option(help="What the allocator may hold: '24 GiB'; default: the device's.")] = None,
    neighbour: Annotated[
        list[str] | None,
        typer.Option(metavar="TIME:BYTES", help="Another job takes bytes from this time on, like '2 s: 4 GiB'. Repeatable."),
    ] = None,
    evict: Annotated[str, typer.Option(help="What leaves when memory is short; none: it runs out.")] = "none",
    prefetch: Annotated[str, typer.Option(help="What comes back before it is needed.")] = "none",
    json: Json = False,
) -> None:
    """Train with a batch that a controller adapts to the memory that is there."""
    from gpusim.cli.adapt import adapt as verb

    verb(trace, profile, controller, rounds, memory, neighbour or [], evict, prefetch, json=json)


@app.command()
def oom(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="A PyTorch snapshot, a trace, an RMM log, a script (train.py ARGS, recorded without a GPU), or "
            "'variable_training(hours=24)'; several: ranks, or times of one program.",
        ),
    ],
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="Try this instead: an allocator, or settings like max_split_size_mb:64. Repeatable."),
    ] = None,
    others: Annotated[
        bool, typer.Option("--others", help="Show allocators of other libraries and drivers beside them, for comparison.")
    ] = False,
    capacity: Annotated[
        str | None, typer.Option(help="What the allocator could hold alone on the device, like '24 GiB'; default: as recorded.")
    ] = None,
    on: Annotated[str | None, typer.Option(metavar="PROFILE", help="... or else what this machine has room for.")] = None,
    message: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="... or else what the error's text, or a file with it, tells of the device."),
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="Which GPU of a snapshot that holds several; default: all.")] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="A folder; default: results/oom-NAME.")] = None,
    figures: Annotated[bool, typer.Option("--figures/--no-figures", help="Draw the figures.")] = True,
    formats: Annotated[str, typer.Option("--format", help="Of the figures: some of png,svg,pdf.")] = "png",
    json: Json = False,
) -> None:
    """Say why a program ran out of memory, what holds it, and what would help."""
    from gpusim.cli.oom import oom as verb

    verb(
        files, tries or [], capacity=capacity, on=on, message=message, device=device, out=out, figures=figures,
        formats=formats, others=others, json=json,
    )  # fmt: skip


app.command("fragment", hidden=True)(oom)  # as it was called before


@app.command()
def export(
    what: Annotated[str, typer.Argument(help="A results folder with event logs, or a trace by file or name.")],
    format: Annotated[
        str,
        typer.Option(
            "--format", help="pytorch: a memory snapshot. Of a trace also dtr: a log; libcachesim-csv, oracleGeneral: requests."
        ),
    ] = "pytorch",
    run: Annotated[str | None, typer.Option("--run", metavar="KEY", help="Which run of the folder.")] = None,
    place: Annotated[
        str | None, typer.Option("--place", help="Under which allocator a trace is replayed; default: pytorch.")
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="Which GPU of a snapshot that holds several.")] = None,
    on: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="dtr: model operator times that were not recorded on this machine.")
    ] = None,
    grain: Annotated[
        str | None, typer.Option(help="libCacheSim: pages of this size, like '2 MiB'; default: whole tensors.")
    ] = None,
    use: Annotated[list[str] | None, typer.Option("--use", help="The Python file of your own transforms. Repeatable.")] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write.")] = None,
) -> None:
    """Write a run as a memory snapshot that PyTorch's own viewer opens, or a trace as the program of another simulator."""
    from gpusim.cli.export import export as verb

    verb(what, format, run=run, place=place, device=device, on=on, grain=grain, out=out, use=use or [])


@app.command()
def trace(
    file: Annotated[str, typer.Argument(help="A trace's .npz file, or the name of a shipped one.")] = "",
    json: Json = False,
) -> None:
    """Describe a trace: tensors, peak, lifetimes, reuse, phases."""
    from gpusim.cli.traces import describe as verb

    verb(file, json=json)


@app.command()
def offsets(
    file: Annotated[
        str, typer.Argument(help="A trace, the name of a shipped one, a minimalloc problem, or a recording to import.")
    ],
    out: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the plan here, as CSV: id,lower,upper,size,offset.")
    ] = None,
    capacity: Annotated[
        str | None, typer.Option("--capacity", help='Look for nothing lower than this, such as "40 GiB".')
    ] = None,
    align: Annotated[
        int | None,
        typer.Option("--align", min=1, max=2**40, help="Bytes that sizes round up to; default: 512, or 1 for minimalloc."),
    ] = None,
    device: Annotated[int | None, typer.Option(min=0, help="Which GPU of a snapshot that holds several.")] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=0, help="Visited by the exact search at most.")] = None,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=0, help="End the exact search then; the plan may differ from run to run.")
    ] = None,
    json: Json = False,
) -> None:
    """Plan fixed addresses for all tensors: the least memory that any allocator could do with."""
    from gpusim.cli.offsets import offsets as verb

    verb(file, out, capacity=capacity, align=align, device=device, nodes=nodes, seconds=seconds, json=json)


@app.command()
def reproduce(
    study: Annotated[str, typer.Argument(help="g10: unified memory, DeepUM, G10, FlashNeuron (MICRO 2023).")],
    figure: Annotated[list[str] | None, typer.Option("--figure", help="Only this one: 11, 15, 16, 17, 18. Repeatable.")] = None,
    traces: Annotated[Path | None, typer.Option("--traces", help="A folder of its traces; default: the shipped ones.")] = None,
    plans: Annotated[bool, typer.Option("--plans", help="Use the study's own plans (FOLDER/plans), not ours.")] = False,
    conditions: Annotated[Path | None, typer.Option("--conditions", help="A file of conditions; default: the study's.")] = None,
    out: Annotated[Path | None, typer.Option("--output", "-o", help="Also write all rows to this CSV file.")] = None,
    jobs: Annotated[int | None, typer.Option("--jobs", "-j", min=1, help="Worker processes; default: all processors.")] = None,
    json: Json = False,
) -> None:
    """Run a published study again under its own conditions, and show both figures for every row of its table."""
    from gpusim.cli.reproduce import reproduce as verb

    verb(study, figure or [], traces, conditions, out, plans=plans, jobs=jobs, json=json)


@app.command()
def transform(
    file: Annotated[str, typer.Argument(metavar="TRACE", help="A trace's .npz file, or the name of a shipped one.")],
    chain: Annotated[str, typer.Argument(help="What to do, such as 'checkpointing(every=2) | precision(to=bf16)'.")],
    out: Annotated[Path, typer.Option("--output", "-o", help="The trace to write (.npz).")],
    use: Annotated[list[str] | None, typer.Option("--use", help="Also load this Python file. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Write the trace of the same program run another way, such as with checkpointing."""
    from gpusim.cli.transforms import transform as verb

    verb(file, chain, out, use or [], json=json)


@app.command()
def transforms(
    name: Annotated[str, typer.Argument(help="Explain this one.")] = "",
    use: Annotated[list[str] | None, typer.Option("--use", help="Also load this Python file. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """List the transforms of traces, or explain one and its parameters."""
    from gpusim.cli.transforms import transforms as verb

    verb(name, use or [], json=json)


@app.command()
def plan(
    trace: Annotated[str, typer.Argument(help="A trace file, or the name of a shipped one.")],
    profile: Annotated[str, typer.Argument(help="A machine.")],
    policy: Annotated[str, typer.Option("--plan", help="The plan policy, with its parameters.")],
    memory: Annotated[str, typer.Option("--memory", help="Device memory: a size, or a share of the footprint.")] = "capacity",
    tiers: Annotated[str, typer.Option("--tiers", help="The memories below, nearest first: 'host > nvme'.")] = "host",
    evict: Annotated[str, typer.Option("--evict", help="Who decides what the plan does not foresee.")] = "lru",
    out: Annotated[Path | None, typer.Option("--output", "-o", help="The file to write; default: TRACE-PLAN.csv.")] = None,
    use: Annotated[list[str] | None, typer.Option("--use", help="Also load this Python file. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """Write what a plan policy decides as a CSV file, which the plan policy `file` runs."""
    from gpusim.cli.plan import plan as verb

    verb(trace, profile, policy, memory=memory, tiers=tiers, evict=evict, out=out, use=use or [], json=json)


@app.command()
def zoo(name: Annotated[str, typer.Argument(help="Explain this one.")] = "", json: Json = False) -> None:
    """List the models that can be recorded without a program of one's own, or the options of one."""
    from gpusim.cli.zoo import zoo as verb

    verb(name, json=json)


@app.command()
def profiles(name: Annotated[str, typer.Argument(help="Explain this one.")] = "", json: Json = False) -> None:
    """List the hardware profiles, or explain one with its sources."""
    from gpusim.cli.catalogue import profiles as verb

    verb(name, json=json)


@app.command()
def policies(
    name: Annotated[str, typer.Argument(help="Explain this one.")] = "",
    use: Annotated[list[str] | None, typer.Option("--use", help="Also load this Python file. Repeatable.")] = None,
    json: Json = False,
) -> None:
    """List the policies by kind, or explain one and its parameters."""
    from gpusim.cli.catalogue import policies as verb

    verb(name, use or [], json=json)


@app.command()
def metrics(json: Json = False) -> None:
    """List what a run records, with units and definitions."""
    from gpusim.cli.catalogue import metrics as verb

    verb(json=json)


@app.command()
def schema(
    kind: Annotated[str, typer.Argument(help="experiment, profile or program")] = "experiment",
    out: Annotated[Path | None, typer.Option("--output", "-o", help="A file to write; default: it is printed.")] = None,
) -> None:
    """Print the JSON Schema of experiments, profiles or managed programs."""
    from gpusim.cli.catalogue import schema as verb

    verb(kind, out)


def main() -> None:
    """The `gpusim` script."""
    # What imports make stays: to look through it for garbage takes a twentieth of the time of a short run.
    gc.set_threshold(100_000)
    atexit.register(gc.freeze)  # nor need it be looked through once more at the end
    app()


if __name__ == "__main__":
    main()
