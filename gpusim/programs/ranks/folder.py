"""A folder of recordings, a file for each rank, as one program."""

from __future__ import annotations

import inspect
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

from gpusim.base.errors import TraceError, suggest
from gpusim.programs.ranks.recorded import RankPrograms, joined
from gpusim.programs.recordings import FORMATS, reading, recognised
from gpusim.trace.importers.chakra import groups_of
from gpusim.trace.importers.rank_recording import RankRecording
from gpusim.trace.importers.recording import Progress, read_bytes

LOADS = ("gpusim.trace.importers",)
OF_RANKS = ("kineto", "execution-trace", "chakra", "pytorch")
"""Formats of which a file is one rank's."""
_NAMED = re.compile(r"(?:rank|worker|proc|gpu|node)[-_.]?(\d+)", re.IGNORECASE)
_HINT = "name the files by rank: rank0.json, rank1.json"


def import_ranks(
    folder: Path, format: str | None = None, *, name: str | None = None, kineto: Path | str | None = None,
    progress: Progress | None = None, **options: Any,
) -> RankPrograms:  # fmt: skip
    """The program of many ranks whose recordings are in this folder; others of its files are passed over.

    format   of FORMATS, where it cannot be told by the content
    kineto   of execution traces, the folder with the Kineto traces of the same run; by default those beside them
    options  of the format's importer

    Raises TraceError: no recordings, two of a rank or none of it known, calls that do not match, ranks that wait for ever.
    """
    found = {path: format or _format_of(path) for path in sorted(folder.iterdir()) if path.is_file() and path.name[0] != "."}
    chosen = _chosen(folder, Counter(found[path] for path in found if found[path] in OF_RANKS))
    files = [path for path in found if found[path] == chosen]
    beside = [path for path in found if found[path] == "kineto"] if chosen == "execution-trace" else []
    if kineto is not None:
        if chosen != "execution-trace":
            raise TraceError("--with is for execution traces", str(folder), "leave it out")
        beside = [path for path in sorted(Path(kineto).iterdir()) if path.is_file() and _format_of(path) == "kineto"]
    profiles = dict(zip(_by_name(beside), beside, strict=True)) if beside else {}
    recordings: dict[int, RankRecording] = {}
    groups = _groups([path for path, of in found.items() if not of]) if chosen == "chakra" else {}
    for rank, path in zip(_by_name(files), files, strict=True):
        more = {**options, **({"kineto": profiles[rank]} if rank in profiles else {})}
        recording = _read(path, chosen, progress, more)
        rank = recording.rank if recording.rank >= 0 else rank
        if rank < 0:
            raise TraceError("neither the recording nor its name says which rank it is of", str(path), _HINT)
        if rank in recordings:
            raise TraceError(f"rank {rank} has two recordings: {Path(recordings[rank].path).name} too", str(path), _HINT)
        named = replace(recording.trace, name=f"rank {rank}")
        recordings[rank] = replace(recording, trace=named, groups={**groups, **recording.groups})
    return joined(recordings, name or folder.resolve().name)


def _format_of(path: Path) -> str:
    """The format that a file's content tells, "" for none."""
    try:
        return recognised(path)
    except TraceError:
        return ""


def _chosen(folder: Path, counts: Mapping[str, int]) -> str:
    """The format of the folder's recordings; execution traces may have the Kineto traces of their run beside them."""
    formats = sorted(counts)
    if formats == ["execution-trace", "kineto"]:
        return "execution-trace"
    if not formats:
        raise TraceError(
            "this folder has no recordings of ranks", str(folder), f"it takes a file for each rank, of: {', '.join(OF_RANKS)}"
        )
    if len(formats) > 1:
        raise TraceError(f"this folder has recordings of several formats: {', '.join(formats)}", str(folder), "keep one")
    return formats[0]


def _by_name(files: Sequence[Path]) -> list[int]:
    """The rank that each file's name says, -1 for none: the number behind "rank" or the like, or that tells them apart."""
    named = [_NAMED.search(path.name) for path in files]
    if all(named):
        return [int(match[1]) for match in named if match]
    numbers = [[int(n) for n in re.findall(r"\d+", path.name)] for path in files]
    columns = [list(each) for each in zip(*numbers, strict=False)] if len({len(each) for each in numbers}) == 1 else []
    apart = [column for column in columns if len(set(column)) == len(column)]
    return min(apart, key=max) if apart else [-1] * len(files)


def _groups(files: Sequence[Path]) -> dict[str, tuple[int, ...]]:
    """Communicators that a JSON file beside Chakra graphs lists, as ASTRA-sim's --comm-group-configuration."""
    found: dict[str, tuple[int, ...]] = {}
    for path in files:
        if path.suffix == ".json":
            try:
                found |= groups_of(json.loads(read_bytes(path)))
            except ValueError:
                continue
    return found


def _read(path: Path, format: str, progress: Progress | None, options: Mapping[str, Any]) -> RankRecording:
    """The recording in a file.  Raises TraceError, also for an option that the importer lacks."""
    module = import_module(f"gpusim.{FORMATS[format].module}")
    reader = getattr(module, "read_rank", None)
    read = reader or module.read
    known = [name for name in inspect.signature(read).parameters if name not in ("data", "path", "name")]
    if unknown := next((option for option in options if option not in known), ""):
        raise TraceError(f"the importer '{format}' has no option '{unknown}'", str(path), suggest(unknown, known))
    made = reading(path, format, read, progress, options)
    return made if isinstance(made, RankRecording) else RankRecording(str(path), made)
