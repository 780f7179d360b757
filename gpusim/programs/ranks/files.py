"""The file of a program of many ranks: a zip of trace files, equal ones once, and `ranks.json`, which says whose they are."""

from __future__ import annotations

import json
import os
import zipfile
from pathlib import Path
from typing import Any

from gpusim.base.errors import TraceError
from gpusim.programs.ranks.recorded import RankPrograms
from gpusim.trace.files import RANKS, trace_bytes, trace_of
from gpusim.trace.importers.rank_recording import MOST_RANKS

FORMAT, VERSION = "gpusim-ranks", 1
_DAMAGED = "this is no file of programs of many ranks, or it is damaged"
_HINT = "`gpusim import FOLDER` writes it from the recordings of all ranks"


def save_ranks(programs: RankPrograms, path: str | os.PathLike[str]) -> None:
    """Write the file; it appears whole or not at all, and is equal for equal programs.  Raises TraceError."""
    path = Path(path)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    number: dict[str, int] = {}
    for program in programs.programs:
        number.setdefault(program.content_hash, len(number))
    header = {
        "format": FORMAT, "version": VERSION, "name": programs.name, "meta": programs.meta,
        "ranks": [number[program.content_hash] for program in programs.programs],
    }  # fmt: skip
    once = {number[program.content_hash]: program for program in programs.programs}
    try:
        try:
            with zipfile.ZipFile(part, "w", zipfile.ZIP_STORED) as file:
                file.writestr(zipfile.ZipInfo(RANKS), json.dumps(header, sort_keys=True))
                for i, program in sorted(once.items()):
                    file.writestr(zipfile.ZipInfo(f"{i}.npz"), trace_bytes(program))
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise TraceError(f"cannot write the programs: {error.strerror or error}", str(path)) from None


def load_ranks(path: str | os.PathLike[str]) -> RankPrograms:
    """Read the file, and check that calls of the ranks match.  Raises TraceError."""
    try:
        with zipfile.ZipFile(path) as file:
            header = _header(file, str(path))
            read = {i: trace_of(file.read(f"{i}.npz"), str(path)) for i in sorted(set(header["ranks"]))}
    except FileNotFoundError:
        raise TraceError("there is no such file", str(path)) from None
    except OSError as error:
        raise TraceError(f"cannot read the programs: {error.strerror or error}", str(path)) from None
    except (zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError):
        raise TraceError(_DAMAGED, str(path), _HINT) from None
    programs = RankPrograms(header["name"], tuple(read[i] for i in header["ranks"]), header["meta"])
    programs.check()
    return programs


def _header(file: zipfile.ZipFile, path: str) -> dict[str, Any]:
    try:
        header = json.loads(file.read(RANKS))
        ranks, name, meta = header["ranks"], header["name"], header["meta"]
        ours = header["format"] == FORMAT and isinstance(name, str) and isinstance(meta, dict)
        if not ours or not all(type(i) is int for i in ranks) or not 0 < len(ranks) <= MOST_RANKS:
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise TraceError(_DAMAGED, path, _HINT) from None
    if header.get("version") != VERSION:
        raise TraceError(f"the file has format version {header.get('version')}, this program reads {VERSION}", path)
    return dict(header)
