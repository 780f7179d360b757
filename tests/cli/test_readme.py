"""Does what the README says work, as written?

Commands that install or run the tests are checked for what they name; everything else is run in a copy of nothing: an
empty folder, with the shipped experiments found by name.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.documents

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text("utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def commands(prefix: str = "") -> list[str]:
    lines = "\n".join(text for kind, text in BLOCKS if kind == "bash").replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip().startswith(prefix) and not line.strip().startswith("#")]


def test_every_block_says_what_language_it_is() -> None:
    assert BLOCKS and {kind for kind, _ in BLOCKS} <= {"bash", "python", "text", "yaml"}


def test_the_first_command_runs_an_experiment_that_is_here() -> None:
    first = commands("gpusim run")[0].split()
    assert (ROOT / first[2]).is_file()


def test_links_and_pictures_of_the_readme_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target


def test_the_check_script_runs_the_readmes_tests() -> None:
    script = (ROOT / ".ci" / "run").read_text("utf-8")
    assert any(line.startswith("pytest") for line in commands())
    assert "pytest" in script and "ruff check" in script and "mypy" in script


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the README's python blocks call their files (first line: `# name.py`)."""
    folder = tmp_path_factory.mktemp("readme")
    for kind, text in BLOCKS:
        if kind == "python" and (named := re.match(r"# (\w+\.py)\n", text)):
            (folder / named[1]).write_text(text)
    return folder


@pytest.mark.slow
def test_every_command_of_the_readme_works_as_written(place: Path) -> None:
    """In order, in one folder: later commands look at what earlier ones left."""
    for line in commands("gpusim"):
        words = shlex.split(line)
        words = [str(ROOT / w) if w.startswith("experiments/") else w for w in words]
        done = subprocess.run(
            [sys.executable, "-m", "gpusim", *words[1:]], cwd=place, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.stdout.strip(), line


@pytest.mark.slow
def test_every_python_block_runs(place: Path) -> None:
    for kind, text in BLOCKS:
        if kind == "python":
            done = subprocess.run([sys.executable, "-c", text], cwd=place, capture_output=True, text=True, timeout=300)
            assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_table_of_the_readme_is_what_the_run_prints(place: Path) -> None:
    """The README's first experiment (run here if the test above ran elsewhere) prints every line of the README's table."""
    shown = next(text for kind, text in BLOCKS if kind == "text")
    name = Path(commands("gpusim run")[0].split()[2]).stem
    subprocess.run([sys.executable, "-m", "gpusim", "run", name], cwd=place, check=True, capture_output=True, timeout=300)
    printed = subprocess.check_output(
        [sys.executable, "-m", "gpusim", "compare", f"results/{name}"], cwd=place, text=True, timeout=300
    )
    lines = [line.split() for line in printed.splitlines()]
    assert [line for line in shown.splitlines() if line.split() not in lines] == []


@pytest.mark.slow
def test_the_reference_of_the_command_line_is_up_to_date() -> None:
    from gpusim.cli.reference import markdown

    assert (ROOT / "docs" / "cli.md").read_text("utf-8") == markdown()
