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

# Files of `gpusim` whose functions import at first use, and why; the verbs in cli/ may do so too.
AT_FIRST_USE = {
    "__init__.py": "public names are lazy",
    "api/environments.py": "Gymnasium is an extra",
    "api/frames.py": "pandas is an extra",
    "api/grids.py": "start-up: matplotlib",
    "api/showing.py": "IPython is an extra",
    "base/errors.py": "start-up: multiprocessing",
    "base/tables.py": "start-up: numba",
    "calibrate/measure/command.py": "needs CUDA packages",
    "calibrate/kernel_times/host_bound.py": "PyTorch and timm are extras",
    "calibrate/kernel_times/networks.py": "PyTorch, timm and transformers are extras",
    "calibrate/offload/training.py": "PyTorch is an extra",
    "calibrate/parallel/programs.py": "PyTorch is an extra",
    "calibrate/readers/aiconfigurator.py": "pandas is an extra",
    "calibrate/steps/measure.py": "PyTorch is an extra",
    "api/transforming.py": "start-up: numba",
    "calibrate/steps/plain.py": "replaces numba before it is imported",
    "experiment/far.py": "dask is an extra",
    "experiment/grid.py": "start-up: a rerun with nothing to do executes nothing",
    "experiment/key.py": "start-up: unified memory",
    "experiment/load.py": "start-up: unified memory",
    "experiment/pool.py": "start-up: multiprocessing",
    "experiment/axis_types.py": "start-up: numba",
    "experiment/tasks.py": "start-up: numba and unified memory",
    "experiment/users.py": "start-up: numba",
    "experiment/walls.py": "start-up: traces",
    "experiment/warm.py": "start-up: what it compiles",
    "machine/serving/tables.py": "pyarrow is an extra",
    "policies/registry.py": "start-up: numba",
    "policies/cones.py": "ECOS is an extra",
    "programs/record/__init__.py": "PyTorch is an extra",
    "programs/record/processes.py": "PyTorch is an extra",
    "programs/transforms/registry.py": "start-up: numpy",
    "programs/zoo/__init__.py": "PyTorch is an extra",
    "results/run_files.py": "start-up: traces",
    "results/viewers/perfetto.py": "perfetto is an extra",
    "results/viewers/tables.py": "pyarrow is an extra",
    "show/figures.py": "start-up: matplotlib",
    "programs/record/on_gpu.py": "PyTorch is an extra",
    "studies/advice/inputs.py": "PyTorch is an extra",
    "programs/record/pretend.py": "PyTorch is an extra",
    "programs/record/recording.py": "PyTorch is an extra",
    "programs/record/script.py": "PyTorch is an extra",
    "studies/tuning/search.py": "Optuna is an extra",
    "studies/fragmentation/inputs.py": "the recorder needs PyTorch, which is an extra",
    "trace/check.py": "start-up: numba",
}


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


def test_functions_import_only_where_the_list_says_why() -> None:
    found = set()
    for file in FILES:
        place = file.relative_to(PACKAGE).as_posix()
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not place.startswith("cli/"):
                found |= {place for inner in ast.walk(node) if isinstance(inner, ast.Import | ast.ImportFrom)}
    assert found == set(AT_FIRST_USE)
