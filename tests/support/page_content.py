"""What a page holds, unpacked."""

from __future__ import annotations

import base64
import json
import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np


def blobs(path: Path) -> dict[str, bytes]:
    """The unpacked data of a page, by name."""
    found = re.findall(r'id="blob-([^"]+)">([^<]*)</script>', path.read_text())
    return {name: zlib.decompress(base64.b64decode(text)) for name, text in found}


def columns(raw: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and columns of what was packed: the description in pack.py read the other way round."""
    length = int.from_bytes(raw[:4], "little")
    header, at, found = json.loads(raw[4 : 4 + length]), 4 + length, {}
    for name, code, planes, rows in header["columns"]:
        whole = np.frombuffer(raw, np.uint8, planes * rows, at).reshape(planes, rows)
        at += planes * rows
        if code == "f":
            found[name] = np.ascontiguousarray(whole.T).view("<f8").ravel()
            continue
        values = sum((whole[p].astype(np.int64) << (8 * p) for p in range(planes - 1)), np.zeros(rows, np.int64))
        values = values + (whole[-1].view(np.int8).astype(np.int64) << (8 * (planes - 1)))
        found[name] = np.cumsum(values) if code == "d" else values
    return header, found


def told(path: Path) -> dict[str, Any]:
    return json.loads(blobs(path)["content"])
