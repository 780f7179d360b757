"""Metrics over time as a user asks for them: a file, an endpoint, a folder's alerts, a set-up, and what cannot be had."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from typer.testing import CliRunner

import gpusim as library
from gpusim.base.errors import ResultError
from gpusim.cli.app import app
from gpusim.results.folder import load_folder
from gpusim.results.monitoring.families import FAMILIES
from gpusim.show.monitoring.endpoint import Endpoint
from gpusim.studies.monitoring.runs import RecordedRuns

YAML = """
question: Does it thrash?
trace: gpt-medium-infer
profile: l4
memory: [120 %, 40 %]
bounds: false
policies: {place: best_fit, evict: lru}
"""


def gpusim(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


@pytest.fixture(scope="module")
def experiment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("monitor") / "mine.yaml"
    path.write_text(YAML)
    return path


@pytest.fixture(scope="module")
def told(experiment: Path) -> tuple[Path, Path, str]:
    """A run with --metrics: folder, file, what it said."""
    out, metrics = experiment.parent / "out", experiment.parent / "metrics.om"
    return out, metrics, gpusim("run", experiment, "-o", out, "--no-figures", "--metrics", metrics).stdout


def unlogged(experiment: Path) -> Path:
    out = experiment.parent / "unlogged"
    gpusim("run", experiment, "-o", out, "--no-figures")
    return out


# --- a file


@pytest.mark.slow
def test_run_writes_what_its_runs_did_and_keeps_their_logs(told: tuple[Path, Path, str]) -> None:
    out, metrics, said = told
    assert f"{metrics}: metrics of 2 runs" in said and "promtool tsdb create-blocks-from openmetrics" in said
    families = {f.name: f for f in text_string_to_metric_families(metrics.read_text("utf-8"))}
    results = {r.key: r for r in load_folder(out, log=True)}
    assert all(r.log is not None for r in results.values())
    last = {s.labels["run"]: s for s in families["gpusim_simulated_seconds"].samples}
    assert {key: s.value for key, s in last.items()} == {k: r.metrics["makespan_ns"] / 1e9 for k, r in results.items()}
    assert 240 <= max(float(s.timestamp) for s in last.values()) < 601


@pytest.mark.slow
def test_a_scale_gives_as_many_seconds(experiment: Path, told: tuple[Path, Path, str], tmp_path: Path) -> None:
    out, metrics = told[0], tmp_path / "m.om"
    said = gpusim("run", experiment, "-o", out, "--no-figures", "--metrics", metrics, "--metrics-scale", "1").stdout
    longest = max(int(r.metrics["makespan_ns"]) for r in load_folder(out)) / 1e9
    assert "by a clock of real time" in said
    clock = next(f for f in text_string_to_metric_families(metrics.read_text()) if f.name == "gpusim_simulated_seconds")
    assert longest <= max(float(s.timestamp) for s in clock.samples) <= longest + 0.002


@pytest.mark.slow
def test_runs_without_a_log_are_done_again_with_one(experiment: Path, tmp_path: Path) -> None:
    out = unlogged(experiment)
    with pytest.raises(ResultError, match=r"there are no metrics over time: the run \w+ kept no event log"):
        RecordedRuns(out)
    assert "run with --log" in gpusim("monitor", out, code=2).stderr
    gpusim("run", experiment, "-o", out, "--no-figures", "--metrics", tmp_path / "m.om")
    assert len(RecordedRuns(out)) == 2


@pytest.mark.slow
def test_a_grid_without_times_says_so(tmp_path: Path) -> None:
    words = ["allocators", "--set", "trace=gpt-medium-infer-snapshot", "--set", "policies.place=best_fit"]
    said = gpusim("run", *words, "-o", tmp_path / "out", "--no-figures", "--metrics", tmp_path / "m.om", code=2).stderr
    assert "has no times, since its trace has none" in said and not (tmp_path / "m.om").exists()


# --- what cannot be had, said before anything runs


def refused(experiment: Path, *words: object) -> str:
    out = experiment.parent / "refused"
    said = gpusim("run", experiment, "-o", out, *words, code=2).stderr
    assert not out.exists()
    assert said.startswith("gpusim: ") and len(said.strip().splitlines()) == 1
    return str(said)


def test_a_port_in_use_is_one_sentence(experiment: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert f"cannot serve metrics on port {port}: Address already in use" in refused(experiment, "--metrics", f":{port}")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (":70000", "there is no port 70000"),
        ("no.such.host.invalid:9464", "cannot serve metrics on port 9464"),
        ("{tmp}/not/there/m.om", "metrics cannot be written there: No such file or directory"),
        ("{tmp}", "metrics are written to a file, and this is a folder"),
    ],
)
def test_so_is_any_other_target_that_cannot_be_had(experiment: Path, tmp_path: Path, target: str, said: str) -> None:
    assert said in refused(experiment, "--metrics", target.format(tmp=tmp_path))


def test_a_scale_without_metrics_has_no_meaning(experiment: Path) -> None:
    assert "--metrics-scale is the clock of --metrics" in refused(experiment, "--metrics-scale", "10")


# --- an endpoint


@pytest.mark.slow
def test_the_endpoint_plays_the_runs_by_its_clock(told: tuple[Path, Path, str]) -> None:
    places = list(RecordedRuns(told[0]))
    now = [100.0]
    endpoint = Endpoint("", 0, lambda: now[0])

    def scraped() -> dict[str, float]:
        with urlopen(endpoint.address, timeout=10) as answer:
            assert answer.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
            text = answer.read().decode()
        return {
            sample.labels["run"]: sample.value
            for family in text_string_to_metric_families(text) if family.name == "gpusim_simulated_seconds"
            for sample in family.samples
        }  # fmt: skip

    try:
        assert scraped() == {}, "nothing is played yet"
        endpoint.play(places)
        for second, sample in ((0.0, 0), (0.9, 0), (7.2, 7), (1e6, -1)):
            now[0] = 100.0 + second
            assert scraped() == {p.identity["run"]: float(p.total("simulated_seconds")[sample]) for p in places}
    finally:
        endpoint.close()
    Endpoint("", int(endpoint.address.rsplit(":")[-1].split("/")[0])).close()  # the port was given back


@pytest.mark.slow
@pytest.mark.parametrize("ends", [signal.SIGINT, signal.SIGTERM])
def test_run_serves_until_it_is_stopped_and_then_ends_well(
    experiment: Path, told: tuple[Path, Path, str], ends: signal.Signals
) -> None:
    words = [sys.executable, "-m", "gpusim", "run", experiment, "-o", told[0], "--no-figures", "--metrics", ":0"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=dict(os.environ)) as process:
        try:
            assert process.stderr is not None
            address = next(line.split(": ")[1] for line in process.stderr if "/metrics: metrics of 2 runs" in line)
            with urlopen(address, timeout=10) as answer:
                assert answer.read().decode().endswith("# EOF\n")
            process.send_signal(ends)
            process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0


# --- gpusim monitor


@pytest.mark.slow
def test_monitor_says_which_alerts_fire_and_so_does_the_library(told: tuple[Path, Path, str]) -> None:
    out = told[0]
    small = next(r.key for r in load_folder(out) if r.spec["memory_share"] == 0.4)
    found = json.loads(gpusim("monitor", out, "--json").stdout)
    assert [(row["run"], row["alert"], row["severity"]) for row in found] == [(small, "GpusimThrashing", "warning")]
    assert 0 < found[0]["first_ns"] < found[0]["makespan_ns"]
    assert library.monitor(out) == found
    said = gpusim("monitor", out).stdout
    assert "GpusimThrashing" in said and "2 runs, 1 without an alert" in said


@pytest.mark.slow
def test_a_result_has_them_as_a_frame(told: tuple[Path, Path, str]) -> None:
    result = library.load_results(told[0])[1]
    frame = result.frame("metrics")
    assert frame["simulated_seconds"].iloc[-1] == result.makespan_ns / 1e9
    assert frame["swaps in"].iloc[-1] == result.swap_ins > 0 and frame["time_ns"].is_monotonic_increasing


def test_monitor_lists_the_metrics() -> None:
    found = json.loads(gpusim("monitor", "--json").stdout)
    assert [row["metric"] for row in found] == [family.sample for family in FAMILIES.values()]
    assert "gpusim_swaps_total" in gpusim("monitor").stdout


def test_monitor_writes_a_set_up(tmp_path: Path) -> None:
    said = gpusim("monitor", "-o", tmp_path / "setup").stderr
    assert "compose.yaml" in said and (tmp_path / "setup" / "grafana" / "dashboards" / "gpusim.json").is_file()


def test_monitor_of_what_is_no_results_folder_says_so(tmp_path: Path) -> None:
    assert "this is not a results folder" in gpusim("monitor", tmp_path, code=2).stderr
    assert "there is no such folder" in gpusim("monitor", tmp_path / "none", code=2).stderr


# --- ranks


@pytest.mark.slow
def test_each_rank_has_metrics_of_its_own_and_the_straggler_is_told(tmp_path: Path) -> None:
    path, metrics = tmp_path / "ranks.yaml", tmp_path / "m.om"
    text = "question: Who is slow?\ntrace: gpt2-small-train\nprofile: hgx-h100\nparallel: data=2 tensor=2\nstragglers: 1=2\n"
    path.write_text(text + "bounds: false\n")
    said = gpusim("run", path, "-o", tmp_path / "out", "--no-figures", "--metrics", metrics).stdout
    assert f"{metrics}: metrics of 1 run and 4 GPUs" in said
    families = {f.name: f for f in text_string_to_metric_families(metrics.read_text("utf-8"))}
    last = {s.labels["rank"]: s for s in families["gpusim_memory_reserved_bytes"].samples}
    (result,) = load_folder(tmp_path / "out")
    assert {rank: s.value for rank, s in last.items()} == {
        str(i): rank.metrics["reserved_current_bytes"] for i, rank in enumerate(result.ranks)
    }
    assert {(s.labels["device"], s.labels["profile"]) for s in last.values()} == {(str(i), "hgx-h100") for i in range(4)}
    fired = library.monitor(tmp_path / "out")
    assert [(row["alert"], row["rank"]) for row in fired] == [("GpusimStraggler", "1")]
    assert "GpusimStraggler" in gpusim("monitor", tmp_path / "out").stdout
