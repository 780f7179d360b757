"""Do the notebooks of the documentation run, and show what they show?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")

pytestmark = pytest.mark.documents
NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def shown(notebook: Any) -> list[list[str]]:
    """Of each cell of code, which kinds of output it has."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [sorted({kind for out in cell.outputs for kind in out.get("data", {"text": 0})}) for cell in cells]


def test_there_is_one_for_each_kind_of_user() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["fit", "fragmentation", "policy"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_its_stored_output_is_of_the_same_kinds(path: Path, tmp_path: Path) -> None:
    stored, again = nbformat.read(path, 4), nbformat.read(path, 4)
    client = nbclient.NotebookClient(again, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}})
    client.execute()  # raises for a cell that does
    assert shown(again) == shown(stored)
    assert any("image/png" in kinds for kinds in shown(stored)) and any("text/html" in kinds for kinds in shown(stored))
    assert path.stat().st_size < 1_000_000
