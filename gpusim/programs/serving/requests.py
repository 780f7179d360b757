"""Requests for a service: from a file of arrivals, or drawn.

    chat.csv, mooncake.jsonl(.gz)   a file of arrivals (`llm_requests`)
    drawn(prompt=1024, output=128, requests=1000, spread=0.5, prefix=0, prefixes=1, seed=0)
        lengths of a log-normal distribution with these means; `spread` is its standard deviation over the mean.  The first
        `prefix` tokens of a prompt are those of one of `prefixes` texts.
"""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np

from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.policies.schedule.parts.running import request_table
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.serving.kv_cache import ServerRequests
from gpusim.programs.serving.llm_requests import read_requests

SECOND = 1_000_000_000
PIECE = 16
"""Tokens of a piece of a drawn prompt's prefix."""
_DRAWN = re.compile(r"\s*drawn\s*(?:\((.*)\))?\s*")
_NUMBERS = {"prompt": 1024.0, "output": 128.0, "requests": 1000.0, "spread": 0.5, "prefix": 0.0, "prefixes": 1.0, "seed": 0.0}
MOST_TOKENS = 10**7


def requests_of(word: str, count: int | None = None) -> RequestTable:
    """What the word says, at most `count` of them.  Raises GpusimError, TraceError with file:line."""
    if match := _DRAWN.fullmatch(word):
        numbers = _numbers(match[1] or "")
        if count:
            numbers["requests"] = min(numbers["requests"], count)
        return _drawn(numbers)
    path = Path(word)
    if not path.is_file():
        hint = "name a CSV or JSON lines, or drawn(prompt=1024, output=128)"
        raise GpusimError(f"there is no file of requests '{word}'", hint=hint)
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        found = read_requests(cast(BinaryIO, file), str(path), wanted=count)
    if not len(found.arrival):
        raise TraceError("there is no request", str(path))
    return table(found)


def _numbers(text: str) -> dict[str, float]:
    numbers = dict(_NUMBERS)
    for part in filter(None, (p.strip() for p in text.split(","))):
        key, _, value = (x.strip() for x in part.partition("="))
        if key not in numbers:
            raise GpusimError(f"drawn requests have no '{key}'", hint=suggest(key, numbers))
        try:
            numbers[key] = float(value)
        except ValueError:
            raise GpusimError(f"'{value}' is no number for {key}", hint=f"write {key}={_NUMBERS[key]:g}") from None
    least = {"prompt": 1, "output": 1, "requests": 1, "prefixes": 1}
    for key, value in numbers.items():
        if not least.get(key, 0) <= value <= MOST_TOKENS:
            hint = f"from {least.get(key, 0)} to {MOST_TOKENS:,}"
            raise GpusimError(f"drawn requests cannot have {key}={value:g}", hint=hint)
    return numbers


def _drawn(numbers: dict[str, float]) -> RequestTable:
    rng, n = np.random.default_rng(int(numbers["seed"])), int(numbers["requests"])
    variance = np.log1p(numbers["spread"] ** 2)
    lengths = {
        key: np.maximum(np.rint(rng.lognormal(np.log(numbers[key]) - variance / 2, np.sqrt(variance), n)), 1).astype(np.int64)
        for key in ("prompt", "output")
    }
    arrival, pieces = np.zeros(n, np.int64), int(numbers["prefix"]) // PIECE
    if not pieces:
        return request_table(arrival, **lengths)
    text = rng.integers(0, int(numbers["prefixes"]), n)
    shared = np.minimum(pieces, lengths["prompt"] // PIECE)
    start = np.concatenate([[0], np.cumsum(shared)])
    within = np.arange(start[-1]) - np.repeat(start[:-1], shared)
    identity = np.repeat(text, shared) * pieces + within
    return request_table(arrival, **lengths, known=shared * PIECE, start=start, identity=identity, piece=PIECE)


def table(found: ServerRequests) -> RequestTable:
    """What has been read, as a scheduler is told it: times from the first arrival on."""
    arrival = np.array(found.arrival, np.int64)
    hashes = [np.asarray(h, np.int64) for h in found.hashes]
    start = np.zeros(len(arrival) + 1, np.int64)
    if hashes:
        start[1:] = np.cumsum([len(h) for h in hashes])
    prompt = np.array(found.prompt, np.int64)
    return request_table(
        arrival - arrival[0], prompt, np.array(found.output, np.int64), known=prompt if hashes else 0, start=start,
        identity=np.concatenate(hashes) if hashes else None, piece=found.hash_tokens or 1,
    )  # fmt: skip


def at_rate(requests: RequestTable, rate: float, seed: int | None = 0, count: int | None = None) -> RequestTable:
    """The same requests, from the first on again where `count` is more than there are, arriving `rate` a second.

    They come as a Poisson process drawn from `seed`, or evenly without one.
    """
    n = count or len(requests.arrival)
    row = np.arange(n) % len(requests.arrival)
    gaps = np.full(n, 1.0) if seed is None else np.random.default_rng(seed).exponential(1.0, n)
    arrival = np.round(np.cumsum(gaps) / rate * SECOND).astype(np.int64)
    length = np.diff(requests.start)[row]
    start = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
    within = np.arange(start[-1]) - np.repeat(start[:-1], length)
    return request_table(
        arrival - arrival[0], requests.prompt[row], requests.output[row], priority=requests.priority[row],
        known=requests.known[row], start=start, piece=int(requests.piece[0]),
        identity=requests.identity[np.repeat(requests.start[:-1][row], length) + within],
    )  # fmt: skip


def rate_of(requests: RequestTable) -> float:
    """Requests a second; infinite where all come at once."""
    lasts = int(requests.arrival[-1] - requests.arrival[0])
    return (len(requests.arrival) - 1) / lasts * SECOND if lasts else float("inf")
