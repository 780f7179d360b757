"""Jobs that are drawn.

    poisson(jobs=1000, rate=20, seed=0)
        so many an hour, at any time alike
    diurnal(jobs=1000, rate=20, swing=0.8, peak=14, seed=0)
        `rate` is the mean; it is (1 + swing) times that at `peak` o'clock, and (1 - swing) times twelve hours later
    bursts(jobs=1000, rate=20, peak=200, every=24, lasts=1, seed=0)
        `rate`, and `peak` for about `lasts` hours, about every `every` hours (both exponential)
    like(file=trace.csv, jobs=1000, window=600, block=6, rate=0, seed=0)
        as in a trace: pieces of `block` windows of `window` s are drawn from it, with as many arrivals in each window as there;
        `rate` above 0: an hour, with the times drawn together or apart
All: GPUs 1, 2, 4, 8 with probabilities 0.7, 0.1, 0.15, 0.05; 10^U(1.5, 3) minutes in four of five cases and
10^U(3, 4) in the fifth: what Gavel's generator takes for Microsoft's Philly cluster (Narayanan et al., OSDI 2020).  `hours=H`:
exponential with this mean instead; `gpus=N`: each wants N; `least=0.5`: each goes on with half of its GPUs where it cannot have
all; `programs=a|b`: each is one of these, and its time is that alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.policies.clusters import F64, ArrivingJob
from gpusim.programs.arrivals.gavel import read_trace
from gpusim.programs.arrivals.own import read_times

HOUR = 3600.0
MOST = 10**6
Numbers = Mapping[str, float]
_SIZES, _CHANCES = (1, 2, 4, 8), (0.7, 0.1, 0.15, 0.05)
_EACH = {"jobs": 1000.0, "rate": 20.0, "seed": 0.0, "hours": 0.0, "gpus": 0.0, "least": 0.0}
_NUMBERS: dict[str, dict[str, float]] = {
    "poisson": {},
    "diurnal": {"swing": 0.8, "peak": 14.0},
    "bursts": {"peak": 200.0, "every": 24.0, "lasts": 1.0},
    "like": {"window": 600.0, "block": 6.0, "rate": 0.0},
}


def drawn(word: str, base: Path | None = None) -> list[ArrivingJob] | None:
    """What the word says, files from the folder `base`; None where it is no such word.  Raises GpusimError."""
    if word.partition("(")[0].strip() not in _NUMBERS:
        return None
    name, texts = split(word, "a way to draw jobs")
    file = texts.pop("file", "").strip("'\"")
    programs = [each.strip() for each in texts.pop("programs", "").strip("'\"").split("|") if each.strip()]
    numbers = _EACH | _NUMBERS[name]
    for key, text in texts.items():
        if key not in numbers:
            raise GpusimError(f"{name} has no '{key}'", hint=suggest(key, numbers))
        try:
            numbers[key] = float(text)
        except ValueError:
            raise GpusimError(f"'{text}' is no number for {key}", hint=f"write {key}={numbers[key]:g}") from None
    _check(name, numbers)
    draws = np.random.default_rng(int(numbers["seed"]))
    if name == "like":
        if not file:
            raise GpusimError("like needs a trace", hint="like(file=trace.csv, jobs=1000)")
        at = _like(_times((base or Path()) / file), numbers, draws)
    else:
        at = _TIMES[name](numbers, draws)
    return _jobs(at, numbers, draws, programs)


def _times(path: Path) -> list[float]:
    if not path.is_file():
        raise GpusimError(f"there is no trace '{path}'")
    return [job.arrival for job in read_trace(path)] if path.suffix == ".trace" else read_times(path)


def _check(name: str, numbers: Numbers) -> None:
    if not 1 <= numbers["jobs"] <= MOST or numbers["jobs"] % 1:
        raise GpusimError(f"{numbers['jobs']:g} jobs cannot be drawn", hint=f"a whole number from 1 to {MOST:,}")
    for key in ("rate", "every", "lasts", "window", "block"):
        if not numbers.get(key, 1.0) > 0 and not (name == "like" and key == "rate" and numbers[key] == 0):
            raise GpusimError(f"{name} cannot have {key}={numbers[key]:g}", hint="a number above 0")
    if not 0 <= numbers.get("swing", 0.0) <= 1 or min(numbers["hours"], numbers["gpus"], numbers["seed"]) < 0:
        raise GpusimError(f"{name} has a number that cannot be", hint="swing from 0 to 1, nothing negative")
    if not 0 <= numbers["least"] <= 1:
        raise GpusimError(f"least={numbers['least']:g} is no share of a job's GPUs", hint="least=0.5")


def _poisson(numbers: Numbers, draws: np.random.Generator) -> F64:
    return np.cumsum(draws.exponential(HOUR / numbers["rate"], int(numbers["jobs"])))


def _diurnal(numbers: Numbers, draws: np.random.Generator) -> F64:
    """Thinned: those of a faster process stay with the share of the hour."""
    rate, swing, at = numbers["rate"], numbers["swing"], 0.0
    found: list[float] = []
    while len(found) < numbers["jobs"]:
        at += draws.exponential(HOUR / (rate * (1.0 + swing)))
        now = rate * (1.0 + swing * math.cos(2.0 * math.pi * (at / HOUR - numbers["peak"]) / 24.0))
        if draws.random() * rate * (1.0 + swing) < now:
            found.append(at)
    return np.array(found)


def _bursts(numbers: Numbers, draws: np.random.Generator) -> F64:
    """Two states, each left after an exponential time."""
    found: list[float] = []
    start, high = 0.0, False
    while len(found) < numbers["jobs"]:
        end = start + draws.exponential(HOUR * numbers["lasts" if high else "every"])
        many = draws.poisson((end - start) / HOUR * numbers["peak" if high else "rate"])
        found += sorted(draws.uniform(start, end, many).tolist())
        start, high = end, not high
    return np.array(found[: int(numbers["jobs"])])


def _like(times: list[float], numbers: Numbers, draws: np.random.Generator) -> F64:
    """Arrivals of pieces of the trace, window by window, each at any time of its window."""
    if len(times) < 2:
        raise GpusimError("a trace of less than two arrivals shows no pattern")
    window, block = numbers["window"], int(numbers["block"])
    counts = np.bincount((np.array(times) // window).astype(np.int64))
    found: list[float] = []
    start = 0.0
    while len(found) < numbers["jobs"]:
        first = int(draws.integers(max(len(counts) - block, 0) + 1))
        for many in counts[first : first + block]:
            found += sorted(draws.uniform(start, start + window, int(many)).tolist())
            start += window
    at = np.array(found[: int(numbers["jobs"])])
    return at * (len(at) / at[-1] * HOUR / numbers["rate"]) if numbers["rate"] else at


def _jobs(at: F64, numbers: Numbers, draws: np.random.Generator, programs: list[str]) -> list[ArrivingJob]:
    many = len(at)
    sizes = draws.choice(_SIZES, many, p=_CHANCES)
    if numbers["gpus"]:
        sizes = np.full(many, int(numbers["gpus"]))
    long = draws.random(many) >= 0.8
    minutes = 10.0 ** np.where(long, draws.uniform(3.0, 4.0, many), draws.uniform(1.5, 3.0, many))
    seconds = draws.exponential(numbers["hours"] * HOUR, many) if numbers["hours"] else 60.0 * minutes
    rows = zip(at.tolist(), sizes.tolist(), seconds.tolist(), strict=True)
    models = [programs[i] for i in draws.integers(len(programs), size=many)] if programs else [""] * many
    return [
        ArrivingJob(
            name=f"job {i}", arrival=t, gpus=n, work=s, model=models[i], timed=bool(programs),
            least=math.ceil(numbers["least"] * n),
        )
        for i, (t, n, s) in enumerate(rows)
    ]


_TIMES: dict[str, Callable[[Numbers, np.random.Generator], F64]] = {"poisson": _poisson, "diurnal": _diurnal, "bursts": _bursts}
