"""The page of a results folder: the numbers of the other reports, in one file."""

from __future__ import annotations

import base64
import json
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_results import GIB, faulting, heap_log, run, sweep
from page_content import blobs, columns, told
from typer.testing import CliRunner

import gpusim
from gpusim.base.errors import ResultError
from gpusim.cli.app import app
from gpusim.results.compare import changes
from gpusim.results.folder import load_folder, note_results, open_folder, save_result, save_results
from gpusim.results.result import Result
from gpusim.results.sampled import Sampled
from gpusim.show.answer import answer
from gpusim.show.figures import FIGURES, suitable
from gpusim.show.page import content, html
from gpusim.show.page.folder import read
from gpusim.show.page.pack import packed
from gpusim.show.page.timeline import address_map
from gpusim.show.page.write import write_page
from gpusim.show.picked import tables
from gpusim.show.table import listing
from gpusim.show.values.metrics_over_time import MOMENTS
from gpusim.show.values.picked import picked

SAMPLED = Sampled({"makespan_ns": (1e8, 2e8), "slowdown": (1.2, 1.9)}, {}, 3, 2, 0.2)
GROUPS = {
    "curves": sweep(),
    "bars": [run(evict, slowdown=s) for evict, s in (("lru", 1.5), ("fifo", 2.5), ("belady", 1.1))],
    "sampled": [replace(run(evict), sampled=SAMPLED) for evict in ("lru", "fifo")],
    "failed": [run(evict, outcome="oom") for evict in ("lru", "fifo")],
    "allocators": [run(place=place, slowdown=1.0) for place in ("pytorch", "best_fit")],
    "one": [run()],
    "faulting": [faulting(profile=name) for name in ("A100", "T4")],
    "unified": [
        replace(run(unified="driver", memory_share=share, slowdown=2 / share), faults=faulting().faults)
        for share in (0.5, 1.0, 2.0)
    ],
    "bare": [run(timeline=False), run("fifo", timeline=False)],
}  # fmt: skip


def folder(out: Path, results: list[Result], question: str = "Which is best?") -> Path:
    """A results folder with these runs, as `gpusim run` leaves it."""
    keys = [f"{number:016x}" for number in range(len(results))]
    open_folder(out, f"question: {question}\ntrace: gpt2\n", {}, keys)
    for key, result in zip(keys, results, strict=True):
        save_result(out, key, result)
    note_results(out, keys)
    return out


# --- columns


@pytest.mark.parametrize(
    "values", [[], [0], [-1], [127, 128, -128, -129], [2**31, -(2**31) - 1], [2**53 - 1, -(2**53)], [5, 3, 9, 9]]
)
@pytest.mark.parametrize("rising", [False, True])
def test_columns_are_read_as_they_were_written(values: list[int], rising: bool) -> None:
    text = packed({"said": "ü"}, {"a": np.array(values, np.int64), "b": np.array([0.1, np.nan])}, ["a"] if rising else [])
    header, found = columns(zlib.decompress(base64.b64decode(text)))
    assert header["said"] == "ü" and found["a"].tolist() == values
    assert found["b"][0] == 0.1 and np.isnan(found["b"][1])


# --- numbers


def test_the_page_has_the_table_and_the_answer_of_the_other_reports(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    made = write_page(out)
    results = load_folder(out)
    listed, said = listing(results), told(made.path)["folders"][0]
    assert made.path == out / "report.html" and made.runs == len(results) and made.bytes == made.path.stat().st_size
    assert said["told"]["answer"] == answer(results) and said["told"]["question"] == "Which is best?"
    _, numbers = columns(blobs(made.path)["numbers-0"])
    table = {column["id"]: column for column in said["table"]["columns"]}
    for column in listed.columns:
        known = table[column.name or column.header]
        assert known["header"] == column.header
        if "cells" in known:
            assert tuple(known["words"][i] for i in known["cells"]) == column.cells
        else:
            expected = [np.nan if v is None else v for v in column.values]
            assert numbers[column.name or column.header].tolist() == pytest.approx(expected, nan_ok=True, rel=0)
    assert said["table"]["runs"]["wins"] == [i for i, wins in enumerate(listed.wins) if wins]
    assert {"stall_swap_in_ns", "frag_external"} <= set(table)  # every number, not only those of the table


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    first, second = (write_page(out, out=tmp_path / name).path.read_bytes() for name in ("a.html", "b.html"))
    assert first == second


def test_every_figure_is_in_the_page() -> None:
    missing = [name for name in FIGURES if name not in content.OWN and not hasattr(content._module(name), "chart")]
    assert not missing


@pytest.mark.parametrize("group", GROUPS)
def test_charts_of_any_runs_are_plain_values_with_a_legend_for_each_trace(group: str) -> None:
    results = GROUPS[group]
    found = content.charts([results])
    assert set(found) == set(suitable(results)) - set(content.OWN)  # programs and logs are not asked for
    json.dumps(found, allow_nan=False)
    for chart in found.values():
        names = {entry["name"] for entry in chart["legend"]}
        for view in chart["views"]:
            used = {trace["legendgroup"] for panel in view["panels"] for trace in panel["data"] if "legendgroup" in trace}
            assert used <= names, chart["name"]


def test_curves_have_the_values_the_failures_and_the_bound() -> None:
    chart = content.charts([sweep()])["policy_comparison"]
    traces = chart["views"][0]["panels"][0]["data"]
    lines = {trace["legendgroup"]: trace for trace in traces if trace.get("mode") == "lines+markers"}
    assert lines["sieve"]["x"] == [4, 6, 8, 10] and lines["sieve"]["y"] == pytest.approx([1.6, 1.3, 1.12, 1.0])
    assert "1.6" in lines["sieve"]["text"][0] and lines["belady *"]["line"]["dash"] == "dash"
    failed = [trace for trace in traces if trace.get("yaxis") == "y2"]
    assert [trace["legendgroup"] for trace in failed] == ["random"] and "out of memory" in failed[0]["text"][0]
    assert any(trace["legendgroup"] == "no memory limit" for trace in traces)


def test_intervals_are_drawn_where_machines_were_sampled() -> None:
    chart = content.charts([GROUPS["sampled"]])["policy_comparison"]
    bars = [trace for trace in chart["views"][0]["panels"][0]["data"] if trace["type"] == "bar"]
    assert len(bars) == 2 and all(trace["error_x"]["array"][0] > 0 for trace in bars)


def test_the_bound_of_what_must_come_in_is_drawn() -> None:
    results = [replace(r, spec={**r.spec, "rates": {"h2d": 1e9}}) for r in sweep()]
    chart = content.charts([results])["policy_comparison"]
    (bound,) = [trace for trace in chart["views"][0]["panels"][0]["data"] if trace["legendgroup"] == "bound: what must come in"]
    assert bound["y"] == pytest.approx([GIB / 1e9 * 1e9 / 100e6] * 4)


def test_the_address_map_has_every_block() -> None:
    result = run(log=heap_log(), slowdown=1.0)
    header, found = columns(zlib.decompress(base64.b64decode(address_map(result, None))))
    assert found["bytes"].tolist() == [GIB] * 8 and sorted(found["addr"].tolist()) == [unit * GIB for unit in range(8)]
    assert found["hole.free"][-1] == 4 * GIB and found["hole.largest"][-1] == GIB and header["end"] == 100_000_000


def test_what_one_run_moved_is_told_in_words() -> None:
    assert content.charts([[run()]])["traffic"]["answer"] == "Moved: 2 GiB in (2 times what must come in), 1.5 GiB out."


def test_two_folders_stand_side_by_side_with_what_changed(tmp_path: Path) -> None:
    a = folder(tmp_path / "a", sweep())
    slower = [replace(r, metrics={**r.metrics, "makespan_ns": 2 * r.metrics["makespan_ns"]}) for r in sweep()]
    b = folder(tmp_path / "b", slower)
    said = told(write_page(a, against=b, out=tmp_path / "both.html").path)
    expected = changes(load_folder(a), load_folder(b), always=())
    assert [(c["metric"], c["a"], c["b"]) for c in said["against"]["changes"]] == [(c.metric, c.a, c.b) for c in expected]
    assert said["against"]["said"] == "Makespan is better in 0 pairs of runs, worse in 20, and equal in the others."
    assert len(said["folders"]) == 2
    panels = said["charts"]["policy_comparison"]["views"][0]["panels"]
    assert [panel["title"] for panel in panels] == ["A", "B"]


# --- runs in time


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four real runs with their logs."""
    out = tmp_path_factory.mktemp("logged") / "out"
    asked = gpusim.Experiment("gpt-medium-infer", "l4", evict=["lru", "largest"], memory=["60 %", "80 %"], log=True)
    gpusim.run(asked, folder=out)
    return out


@pytest.mark.slow
def test_stalls_of_the_timeline_sum_to_the_metrics(logged: Path) -> None:
    made = write_page(logged, out=logged / "all.html")
    results = {r.key: r for r in load_folder(logged)}
    assert set(made.timelines) == set(results) and not made.left_out
    for key, result in results.items():
        header, rows = columns(blobs(made.path)[f"timeline-{key}"])
        stalls = np.flatnonzero(rows["kind"] == header["kinds"].index("stall"))
        total: dict[str, int] = {}
        for row in stalls:
            name = f"{header['names'][rows['name'][row]]}_ns"
            total[name] = total.get(name, 0) + int(rows["span"][row])
        assert total == {n: v for n, v in result.metrics.items() if n.startswith("stall_") and n != "stall_ns" and v}
        # What a stall waited for ended when it did, or before.
        caused = [row for row in stalls if rows["back"][row]]
        cause = [row - rows["back"][row] for row in caused]
        ends = rows["start"] + rows["span"]
        assert caused and all(ends[c] <= ends[row] for row, c in zip(caused, cause, strict=True))


@pytest.mark.slow
def test_metrics_over_time_end_with_those_of_the_run(logged: Path) -> None:
    made = write_page(logged, out=logged / "metrics.html")
    for key, result in {r.key: r for r in load_folder(logged)}.items():
        header, found = columns(blobs(made.path)[f"metrics-{key}"])
        families = {family["name"]: family for family in header["families"]}

        def last(name: str, label: str, found: dict[str, Any] = found, families: dict[str, Any] = families) -> int:
            return int(found[f"{name}.{families[name]['labels'].index(label)}"][-1])

        assert len(found["at"]) == MOMENTS + 1 and found["at"][-1] >= result.metrics["makespan_ns"]
        for cause in ("swap_in", "swap_out"):
            assert last("stall_seconds", cause) == result.metrics[f"stall_{cause}_ns"]
        assert last("swap_bytes", "in") == result.metrics["h2d_bytes"] and families["swap_bytes"]["counter"]
        assert families["memory_reserved_bytes"]["unit"] == "bytes" and "ooms" in header["nothing"]
        assert max(found["memory_reserved_bytes.0"]) <= result.metrics["reserved_peak_bytes"]


@pytest.mark.slow
def test_only_the_runs_that_are_asked_for_are_shown_in_time(logged: Path) -> None:
    results = load_folder(logged)
    assert write_page(logged, out=logged / "one.html", timelines=["2"]).timelines == (results[1].key,)
    assert write_page(logged, out=logged / "none.html", timelines=()).timelines == ()
    with pytest.raises(ResultError, match="there is no run '9'"):
        write_page(logged, timelines=["9"])


@pytest.mark.slow
def test_the_command_of_a_run_leaves_it_alone_of_the_grid(logged: Path) -> None:
    import shlex

    from gpusim.experiment import load
    from gpusim.experiment.tasks import plan

    source = read(logged)
    for result, options in zip(source.results, content.again(source), strict=True):
        sets = [word for word in shlex.split(options) if word != "--set"]
        loaded = load.experiment(str(logged / "experiment.yaml"), sets)
        assert [task.key for task in plan(loaded, logged).grid] == [result.key]


@pytest.mark.slow
def test_a_run_that_kept_no_log_has_no_timeline_and_says_so(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    made = write_page(out)
    assert not made.timelines and "gpusim run --log" in made.left_out
    with pytest.raises(ResultError, match="run 1 kept no log"):
        write_page(out, timelines=["1"])


# --- sizes


@pytest.mark.slow
def test_a_page_of_150_runs_stays_below_6_mb(tmp_path: Path) -> None:
    results = [
        run(evict, memory=m * GIB, slowdown=1 + i / 10, profile=profile)
        for profile in ("A100", "H100", "L4") for m in range(3, 13)
        for i, evict in enumerate(("lru", "fifo", "lfu", "clock", "sieve"))
    ]  # fmt: skip
    made = write_page(folder(tmp_path / "out", results))
    assert made.runs == 150 and made.bytes < 6_000_000


# --- what is not as it should be


def command(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["report", *map(str, words)])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


def test_the_verb_says_where_the_page_is(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    assert command(out).stdout.startswith(f"{out / 'report.html'}: 20 runs, ")
    said = json.loads(command(out, "--json", "-o", tmp_path / "x.html").stdout)
    size = (tmp_path / "x.html").stat().st_size
    assert said == {"file": str(tmp_path / "x.html"), "bytes": size, "runs": 20, "timelines": []}


def test_python_writes_the_same_page(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    command(out)
    made = gpusim.load_results(out).report(tmp_path / "own.html")
    assert made.path.read_bytes() == (out / "report.html").read_bytes()


def test_without_plotly_all_but_the_figures_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = folder(tmp_path / "out", sweep())
    monkeypatch.setattr(html, "PLOTLY", "nowhere/plotly.min.js")
    done = command(out)
    assert "pip install 'gpusim[report]'" in done.stderr
    said = told(out / "report.html")
    assert said["has_plotly"] is False and "plotly" not in blobs(out / "report.html") and said["folders"][0]["table"]["columns"]


def test_folders_without_results_are_one_sentence(tmp_path: Path) -> None:
    assert "there is no such folder" in command(tmp_path / "nowhere", code=2).stderr
    (tmp_path / "empty").mkdir()
    assert "this is not a results folder" in command(tmp_path / "empty", code=2).stderr
    open_folder(tmp_path / "begun", "trace: gpt2\n", {}, ["0" * 16])
    assert "no run of this folder is finished" in command(tmp_path / "begun", code=2).stderr


def test_a_folder_that_was_killed_in_the_middle_gives_a_page_that_says_so(tmp_path: Path) -> None:
    out = tmp_path / "out"
    open_folder(out, "question: Q?\ntrace: gpt2\n", {}, ["0" * 16, "1" * 16, "2" * 16])
    save_result(out, "0" * 16, run())
    done = command(out)
    assert "1 of 3 runs are there" in done.stderr
    assert told(out / "report.html")["folders"][0]["told"]["missing"] == 2


def test_a_result_that_was_edited_is_refused(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    path = out / "runs" / ("0" * 16) / "result.json"
    path.write_text(path.read_text().replace('"makespan_ns": 1', '"makespan_ns": 2'))
    said = command(out, code=2).stderr
    assert "this file is not the one that the run wrote" in said and said.count("\n") == 1
    assert not (out / "report.html").exists()


def test_a_timeline_that_was_edited_is_refused(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    path = out / "runs" / ("0" * 16) / "timeline.npz"
    path.write_bytes(path.read_bytes()[:-1])
    assert "this file is not the one that the run wrote" in command(out, code=2).stderr


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (0, "there is no way from version 0 of this result to today's "
            "(`gpusim run {out}/experiment.yaml -o {out}` does it again)"),
        (99, "a later gpusim wrote this result (version 99; this one reads up to 1) (pip install --upgrade gpusim)"),
    ],
)  # fmt: skip
def test_a_result_of_another_version_is_one_sentence_with_the_file_and_what_to_do(
    tmp_path: Path, version: int, words: str
) -> None:
    out = folder(tmp_path / "out", [run()])
    path = out / "runs" / ("0" * 16) / "result.json"
    value = json.loads(path.read_text())
    del value["seal"]
    path.write_text(json.dumps({**value, "version": version}))
    (out / "manifest.json").unlink()
    assert command(out, code=2).stderr.splitlines()[-1] == f"gpusim: {path}: {words.format(out=out)}"


def test_an_older_manifest_is_read_as_it_is(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    path = out / "manifest.json"
    value = json.loads(path.read_text())
    del value["columns"]
    path.write_text(json.dumps({**value, "version": 1}))
    command(out)
    shown = told(out / "report.html")["folders"][0]["told"]["manifest"]
    assert shown["version"] == 2 and shown["runs"] == value["runs"]


def test_a_manifest_of_a_later_version_is_refused(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", sweep())
    path = out / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "version": 99}))
    said = command(out, code=2).stderr
    assert "a later gpusim wrote this manifest" in said and str(path) in said and said.count("\n") == 1


# --- very many runs


def many(out: Path, count: int) -> Path:
    """A folder whose runs lie in columns, as `gpusim run` leaves those of a large grid."""
    policies = ("lru", "fifo", "lfu", "sieve")
    made = [
        run(policies[i % 4], memory=(1 + i // 4) * GIB, slowdown=1 + i % 4 + 100 / (1 + i // 4), timeline=False)
        for i in range(count)
    ]
    keys = [f"{number:016x}" for number in range(count)]
    open_folder(out, "question: Which is best?\ntrace: gpt2\n", {}, keys)
    save_results(out, dict(zip(keys, made, strict=True)))
    note_results(out, keys)
    return out


def test_a_folder_in_columns_has_its_page_with_what_to_look_at(tmp_path: Path) -> None:
    out = many(tmp_path / "out", 240)
    made = write_page(out)
    said, results = told(made.path)["folders"][0], load_folder(out)
    assert not (out / "runs" / ("0" * 16)).exists() and made.runs == 240
    expected = tables(picked(results))
    assert [(t["title"], t["rows"]) for t in said["told"]["picked"]["tables"]] == expected and len(expected) == 3
    head, best, *_ = expected[0][1]
    assert {"evict": "lru", "memory": "60 GiB", "slowdown": "2.67×"}.items() <= dict(zip(head, best, strict=True)).items()
    _, numbers = columns(blobs(made.path)["numbers-0"])
    assert sorted(numbers["makespan_ns"].tolist()) == sorted(r.metrics["makespan_ns"] for r in results)
    assert "the command that runs it alone" in made.left_out
    with pytest.raises(ResultError, match="run 3 kept no log") as refused:
        write_page(out, timelines=["3"])
    assert "run it alone, with --log" in refused.value.hint


def test_few_runs_have_their_table_and_nothing_is_picked_of_them(tmp_path: Path) -> None:
    assert told(write_page(folder(tmp_path / "out", sweep())).path)["folders"][0]["told"]["picked"] == {}


def test_of_very_many_curves_the_best_are_seen_at_first() -> None:
    results = [run(f"p{n}", memory=m * GIB, slowdown=1 + n / 10 + 1 / m) for n in range(20) for m in (1, 2, 4)]
    chart = content.charts([results])["policy_comparison"]
    seen = {entry["name"] for entry in chart["legend"] if not entry["hidden"]}
    assert {f"p{n}" for n in range(12)} <= seen and not seen & {f"p{n}" for n in range(12, 20)}
    assert "The 12 best of 20 are shown at first" in chart["note"]


def test_names_with_markup_stay_text(tmp_path: Path) -> None:
    out = folder(tmp_path / "out", [run("<b>x</b>"), run("fifo")], question="'</script><script>alert(1)</script>'")
    page = write_page(out).path.read_text()
    assert "<script>alert" not in page and "&lt;/script&gt;" in page
    chart = told(out / "report.html")["charts"]["policy_comparison"]
    assert any("&lt;b&gt;x" in str(trace["y"]) for trace in chart["views"][0]["panels"][0]["data"])
