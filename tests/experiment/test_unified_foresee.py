"""Is what no run under unified memory could get past told before any of them, and before anything is written?"""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import ConfigError
from gpusim.cli.app import app
from gpusim.experiment import load

PROGRAM = """
arrays: {a: 4 MiB, b: {bytes: 4 MiB, kind: system}}
steps:
  - kernel: copy
    block: 1024
    accesses: [{read: a}, {write: b}]
"""
YAML = """
question: What does the driver cost?
trace: program.yaml
profile: l4
unified: driver
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Path:
    (tmp_path / "program.yaml").write_text(PROGRAM)
    path = tmp_path / "e.yaml"
    path.write_text(YAML)
    return path


def refused(experiment: Path, *sets: str) -> str:
    """What both verbs say, which must be the same, and leave nothing behind."""
    words = [word for said in sets for word in ("--set", said)]
    out = experiment.parent / "out"
    told = []
    for verb in (["validate"], ["run", "--output", str(out)]):
        done = CliRunner().invoke(app, [*verb, str(experiment), *words])
        assert done.exit_code == 2, done.output
        told.append(done.stderr)
    assert told[0] == told[1]
    assert not out.exists()
    return told[0]


@pytest.mark.parametrize(
    ("sets", "sentence", "hint"),
    [
        (["unified=[driver, driver(advice=c:zero_copy)]"], "no allocation of program is called 'c'", "known: a, b"),
        (["unified=driver(advice=a:discard c*:discard)"], "advice 'c*:discard': no allocation", "known: a, b"),
        (["profile=l4(memory.capacity=1 GiB, host.capacity=4 MiB)", "memory=2 MiB"],
         "program needs 8 MiB, more than the 2 MiB of GPU memory and the 4 MiB of host memory", "host.capacity="),
        (["host_memory=1 MiB", "memory=50 %"], "the 4 MiB of GPU memory and the 1 MiB of host memory", "larger host"),
        (["profile=jetson-thor", "memory=50 %"],
         "program needs 8 MiB, and jetson-thor is given 4 MiB of one memory for CPU and GPU", "memory: capacity"),
        (["unified=driver(uvm_disable_hmm=1)"],
         "program.yaml:4: on l4, copy: segmentation fault at 0x400000, 'b' is malloc'ed memory and HMM is off",
         "uvm_disable_hmm"),
    ],
)  # fmt: skip
def test_what_no_run_gets_past_is_told_before_all(experiment: Path, sets: list[str], sentence: str, hint: str) -> None:
    told = refused(experiment, *sets)
    assert sentence in told and hint in told


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "sentence"),
    [
        ("arrays: {a: {bytes: 30 GiB, kind: device}, b: 4 MiB}\nsteps: [wait]", "arrays of kind device take 30 GiB of the"),
        ("arrays: {a: {bytes: 4 MiB, kind: device}}\nsteps: [{host_write: a}]", "the CPU does not reach it"),
    ],
)
def test_memory_of_cudamalloc_is_looked_at_before_all(experiment: Path, program: str, sentence: str) -> None:
    (experiment.parent / "program.yaml").write_text(program)
    assert sentence in refused(experiment)


@pytest.mark.slow
def test_each_mistake_is_told_once_at_its_place(experiment: Path) -> None:
    asked = "unified: [driver, driver(advice=c:discard), driver(advice=d:discard)]"
    experiment.write_text(YAML.replace("unified: driver", asked))
    told = refused(experiment, "memory=100 %,50 %", "seed=0,1")
    assert told.count("no allocation of program") == 2
    assert "e.yaml:5:19: advice 'c:discard'" in told and "e.yaml:5:45: advice 'd:discard'" in told


@pytest.mark.slow
def test_a_recorded_program_is_asked_for_its_segments_only_where_advice_names_one(experiment: Path) -> None:
    told = refused(experiment, "trace=gpt-medium-infer", "unified=driver(advice=parametr_0:read_mostly)")
    assert "no allocation of gpt-medium-infer is called 'parametr_0'" in told and "'parameter_0'" in told
    known = "unified=driver(advice=parameter_0:read_mostly)"
    words = ["--set", "trace=gpt-medium-infer", "--set", known]
    assert CliRunner().invoke(app, ["validate", str(experiment), *words]).exit_code == 0


def test_policies_of_what_moves_are_told_to_change_nothing_where_nothing_moves(experiment: Path) -> None:
    loaded = load.experiment(str(experiment), ["profile=l4,jetson-thor", "unified=driver,driver(evict=lru)"])
    assert load.told(loaded) == ["jetson-thor has one memory for CPU and GPU, where no page moves: evict=lru changes nothing"]
    assert load.told(load.experiment(str(experiment), ["profile=jetson-thor"])) == []


def test_snapshots_have_no_kernels_that_could_fault(experiment: Path) -> None:
    told = refused(experiment, "trace=gpt-medium-infer-snapshot")
    assert "what `unified` changes cannot be told" in told and "gpusim record" in told


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (["policies.place=best_fit"], "managed programs have no allocator: place changes nothing"),
        (["bounds=search"], "there is no plan that a search could look for"),
        (["profile=jetson-thor", "host_memory=4 GiB"], "jetson-thor has one memory for CPU and GPU"),
    ],
)
def test_axes_that_contradict_each_other_are_told(experiment: Path, sets: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load.experiment(str(experiment), sets)
    assert sentence in str(caught.value)
    load.experiment(str(experiment), [*sets[:-1]])


def test_a_page_policy_of_ones_own_is_known_where_unified_memory_names_it(experiment: Path) -> None:
    """Wherever the file says `use`, and refused where it has no meaning for pages."""
    (experiment.parent / "mine.py").write_text(
        "from gpusim import policy\n\n@policy.prefetch\nclass learns:\n"
        "    def launched(self, view, kernel):\n        return []\n"
        "\n@policy.prefetch\nclass moves:\n    def propose(S, k, start, unit, where, out):\n        return 0\n"
    )
    for ways in ("unified: driver(prefetch=learns)\nuse: [mine.py]\n", "use: [mine.py]\nunified: driver(prefetch=learns)\n"):
        experiment.write_text(YAML.replace("unified: driver\n", ways))
        assert str(load.experiment(str(experiment)).experiment.unified[0].params) == "(('prefetch', 'learns'),)"
    experiment.write_text(YAML.replace("driver\n", "driver(prefetch=moves)\nuse: [mine.py]\n"))
    assert "prefetch policy 'moves' brings tensors before kernels" in refused(experiment)
