"""What all tests share: none of them depends on how fast the machine is.

A test is `fast` unless it is marked `slow`: `pytest -m fast` is the inner loop, everything runs in CI.
"""

import signal
import sys

import pytest
from hypothesis import settings

# Many containers set PYTHONDONTWRITEBYTECODE: every worker would rewrite the assertions of all modules in each run, for 12 s.
sys.dont_write_bytecode = False

# A shell has Ctrl-C ignored for what runs behind it, and processes that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("gpusim", deadline=None)
settings.load_profile("gpusim")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is not slow as fast."""
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("fast")
