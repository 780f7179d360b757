"""What all tests share: none of them depends on how fast the machine is.

A test is `fast` unless it is marked `slow`: `pytest -m fast` is the inner loop, everything runs in CI.
"""

import gc
import signal
import sys

import pytest
from hypothesis import settings

# Many containers set PYTHONDONTWRITEBYTECODE: every worker would rewrite the assertions of all modules in each run, for 12 s.
sys.dont_write_bytecode = False

# A tenth of the time went to looking for garbage among a million objects of modules and tests, which stay.
gc.set_threshold(100_000)

# A shell has Ctrl-C ignored for what runs behind it, and processes that tests start and interrupt would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("gpusim", deadline=None)
settings.load_profile("gpusim")


# Seconds of files that take more than ten, about: workers take these first, so that none begins one when all others are done.
LONG = {
    "test_experiments": 220, "test_serving_questions": 190, "test_readme": 150, "test_docs_figures": 60, "test_many_models": 50,
    "test_run_keys": 40, "test_without_private_parts": 50, "test_compile_stamps": 40, "test_offload_score": 40,
    "test_record_pairs": 40, "test_notebooks": 30, "test_grain": 30, "test_shipped_programs": 25, "test_zoo": 25,
    "test_advice": 25, "test_expert_questions": 25, "test_tuning": 20, "test_cli_metrics": 20, "test_fit": 20,
    "test_calibrate_steps": 15, "test_dask": 15, "test_tenants_check": 15,
}  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Files go to workers in the order in which they are collected, not those with the most tests first."""
    config.option.loadscopereorder = False


def pytest_collection_finish() -> None:
    """What is there by now stays: it need not be looked at."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what is not slow as fast; several workers take the files that last longest first."""
    for item in items:
        if item.get_closest_marker("slow") is None:
            item.add_marker("fast")
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: -LONG.get(item.path.stem, 0))
