"""Does the referee agree with runs under unified memory, from their logs alone, and does it see what is wrong?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.engine.pages.advice import ADVICE
from gpusim.engine.pages.run import simulate_unified
from gpusim.engine.pages.settings import DriverSettings
from gpusim.engine.pages.victims import EVICT
from gpusim.machine.catalogue import load
from gpusim.programs.managed.steps import Access, Array, HostTouch, Kernel, ManagedProgram, Prefetch
from gpusim.programs.managed.text import load as read
from gpusim.referee import pages
from gpusim.results.page_log import BATCH, COPY, FILL, GONE, LOG, READ
from gpusim.results.result import Result

PROGRAM = """
arrays: {a: 4 MiB, b: 3 MiB}
steps:
  - host_write: a
  - start
  - repeat: 2
    steps:
      - kernel: copy
        accesses: [{read: a}, {write: b}]
      - host_read: b
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("programs") / "p.yaml"
    path.write_text(PROGRAM)
    return read(path)


def run(program: Any, settings: DriverSettings) -> Result:
    return simulate_unified(program, load("l4"), settings=settings, capacity_bytes=4 << 20, log=True)


EACH = [*(DriverSettings(advice=a) for a in ADVICE), *(DriverSettings(evict=e) for e in EVICT[1:])]


@pytest.mark.parametrize("settings", EACH, ids=str)
def test_every_advice_and_every_eviction_is_right(program: Any, settings: DriverSettings) -> None:
    report = pages.check(run(program, settings))
    assert report.ok, str(report)
    assert report.facts["records"] > 10 and report.facts["totals"] == 15


def test_pages_that_make_room_for_others_of_their_block_are_where_they_went() -> None:
    """Two arrays of malloc'ed memory on a GPU that has room for one: a prefetch evicts from the block that it brings."""
    arrays = [Array(name, 4 << 20, kind="system") for name in "ab"]
    both = Kernel("both", [Access("a", tx=1, bx=256), Access("b", tx=1, bx=256)], (4096, 1), (256, 1))
    program = ManagedProgram("system", arrays, [HostTouch("a", write=True), HostTouch("b", write=True), both, Prefetch("b")])
    run = simulate_unified(program, load("rtx-4090"), settings=DriverSettings(), capacity_bytes=4 << 20, log=True)
    report = pages.check(run)
    assert report.ok, str(report)


def test_what_is_wrong_is_seen(program: Any) -> None:
    good = run(program, DriverSettings())
    log = good.pages
    assert log is not None

    def without(record: int) -> Result:
        shorter_log = {name: np.delete(log[name], record, 0) for name in LOG.names or ()}
        return replace(good, pages={**log, **shorter_log}, spec=shorter)

    shorter = {**good.spec, "paging": {**good.spec["paging"], "events": len(log["time"]) - 1}}
    evicted = int(np.flatnonzero((log["kind"] == GONE) & (log["processor"] == 1))[0])
    told = str(pages.check(without(evicted)))
    assert "violations" in told, "a page that does not leave is there twice, or memory overflows"
    copied = int(np.flatnonzero((log["kind"] == COPY) & (log["processor"] == 1))[0])
    assert "leave where they are not" in " ".join(map(str, pages.check(without(copied)).violations))
    time = log["time"].copy()
    time[5] = time[4] - 1
    assert "time goes back" in " ".join(map(str, pages.check(replace(good, pages={**log, "time": time})).violations))
    false = replace(good, metrics={**good.metrics, "d2h_bytes": good.metrics["d2h_bytes"] + 4096})
    assert "d2h_bytes" in str(pages.check(false))
    small = {**good.spec, "paging": {**good.spec["paging"], "chunks": 1}}
    assert "more than 1" in str(pages.check(replace(good, spec=small)))


def said_of(good: Result, column: str, kind: int, by: float, where: Any = True) -> str:
    """What the referee says where the last record of this kind has another value."""
    log = good.pages
    assert log is not None
    values = log[column].copy()
    values[int(np.flatnonzero((log["kind"] == kind) & where)[-1])] += by
    return " ".join(map(str, pages.check(replace(good, pages={**log, column: values})).violations))


CHANGES = [
    ("batch", READ, 1, "expected as many as began up to it"), ("batch", BATCH, -1, "expected as many as began up to it"),
    ("cause", READ, 1, "expected one that it can have"), ("cause", BATCH, 1, "expected one that it can have"),
    ("cause", GONE, -1, "that of the copy before it"), ("source", GONE, 1, "source 0; expected none"),
    ("source", BATCH, 1, "source 0; expected none"), ("source", COPY, 7, "expected another of 2"),
    ("processor", BATCH, 1, "a GPU for batches"), ("processor", COPY, 7, "expected at most 1"),
    ("block", READ, 99, "block"),
    ("block", BATCH, 1, "block 0; expected none"), ("kind", BATCH, 20, "expected 0 to 10"), ("pages", BATCH, 1, "as counted"),
    ("since", READ, 1000, "its own time"), ("since", BATCH, 1000, "its own time"),
    ("since", COPY, -1e6, "its own time or later"),
    ("until", READ, 1000, "its own time"), ("until", COPY, -1e9, "its begin or later"),
    ("until", COPY, 1e9, "before its batch"),
    ("until", BATCH, 5000, "as counted"), ("until", BATCH, -5000, ""),
    ("time", COPY, 1000, "time"), ("time", FILL, 1000, "time"),
    ("block", READ, 1, "without a fault at that time"),
]  # fmt: skip


@pytest.fixture(scope="module")
def of_kernels(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Nothing but kernels is timed: what leaves and comes is of their faults alone."""
    path = tmp_path_factory.mktemp("kernels") / "p.yaml"
    path.write_text(PROGRAM.replace("      - host_read: b\n", "      - {kernel: sum, accesses: [{update: a}]}\n"))
    return run(read(path), DriverSettings())


@pytest.mark.parametrize(("column", "kind", "by", "said"), CHANGES, ids=lambda x: str(x)[:12])
def test_a_changed_entry_is_seen(of_kernels: Result, column: str, kind: int, by: float, said: str) -> None:
    assert pages.check(of_kernels).ok
    found = said_of(of_kernels, column, kind, by, of_kernels.pages["processor"] == 1 if kind == READ else True)  # type: ignore[index]
    assert found and said in found


def test_what_the_walk_cannot_follow_is_told_before_it(of_kernels: Result) -> None:
    assert "0 to " in said_of(of_kernels, "block", COPY, 1 << 20)


def test_a_page_that_moves_away_is_elsewhere(of_kernels: Result) -> None:
    log = of_kernels.pages
    assert log is not None
    moved = int(np.flatnonzero((log["kind"] == GONE) & (log["cause"] == 0))[-1])
    cut = {name: np.delete(log[name], moved - 1, 0) for name in LOG.names or ()}
    spec = {**of_kernels.spec, "paging": {**of_kernels.spec["paging"], "events": len(log["time"]) - 1}}
    assert "moved and are nowhere" in " ".join(
        map(str, pages.check(replace(of_kernels, pages={**log, **cut}, spec=spec)).violations)
    )


def test_what_kept_no_log_or_half_of_one_is_unchecked(program: Any) -> None:
    good = run(program, DriverSettings())
    assert pages.check(replace(good, pages=None)).ok is None
    more = {**good.spec, "paging": {**good.spec["paging"], "events": good.spec["paging"]["events"] + 1}}
    assert pages.check(replace(good, spec=more)).ok is None


@pytest.mark.slow
def test_gpusim_check_reads_it_from_the_folder(tmp_path: Path) -> None:
    (tmp_path / "p.yaml").write_text(PROGRAM)
    (tmp_path / "e.yaml").write_text("question: q?\ntrace: p.yaml\nprofile: l4\nmemory: 50 %\nunified: driver\nbounds: false\n")
    out = str(tmp_path / "out")
    ran = CliRunner().invoke(app, ["run", str(tmp_path / "e.yaml"), "-o", out, "--log", "--no-figures"])
    assert ran.exit_code == 0, ran.output
    checked = CliRunner().invoke(app, ["check", out])
    assert checked.exit_code == 0 and "1 run is right, 0 wrong" in checked.output
