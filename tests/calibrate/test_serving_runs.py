"""Published runs of serving engines: the file, how one is simulated, and how errors are told."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpusim.base.errors import ConfigError, GpusimError
from gpusim.calibrate.serving import operators, runs
from gpusim.calibrate.serving.cases import PublishedRun, load, shipped
from gpusim.calibrate.serving.closed_loop import SimulatedRun, lengths, prepared, scheduler_of, simulated
from gpusim.calibrate.serving.page import page, run_row
from gpusim.calibrate.serving.slices import HeldOut
from gpusim.machine.serving import step

NOWHERE = Path("no-tables")


def run(**other: object) -> PublishedRun:
    """Llama 8B on one H100, one request at a time, all alike; times in ms that nobody measured."""
    of = replace(shipped().sets[0], model="llama-8b", weights="bf16", cache="bf16", shortest=1.0, clients=2, overlap=False)
    made = PublishedRun(of, 100, 4, 1, 1, 10.0, 5.0)
    return replace(made, **other)


def test_the_file() -> None:
    """At least twenty runs of an engine with all options stated on either half, each with the source of its numbers."""
    found = shipped()
    stated = [one for one in found.runs() if one.set.flags_stated]
    for half in (False, True):
        assert len([one for one in stated if one.held_out == half]) >= 20
    assert all("github.com/" in found.sources[of.source] for of in found.sets)
    one = found.runs()[0]
    assert one.held_out == (int(hashlib.sha256(one.name.encode()).hexdigest(), 16) % 2 == 0)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("source: inferencemax", "source: inferencemx", "has no source 'inferencemx'"),
        ("shortest: 0.8", "shortest: -1", "shortest"),
        ("name: llama-70b-hgx-h200", "name: llama-70b-hgx-h100", "two runs are called"),
        ("engine: sglang@0.5.1", "motor: sglang@0.5.1", "motor"),
    ],
)
def test_damaged_files(tmp_path: Path, old: str, new: str, said: str) -> None:
    from gpusim.calibrate.serving.cases import DATA

    (tmp_path / "runs.yaml").write_text(DATA.read_text().replace(old, new))
    with pytest.raises((GpusimError, ConfigError), match=said):
        load(tmp_path / "runs.yaml")


def test_one_client_by_hand() -> None:
    """A prompt of 100 tokens, then three steps with 100, 101 and 102 tokens before; the second request like the first."""
    of = run()
    times, _, _ = prepared(of, NOWHERE)
    prompt, *decode = (times.of([before], [tokens]).ns for before, tokens in ((0, 100), (100, 1), (101, 1), (102, 1)))
    found = simulated(of, NOWHERE)
    assert found.steps == 8
    assert found.ttft == pytest.approx(prompt / 1e6) == pytest.approx(found.ttft_p99)
    assert found.tpot == pytest.approx(sum(decode) / 3 / 1e6)
    assert found.throughput == pytest.approx(4e9 / (prompt + sum(decode)))
    assert sum(found.parts) == pytest.approx(1.0) and found.low < 1 < found.high


def test_two_clients_begin_together() -> None:
    """Both prompts are one step; each pair of tokens after it another."""
    of = run(at_once=2)
    times, _, _ = prepared(of, NOWHERE)
    found = simulated(of, NOWHERE)
    assert found.ttft == pytest.approx(times.of([0, 0], [100, 100]).ns / 1e6)
    assert found.steps == 8


def test_a_step_with_a_prompt_takes_its_launches_where_it_is_in_no_graph() -> None:
    """300 ms, and 0.2732 ms of the CPU before them; steps that decode are in graphs, and keep their time."""
    of = replace(run(), set=replace(run().set, prompt_graphs=False))
    plain, launched = simulated(of, NOWHERE), simulated(of, NOWHERE, 3e8)
    assert launched.ttft == pytest.approx(300.2732) and plain.ttft < 100
    assert launched.tpot == pytest.approx(plain.tpot)


def test_lengths_are_those_that_are_stated() -> None:
    of = replace(run(prompt=1000, output=100, at_once=50), set=replace(run().set, shortest=0.8, clients=10))
    prompt, output = lengths(of)
    assert len(prompt) == 500 and prompt.min() >= 800 and prompt.max() <= 1000 and output.min() >= 80 and output.max() <= 100
    assert prompt.mean() == pytest.approx(900, rel=0.02)


def test_schedulers_are_the_nearest_versions() -> None:
    assert [scheduler_of(f"vllm@{v}", False) for v in ("0.10.2", "0.12.0", "0.27")] == ["vllm@0.11", "vllm@0.11", "vllm@0.33"]
    with pytest.raises(GpusimError, match="no scheduler of 'tgi'"):
        scheduler_of("tgi@1.0", False)
    assert scheduler_of("vllm@0.10.2", True) == "vllm@0.33"  # with async scheduling, which 0.11 has off
    assert scheduler_of("sglang@0.5.1", True) == "sglang@0.5"


def test_a_model_that_does_not_fit_is_told() -> None:
    of = run(set=replace(run().set, model="llama-70b", weights="bf16"))
    (scored,) = runs.score([of], lambda one: simulated(one, NOWHERE))
    assert scored.simulated is None and scored.why == "llama-70b does not fit on 1 GPUs of h100-sxm-80gb"
    assert "does not fit" in run_row(scored)


def found(ttft: float, tpot: float) -> SimulatedRun:
    return SimulatedRun(ttft, tpot, 20.0, 6.0, 1000.0, 8, (0.5, 0.2, 0.0, 0.1, 0.2), 0.9, 1.1)


def test_errors_are_shares_of_the_measured() -> None:
    scored = [runs.ScoredRun(run(), found(ttft, 5.0)) for ttft in (9.0, 12.0, 15.0)]
    assert runs.errors(scored, 0) == runs.RunErrors(3, pytest.approx(0.2), pytest.approx(0.5), pytest.approx(0.2))
    assert runs.errors(scored, 1) == runs.RunErrors(3, 0.0, 0.0, 0.0)
    assert runs.errors([runs.ScoredRun(run(), None, "why")], 0) is None


def test_what_is_kept_is_read_again(tmp_path: Path) -> None:
    some = shipped().runs()[:2]
    runs.write([runs.ScoredRun(some[1], None, "does not fit"), runs.ScoredRun(some[0], found(1.5, 2.5))], tmp_path / "kept.csv")
    kept = runs.read(tmp_path / "kept.csv")
    assert [one.run.name for one in kept] == [one.name for one in some]
    assert kept[0].simulated == found(1.5, 2.5) and kept[1].why == "does not fit"
    (tmp_path / "kept.csv").write_text((tmp_path / "kept.csv").read_text().replace(some[0].name, "nobody"))
    with pytest.raises(GpusimError, match="no published run is called 'nobody'"):
        runs.read(tmp_path / "kept.csv")


def test_slices_together(tmp_path: Path) -> None:
    """Stated over measured 1.1, 0.9 and 1.3: off by 10, 10 and 30 %."""
    held = [HeldOut("heads", "l40s", "vllm", "decode", "bf16", np.log(np.array(some))) for some in ([1.1, 0.9], [1.3])]
    (one,) = operators.together(held)
    assert (one.rows, round(one.median, 9), round(one.signed, 9)) == (3, 0.1, 0.1)
    assert one.low < 0 < one.high
    operators.write([one], tmp_path / "kept.csv")
    (kept,) = operators.read(tmp_path / "kept.csv")
    assert (kept.machine, kept.rows, kept.median) == ("l40s", 3, pytest.approx(one.median, abs=1e-4))


@pytest.mark.documents
def test_the_page_is_what_was_kept() -> None:
    made = page(operators.read(), runs.read())
    shown = Path(__file__).parents[2] / "docs" / "serving_times_tables.md"
    assert shown.read_text() == made + "\n"


def test_shipped_intervals_are_those_of_the_kept_errors() -> None:
    from gpusim.machine.serving.build import DATA

    assert DATA.read_text() == operators.intervals(operators.read()) + "\n"


def test_parts_are_named() -> None:
    assert len(step.PARTS) == len(found(1.0, 1.0).parts)
