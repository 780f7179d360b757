"""What fails, in words: the failures of a published run, mean times between them, or a log.

    llama3                              all kinds of Llama 3's 54 days, at their rates
    gpu 50000 h, node 3000 d            mean time between failures of each GPU, each node; "job": of the program as a whole
    nic 80000 h, link(rate=0.5, lasts=10 min) 200 h, rack(nodes=4) 900 d
                                        what a failure does stands in brackets
    failures.csv                        a log: seconds,kind,node
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from gpusim.base.calls import closed, listed, split
from gpusim.base.errors import GpusimError, UnitError, suggest
from gpusim.base.files import open_text
from gpusim.base.units import BYTES, TIME, parse
from gpusim.base.yaml import document
from gpusim.engine.failures.run import FailureKind, ToldFailure

DATA = Path(__file__).parent / "data" / "known.yaml"
HOUR = 3600e9
_GENERAL = ("detect", "repair")
OPTIONS: dict[str, tuple[str, ...]] = {
    "gpu": _GENERAL, "node": _GENERAL, "job": ("detect",), "nic": (*_GENERAL, "rate", "lasts", "speed", "then"),
    "link": (*_GENERAL, "rate", "lasts", "speed", "then"), "rack": (*_GENERAL, "nodes"), "slow": ("speed", "lasts"),
    "page": (*_GENERAL, "bytes"),
}  # fmt: skip
"""What may stand in the brackets of each kind."""
PAGE = float(64 << 10)
_WORD = re.compile(r"\s*(\w+(?:\s*\([^()]*\))?)\s*(.*?)\s*", re.DOTALL)


class Keeps(Protocol):
    """(nic or link, share of its rate that is left; 0: it is gone) -> share of its pace that the work keeps."""

    def __call__(self, name: str, left: float) -> float: ...


@dataclass(frozen=True)
class FailureContext:
    """What the words of failures refer to.

    gpus, cards, wires  of a node
    detect, repair      ns, where a kind says none of its own
    keeps   what slower links leave of the work
    direct  a dead wire leaves GPUs other ways to each other; else its node leaves
    """

    gpus: int
    cards: int
    wires: int
    detect: float
    repair: float
    keeps: Keeps
    direct: bool = False


@cache
def known() -> dict[str, Any]:
    """The published runs by name."""
    found: dict[str, Any] = document.read(DATA).data
    return found


def kinds_of(word: str, where: FailureContext) -> tuple[tuple[FailureKind, ...], tuple[ToldFailure, ...]]:
    """(what fails at random, what a log tells).

    Raises GpusimError with file:line for a log, and for words that say nothing.
    """
    if word.strip().endswith(".csv"):
        told = tuple(_log(Path(word.strip())))
        return tuple(_kind(name, math.inf, where) for name in dict.fromkeys(one.kind for one in told)), told
    if word.strip() in known():
        return tuple(_published(known()[word.strip()], where)), ()
    closed(word)
    return tuple(_timed(part, where) for part in listed(word)), ()


def _timed(part: str, where: FailureContext) -> FailureKind:
    match = _WORD.fullmatch(part)
    if match is None or not match[2]:
        runs = ", ".join(known())
        raise GpusimError(f"'{part.strip()}' says no failures", hint=f"write gpu 50000 h, node 3000 d, or {runs}")
    try:
        between = float(parse(match[2], TIME))
    except UnitError as error:
        raise GpusimError(f"'{part.strip()}': {error.message}", hint=error.hint or "write gpu 50000 h") from None
    if between <= 0:
        raise GpusimError(f"a {match[1]} cannot fail every {match[2]}", hint="write a time above 0")
    return _kind(match[1], between, where)


def _kind(word: str, between: float, where: FailureContext) -> FailureKind:
    """One kind by its name and what stands in its brackets."""
    name, texts = split(word, "a kind of failure")
    if name not in OPTIONS:
        raise GpusimError(f"'{name}' is nothing that fails", hint=suggest(name, OPTIONS) or ", ".join(OPTIONS))
    for key in texts:
        if key not in OPTIONS[name]:
            raise GpusimError(f"a failing {name} has no '{key}'", hint=suggest(key, OPTIONS[name]) or ", ".join(OPTIONS[name]))
    said = {key: _value(name, key, text) for key, text in texts.items() if key != "then"}
    times: dict[str, Any] = {"detect": said.get("detect", where.detect), "repair": said.get("repair", where.repair)}
    made: dict[str, Any] = {
        "gpu": {"each": float(where.gpus), "effect": "lose_node"},
        "node": {"each": 1.0, "effect": "lose_node", "host_lost": True},
        "job": {"each": 0.0, "effect": "restart"},
        "slow": {"each": float(where.gpus), "effect": "slow", "speed": said.get("speed"), "lasts": said.get("lasts")},
        "page": {"each": float(where.gpus), "effect": "shrink", "bytes": said.get("bytes", PAGE)},
    }.get(name, {})
    if name == "rack":
        made = _rack(said)
    elif name in ("nic", "link"):
        made = _link(name, texts.get("then", "goes_on"), said, where)
    if name == "slow" and None in (made["speed"], made["lasts"]):
        raise GpusimError("how slow is a slow rank, and for how long?", hint="write slow(speed=0.9, lasts=1 h) 500 h")
    return FailureKind(name=word, between=between, **times, **made)


def _value(name: str, key: str, text: str) -> float:
    """Of an option; times in ns."""
    try:
        if key in ("detect", "repair", "lasts"):
            found = float(parse(text, TIME))
        else:
            found = float(parse(text, BYTES)) if key == "bytes" else float(text)
    except (UnitError, ValueError):
        example = {"bytes": "64 KiB", "nodes": "4"}.get(key, "0.5" if key in ("rate", "speed") else "10 min")
        raise GpusimError(f"{name}: '{text}' is no {key}", hint=f"write {key}={example}") from None
    if key in ("rate", "speed") and not 0 < found < 1:
        raise GpusimError(f"{name}: {key}={text} is no share", hint="a number between 0 and 1")
    if key == "nodes" and (found < 2 or found % 1):
        raise GpusimError(f"{name}: nodes={text} is no number of nodes that fail together", hint="2 or more")
    if found < 0 or (found == 0 and key in ("bytes", "lasts")):
        raise GpusimError(f"{name}: {key}={text} is not above 0")
    return found


def _rack(said: dict[str, float]) -> dict[str, Any]:
    if "nodes" not in said:
        raise GpusimError("how many nodes has a rack?", hint="write rack(nodes=4) 900 d")
    group = int(said["nodes"])
    return {"each": 1.0 / group, "group": group, "effect": "lose_node", "host_lost": True}


def _link(name: str, then: str, said: dict[str, float], where: FailureContext) -> dict[str, Any]:
    """A card or a wire: slow for a time, or gone until it is repaired: the job goes on without it, or the node leaves."""
    each = where.cards if name == "nic" else where.wires
    if not each:
        raise GpusimError(f"the nodes have no {'network cards' if name == 'nic' else 'links between GPUs'} that could fail")
    if then not in ("goes_on", "replace"):
        hint = "goes_on: with the links that are left; replace: the node leaves"
        raise GpusimError(f"{name}: then={then} is unknown", hint=hint)
    if "rate" in said or ("speed" in said and "lasts" in said):
        if "lasts" not in said:
            raise GpusimError(f"how long is a {name} slow?", hint=f"write {name}(rate=0.5, lasts=10 min) 200 h")
        speed = said["speed"] if "speed" in said else where.keeps(name, said["rate"])
        return {"each": float(each), "effect": "slow", "speed": speed, "lasts": said["lasts"]}
    if then == "replace" or (name == "link" and not where.direct):
        return {"each": float(each), "effect": "lose_node"}
    speed = said["speed"] if "speed" in said else where.keeps(name, 0.0)
    return {"each": float(each), "effect": "degrade", "speed": speed, "lasts": said.get("repair", where.repair)}


def _published(run: dict[str, Any], where: FailureContext) -> Iterator[FailureKind]:
    """Kinds at the rates of a run; what is counted for the job as a whole is one in `gpus` of that run."""
    hours = run["days"] * 24.0
    of = {"gpu": run["gpus"], "node": run["gpus"] / run["gpus_per_node"], "job": 1.0}
    each = {"gpu": float(where.gpus), "node": 1.0, "job": 0.0}
    for name, kind in run["kinds"].items():
        yield FailureKind(
            name=name, between=of[kind["per"]] * hours / kind["count"] * HOUR, each=each[kind["per"]], effect=kind["effect"],
            host_lost=kind.get("host", False), detect=where.detect, repair=where.repair,
        )  # fmt: skip


def _log(path: Path) -> Iterator[ToldFailure]:
    if not path.is_file():
        raise GpusimError(f"there is no log of failures '{path}'")
    with open_text(path) as file:
        rows = csv.reader(file)
        if next(rows, None) != ["seconds", "kind", "node"]:
            raise GpusimError("a log of failures begins with seconds,kind,node", f"{path}:1")
        before = 0.0
        for number, row in enumerate(rows, 2):
            try:
                at, kind, node = float(row[0]), row[1], int(row[2])
            except (ValueError, IndexError):
                said = f"'{','.join(row)}' is no failure"
                if len(row) == 3 and not row[2].strip().lstrip("-").isdigit():
                    said = f"'{row[2]}' is no node: the log names nodes by number, from 0"
                raise GpusimError(said, f"{path}:{number}", "write 3600.5,gpu,17") from None
            if not before <= at < math.inf or node < 0:
                said = "goes back in time" if 0 <= at < before and node >= 0 else "has a negative number"
                raise GpusimError(f"the log of failures {said}", f"{path}:{number}")
            name = kind.partition("(")[0].strip()
            if name not in OPTIONS:
                hint = suggest(name, OPTIONS) or ", ".join(OPTIONS)
                raise GpusimError(f"'{kind}' is nothing that fails", f"{path}:{number}", hint)
            before = at
            yield ToldFailure(round(at * 1e9), kind, node, f"{path}:{number}")


def checked_nodes(told: Iterable[ToldFailure], nodes: int, what: str = "the job") -> None:
    """Raises GpusimError with file:line for a failure of a node that is not there."""
    for each in told:
        if each.node >= nodes:
            have = f"{what} has {nodes} node" + ("s, 0 to " + str(nodes - 1) if nodes > 1 else ", 0")
            hint = f"write {each.at / 1e9:g},{each.kind},{nodes - 1}"
            raise GpusimError(f"node {each.node} fails, and {have}", each.where, hint)
