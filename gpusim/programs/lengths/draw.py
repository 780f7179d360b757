"""Lengths of sequences in tokens, drawn from a distribution or from what services recorded.

    fixed       all `typical`
    uniform     1 to `longest`, equally likely
    lognormal   median `typical`, standard deviation `spread` of the logarithm
    zipf        1 to `longest`, n with a share proportional to n ** -`spread`
    azure-conv, azure-code, mooncake
                quantiles of recorded requests (data/lengths.csv has the sources)

No length is below 1 or above `longest`.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np

from gpusim.base.errors import GpusimError, suggest
from gpusim.trace.trace import I64

TABLE = Path(__file__).parent / "data" / "lengths.csv"
RECORDED = ("azure-conv", "azure-code", "mooncake")
NAMES = ("fixed", "uniform", "lognormal", "zipf", *RECORDED)


def draw(
    rng: np.random.Generator, count: int, name: str, *, typical: int, spread: float, longest: int, part: str = "both"
) -> I64:
    """`count` lengths; part of the recorded ones: "prompt", "output", or "both" together."""
    if name not in NAMES:
        raise GpusimError(f"there are no lengths '{name}'", hint=suggest(name, NAMES) or "known: " + ", ".join(NAMES))
    if name == "fixed":
        found = np.full(count, typical)
    elif name == "uniform":
        found = rng.integers(1, longest + 1, count)
    elif name == "lognormal":
        found = np.rint(typical * np.exp(spread * rng.standard_normal(count))).astype(np.int64)
    elif name == "zipf":
        share = np.cumsum(np.arange(1, longest + 1, dtype=np.float64) ** -spread)
        found = 1 + np.searchsorted(share, rng.random(count) * share[-1], "right")
    else:
        parts = ("prompt", "output") if part == "both" else (part,)
        found = sum((_recorded(f"{name} {p}", rng.random(count)) for p in parts), np.zeros(count, np.int64))
    return np.asarray(np.clip(found, 1, longest))


def _recorded(column: str, share: np.ndarray) -> I64:
    """The quantiles of these shares, between two that were kept on a straight line."""
    table = _table()
    tokens: I64 = np.rint(np.interp(share * 100, table["share"], table[column])).astype(np.int64)
    return tokens


@cache
def _table() -> dict[str, np.ndarray]:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if not line.startswith("#")]
    names = lines[0].split(",")
    return dict(zip(names, np.loadtxt(lines[1:], delimiter=",", unpack=True), strict=True))
