"""Samples of the runs of a results folder."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from gpusim.base.errors import ResultError
from gpusim.base.yaml.values import policy
from gpusim.experiment.ran import program_of
from gpusim.machine.tenancy import EXCLUSIVE, way
from gpusim.policies.registry import SHIPPED, Registry
from gpusim.results.activities import activities
from gpusim.results.folder import load_result, run_folders
from gpusim.results.monitoring.clock import MetricsClock, chosen
from gpusim.results.monitoring.samples import Samples
from gpusim.results.monitoring.taken import samples
from gpusim.results.result import Result
from gpusim.results.run_files import is_logged


class RecordedRuns:
    """The finished runs of a folder that have metrics over time; each is read when it is asked for.

    scale  seconds of the metrics' clock in a simulated second; 0: at which the longest run takes four minutes
    own    a user's transforms
    apart  with scale 0 give each run a clock of its own: at which it takes four minutes itself
    Raises ResultError where no run has any, with the reason of the first.
    """

    def __init__(self, folder: Path, scale: float = 0.0, own: Registry = SHIPPED, *, apart: bool = False) -> None:
        self._folder, self._own, self._apart = folder, own, apart and scale == 0
        self._runs: list[Path] = []
        self.without: dict[str, str] = {}
        """Key of a run -> why it has no metrics over time."""
        longest = 0
        for run in run_folders(folder):
            result = load_result(run, log=False, timeline=False)
            if why := _lacks(run, result):
                self.without[result.key] = why
                continue
            self._runs.append(run)
            longest = max(longest, ended(result))
        if not self._runs:
            raise ResultError(f"there are no metrics over time: {next(iter(self.without.values()))}", str(folder))
        self._clock: MetricsClock = chosen(longest, scale)

    def __len__(self) -> int:
        return len(self._runs)

    def results(self) -> Iterator[tuple[Result, list[Samples]]]:
        """Each run with the samples of its GPU, or of that of each rank, in the order of the grid."""
        for run in self._runs:
            result = load_result(run)
            clock = chosen(ended(result)) if self._apart else self._clock
            if result.ranks:
                yield result, of_ranks(result, clock)
            else:
                trace = program_of(result, self._folder, self._own)
                yield result, [samples(result, trace, activities(result, trace), clock)]

    def __iter__(self) -> Iterator[Samples]:
        return (each for _, found in self.results() for each in found)


def ended(result: Result) -> int:
    """When the last of all programs of a run has ended, ns: those beside it may last longer."""
    return max(int(one.metrics.get("makespan_ns", 0)) for one in (result, *result.ranks))


def of_ranks(result: Result, clock: MetricsClock) -> list[Samples]:
    """The samples of the ranks of a run with their logs: rank and device have one number, and all the run's name.

    Programs beside each other are tenants of one device, each by its own name; of one each where the GPU is not shared.
    Raises ResultError for one without times.
    """
    until, found = ended(result), []
    alone = way(policy(result.spec.get("tenancy", EXCLUSIVE))).name == EXCLUSIVE
    for number, rank in enumerate(result.ranks):
        spec = {**result.spec, **rank.spec, "profile": result.spec["profile"]}
        if result.beside:
            spec["trace"], place = rank.spec.get("gpu", result.spec["trace"]), (number if alone else 0, 0, number)
        else:
            spec["trace"], spec["rank"], place = result.spec["trace"], number, (number, 0, 0)
        one, program = replace(rank, spec=spec, key=result.key), rank.program
        found.append(samples(one, program, activities(one, program), clock, place=place, until=until))
    return found


def _lacks(run: Path, result: Result) -> str:
    """Why a run has no metrics over time; "" where it has."""
    if "makespan_ns" not in result.metrics:
        return f"the run {result.key} has no times, since its trace has none"
    if not is_logged(run):
        return f"the run {result.key} kept no event log, from which they are read: run with --log, or with --metrics"
    return ""
