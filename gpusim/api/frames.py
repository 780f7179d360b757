"""Rows as a DataFrame; pandas is an extra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpusim.base.errors import GpusimError

if TYPE_CHECKING:
    from pandas import DataFrame


def frame(columns: Mapping[str, Any] | Sequence[Mapping[str, Any]]) -> DataFrame:
    """A DataFrame of columns (name -> array), or of rows.  GpusimError where pandas is absent."""
    try:
        import pandas
    except ImportError:
        raise GpusimError("a DataFrame needs pandas", hint="pip install 'gpusim[notebook]'") from None
    return pandas.DataFrame(columns)
