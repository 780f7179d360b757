"""Run a published study again under its own conditions, and show both figures for every row of its table."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpusim.base.errors import GpusimError
from gpusim.cli.options import Jobs, Json, output
from gpusim.cli.output import emit, emit_json

STUDIES = ("g10", "gpu_ext")
COLUMNS = ("figure", "network", "batch", "policy", "host_gib", "ssd", "published", "ours", "difference", "pages", "note")
EXT_COLUMNS = ("group", "case", "published", "from", "to", "ours_low", "ours_high", "difference", "note")


def verb(
    name: Annotated[
        str,
        typer.Argument(
            metavar="STUDY",
            help="g10: unified memory, DeepUM, G10, FlashNeuron (MICRO 2023); gpu_ext: page policies on an RTX 5090.",
        ),
    ],
    *,
    figures: Annotated[
        list[str] | None,
        typer.Option("--figure", help="Only this one: 11, 15, 16, 17, 18; of gpu_ext a kernel, as gemm. Repeatable."),
    ] = None,
    traces: Annotated[
        Path | None, typer.Option("--traces", help="Of g10: a folder of traces; default: the shipped ones.")
    ] = None,
    plans: Annotated[bool, typer.Option("--plans", help="Of g10: the study's own plans (FOLDER/plans), not ours.")] = False,
    conditions: Annotated[
        Path | None, typer.Option("--conditions", help="Of g10: a file of conditions; default: the study's.")
    ] = None,
    out: Annotated[Path | None, output("Also write all rows to this CSV file.")] = None,
    jobs: Jobs = None,
    json: Json = False,
) -> None:
    """Run what the study has published, print both figures for each row, and a summary by policy."""
    if name not in STUDIES:
        raise GpusimError(f"there is no study '{name}' to reproduce", hint=f"there are: {', '.join(STUDIES)}")
    if name == "gpu_ext":
        if traces is not None or conditions is not None or plans:
            raise GpusimError("gpu_ext has its programs in the package: --traces, --plans and --conditions are of g10")
        _gpu_ext(figures or [], out, json)
        return

    from gpusim.base.yaml.find import folders
    from gpusim.cli.progress import bar
    from gpusim.experiment.pool import cores
    from gpusim.studies.g10 import reproduction
    from gpusim.studies.g10.study import DEFAULT, G10Study

    folder = traces or folders("trace")[0] / name
    if not folder.is_dir():
        raise GpusimError("there is no such folder of traces", str(folder))
    study = G10Study(conditions or DEFAULT)
    rows = study.figures(figures or [])
    with bar("programs") as progress:
        made = reproduction.reproduce(study, rows, folder, shipped_plans=plans, jobs=jobs or cores(), progress=progress)
    short = reproduction.summary(made)
    wrong = reproduction.rankings(made)
    if out is not None:
        _write(out, made)
    if json:
        emit_json({"rows": made, "summary": short, "rankings": wrong})
        return
    shown = [row for row in made if row["ours"] is not None]
    if not shown:
        raise GpusimError("none of the programs of these figures is there as NETWORK_bBATCH.jsonl.gz", str(folder))
    emit([_in_percent(row, "difference", "pages") for row in shown], columns=COLUMNS)
    typer.echo("")
    emit([_in_percent(row, "worst", "worst_pages") for row in short])
    order = f"another order than published: {'; '.join(wrong)}" if wrong else "the policies come in the published order"
    typer.echo(f"\n{order}")


def _gpu_ext(kernels: Sequence[str], out: Path | None, json: bool) -> None:
    from gpusim.cli.progress import bar
    from gpusim.studies.gpu_ext import study

    rows = study.published()
    known = dict.fromkeys(row["kernel"] for row in rows)
    for kernel in kernels:
        if kernel not in known:
            raise GpusimError(f"gpu_ext has no kernel '{kernel}'", hint=f"there are: {', '.join(known)}")
    with bar("rows") as progress:
        made = study.reproduce([row for row in rows if not kernels or row["kernel"] in kernels], progress)
    short, wrong = study.summary(made), study.rankings(made)
    if out is not None:
        _write(out, made, list(made[0]))
    if json:
        emit_json({"rows": made, "summary": short, "rankings": wrong})
        return
    emit([_in_percent(row, "difference") for row in made if row["note"] != "given"], columns=EXT_COLUMNS)
    typer.echo("\nms; ours between 0.5 and 1.2 GiB of context, which is not published\n")
    emit([_in_percent(row, "median", "worst") for row in short])
    typer.echo(f"\nin another order than published: {'; '.join(wrong)}" if wrong else "\nall cases come in the published order")


def _in_percent(row: dict[str, Any], *shares: str) -> dict[str, Any]:
    return {**row, **{key: None if row[key] is None else _percent(row[key]) for key in shares}}


def _percent(share: float) -> str:
    return "0" if abs(share) < 1e-9 else f"{100 * share:+.2g} %"


def _write(path: Path, rows: Sequence[dict[str, Any]], columns: Sequence[str] = (*COLUMNS, "iterations", "seconds")) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, restval="")
        writer.writeheader()
        for row in rows:
            several = {"iterations": " ".join(map(str, row["iterations"]))} if "iterations" in row else {}
            writer.writerow({**row, **several})
