"""Do results of an earlier version still compare, under the names of today?"""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.experiment import grid, load
from gpusim.experiment.resolved import resolved
from gpusim.experiment.tasks import inputs, plan
from gpusim.machine.kernels.durations import BASIS
from gpusim.programs.generate.synth import training
from gpusim.results.compare import changes
from gpusim.results.folder import load_folder
from gpusim.results.metrics import METRICS
from gpusim.results.renamed import POLICIES, TIMELINE, UNIFIED, metrics, renamed
from gpusim.results.seal import read_sealed, write_sealed
from gpusim.trace.files import save_trace

BEFORE = Path(__file__).parents[1] / "data" / "results_before"
YAML = (  # nothing was shared then
    "question: the same?\ntrace: small.npz\nprofile: a100-pcie-40gb\nmemory: 70 %\npolicies: {evict: [lru, belady]}\n"
    "share: none\n"
)


def today(folder: Path) -> Path:
    """The experiment of the folder of before, run by this version with the kernel times of then."""
    times = np.loadtxt(BEFORE / "kernel_times.txt", np.int64)  # ns, which that version modelled
    save_trace(replace(training(steps=1, layers=6), duration=times), folder / "small.npz")
    (folder / "small.yaml").write_text(YAML)
    loaded = load.experiment(str(folder / "small.yaml"))
    assert not grid.run(plan(loaded, folder / "out"), resolved(loaded.experiment), inputs(loaded), jobs=1).failures
    return folder / "out"


def test_a_folder_of_before_compares_with_one_of_today(tmp_path: Path) -> None:
    old, new = load_folder(BEFORE), load_folder(today(tmp_path))
    assert len(old) == len(new) == 2 and all(result.finished for result in old)
    found = {change.metric for change in changes(old, new)}
    assert found <= {f"kernel_{word}_share" for word in BASIS} | {"recorded_ns", "duration_error"}  # which the times are not
    for before, after in zip(old, new, strict=True):
        assert before.timeline.keys() == after.timeline.keys() >= {"allocated_bytes", "reserved_bytes", "time_ns"}
        assert all(np.array_equal(before.timeline[name], after.timeline[name]) for name in after.timeline)


def test_a_summary_names_quantities_as_results_do(tmp_path: Path) -> None:
    with (today(tmp_path) / "summary.csv").open() as file:
        header = next(csv.reader(file))
    with (BEFORE / "summary.csv").open() as file:
        assert "makespan [ns]" in next(csv.reader(file))  # what it was
    assert "memory_bytes" in header and "makespan_ns" in header
    known = {"trace", "profile", "memory_bytes", "memory_share", "host_memory_bytes", "place", "evict", "prefetch", "defrag"}
    assert set(header) - known - {"seed", "outcome", "oracle", "checked", "run"} <= METRICS.keys()


def test_metrics_of_unified_memory_have_names_of_their_own() -> None:
    before = {"makespan_ns": 5, "reserved_peak_bytes": 7, "stall_sync_ns": 1}
    after = {"makespan_ns": 5, "chunks_peak_bytes": 7, "stall_host_ns": 1}
    assert metrics({"unified": "driver"}, before) == after == metrics({"unified": "driver"}, after)
    assert metrics({"evict": "lru"}, before) == before and after.keys() <= METRICS.keys()


def test_figures_and_tables_show_policies_under_the_names_of_today(tmp_path: Path) -> None:
    out = tmp_path / "before"
    shutil.copytree(BEFORE, out)
    (out / "manifest.json").unlink()  # it has the seals of the runs
    for path in out.glob("runs/*/result.json"):
        text = read_sealed(path)
        place = "size_classes(page=65536)" if text["spec"]["evict"] == "lru" else "device"
        write_sealed(path, {**text, "spec": {**text["spec"], "place": place, "release": "recall"}})
    found = load_folder(out)
    assert {run.spec["place"] for run in found} == {"slab(page=65536)", "cuda_malloc"}
    assert {run.spec["release"] for run in found} == {"finite_context"}
    done = CliRunner().invoke(app, ["plot", str(out), "--figure", "policy_comparison", "--format", "svg"])
    assert done.exit_code == 0, done.stderr
    drawn = (out / "figures" / "policy_comparison.svg").read_text()
    assert "slab(page=65536)" in drawn and "cuda_malloc" in drawn and "size_classes" not in drawn


def test_the_changelog_lists_every_former_name() -> None:
    said = (Path(__file__).parents[2] / "CHANGELOG.md").read_text("utf-8")
    rows = [f"| `{before}` | `{now}` |" for before, now in (UNIFIED | TIMELINE).items()]
    rows += [f"| {kind} | `{before}` | `{now}` |" for (kind, before), now in POLICIES.items()]
    assert [row for row in rows if row not in said] == []


def test_names_change_in_place() -> None:
    assert list(renamed({"a": 1, "b": 2}, {"a": "c"}).items()) == [("c", 1), ("b", 2)]
