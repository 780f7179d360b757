"""Does a trace survive the file unchanged, and is everything that is not a whole trace refused?"""

from __future__ import annotations

import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpusim.base.errors import TraceError
from gpusim.programs.generate.synth import random_program, training
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import columns


@pytest.mark.slow
@settings(max_examples=25)
@given(seed=st.integers(0, 2**32), ops=st.integers(0, 60), parameters=st.integers(0, 4), streams=st.integers(1, 3))
def test_what_is_saved_is_loaded(tmp_path_factory: Any, seed: int, ops: int, parameters: int, streams: int) -> None:
    path = tmp_path_factory.mktemp("t") / "x.npz"
    trace = random_program(seed, ops, parameters=parameters, streams=streams)
    save_trace(trace, path)
    back = load_trace(path)
    assert back == trace and back.name == trace.name and back.meta == trace.meta
    for (name, old), (_, new) in zip(columns(trace), columns(back), strict=True):
        assert old.dtype == new.dtype and np.array_equal(old, new), name
        assert not new.flags.writeable


def test_the_same_trace_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_trace(training(2), tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert os.listdir(tmp_path) == ["a.npz", "b.npz"] or sorted(os.listdir(tmp_path)) == ["a.npz", "b.npz"]


@pytest.mark.slow
def test_columns_are_small_on_disk(tmp_path: Path) -> None:
    save_trace(random_program(1, 20_000), tmp_path / "x.npz")
    assert (
        tmp_path / "x.npz"
    ).stat().st_size < 60_000 * 12  # 60 thousand events; 8 bytes for each of 20 columns in memory


def saved(tmp_path: Path) -> Path:
    save_trace(training(1, layers=2), tmp_path / "good.npz")
    return tmp_path / "good.npz"


def rewritten(path: Path, changes: dict[str, bytes | None]) -> Path:
    """The archive with some members replaced or left out."""
    out = path.with_name("bad.npz")
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new:
        members = {name: old.read(name) for name in old.namelist()} | changes
        for name, data in members.items():
            if data is not None:
                new.writestr(name, data)
    return out


def npy(array: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    np.save(out, array, **options)
    return out.getvalue()


def header(path: Path, **changes: Any) -> bytes:
    with zipfile.ZipFile(path) as file:
        return json.dumps(json.loads(file.read("header.json")) | changes).encode()


def refused(path: Path, *words: str) -> None:
    with pytest.raises(TraceError) as error:
        load_trace(path)
    text = str(error.value)
    assert str(path) in text and "\n" not in text
    for word in words:
        assert word in text


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data = path.read_bytes()
    for length in range(0, len(data), 97):
        path.write_bytes(data[:length])
        refused(path, "not a trace file")


@pytest.mark.slow
def test_every_flipped_byte_is_refused_or_harmless(tmp_path: Path) -> None:
    path = saved(tmp_path)
    data, good = path.read_bytes(), load_trace(path)
    for at in range(0, len(data), 31):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        try:
            assert load_trace(path) == good
        except TraceError as error:
            assert "\n" not in str(error)


def test_foreign_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    refused(path, "no such trace file")
    np.savez(path, size=np.arange(3))
    refused(path, "has no header", "gpusim import")
    path.write_bytes(b"")
    refused(path, "not a trace file")
    path.write_bytes(pickle.dumps({"segments": []}))
    refused(path, "not a trace file")
    refused(tmp_path)


def test_pickled_arrays_are_not_read(tmp_path: Path) -> None:
    class Boom:
        def __reduce__(self) -> Any:
            return os.mkdir, (str(tmp_path / "ran"),)

    bad = rewritten(saved(tmp_path), {"arg.npy": npy(np.array([Boom()]), allow_pickle=True)})
    refused(bad, "column 'arg' is damaged")
    assert not (tmp_path / "ran").exists()


def test_arrays_that_claim_too_much_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    claim = npy(np.zeros(1, np.int64)).replace(b"(1,)", b"(999999999999,)"[:4])
    for bad in (
        npy(np.zeros((3, 3))),
        npy(np.zeros(10**6, np.int8)),
        npy(np.array(["a"])),
        claim,
        b"",
        b"\x93NUMPY\x01",
    ):
        refused(rewritten(path, {"arg.npy": bad}), "column 'arg' is damaged")
    refused(rewritten(path, {"arg.npy": None}), "lacks its column 'arg'")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for rows in ({"size": 10**12, "kind": 3, "op": 0}, {"size": 1, "kind": 2**60, "op": 0}):
        refused(rewritten(path, {"header.json": header(path, rows=rows)}), "GiB, more than the limit")
    bomb = rewritten(path, {"read_id.npy": bytes(3 * 2**20)})
    with pytest.raises(TraceError, match="more than the limit"):
        load_trace(bomb, max_bytes=2**24)


def test_damaged_headers_are_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    for bad in (b"", b"{", b"[]", b"null", b"[" * 100_000, b'{"format": "other"}'):
        refused(rewritten(path, {"header.json": bad}), "header is not ours")
    refused(rewritten(path, {"header.json": header(path, version=99)}), "version 99")
    changes: tuple[dict[str, Any], ...] = (
        {"rows": {}}, {"rows": {"size": -1, "kind": 1, "op": 1}}, {"rows": {"size": 1.5, "kind": 1, "op": 1}},
        {"constant": {"read_id": 0}}, {"constant": {"stream": 2**70}}, {"constant": {"nonsense": 1}}, {"op_names": [1]},
        {"meta": []}, {"name": 3},
    )  # fmt: skip
    for change in changes:
        refused(rewritten(path, {"header.json": header(path, **change)}), "damaged")


def test_a_file_with_an_impossible_trace_is_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    trace = load_trace(path)
    arg = trace.arg.astype(np.int16)
    arg[-1] = arg[-2]
    refused(rewritten(path, {"arg.npy": npy(arg)}))


def test_what_cannot_be_written_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot write the trace"):
        save_trace(training(1), tmp_path / "missing" / "x.npz")
    assert not list(tmp_path.iterdir())
