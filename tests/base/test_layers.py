"""The rooms of the house: every import goes down, whether a statement says it or a registry imports a module by name."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from gpusim.base.public import PUBLIC

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "gpusim"
_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
ROOMS = [layer.strip("()") for layer in _CONTRACTS[0]["layers"]]  # from the top down
FILES = sorted(PACKAGE.rglob("*.py"))
LOADERS = ("import_module", "__import__")
# What they import is not ours: matplotlib's and pynvml's modules, and PyTorch's, which are extras.
FOREIGN = ("show/style.py", "calibrate/measure/", "programs/record/")


def room(name: str) -> int:
    """The floor of a module, counted from the top."""
    return ROOMS.index(name.split(".")[1])


def module(file: Path) -> str:
    return ".".join(["gpusim", *file.relative_to(PACKAGE).with_suffix("").parts])


def calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            if name in (*LOADERS, "Functions"):
                yield node


def loads(tree: ast.Module) -> list[str]:
    """The packages that a registry declares: `LOADS`, and the package of each `Functions(...)`."""
    found: list[str] = []
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(t, "id", "") for t in node.targets] == ["LOADS"]:
            found += ast.literal_eval(node.value)
    return found + [ast.literal_eval(c.args[0]) for c in calls(tree) if getattr(c.func, "id", "") == "Functions" and c.args]


@pytest.mark.slow
def test_what_is_imported_by_name_is_declared_and_not_above() -> None:
    for file in FILES:
        name, tree = module(file), ast.parse(file.read_text("utf-8"))
        declared = loads(tree)
        for package in declared:
            assert find_spec(package) is not None, (name, package)
            assert room(package) >= room(name), f"{name} imports modules of {package}, which is above it"
        place = file.relative_to(PACKAGE).as_posix()
        if not declared and not place.startswith(FOREIGN) and place not in ("__init__.py", "base/functions.py"):
            assert not list(calls(tree)), f"{name} imports modules by name: declare their packages in LOADS"


def test_the_check_finds_what_is_not_declared() -> None:
    tree = ast.parse("LOADS = ('gpusim.show',)\nimport_module(f'gpusim.show.{name}')\nFunctions('gpusim.cli', 'verb')")
    assert loads(tree) == ["gpusim.show", "gpusim.cli"]
    assert len(list(calls(tree))) == 2
    assert room("gpusim.show.figures") < room("gpusim.engine") < room("gpusim.base.jit")


def test_the_public_names_are_declared_in_one_table() -> None:
    for where in PUBLIC.values():
        assert find_spec(where.partition(":")[0]) is not None, where


@pytest.mark.slow
def test_no_room_imports_public_names() -> None:
    """`from gpusim import referee` names a room; what `gpusim/__init__.py` offers is for users."""
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            if isinstance(node, ast.Import):
                assert "gpusim" not in names, file
            elif isinstance(node, ast.ImportFrom) and node.module == "gpusim" and not node.level:
                assert set(names) <= set(ROOMS), file
