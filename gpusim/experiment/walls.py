"""How long runs took on this machine, kept beside results, and how long others will therefore take.

A time is told only where one was measured: by runs of the same results folder, else, per event of the trace, by those of
the folders beside it.  Runs under unified memory and others are not compared: they are different work.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gpusim.base.files import write_json
from gpusim.base.yaml.find import is_managed, is_of_ranks
from gpusim.base.yaml.values import NONE
from gpusim.results.folder import MACHINE, said_of_machine

if TYPE_CHECKING:
    from gpusim.experiment.tasks import Task

TENSORS, PAGES = "tensors", "pages"  # what moves in a run: the two kinds of work
SAMPLED = "sampled"  # follows the kind of runs that were repeated on sampled machines
_KEY = "timed"


@dataclass(frozen=True)
class Timed:
    """Runs of one kind that were executed together.

    runs     how many
    seconds  from the first beginning to the last end
    events   of their traces, summed; 0: not known
    """

    kind: str
    runs: int
    seconds: float
    events: int


@dataclass(frozen=True)
class Expected:
    """How long runs will take.

    seconds  None: nothing is known
    basis    what that rests on, or why nothing is known, as a clause
    """

    seconds: float | None
    basis: str


def kind_of(task: Task) -> str:
    """Which kind of work a run is."""
    return TENSORS if task.spec.unified == NONE else PAGES


def of_run(tasks: Sequence[Task], seconds: float) -> list[Timed]:
    """What running these tasks together, for so long, says; nothing where they are of two kinds."""
    kinds = {kind_of(task) for task in tasks}
    return [Timed(kind, len(tasks), seconds, events(tasks)) for kind in kinds] if len(kinds) == 1 else []


def of_samples(tasks: Sequence[Task], samples: int, seconds: float) -> list[Timed]:
    """What repeating these runs on so many machines, for so long, says; its runs are repetitions."""
    return [
        Timed(f"{row.kind} {SAMPLED}", row.runs * samples, row.seconds, row.events * samples) for row in of_run(tasks, seconds)
    ]


def events(tasks: Iterable[Task]) -> int:
    """Events of their traces, summed; 0 when a program is among them whose events are not counted."""
    from gpusim.trace.files import load_meta

    counts: dict[Path, int] = {}
    total = 0
    for task in tasks:
        if is_managed(task.trace) or is_of_ranks(task.trace):
            return 0
        if task.trace not in counts:
            counts[task.trace] = load_meta(task.trace)[0]["kind"]  # rows of the table of events
        total += counts[task.trace]
    return total


def read(folder: Path) -> list[Timed]:
    """What was timed in a results folder; nothing where there is none, or what it says cannot be read."""
    try:
        return [Timed(**row) for row in said_of_machine(folder).get(_KEY, [])]
    except (TypeError, AttributeError):
        return []


def keep(folder: Path, timed: Sequence[Timed]) -> None:
    """Write what was timed into the folder's machine.json, which is different on every machine as it is."""
    if timed:
        write_json(folder / MACHINE, {**said_of_machine(folder), _KEY: [asdict(row) for row in _summed(timed)]})


def expected(folder: Path, tasks: Sequence[Task], samples: int = 0) -> Expected:
    """How long these tasks will take, by what was timed in `folder`, else in the folders beside it.

    samples  how often each is repeated on sampled machines; 0: they are the runs themselves
    """
    total, said = 0.0, list[str]()
    for moving in sorted({kind_of(task) for task in tasks}):
        mine = [task for task in tasks if kind_of(task) == moving]
        times, kind = (samples, f"{moving} {SAMPLED}") if samples else (1, moving)
        found = _of_folder(folder, kind, times * len(mine)) or _beside(folder, kind, times * events(mine))
        if found is None:
            return Expected(None, f"no {_noun(kind)[:-1]} of this kind ({moving} move) was timed here before")
        seconds, basis = found
        total += seconds
        said.append(basis)
    return Expected(total, " and ".join(dict.fromkeys(said)))


def _noun(kind: str) -> str:
    return "sampled runs" if kind.endswith(SAMPLED) else "runs"


def _of_folder(folder: Path, kind: str, count: int) -> tuple[float, str] | None:
    for row in read(folder):
        if row.kind == kind and row.runs:
            return count * row.seconds / row.runs, f"{row.runs:,} {_noun(kind)} in {folder} took {row.seconds:.1f} s"
    return None


def _beside(folder: Path, kind: str, wanted: int) -> tuple[float, str] | None:
    others = sorted(path for path in folder.parent.iterdir() if path != folder) if folder.parent.is_dir() else []
    rows = [row for other in others for row in read(other) if row.kind == kind and row.events and row.seconds > 0]
    if not wanted or not rows:
        return None
    rate = sum(row.events for row in rows) / sum(row.seconds for row in rows)
    runs = sum(row.runs for row in rows)
    return wanted / rate, f"{runs:,} {_noun(kind)} in other folders of {folder.parent} did {rate:,.0f} events a second"


def _summed(timed: Sequence[Timed]) -> list[Timed]:
    """One row for each kind."""
    found = []
    for kind in dict.fromkeys(row.kind for row in timed):
        rows = [row for row in timed if row.kind == kind]
        known = all(row.events for row in rows)
        seconds = round(sum(row.seconds for row in rows), 3)
        found.append(Timed(kind, sum(row.runs for row in rows), seconds, sum(row.events for row in rows) if known else 0))
    return found
