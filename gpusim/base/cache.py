"""The user's cache: folders and files that only this user, or root, can have written.

What is kept there is compiled code: a file that another user could plant there would run with this user's rights.  So a folder
that does not belong to the user, or into which others can write, is not used, and without a safe folder nothing is kept.
"""

from __future__ import annotations

import hashlib
import os
import stat
import uuid
from contextlib import suppress
from functools import cache
from pathlib import Path

from gpusim.base.errors import note


def folder(name: str) -> Path | None:
    """The folder of this name in the user's cache ($GPUSIM_CACHE, else ~/.cache/gpusim), mode 0700; None where that is unsafe
    or cannot be, which is said once."""
    own, shared = os.environ.get("GPUSIM_CACHE"), os.environ.get("XDG_CACHE_HOME", "")
    wanted = own or (shared if os.path.isabs(shared) else "~/.cache")
    place = os.path.expanduser(wanted)
    if place.startswith("~"):
        _keeps_nothing(Path(wanted), "there is no such home folder")
        return None
    return _private(Path(place).absolute(), *([] if own else ["gpusim"]), name)


def of_source(file: Path) -> Path | None:
    """Where the compiled code of this source file is kept: in $NUMBA_CACHE_DIR, beside the source, or in the user's cache."""
    file = file.absolute()
    name = f"{file.parent.name}_{hashlib.sha256(str(file.parent).encode()).hexdigest()[:16]}"
    own = os.environ.get("NUMBA_CACHE_DIR")
    if own and (found := _private(Path(own).absolute(), name)):
        return found
    return _beside(file.parent) or folder(name)


def read(path: Path) -> bytes | None:
    """The content of a plain file of this user's or root's that others cannot write; None for anything else."""
    try:
        # Without O_NONBLOCK a pipe in the file's place would never answer.
        at = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError:
        return None
    with os.fdopen(at, "rb") as file:
        found = os.fstat(at)
        if not stat.S_ISREG(found.st_mode) or _of_others(found) or _others_write(found):
            return None
        try:
            return file.read()
        except OSError:
            return None


def write(path: Path, content: bytes) -> None:
    """Whole or not at all, for this user alone; a folder that is full or gone keeps nothing."""
    part = path.with_name(f"{path.name}.{uuid.uuid4().hex}")
    with suppress(OSError):
        try:
            at = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600)
            with os.fdopen(at, "wb") as file:
                file.write(content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)


@cache
def _private(base: Path, *names: str) -> Path | None:
    """BASE/NAMES, which are the user's alone and lie where others cannot put theirs in their place."""
    found = base
    try:
        base.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = base.resolve()  # a link on the way there could point elsewhere after the check
        why = _replaceable(found)
        for name in names if not why else ():
            found = found / name
            found.mkdir(mode=0o700, exist_ok=True)
            why = why or _close(found)
        if not why and not os.access(found, os.W_OK | os.X_OK):
            why = f"{found} cannot be written"
    except OSError as error:
        why = f"{error.filename or base}: {error.strerror or error}"
    if why:
        _keeps_nothing(base.joinpath(*names[:-1]), why)
        return None
    return found


def _keeps_nothing(place: Path, why: str) -> None:
    note(
        f"no compiled code is kept in {place}: {why}; "
        "without a safe place every run compiles again (GPUSIM_CACHE=FOLDER names one)"
    )


@cache
def _beside(package: Path) -> Path | None:
    """The folder's __pycache__, where only the user or root can write into it and above it."""
    found = package / "__pycache__"
    try:
        found.mkdir(exist_ok=True)
        safe = not _others_write(found.lstat()) and not _replaceable(found)
        return found if safe and os.access(found, os.W_OK | os.X_OK) else None
    except OSError:
        return None


def _close(folder: Path) -> str:
    """Make a folder of the user's private; why it is not used, "" when it is."""
    if not hasattr(os, "geteuid"):  # Windows: the user's profile is private as a whole
        return ""
    if folder.is_symlink():
        return f"{folder} is a link"
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        found = os.fstat(at)
        if found.st_uid != os.geteuid():
            return f"{folder} belongs to another user"
        if stat.S_IMODE(found.st_mode) != 0o700:
            os.fchmod(at, 0o700)
    finally:
        os.close(at)
    return ""


def _replaceable(folder: Path) -> str:
    """Why others could put something of theirs in the place of what lies in this folder; "" when they cannot."""
    folder = folder.resolve()
    below = None
    for place in (folder, *folder.parents):
        found = place.lstat()
        if _of_others(found):
            return f"{place} belongs to another user"
        if _others_write(found):
            if not found.st_mode & stat.S_ISVTX:  # with that bit, as in /tmp, only an owner can replace
                return f"others can write into {place}"
            if below is not None and below.st_uid not in (os.geteuid(), 0):  # in a container all strangers have one number
                return f"what lies in {place} may belong to another user"
        below = found
    return ""


def _of_others(found: os.stat_result) -> bool:
    # In a container root may have another number; the owner of / is root everywhere.
    return hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0, os.stat("/").st_uid)


def _others_write(found: os.stat_result) -> bool:
    return hasattr(os, "geteuid") and bool(found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))
