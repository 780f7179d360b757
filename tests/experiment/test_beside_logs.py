"""Do runs beside others keep the logs of all programs, for the referee, the timeline and the metrics over time?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpusim.experiment import grid, load
from gpusim.experiment.beside_checked import check_beside
from gpusim.experiment.tasks import inputs, plan
from gpusim.experiment.users import of_folder
from gpusim.policies.registry import of
from gpusim.results.activities import activities
from gpusim.results.folder import load_folder
from gpusim.results.result import Result
from gpusim.studies.monitoring.firings import fired
from gpusim.studies.monitoring.runs import RecordedRuns

TEXT = """question: "two?"
trace: gpt-medium-infer
beside: resnet50-train-8
profile: a100-sxm4-80gb
tenancy: [time_slices, mps, "mps(cap=40, others_cap=60)", "mps(others_priority=1, yields=kernels)",
          exclusive, mig(slice=3g.40gb), "over_commit(policy=nvshare, quantum=0.02)",
          mps(fault=20 ms), time_slices(fault=21 ms), "mig(slice=3g.40gb, fault=20 ms)",
          "over_commit(policy=longest, ms=20)"]
use: [mine.py]
bounds: false
figures: []
options: {log: true}
"""

MINE = """from gpusim import policy
from gpusim.policies.tenant_memory import TenantTurn

@policy.tenants
def longest(view, ms=5.0):
    "The program that has waited longest has the next turn."
    if view.goes_on():
        return None
    for one in sorted(view.in_turn(), key=lambda one: -one.waited):
        leave = view.room(one, view.tenants)
        if leave is not None:
            return TenantTurn(one.number, ms * 1e6, leave)
    return None
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: Any) -> Path:
    where = Path(tmp_path_factory.mktemp("beside"))
    (where / "e.yaml").write_text(TEXT)
    (where / "mine.py").write_text(MINE)
    loaded = load.experiment(str(where / "e.yaml"))
    assert not grid.run(plan(loaded, where / "out"), "", inputs(loaded)).failures
    return where / "out"


@pytest.fixture(scope="module")
def results(folder: Path) -> list[Result]:
    return load_folder(folder, log=True)


@pytest.mark.slow
def test_the_referee_passes_all_ways(folder: Path, results: list[Result]) -> None:
    own = of(*of_folder(folder))
    reports = [check_beside(result, folder, own) for result in results]
    assert [(report.ok, report.violations, report.left) for report in reports] == [(True, (), ())] * 11


@pytest.mark.slow
def test_a_policy_of_ones_own_is_asked_again(folder: Path, results: list[Result], tmp_path: Path) -> None:
    """Another rule of the same name is found out; without the file the report says what was not checked."""
    assert check_beside(results[-1], folder, of(folder.parent / "mine.py")).facts["turns of a policy"] > 10
    (tmp_path / "mine.py").write_text(MINE.replace("ms * 1e6", "ms * 2e6"))
    other = check_beside(results[-1], folder, of(tmp_path / "mine.py"))
    assert other.ok is False and "ns of the turn" in str(other) and "by longest" in str(other)
    (said,) = check_beside(results[-1], folder).left
    assert said == "whose turn it is, by tenants policy 'longest', which is not there (--use FILE names it)"


@pytest.mark.slow
def test_a_wrong_time_of_another_program_is_found(folder: Path, results: list[Result]) -> None:
    first, other = results[0].ranks
    log = other.log.copy()
    log["t"][len(log) // 2 :] += 1000
    wrong = replace(results[0], ranks=(first, replace(other, log=log)))
    assert check_beside(wrong, folder).ok is False
    assert check_beside(replace(results[0], metrics={**results[0].metrics, "makespan_ns": 1}), folder).ok is False


@pytest.mark.slow
def test_each_program_is_a_device_of_the_timeline_and_has_metrics(folder: Path, results: list[Result]) -> None:
    found_rows = activities(results[0], None)
    assert set(np.unique(found_rows.rows["device"])) == {0, 1} and found_rows.device == "program"
    found = list(fired(RecordedRuns(folder)))
    assert [alert for _, rows in found for alert in rows if alert["alert"] == "Straggler"] == []
    taken = [places for _, places in RecordedRuns(folder).results()]
    assert [len(places) for places in taken] == [2] * 7 + [3, 2, 2, 2]
    names = ("trace", "device", "tenant", "rank")
    said = {tuple(one.identity[name] for name in names) for run in (0, 4) for one in taken[run]}
    first, other = "gpt-medium-infer", "resnet50-train-8"
    assert said == {(first, "0", "0", ""), (other, "0", "1", ""), (other, "1", "1", "")}  # time slices, and a GPU each


@pytest.mark.slow
@pytest.mark.parametrize(("run", "which"), [(7, 0), (7, 1), (7, 2), (8, 1)])
def test_a_wrong_time_around_a_fault_is_found(folder: Path, results: list[Result], run: int, which: int) -> None:
    """Of programs that the fault of another has stopped, and of one that has begun again."""
    ranks = list(results[run].ranks)
    log = ranks[which].log.copy()
    log["t"][len(log) // 2 :] += 1000
    ranks[which] = replace(ranks[which], log=log)
    assert check_beside(replace(results[run], ranks=tuple(ranks)), folder).ok is False
