"""Tables for other programs: Parquet, and Arrow's file format (Feather), with the unit and the meaning of each column.

Written by the package pyarrow, an extra.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import numpy as np

from gpusim.base.errors import GpusimError
from gpusim.results.activities import KINDS, ROW, Activities
from gpusim.results.metrics import METRICS
from gpusim.results.result import Result
from gpusim.results.summary import rows

FORMATS = ("parquet", "arrow")
_UNITS = {"start": "ns", "end": "ns", "bytes": "B"}


def of_runs(results: Sequence[Result]) -> dict[str, Any]:
    """The columns of summary.csv, a row per run; what a run has not is null."""
    table = rows(results)
    return {name: [row[name] for row in table] for name in (table[0] if table else ())}


def of_activities(found: Activities) -> dict[str, Any]:
    """The columns of ROW with words for numbers, and the group of each lane; `cause` is a row of the table, from 0."""
    lanes = np.array([lane.name for lane in found.lanes] or [""])
    groups = np.array([lane.group for lane in found.lanes] or [""])
    words = {"kind": np.array(KINDS)[found.rows["kind"]], "name": np.array(found.names or ("",), object)[found.rows["name"]],
             "lane": lanes[found.rows["lane"]]}  # fmt: skip
    columns = {name: words.get(name, found.rows[name]) for name in ROW.names or ()}
    return {**columns, "group": groups[found.rows["lane"]]}


def write(columns: Mapping[str, Any], format: str, file: BinaryIO, about: Mapping[str, Any]) -> str:
    """Write the columns to an open file; `about` stands in the metadata of the schema.  Returns what to say of it."""
    try:
        import pyarrow
        from pyarrow import feather, parquet
    except ImportError:
        raise GpusimError(f"the format '{format}' needs the package pyarrow", hint="pip install 'gpusim[export]'") from None
    arrays = {name: _array(pyarrow, values) for name, values in columns.items()}
    fields = [pyarrow.field(name, array.type, metadata=_said(name)) for name, array in arrays.items()]
    schema = pyarrow.schema(fields, metadata={"gpusim": json.dumps(dict(about), default=str)})
    table = pyarrow.Table.from_arrays(list(arrays.values()), schema=schema)
    if format == "parquet":
        parquet.write_table(table, file, compression="zstd")
    else:
        feather.write_feather(table, file, compression="zstd")
    return f"{table.num_rows:,} rows, {table.num_columns} columns"


def _array(pyarrow: Any, values: Any) -> Any:
    """A column; of words and numbers together the words, of lists and tables their text."""
    if isinstance(values, np.ndarray) and values.dtype != object:
        return pyarrow.array(values)
    kinds = {type(value) for value in values if value is not None}
    if (len(kinds) <= 1 and kinds <= {bool, int, float, str}) or kinds <= {int, float}:
        return pyarrow.array([float(v) if kinds == {int, float} and v is not None else v for v in values])
    return pyarrow.array([v if v is None or isinstance(v, str) else json.dumps(v, default=str) for v in values])


def _said(name: str) -> dict[str, str]:
    """The metadata of a column."""
    if name in METRICS:
        return {"unit": METRICS[name].unit, "meaning": METRICS[name].meaning}
    unit = _UNITS.get(name, "B" if name.endswith("_bytes") else "")
    return {"unit": unit} if unit else {}
