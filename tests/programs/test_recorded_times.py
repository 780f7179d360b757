"""Do recorded times become those of another GPU: by its name in the trace, by the transform, by a factor of the user's?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.experiment import load
from gpusim.experiment.tasks import plan
from gpusim.machine.catalogue import load as machine
from gpusim.machine.kernels.durations import BASIS, durations, load_own_times, modelled_durations
from gpusim.programs.recordings import import_trace
from gpusim.programs.transforms import apply
from gpusim.studies.capacity.times import refused, times_on
from gpusim.studies.kernels import study
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import save_trace
from gpusim.trace.trace import COPY_IN, Trace

pytestmark = pytest.mark.hand_worked

DATA = Path(__file__).parents[1] / "data" / "traces"
SHAPE = "4096x4096 4096x4096 -> 4096x4096"
V100, A100 = machine("v100-sxm2-32gb"), machine("a100-sxm4-80gb")
HEADER = "gpu,operator,dtype,shape,time_us\n"


def recorded(**meta: object) -> Trace:
    """Two products of 2 ms, a kernel of which nothing is known of 10 us, a copy of 100 us, and a product without a time."""
    build = TraceBuilder("r")
    block = build.alloc(2**20)
    for ns in (2_000_000, 2_000_000):
        build.op("aten.mm.default", [block], [], dtype="float16", duration=ns, shape=SHAPE)
    build.op("my_kernel", [], [], duration=10_000)
    build.op("copy", [], [], duration=100_000, read_bytes=10**6, activity=COPY_IN)
    build.op("aten.mm.default", [], [], dtype="float16", shape=SHAPE)
    return replace(build.finish(), meta=dict(meta))


def test_a_trace_that_names_its_gpu_is_scaled_on_another_one_alone() -> None:
    trace = recorded(recorded_on="Tesla V100-SXM2-32GB")
    here, there = (modelled_durations(trace, p).ns for p in (A100, V100))
    found = durations(trace, A100)
    by = here[0] / there[0]
    assert 0.2 < by < 0.9
    assert found.ns[:3].tolist() == pytest.approx([2e6 * by, 2e6 * by, 1e4 * by], abs=1), "the unknown kernel as the others"
    assert found.ns[3] == pytest.approx(1e5 * here[3] / there[3], abs=1), "a copy by the links"
    assert found.ns[4] == here[4], "without a time, the model's"
    assert [BASIS[i] for i in found.basis[:4]] == ["scaled"] * 4
    assert found.low[0] < 0 < found.high[0]
    assert durations(trace, V100).ns[:4].tolist() == trace.duration[:4].tolist()
    assert durations(trace, A100, A100).ns[:4].tolist() == trace.duration[:4].tolist(), "said to be of this machine"
    assert durations(recorded(recorded_on="NVIDIA H200"), A100).ns[0] == 2_000_000, "which fits two profiles"


def test_the_transform_says_the_gpu_or_the_factor() -> None:
    trace = recorded(recorded_on="NVIDIA H200")
    said = apply(trace, "recorded_times(on=v100-sxm2-32gb)")
    assert durations(said, A100).ns.tolist() == durations(recorded(recorded_on="Tesla V100-SXM2-32GB"), A100).ns.tolist()
    twice = apply(trace, "recorded_times(factor=0.5) | recorded_times(factor=0.5)")
    assert twice.duration.tolist() == [500_000, 500_000, 2500, 100_000, -1], "copies stay"
    found = durations(twice, A100)
    assert found.ns[:2].tolist() == [500_000] * 2 and BASIS[found.basis[0]] == "scaled"
    assert (found.low[0], found.high[0]) == (-0.25, 0.25)


@pytest.mark.parametrize("text", [
    "recorded_times", "recorded_times(on=t4, factor=2)", "recorded_times(on=nvidia)", "recorded_times(factor=-1)",
])  # fmt: skip
def test_what_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(GpusimError, match="recorded_times"):
        apply(recorded(), text)


def test_a_trace_without_times_has_none_to_scale() -> None:
    with pytest.raises(GpusimError, match="no recorded times"):
        apply(replace(recorded(), duration=np.full(5, -1)), "recorded_times(factor=2)")


def test_a_kineto_trace_names_its_gpu_and_the_study_says_what_became_of_its_times() -> None:
    trace = import_trace(DATA / "kineto_v100_ddp.json.gz")
    assert trace.meta["recorded_on"] == "Tesla V100-SXM2-32GB"
    assert study(trace, V100).notes == []
    (note,) = study(trace, A100).notes
    assert note == "Recorded on v100-sxm2-32gb; each time is scaled by the ratio of the modelled times."
    assert durations(trace, A100).ns.sum() < durations(trace, V100).ns.sum()
    other = import_trace(DATA / "kineto_v100_resnet50.json.gz")
    assert "Tesla V100-DGXS-32GB, which is no profile" in study(other, A100).notes[0]


def test_fit_takes_times_whose_gpu_is_known_and_the_model_for_others() -> None:
    known, unknown = recorded(recorded_on="Tesla V100-SXM2-32GB"), recorded()
    assert times_on(known, A100).ns.tolist() == durations(known, A100).ns.tolist()
    assert times_on(unknown, A100).ns.tolist() == modelled_durations(unknown, A100).ns.tolist()
    whole = replace(unknown, duration=np.maximum(unknown.duration, 1000), meta={"lacks": ["flops"]})
    assert "flops" in refused(whole)
    assert refused(replace(whole, meta={**whole.meta, **known.meta})) == ""


def test_a_users_table_is_for_modelled_and_scaled_times(tmp_path: Path) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(f"{HEADER}a100-sxm4-80gb,aten.mm,float16,{SHAPE},600\n")
    table = load_own_times(path, A100)
    here = durations(recorded(), A100, own=table)
    assert here.ns[[0, 1, 4]].tolist() == [2_000_000, 2_000_000, 600_000], "what was recorded here stays"
    other = durations(recorded(recorded_on="Tesla V100-SXM2-32GB"), A100, own=table)
    assert other.ns[[0, 1, 4]].tolist() == [600_000] * 3
    assert [BASIS[other.basis[i]] for i in (0, 2, 4)] == ["measured", "scaled", "measured"]


def test_an_experiment_runs_with_a_table_and_is_keyed_by_its_content(tmp_path: Path) -> None:
    save_trace(recorded(), tmp_path / "r.npz")
    file, table = tmp_path / "e.yaml", tmp_path / "mine.csv"
    text = "question: q\ntrace: r.npz\nprofile: [a100-sxm4-80gb, t4]\nbounds: false\n"
    file.write_text(text)
    keys = {}
    for name, content in (("none", ""), ("600", "600"), ("700", "700"), ("again", "600")):
        if content:
            table.write_text(f"{HEADER}a100-sxm4-80gb,aten.mm,float16,{SHAPE},{content}\n")
            file.write_text(f"{text}kernel_times: mine.csv\n")
        keys[name] = [task.key for task in plan(load.experiment(str(file)), tmp_path).grid]
    assert len({key for name in ("none", "600", "700") for key in keys[name]}) == 6 and keys["again"] == keys["600"]
    table.write_text(f"{HEADER}l40s,aten.mm,float16,{SHAPE},1\n")
    with pytest.raises(GpusimError, match="kernel times of l40s, not of a100-sxm4-80gb and t4"):
        load.experiment(str(file))


def test_a_run_takes_the_table(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"
    table.write_text(f"{HEADER}a100-sxm4-80gb,aten.mm,float16,{SHAPE},600\n")
    plain, own = (
        gpusim.simulate(recorded(), on="a100-sxm4-80gb", bounds=False, kernel_times=path).value.metrics
        for path in (None, table)
    )
    model = int(modelled_durations(recorded(), A100).ns[4])
    assert own["makespan_ns"] - plain["makespan_ns"] == 600_000 - model
    assert own["kernel_measured_share"] > 0
