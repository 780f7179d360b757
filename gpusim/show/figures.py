"""The figures by name: what each shows, for which results it is worth drawing, how to draw and save it."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.base.errors import ResultError, suggest
from gpusim.results.result import Result
from gpusim.show.values import distribution, heat, links, pareto, ranks_memory
from gpusim.show.view import main_metric, value, varying

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from gpusim.show.programs import RanProgram

FORMATS = ("png", "svg", "pdf")

LOADS = ("gpusim.show.figure",)  # packages whose modules are imported by name


@dataclass(frozen=True)
class Drawing:
    """One figure: its module in gpusim.show.figure, one sentence, and the results for which it says something.

    needs     what must be there, in the words of `left_out`
    timeline  it shows memory over time; the other figures need no more than a result's numbers
    log       it reads event logs
    program   it reads the programs that ran
    """

    meaning: str
    fits: Callable[[Sequence[Result]], bool]
    needs: str
    timeline: bool = False
    log: bool = False
    program: bool = False


def _use_memory(results: Sequence[Result]) -> bool:
    return any(value(r, "reserved_peak_bytes") for r in results)


FIGURES: dict[str, Drawing] = {
    "policy_comparison": Drawing(
        "Slowdown (or makespan) by policy over memory, with oracles, bounds and runs that failed.",
        lambda results: any(value(r, main_metric(results)) is not None for r in results if r.finished),
        "no run finished",
    ),
    "heat_map": Drawing(
        "The metric by two axes at once, a cell per combination.",
        heat.telling,
        "fewer than two axes vary, or too few of their combinations were run",
    ),
    "pareto": Drawing(
        "Memory held against time: every run, and the front of the best trades.",
        pareto.telling,
        "no three runs differ in memory and in time",
    ),
    "distribution": Drawing(
        "How often each policy is within a factor of the best, over all machines, programs and memory sizes.",
        distribution.telling,
        f"no policies compete in {distribution.LEAST_PLACES} places or more",
    ),
    "memory_over_time": Drawing(
        "Requested, allocated, reserved and swapped-out bytes over time, against the capacity.",
        lambda results: _use_memory(results) or any(value(r, "chunks_peak_bytes") for r in results),
        "no run got as far as to use memory",
        timeline=True,
    ),
    "time_breakdown": Drawing(
        "Where the time went: kernels, and stalls by cause, per run.",
        lambda results: any(value(r, "makespan_ns") for r in results),
        "no run finished with known times",
    ),
    "traffic": Drawing(
        "Bytes moved per direction, against the least that must come in.",
        lambda results: any(value(r, name) for r in results for name in ("h2d_bytes", "d2h_bytes")),
        "nothing was swapped",
    ),
    "oversubscription": Drawing(
        "Bytes that kernels touch per second (or slowdown) over oversubscription, by policy; one panel per machine.",
        lambda results: "memory_share" in varying([r for r in results if r.spec.get("unified")]),
        "no memory share varies under unified memory",
    ),
    "fault_map": Drawing(
        "Pages faulted on, brought ahead and evicted under unified memory, over time and address.",
        lambda results: any(r.faults is not None for r in results),
        "no run is under unified memory",
        timeline=True,
    ),
    "fragmentation": Drawing(
        "Four measures of fragmentation per allocator, and reserved against allocated bytes over time.",
        lambda results: "place" in varying(results) and _use_memory(results),
        "no allocators are compared",
        timeline=True,
    ),
    "links": Drawing(
        "The topology of a machine of several GPUs, its links coloured by how busy the best run kept them.",
        links.telling,
        "no run of several ranks finished",
    ),
    "ranks_memory": Drawing(
        "Reserved memory of each rank over time, against the capacity.",
        ranks_memory.telling,
        "no run has several ranks",
        timeline=True,
    ),
    "roofline": Drawing(
        "The operators of a program under the arithmetic and the bandwidth of the machine.",
        lambda results: False,
        "no program is there with the flops of its operators",
        program=True,
    ),
    "address_map": Drawing(
        "Blocks, segments and holes of the heap over time, by address; needs an event log.",
        lambda results: any(r.log is not None and len(r.log) for r in results),
        "no run kept its event log: --log keeps it",
        log=True,
    ),
    "swimlane": Drawing(
        "Streams, copy engines and stalls side by side over time; needs an event log.",
        lambda results: False,
        "no run kept its event log: --log keeps it",
        log=True,
        program=True,
    ),
    "durations": Drawing(
        "How long kernels, copies and stalls take one by one, as distributions; needs an event log.",
        lambda results: False,
        "no run kept its event log: --log keeps it",
        log=True,
        program=True,
    ),
}


def suitable(results: Sequence[Result]) -> list[str]:
    """Names of the figures that say something about these results, in the order in which they are worth reading."""
    return [name for name, drawing in FIGURES.items() if drawing.fits(results)]


def left_out(names: Iterable[str], drawn: Iterable[str]) -> dict[str, str]:
    """Of the figures that were asked for, those that have nothing to show: name -> why."""
    there = set(drawn)
    return {name: FIGURES[name].needs for name in names if name in FIGURES and name not in there}


def draw(name: str, results: Sequence[Result], question: str = "", **options: Any) -> Figure:
    """The figure of that name; `options` are those of its own `draw`.  Raises ResultError for an unknown name."""
    if name not in FIGURES:
        raise ResultError(f"there is no figure '{name}'", hint=suggest(name, FIGURES))
    module = importlib.import_module(f"gpusim.show.figure.{name}")
    figure: Figure = module.draw(results, question=question, **options)
    return figure


def save(figure: Figure, stem: str | Path, formats: Iterable[str] = FORMATS) -> list[Path]:
    """Writes STEM.png, STEM.svg and STEM.pdf; equal results give equal bytes.  Raises ResultError."""
    from gpusim.show.style import save as write

    try:
        return write(figure, stem, formats)
    except OSError as error:
        raise ResultError(f"cannot write the figure: {error.strerror or error}", str(stem)) from None


def draw_all(
    results: Sequence[Result],
    folder: str | Path,
    question: str = "",
    names: Iterable[str] | None = None,
    formats: Iterable[str] = FORMATS,
    categories: Mapping[str, Sequence[str]] | None = None,
    ran: Sequence[RanProgram] | None = None,
) -> dict[str, list[Path]]:
    """Draws and saves the named figures (default: the suitable ones); the question goes over the first one only.

    categories  trace name -> category of each tensor, for the colours of the address map
    ran         of each result its program and machine, for figures that read them; else these are looked for by name
    Returns the files by figure.
    """
    wanted = list(suitable(results) if names is None else names)
    formats = tuple(formats)
    made = {}
    for index, name in enumerate(wanted):
        options: dict[str, Any] = {"categories": categories} if name == "address_map" else {}
        if name in FIGURES and FIGURES[name].program:
            options["ran"] = ran
        figure = draw(name, results, question if index == 0 else "", **options)
        made[name] = save(figure, Path(folder) / name, formats)
    return made
