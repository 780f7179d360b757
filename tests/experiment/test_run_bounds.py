"""Are the bounds of a run those of what ran, and does the run keep to them?"""

from __future__ import annotations

from pathlib import Path

import pytest
from hand_worked import BLOCK, Steps, machine, three_tensors_in_two_blocks

from gpusim.experiment import grid, load
from gpusim.experiment.bounds import of_run
from gpusim.experiment.execute import RunProgram
from gpusim.experiment.resolved import resolved
from gpusim.experiment.tasks import inputs, plan
from gpusim.results.result import Result

pytestmark = pytest.mark.formulas

PLANS = ("none", "capuchin", "dtr", "checkpointing", "zero_copy")
YAML = f"""
question: What does a plan save?
trace: resnet50-train
profile: a100-pcie-80gb
memory: 60 %
policies:
  plan: [{", ".join(PLANS)}]
bounds: false
"""


def test_what_runs_is_bounded_and_not_what_was_given() -> None:
    """In room for one tensor the first of three comes back, BLOCK bytes, unless it is read below or the program is another."""
    profile = machine()
    given = RunProgram(three_tensors_in_two_blocks().trace(), profile)
    assert given.bounds.swap_in(BLOCK) == BLOCK
    assert of_run(Result({}, "finished", {}), given.bounds, profile) is given.bounds
    assert of_run(Result({"remote": [0]}, "finished", {}), given.bounds, profile).swap_in(BLOCK) == 0
    chunks = list(range(BLOCK // 512))
    at_grain = Result({"remote": chunks, "grain": "512 B"}, "finished", {})
    assert of_run(at_grain, given.bounds, profile).swap_in(BLOCK) == 0
    shorter = Steps()
    tensor = shorter.alloc()
    shorter.kernel(100, writes=(tensor,))
    made = Result({}, "finished", {}, program=shorter.trace())
    assert of_run(made, given.bounds, profile).at(BLOCK) == {
        "bound_swap_in_bytes": 0, "bound_live_bytes": BLOCK, "bound_plan_bytes": BLOCK,
    }  # fmt: skip


@pytest.mark.slow
def test_every_row_keeps_to_the_bound_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "e.yaml"
    path.write_text(YAML)
    loaded = load.experiment(str(path), ())
    done = grid.run(plan(loaded, tmp_path / "out"), resolved(loaded.experiment), inputs(loaded))
    found = {str(r.spec.get("plan") or "none"): r for r in done.results}
    assert set(found) == set(PLANS)
    for name, r in found.items():
        assert r.finished and r.metrics["h2d_bytes"] >= r.bounds["bound_swap_in_bytes"], name
        if not r.metrics["swap_outs"] and not r.metrics["clean_drops"]:
            assert r.metrics["reserved_peak_bytes"] >= r.bounds["bound_live_bytes"], name
    least = {name: r.bounds["bound_swap_in_bytes"] for name, r in found.items()}
    assert least["dtr"] == least["checkpointing"] == 0 < least["capuchin"] < least["zero_copy"] < least["none"]
    assert found["capuchin"].metrics["h2d_bytes"] < least["none"], "else the given program's bound would do"
