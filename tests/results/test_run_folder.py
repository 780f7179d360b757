"""Does a run folder hold what the run left, byte for byte the same each time, and nothing half-written?"""

from __future__ import annotations

import csv
import errno
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim.base import files
from gpusim.base.errors import ResultError
from gpusim.results.afterwards import ADVICE, VERDICT, kept
from gpusim.results.afterwards import keep as keep_beside
from gpusim.results.compare import Change, changes, unequal
from gpusim.results.folder import (
    changed,
    has_result,
    load_folder,
    load_result,
    mark_checked,
    note_results,
    open_folder,
    run_folders,
    save_result,
)
from gpusim.results.log import LOG
from gpusim.results.metrics import METRICS
from gpusim.results.result import Result
from gpusim.results.summary import write_summary


def a_result(evict: str = "lru", makespan: int = 1_234_567_890_123, log: bool = True) -> Result:
    records = np.zeros(3, LOG)
    records["t"] = [0, 5, 2**40]
    records["kind"] = [1, 2, 12]
    records["addr"] = [-1, 2**35, -1]
    return Result(
        spec={"trace": "tiny", "evict": evict, "memory": 32 * 2**30, "oracle": []},
        outcome="finished",
        metrics={"makespan_ns": makespan, "slowdown": 1 / 3, "swap_ins": 7},
        timeline={"time_ns": np.array([0, 2**40]), "allocated_bytes": np.array([0, 2**33])},
        log=records if log else None,
        bounds={"bound_swap_in_bytes": 10},
    )


def keep(out: Path, *results: Result) -> None:
    keys = [f"{i:016x}" for i in range(len(results))]
    open_folder(out, "trace: tiny\n", {"trace": "ab" * 32}, keys)
    for key, result in zip(keys, results, strict=True):
        save_result(out, key, result)
    write_summary(out, load_folder(out))


def tree(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def test_what_is_saved_comes_back(tmp_path: Path) -> None:
    keep(tmp_path, a_result())
    before, after = a_result(), load_folder(tmp_path, log=True)[0]
    for name in ("spec", "outcome", "metrics", "failure", "bounds", "checked"):
        assert getattr(before, name) == getattr(after, name)
    assert before.log is not None and after.log is not None
    assert after.log.dtype == LOG and np.array_equal(before.log, after.log)
    assert {n: c.tolist() for n, c in after.timeline.items()} == {n: c.tolist() for n, c in before.timeline.items()}
    assert all(column.dtype == np.int64 for column in after.timeline.values())
    assert after.key == "0" * 16


def test_equal_runs_give_equal_bytes(tmp_path: Path) -> None:
    keep(tmp_path / "a", a_result())
    keep(tmp_path / "b", a_result())
    assert tree(tmp_path / "a") == tree(tmp_path / "b")
    assert "runs/0000000000000000/log.npz" in tree(tmp_path / "a")


def test_saving_again_changes_nothing_and_drops_a_log_that_is_not_kept(tmp_path: Path) -> None:
    keep(tmp_path, a_result())
    before = tree(tmp_path)
    keep(tmp_path, a_result())
    assert tree(tmp_path) == before
    keep(tmp_path, a_result(log=False))
    assert "runs/0000000000000000/log.npz" not in tree(tmp_path)
    assert load_folder(tmp_path, log=True)[0].log is None


def test_the_summary_has_axes_first_names_with_units_and_full_precision(tmp_path: Path) -> None:
    keep(tmp_path, a_result("lru"), a_result("belady", makespan=5))
    rows = list(csv.DictReader((tmp_path / "summary.csv").open()))
    header = list(rows[0])
    assert header[:4] == ["trace", "profile", "memory_bytes", "memory_share"] and header[-1] == "run"
    assert header.index("makespan_ns") < header.index("swap_ins")
    assert [row["evict"] for row in rows] == ["lru", "belady"]
    assert rows[0]["makespan_ns"] == "1234567890123" and float(rows[0]["slowdown"]) == 1 / 3
    assert rows[0]["checked"] == "unchecked" and rows[0]["bound_swap_in_bytes"] == "10"


def test_the_summary_gives_no_makespan_for_a_run_that_did_not_finish(tmp_path: Path) -> None:
    keep(tmp_path, a_result(), replace(a_result("none"), outcome="oom"))
    rows = list(csv.DictReader((tmp_path / "summary.csv").open()))
    assert [(row["outcome"], row["makespan_ns"]) for row in rows] == [("finished", "1234567890123"), ("oom", "")]
    assert load_folder(tmp_path)[1].metrics["makespan_ns"] == 1234567890123


def test_headers_of_metrics_differ() -> None:
    headers = [metric.header for metric in METRICS.values()]
    assert len(set(headers)) == len(headers)


def test_an_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(ResultError, match=r"no metric 'makespan_s'.*makespan_ns"):
        Result({}, "finished", {"makespan_s": 1})


def test_runs_stand_in_the_order_of_the_grid_and_only_those_of_the_manifest_count(tmp_path: Path) -> None:
    keep(tmp_path, a_result("lru"))
    save_result(tmp_path, "f" * 16, a_result("fifo"))
    open_folder(tmp_path, "", {}, ["f" * 16, "e" * 16, "0" * 16])
    assert [folder.name for folder in run_folders(tmp_path)] == ["f" * 16, "0" * 16]


def test_the_verdict_is_kept_and_the_rest_is_not_touched(tmp_path: Path) -> None:
    keep(tmp_path, a_result())
    folder = run_folders(tmp_path)[0]
    mark_checked(folder, True)
    result = load_result(folder)
    assert result.checked is True and result.metrics == a_result().metrics and result.log is not None


@pytest.mark.parametrize("name", ["timeline.npz", "log.npz"])
def test_a_changed_or_cut_file_is_noticed(tmp_path: Path, name: str) -> None:
    keep(tmp_path, a_result())
    folder = run_folders(tmp_path)[0]
    (folder / name).write_bytes((folder / name).read_bytes()[:-9])
    with pytest.raises(ResultError, match="not the one that the run wrote"):
        load_result(folder)


@pytest.mark.parametrize("name", ["timeline.npz", "log.npz"])
def test_a_missing_file_is_named_with_the_command_that_repairs_it(tmp_path: Path, name: str) -> None:
    keep(tmp_path, a_result())
    folder = run_folders(tmp_path)[0]
    (folder / name).unlink()
    with pytest.raises(ResultError) as error:
        load_result(folder)
    assert str(error.value) == (
        f"{folder / name}: there is no such file, and the result lists it "
        f"(`gpusim run {tmp_path}/experiment.yaml -o {tmp_path}` does it again)"
    )


def test_a_folder_without_a_manifest_is_read_and_what_that_means_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, a_result("lru"), a_result("fifo"))
    assert len(run_folders(tmp_path)) == 2 and not capsys.readouterr().err
    (tmp_path / "manifest.json").unlink()
    assert len(run_folders(tmp_path)) == 2
    said = capsys.readouterr().err
    assert "manifest.json: there is no such file, so references count as runs of the grid" in said
    assert f"`gpusim run {tmp_path}/experiment.yaml -o {tmp_path}` does it again" in said


@pytest.mark.parametrize("text", ["", "[1]", "{}", '{"format": "gpusim-result", "version": 1}', "{" * 100_000])
def test_a_damaged_result_is_one_sentence(tmp_path: Path, text: str) -> None:
    keep(tmp_path, a_result())
    (run_folders(tmp_path)[0] / "result.json").write_text(text)
    with pytest.raises(ResultError) as error:
        load_folder(tmp_path)
    assert "result.json" in str(error.value) and "\n" not in str(error.value)


def test_an_archive_with_objects_is_refused_without_unpickling(tmp_path: Path) -> None:
    np.savez(tmp_path / "evil.npz", a=np.array([print], dtype=object))
    with pytest.raises(ResultError, match="damaged"):
        files.read_arrays(tmp_path / "evil.npz")


def test_folders_that_hold_no_results_are_named(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="not a results folder"):
        load_folder(tmp_path)
    open_folder(tmp_path, "", {}, ["0" * 16])
    with pytest.raises(ResultError, match="no run of this folder is finished"):
        load_folder(tmp_path)


def test_a_full_disk_leaves_the_run_unfinished_and_no_part_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(tmp_path, a_result())

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(ResultError, match=r"No space left on device.*free some space"):
        save_result(tmp_path, "0" * 16, a_result(makespan=1))
    assert not has_result(tmp_path, "0" * 16)
    assert not [name for name in tree(tmp_path) if name.endswith(".part")]


def test_a_folder_that_cannot_be_made_says_so_first(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ResultError, match=r"file.*cannot make the folder.*-o"):
        open_folder(tmp_path / "file", "", {}, [])


def test_numbers_that_json_does_not_have_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="JSON"):
        save_result(tmp_path, "0" * 16, Result({}, "finished", {"slowdown": float("nan")}))
    with pytest.raises(ResultError, match="not a plain value"):
        save_result(tmp_path, "0" * 16, Result({"trace": object()}, "finished", {}))
    assert not has_result(tmp_path, "0" * 16)


def test_numpy_numbers_are_written_as_numbers(tmp_path: Path) -> None:
    result = Result({"memory": np.int64(5)}, "finished", {"makespan_ns": np.int64(7), "slowdown": np.float64(1.5)})
    folder = save_result(tmp_path, "0" * 16, result)
    text = json.loads((folder / "result.json").read_text())
    assert text["metrics"] == {"makespan_ns": 7, "slowdown": 1.5} and text["spec"] == {"memory": 5}


# --- two folders ------------------------------------------------------------------------------------------------------------


def test_equal_folders_have_no_changes() -> None:
    runs = [a_result("lru"), a_result("fifo")]
    assert changes(runs, runs[::-1]) == []


def test_changes_name_run_metric_ratio_and_direction() -> None:
    a = [a_result("lru", 100), a_result("fifo", 100), a_result("arc")]
    slower, other = a_result("lru", 150), replace(a_result("fifo", 100), outcome="oom")
    prefetching = replace(slower, metrics={**slower.metrics, "prefetch_hits": 1})
    assert changes(a, [prefetching, other, a_result("belady")]) == [
        Change({"evict": "lru"}, "makespan_ns", 100, 150, 1.5, False),
        Change({"evict": "lru"}, "prefetch_hits", None, 1),
        Change({"evict": "fifo"}, "outcome", "finished", "oom", None, False),
        Change({"evict": "arc"}, "run", "finished", None),
        Change({"evict": "belady"}, "run", None, "finished"),
    ]


def test_unequal_finds_the_one_record_that_differs(tmp_path: Path) -> None:
    first = replace(a_result("lru"), log=np.zeros(3, LOG), timeline={"time_ns": np.arange(3), "op": np.arange(3)})
    log = first.log.copy()
    log["t"][1] = 1
    second = replace(first, log=log, timeline={"time_ns": np.arange(3), "op": np.array([0, 1, 3])}, failure={"op": 1})
    for name, result in (("a", first), ("same", first), ("b", second)):
        save_result(tmp_path / name, "0" * 16, result)
    assert unequal(tmp_path / "a", tmp_path / "same") == []
    assert [(c.metric, c.a, c.b) for c in unequal(tmp_path / "a", tmp_path / "b")] == [
        ("failure", "null", '{"op": 1}'),
        ("timeline op", "2 at 2", "3 at 2"),
        ("log", f"{first.log[1]} at 1", f"{log[1]} at 1"),
    ]
    without = replace(first, log=None)
    save_result(tmp_path / "without", "0" * 16, without)
    assert unequal(tmp_path / "a", tmp_path / "without") == []  # a log that was not kept differs from nothing


def test_memory_written_as_a_share_is_the_same_run_on_another_footprint() -> None:
    a, b = a_result(), a_result()
    a, b = (replace(r, spec={**r.spec, "memory_share": 0.6, "memory": m}) for r, m in ((a, 600), (b, 601)))
    assert changes([a], [b]) == []
    c = replace(a, spec={**a.spec, "memory_share": None})
    assert [change.metric for change in changes([a], [c])] == ["run", "run"]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))


SAID = r"result\.json: this file is not the one that the run wrote \(`gpusim run \S+experiment\.yaml -o \S+` does it again"
EDITS = {
    "a number": ('"makespan_ns": 1234567890123', '"makespan_ns": 617283945061'),
    "a bound": ('"bound_swap_in_bytes": 10', '"bound_swap_in_bytes": 9'),
    "a space": ('"spec": {', '"spec":  {'),
    "the seal": ('"seal": "', '"seal": "0'),
    "no seal": ('"seal"', '"was"'),
}


@pytest.mark.parametrize("what", EDITS)
def test_a_result_that_was_edited_is_refused_by_name(tmp_path: Path, what: str) -> None:
    keep(tmp_path, a_result())
    file = run_folders(tmp_path)[0] / "result.json"
    edit(file, *EDITS[what])
    for read in (load_folder, lambda out: load_result(file.parent), lambda out: mark_checked(file.parent, True)):
        with pytest.raises(ResultError, match=SAID):
            read(tmp_path)
    assert "result.json: this file is not the one" in changed(tmp_path, ["0" * 16])["0" * 16]


def test_a_result_of_another_run_in_its_place_is_refused(tmp_path: Path) -> None:
    keep(tmp_path, a_result(), a_result("fifo", makespan=1))
    note_results(tmp_path, ["0" * 16, f"{1:016x}"])
    load_folder(tmp_path)
    one, two = (folder / "result.json" for folder in run_folders(tmp_path))
    one.write_bytes(two.read_bytes())
    with pytest.raises(ResultError, match="not the one that the run wrote"):
        load_folder(tmp_path)


def test_a_verdict_stands_beside_a_result_that_stays_as_it_is(tmp_path: Path) -> None:
    keep(tmp_path, a_result())
    note_results(tmp_path, ["0" * 16])
    folder, before = run_folders(tmp_path)[0], tree(tmp_path)
    for verdict in (True, False):
        mark_checked(folder, verdict)
        assert load_folder(tmp_path)[0].checked is verdict
        assert {name: content for name, content in tree(tmp_path).items() if name in before} == before


@pytest.mark.parametrize("name", [VERDICT, ADVICE])
def test_what_was_found_later_is_sealed_and_about_one_result(tmp_path: Path, name: str) -> None:
    keep(tmp_path, a_result(), a_result("fifo", makespan=1))
    one, two = run_folders(tmp_path)
    assert kept(one, name) is None
    for folder in (one, two):
        keep_beside(folder, name, {"right": True})
    assert kept(one, name) == {"right": True}
    (one / name).write_bytes((two / name).read_bytes())
    assert kept(one, name) is None, "it is about another result"
    keep_beside(one, name, {"right": True})
    edit(one / name, "true", "false")
    with pytest.raises(ResultError, match=f"{name}: this file is not the one that the run wrote"):
        kept(one, name)
    assert f"{name}: this file is not the one" in changed(tmp_path, [one.name])[one.name], "`gpusim run` does the run again"
    save_result(tmp_path, one.name, a_result())
    assert kept(one, name) is None, "it was about the result before"


def test_references_give_bounds_and_ratios_whenever_they_end(tmp_path: Path) -> None:
    """A run of 300 ns between references of 200 ns and 100 ns."""
    run, slow, fast = (f"{i:016x}" for i in range(3))
    plain = replace(a_result(makespan=300), metrics={"makespan_ns": 300})
    measured = {run: {"bound_no_limit_ns": [slow, fast], "bound_oracle_ns": [run], "bound_best_plan_ns": ["f" * 16]}}
    open_folder(tmp_path, "", {}, [run], references=measured)
    save_result(tmp_path, run, plain)
    written = (tmp_path / "runs" / run / "result.json").read_bytes()
    seen = []
    for key, makespan, outcome in ((slow, 200, "finished"), (fast, 100, "finished"), (fast, 100, "oom")):
        save_result(tmp_path, key, replace(plain, metrics={"makespan_ns": makespan}, outcome=outcome))
        found = load_result(tmp_path / "runs" / run)
        seen.append((found.bounds["bound_no_limit_ns"], found.metrics["slowdown"]))
        assert found.metrics["over_oracle"] == 1.0 and found.bounds["bound_oracle_ns"] == 300
        assert "bound_best_plan_ns" not in found.bounds, "its run is not there"
    assert seen == [(200, 1.5), (100, 3.0), (200, 1.5)]
    assert (tmp_path / "runs" / run / "result.json").read_bytes() == written
    edit(tmp_path / "runs" / slow / "result.json", '"makespan_ns": 200', '"makespan_ns": 20')
    with pytest.raises(ResultError, match="not the one that the run wrote"):
        load_result(tmp_path / "runs" / run)


def test_a_run_that_did_not_finish_has_no_ratios(tmp_path: Path) -> None:
    run, free = "0" * 16, "1" * 16
    open_folder(tmp_path, "", {}, [run], references={run: {"bound_no_limit_ns": [free]}})
    save_result(tmp_path, free, replace(a_result(), metrics={"makespan_ns": 100}))
    save_result(tmp_path, run, replace(a_result(), metrics={"makespan_ns": 50}, outcome="oom"))
    found = load_result(tmp_path / "runs" / run)
    assert found.bounds["bound_no_limit_ns"] == 100 and "slowdown" not in found.metrics


def test_a_result_without_metrics_is_none(tmp_path: Path) -> None:
    keep(tmp_path, a_result())
    folder = save_result(tmp_path, "0" * 16, Result({"trace": "tiny"}, "finished", {}))
    with pytest.raises(ResultError, match="this result has no metrics"):
        load_result(folder)
    assert "no metrics" in changed(tmp_path, ["0" * 16])["0" * 16]


def test_of_results_of_an_earlier_version_it_is_said_that_changes_cannot_be_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keep(tmp_path, a_result())
    file = run_folders(tmp_path)[0] / "result.json"
    for path, name in ((file, "seal"), (tmp_path / "manifest.json", "results")):
        old = json.loads(path.read_text())
        del old[name]
        path.write_text(json.dumps(old))
    assert load_folder(tmp_path)[0].metrics == a_result().metrics
    assert "an earlier version kept no hash of this result" in capsys.readouterr().err
