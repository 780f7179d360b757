"""Does gpu_ext's study say what was measured on an RTX 5090, and refuse what it cannot?"""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.programs.managed.steps import Kernel
from gpusim.studies.gpu_ext import kernels, study

ROWS = study.published()


def row(kernel: str, case: str) -> study.StudyRow:
    return next(row for row in ROWS if (row["kernel"], row.case) == (kernel, case))


@pytest.fixture
def one_context(monkeypatch: pytest.MonkeyPatch) -> None:
    """The free memory makes no difference here: see docs/gpu_ext.md."""
    monkeypatch.setattr(study, "CONTEXTS", (0.5,))


@pytest.mark.oracle
@pytest.mark.slow
def test_gemm_alone_and_in_pairs_is_within_a_fifth(monkeypatch: pytest.MonkeyPatch, one_context: None) -> None:
    """Pairs with equal policies go in step: two tokens say what twenty do."""
    monkeypatch.setitem(study.WARM, "gemm", 2)
    monkeypatch.setitem(study.TIMED, "gemm", 1)
    pairs = ("no_policy(50, 50)", "prefetch_pid_tree(0, 0)")
    cases = ("single_2x", *pairs, *(case + study.LOW for case in pairs))
    study.simulated_pair.cache_clear()
    made = study.reproduce(row("gemm", case) for case in cases)
    study.simulated_pair.cache_clear()
    assert all(abs(one["difference"]) < 0.2 for one in made)
    assert study.rankings(made) == []
    # What the policy of whole blocks is worth: published 43.6 s and 26.7 s.
    ours = {one["case"]: one["ours"] for one in made}
    assert ours["prefetch_pid_tree(0, 0)"] / ours["no_policy(50, 50)"] == pytest.approx(26.7 / 43.6, rel=0.2)


@pytest.mark.oracle
@pytest.mark.slow
def test_a_process_of_low_priority_ends_behind_the_other_and_has_the_gpu_alone(
    monkeypatch: pytest.MonkeyPatch, one_context: None
) -> None:
    """prefetch_pid_tree(20, 80): published 6.5 s for the first, and 1.48 s for the second, which is what GEMM takes alone."""
    monkeypatch.setitem(study.WARM, "gemm", 8)
    monkeypatch.setitem(study.TIMED, "gemm", 4)
    study.simulated_pair.cache_clear()
    high, low = study.reproduce([row("gemm", f"prefetch_pid_tree(20, 80){second}") for second in ("", study.LOW)])
    study.simulated_pair.cache_clear()
    assert low["ours"] == pytest.approx(low["published"], rel=0.01)
    assert low["ours"] < high["ours"] < row("gemm", "prefetch_pid_tree(0, 0)").published_ms / 2


@pytest.mark.hand_worked
def test_what_is_given() -> None:
    given = [row for row in ROWS if row.given]
    assert {row["mode"] for row in given} == {"device", "uvm", "uvm_advise_pref_cpu"} and len(given) == 14
    assert sum(row.case.endswith(study.LOW) for row in ROWS) == 2 * 33, "of each pair both times"


@pytest.mark.hand_worked
def test_sizes_are_those_of_the_source() -> None:
    # 0.6 x 33,669,316,608 bytes are 112 layers of 4096 x 11008 floats; twice as much would be 224, of which the source has 200.
    assert kernels.layers(0.6) == 112 and kernels.layers(1.2) == 200
    # bytes_accessed of the published row: 1480.54 ms at 136.435 GB/s.
    assert pytest.approx(1.48054 * 136.435e9, rel=1e-4) == kernels.TOKENS * 112 * kernels.LAYER
    sequential = kernels.sequential(1.0, 0.1)
    assert sum(array.bytes for array in sequential.arrays) == kernels.TOTAL


@pytest.mark.oracle
def test_only_one_kernel_of_k_means_runs() -> None:
    """574.185 GB/s for 361.922 ms, and 243,359 blocks in thirty passes: what 1600 clusters give, for which four of the five
    kernels would have more threads in a block than a GPU takes."""
    program = kernels.kmeans(0.9, 36e6, part=1)
    distances, group = (array.bytes for array in program.arrays)
    points = group // kernels.PAGE
    counted = kernels.PASSES * (points * (2 * 4 + 8 * kernels.CLUSTERS + 2 * 4) + 24 * kernels.CLUSTERS)
    assert counted == pytest.approx(574.185e9 * 0.361922, rel=3e-6)
    assert (distances + group) / 2**21 == pytest.approx(243_359 / 30, rel=5e-4)


@pytest.mark.hand_worked
def test_random_steps_do_not_visit_every_page() -> None:
    """An odd step visits all of 32 pages; of 79, which is prime, one where it is a multiple of 79."""
    for factor, everything in ((1.25, False), (0.5, True)):
        program = kernels.scattered(factor, 0.1)
        kernel = next(step for step in program.steps if isinstance(step, Kernel))
        pages, index = kernel.steps[0], kernel.accesses[0].index
        assert index is not None
        visited = [len(np.unique(rows[rows >= 0])) for rows in index.reshape(-1, pages)[:256]]
        assert max(visited) == pages and (min(visited) == pages) is everything


@pytest.mark.slow
def test_the_verb_prints_rows_and_refuses_other_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study, "simulated_alone", lambda *case: 37_000.0)
    monkeypatch.setattr(study, "simulated_pair", lambda kernel, factor, thresholds, context: ((43_000.0, 129_000.0),) * 2)
    made = json.loads(CliRunner().invoke(app, ["reproduce", "gpu_ext", "--figure", "gemm", "--json"]).stdout)
    assert len(made["rows"]) == 48 and "single_1x" in {row["case"] for row in made["rows"]}
    wrong = CliRunner().invoke(app, ["reproduce", "gpu_ext", "--figure", "gem"])
    assert wrong.exit_code != 0 and "gpu_ext has no kernel 'gem'" in wrong.stderr
