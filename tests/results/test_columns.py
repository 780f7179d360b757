"""Do runs in columns read as those in folders do, and is what is missing, damaged or from elsewhere said?"""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpusim.base import files
from gpusim.base.errors import ResultError
from gpusim.results import folder, manifest, segments
from gpusim.results.afterwards import ADVICE, keep, kept
from gpusim.results.folder import (
    damaged,
    discard,
    finished,
    has_log,
    in_columns,
    intact,
    load_folder,
    load_result,
    missing,
    note_results,
    open_folder,
    run_folders,
    save_result,
    save_results,
)
from gpusim.results.packed import pack, unpack
from gpusim.results.result import Result

KEYS = [f"{i:016x}" for i in range(7)]


def a_result(number: int = 0, **others: Any) -> Result:
    """Integers, floats, words and numbers that some runs lack."""
    metrics: dict[str, Any] = {"makespan_ns": 100 + number, "slowdown": 1 / (number + 3), "swap_ins": 0.5 if number % 2 else 2}
    if number % 3 == 0:
        metrics["swap_outs"] = number
    spec = {"trace": "tiny", "evict": f"policy{number % 2}", "memory": 2**40 + number, "seed": number, "rates": {"h2d": 1e9}}
    bounds = {"bound_swap_in_bytes": 2**63 - 1 - number}
    return Result(**{"spec": spec, "outcome": "finished", "metrics": metrics, "bounds": bounds, **others})


def begin(out: Path, keys: list[str] = KEYS, **others: Any) -> None:
    open_folder(out, "question: tiny?\n", {"trace": "ab" * 32}, keys, **others)


def tree(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*")) if p.is_file()}


def plain(result: Result) -> dict[str, Any]:
    return {name: getattr(result, name) for name in ("spec", "outcome", "failure", "metrics", "bounds", "key", "checked")}


def typed(value: Any) -> Any:
    """With the types of numbers, which == does not look at, and the order of names."""
    if isinstance(value, dict):
        return [(name, typed(item)) for name, item in value.items()]
    return [typed(item) for item in value] if isinstance(value, list) else (type(value), value)


@pytest.mark.agreement
def test_columns_read_as_folders_do(tmp_path: Path) -> None:
    runs = [a_result(i) for i in range(5)]
    runs += [a_result(5, outcome="oom", failure={"memory": "device", "op": 3}), a_result(6, bounds={})]
    references = {KEYS[0]: {"bound_no_limit_ns": [KEYS[1], KEYS[2]]}, KEYS[5]: {"bound_no_limit_ns": [KEYS[1]]}}
    apart, together = tmp_path / "apart", tmp_path / "together"
    for out in (apart, together):
        begin(out, references=references)
    for key, run in zip(KEYS, runs, strict=True):
        save_result(apart, key, run)
    save_results(together, dict(zip(KEYS[:4], runs[:4], strict=True)))
    save_results(together, dict(zip(KEYS[4:], runs[4:], strict=True)))
    for _ in range(2):
        found, expected = load_folder(together), load_folder(apart)
        assert [typed(plain(r)) for r in found] == [typed(plain(r)) for r in expected]
        assert found[0].metrics["slowdown"] == 100 / 101 and found[0].bounds["bound_no_limit_ns"] == 101
        alone = [load_result(path) for path in run_folders(together)]
        assert [typed(plain(r)) for r in alone] == [typed(plain(r)) for r in expected]
        for out in (apart, together):
            note_results(out, KEYS)
    assert finished(together) == set(KEYS) and missing(together) == 0 and not has_log(together)
    assert [path.name for path in run_folders(together)] == KEYS


@pytest.mark.agreement
def test_however_runs_came_into_batches_the_bytes_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "ROWS", 3)
    left = []
    for name, batches in (("a", [KEYS]), ("b", [KEYS[4:], KEYS[:2], KEYS[2:4]]), ("c", [[key] for key in KEYS[::-1]])):
        begin(tmp_path / name)
        for batch in batches:
            save_results(tmp_path / name, {key: a_result(int(key, 16)) for key in batch})
        (tmp_path / name / "columns" / ".cut.part").write_bytes(b"of a process that was killed")
        note_results(tmp_path / name, KEYS)
        left.append(tree(tmp_path / name))
    assert left[0] == left[1] == left[2]
    assert sorted(manifest.read(tmp_path / "a")["columns"].values()) == [1, 3, 3]  # type: ignore[index]


def test_what_was_run_again_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    for makespan in (1, 2):
        begin(tmp_path)
        run = a_result()
        save_results(tmp_path, {KEYS[0]: replace(run, metrics={**run.metrics, "makespan_ns": makespan}), KEYS[makespan]: run})
        assert load_result(tmp_path / "runs" / KEYS[0]).metrics["makespan_ns"] == makespan
        note_results(tmp_path, KEYS)
        assert load_result(tmp_path / "runs" / KEYS[0]).metrics["makespan_ns"] == makespan
    assert finished(tmp_path) == set(KEYS[:3])


values = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=4), st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
)  # fmt: skip
tables = st.dictionaries(st.sampled_from("abc"), values, max_size=3)
rows = st.fixed_dictionaries({
    "spec": tables, "metrics": tables, "bounds": tables, "outcome": st.sampled_from(["finished", "oom"]),
    "failure": st.none() | tables, "faults": st.none(),
})  # fmt: skip


@given(st.dictionaries(st.sampled_from(KEYS), rows, min_size=1))
def test_what_is_unpacked_is_what_was_packed(runs: dict[str, dict[str, Any]]) -> None:
    """Names within a run come sorted, as those of result.json."""
    expected = json.loads(json.dumps(runs, sort_keys=True))
    found = unpack(pack(runs))
    assert found.keys() == expected.keys()
    for key, row in found.items():
        assert {name: typed(value) for name, value in row.items()} == {n: typed(v) for n, v in expected[key].items()}
    one = next(iter(runs))
    assert unpack(pack(runs), [one, "none"]) == {one: found[one]}


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), [float("nan")]])
def test_what_json_does_not_have_is_refused(value: Any, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="cannot be written"):
        segments.add(tmp_path, {KEYS[0]: {"spec": {"a": value}, "metrics": {}, "bounds": {}, "outcome": "finished"}})
    assert not (tmp_path / "columns").exists()


def test_where_runs_are_kept_is_one_rule() -> None:
    assert [in_columns(runs, logs) for runs, logs in ((1999, False), (2000, False), (10**6, True))] == [False, True, False]


def test_what_is_found_out_about_a_run_in_columns_has_a_folder(tmp_path: Path) -> None:
    begin(tmp_path)
    save_results(tmp_path, {KEYS[0]: a_result()})
    path = run_folders(tmp_path)[0]
    assert kept(path, ADVICE) is None and not path.exists()
    keep(path, ADVICE, {"hint": 1})
    assert kept(path, ADVICE) == {"hint": 1}
    assert [r.key for r in load_folder(tmp_path)] == [KEYS[0]]


def laid(out: Path) -> Path:
    """A folder with all runs in one file, which is answered."""
    begin(out)
    save_results(out, {key: a_result(i) for i, key in enumerate(KEYS)})
    note_results(out, KEYS)
    (path,) = (out / "columns").iterdir()
    return path


@pytest.mark.parametrize("how", ["cut", "edited", "empty", "gone"])
def test_damaged_columns_are_named_with_the_command_that_repairs_them(tmp_path: Path, how: str) -> None:
    path = laid(tmp_path)
    whole = path.read_bytes()
    content = {"cut": whole[:-40], "edited": whole.replace(whole[200:203], b"abc"), "empty": b""}.get(how)
    path.unlink() if content is None else path.write_bytes(content)
    why = "there is no such file, and the manifest lists it" if how == "gone" else "not the one that the run wrote"
    again = f"`gpusim run {tmp_path / 'experiment.yaml'} -o {tmp_path}` does it again"
    for read in (load_folder, run_folders, missing, lambda out: load_result(out / "runs" / KEYS[3])):
        with pytest.raises(ResultError) as error:
            read(tmp_path)
        assert str(path) in str(error.value) and why in str(error.value) and again in str(error.value)
    assert list(damaged(tmp_path)) == [str(path)] and intact(tmp_path) == set()
    begin(tmp_path)
    discard(tmp_path, [], damaged(tmp_path) or [str(path)])
    save_results(tmp_path, {key: a_result(i) for i, key in enumerate(KEYS)})
    note_results(tmp_path, KEYS)
    assert path.read_bytes() == whole and len(load_folder(tmp_path)) == len(KEYS)


@pytest.mark.parametrize(
    "edit, words",
    [
        (lambda m: {**m, "version": 9}, "a later gpusim wrote this manifest (version 9; this one reads up to 2)"),
        (lambda m: {**m, "version": 0}, "there is no way from version 0 of this manifest"),
        (lambda m: {**m, "format": "other"}, "this is no manifest of gpusim"),
        (lambda m: {n: v for n, v in m.items() if n != "runs"}, "this manifest is not complete: runs: field required"),
        (lambda m: {**m, "runs": [1]}, "this manifest is not complete: runs.0: input should be a valid string"),
    ],
)
def test_a_manifest_that_is_another_is_refused(tmp_path: Path, edit: Any, words: str) -> None:
    laid(tmp_path)
    path = tmp_path / "manifest.json"
    path.write_text(json.dumps(edit(json.loads(path.read_text()))))
    with pytest.raises(ResultError) as error:
        load_folder(tmp_path)
    assert words in str(error.value) and "manifest.json" in str(error.value) and "\n" not in str(error.value)
    if "later" in words:
        with pytest.raises(ResultError, match="later gpusim"):
            begin(tmp_path)
    else:
        assert list(damaged(tmp_path)) == [str(path)]
        begin(tmp_path)
        assert len(load_folder(tmp_path)) == len(KEYS), "the columns were not damaged"


def test_a_manifest_of_the_version_before_is_read(tmp_path: Path) -> None:
    begin(tmp_path)
    save_result(tmp_path, KEYS[0], a_result())
    note_results(tmp_path, KEYS)
    path, expected = tmp_path / "manifest.json", [plain(r) for r in load_folder(tmp_path)]
    old = json.loads(path.read_text())
    del old["columns"]
    path.write_text(json.dumps({**old, "version": 1}))
    assert [plain(r) for r in load_folder(tmp_path)] == expected


@pytest.mark.parametrize("old, new, words", [
    ('"version": 1', '"version": 2', "a later gpusim wrote this result"),
    ('"outcome": "finished"', '"outcome": "finishe"', "this result is not complete: outcome:"),
    ('"makespan_ns": 100', '"makespan_ns": "100"', "this result is not complete: metrics.makespan_ns"),
    ('"failure"', '"was"', "this result is not complete: failure: field required"),
])  # fmt: skip
def test_a_result_that_says_other_things_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    """Also where its seal fits, as that of a program that writes other files would."""
    from gpusim.results.seal import write_sealed

    begin(tmp_path)
    path = save_result(tmp_path, KEYS[0], a_result()) / "result.json"
    text = path.read_text()
    assert old in text
    value = json.loads(text.replace(old, new))
    write_sealed(path, {name: item for name, item in value.items() if name != "seal"})
    with pytest.raises(ResultError) as error:
        load_folder(tmp_path)
    assert words in str(error.value) and "result.json" in str(error.value) and "\n" not in str(error.value)


def test_a_complete_folder_on_a_read_only_disk_is_begun_again_without_a_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = laid(tmp_path)
    before = tree(tmp_path)

    def refused(*args: object, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(files, "write_atomic", refused)
    monkeypatch.setattr(segments, "write_atomic", refused)
    assert len(load_folder(tmp_path)) == len(run_folders(tmp_path)) == len(KEYS)
    assert damaged(tmp_path) == {} and intact(tmp_path) == set(KEYS)
    assert folder.changed(tmp_path, KEYS) == {}
    assert tree(tmp_path) == before and path.is_file()


def test_numbers_of_columns_can_be_read_without_gpusim(tmp_path: Path) -> None:
    """As docs/grids.md says."""
    path = laid(tmp_path)
    with np.load(path) as file:
        header = json.loads(file["header"].tobytes())
        ints = [c["name"] for c in header["columns"] if c["kind"] == "ints"]
        assert file["ints"][ints.index("makespan_ns")].tolist() == [100, 101, 102, 103, 104, 105, 106]
        assert file["keys"].tolist() == [key.encode() for key in KEYS]
