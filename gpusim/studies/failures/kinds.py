"""What fails, in words: the failures of a published run, mean times between them, or a log.

    llama3                         all kinds of Llama 3's 54 days, at their rates
    gpu 50000 h, node 3000 d       mean time between failures of each GPU, each node; "job": of the program as a whole
    failures.csv                   a log: seconds,kind,node
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError, suggest
from gpusim.base.units import TIME, parse
from gpusim.base.yaml import document
from gpusim.engine.failures.run import FailureKind, ToldFailure

DATA = Path(__file__).parent / "data" / "known.yaml"
HOUR = 3600e9
_PLAIN: dict[str, dict[str, Any]] = {
    "gpu": {"each": math.nan, "effect": "lose_node"}, "node": {"each": 1.0, "effect": "lose_node", "host_lost": True},
    "job": {"each": 0.0, "effect": "restart"},
}  # fmt: skip
_WORD = re.compile(r"\s*(\w+)\s+(.+?)\s*")


@cache
def known() -> dict[str, Any]:
    """The published runs by name."""
    found: dict[str, Any] = document.read(DATA).data
    return found


def kinds_of(word: str, gpus: int, detect: float, repair: float) -> tuple[tuple[FailureKind, ...], tuple[ToldFailure, ...]]:
    """(what fails at random, what a log tells); `gpus` of a node; ns to notice a failure and to repair a node.

    Raises GpusimError with file:line for a log, and for words that say nothing.
    """
    if word.endswith(".csv"):
        told = tuple(_log(Path(word)))
        names = dict.fromkeys(one.kind for one in told)
        return tuple(_plain(name, math.inf, gpus, detect, repair) for name in names), told
    if word in known():
        return tuple(_published(known()[word], gpus, detect, repair)), ()
    found = []
    for part in word.split(","):
        match = _WORD.fullmatch(part)
        if match is None:
            runs = ", ".join(known())
            raise GpusimError(f"'{part.strip()}' says no failures", hint=f"write gpu 50000 h, node 3000 d, or {runs}")
        found.append(_plain(match[1], float(parse(match[2], TIME)), gpus, detect, repair))
    return tuple(found), ()


def _plain(name: str, between: float, gpus: int, detect: float, repair: float) -> FailureKind:
    if name not in _PLAIN:
        raise GpusimError(f"'{name}' is nothing that fails", hint=suggest(name, _PLAIN) or ", ".join(_PLAIN))
    if between <= 0:
        raise GpusimError(f"a {name} cannot fail every 0 s", hint="write a time above 0")
    words = dict(_PLAIN[name])
    if name == "gpu":
        words["each"] = float(gpus)
    return FailureKind(name=name, between=between, detect=detect, repair=repair, **words)


def _published(run: dict[str, Any], gpus: int, detect: float, repair: float) -> Iterator[FailureKind]:
    """Kinds at the rates of a run; what is counted for the job as a whole is one in `gpus` of that run."""
    hours = run["days"] * 24.0
    of = {"gpu": run["gpus"], "node": run["gpus"] / run["gpus_per_node"], "job": 1.0}
    each = {"gpu": float(gpus), "node": 1.0, "job": 0.0}
    for name, kind in run["kinds"].items():
        yield FailureKind(
            name=name, between=of[kind["per"]] * hours / kind["count"] * HOUR, each=each[kind["per"]], effect=kind["effect"],
            host_lost=kind.get("host", False), detect=detect, repair=repair,
        )  # fmt: skip


def _log(path: Path) -> Iterator[ToldFailure]:
    if not path.is_file():
        raise GpusimError(f"there is no log of failures '{path}'")
    with path.open(newline="", encoding="utf-8") as file:
        rows = csv.reader(file)
        if next(rows, None) != ["seconds", "kind", "node"]:
            raise GpusimError(f"{path}:1: a log of failures begins with seconds,kind,node")
        before = 0.0
        for number, row in enumerate(rows, 2):
            try:
                at, kind, node = float(row[0]), row[1], int(row[2])
            except (ValueError, IndexError):
                raise GpusimError(f"{path}:{number}: '{','.join(row)}' is no failure", hint="write 3600.5,gpu,17") from None
            if at < before or node < 0:
                said = "goes back in time" if at >= 0 and node >= 0 else "has a negative number"
                raise GpusimError(f"{path}:{number}: the log of failures {said}")
            if kind not in _PLAIN:
                raise GpusimError(f"{path}:{number}: '{kind}' is nothing that fails", hint=", ".join(_PLAIN))
            before = at
            yield ToldFailure(round(at * 1e9), kind, node)
