"""The measuring code as one file that plain python3 runs, for machines on which gpusim is not installed."""

from __future__ import annotations

import os
import stat
import zipfile
from pathlib import Path

MAIN = """import sys

from gpusim.calibrate.measure.command import main

sys.exit(main())
"""
PARTS = (
    "__init__.py", "base/*.py", "base/compiled/*.py", "calibrate/__init__.py", "calibrate/rows.py", "calibrate/measure/*.py",
    # and for training steps: the models, what records them, what writes a trace
    "calibrate/steps/*.py", "programs/*.py", "programs/zoo/*.py", "programs/record/*.py", "trace/*.py", "trace/importers/*.py",
    "policies/__init__.py", "policies/entry.py", "policies/facts.py", "policies/registry.py", "policies/decorators.py",
    "policies/builtin.py",
)  # fmt: skip
DATE = (1980, 1, 1, 0, 0, 0)
"""Of everything inside, so that equal sources give equal files."""


def bundle(out: Path) -> int:
    """Write the zip-app; returns its bytes."""
    root = Path(__file__).parents[2]
    part = out.with_name(out.name + ".part")
    with open(part, "wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w") as archive:
            for pattern in PARTS:
                for path in sorted(root.glob(pattern)):
                    _add(archive, f"gpusim/{path.relative_to(root).as_posix()}", path.read_bytes())
            _add(archive, "__main__.py", MAIN)
    part.chmod(part.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    os.replace(part, out)
    return out.stat().st_size


def _add(archive: zipfile.ZipFile, name: str, data: bytes | str) -> None:
    archive.writestr(zipfile.ZipInfo(name, DATE), data, zipfile.ZIP_DEFLATED)
