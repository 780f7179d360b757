"""Do words of a long run become its numbers, published counts their rates, and mistakes one sentence?"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import gpusim
from gpusim import policy
from gpusim.base.errors import GpusimError
from gpusim.cli.app import app
from gpusim.engine.failures.run import CheckpointCost, FailureKind, Job, between_interruptions, repeated
from gpusim.engine.failures.tables import PHASES
from gpusim.policies.registry import get
from gpusim.results.activities.rows import COMPUTING
from gpusim.show.failures import save_answer
from gpusim.show.values.failures_in_time import failures_in_time
from gpusim.studies.failures import published, surface
from gpusim.studies.failures.answer import answer
from gpusim.studies.failures.ranks import SavingRanks
from gpusim.studies.failures.setup import LongRunSpec, prepare, state_bytes

HOUR = 3600e9
WORDS = {"machine": "4 x hgx-h100", "state": "llama-8b", "storage": "10 GB/s"}


@pytest.mark.oracle
def test_llama_3_was_interrupted_every_three_hours() -> None:
    run = prepare(LongRunSpec(machine="2048 x hgx-h100", state="llama-405b", storage="1 TB/s"))
    assert between_interruptions(run.job, run.kinds) / HOUR == pytest.approx(54 * 24 / 419, rel=1e-9)  # 3.093 h


@pytest.mark.documents
def test_the_surface_of_effective_training_time_is_that_of_the_page() -> None:
    assert surface.table() in (Path(__file__).parents[2] / "docs" / "failures.md").read_text("utf-8")


@pytest.mark.oracle
@pytest.mark.slow
def test_most_of_the_published_times_are_within_a_quarter() -> None:
    assert published.table() in (Path(__file__).parents[2] / "docs" / "failures.md").read_text("utf-8")
    off = np.abs(published.errors())
    assert off.size == 12 and np.sum(off <= 0.25) >= 7 and np.median(off) <= 0.17


@pytest.mark.formulas
@pytest.mark.parametrize(("stop", "restart"), [(4.0, 600.0), (27.34, 300.0), (360.0, 1200.0)])
def test_simulated_runs_have_the_effective_training_time_of_the_surface(stop: float, restart: float) -> None:
    kinds = [FailureKind(name="any", between=surface.between() * 1e9, each=0.0)]
    job, cost = Job(work=54 * 24 * HOUR, restart=restart * 1e9), CheckpointCost(stop=stop * 1e9)
    mean = repeated(job, cost, kinds, get("checkpoint", "daly"), runs=100).mean("effective")
    assert mean.half < 0.005 and mean.value == pytest.approx(surface.effective(stop, restart), rel=0.01)


@pytest.mark.oracle
def test_stop_of_an_8b_model_on_eight_h100_is_near_the_measured_one() -> None:
    """0.54 s: NVIDIA-NeMo/Automodel pull request 635, asynchronous, optimizer and weights."""
    run = prepare(LongRunSpec(machine="hgx-h100", state="llama-8b", storage="10 GB/s"))
    assert run.cost.stop / 1e9 == pytest.approx(0.54, rel=0.25)


@pytest.mark.hand_worked
def test_costs_follow_from_links_and_storage() -> None:
    run = prepare(LongRunSpec(**WORDS))
    state = 8_030_261_248 * 14
    assert run.state == state and run.node_bytes == state / 4
    # Two GPUs share the way of 55.2 GB/s from a switch to its socket.
    assert run.cost.stop == pytest.approx(state / 32 * 2 / 55.2, rel=1e-4)
    assert run.cost.to_storage == pytest.approx(state / 10)  # 10 GB/s of all nodes: slower than their cards
    whole = prepare(LongRunSpec(**WORDS, checkpoint="sync"))
    assert whole.cost.stop == pytest.approx(run.cost.stop + run.cost.to_storage) and not whole.cost.host
    peers = prepare(LongRunSpec(**WORDS, checkpoint="peers(copies=2, each=5)"))
    assert peers.cost.copies == 2 and peers.cost.each == 5 and 0 < peers.cost.to_peers < peers.cost.to_storage


@pytest.mark.hand_worked
def test_the_first_replica_saves_the_weights_and_all_load_them() -> None:
    """32 GPUs, 2 x 8 of a replica: 400 GB of weights over 16 ranks, 25 each; 600 GB of the optimizer over 32, 18.75 each."""
    ranks = SavingRanks(tensor=2, pipeline=8, weights=0.4)
    first, rest = 43.75, 18.75
    assert ranks.saved(1000, 4, 8) == {(first, first, rest, rest) * 2}
    assert ranks.loaded(1000, 32) == first and ranks.read(1000, 32) == 600 + 2 * 400
    said = "two_phase(tensor=2, pipeline=8, weights=0.4)"
    run = prepare(LongRunSpec(machine="4 x hgx-h100", state="1000 GB", storage="10 GB/s", checkpoint=said))
    assert run.cost.stop == pytest.approx(2 * first / 55.2 * 1e9, rel=1e-4)  # of two GPUs over one switch's way
    assert run.cost.load[-1] == pytest.approx(1400 / 10 * 1e9 + 2 * first / 55.2 * 1e9, rel=1e-3)


def test_a_log_of_failures_makes_one_run(tmp_path: Path) -> None:
    log = tmp_path / "log.csv"
    log.write_text("seconds,kind,node\n3600,gpu,1\n7200.5,job,0\n")
    times = {"work": "5 h", "every": "30 min", "repair": "1 h", "detect": "10 s", "restart": "50 s"}
    run = prepare(LongRunSpec(**WORDS, **times, failures=str(log)))
    found = answer(run)
    assert len(found.runs.courses) == 1 and found.runs.courses[0].counts == {"gpu": 1, "job": 1}
    assert found.runs.courses[0].spent["short"] == HOUR
    for text, said in (
        ("seconds,kind\n", "1: a log of failures begins with"), ("seconds,kind,node\nx,gpu,1\n", "2: 'x,gpu,1' is no failure"),
        ("seconds,kind,node\n5,gpu,1\n4,gpu,1\n", "3: the log of failures goes back in time"),
        ("seconds,kind,node\n5,gpus,1\n", "2: 'gpus' is nothing that fails"),
    ):  # fmt: skip
        log.write_text(text)
        with pytest.raises(GpusimError, match=said):
            prepare(LongRunSpec(**WORDS, failures=str(log)))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"state": "llama-9b"}, "neither a size nor a model"),
        ({"state": "1 PB"}, "do not fit the 32 GPUs"),
        ({"storage": ""}, "nothing says how fast the storage"),
        ({"checkpoint": "two_phases"}, "there is no checkpoint 'two_phases'"),
        ({"checkpoint": "peers(copies=x)"}, "'x' is no number for copies"),
        ({"checkpoint": "two_phase(speed=2)"}, "speed of a checkpoint is 2"),
        ({"checkpoint": "sync(tensor=0)"}, "tensor of a checkpoint is 0"),
        ({"checkpoint": "sync(weights=0.2)"}, "no replica is named"),
        ({"checkpoint": "two_phase(tensor=8, pipeline=3)"}, "32 GPUs are no whole replicas of a model over 24"),
        ({"checkpoint": "peers", "machine": "hgx-h100"}, "there are no neighbours"),
        ({"failures": "gpu"}, "says no failures"),
        ({"failures": "fan 3 h"}, "'fan' is nothing that fails"),
        ({"every": "dally"}, "there is no checkpoint policy 'dally'"),
        ({"work": "30"}, "work: '30' has no unit"),
        ({"spare": 4}, "none is left beside 4 spare ones"),
        ({"state": "2 TB", "checkpoint": "peers(copies=3)"}, "take 3.64 TiB of 2 TiB"),
    ],
)
def test_what_cannot_be_is_said_in_a_sentence(words: dict[str, object], said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        prepare(LongRunSpec(**{**WORDS, **words}))


def test_a_policy_of_ones_own_is_asked_at_each_checkpoint() -> None:
    seen: list[int] = []

    @policy.checkpoint
    def careful(view, minutes=20.0):  # type: ignore[no-untyped-def]
        """More often the more interruptions there were."""
        seen.append(view.interruptions)
        return minutes * 60e9 / (1 + view.interruptions)

    found = gpusim.endure(**WORDS, every=careful, work="10 h", failures="gpu 30 h", repair="1 min", runs=2, close=1.0)
    assert found.values()["interruptions"] > 2 and max(seen) > 2


def test_the_verb_prints_what_the_call_returns() -> None:
    line = ["failures", "--machine", "4 x hgx-h100", "--state", "llama-8b", "--storage", "10 GB/s", "--runs", "20"]
    line += ["--work", "2 d"]
    printed = CliRunner().invoke(app, [*line, "--json"])
    assert printed.exit_code == 0, printed.output
    same = gpusim.endure(**WORDS, work="2 d", runs=20).values()
    shown = json.loads(printed.output)
    assert shown.pop("failures") == same.pop("failures") and shown == pytest.approx(same)
    text = CliRunner().invoke(app, [*line, "--find", "interval"])
    assert "of the time is work that counts" in text.output and "waiting for nodes" in text.output


@pytest.mark.slow
def test_the_first_run_is_kept_as_a_log_and_on_a_page(tmp_path: Path) -> None:
    kinds = "gpu 200 h, slow(speed=0.9, lasts=1 h) 500 h, job 30 h"
    found = gpusim.endure(**WORDS, work="3 d", runs=3, close=1.0, failures=kinds, repair="2 h")
    run = found.first()
    assert run.course() == found.runs.courses[0] and run.course().interruptions > 2
    shown, left = failures_in_time(run)
    assert left == "" and [lane.name for lane in shown.lanes][:2] == ["job", "copies"]
    lasts = shown.rows["end"] - shown.rows["start"]
    assert np.all(lasts > 0)
    by_phase = {phase: int(lasts[(shown.rows["lane"] == 0) & (shown.rows["kind"] == COMPUTING + i)].sum())
                for i, phase in enumerate(PHASES)}  # fmt: skip
    assert by_phase == run.course().spent
    for lane in range(len(shown.lanes)):  # what stands on a line follows one another
        mine = shown.rows[shown.rows["lane"] == lane]
        assert np.all(mine["start"][1:] >= mine["end"][:-1])
    written = save_answer(found, "it ends", tmp_path)
    assert [path.name for path in written] == ["failures.json", "log.csv", "report.html"]
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0] == "seconds,record,node,cause,progress_s,nodes,lost_s"
    assert sum(',failed,' in line for line in lines) == sum(run.course().counts.values())
    assert "it ends" in (tmp_path / "report.html").read_text()


def test_sizes_in_words() -> None:
    assert state_bytes("llama-8b") == 8_030_261_248 * 14 and state_bytes("1 GB") == 10**9
