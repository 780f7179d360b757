"""Is every bad input answered by one clear sentence and exit code 2, with nothing half-written and nothing run?"""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app

TRACE = Path(__file__).parents[2] / "traces" / "gpt-medium-infer.npz"
YAML = """question: Does it work?
trace: gpt-medium-infer
profile: l4
memory: 60 %
policies:
  place: best_fit
  evict: lru
"""


def refused(*words: object) -> str:
    """What a verb says that ends with exit code 2: no traceback, no "internal error", the program's name first."""
    done = CliRunner().invoke(app, [str(word) for word in words])
    assert done.exit_code == 2, f"{done.exit_code}: {done.stdout}\n{done.stderr}\n{done.exception!r}"
    assert done.stderr.startswith("gpusim: ") and "Traceback" not in done.stderr and "internal error" not in done.stderr
    return done.stderr


class Evil:
    """Runs a command when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.system, (f"touch {self.mark}",)


# --- recordings


_EVIL = {
    "by a class": lambda mark: pickle.dumps({"segments": [], "device_traces": [Evil(mark)]}),
    "in text": lambda mark: f"cos\nsystem\n(S'touch {mark}'\ntR.".encode(),
    "by instance": lambda mark: f"(S'touch {mark}'\nios\nsystem\n.".encode(),
    "by names on the stack": lambda mark: b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c"
    + bytes([len(f"touch {mark}")]) + f"touch {mark}".encode() + b"\x85R.",
}  # fmt: skip


@pytest.mark.parametrize("how", _EVIL)
def test_no_pickle_runs_code(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    data = _EVIL[how](Path("ran"))
    (tmp_path / "evil.pickle").write_bytes(data)
    refused("import", "evil.pickle", "-o", "t.npz")
    refused("import", "evil.pickle", "-o", "t.npz", "--format", "pytorch")
    assert sorted(os.listdir()) == ["evil.pickle"]
    pickle.loads(data)  # the attack is real: opening the file in Python runs it
    assert Path("ran").exists()


_HEAD = "event,tensor,size,name,reads,writes,flops,duration_ns\n"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("alloc,a,-1,,,,,\n", ":2: event 0: the size -1 is negative"),
        ("alloc,a,99999999999999999999,,,,,\n", ":2: 99999999999999999999 in column 'size' overflows 64 bits"),
        ("alloc,a,9000000000000000000,,,,,\n", ":2: tensor 0: 'size' is 9000000000000000000, which is more than 64 PiB"),
        ("alloc,a,9000000000000000000,,,,,\nalloc,b,9000000000000000000,,,,,\nop,,,mm,a b,,,\n",
         ":4: a number of operator 'mm' does not fit 64 bits"),
        ("alloc,a,1,,,,,\nop,,,mm,a,,1e300,\n", ":3: operator 0: 'flops' is 1e+300, which no kernel computes"),
        ("alloc,a,1,,,,,\nop,,,mm,a,,nan,\n", ":3: operator 0: 'flops' is nan, which no kernel computes"),
        ("alloc,a,1,,,,,\nop,,,mm,a,,,9000000000000000000\n", "durations sum to more than 36 years"),
        ("alloc,ab,1,,,,,\nfree,abc,,,,,,\n", "tensor 'abc', which was never allocated (did you mean 'ab'?)"),
        ("alloc,a,1,,,,,\nfree,a,,,,,,\nfree,a,,,,,,\n", ":4: this line frees tensor 'a', which was already freed"),
        ("alloc,a,1,,,,,\nfree,a,,,,,,\nop,,,mm,a,,,\n", ":4: this line reads tensor 'a', which was already freed"),
        ("aloc,a,1,,,,,\n", ":2: unknown event 'aloc' (did you mean 'alloc'?)"),
        ("alloc,a\n", ":2: the line has 2 values, but there are 8 columns"),
    ],
)  # fmt: skip
def test_a_recording_that_says_something_impossible_is_refused_at_its_line(rows: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(_HEAD + rows)
    assert said in refused("import", tmp_path / "x.csv", "-o", tmp_path / "t.npz")
    assert not (tmp_path / "t.npz").exists()


def test_ten_gigabytes_are_refused_before_they_are_read(tmp_path: Path) -> None:
    import resource

    huge = tmp_path / "huge.csv"
    with huge.open("wb") as file:
        file.write(_HEAD.encode())
        file.truncate(10 * 2**30)  # sparse: it takes no room on the disk
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert "larger than 4 GiB" in refused("import", huge, "-o", tmp_path / "t.npz")
    assert "not a trace file" in refused("trace", huge)
    assert "larger than 1 MiB" in refused("validate", huge)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB


# --- trace files


def _changed(path: Path, member: str, data: bytes) -> Path:
    """A copy of a shipped trace with one member replaced."""
    with zipfile.ZipFile(TRACE) as old, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as new:
        for name in old.namelist():
            new.writestr(name, data if name == member else old.read(name))
    return path


def _sizes(change: Any) -> bytes:
    with zipfile.ZipFile(TRACE) as file:
        sizes = np.lib.format.read_array(io.BytesIO(file.read("size.npy"))).astype(np.int64)
    made = io.BytesIO()
    np.lib.format.write_array(made, change(sizes))
    return made.getvalue()


def _first_is(value: int) -> bytes:
    return _sizes(lambda sizes: np.concatenate([[value], sizes[1:]]).astype(np.int64))


def _npy_of_shape(rows: int, data: bytes) -> bytes:
    head = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({rows},), }}".encode()
    return b"\x93NUMPY\x01\x00\x76\x00" + head.ljust(117) + b"\n" + data


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: _first_is(-5), "tensor 0: 'size' is -5, which is negative"),
        (lambda: _first_is(2**62), "which is more than 64 PiB"),
        (lambda: _npy_of_shape(10**14, b""), "column 'size' is damaged"),
        (lambda: _npy_of_shape(-5, bytes(64)), "column 'size' is damaged"),
        (lambda: _npy_of_shape(20_000_000, bytes(160_000_000)), "column 'size' is damaged"),  # a zip bomb
        (lambda: b"", "column 'size' is damaged"),
    ],
)
def test_a_damaged_or_hostile_column_is_named(data: Any, said: str, tmp_path: Path) -> None:
    assert said in refused("trace", _changed(tmp_path / "t.npz", "size.npy", data()))


def test_a_trace_with_pickled_objects_runs_nothing(tmp_path: Path) -> None:
    objects = np.empty(1, object)
    objects[0] = Evil(tmp_path / "ran")
    assert "damaged" in refused("trace", _changed(tmp_path / "t.npz", "size.npy", _sizes(lambda _: objects)))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    "change",
    [{"rows": {"size": 10**15, "kind": 1, "op": 1}}, {"rows": {"size": -1}}, {"constant": {"stream": 10**9}}, {"meta": "x"},
     {"version": 99}, {"name": 5}, {"op_names": [1]}],
)  # fmt: skip
def test_a_header_that_lies_is_refused(change: dict[str, Any], tmp_path: Path) -> None:
    with zipfile.ZipFile(TRACE) as file:
        header = json.loads(file.read("header.json")) | change
    refused("trace", _changed(tmp_path / "t.npz", "header.json", json.dumps(header).encode()))


@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.99])
def test_a_trace_cut_short_is_refused(share: float, tmp_path: Path) -> None:
    whole = TRACE.read_bytes()
    (tmp_path / "t.npz").write_bytes(whole[: int(len(whole) * share)])
    assert "not a trace file, or it is cut short or damaged" in refused("trace", tmp_path / "t.npz")


# --- experiments


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        (YAML + "policies: {evict: [lru", ":8:"),
        (YAML + "x: !!python/object/apply:os.system ['touch ran']\n", "is not allowed"),
        (YAML + "use: " + "[" * 10_000 + "]" * 10_000, "nest"),  # libyaml has a limit of its own
        ("a: &a [x,x,x,x,x,x,x,x]\n" + "".join(f"{n}: &{n} [{','.join(['*' + chr(ord(n) - 1)] * 9)}]\n" for n in "bcdefghi"),
         "holds more than"),
        (YAML + "use: &a [*a]\n", "'*a'"),
        (YAML + "memory: 50 %\n", "key 'memory' is given twice"),
        (YAML + "memry: 50 %\n", "did you mean 'memory'?"),
        (YAML + "---\n" + YAML, "a second document begins here"),
        ("- a\n", "must be a mapping"),
        (YAML.replace("60 %", "99999999999999999999 B"), "more than 8 EiB"),
        (YAML.replace("60 %", "-5 GiB"), "is negative"),
        (YAML.replace("60 %", "60 GiB/s"), "is a rate, but a size is wanted"),
        (YAML.replace("60 %", "60 parsecs"), "is not a unit of size"),
        (YAML.replace("60 %", "nan %"), "is not a percentage"),
        (YAML.replace("60 %", "[]"), "an empty list leaves nothing to run"),
        (YAML.replace("gpt-medium-infer", "gpt-medum-infer"), "'gpt-medium-infer'"),
        (YAML.replace("l4", "l4x"), "'l4'"),
        (YAML.replace("lru", "lruu"), "'lru'"),
        (YAML.replace("lru", "lru(k=1)"), "has no parameter 'k'"),
        (YAML + "use: [nowhere.py]\n", "nowhere.py"),
    ],
)  # fmt: skip
def test_an_experiment_that_makes_no_sense_is_refused_by_validate_and_run(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.yaml").write_text(text)
    assert said in refused("validate", "x.yaml")
    assert said in refused("run", "x.yaml")
    assert os.listdir() == ["x.yaml"]


def test_a_profile_with_mistakes_is_refused_before_anything_runs(tmp_path: Path) -> None:
    shipped = (TRACE.parents[1] / "hardware_profiles" / "t4.yaml").read_text()
    (tmp_path / "mine.yaml").write_text(shipped.replace("bandwidth:", "bandwith:").replace(" GB/s", " Gb/s"))
    (tmp_path / "x.yaml").write_text(YAML.replace("l4", "mine.yaml"))
    for words in (["validate", tmp_path / "x.yaml"], ["run", tmp_path / "x.yaml", "-o", tmp_path / "out"]):
        said = refused(*words)
        assert "did you mean 'bandwidth'?" in said and "counts bits" in said
    assert not (tmp_path / "out").exists()


def test_a_damaged_trace_is_refused_before_anything_runs(tmp_path: Path) -> None:
    """Once, whatever the number of runs; a second trace that is whole does not help."""
    whole = TRACE.read_bytes()
    middle = len(whole) // 2
    (tmp_path / "t.npz").write_bytes(whole[:middle] + b"?" * 64 + whole[middle + 64 :])
    text = YAML.replace("gpt-medium-infer", "[gpt-medium-infer, t.npz]").replace("lru", "[lru, fifo]")
    (tmp_path / "x.yaml").write_text(text)
    for words in (["validate", tmp_path / "x.yaml"], ["run", tmp_path / "x.yaml", "-o", tmp_path / "out"]):
        said = refused(*words)
        assert said.count("\n") == 1 and "t.npz: " in said and "damaged" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_trace_of_a_process_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For the check before the first run, and for all runs."""
    from gpusim.trace import files

    read: list[Path] = []
    load = files.load_trace
    monkeypatch.setattr(files, "load_trace", lambda path: read.append(path) or load(path))
    trace = tmp_path / "own.npz"
    trace.write_bytes(TRACE.read_bytes())
    (tmp_path / "x.yaml").write_text(YAML.replace("gpt-medium-infer", "own.npz").replace("lru", "[lru, fifo]"))
    words = ["run", str(tmp_path / "x.yaml"), "-o", str(tmp_path / "out"), "--no-figures", "--jobs", "1"]
    assert CliRunner().invoke(app, words).exit_code == 0
    assert read == [trace]
    assert CliRunner().invoke(app, words).exit_code == 0  # all results are there: nothing is read
    assert read == [trace]


# --- policies of one's own


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("from gpusim import policy\n\n\n@policy.evict\ndef mine(sise):\n    return sise\n", "mine.py:5: "),
        ("from gpusim import policy\n\nimport nothing_here\n", "mine.py:3: ModuleNotFoundError"),
        ("def mine(:\n", "mine.py:1: SyntaxError"),
        ("x = 1\n", "mine.py: the file registers no policy"),
    ],
)
def test_a_policy_file_that_cannot_be_loaded_is_told_at_its_line_and_only_there(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(text)
    (tmp_path / "x.yaml").write_text(YAML.replace("lru", "mine") + "use: [mine.py]\n")
    told = refused("run", tmp_path / "x.yaml", "-o", tmp_path / "out")
    assert said in told and "there is no evict policy" not in told
    assert not (tmp_path / "out").exists()


_POLICIES = '''
import numpy as np

from gpusim import policy


@policy.evict
def undefined(size, last_use):
    return (last_use - last_use) / (size - size)


@policy.evict
def undefined_now(size, now):
    return (now - now) / (size - size)


@policy.evict
def boom(size):
    if size > 0:
        raise ValueError("boom")
    return size


@policy.evict
def mute(size, now):
    if size < 0:
        return now


@policy.evict(columns=True)
def undefined_column(size):
    return size * np.nan


@policy.evict(columns=True)
def raising_column(size):
    raise RuntimeError("no model here")


@policy.evict(columns=True)
def short_column(size):
    return size[:2]


@policy.evict
class raising:
    def victim(self, need, locked):
        return {}["x"]


@policy.evict
class never_enough:
    def victim(self, need, locked):
        return None


@policy.evict
class unheard_of:
    def victim(self, need, locked):
        return 10**30


@policy.evict
class compiled_wild:
    def state(n_units, capacity, params, seed):
        return np.zeros(1, np.int64), np.zeros(1)

    def insert(S, X, unit, size, key):
        return 0

    touch = remove = insert

    def victim(S, X, incoming, size, locked):
        return 1 << 50
'''


@pytest.fixture(scope="module")
def policies(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policies") / "mine.py"
    path.write_text(_POLICIES)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("undefined", "returned nan"),
        ("undefined_now", "returned nan"),
        ("boom", "raised ValueError: boom"),
        ("mute", "raised TypeError"),
        ("undefined_column", "returned nan"),
        ("raising_column", "raised RuntimeError: no model here"),
        ("short_column", "returned an array of shape (2,), not one number for each of"),
        ("raising", "raised KeyError: 'x'"),
        ("never_enough", "named no victim for"),
        ("unheard_of", "chose 1000000000000000000000000000000, which is not resident"),
        ("compiled_wild", "named 1125899906842624, which is not"),
    ],
)
def test_a_policy_that_breaks_its_contract_fails_its_run_and_no_other(
    name: str, said: str, policies: Path, tmp_path: Path
) -> None:
    """The sentence names the user's file and line; the other run of the grid is kept."""
    (tmp_path / "x.yaml").write_text(YAML.replace("lru", f"[lru, {name}]") + f"use: [{policies}]\nbounds: false\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "x.yaml"), "-o", str(tmp_path / "out"), "--no-figures"])
    assert done.exit_code == 2 and "Traceback" not in done.stderr, done.stderr
    assert f"{policies}:" in done.stderr and f"policy '{name}' {said}" in done.stderr
    assert len((tmp_path / "out" / "summary.csv").read_text().splitlines()) == 2
    assert [len(list(run.iterdir())) for run in (tmp_path / "out" / "runs").iterdir()] == [2]


# --- results


@pytest.mark.slow
@pytest.mark.parametrize("name", ["result.json", "timeline.npz"])
def test_a_damaged_result_says_what_repairs_it(name: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(YAML + "bounds: false\n")
    words = ["run", str(tmp_path / "x.yaml"), "-o", str(tmp_path / "out"), "--no-figures"]
    assert CliRunner().invoke(app, words).exit_code == 0
    (file,) = (tmp_path / "out" / "runs").glob(f"*/{name}")
    whole = file.read_bytes()
    file.write_bytes(whole[:1])
    for read in ("compare", "check"):
        said = refused(read, tmp_path / "out")
        assert f"{name}: this file is" in said
        assert f"`gpusim run {tmp_path / 'out' / 'experiment.yaml'} -o {tmp_path / 'out'}` does it again" in said
    for force in ([], ["--force"]):
        file.write_bytes(whole[:1])
        done = CliRunner().invoke(app, [*words, *force])
        assert done.exit_code == 0 and (f"{name}: this file is" in done.stderr) == (not force)
        assert file.read_bytes() == whole


# --- where nothing can be written


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_import_and_schema_leave_nothing_where_writing_fails(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk fails when what was written is put in its place, the last moment at which it can."""
    (tmp_path / "x.csv").write_text(_HEAD + "alloc,a,1,,,,,\n")

    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "replace", fail)
    monkeypatch.setattr(Path, "replace", fail)
    assert os.strerror(number) in refused("import", tmp_path / "x.csv", "-o", tmp_path / "t.npz")
    assert os.strerror(number) in refused("schema", "-o", tmp_path / "s.json")
    assert os.listdir(tmp_path) == ["x.csv"]


# --- the command line itself


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--block", 0), "Invalid value for '--block'"), (("serve", "--blok", 3), "No such option: --blok"),
        (("run",), "Missing argument"), (("serv",), "there is no verb 'serv' (did you mean 'serve'?)"),
    ],
)
def test_a_wrong_option_is_one_sentence_that_names_the_help(words: tuple[object, ...], said: str) -> None:
    told = refused(*words)
    assert said in told and "--help`)" in told and told.count("\n") == 1
