"""Tests that look at the same run: they belong to one worker, so that the run is made once.

Workers of pytest-xdist share nothing; `--dist loadgroup` keeps the tests of a group together.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest


def one_run(name: str) -> pytest.MarkDecorator:
    """The mark of tests that look at the run of this name."""
    return pytest.mark.xdist_group(f"run of {name}")


def each_with_its_run(names: Iterable[str]) -> list[object]:
    """Names as parameters of a test, each in the group of its run."""
    return [pytest.param(name, marks=one_run(name)) for name in names]
