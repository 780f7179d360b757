"""Requests that are drawn: lengths of log-normal distributions, prefixes in common, conversations, bursts.

    drawn(prompt=1024, output=128, requests=1000, spread=0.5, prefix=0, prefixes=1, seed=0)
        all at once; `spread` is the standard deviation of a length over its mean.  The first `prefix` tokens of a prompt are
        those of one of `prefixes` texts
    chats(users=100, turns=6, prompt=200, output=150, think=60, seconds=600, spread=0.5, prefix=0, seed=0)
        each user begins at a time within `seconds` and writes again `think` seconds after the turn before was sent, on average;
        a turn's prompt is all that was said before and `prompt` tokens more, so that the cache may have the rest
    burst(rate=2, peak=20, begins=60, lasts=30, seconds=180, prompt=512, output=64, spread=0.5, prefix=0, prefixes=1, seed=0)
        a Poisson process of `rate` a second, and of `peak` for `lasts` seconds
    azure-code(requests=1000, seed=0), azure-conv, mooncake
        all at once; lengths by the quantiles of recorded requests (`programs.lengths`), prompt and output apart from each other
`adapters=100, skew=1` of drawn and burst: each request wants one of so many LoRA adapters, the k-th with a probability in
proportion to 1 / k**skew; 0: none does.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError, suggest
from gpusim.policies.schedule.parts.running import request_table
from gpusim.policies.schedule.parts.tables import RequestTable
from gpusim.programs.lengths import draw as lengths

SECOND = 1_000_000_000
PIECE = 16
"""Tokens of a piece of a prompt that others may have in common with it."""
MOST = 10**7
I64 = npt.NDArray[np.int64]
Numbers = dict[str, float]

_CALL = re.compile(r"\s*([\w-]+)\s*(?:\((.*)\))?\s*")
_LEAST = dict.fromkeys(("requests", "prompt", "output", "prefixes", "users", "turns", "seconds"), 1.0)
_WHOLE = ("requests", "users", "turns", "prefix", "prefixes", "adapters", "seed")
_LEAST |= {"rate": 0.001, "peak": 0.001}


def is_drawn(word: str) -> bool:
    """The word begins as one of drawn requests does."""
    match = _CALL.fullmatch(word)
    return match is not None and match[1] in KINDS


def drawn(word: str) -> RequestTable | None:
    """What the word says; None where it is no such word.  Raises GpusimError."""
    match = _CALL.fullmatch(word)
    if match is None or match[1] not in KINDS:
        return None
    draw, known = KINDS[match[1]]
    numbers = dict(known)
    for part in filter(None, (p.strip() for p in (match[2] or "").split(","))):
        key, _, value = (x.strip() for x in part.partition("="))
        if key not in numbers:
            raise GpusimError(f"{match[1]} requests have no '{key}'", hint=suggest(key, numbers))
        try:
            numbers[key] = float(value)
        except ValueError:
            raise GpusimError(f"'{value}' is no number for {key}", hint=f"write {key}={known[key]:g}") from None
    for key, number in numbers.items():
        if key in _WHOLE and number % 1:
            raise GpusimError(f"{match[1]} requests cannot have {key}={number:g}", hint="a whole number")
        least = _LEAST.get(key, 0.0)
        if not least <= number <= MOST:
            raise GpusimError(f"{match[1]} requests cannot have {key}={number:g}", hint=f"from {least:g} to {MOST:,}")
    made = draw(numbers, np.random.default_rng(int(numbers["seed"])))
    return _with_adapters(made, numbers) if numbers.get("adapters") else made


def _with_adapters(made: RequestTable, numbers: Numbers) -> RequestTable:
    """Each request wants one of `adapters`, the k-th with a probability in proportion to 1 / k**skew."""
    weight = np.arange(1.0, numbers["adapters"] + 1) ** -numbers["skew"]
    rng = np.random.default_rng([int(numbers["seed"]), 1])  # lengths and times are as without adapters
    which = 1 + rng.choice(len(weight), made.arrival.size, p=weight / weight.sum())
    return request_table(
        made.arrival, made.prompt, made.output, adapter=which, known=made.known, start=made.start,
        identity=made.identity if made.start[-1] else None, piece=int(made.piece[0]),
    )  # fmt: skip


def _lengths(rng: np.random.Generator, mean: float, spread: float, count: int) -> I64:
    variance = np.log1p(spread**2)
    found = rng.lognormal(np.log(mean) - variance / 2, np.sqrt(variance), count)
    return np.maximum(np.rint(found), 1).astype(np.int64)


def _apart(numbers: Numbers, rng: np.random.Generator) -> RequestTable:
    n = int(numbers["requests"])
    prompt, output = (_lengths(rng, numbers[key], numbers["spread"], n) for key in ("prompt", "output"))
    return _with_texts(np.zeros(n, np.int64), prompt, output, numbers, rng)


def _with_texts(arrival: I64, prompt: I64, output: I64, numbers: Numbers, rng: np.random.Generator) -> RequestTable:
    """Each prompt begins with one of `prefixes` texts of `prefix` tokens."""
    pieces = int(numbers["prefix"]) // PIECE
    text = rng.integers(0, int(numbers["prefixes"]), len(arrival))
    shared = np.minimum(pieces, prompt // PIECE)
    start = np.concatenate([[0], np.cumsum(shared)])
    within = np.arange(start[-1]) - np.repeat(start[:-1], shared)
    identity = np.repeat(text, shared) * max(pieces, 1) + within
    return request_table(arrival, prompt, output, known=shared * PIECE, start=start, identity=identity, piece=PIECE)


def _chats(numbers: Numbers, rng: np.random.Generator) -> RequestTable:
    users, turns = int(numbers["users"]), int(numbers["turns"])
    lengths = [_lengths(rng, numbers[key], numbers["spread"], users * turns) for key in ("prompt", "output")]
    new, output = (each.reshape(users, turns) for each in lengths)
    said = np.cumsum(new + output, axis=1)
    prompt = said - output + int(numbers["prefix"])
    begins = rng.uniform(0, numbers["seconds"], users)[:, None]
    pauses = rng.exponential(numbers["think"], (users, turns))
    pauses[:, 0] = 0.0
    arrival = np.round((begins + np.cumsum(pauses, axis=1)) * SECOND).astype(np.int64).ravel()
    order = np.argsort(arrival, kind="stable")
    common, own = int(numbers["prefix"]) // PIECE, int(said.max() + numbers["prefix"]) // PIECE + 1
    pieces = prompt.ravel() // PIECE
    start = np.concatenate([[0], np.cumsum(pieces[order])])
    within = np.arange(start[-1]) - np.repeat(start[:-1], pieces[order])
    user = np.repeat(np.repeat(np.arange(users), turns)[order], pieces[order])
    identity = np.where(within < common, within, common + user * own + within)
    return request_table(
        arrival[order] - arrival[order][0], prompt.ravel()[order], output.ravel()[order], known=pieces[order] * PIECE,
        start=start, identity=identity, piece=PIECE,
    )  # fmt: skip


def _recorded(name: str) -> Callable[[Numbers, np.random.Generator], RequestTable]:
    """Requests with the lengths of a recorded service."""

    def draw(numbers: Numbers, rng: np.random.Generator) -> RequestTable:
        n = int(numbers["requests"])
        prompt, output = (
            lengths.draw(rng, n, name, typical=0, spread=0.0, longest=MOST, part=part) for part in ("prompt", "output")
        )
        return request_table(np.zeros(n, np.int64), prompt, output)

    return draw


def _burst(numbers: Numbers, rng: np.random.Generator) -> RequestTable:
    parts = []
    for rate, first, end in (
        (numbers["rate"], 0.0, numbers["begins"]),
        (numbers["peak"], numbers["begins"], numbers["begins"] + numbers["lasts"]),
        (numbers["rate"], numbers["begins"] + numbers["lasts"], numbers["seconds"]),
    ):  # fmt: skip
        if end > first:
            parts.append(np.sort(rng.uniform(first, end, rng.poisson(rate * (end - first)))))
    arrival = np.round(np.concatenate(parts) * SECOND).astype(np.int64)
    if not len(arrival):
        raise GpusimError("burst requests are so few that none is drawn", hint="raise rate or seconds")
    prompt, output = (_lengths(rng, numbers[key], numbers["spread"], len(arrival)) for key in ("prompt", "output"))
    return _with_texts(arrival, prompt, output, numbers, rng) if numbers["prefix"] else request_table(arrival, prompt, output)


KINDS: dict[str, tuple[Callable[[Numbers, np.random.Generator], RequestTable], Numbers]] = {
    "drawn": (_apart, {"prompt": 1024, "output": 128, "requests": 1000, "spread": 0.5, "prefix": 0, "prefixes": 1, "seed": 0,
                       "adapters": 0, "skew": 1}),
    "chats": (_chats, {"users": 100, "turns": 6, "prompt": 200, "output": 150, "think": 60, "seconds": 600, "spread": 0.5,
                       "prefix": 0, "seed": 0}),
    "burst": (_burst, {"rate": 2, "peak": 20, "begins": 60, "lasts": 30, "seconds": 180, "prompt": 512, "output": 64,
                       "spread": 0.5, "prefix": 0, "prefixes": 1, "seed": 0, "adapters": 0, "skew": 1}),
    **{name: (_recorded(name), {"requests": 1000, "seed": 0, "adapters": 0, "skew": 1}) for name in lengths.RECORDED},
}  # fmt: skip
