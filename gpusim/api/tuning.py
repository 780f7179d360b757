"""A search for the parameters that serve an experiment best, as `gpusim tune` does it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.api.frames import frame
from gpusim.api.grids import Experiment, Results, of_experiment
from gpusim.api.showing import html
from gpusim.base.errors import ResultError
from gpusim.show import tuned as shown
from gpusim.studies.tuning import tune as study

if TYPE_CHECKING:
    from pandas import DataFrame


class Tuning:
    """What a search found; a table where a notebook shows it.

    results     of all its runs, as an experiment has them
    importance  of each metric, the share of each knob in reaching the best tenth of the trials
    """

    def __init__(self, value: study.Tuned) -> None:
        self.value = value  # the plain value that the rooms below work on
        self.results = Results(value.results, value.folder, value.question)
        self.importance: Mapping[str, Mapping[str, float]] = value.importance

    @property
    def best(self) -> dict[str, str]:
        """What the best trial has on the axes that were varied: {"policies.prefetch": "next_k(k=13)"}."""
        found = self.value.best()
        return dict(found.lines) if found else {}

    @property
    def front(self) -> list[dict[str, Any]]:
        """The Pareto front: for each trial on it its lines, and each metric."""
        return [row for row in shown.values(self.value)["front"] if row is not None]

    @property
    def yaml(self) -> str:
        """The lines of an experiment that make it the best trial."""
        return shown.copied(self.value.best())

    @property
    def answer(self) -> str:
        """What the best is worth, in words."""
        return shown.said(self.value)

    def frame(self) -> DataFrame:
        """As a pandas DataFrame: a row per trial, in the order in which they ran.  GpusimError without pandas."""
        return frame(_rows(self.value))

    def __repr__(self) -> str:
        return shown.text(self.value)

    def _repr_html_(self) -> str:
        rows = _rows(self.value)
        return html(rows, list(rows[0]) if rows else [], " ".join((self.value.question, self.answer)).strip())


def tune(
    experiment: str | Path | Mapping[str, Any] | Experiment, *, minimise: str | Sequence[str] = (),
    maximise: str | Sequence[str] = (), per: str = "", budget: int = study.BUDGET, seed: int = 0, batch: int = study.BATCH,
    grid: bool = False, folder: str | Path | None = None, jobs: int | None = None, allow_large: bool = False,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Tuning:  # fmt: skip
    """Search the parameters that an experiment's key `tune` names, and the policies that it lists.

    experiment  as for `gpusim.run`
    minimise    metrics of which there should be least (by default slowdown, or makespan_ns where programs or machines differ);
                several, these and those of `maximise`, give a Pareto front
    per         the knob by which times are divided: "transform.batch.factor"
    budget      trials; each is a run in every place (program, machine, memory) of the experiment
    seed, batch decide which trials are drawn, the same for any number of jobs
    grid        also run the finest grid of the same budget
    folder      where results go; by default results/NAME-tuned.  What is there is not run again
    progress    called with (trials done, trials to do)

    Raises ConfigError with all mistakes of the experiment, GpusimError for what cannot be searched, and without Optuna.

    >>> import gpusim, tempfile
    >>> e = gpusim.Experiment("resnet50-train", "a100-pcie-40gb", memory="60 %", prefetch="next_k",
    ...                       tune={"policies.prefetch.next_k.k": {"from": 1, "to": 6}})
    >>> found = gpusim.tune(e, budget=6, folder=tempfile.mkdtemp())
    >>> len(found.results), list(found.best)
    (6, ['policies.prefetch'])
    """
    loaded = of_experiment(experiment).loaded()
    out = Path("results") / f"{loaded.path.stem}-tuned" if folder is None else Path(folder)
    found = study.tune(
        loaded, out, minimise=_names(minimise), maximise=_names(maximise), per=per, budget=budget, seed=seed, batch=batch,
        grid=grid, jobs=jobs or loaded.experiment.jobs, allow_large=allow_large, progress=progress,
    )  # fmt: skip
    if found.bugs:
        raise ResultError(f"a run failed: {found.bugs[0][1].message}", found.bugs[0][0])
    return Tuning(found)


def _names(given: str | Sequence[str]) -> Sequence[str]:
    return [given] if isinstance(given, str) else given


def _rows(value: study.Tuned) -> list[dict[str, Any]]:
    """A row per trial: where it comes from, what was varied, each metric, why it has none."""
    metrics = [goal.metric for goal in value.asked.goals]
    return [
        {"origin": t.origin, **t.lines, **dict(zip(metrics, t.values or [None] * len(metrics), strict=True)), "why": t.why}
        for t in value.trials
    ]
