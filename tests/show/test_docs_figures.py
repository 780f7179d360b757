"""Do the figures of the docs show what the code does now?  `python docs/figures.py` makes them; those of experiments are
compared in test_experiments.py, where their runs are simulated anyway."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from docs_tool import tool

from gpusim.programs.serving.requests import file_of

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[2]
AGAIN = "python docs/figures.py {} makes it again"


def test_every_figure_of_the_docs_is_made_by_the_command() -> None:
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name for path in texts for name in re.findall(r"\((?:docs/)?figures/(\w+)\.\w+\)", path.read_text("utf-8"))}
    assert shown == set(tool().NAMES) == set(tool().manifest())
    for name, kept in tool().manifest().items():
        assert tool().of_file(ROOT / "docs" / "figures" / f"{name}.png") == kept["file"], AGAIN.format(name)


@pytest.mark.golden
@pytest.mark.slow
@pytest.mark.parametrize("name", [*tool().VERBS, *tool().SCRIPTS])
def test_a_figure_shows_what_the_code_comes_to(name: str) -> None:
    if not file_of(tool().RECORDED.get(name, ".")).exists():
        pytest.skip(f"GPUSIM_REQUESTS does not name the folder of {tool().RECORDED[name]}")
    assert tool().state(name) == tool().manifest()[name]["shows"], AGAIN.format(name)


def test_a_figure_that_moved_is_another_one() -> None:
    from made_results import run

    from gpusim.show import figures

    one, same, other = (tool().shows(figures.draw("time_breakdown", [run(slowdown=s)])) for s in (1.5, 1.5, 1.6))
    assert one == same != other


def test_the_command_knows_its_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert tool().main(["polices"]) == 2 and "there is no figure 'polices'" in capsys.readouterr().err
