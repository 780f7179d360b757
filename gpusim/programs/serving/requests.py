"""Requests for a service: from a file of arrivals (`llm_requests`), gzipped or not, or drawn (`drawn`); and at another rate."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.policies.schedule.parts.running import request_table
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.drawn import KINDS, SECOND, drawn, is_drawn
from gpusim.programs.serving.kv_cache import ServerRequests
from gpusim.programs.serving.llm_requests import read_requests

FOLDER = "GPUSIM_REQUESTS"
"""The environment variable that names a folder of files of requests."""


def requests_of(word: str, count: int | None = None) -> RequestTable:
    """What the word says: drawn ones, or a file's, of which at most `count`.  Raises GpusimError, TraceError with file:line."""
    made = drawn(word)
    if made is not None:
        return made
    check_word(word)
    path = file_of(word)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            found = read_requests(cast(BinaryIO, file), str(path), wanted=count)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise TraceError(f"is cut short, or no gzip file: {error}", str(path)) from None
    if not len(found.arrival):
        raise TraceError("there is no request", str(path))
    return table(found)


def check_word(word: str) -> None:
    """Raises GpusimError where the word is neither of drawn requests nor a file's."""
    if not is_drawn(word) and not file_of(word).is_file():
        name, opened, _ = word.partition("(")
        if opened and (name := name.strip()) in KINDS:
            raise GpusimError(f"'{word}' has no closing parenthesis", hint=f"write {name}({next(iter(KINDS[name][1]))}=...)")
        if opened and (near := suggest(name, KINDS)):
            raise GpusimError(f"no requests are drawn by '{name}'", hint=near)
        hint = "name a CSV or JSON lines, or draw them: drawn(prompt=1024), chats(users=100), burst(peak=20), azure-code; "
        hint += f"{FOLDER} names a folder of such files"
        raise GpusimError(f"there is no file of requests '{word}'", hint=hint)


def file_of(word: str) -> Path:
    """The file of this name: as a path, or in the folder that $GPUSIM_REQUESTS names."""
    path, folder = Path(word).expanduser(), os.environ.get(FOLDER)
    return path if path.is_file() or not folder else Path(folder) / path


def table(found: ServerRequests) -> RequestTable:
    """What has been read, as a scheduler is told it: times from the first arrival on."""
    arrival = np.array(found.arrival, np.int64)
    hashes = [np.asarray(h, np.int64) for h in found.hashes]
    start = np.zeros(len(arrival) + 1, np.int64)
    if hashes:
        start[1:] = np.cumsum([len(h) for h in hashes])
    prompt = np.array(found.prompt, np.int64)
    return request_table(
        arrival - arrival[0], prompt, np.array(found.output, np.int64), adapter=np.array(found.adapter, np.int64),
        known=prompt if hashes else 0, start=start,
        identity=np.concatenate(hashes) if hashes else None, piece=found.hash_tokens or 1,
    )  # fmt: skip


def at_rate(requests: RequestTable, rate: float, seed: int | None = 0, count: int | None = None) -> RequestTable:
    """The same requests, from the first on again where `count` is more than there are, arriving `rate` a second.

    They come as a Poisson process drawn from `seed`, or evenly without one.  What is there again has prompts of its own: it
    finds nothing of the round before in a cache.
    """
    n = count or len(requests.arrival)
    row = np.arange(n) % len(requests.arrival)
    gaps = np.full(n, 1.0) if seed is None else np.random.default_rng(seed).exponential(1.0, n)
    arrival = np.round(np.cumsum(gaps) / rate * SECOND).astype(np.int64)
    length = np.diff(requests.start)[row]
    start = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    within = np.arange(start[-1]) - np.repeat(start[:-1], length)
    rounds = np.repeat(np.arange(n) // len(requests.arrival), length)
    identity = requests.identity[np.repeat(requests.start[:-1][row], length) + within]
    return request_table(
        arrival - arrival[0], requests.prompt[row], requests.output[row], priority=requests.priority[row],
        adapter=requests.adapter[row],
        known=requests.known[row], start=start, piece=int(requests.piece[0]),
        identity=identity + rounds * (int(requests.identity.max(initial=0)) + 1),
    )  # fmt: skip


def rate_of(requests: RequestTable) -> float:
    """Requests a second; infinite where all come at once."""
    lasts = int(requests.arrival[-1] - requests.arrival[0])
    return (len(requests.arrival) - 1) / lasts * SECOND if lasts else float("inf")
