"""Does gpu_ext's study say what was measured on an RTX 5090, and refuse what it cannot?"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.programs.managed.steps import Kernel
from gpusim.studies.gpu_ext import kernels, study

ROWS = study.published()


def answered(kernel: str) -> list[dict[str, Any]]:
    return study.reproduce(row for row in ROWS if row["kernel"] == kernel)


@pytest.mark.oracle
@pytest.mark.slow
def test_gemm_alone_and_in_pairs_is_within_a_fifth() -> None:
    made = answered("gemm")
    scored = [row for row in made if row["difference"] is not None]
    assert len(scored) == 7 and all(abs(row["difference"]) < 0.2 for row in scored)
    assert study.rankings(made) == []
    # What the policy of whole blocks is worth: published 43.6 s and 26.7 s.
    ours = {row["case"]: row["ours"] for row in scored}
    assert ours["prefetch_pid_tree(0, 0)"] / ours["no_policy(50, 50)"] == pytest.approx(26.7 / 43.6, rel=0.2)


@pytest.mark.hand_worked
def test_what_is_refused_and_what_is_given() -> None:
    why = {row.case: study.refusal(row) for row in ROWS if row["kernel"] == "gemm"}
    refused = [case for case, said in why.items() if said]
    assert refused == [
        "eviction_freq_pid_decay(1, 10)", "prefetch_pid_tree(0, 20)", "prefetch_pid_tree(20, 80)",
        "prefetch_eviction_pid(20, 80)", "prefetch_pid_tree(20, 0)",
    ]  # fmt: skip
    given = [row for row in ROWS if row.given]
    assert {row["mode"] for row in given} == {"device", "uvm", "uvm_advise_pref_cpu"} and len(given) == 12


@pytest.mark.hand_worked
def test_sizes_are_those_of_the_source() -> None:
    # 0.6 x 33,669,316,608 bytes are 112 layers of 4096 x 11008 floats; twice as much would be 224, of which the source has 200.
    assert kernels.layers(0.6) == 112 and kernels.layers(1.2) == 200
    # bytes_accessed of the published row: 1480.54 ms at 136.435 GB/s.
    assert pytest.approx(1.48054 * 136.435e9, rel=1e-4) == kernels.TOKENS * 112 * kernels.LAYER
    sequential = kernels.sequential(1.0, 0.1)
    assert sum(array.bytes for array in sequential.arrays) == kernels.TOTAL


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
def test_the_verb_prints_rows_and_refuses_other_kernels(tmp_path: Any) -> None:
    made = json.loads(CliRunner().invoke(app, ["reproduce", "gpu_ext", "--figure", "gemm", "--json"]).stdout)
    assert len(made["rows"]) == 15 and made["rankings"] == []
    wrong = CliRunner().invoke(app, ["reproduce", "gpu_ext", "--figure", "gem"])
    assert wrong.exit_code != 0 and "gpu_ext has no kernel 'gem'" in wrong.stderr
