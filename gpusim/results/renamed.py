"""Names that results had before, and what they are called now: folders of earlier versions are read with them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# Columns of timeline.npz, which had no unit.
TIMELINE = {name: f"{name}_bytes" for name in ("allocated", "reserved", "requested", "host")}
# Metrics and bounds of result.json.
METRICS: dict[str, str] = {}


def renamed(table: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """The table under the names of today, in its order."""
    return {names.get(name, name): value for name, value in table.items()}
