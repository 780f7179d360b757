"""The driver's own policies and their variants as `gpusim policies` lists them: read, not imported."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from gpusim.policies.entry import Entry, read
from gpusim.policies.units import CHUNKS, PAGES

UNITS = {"evict": CHUNKS, "prefetch": PAGES}


def entries() -> list[tuple[Entry, tuple[str, ...]]]:
    """Each with what it decides about."""
    found: list[tuple[Entry, tuple[str, ...]]] = []
    for kind, unit in UNITS.items():
        for file in sorted((Path(__file__).parent / kind).glob("[!_]*.py")):
            text = file.read_text("utf-8")
            entry = replace(read(file, kind), knows="future" if "\nFORESEES = True" in text else "past")
            found.append((entry, ("big pages",) if "\nPIECES = True" in text else (unit,)))
    return found
