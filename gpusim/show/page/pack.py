"""Columns as text of a page: differences, planes of bytes, compressed; `assets/base.js` is the inverse.

    text    base64 of zlib of: length of the header (4 bytes, little-endian), header, columns one after the other
    header  JSON: what the caller says, rows, and of each column its name, how it is coded and how many planes it has
    column  integers: the lowest byte of all rows, then the next byte, ...; the highest carries the sign ("i"), or of
            differences to the row before ("d"); floats: the eight bytes of all rows in the same way ("f")

Neighbours of one plane are alike, so that what is compressed shrinks to a few bytes a row, and it is read in one pass.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

LEVEL = 6  # of zlib: 9 takes four times as long for a fiftieth


def packed(about: Mapping[str, Any], columns: Mapping[str, npt.NDArray[Any]], rising: Collection[str] = ()) -> str:
    """The text of these columns, which may differ in length.

    about   what the header says beside them
    rising  columns whose differences are smaller than their values
    """
    coded = [(name, *_planes(np.asarray(values), name in rising)) for name, values in columns.items()]
    told = [[name, code, planes.shape[0], planes.shape[1]] for name, code, planes in coded]
    header = json.dumps({**about, "columns": told}, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    parts = [len(header).to_bytes(4, "little"), header, *(planes.tobytes() for _, _, planes in coded)]
    return text(b"".join(parts))


def text(content: bytes) -> str:
    """Compressed, and as characters that HTML may hold anywhere."""
    return base64.b64encode(zlib.compress(content, LEVEL)).decode()


def _planes(values: npt.NDArray[Any], rising: bool) -> tuple[str, npt.NDArray[np.uint8]]:
    """How a column is coded, and its planes (bytes of a value, rows)."""
    if values.dtype.kind == "f":
        return "f", np.ascontiguousarray(values.astype("<f8")).view(np.uint8).reshape(-1, 8).T
    whole = values.astype("<i8")
    if rising:
        whole = np.diff(whole, prepend=np.int64(0))
    low, high = (int(whole.min()), int(whole.max())) if len(whole) else (0, 0)
    count = (max(high, -low - 1).bit_length() + 8) // 8  # one bit more than the largest needs, for the sign
    return "d" if rising else "i", np.ascontiguousarray(whole).view(np.uint8).reshape(-1, 8)[:, :count].T
