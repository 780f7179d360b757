"""What layouts of ranks, their placement and machines of several GPUs cannot be combined with."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.defaults import LATER
from gpusim.base.errors import GpusimError, Problem, suggest
from gpusim.base.yaml.find import is_managed, is_of_ranks
from gpusim.base.yaml.values import NONE
from gpusim.experiment.answerable import read_ranks
from gpusim.experiment.spec import AS_RECORDED
from gpusim.machine.chain import lends
from gpusim.machine.identity import profile_hash
from gpusim.machine.topology import build, lenders
from gpusim.machine.topology.topology import Topology
from gpusim.programs.ranks.divisible import check_divisible
from gpusim.programs.ranks.layout import NO_LAYOUT, parse_layout
from gpusim.programs.ranks.placement import check_room, given
from gpusim.programs.ranks.stragglers import NO_STRAGGLERS, paces
from gpusim.trace.files import load_trace
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from gpusim.experiment.load import Loaded

PARALLEL = "parallel"
_SEVERAL = "name a machine of several: `gpusim machines` lists them"


@lru_cache(maxsize=4)
def load_whole(file: Path, word: str) -> Topology:
    """The machine of several GPUs that a word means whose file has been found."""
    return build.load_found(file, word)


def contents(file: Path, word: str) -> list[str]:
    """Hashes of the profiles of all GPUs of a machine."""
    machine = load_whole(file, word)
    return sorted({profile_hash(machine.profile(gpu)) for gpu in machine.gpus})


def problems(loaded: Loaded) -> list[Problem]:
    """What layouts, placements and machines cannot be combined with, at its place in the experiment's file."""
    return list(dict.fromkeys((*_of_machines(loaded), *_of_words(loaded), *_of_programs(loaded), *_of_lenders(loaded))))


def _of_programs(loaded: Loaded) -> Iterator[Problem]:
    """Layouts that divide what a trace, as it was recorded, does not have."""
    e = loaded.experiment
    for j, text in enumerate(e.parallel if e.transform == (AS_RECORDED,) else ()):
        if text == NO_LAYOUT or not (layout := parse_layout(text)).divides_layers:
            continue
        for file in loaded.traces.values():
            try:
                if not is_managed(file):
                    check_divisible(_read(file, file.stat().st_mtime_ns), layout)
            except GpusimError as error:
                yield loaded.document.problem((PARALLEL, j), error.message, error.hint)


@lru_cache(maxsize=2)
def _read(file: Path, stamp: int) -> Trace:
    return load_trace(file)


def _of_machines(loaded: Loaded) -> Iterator[Problem]:
    e, say = loaded.experiment, loaded.document.problem
    one = any(not is_of_ranks(file) and not is_managed(file) for file in loaded.traces.values())  # a program of one GPU
    for i, word in enumerate(e.profile):
        machine = loaded.machines.get(word)
        yield from _of_recorded(loaded, i, machine)
        if machine is not None and any(map(is_managed, loaded.traces.values())):
            yield from _of_managed(loaded, i)
        for j, text in enumerate(e.parallel):
            if machine is None and text != NO_LAYOUT:
                yield say((PARALLEL, j), f"{text} is a program of {_ranks(text)}, and {word} is one GPU", _SEVERAL)
            elif machine is not None and text == NO_LAYOUT and one:
                many = f"{word} has {len(machine.gpus)} GPUs: say how the program is divided over them"
                yield say(("profile", i), many, "write parallel: {data: 8}, or name the profile of one GPU")
            elif machine is not None and text != NO_LAYOUT:
                for k, placement in enumerate(e.placement):
                    try:
                        check_room(machine, parse_layout(text).ranks, placement)
                    except GpusimError as error:
                        yield say((PARALLEL, j) if e.placement == (LATER["placement"],) else ("placement", k),
                                  error.message, error.hint)  # fmt: skip


def _of_managed(loaded: Loaded, i: int) -> Iterator[Problem]:
    """What managed programs on several GPUs cannot be combined with, on the experiment's i-th machine."""
    e, say = loaded.experiment, loaded.document.problem
    if e.uncertainty.samples:
        yield say(("uncertainty",), f"{e.profile[i]} has several GPUs, and samples are of one", "name the profile of one GPU")
    if loaded.beside:
        yield say(("profile", i), "programs beside each other have one GPU together", "name the profile of one GPU")


def _of_recorded(loaded: Loaded, i: int, machine: Topology | None) -> Iterator[Problem]:
    """What programs that were recorded on many ranks cannot be combined with, on the experiment's i-th machine."""
    e, say = loaded.experiment, loaded.document.problem
    for name, ranks in _recorded(loaded).items():
        at, recorded = ("trace", e.trace.index(name)), f"'{name}' was recorded on {ranks} ranks"
        if machine is None:
            yield say(at, f"{recorded}, and {e.profile[i]} is one GPU", _SEVERAL)
        elif ranks > len(machine.gpus):
            yield say(at, f"{recorded}, and {e.profile[i]} has {len(machine.gpus)} GPUs", "take more machines: '2 x NAME'")
        if e.fold:
            yield say(("fold",), f"{recorded}, each with its own program: none stands for others", "leave it out")
        for key, plain in ((PARALLEL, NO_LAYOUT), ("transform", AS_RECORDED)):
            if getattr(e, key) != (plain,):
                yield say((key,), f"{recorded}: `{key}` changes the program of one GPU", "leave it out")


def _recorded(loaded: Loaded) -> dict[str, int]:
    """Name -> ranks of the programs that were recorded on many."""
    return {name: len(read_ranks(file).programs) for name, file in loaded.traces.items() if is_of_ranks(file)}


def _of_words(loaded: Loaded) -> Iterator[Problem]:
    e, say = loaded.experiment, loaded.document.problem
    ranks = [parse_layout(text).ranks for text in e.parallel if text != NO_LAYOUT] + [*_recorded(loaded).values()]
    for i, text in enumerate(e.stragglers):
        named = paces(text, loaded.clocks.get(text))
        worst = max((int(name) for name in named if name.isdecimal()), default=-1)
        if worst >= 0 and (not ranks or worst >= min(ranks)):
            yield say(("stragglers", i), f"there is no rank {worst}" + (f": {min(ranks)} are counted from 0" if ranks else ""),
                      "name one of them" if ranks else "say how the program is divided: parallel: {data: 8}")  # fmt: skip
        for name in named:
            for machine in loaded.machines.values():
                if not name.isdecimal() and name not in machine.gpus:
                    yield say(("stragglers", i), f"machine '{machine.name}' has no GPU '{name}'", suggest(name, machine.gpus))
    if not ranks:
        if e.fold:
            yield say(("fold",), "there are no ranks to fold", "say how the program is divided: parallel: {data: 8}")
        if e.placement != (LATER["placement"],):
            yield say(("placement",), "there are no ranks to place", "say how the program is divided: parallel: {data: 8}")
        return
    if e.fold and e.stragglers != (NO_STRAGGLERS,):
        yield say(("fold",), "ranks that are slower than others are not like them: none stands for all", "leave one out")
    if e.fold and any(map(lends, e.tiers)):
        yield say(("fold",), "ranks that lend each other memory are all asked: none stands for all", "leave it out")
    for name, file in loaded.traces.items():
        if is_managed(file):
            yield say(("trace", e.trace.index(name)), f"'{name}' is a managed program, which cannot be divided", "leave it out")
    if e.unified != (NONE,):
        yield say(("unified",), "ranks under unified memory are not simulated", "leave it out")
    if e.policies.plan != (NONE,):
        yield say(("policies", "plan"), "plans are made for one GPU, and not for ranks", "leave it out")
    if e.uncertainty.samples:
        yield say(("uncertainty",), "ranks on sampled machines are not simulated", "leave it out")


def _of_lenders(loaded: Loaded) -> Iterator[Problem]:
    """Memories that ranks lend each other, which the machine lacks, or which nothing asks for."""
    e, say = loaded.experiment, loaded.document.problem
    if e.policies.pool != (NONE,) and not any(map(lends, e.tiers)):
        yield say(("policies", "pool"), "a pool policy chooses among memories of other devices, and the tiers name none",
                  "write tiers: peer(any) > host")  # fmt: skip
    counts = {parse_layout(text).ranks for text in e.parallel if text != NO_LAYOUT} | {*_recorded(loaded).values()}
    for machine in loaded.machines.values():
        for j, chain in enumerate(e.tiers):
            try:
                for ranks, placement in product(sorted(counts), e.placement):
                    gpus = given(placement) or machine.gpus[:ranks]
                    if ranks == len(gpus) and {*gpus} <= {*machine.gpus}:
                        lenders.below(machine, gpus, [machine.profile(gpu) for gpu in gpus], chain)
            except GpusimError as error:
                yield say(("tiers", j), error.message, error.hint)


def _ranks(text: str) -> str:
    ranks = parse_layout(text).ranks
    return f"{ranks} rank{'s' if ranks != 1 else ''}"
