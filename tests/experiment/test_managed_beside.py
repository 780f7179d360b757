"""Do experiments run processes with managed memory beside each other, and refuse what cannot be?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gpusim.base.errors import ConfigError
from gpusim.experiment import grid, load
from gpusim.experiment.tasks import plan
from gpusim.referee import pages
from gpusim.results.folder import load_folder

PROGRAM = """arrays: {a: 16 MiB}
steps:
  - host_write: a
  - start
  - kernel: read
    accesses: [{read: a}]
    repeats: 2
"""
TEXT = """question: "two?"
trace: small.yaml
beside: small.yaml
profile: t4
unified: driver
memory: 75 %
tenancy: [mps, "over_commit(policy=nvshare, quantum=0.01)", exclusive]
bounds: false
figures: []
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "small.yaml").write_text(PROGRAM)
    (tmp_path / "e.yaml").write_text(TEXT)
    return tmp_path / "e.yaml"


@pytest.mark.slow
def test_processes_page_beside_each_other_at_once_and_in_turns(experiment: Path) -> None:
    out = experiment.parent / "out"
    assert not grid.run(plan(load.experiment(str(experiment), ["options.log=true"]), out), "", {}).failures
    at_once, turns, alone = load_folder(out, log=True)
    assert alone.metrics["evictions"] == 0, "its 16 MiB are within the 24 of both"
    assert at_once.metrics["sharing_slowdown"] >= 1.0 == alone.metrics["sharing_slowdown"]
    assert at_once.faults is not None and turns.faults is not None
    assert [one.name for one in at_once.faults.processes] == ["small", "small"]
    assert sum(one.lost for one in at_once.faults.processes) > 0, "32 MiB are not"
    assert sum(one.lost for one in turns.faults.processes) == 0, "the first has ended, and freed its own"
    for run in (at_once, turns, alone):
        report = pages.check(run)
        assert report.ok, f"the log of all processes' pages: {report}"
    counted = {**at_once.spec["paging"]["together"], "gpu_faults": 1}
    wrong = {**at_once.spec, "paging": {**at_once.spec["paging"], "together": counted}}
    assert "as the log adds up" in str(pages.check(replace(at_once, spec=wrong)))


@pytest.mark.parametrize(("sets", "said"), [
    (("unified=driver(evict=belady)",), "reads the future of one program"),
    (("tenancy=mps(memory=8 GiB)",), "managed pages of a process have none"),
    (("tenancy=mps(fault=1 s)",), "a fatal fault beside other processes is simulated without managed memory"),
    (("unified=none",), "is a managed program, whose memory is the driver's"),
])  # fmt: skip
def test_what_cannot_be_is_a_sentence(experiment: Path, sets: tuple[str, ...], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load.experiment(str(experiment), list(sets))
    assert said in str(refused.value)
