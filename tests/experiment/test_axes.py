"""Do plans, tiers and grains vary like the other axes, up to the table, and do experiments without them stay as they are?"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from made_results import run as made
from typer.testing import CliRunner

from gpusim.base.errors import ConfigError
from gpusim.base.yaml.values import PolicySpec
from gpusim.cli.app import app
from gpusim.cli.verbs.check import verb as check
from gpusim.experiment import grid, load
from gpusim.experiment.resolved import resolved
from gpusim.experiment.spec import expand
from gpusim.experiment.tasks import inputs, plan
from gpusim.results.folder import RUNS, load_folder, load_result
from gpusim.results.run_files import PROGRAM
from gpusim.results.summary import summary
from gpusim.show import table
from gpusim.show.answer import answer
from gpusim.show.view import ending, layout, main_metric

YAML = """
question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: 60 %
policies: {place: best_fit}
"""
REMADE = """
from gpusim import policy
from gpusim.programs import transforms

@policy.plan
class twice:
    '''Runs as a data-parallel rank would.'''

    @staticmethod
    def rewrite(view):
        return transforms.apply(view.work.trace, "data_parallel(ranks=2)")
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    path = tmp_path / "e.yaml"
    path.write_text(YAML)
    return path


def execute(path: Path, out: Path, *sets: str):
    loaded = load.experiment(str(path), sets)
    todo = plan(loaded, out)
    return todo, grid.run(todo, resolved(loaded.experiment), inputs(loaded), jobs=1)


def problems(path: Path, *sets: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load.experiment(str(path), sets)
    return [str(problem) for problem in caught.value.problems]


def test_is_a_run_that_names_none_of_them_as_it_was(experiment: Path) -> None:
    (plain,) = expand(load.experiment(str(experiment)).experiment)
    (named,) = expand(load.experiment(str(experiment), ["tiers=host", "grain=tensor", "policies.plan=none"]).experiment)
    assert plain == named
    assert set(plain.plain()) == {
        "trace", "profile", "memory", "host_memory", "place", "evict", "prefetch", "defrag", "seed", "log"
    }  # fmt: skip
    assert "tiers" not in resolved(load.experiment(str(experiment)).experiment)
    others = [replace(plain, tiers="nvme"), replace(plain, grain="2 MiB")]
    others += [replace(plain, plan=PolicySpec("vdnn")), replace(plain, release=PolicySpec("watermark"))]
    assert len({plain.hash, *(other.hash for other in others)}) == 5


def test_do_they_span_the_grid_and_come_back_from_the_resolved_file(experiment: Path, tmp_path: Path) -> None:
    sets = ["tiers=host,host>nvme(direct=1, queue_depth=8)", "grain=tensor,2048 KiB", "policies.plan=none,vdnn"]
    first = load.experiment(str(experiment), sets).experiment
    runs = expand(first)
    assert len(runs) == 8
    assert {run.tiers for run in runs} == {"host", "host > nvme(direct=1, queue_depth=8)"}
    assert {run.grain for run in runs} == {"tensor", "2 MiB"}, "one way of writing a size"
    again = tmp_path / "again.yaml"
    again.write_text(resolved(first))
    assert [run.hash for run in expand(load.experiment(str(again)).experiment)] == [run.hash for run in runs]
    assert yaml.safe_load(resolved(first))["policies"]["plan"] == ["none", "vdnn"]


def test_what_is_shared_is_said_for_all_runs_and_comes_back(experiment: Path, tmp_path: Path) -> None:
    plain = load.experiment(str(experiment)).experiment
    assert expand(load.experiment(str(experiment), ["share=engines,sms,memory"]).experiment) == expand(plain)
    assert "share" not in resolved(plain)
    sets = ["share=memory,sms", "active_thread_percentage=50,100"]
    first = load.experiment(str(experiment), sets).experiment
    runs = expand(first)
    assert [(run.share, run.active_thread_percentage) for run in runs] == [("sms, memory", 50), ("sms, memory", 100)]
    assert "active_thread_percentage" not in runs[1].later and runs[1].later["share"] == "sms, memory"
    again = tmp_path / "again.yaml"
    again.write_text(resolved(first))
    assert [run.hash for run in expand(load.experiment(str(again)).experiment)] == [run.hash for run in runs]
    assert "'sm' is nothing that is shared" in problems(experiment, "share=sm")[0]
    assert "less than or equal to 100" in problems(experiment, "active_thread_percentage=101")[0]
    (run,) = expand(load.experiment(str(experiment), ["share=none", "unified=driver"]).experiment)
    assert (run.share, run.unified.name) == ("none", "driver")
    told = problems(experiment, "share=none", "unified=driver", "trace=pingpong")
    assert any("managed programs share the GPU as their kernels say: share changes nothing" in line for line in told)


def test_more_memory_than_a_machine_has_is_told(experiment: Path) -> None:
    said = load.told(load.experiment(str(experiment), ["memory=8 GiB,1 TiB"]))
    assert said == ["memory of 1 TiB is more than the 21.8 GiB that l4 has"]  # 22.03 GiB less 300 MB
    assert not load.told(load.experiment(str(experiment), ["memory=8 GiB,150 %"]))


def test_is_what_no_machine_has_told_at_its_place(experiment: Path) -> None:
    experiment.write_text(YAML + "tiers:\n- host\n- host > nvm\n")
    (told,) = problems(experiment)
    assert told.startswith(f"{experiment}:9:3: tiers[1]: there is no tier 'nvm'")
    experiment.write_text(YAML + "tiers:\n- host\n- host > cxl\n")
    (told,) = problems(experiment)
    assert told.startswith(f"{experiment}:9:3: l4 has no CXL memory")
    assert "a rate is never below 0" in problems(experiment, "tiers=nvme(read=-1 GB/s)")[0]
    experiment.write_text(YAML)
    assert "'2 MB' is no multiple of 512 B" in problems(experiment, "grain=2 MB")[0]

    assert "there is no plan policy 'vdn'" in problems(experiment, "policies.plan=vdn")[0]
    assert "no file 'gone.csv' beside the experiment" in problems(experiment, "policies.plan=file(path=gone.csv)")[0]
    assert "policy 'by_turn' reads 'turns', which tensors do not have" in problems(experiment, "policies.evict=by_turn")[0]


def test_is_host_memory_told_that_is_not_where_it_is_looked_for(experiment: Path) -> None:
    assert "grain: 1000 has no unit" in problems(experiment, "grain=1000")[0]
    (told,) = problems(experiment, "tiers=nvme", "host_memory=4 GiB")
    assert "host_memory changes nothing: no tier of this experiment lies in host memory" in told
    load.experiment(str(experiment), ["tiers=nvme,host > nvme", "host_memory=4 GiB"])
    (told,) = problems(experiment, "tiers=host(capacity=6 GiB)", "host_memory=4 GiB")
    assert "more than the 4 GiB of host memory that the experiment gives" in told
    load.experiment(str(experiment), ["profile=jetson-thor"])
    (told,) = problems(experiment, "profile=jetson-thor", "tiers=host")
    assert "share one memory: there is no host tier" in told


def test_is_a_plan_file_read_before_anything_is_written(experiment: Path, tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("operator,action,tensor\n12,evict,999999\n")
    for verb in (["validate"], ["run", "--output", str(tmp_path / "out")]):
        done = CliRunner().invoke(app, [*verb, str(experiment), "--set", "policies.plan=file(path=p.csv)"])
        assert done.exit_code == 2
        assert "p.csv:2: there is no tensor 999999" in done.stderr
    assert not (tmp_path / "out").exists()
    (tmp_path / "p.csv").write_text("operator,action,tensor\n60,evict,0\n")
    done = CliRunner().invoke(app, ["validate", str(experiment), "--set", "policies.plan=file(path=p.csv)"])
    assert (done.exit_code, "a valid experiment: 1 run" in done.stdout) == (0, True)


@pytest.mark.slow
def test_what_are_runs_with_tiers_grain_and_plan_measured_against(experiment: Path, tmp_path: Path) -> None:
    loaded = load.experiment(str(experiment), ["tiers=host > nvme", "grain=2 MiB", "policies.plan=vdnn"])
    todo = plan(loaded, tmp_path / "out")
    (run,) = todo.grid
    references = {task.key: task for task in todo.references}
    (free,) = (references[key].spec for key in todo.no_limit[run.key])
    assert (free.tiers, free.grain, str(free.plan), str(free.evict)) == ("host", "tensor", "none", "none")
    (oracle,) = (references[key].spec for key in todo.oracle[run.key])
    assert (oracle.tiers, oracle.grain, str(oracle.plan), str(oracle.evict)) == ("host > nvme", "2 MiB", "none", "belady")
    assert not any(todo.searched.values()), "a search costs, it has to be asked for"


@pytest.mark.slow
def test_is_a_run_at_a_grain_checked_and_shown(experiment: Path, tmp_path: Path, capsys) -> None:
    experiment.write_text(YAML.replace("infer", "train"))
    _, done = execute(experiment, tmp_path / "out", "grain=tensor,2 MiB", "policies.plan=none,vdnn", "options.log=true")
    assert [(r.spec.get("grain"), r.spec.get("plan"), r.outcome) for r in done.results] == [
        (None, None, "finished"), (None, "vdnn", "finished"), ("2 MiB", None, "finished"), ("2 MiB", "vdnn", "finished"),
    ]  # fmt: skip
    assert check(tmp_path / "out") == 0
    assert "4 runs are right, 0 wrong" in capsys.readouterr().out
    by_tensor, by_chunk = done.results[0].metrics, done.results[2].metrics
    assert by_chunk["h2d_bytes"] < by_tensor["h2d_bytes"], "only what does not fit leaves"
    for result in done.results:
        assert result.bounds["bound_swap_in_bytes"] <= result.metrics["h2d_bytes"]
        assert "over_oracle" in result.metrics
    text = table.render(done.results, width=120)
    assert "tensor" in text
    assert "2 MiB" in text
    header, first = (line.split(",") for line in summary(done.results).splitlines()[:2])
    assert (first[header.index("grain")], first[header.index("plan")]) == ("tensor", "none")


@pytest.mark.slow
def test_are_runs_on_some_of_the_multiprocessors_checked_and_compared_by_time(experiment: Path, tmp_path: Path, capsys) -> None:
    execute(experiment, tmp_path / "out", "active_thread_percentage=50,100", "options.log=true")
    again = sorted(load_folder(tmp_path / "out"), key=lambda r: r.metrics["makespan_ns"])
    assert [r.spec.get("active_thread_percentage", 100) for r in again] == [100, 50]
    assert check(tmp_path / "out") == 0
    assert "2 runs are right, 0 wrong" in capsys.readouterr().out
    assert main_metric(again) == "makespan_ns", "each has a reference of its own, as slow as itself"


@pytest.mark.slow
def test_is_a_rewritten_program_kept_beside_the_log_and_checked(experiment: Path, tmp_path: Path, capsys) -> None:
    (tmp_path / "mine.py").write_text(REMADE)
    experiment.write_text(YAML.replace("infer", "train") + "use: [mine.py]\n")
    _, done = execute(experiment, tmp_path / "out", "policies.plan=twice", "options.log=true")
    (result,) = done.results
    folder = tmp_path / "out" / RUNS / result.key
    assert result.metrics["collective_bytes"] > 0, "what the recording does not have"
    kept = load_result(folder)
    assert kept.program is not None
    assert kept.program.content_hash == kept.spec["program_hash"] != kept.spec["trace_hash"]
    assert check(tmp_path / "out") == 0
    assert "1 run is right" in capsys.readouterr().out
    bytes_ = bytearray((folder / PROGRAM).read_bytes())
    bytes_[len(bytes_) // 2] ^= 1
    (folder / PROGRAM).write_bytes(bytes_)
    with pytest.raises(Exception, match="not the one that the run wrote"):
        load_result(folder)


@pytest.mark.slow
def test_is_a_plan_found_beside_its_experiment_and_part_of_what_a_run_is(experiment: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path.parent)
    (tmp_path / "p.csv").write_text("operator,action,tensor\n60,evict,0\n")
    sets = ("policies.plan=file(path=p.csv)",)
    todo, done = execute(experiment, tmp_path / "out", *sets)
    (result,) = done.results
    assert (result.spec["plan"], result.metrics["plan_evictions"]) == ("file(path=p.csv)", 1)
    (tmp_path / "p.csv").write_text("operator,action,tensor\n61,evict,0\n")
    again = plan(load.experiment(str(experiment), sets), tmp_path / "out")
    assert again.grid[0].key != todo.grid[0].key
    (tmp_path / "p.csv").write_text("operator,action,tensor\n61,evict,0\n61,evict,0\n")
    _, failed = execute(experiment, tmp_path / "out", *sets)
    ((_, failure),) = failed.failures
    assert not failure.is_bug
    assert "p.csv:3: tensor 0 is not there: it left before operator 61" in failure.message


def test_what_do_tables_and_figures_take_for_a_line() -> None:
    chains = [made(memory=m, **t) for m in (4 << 30, 8 << 30) for t in ({}, {"tiers": "host > nvme"})]
    assert (layout(chains).across, layout(chains).lines) == ("memory", ("tiers",))
    assert main_metric(chains) == "slowdown"
    assert [r["tiers"] for r in table.rows(chains)][:2] == [None, "host > nvme"]
    text = table.render(chains)
    assert " host " in text
    assert "host > nvme" in text
    grains = [made(evict=e, **g) for e in ("lru", "fifo") for g in ({}, {"grain": "2 MiB"})]
    assert layout(grains).lines == ("evict", "grain")
    both = [made(evict=e, **t) for e in ("lru", "fifo") for t in ({}, {"tiers": "host > nvme"})]
    assert (layout(both).lines, layout(both).panels) == (("evict",), ("tiers",))
    assert json.dumps(table.rows(grains))


def test_is_it_said_which_memory_was_full() -> None:
    full = made(outcome="host_oom", tiers="host > nvme")
    full = replace(full, failure={**full.failure, "memory": "nvme"})
    assert ending(full) == "disk full"
    assert ending(replace(full, failure={**full.failure, "memory": "peer"})) == "peer full"
    assert ending(replace(full, failure={**full.failure, "memory": "host"})) == "host out of memory"
    assert "host > nvme finds the disk full" in answer([made(), full, made(tiers="cxl", slowdown=1.2)])
