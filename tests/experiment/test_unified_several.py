"""Do managed programs on several GPUs run from an experiment, on the links of a machine that it names, and are they checked?"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import ConfigError
from gpusim.cli.app import app
from gpusim.experiment import grid, load
from gpusim.experiment.ran import load_machine_of
from gpusim.experiment.tasks import plan
from gpusim.referee import pages
from gpusim.results.folder import load_folder

pytestmark = pytest.mark.slow

PROGRAM = """arrays: {a: 32 MiB, b: 32 MiB}
steps:
  - host_write: [a, b]
  - start
  - prefetch: a
    stream: 0
  - prefetch: b
    to: 2
    stream: 0
    gpu: 2
  - kernel: first
    accesses: [{read: a}]
  - kernel: second
    gpu: 2
    accesses: [{read: b}]
  - host_read: b
    after: none
"""
TEXT = """question: "two?"
trace: two.yaml
profile: [dgx-a100, a100-sxm4-80gb]
unified: driver
bounds: false
figures: []
options: {log: true}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "two.yaml").write_text(PROGRAM)
    (tmp_path / "e.yaml").write_text(TEXT)
    return tmp_path / "e.yaml"


def test_gpus_of_a_machine_share_its_links_and_faults_explains_them(experiment: Path) -> None:
    out = experiment.parent / "out"
    assert not grid.run(plan(load.experiment(str(experiment)), out), "", {}).failures
    together, apart = load_folder(out, log=True)
    assert together.metrics["explicit_bytes"] == apart.metrics["explicit_bytes"] == 64 << 20
    ends = [max(p["step_end"][:2]) for one in (together, apart) if (p := one.pages) is not None]
    assert ends[0] == pytest.approx(2 * ends[1], rel=0.1), "two GPUs behind one switch, 32 MiB for each"
    for run in (together, apart):
        report = pages.check(run)
        assert report.ok, str(report)
        assert run.faults is not None
        assert sum(run.faults.times.values()) == pytest.approx(run.metrics["makespan_ns"])
        assert run.faults.beside["cpu"] > 0
    assert load_machine_of(together, experiment.parent).name == "a100-sxm4-80gb"
    said = CliRunner().invoke(app, ["faults", str(out), "1", "--no-advise"]).output
    assert "the CPU touches memory beside kernels" in said and "dgx-a100" in said


@pytest.mark.parametrize(("sets", "said"), [
    ("uncertainty=4", "samples are of one"), ("beside=[two.yaml]", "programs beside each other have one GPU together"),
])  # fmt: skip
def test_what_a_machine_of_several_cannot_be_combined_with_is_told(experiment: Path, sets: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        load.experiment(str(experiment), [sets])


def test_more_gpus_than_a_machine_has_are_refused(experiment: Path) -> None:
    program = experiment.parent / "two.yaml"
    program.write_text(program.read_text().replace("gpu: 2\n    accesses", "gpu: 9\n    accesses"))
    loaded = load.experiment(str(experiment))
    with pytest.raises(ConfigError, match="dgx-a100 has 8"):
        load.foresee(loaded, plan(loaded, experiment.parent / "out").grid)
    several = load.experiment(str(experiment), ["profile=[2 x dgx-a100 over infiniband]"])
    with pytest.raises(ConfigError, match="of 2 hosts"):
        load.foresee(several, plan(several, experiment.parent / "out").grid)
