"""A question's answers in a folder: a file for each combination, which a second run does not compute again.

    FOLDER/summary.csv        a row for each combination
    FOLDER/runs/KEY.json      its row; KEY is a hash of its words and of all source files that decide it
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from importlib import metadata
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpusim.base.files import write_json, write_text
from gpusim.experiment.closure import Closure
from gpusim.experiment.key import file_hash, run_key
from gpusim.policies.builtin import files
from gpusim.programs.serving.requests import file_of
from gpusim.studies.serving.questions import Combination, ServingQuestion, combinations, point_of, row_of

TABLES = "aiconfigurator-core"
"""The package with measured operators; steps differ with and without it."""


def answered(question: ServingQuestion, out: Path, *, jobs: int = 1, force: bool = False) -> list[dict[str, Any]]:
    """A row for each combination, of the folder where it has them; in `jobs` processes."""
    todo = list(combinations(question))
    paths = [out / "runs" / f"{key}.json" for key in keys(question, todo)]
    missing = [i for i, path in enumerate(paths) if force or not path.is_file()]
    (out / "runs").mkdir(parents=True, exist_ok=True)
    if jobs > 1 and len(missing) > 1:
        with ProcessPoolExecutor(min(jobs, len(missing)), get_context("spawn")) as pool:
            work = {pool.submit(_kept, question, todo[i]): i for i in missing}
            for done in as_completed(work):
                write_json(paths[work[done]], done.result())
    else:
        for i in missing:
            write_json(paths[i], _kept(question, todo[i]))
    rows = [dict(json.loads(path.read_text("utf-8"))["row"]) for path in paths]
    save_rows(rows, out / "summary.csv")
    return rows


def _kept(question: ServingQuestion, one: Combination) -> dict[str, Any]:
    """Names and values of the row, in its order, as JSON has them; no number is None."""
    row = row_of(point_of(question, one), question)
    pairs = [[name, None if isinstance(value, float) and math.isnan(value) else value] for name, value in row.items()]
    return {"row": pairs}


def keys(question: ServingQuestion, todo: Sequence[Combination]) -> list[str]:
    """Names of the combinations: hashes of all that decides them."""
    policies = [f"gpusim.policies.{kind}.{name}" for kind in ("schedule", "evict") for name in files(kind)]
    code = Closure().digest(["gpusim.studies.serving.questions", *policies])
    same = {"code": code, "tables": _version(), "slo": repr(question.slo), "find": question.find, "price": str(question.price)}
    same |= {"attainment": str(question.attainment), "seed": str(question.seed)}
    return [run_key(same | {"words": asdict(one.spec), "requests": _content(one.requests), "how": one[2:4]}) for one in todo]


def _content(requests: str) -> str:
    """The word, or the hash of the file that it names."""
    path = file_of(requests)
    return file_hash(path) if path.is_file() else requests


def _version() -> str:
    try:
        return metadata.version(TABLES)
    except metadata.PackageNotFoundError:
        return ""


def save_rows(rows: list[dict[str, Any]], path: Path) -> None:
    """Rows as CSV, with all columns that any of them has."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(dict.fromkeys(name for row in rows for name in row)), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())
