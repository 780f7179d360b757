"""Does the name of a run change with whatever can decide it, and with nothing else?"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import gpusim
from gpusim.experiment import load
from gpusim.experiment.closure import PACKAGE, Closure
from gpusim.experiment.key import RUN, Code, _loaded_by
from gpusim.experiment.spec import RunSpec
from gpusim.experiment.tasks import plan

YAML = """
question: Does the key change?
trace: gpt-medium-infer
profile: l4
memory: 60 %
bounds: false
"""
# One run of each kind: what its experiment says, and a package that only such runs have (None: all have it).
RUNS = {
    "eviction": ("policies: {place: best_fit, evict: cost_aware, prefetch: next_k}", "policies/prefetch"),
    "offsets": ("policies: {place: stalloc}", "policies/place/parts/packing"),
    "plan": ("policies: {plan: capuchin}", "policies/plan/parts/swap"),
    "remat": ("policies: {plan: dtr}", "policies/plan/parts/recompute"),
    "transform": ('transform: "precision(to=bf16)"', "programs/transforms"),
    "unified": ("unified: driver", "engine/pages/prefetch"),
}  # fmt: skip
PRESENTATION = ("show", "cli")


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of the package, to be changed."""
    folder = tmp_path_factory.mktemp("source") / "gpusim"
    return Path(shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__", "*.ttf", "_shipped")))


@cache
def spec(said: str, folder: Path) -> RunSpec:
    (folder / "e.yaml").write_text(YAML + said)
    return plan(load.experiment(str(folder / "e.yaml")), folder).grid[0].spec


def modules(package: Path, roots: list[str | Path]) -> list[str]:
    return sorted(name for name in Closure(package).contents([RUN, *roots]) if name.endswith(".py"))


def functions(file: Path) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.FunctionDef)]


def changed(file: Path) -> str:
    """The file with one more statement in its first function."""
    lines = file.read_text().splitlines(keepends=True)
    body = functions(file)[0].body
    first = body[1] if len(body) > 1 and isinstance(body[0], ast.Expr) else body[0]
    lines.insert(first.lineno - 1, " " * first.col_offset + "changed = 1\n")
    return "".join(lines)


def commented(file: Path) -> str:
    """The file with another docstring and comments, and the same statements at other lines."""
    text = file.read_text()
    tree = ast.parse(text)
    if ast.get_docstring(tree) is None:
        return "# A comment.\n\n" + text
    end = tree.body[0].end_lineno
    return '"""Other words."""\n\n# A comment.\n' + "".join(text.splitlines(keepends=True)[end:]) + "\n# The end.\n"


@pytest.mark.slow
def test_a_function_changed_in_any_package_changes_the_key_and_a_comment_does_not(package: Path, tmp_path: Path) -> None:
    """Each package in runs of the first kind that has it."""
    tried: set[str] = set()
    for said, own in RUNS.values():
        run = spec(said, tmp_path)
        key = Code(package).of(run)
        files = modules(package, _loaded_by(run))
        packages = {str(Path(name).parent): name for name in files if functions(package / name)}
        assert {own, "engine/host", "engine/run", "experiment", "machine", "policies", "results", "trace"} <= packages.keys()
        for name in (file for folder, file in packages.items() if folder not in tried):
            file = package / name
            text = file.read_text()
            try:
                file.write_text(changed(file))
                assert Code(package).of(run) != key, name
                file.write_text(text)
                file.write_text(commented(file))
                assert Code(package).of(run) == key, name
            finally:
                file.write_text(text)
        assert Code(package).of(run) == key
        tried |= packages.keys()


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_what_only_shows_results_is_in_no_key(kind: str, tmp_path: Path) -> None:
    found = modules(PACKAGE, _loaded_by(spec(RUNS[kind][0], tmp_path)))
    assert [name for name in found if name.split("/")[0] in PRESENTATION] == []


@pytest.mark.slow
def test_a_planner_is_in_the_keys_of_its_own_runs_only(tmp_path: Path) -> None:
    found = modules(PACKAGE, _loaded_by(spec(RUNS["eviction"][0], tmp_path)))
    assert not any(name.startswith("policies/plan/parts/recompute/") for name in found)


@pytest.mark.slow
@pytest.mark.parametrize("kind", RUNS)
def test_whatever_a_run_imports_is_in_its_key(kind: str, tmp_path: Path) -> None:
    """Asked of Python itself: the modules that are there when a run has ended."""
    run = spec(RUNS[kind][0], tmp_path)
    program = """
import sys
from pathlib import Path
from gpusim.experiment import load
from gpusim.experiment.tasks import plan
tasks = plan(load.experiment(sys.argv[1]), Path(sys.argv[2])).grid
before = set(sys.modules)
from gpusim.experiment.execute import result
result(tasks[0])
print(*(m.__file__ for name, m in sys.modules.items() if name not in before and name.split(".")[0] == "gpusim" and m.__file__))
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "e.yaml"), str(tmp_path)], capture_output=True, text=True, check=True
    )
    loaded = {Path(file).relative_to(PACKAGE).as_posix() for file in done.stdout.split()}
    assert len(loaded) > 20
    assert loaded - set(modules(PACKAGE, _loaded_by(run))) == set()


@pytest.mark.slow
def test_the_reader_of_a_table_has_it_in_its_key(package: Path, tmp_path: Path) -> None:
    run = spec(RUNS["eviction"][0], tmp_path)
    key, table = Code(package).of(run), package / "machine" / "kernels" / "data" / "kernels.yaml"
    text = table.read_text()
    table.write_text(text + "\n# other numbers\n")
    assert Code(package).of(run) != key
    table.write_text(text)


def test_versions_of_the_compiler_and_of_numpy_are_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    key = Code().of_all()
    for name in ("numba", "numpy"):
        with monkeypatch.context() as patch:
            patch.setattr("gpusim.experiment.key.version", lambda asked, name=name: "0" if asked == name else "1")
            one = Code().of_all()
        assert one != key


USER = """
from gpusim import policy
from helpers import weight

@policy.evict
def mine(size, last_use):
    return -weight(size)
"""


def test_a_users_policy_counts_with_what_it_imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    helpers, mine = tmp_path / "helpers.py", tmp_path / "mine.py"
    helpers.write_text("def weight(size):\n    return 2 * size\n")
    mine.write_text(USER)
    (tmp_path / "e.yaml").write_text(YAML + "use: [mine.py]\npolicies: {evict: mine}\n")

    def key() -> str:
        return plan(load.experiment(str(tmp_path / "e.yaml")), tmp_path).grid[0].key

    first = key()
    helpers.write_text("# Twice.\ndef weight(size):\n    '''Twice.'''\n    return 2 * size\n")
    mine.write_text('"""Mine."""\n' + USER)
    assert key() == first
    helpers.write_text("def weight(size):\n    return 3 * size\n")
    changed_helper = key()
    helpers.write_text("def weight(size):\n    return 2 * size\n")
    mine.write_text(USER.replace("-weight", "weight"))
    assert len({first, changed_helper, key()}) == 3


@pytest.mark.slow
def test_a_damaged_note_of_earlier_readings_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path))
    whole = Closure().digest([RUN])
    (kept,) = (tmp_path / "sources").glob("*.json")
    text = kept.read_bytes()
    for damaged in (b"", text[: len(text) // 2], b"[1]", b'{"a": 1}', b'{"a": ["b", 3]}', b"\xff" * 100):
        kept.write_bytes(damaged)
        assert Closure().digest([RUN]) == whole


def test_imports_are_found_wherever_they_stand(tmp_path: Path) -> None:
    folder = tmp_path / "gpusim"
    (folder / "part").mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / "part" / "__init__.py").touch()
    (folder / "begin.py").write_text(
        "from typing import TYPE_CHECKING\nfrom importlib import import_module\nfrom gpusim.part import one\n"
        "if TYPE_CHECKING:\n    from gpusim.part import five\nelse:\n    import gpusim.part.six\n"
        "def late():\n    from gpusim.part.two import f\n    import_module('gpusim.part.three')\n"
    )
    (folder / "part" / "one.py").write_text("from . import four\n")
    for name in ("two", "three", "four", "five", "six", "seven"):
        (folder / "part" / f"{name}.py").write_text(f"{name} = 1\n")
    found = Closure(folder).contents(["gpusim.begin"])
    wanted = {f"part/{name}.py" for name in ("one", "two", "three", "four", "six")}
    assert found.keys() == {"__init__.py", "begin.py", "part/__init__.py"} | wanted


def test_lazy_names_of_the_package_are_followed(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from gpusim import transform\n")
    assert gpusim.PUBLIC["transform"].startswith("gpusim.api.transforming")
    assert "programs/transforms/registry.py" in Closure().contents([file])
