"""Does `import gpusim` offer what its names promise: one run, a grid, own policies as objects, frames, figures, tables?"""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from matplotlib.figure import Figure

import gpusim
from gpusim.api.inputs import machine_of
from gpusim.api.result import Result
from gpusim.base.errors import ConfigError, GpusimError, PolicyError, ResultError
from gpusim.base.public import PUBLIC
from gpusim.experiment import grid, load
from gpusim.experiment.resolved import resolved
from gpusim.experiment.tasks import inputs, plan
from gpusim.results import result as kept
from gpusim.results.folder import load_folder
from gpusim.results.summary import rows
from gpusim.trace.files import save_trace

ROOT = Path(__file__).parents[2]
MACHINE = "a100-pcie-40gb"
TRACE = "resnet50-train"
FACES = [f"gpusim.api.{name}" for name in ("inputs", "runs", "result", "grids", "checking", "questions", "advising")]


@gpusim.policy.evict
def large(size, weight=1.0):  # type: ignore[no-untyped-def]
    """Evict the largest."""
    return -weight * size


def python(code: str, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(ROOT)!r}); {code}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_every_public_name_is_there_and_typed() -> None:
    assert {*PUBLIC, "__version__"} == set(dir(gpusim)) and all(hasattr(gpusim, name) for name in PUBLIC)
    text = (ROOT / "gpusim" / "__init__.py").read_text("utf-8")
    assert all(f" as {name}\n" in text or f" as {name}  #" in text for name in PUBLIC)
    assert (ROOT / "gpusim" / "py.typed").is_file()
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        gpusim.simulat  # noqa: B018


def test_importing_takes_nothing_with_it() -> None:
    code = "import gpusim; assert not {'numpy', 'numba', 'yaml', 'typer'} & set(sys.modules); print(gpusim.__version__)"
    done = python(code)
    assert done.stdout.strip() == gpusim.__version__, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", FACES)
def test_the_examples_of_the_docstrings_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, tried = doctest.testmod(importlib.import_module(name))
    assert tried and not failed


@pytest.mark.slow
def test_one_run_is_that_of_an_experiment(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(
        f"question: the same?\ntrace: {TRACE}\nprofile: {MACHINE}\nmemory: 60 %\npolicies: {{evict: arc}}\n"
    )
    loaded = load.experiment(str(tmp_path / "e.yaml"))
    grid.run(plan(loaded, tmp_path / "out"), resolved(loaded.experiment), inputs(loaded), jobs=1)
    (of_grid,) = load_folder(tmp_path / "out")
    result = gpusim.simulate(TRACE, MACHINE, memory="60 %", evict="arc")
    assert {**rows([result.value])[0], "run": ""} == {**rows([of_grid])[0], "run": ""}
    assert result.slowdown == of_grid.metrics["slowdown"] > 1


@pytest.mark.slow
def test_a_policy_may_be_an_object_with_parameters_or_a_name_beside_use(tmp_path: Path) -> None:
    given: dict[str, Any] = {"memory": "60 %", "bounds": False}
    builtin = gpusim.simulate(TRACE, on=MACHINE, evict="largest", **given)
    own = gpusim.simulate(TRACE, on=MACHINE, evict=large, **given)
    assert own.makespan_ns == builtin.makespan_ns and own.spec["evict"] == "large"
    smallest = gpusim.simulate(TRACE, on=MACHINE, evict=partial(large, weight=-1), **given)
    named = gpusim.simulate(TRACE, on=MACHINE, evict="large(weight=-1)", use=large, **given)
    assert smallest.spec["evict"] == "large(weight=-1)" and smallest.makespan_ns == named.makespan_ns != own.makespan_ns
    with pytest.raises(PolicyError, match="there is no evict policy 'large'"):
        gpusim.simulate(TRACE, on=MACHINE, evict="large", **given)
    with pytest.raises(PolicyError, match=r"no parameter 'wieght' \(did you mean 'weight'\?\)"):
        gpusim.simulate(TRACE, on=MACHINE, evict=partial(large, wieght=-1), **given)


def test_loaded_values_run_as_their_names_do(tmp_path: Path) -> None:
    trace, machine = gpusim.load_trace(TRACE), gpusim.load_machine(f"{MACHINE}(link.h2d=50 GB/s)")
    save_trace(trace, tmp_path / "mine.npz")
    given: dict[str, Any] = {"memory": "60 %", "bounds": False}
    by_value = gpusim.simulate(trace, machine, **given)
    by_name = gpusim.simulate(tmp_path / "mine.npz", f"{MACHINE}(link.h2d=50 GB/s)", **given)
    assert by_value.makespan_ns == by_name.makespan_ns < gpusim.simulate(TRACE, MACHINE, **given).makespan_ns
    assert machine_of(machine) == (MACHINE, machine)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "a run needs a machine"),
        ({"machine": MACHINE, "on": MACHINE}, "machine and on both name the machine"),
        ({"on": MACHINE, "evict": "lruu"}, "no evict policy 'lruu'.*lru"),
        ({"on": MACHINE, "evict": "lru(k=2)"}, "'lru' has no parameter"),
        ({"on": MACHINE, "evict": len}, "len is not a policy .*@policy.evict"),
        ({"on": MACHINE, "place": large}, "'large' is a policy of kind evict, not place"),
        ({"on": MACHINE, "memory": "lots"}, "lots"),
        ({"on": MACHINE, "tiers": "hots"}, "hots"),
        ({"on": "a100-pcie-4gb"}, "no profile 'a100-pcie-4gb'.*a100-pcie-40gb"),
        ({"on": MACHINE, "unified": "driver", "evict": "lru"}, "under unified memory the driver decides"),
        ({"on": MACHINE, "use": "nowhere.py"}, "no policy file 'nowhere.py'"),
    ],
)
def test_mistakes_are_told_in_a_sentence(given: dict[str, Any], says: str) -> None:
    with pytest.raises(GpusimError, match=says):
        gpusim.simulate(TRACE, **given)


@pytest.mark.slow
def test_a_grid_runs_objects_in_worker_processes_and_finds_its_results_again(tmp_path: Path) -> None:
    e = gpusim.Experiment(
        TRACE, MACHINE, memory="60 %", evict=["lru", large, partial(large, weight=-1)], log=True, bounds=False
    )
    assert len(e) == 3
    results = gpusim.run(e, folder=tmp_path / "out", jobs=2)
    assert [r.spec["evict"] for r in results] == ["lru", "large", "large(weight=-1)"] and not results.failures
    alone = gpusim.simulate(TRACE, MACHINE, memory="60 %", evict=large, bounds=False)
    assert results[1].makespan_ns == alone.makespan_ns
    assert [report.ok for report in gpusim.check(results)] == [True] * 3 and gpusim.check(results[1]).ok
    ran: list[int] = []
    assert [r.makespan_ns for r in gpusim.run(e, folder=tmp_path / "out", progress=lambda done, of: ran.append(of))] == [
        r.makespan_ns for r in results
    ]
    assert not ran  # all were there
    again = gpusim.load_results(tmp_path / "out")
    assert [r.metrics for r in again] == [r.metrics for r in results] and again.question == results.question
    assert list(results.frame()["makespan_ns"]) == [r.makespan_ns for r in results]
    assert "large(weight=-1)" in results.table() and isinstance(results.plot(), Figure) and len(results[:2]) == 2


@pytest.mark.slow
def test_a_script_without_a_guard_runs_once(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(f"""
import gpusim
print("begins")
@gpusim.policy.evict
def mine(size):
    return -size
e = gpusim.Experiment("{TRACE}", "{MACHINE}", memory="60 %", evict=[mine, "lru"], bounds=False)
print([r.outcome for r in gpusim.run(e, folder="out", jobs=2)])
""")
    done = python("import runpy; sys.argv = ['script.py']; runpy.run_path('script.py', run_name='__main__')", tmp_path)
    assert done.stdout == "begins\n['finished', 'finished']\n", done.stderr


def test_mistakes_of_an_experiment_are_told_together() -> None:
    with pytest.raises(ConfigError) as caught:
        gpusim.Experiment(TRACE, "a100", evict=["lru", "belda"], memory="lots").loaded()
    said = str(caught.value)
    assert "no profile 'a100'" in said and "no evict policy 'belda'" in said and "lots" in said


def a_result(**changes: Any) -> Result:
    spec = {"trace": "<b>&", "profile": MACHINE, "memory": 2**30, "evict": "lru"}
    values = {"spec": spec, "outcome": "finished", "metrics": {"makespan_ns": 2_000_000, "stall_ns": 5}, **changes}
    return Result(kept.Result(**values))


def test_a_result_has_its_metrics_as_attributes_and_is_escaped_in_a_table() -> None:
    result = a_result()
    assert (result.makespan_ns, result.stall_ns) == (2_000_000, 5) and "makespan_ns" in dir(result)
    html = result._repr_html_()
    assert "&lt;b&gt;&amp;" in html and "<b>" not in html and "2 ms" in html
    with pytest.raises(AttributeError, match=r"no 'makespan' \(did you mean 'makespan_ns'\?\)"):
        result.makespan  # noqa: B018
    with pytest.raises(AttributeError, match="this run has no slowdown"):
        result.slowdown  # noqa: B018
    failed = a_result(outcome="oom", failure={"memory": "device", "advice": "use <less>"})
    assert "use &lt;less&gt;" in failed._repr_html_() and "2 ms" not in failed._repr_html_()


@pytest.mark.slow
def test_frames_and_figures() -> None:
    result = gpusim.simulate(TRACE, MACHINE, memory="60 %", log=True, bounds=False)
    (row,) = result.frame().to_dict("records")
    assert row["makespan_ns"] == result.makespan_ns and row["memory_bytes"] == result.spec["memory"]
    timeline = result.frame("timeline")
    assert timeline["reserved_bytes"].max() == result.reserved_peak_bytes
    log = result.frame("log")
    assert set(log.columns) == {"time_ns", "kind", "a", "b", "address", "bytes"} and (log["kind"] == "end").sum() > 0
    assert isinstance(result.plot(), Figure)
    with pytest.raises(ResultError, match=r"no frame 'lgo' \(did you mean 'log'\?\)"):
        result.frame("lgo")
    with pytest.raises(ResultError, match="kept no event log"):
        a_result().frame("log")


def test_without_pandas_a_sentence_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(GpusimError, match=r"a DataFrame needs pandas \(pip install 'gpusim\[notebook\]'\)"):
        a_result().frame()


@pytest.mark.slow
def test_questions_answer_with_text_rows_and_figures() -> None:
    fits = gpusim.fit("gpt2-small-train", ["t4", MACHINE], tries=["checkpointing"])
    assert set(fits.frame()["profile"]) == {"t4", MACHINE} and "It fits" in str(fits) and isinstance(fits.plot(), Figure)
    held = gpusim.oom("gpt-medium-infer-snapshot", tries=["expandable_segments:True"])
    assert (held.frame()["held_low_bytes"] <= held.frame()["held_high_bytes"]).all() and isinstance(held.plot(), Figure)
    with pytest.raises(ResultError, match="no figure 'heaps'"):
        held.plot("heaps")
