"""The command that makes the figures of the docs, as a module."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]


def tool() -> ModuleType:
    """docs/figures.py, which is no part of the package."""
    if "docs_figures" not in sys.modules:
        spec = importlib.util.spec_from_file_location("docs_figures", ROOT / "docs" / "figures.py")
        assert spec and spec.loader
        sys.modules["docs_figures"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules["docs_figures"]
