"""What is compiled when: nothing on import, an entry at its first call, and again where code that it reaches has changed."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numba import config, typeof, types

from gpusim.base.compiled import CompiledEntry, by_pointer, entry, kernel, tables_at
from gpusim.base.compiled.reached import digest, fields

ROOT = Path(__file__).parents[2]
compiled = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="nothing is compiled")

# What every process below does first: it lists what numba compiles, callees left out.
LISTENER = """
import json, sys
import numba.core.event as ev

class Listener(ev.Listener):
    depth, made = 0, []

    def on_start(self, event):
        if not self.depth:
            self.made.append(event.data["dispatcher"].py_func.__qualname__)
        self.depth += 1

    def on_end(self, event):
        self.depth -= 1

listener = Listener()
ev.register("numba:compile", listener)
"""


def python(program: str, root: Path, cache: Path, *words: object) -> Any:
    """What a process with this package and this cache says on its last line, as JSON."""
    cache.mkdir(mode=0o700, exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if k not in ("NUMBA_DISABLE_JIT", "XDG_CACHE_HOME")}
    environment |= {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(cache), "GPUSIM_CACHE": str(cache / "own")}
    environment["PYTHONDONTWRITEBYTECODE"] = "1"  # Python takes a file of the same second and size for the same
    done = subprocess.run(
        [sys.executable, "-c", LISTENER + program, *map(str, words)], capture_output=True, text=True, env=environment, cwd=root
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# --- when


IMPORTS = """
import importlib, pkgutil, gpusim

names = [m.name for m in pkgutil.walk_packages(gpusim.__path__, "gpusim.", onerror=lambda name: None)]
names = [name for name in names if not name.endswith("__main__")]
count = 0
for name in names:
    try:
        count += bool(importlib.import_module(name))
    except ImportError as error:  # extras, which need not be there
        assert error.name.partition(".")[0] in ("torch", "cuda", "pynvml", "pandas", "IPython", "bitsandbytes"), error
print(json.dumps([count, listener.made]))
"""
VERBS = """
from gpusim.cli.app import main
for words in json.loads(sys.argv[1]):
    sys.argv = ["gpusim", *words]
    try:
        main()
    except SystemExit as end:
        assert not end.code, (words, end.code)
print()
print(json.dumps(listener.made))
"""
EXPERIMENT = """question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: 60 %
policies: {place: best_fit, evict: [lru, largest]}
"""


@pytest.mark.slow
def test_importing_every_module_compiles_nothing(tmp_path: Path) -> None:
    count, made = python(IMPORTS, ROOT, tmp_path / "cache")
    assert count > 500 and made == []


@pytest.mark.slow
def test_to_validate_and_to_read_results_compiles_nothing(tmp_path: Path) -> None:
    """The results were made by plain Python."""
    file, out = tmp_path / "mine.yaml", tmp_path / "out"
    file.write_text(EXPERIMENT)
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "gpusim.cli.app", "run", file, "-o", out, "--no-figures", "--jobs", "1"]
    subprocess.run(command, check=True, capture_output=True, env=environment, cwd=tmp_path)
    words = [["validate", str(file)], ["compare", str(out)], ["validate", "unified_threshold"]]
    assert python(VERBS, ROOT, tmp_path / "cache", json.dumps(words)) == []


@pytest.mark.slow
@compiled
def test_an_entry_is_compiled_at_its_first_call_for_its_signature_alone() -> None:
    @entry(types.int64(types.int64[::1], types.int64))
    def total(a: Any, by: int) -> int:
        n = 0
        for x in a:
            n += x * by
        return n

    assert isinstance(total, CompiledEntry) and total.signatures == []
    assert total(np.arange(4), np.int32(2)) == 12 and total(np.arange(4), True) == 6
    assert total.signatures == [(types.int64[::1], types.int64)]
    with pytest.raises(TypeError):
        total(np.arange(4.0), 1)


@pytest.mark.slow
@compiled
def test_compiled_code_calls_an_entry_as_any_function() -> None:
    @entry(types.int64(types.int64))
    def twice(x: int) -> int:
        return 2 * x

    @entry(types.int64(types.int64))
    def four(x: int) -> int:
        return twice(twice(x))

    assert four(3) == 12


COLD = """
import importlib
from gpusim.base.compiled.entries import is_cold
module = importlib.import_module(sys.argv[1])
before = [is_cold(module.once), is_cold(module.later)]
module.once(1), module.later(1)
print(json.dumps(before))
"""


@pytest.mark.slow
@compiled
def test_an_entry_is_cold_until_it_is_kept_and_again_when_its_code_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "chilly.py"
    text = "\n".join((
        "from numba import types", "from gpusim.base.compiled import entry",
        "@entry(types.int64(types.int64))", "def once(x):", "    return x + 1",
        "@entry()", "def later(x):", "    return x + 2",
    ))  # fmt: skip
    cold = []
    for source in (text, f"{text}\n# a remark", text.replace("x + 2", "x + 3"), text.replace("x + 1", "x + 4")):
        file.write_text(source)
        program = f"sys.path.insert(0, {str(tmp_path)!r})\n{COLD}"
        cold.append(python(program, ROOT, tmp_path / "cache", "chilly"))
        for old in tmp_path.glob("__pycache__/*.pyc"):
            old.unlink()  # the file was changed within a second
    assert cold == [[True, True], [False, False], [False, True], [True, True]]


# --- what counts


SOURCE = '''
"""A module."""
import numpy as np
from numba import njit
from gpusim.base.compiled import entry, kernel

FACTOR = 3
SHIFTS = (1, 2)
ROW = np.dtype([("a", np.int64)])
UNREAD = 1

@kernel
def inner(x, by=2):
    """What it does."""
    return x * FACTOR + SHIFTS[0] + by

@kernel
def other(x):
    return x + 5

@entry()
def first(x):
    return inner(x)

@entry()
def second(x):
    # a remark
    return other(x)

def plain(x):
    return first(x) + second(x)
'''
_numbers = itertools.count()


def stamps(tmp_path: Path, *edit: str) -> tuple[str, str]:
    """Those of `first` and `second` where `edit[0]` of the source is `edit[1]`."""
    assert not edit or edit[0] in SOURCE
    file = tmp_path / f"stamped{next(_numbers)}.py"
    file.write_text(SOURCE.replace(*edit) if edit else SOURCE)  # type: ignore[arg-type]
    spec = importlib.util.spec_from_file_location("stamped", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return digest(module.first), digest(module.second)


@compiled
@pytest.mark.parametrize(
    "edit",
    [
        ("# a remark", "# another\n\n    # remark"), ("What it does.", "What else it does."), ("A module.", "Another.\n\n"),
        ("UNREAD = 1", "UNREAD = 2"), ("first(x) + second(x)", "first(x) - second(x)"), ("def inner(x,", "def inner(x: int,"),
    ],
)  # fmt: skip
def test_what_decides_nothing_does_not_count(edit: tuple[str, str], tmp_path: Path) -> None:
    assert stamps(tmp_path, *edit) == stamps(tmp_path)


@compiled
@pytest.mark.parametrize(
    "edit",
    [
        ("FACTOR = 3", "FACTOR = 4"), ("FACTOR = 3", "FACTOR = 3.0"), ("SHIFTS = (1, 2)", "SHIFTS = (2, 1)"), ("by=2", "by=3"),
        ("* FACTOR", "// FACTOR"), ("@kernel\ndef inner", "@njit\ndef inner"), ("return inner(x)", "return inner(x, 1)"),
    ],
)  # fmt: skip
def test_code_and_constants_count_for_what_reaches_them_alone(edit: tuple[str, str], tmp_path: Path) -> None:
    (first, second), (new_first, new_second) = stamps(tmp_path), stamps(tmp_path, *edit)
    assert first != new_first and second == new_second


@compiled
def test_what_a_function_encloses_counts() -> None:
    def made(value: Any) -> str:
        @kernel
        def inside(x: Any) -> Any:
            return x + value

        @entry()
        def outside(x: Any) -> Any:
            return inside(x)

        return digest(outside)

    assert made(1) == made(1) != made(2)
    assert made(np.arange(3)) == made(np.arange(3)) != made(np.arange(1, 4))
    assert made(np.dtype([("a", "i8")])) != made(np.dtype([("b", "i8")]))


@compiled
def test_the_layout_of_tables_counts_that_an_address_leads_to() -> None:
    """No signature names them: an entry takes the address alone."""

    def reads(*fields: tuple[str, Any]) -> Any:
        class Tables(NamedTuple):
            rows: Any

        tables = by_pointer(Tables)
        at = tables_at(typeof(tables(np.zeros(1, np.dtype(list(fields))))))

        def first(address: int) -> Any:
            return at(address).rows[0].a

        return first

    long, short = np.int64, np.int32
    assert digest(reads(("a", long))) == digest(reads(("a", long)))
    assert len({digest(reads(*fields)) for fields in ([("a", long)], [("a", short)], [("b", long), ("a", long)])}) == 3


def test_names_of_fields_count_that_numba_does_not_name() -> None:
    import collections

    tuples = [collections.namedtuple("T", names) for names in ("a b", "b a")]
    kinds = [types.NamedUniTuple(types.int64, 2, made) for made in tuples]
    assert str(kinds[0]) == str(kinds[1]) and fields(types.void(kinds[0])) != fields(types.void(kinds[1]))


# --- what is compiled again


REPLAY = """
import numpy as np
from gpusim.policies import registry
from gpusim.policies.trials.misses import replay
pages = np.array([0, 0, 0, 1, 2, 0, 3, 0, 1, 4, 0, 1, 2, 0] * 3)
misses = [replay(pages, 4096, 3 * 4096, registry.get("evict", name)).misses for name in ("lru", "lfu")]
print(json.dumps([misses, sorted(name[:9] for name in listener.made)]))
"""


@pytest.mark.slow
@compiled
def test_a_comment_compiles_nothing_and_a_constant_what_reaches_it(tmp_path: Path) -> None:
    """In a copy of the package with a cache of its own."""
    shutil.copytree(ROOT / "gpusim", tmp_path / "gpusim", ignore=shutil.ignore_patterns("__pycache__"))

    def edited(name: str, *edit: str) -> None:
        file = tmp_path / "gpusim" / name
        text = file.read_text("utf-8")
        assert not edit or edit[0] in text
        file.write_text(text.replace(*edit) if edit else f'"""Another first line."""\n# and a comment\n{text}', "utf-8")  # type: ignore[arg-type]

    def replayed() -> Any:
        return python(REPLAY, tmp_path, tmp_path / "cache")

    misses, made = replayed()
    assert made == ["_loop_lfu", "_loop_lru"]
    for name in ("results/faults.py", "results/heap_over_time.py", "trace/stats.py", "base/bits.py"):
        with (tmp_path / "gpusim" / name).open("a") as file:
            file.write("\n# a comment\n")
    edited("policies/queue.py", "from __future__ import annotations\n", "from __future__ import annotations\n\n# a comment\n")
    edited("policies/evict/lfu.py", "the fewest accesses", "fewest accesses")
    assert replayed() == [misses, []]
    edited("policies/evict/lfu.py", "X[unit] + 1.0", "X[unit] - 1.0")
    changed, made = replayed()
    assert made == ["_loop_lfu"] and changed[0] == misses[0] and changed[1] > misses[1]
