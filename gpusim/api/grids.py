"""Many runs that answer one question: an experiment in Python or from YAML, and what its runs came to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import yaml

from gpusim.api.frames import frame
from gpusim.api.result import SHOWN, Result, shown
from gpusim.api.showing import figure, html
from gpusim.api.words import Named
from gpusim.base.errors import ResultError
from gpusim.base.yaml import document
from gpusim.experiment import grid, load
from gpusim.experiment.load import Loaded
from gpusim.experiment.pool import Failure
from gpusim.experiment.ran import load_source_of
from gpusim.experiment.resolved import resolved
from gpusim.experiment.spec import KINDS
from gpusim.experiment.tasks import inputs, plan
from gpusim.experiment.where import LOCAL
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.results import result as kept
from gpusim.results.folder import EXPERIMENT, load_folder
from gpusim.results.summary import axes, column, rows
from gpusim.show import export
from gpusim.show.answer import answer
from gpusim.show.picked import overview

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from gpusim.show.page.write import Page


class Experiment:
    """A question and the grid that answers it: the product of all lists, as in YAML (`gpusim schema` has the keys).

    trace, machine  one or several; traces by name or path, machines also with other numbers
    policies        evict=["lru", "belady"], place=..., prefetch=...: each a policy or a list of them, by name or as the
                    decorated objects
    use             files with policies of your own
    others          the other keys of an experiment, as there: memory, tiers, grain, unified, transform, seed, bounds,
                    uncertainty, figures, ...
    name            what its results folder is called

    Raises ConfigError when it is run, with all its mistakes; PolicyError for an object that is no policy.

    >>> import gpusim
    >>> e = gpusim.Experiment("resnet50-train", "a100-pcie-40gb", evict=["lru", "belady"], memory="60 %")
    >>> len(e)
    2
    """

    def __init__(
        self, trace: str | Sequence[str], machine: str | Sequence[str], *, question: str = "", name: str = "experiment",
        use: Any = (), log: bool = False, **others: Any,
    ) -> None:  # fmt: skip
        self._named = Named(use)
        policies = {kind: self._named.axis(kind, others.pop(kind)) for kind in KINDS if kind in others}
        if "placement" in others:  # a list is one of placements
            asked = others["placement"]
            others["placement"] = [self._named.placement(each) for each in (asked if isinstance(asked, list) else [asked])]
        data = {
            "question": question or f"What does {_words(trace)} take on {_words(machine)}?",
            "trace": _plain(trace), "profile": _plain(machine), **{key: _plain(value) for key, value in others.items()},
            "use": [str(file) for file in self._named.files], "options": {"log": log},
            **({"policies": policies} if policies else {}),
        }  # fmt: skip
        self._source: str | document.Document = document.loads(yaml.safe_dump(data, sort_keys=False, allow_unicode=True), name)
        self._sets: list[str] = []

    @classmethod
    def load(cls, name: str | Path, *sets: str) -> Experiment:
        """The experiment in a file, or the shipped one of this name; sets: "memory=60 %", as `--set` of the command."""
        made = cls.__new__(cls)
        made._named, made._source, made._sets = Named(), str(name), list(sets)
        return made

    def loaded(self) -> Loaded:
        """The experiment with the files that it names, as the rooms below work on it.  Raises ConfigError."""
        return load.experiment(self._source, self._sets, self._named.given)

    def __len__(self) -> int:
        """How many runs the grid has, without references."""
        loaded = self.loaded()
        return len(plan(loaded, load.default_folder(loaded), allow_large=True).grid)

    @property
    def yaml(self) -> str:
        """As a file for `gpusim run`, with every default in place."""
        return resolved(self.loaded().experiment)


class Results(Sequence[Result]):
    """The results of a grid, in its order; a table where a notebook shows it.

    folder    where they lie, as `gpusim run` leaves them: `gpusim plot`, `compare` and `check` read it
    failures  runs that have no result: which, and why
    """

    def __init__(
        self, values: Sequence[kept.Result], folder: Path, question: str = "", failures: Sequence[tuple[str, Failure]] = (),
        own: Registry = SHIPPED,
    ) -> None:  # fmt: skip
        self.folder, self.question, self.failures = folder, question, list(failures)
        self._values, self._own = list(values), own

    @overload
    def __getitem__(self, index: int) -> Result: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Result | Results:
        if isinstance(index, slice):
            return Results(self._values[index], self.folder, self.question, self.failures, self._own)
        return Result(self._values[index], folder=self.folder)

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[Result]:
        return (Result(value, folder=self.folder) for value in self._values)

    @property
    def values(self) -> list[kept.Result]:
        """The plain values that the rooms below work on."""
        return list(self._values)

    @property
    def answer(self) -> str:
        """What the numbers say, in words."""
        return answer(self._values)

    def frame(self) -> DataFrame:
        """As a pandas DataFrame: a row per run, with the columns of summary.csv.  GpusimError without pandas."""
        return frame(rows(self._values))

    def table(self, metric: str = "", width: int = 120) -> str:
        """What `gpusim run` prints: best first, and as a ratio to it; of very many runs what to look at."""
        return overview(self._values, metric, width)

    def plot(self, kind: str = "", **options: Any) -> Figure:
        """The figure of this name (see gpusim.show.figures), by default the one that says most; shown in a notebook.

        Raises ResultError for an unknown name.
        """
        wanted = {value.key for value in self._values}
        found = [r for r in load_folder(self.folder, log=kind == "address_map") if r.key in wanted]
        return figure(found, kind, self.question, **options)

    def report(
        self, path: str | Path | None = None, *, against: str | Path | None = None, timelines: Sequence[str] | None = None
    ) -> Page:
        """Write one HTML file about the folder's runs, as `gpusim report` does; it says where, and how large it is.

        path       the file; by default report.html in the folder
        against    another results folder: both side by side
        timelines  runs by number or key that are shown in time; None: as many as fit, (): none

        Raises ResultError.
        """
        from gpusim.show.page.write import write_page  # with matplotlib

        return write_page(
            self.folder, against=None if against is None else Path(against), out=None if path is None else Path(path),
            timelines=timelines,
        )  # fmt: skip

    def export(self, path: str | Path) -> str:
        """Write the numbers of all runs as a table, .parquet or .arrow: the columns of summary.csv; returns what was written.

        Raises ResultError for another suffix; GpusimError where the package pyarrow is missing.
        """
        path = Path(path)
        format = export.format_of(path)
        if format not in export.TABLES:
            raise ResultError(f"'{format}' is a timeline, of one run", str(path), "results[0].export(...) writes one")
        return export.table(self._values, format, path)

    def trace_of(self, result: kept.Result) -> Any:
        """The program that one of its runs replayed."""
        return load_source_of(result, self.folder, own=self._own)

    def __repr__(self) -> str:
        return f"<{len(self)} results in {self.folder}>"

    def _repr_html_(self) -> str:
        keys = axes(self._values) or ["evict"]
        found = rows(self._values)
        names = [name for name in SHOWN if any(row.get(name) is not None for row in found)]
        told = [
            {column(key): row.get(column(key)) for key in keys} | {"outcome": row["outcome"]}
            | {name: None if row[name] is None else shown(name, row[name]) for name in names}
            for row in found
        ]  # fmt: skip
        return html(told, [*map(column, keys), "outcome", *names], " ".join((self.question, self.answer)).strip())


def run(
    experiment: str | Path | Mapping[str, Any] | Experiment, *, folder: str | Path | None = None, jobs: int | None = None,
    executor: str = LOCAL, force: bool = False, progress: Callable[[int, int], None] = lambda done, total: None,
) -> Results:  # fmt: skip
    """Run a grid; what has a result already is not run again.

    experiment  a path, the name of a shipped one, the mapping that its YAML would be, or an Experiment
    folder      where results go; by default results/NAME, as with the command
    jobs        worker processes; None: as many as help
    executor    "local", or "dask:ADDRESS": the workers of a dask scheduler
    force       run also what has a result
    progress    called with (runs done, runs to do)

    Raises ConfigError with all mistakes of the experiment, ResultError when the folder cannot be written or no run ended well,
    GpusimError when the executor is not there.

    >>> import gpusim, tempfile
    >>> e = gpusim.Experiment("resnet50-train", "a100-pcie-40gb", evict=["lru", "belady"], memory="60 %", bounds=False)
    >>> results = gpusim.run(e, folder=tempfile.mkdtemp())
    >>> [(r.spec["evict"], r.outcome) for r in results]
    [('lru', 'finished'), ('belady', 'finished')]
    """
    loaded = of_experiment(experiment).loaded()
    todo = plan(loaded, load.default_folder(loaded) if folder is None else Path(folder))
    load.foresee(loaded, todo.tasks if force else todo.waiting())
    e = loaded.experiment
    done = grid.run(
        todo, resolved(e), inputs(loaded), uncertainty=e.uncertainty, jobs=jobs or e.jobs, executor=executor,
        force=force, progress=progress,
    )  # fmt: skip
    failures = [(str(task), failure) for task, failure in done.failures]
    if not done.results and failures:
        raise ResultError(f"no run of the grid ended well: {failures[0][1].message}", failures[0][0])
    return Results(done.results, todo.out, e.question, failures, loaded.own)


def load_results(folder: str | Path) -> Results:
    """The results that `run`, or the command, has left in a folder.  Raises ResultError: none there, or damaged."""
    path = Path(folder)
    text = document.read(path / EXPERIMENT).data if (path / EXPERIMENT).is_file() else {}
    return Results(load_folder(path, timeline=False), path, str(text.get("question", "")))


def of_experiment(source: str | Path | Mapping[str, Any] | Experiment) -> Experiment:
    """The experiment that a call names: by path, shipped name, mapping, or as it is."""
    if isinstance(source, Experiment):
        return source
    if isinstance(source, str | Path):
        return Experiment.load(source)
    made = Experiment.load("experiment")
    made._source = document.loads(yaml.safe_dump(dict(source), sort_keys=False, allow_unicode=True), "experiment")
    return made


def _plain(value: Any) -> Any:
    """Tuples and paths as YAML has them."""
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, Path) else value


def _words(value: str | Sequence[str]) -> str:
    return str(value) if isinstance(value, str | Path) else ", ".join(map(str, value))
