"""Say what would help a program on a machine: every remedy that gpusim simulates, ranked.

The remedies are those of `gpusim oom`, `gpusim fit` and `gpusim faults --advise`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli import complete, say
from gpusim.cli.options import Cudnn, Device, Json, Library, Machine, Use, output, trace
from gpusim.cli.output import emit_json

if TYPE_CHECKING:
    from gpusim.studies.advice.machine import AdviceRequest
    from gpusim.studies.advice.study import Where

SETTINGS = {"ignore_unknown_options": True}  # they are the script's, or the model's
ALL = "all"


def verb(
    program: Annotated[
        list[str],
        trace(
            "A script with its arguments (recorded without a GPU), a PyTorch snapshot or another recording, a trace, a managed "
            "program, or a model of the zoo with its options (llama-8b --batch 1).", metavar="PROGRAM...",
        ),
    ],
    *,
    on: Machine = None,
    beside: Annotated[
        list[str] | None,
        typer.Option(
            "--beside", metavar="MACHINE", help="Other machines to compare with, or all.", autocompletion=complete.machines
        ),
    ] = None,
    tries: Annotated[
        list[str] | None,
        typer.Option("--try", help="Try this in place of the usual remedies: 'checkpointing | offload'. Repeatable."),
    ] = None,
    prices: Annotated[
        list[str] | None, typer.Option("--price", metavar="MACHINE=DOLLARS", help="An hour of one GPU. Repeatable.")
    ] = None,
    context: Annotated[
        str | None, typer.Option(metavar="BYTES", help="What driver and libraries take; default: as each profile says.")
    ] = None,
    use: Use = None,
    device: Device = None,
    gpu: Library = "ampere",
    cudnn: Cudnn = "0 B",
    out: Annotated[Path | None, output("A folder; default: results/advise-NAME.")] = None,
    json: Json = False,
) -> None:
    """Advise on one program, print the answer, and leave it in `out`."""
    from gpusim.base.files import make_folder, write_json
    from gpusim.base.units import parse_bytes
    from gpusim.cli.verbs.record import pairs
    from gpusim.studies.advice import inputs, report, study

    where, asked = _where(on, program[0]), _asked(on, beside, tries, prices, context, use)
    script = program[0].endswith(".py")
    words = program if script else program[:1]
    options = {} if script else pairs(program[1:])
    folder = out or Path("results") / f"advise-{Path(program[0].partition('(')[0]).name.partition('.')[0]}"
    found = inputs.program_of(
        words, options=options, device=device, folder=folder, warn=say.warning, gpu=gpu, cudnn_workspace=parse_bytes(cudnn)
    )
    advice = study.advise(found, where, asked, say.told)
    make_folder(folder)
    values = report.values(advice)
    write_json(folder / "advice.json", values)
    if json:
        emit_json(values)
        return
    typer.echo(f"{report.text(advice)}\n\n{folder}: advice.json")


def _where(on: str | None, program: str) -> Where | None:
    from gpusim.base.yaml.find import find
    from gpusim.base.yaml.values import machine as named
    from gpusim.cli.words import machine
    from gpusim.machine import words
    from gpusim.studies.advice.study import Where

    if on is None:
        return None
    hosts, one = words.counted(on)
    _refuse_whole_machine(on, hosts, one, program)
    profile = machine(one, "gpusim advise")
    return Where(profile, find("profile", named(one)[0]), one)


def _refuse_whole_machine(on: str, hosts: int, one: str, program: str) -> None:
    from gpusim.machine.topology import build

    if one not in build.names():
        return
    machine = build.load(one)
    several = f"'{hosts * len(machine.gpus)} x {machine.profile(machine.gpus[0]).name}'"
    raise GpusimError(
        f"gpusim advise simulates one GPU, and of several of them one rank; '{on}' is a whole machine",
        hint=f"write --on {several}, or ask `gpusim fit {program} --on '{on}'`, which simulates all ranks on its links",
    )


def _asked(
    on: str | None, beside: list[str] | None, tries: list[str] | None, prices: list[str] | None, context: str | None,
    use: list[str] | None,
) -> AdviceRequest:  # fmt: skip
    from gpusim.base.units import parse_bytes
    from gpusim.base.yaml.find import names
    from gpusim.cli.words import own_files
    from gpusim.cli.words import profile as load
    from gpusim.machine import words
    from gpusim.studies.advice.machine import AdviceRequest, refuse_prices

    gpus, one = words.counted(on) if on else (1, "")
    wanted = words.split(beside or [])
    if ALL in wanted:
        wanted = list(names("profile"))
    profiles = [load(word) for word in wanted if word != one]
    known = {name: _price(text) for text in prices or [] for name in [text.partition("=")[0].strip()]}
    refuse_prices(known, [p.name for p in profiles] + ([load(one).name] if one else []))
    taken = None if context is None else parse_bytes(context)
    return AdviceRequest(tuple(tries or ()), gpus if gpus > 1 else None, tuple(profiles), known, taken, own_files(use))


def _price(text: str) -> float:
    """Dollars of "NAME=2.5"."""
    name, equals, value = text.partition("=")
    try:
        price = float(value.strip().removeprefix("$"))
    except ValueError:
        price = -1.0
    if not equals or not name.strip() or not 0 <= price < 1e6:
        raise GpusimError(f"'{text}' is no price of a machine", hint="write --price a100-pcie-40gb=1.50, dollars for an hour")
    return price
