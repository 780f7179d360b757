"""One word per concept: no two public classes of the package have one name, but for parts of the models of the zoo."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "gpusim"
# Modules of PyTorch: each family of models writes its own, under the name that they have in all of them.
ZOO = PACKAGE / "programs" / "zoo"
# The same word for the same thing: what a layer of a generated transformer saves, in each of its two families; a value and the
# face with which the library shows it.
SHARED = {
    "SavedLayer": {"programs/generate/gpt2.py", "programs/generate/llama.py"},
    "Result": {"results/result.py", "api/result.py"},
    "Experiment": {"experiment/spec.py", "api/grids.py"},
}


@pytest.mark.slow
def test_no_two_classes_have_one_name() -> None:
    places: dict[str, set[str]] = defaultdict(set)
    for file in PACKAGE.rglob("*.py"):
        for node in ast.parse(file.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and file.parent != ZOO:
                places[node.name].add(file.relative_to(PACKAGE).as_posix())
    twice = {name: files for name, files in places.items() if len(files) > 1 and SHARED.get(name) != files}
    assert not twice
