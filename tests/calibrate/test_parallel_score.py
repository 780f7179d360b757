"""Simulated against published steps: what is kept is what the code comes to, and the page is made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpusim.base.errors import GpusimError
from gpusim.calibrate.parallel import kept
from gpusim.calibrate.parallel.cases import ParallelCase, shipped
from gpusim.calibrate.parallel.page import page, row, summary
from gpusim.calibrate.parallel.running import StepTime, simulated
from gpusim.calibrate.parallel.score import ScoredStep, errors, order, score

PAGE = Path(__file__).parents[2] / "docs" / "many_gpu_steps.md"
LAYOUTS = [case for case in shipped().cases if case.source == "flagperf-llama" and case.model == "LLaMA-13B"]


def named(name: str) -> ParallelCase:
    return next(case for case in shipped().cases if case.name == name)


def times(case: ParallelCase, factor: float) -> ScoredStep:
    return ScoredStep(case, StepTime(case.step_s * factor, case.step_s, 0.0))


def test_errors_are_shares_of_what_was_measured() -> None:
    told = [times(case, factor) for case, factor in zip(LAYOUTS, (1.1, 0.7, 1.0), strict=False)]
    found = errors([*told, ScoredStep(LAYOUTS[3], None, "why")])
    assert found is not None
    assert (found.steps, round(found.median, 9), round(found.p90, 9), found.signed) == (3, 0.1, 0.3, 0.0)
    assert errors([ScoredStep(LAYOUTS[3], None, "why")]) is None


def test_an_order_is_of_layouts_by_their_time_for_a_sample() -> None:
    right = [times(case, 1.0) for case in LAYOUTS]
    assert order(right) == (5, 5), "1,605 and 1,597 tokens/s have no order"
    fastest = max(LAYOUTS, key=lambda case: case.measured)
    assert order([times(case, 3.0 if case is fastest else 1.0) for case in LAYOUTS]) == (2, 5)
    assert order([times(named("lambda-bert-2xv100"), 1.0), times(named("lambda-resnet50-2xv100"), 1.0)]) == (0, 0)


def test_what_cannot_be_simulated_is_listed_and_not_averaged() -> None:
    def no(case: ParallelCase) -> StepTime:
        raise GpusimError("there is no such layer")

    (one,) = score(LAYOUTS[:1], no)
    assert one.error is None and row(one).endswith("| - | | | | | there is no such layer |")
    assert "1 of 2" in summary([one, times(LAYOUTS[1], 1.0)])


def test_parts_of_a_step_add_up() -> None:
    step = StepTime(5.0, 3.0, 0.5).ahead(StepTime(1.0, 0.5, 0.0), 2)
    assert step == StepTime(7.0, 4.0, 0.5) and step.exposed == 2.5


def test_kept_rows_come_back_in_the_order_of_the_published(tmp_path: Path) -> None:
    path = tmp_path / "kept.csv"
    kept.write([times(LAYOUTS[1], 1.0)], path)
    kept.write([ScoredStep(LAYOUTS[0], None, "why")], path)
    assert [(one.case.name, one.why) for one in kept.read(path)] == [(LAYOUTS[0].name, "why"), (LAYOUTS[1].name, "")]
    path.write_text("name,step_s,kernels_s,host_s,why\nnone,1,1,1,\n")
    with pytest.raises(GpusimError, match="no published step is called 'none'"):
        kept.read(path)


def test_the_page_is_what_was_kept() -> None:
    assert PAGE.read_text("utf-8").rstrip("\n") == page(kept.read()), "python -m gpusim.calibrate.parallel page"
    assert {one.case.name for one in kept.read()} == {case.name for case in shipped().cases}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mpt-125m-2048-8xa100-40", "lambda-resnet50-8xv100", "mpt-760m-2048-16xh100-24"])
def test_what_was_kept_is_what_the_code_comes_to(name: str) -> None:
    pytest.importorskip("torch")
    was = next(one.simulated for one in kept.read() if one.case.name == name)
    now = simulated(named(name))
    assert was is not None and now.step == pytest.approx(was.step, rel=1e-4)
    assert now.kernels == pytest.approx(was.kernels, rel=1e-4)
