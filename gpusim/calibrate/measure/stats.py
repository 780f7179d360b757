"""Repeats become one number with its spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Summary:
    """The repeats of one point."""

    median: float
    p10: float
    p90: float
    p99: float
    count: int
    outliers: int
    """Repeats farther from the median than 5 scaled median deviations (and than 1 % of it)."""

    @property
    def stat(self) -> str:
        return f"median of {self.count}"

    @property
    def spread(self) -> str:
        """As it stands in a row's note."""
        return f"p10={self.p10:.6g};p90={self.p90:.6g};p99={self.p99:.6g};outliers={self.outliers}"


def summary(values: Sequence[float]) -> Summary:
    """Of at least one value."""
    data = np.asarray(values, dtype=float)
    if not len(data) or not np.isfinite(data).all():
        raise ValueError("a summary needs finite values")
    middle = float(np.median(data))
    away = np.abs(data - middle)
    # 1.4826 makes the median deviation of a normal distribution its standard deviation.
    limit = max(5 * 1.4826 * float(np.median(away)), 0.01 * abs(middle))
    p10, p90, p99 = (float(p) for p in np.percentile(data, [10, 90, 99]))
    return Summary(middle, p10, p90, p99, len(data), int((away > limit).sum()))
