"""Is compiled code read only where no other user can have put it, and is whatever does not fit compiled again?"""

from __future__ import annotations

import hashlib
import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from numba import njit, types

from gpusim.base import cache, errors
from gpusim.base.compiled.disk import VERSIONS, keep
from gpusim.policies import registry

ROOT = Path(__file__).parents[2]
STRANGER = 4242


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No folder has been looked at yet, and nothing said."""
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)
    for known in (cache._private, cache._beside, errors.note):
        known.cache_clear()
    yield
    for known in (cache._private, cache._beside, errors.note):
        known.cache_clear()


def give_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make it another user's; where only root could, make this user another."""
    if os.geteuid() == 0:
        os.chown(path, STRANGER, -1, follow_symlinks=False)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)


def twice(x):  # type: ignore[no-untyped-def]
    return 2 * x


def compiled(folder: Path, content: str = "") -> Any:
    """`twice`, compiled or found in the folder."""
    made = keep(njit(twice), twice, lambda: content, folder)
    made.compile(types.int64(types.int64))
    return made


def found(dispatcher: Any) -> bool:
    assert dispatcher(21) == 42
    return sum(dispatcher.stats.cache_hits.values()) == 1


def test_a_folder_is_the_users_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPUSIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "gpusim").mkdir(mode=0o775)
    folder = cache.folder("policies")
    assert folder == tmp_path / "gpusim" / "policies"
    assert {stat.S_IMODE(p.stat().st_mode) for p in (folder, folder.parent)} == {0o700}


def _link(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base.parent / "elsewhere").mkdir()
    (base / "policies").symlink_to(base.parent / "elsewhere")


def _strangers(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "policies").mkdir()
    give_away(base / "policies", monkeypatch)


def _strangers_above(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    give_away(base, monkeypatch)


def _open_above(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base.chmod(0o777)


def _a_file(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (base / "policies").touch()


def _not_writable(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)


def _full(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mkdir(self: Path, *args: object, **kwargs: object) -> None:
        raise OSError(30, "Read-only file system", str(self))

    monkeypatch.setattr(Path, "mkdir", mkdir)


UNSAFE: dict[Callable[[Path, pytest.MonkeyPatch], None], str] = {
    _link: "is a link",
    _strangers: "belongs to another user",
    _strangers_above: "belongs to another user",
    _open_above: "others can write into",
    _a_file: "File exists",
    _not_writable: "cannot be written",
    _full: "Read-only file system",
}


@pytest.mark.slow
@pytest.mark.parametrize("spoil", UNSAFE)
def test_without_a_safe_folder_nothing_is_kept_and_that_is_said_once(
    spoil: Callable[[Path, pytest.MonkeyPatch], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setenv("GPUSIM_CACHE", str(base))
    (tmp_path / "mine.py").write_text("from gpusim import policy\n@policy.evict\ndef big(size):\n    return -size\n")
    with monkeypatch.context() as patch:
        spoil(base, patch)
        own = registry.of(tmp_path / "mine.py")
        own.get("evict", "big")
        chosen = own.get("evict", "big")
    assert chosen.form == "score"
    said = capsys.readouterr().err
    assert said.count(f"no compiled code is kept in {base}: ") == 1
    assert UNSAFE[spoil] in said
    assert [p for p in tmp_path.rglob("*") if p.suffix in (".nbi", ".nbc")] == []


def test_a_shared_temporary_folder_holds_private_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As /tmp: all can write, but what is in it only its owner can replace."""
    tmp_path.chmod(0o1777)
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path))
    assert cache.folder("policies") == tmp_path / "policies"


def test_without_a_home_folder_nothing_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUSIM_CACHE", "~nosuchuser/cache")
    assert cache.folder("policies") is None and list(tmp_path.iterdir()) == []
    assert "no compiled code is kept in ~nosuchuser/cache: there is no such home folder" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_in_a_container_strangers_have_the_number_of_its_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All users that a user namespace does not know are one there, root among them."""
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", STRANGER, -1)
    stat = os.stat
    monkeypatch.setattr(os, "stat", lambda at, **how: SimpleNamespace(st_uid=STRANGER) if at == "/" else stat(at, **how))
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path / "theirs"))
    assert cache.folder("policies") == tmp_path / "theirs" / "policies", "a folder of root's"
    cache._private.cache_clear()
    tmp_path.chmod(0o1777)
    assert cache.folder("policies") is None


def test_code_lies_beside_its_source_unless_others_can_write_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path / "own"))
    for name in ("safe", "open", "strange"):
        (tmp_path / name / "__pycache__").mkdir(parents=True)
    (tmp_path / "open" / "__pycache__").chmod(0o777)
    assert cache.of_source(tmp_path / "safe" / "a.py") == tmp_path / "safe" / "__pycache__"
    assert cache.of_source(tmp_path / "open" / "a.py").parent == tmp_path / "own"  # type: ignore[union-attr]
    if os.geteuid() == 0:
        give_away(tmp_path / "strange", monkeypatch)
        assert cache.of_source(tmp_path / "strange" / "a.py").parent == tmp_path / "own"  # type: ignore[union-attr]


def test_the_folder_that_numba_is_told_is_used_where_it_is_safe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUSIM_CACHE", str(tmp_path / "own"))
    (tmp_path / "numba").mkdir()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "numba"))
    assert cache.of_source(tmp_path / "a.py").parent == tmp_path / "numba"  # type: ignore[union-attr]
    cache._private.cache_clear()
    (tmp_path / "numba").chmod(0o777)
    assert cache.of_source(tmp_path / "a.py") == tmp_path / "__pycache__"


class Planted:
    """Runs when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return Path.touch, (self.file,)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["owner", "mode", "link", "pipe"])
def test_what_another_user_planted_does_not_run(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "cache"
    folder.mkdir()
    assert not found(compiled(folder))
    assert found(compiled(folder))
    (index,) = folder.glob("*.nbi")
    planted = pickle.dumps(Planted(tmp_path / "ran"))
    about = f"{VERSIONS}\0\0{index.name}\0".encode()
    index.write_bytes(hashlib.sha256(about + planted).digest() + planted)  # the digest is right: it is no secret
    if how == "owner":
        give_away(index, monkeypatch)
    elif how == "mode":
        index.chmod(0o666)
    elif how == "link":
        index.rename(tmp_path / "target")
        index.symlink_to(tmp_path / "target")
    else:
        index.unlink()
        os.mkfifo(index)
    assert not found(compiled(folder))
    assert not (tmp_path / "ran").exists()


def _flipped(content: bytes) -> bytes:
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "begun": lambda content: content[:10],
    "flipped": _flipped,
    "other": lambda content: b"\x80\x04K\x01." * 20,
    "longer": lambda content: content + b"x",
}


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".nbi", ".nbc"])
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_entry_is_compiled_again_and_mended(damage: str, suffix: str, tmp_path: Path) -> None:
    assert not found(compiled(tmp_path))
    (file,) = tmp_path.glob(f"*{suffix}")
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert not found(compiled(tmp_path))
    assert found(compiled(tmp_path))


@pytest.mark.slow
def test_an_entry_of_other_source_is_not_taken(tmp_path: Path) -> None:
    """Even where the index is of this source: a kill may leave the two apart, and a copy bring any file."""
    compiled(tmp_path / "a", "old")
    for folder, content in (("a", "old"), ("b", "new")):
        (tmp_path / folder).mkdir(exist_ok=True)
        compiled(tmp_path / folder, content)
    assert found(compiled(tmp_path / "b", "new"))
    (old,), (new,) = (list((tmp_path / folder).glob("*.nbc")) for folder in ("a", "b"))
    assert old.name == new.name
    new.write_bytes(old.read_bytes())
    assert not found(compiled(tmp_path / "b", "new"))


@pytest.mark.slow
def test_what_numba_itself_wrote_is_not_taken(tmp_path: Path) -> None:
    """Its files have the names of ours, and no digest."""
    compiled(tmp_path)
    for file in tmp_path.iterdir():
        file.write_bytes(file.read_bytes()[32:])
    assert not found(compiled(tmp_path))


SMALL = """
import sys
import numba, numba._dynfunc, numba.core.caching, numba.core.codegen, numba.core.compiler
import numpy as np
from numba import types

# numba needs its own parts itself: they are hidden while gpusim looks for them.
owner, name = {owner}, {name!r}
hidden = getattr(owner, name, None)
if hidden is not None:
    delattr(owner, name)
part = sys.modules["numba._dynfunc"]
if owner is numba:
    sys.modules["numba._dynfunc"] = None
from gpusim.base.compiled import kept, kernel, outlined
sys.modules["numba._dynfunc"] = part
if hidden is not None:
    setattr(owner, name, hidden)

@kernel
def inner(x): return x + 1

@outlined
def outer(x): return inner(x) * inner(1)

def door(a):
    for i in range(len(a)):
        a[i] = outer(a[i])
    return 0

made = kept(types.int64(types.int64[::1]), _nrt=False)(door)
a = np.arange(4)
made(a)
print(a.tolist(), sum(made.stats.cache_hits.values()))
"""
ABSENT = {
    "nothing": ("numba", ""),
    "a module": ("numba", "_dynfunc"),
    "a name": ("numba._dynfunc", "make_function"),
    "a class": ("numba.core.codegen", "JITCodeLibrary"),
    "the cache": ("numba.core.serialize", "dumps"),
}


@pytest.mark.slow
@pytest.mark.parametrize("absent", ABSENT)
def test_without_private_parts_of_numba_everything_works_and_that_is_said_once(absent: str, tmp_path: Path) -> None:
    owner, name = ABSENT[absent]
    program = tmp_path / "small.py"
    program.write_text(SMALL.format(owner=owner if name else "None", name=name))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    for hits in (0, 1):
        done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment)
        assert done.stdout.strip() == f"[2, 4, 6, 8] {hits if absent != 'the cache' else 0}", done.stderr
        assert done.stderr.count("gpusim: note: ") == (absent != "nothing"), done.stderr
