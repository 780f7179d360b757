"""Does the referee find what is wrong in a run of all ranks, from what is kept of it?"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import gpusim
from gpusim.base.errors import ResultError
from gpusim.cli.app import app
from gpusim.experiment.ranks_checked import check_ranks, collectives_for
from gpusim.machine.collectives.times import CollectiveTimes
from gpusim.machine.topology import build
from gpusim.referee import Report
from gpusim.results import log
from gpusim.results.result import Result

TRACE, MACHINE = "gpt2-small-train", "hgx-h100"
YAML = f"""
question: Is it right?
trace: {TRACE}
profile: {MACHINE}
memory: 60 %
parallel: [data=2, "pipeline=2 microbatches=2"]
stragglers: [none, "1=1.2", "1=1.5@5ms..20ms", clocks.csv]
bounds: false
"""


@pytest.mark.slow
def test_kept_runs_of_ranks_are_right(tmp_path: Path) -> None:
    path, out, runner = tmp_path / "e.yaml", tmp_path / "out", CliRunner()
    path.write_text(YAML)
    (tmp_path / "clocks.csv").write_text("time_ms,0,gpu1\n2,0.9,1\n4,0.8,0.95\n30,1,1\n")
    assert runner.invoke(app, ["run", str(path), "-o", str(out), "--log", "--no-figures"]).exit_code == 0
    done = runner.invoke(app, ["check", str(out)])
    assert (done.exit_code, done.stdout) == (0, "8 runs are right, 0 wrong, 0 without an event log\n")
    assert [report.ok for report in gpusim.check(gpusim.load_results(out))] == [True] * 8


@lru_cache
def ran() -> gpusim.Result:
    return gpusim.simulate(TRACE, on=MACHINE, parallel="data=2", stragglers="1=1.2", memory="60 %", bounds=False, log=True)


def checked(result: Result) -> Report:
    return check_ranks(result, ran().source, CollectiveTimes(build.load(MACHINE)))


def with_rank(number: int, **changes: Any) -> Result:
    whole = ran().value
    return replace(whole, ranks=tuple(replace(one, **changes) if i == number else one for i, one in enumerate(whole.ranks)))


def said(result: Result) -> str:
    report = checked(result)
    assert report.ok is False
    return "; ".join(map(str, report.violations))


@pytest.mark.slow
def test_a_run_of_ranks_is_right_and_says_what_was_looked_at() -> None:
    report = gpusim.check(ran())
    assert report.ok is True and report == checked(ran().value)
    assert report.facts["members of meetings"] > 10 and report.facts["copies against shared links"] > 1000


@pytest.mark.slow
def test_an_end_of_a_collective_that_moved_names_the_rank() -> None:
    whole = ran().value.ranks[1].log
    assert whole is not None
    collective = int(whole["addr"][(whole["kind"] == log.ISSUE) & (whole["bytes"] > 0)][0])
    moved = whole.copy()
    at = (moved["kind"] == log.END) & (moved["a"] == collective)
    moved["t"][at] -= 1000
    moved = moved[moved["t"].argsort(kind="stable")]
    found = said(with_rank(1, log=moved))
    assert f"rank 1, activity {collective}, operator" in found and "latency and bytes on the links between them" in found


@pytest.mark.slow
def test_a_total_that_is_not_that_of_the_ranks_is_found() -> None:
    whole = ran().value
    for name in ("makespan_ns", "batch_ns", "collective_bytes", "collective_wait_ns"):
        wrong = replace(whole, metrics={**whole.metrics, name: whole.metrics[name] + 1})
        assert f"metric {name} is {whole.metrics[name] + 1}; expected {whole.metrics[name]}" in said(wrong)


@pytest.mark.slow
def test_a_straggler_that_was_none_is_found() -> None:
    spec = {key: value for key, value in ran().value.ranks[1].spec.items() if key != "slower"}
    assert "its duration on this machine" in said(with_rank(1, spec=spec))


@pytest.mark.slow
def test_another_layout_than_the_one_that_ran_is_found() -> None:
    whole = ran().value
    assert "is not the one that ran" in said(replace(whole, spec={**whole.spec, "parallel": "tensor=2"}))


@pytest.mark.slow
def test_what_cannot_be_checked_is_said() -> None:
    assert checked(with_rank(0, log=None)).ok is None
    with pytest.raises(ResultError, match="a rank cannot be checked alone"):
        gpusim.check(ran().ranks[0])
    gone = replace(ran().value, spec={**ran().spec, "profile": "my-box"})
    with pytest.raises(ResultError, match="the machine 'my-box' that ran is not there"):
        collectives_for(gone, Path())
