"""Will it fit?  Is the need right by hand, does what is chosen really fit, and do the answers agree with the simulator?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_transforms_parallel import ALL, model_states
from typer.testing import CliRunner

from gpusim import transforms
from gpusim.cli import app
from gpusim.engine.simulate import simulate
from gpusim.fit import remedies, report
from gpusim.fit.batches import Batches
from gpusim.fit.need import count, need, rule_of_thumb
from gpusim.fit.study import last_iteration, room, study
from gpusim.hardware import catalogue
from gpusim.hardware.profile import Profile, changed
from gpusim.results.referee import check
from gpusim.show import fit as figure
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import Trace
from gpusim.units import show_bytes

ROOT = Path(__file__).parent.parent
MIB = 2**20


def shipped(name: str) -> Trace:
    return load_trace(ROOT / "traces" / f"{name}.npz")


def with_memory(size: float, base: str = "a100-sxm4-80gb") -> Profile:
    """The machine with so many bytes for programs."""
    profile = catalogue.load(base)
    return changed(profile, "memory.capacity", size + profile.context.value)


def test_a_step_needs_what_its_roles_add_up_to() -> None:
    """Per parameter 2 bytes, 2 of gradient, 12 of state: all sizes are whole multiples of 512."""
    n = need(model_states())
    assert n.live == 16 * ALL
    assert {role: size for role, size in n.by_role.items() if role != "fragmentation"} == {
        "parameter": 2 * ALL, "gradient": 2 * ALL, "optimizer": 12 * ALL,
    }  # fmt: skip
    assert sum(n.by_role.values()) == n.reserved


def test_the_rule_of_thumb_minds_its_units() -> None:
    """10^8 parameters are 1.49 GiB at 16 bytes each, not 15; parameters are counted by the type that reads them."""
    b = TraceBuilder("rule")
    w = b.alloc(2 * 10**8, "param")
    b.begin_phase("step0.fwd")
    b.op("mm", (w,), (), dtype="bfloat16")
    b.begin_phase("step0.opt")
    b.op("sgd", (w,), (w,), dtype="bfloat16")
    trace = b.finish()
    assert count(trace) == 10**8
    assert rule_of_thumb(trace) == 16 * 10**8
    assert show_bytes(16 * 10**8) == "1.49 GiB"
    assert rule_of_thumb(shipped("llama-1b-decode")) is None


@pytest.mark.parametrize(("name", "published"), [("gpt2-small-train", 124_439_808), ("llama-1b-train", 1_235_814_400)])
def test_parameters_are_counted(name: str, published: int) -> None:
    assert count(shipped(name)) == pytest.approx(published, rel=1e-6)


def test_each_machine_gets_what_fits_it() -> None:
    """Room for all; for what checkpointing leaves; for what offloading leaves; for nothing that does not swap."""
    trace = shipped("gpt2-small-train")
    n = {chain: need(transforms.apply(trace, chain)) for chain in ("none", "checkpointing")}
    machines = [with_memory(n["none"].reserved), with_memory(n["none"].live - 1), with_memory(n["checkpointing"].live // 2)]
    tried = (remedies.Remedy(), remedies.Remedy("checkpointing"))
    a, b, c = study(trace, machines, tried).answers
    assert (a.fits, b.fits, c.fits) == (True, False, False)
    assert [str(way.remedy) for way in b.ways] == ["checkpointing"]
    assert b.slowdown(b.ways[0]) > 1
    assert c.ways == ()
    assert set(c.refused) == {"as it is", "checkpointing"}


def test_an_answer_is_that_of_the_simulator() -> None:
    trace, machine = shipped("gpt2-small-train"), with_memory(6 * 2**30)
    answer = study(trace, [machine], (remedies.Remedy(swap=True),)).answers[0]
    result = simulate(trace, machine, capacity_bytes=room(machine), evict="lru", prefetch="next_k", log=True)
    assert check(result, trace).violations == ()
    way = answer.best()
    assert way is not None
    assert way.step_ns == last_iteration(result, trace)
    assert way.reserved == result.metrics["reserved_peak_bytes"] <= room(machine)


def test_the_last_iteration_is_timed() -> None:
    """Two equal steps of 3 kernels of 1 ms: the last takes 3 ms."""
    b = TraceBuilder("steps")
    x = b.alloc(MIB, "input")
    for step in range(2):
        b.begin_phase(f"step{step}.fwd")
        for _ in range(3):
            b.op("k", (x,), (), duration=1_000_000)
    trace = b.finish()
    result = simulate(trace, catalogue.load("a100-pcie-40gb"), log=True)
    assert last_iteration(result, trace) == pytest.approx(3_000_000, rel=0.01)


def test_machines_without_another_memory_or_links_are_not_offered_them() -> None:
    trace = shipped("gpt2-small-train")
    jetson, pcie = with_memory(6 * 2**30, "jetson-agx-orin-64gb"), with_memory(6 * 2**30, "a100-pcie-40gb")
    tried = (remedies.Remedy("offload"), remedies.Remedy(swap=True), remedies.Remedy("zero(stage=3,ranks=8)", gpus=8))
    one, two = study(trace, [jetson, pcie], tried).answers
    assert one.refused["offload"] == one.refused["swapping"] == "the machine has no other memory"
    assert two.refused["zero(stage=3,ranks=8)"] == "the profile names no links between GPUs"
    assert two.best() is not None


def test_the_largest_batch_is_the_largest() -> None:
    """8 sequences were recorded: so many more fit, one more does not."""
    trace = shipped("gpt2-small-train")
    batches = Batches(trace, 200 * 2**30)
    capacity = 30 * 2**30
    found = batches.largest(capacity)
    assert found is not None
    unit = batches.recorded or 100
    number = round(found * (1 if batches.recorded else unit))
    assert batches._try(number / unit, capacity)
    assert not batches._try((number + 1) / unit, capacity)


def test_a_program_without_operators_fits_by_its_requests_alone() -> None:
    trace = shipped("gpt-medium-infer-snapshot")
    found = study(trace, [catalogue.load("h100-sxm-80gb")], remedies.default(trace))
    assert found.answers[0].fits
    assert found.answers[0].batch is None


def test_the_verb_prints_the_answer_and_leaves_it(tmp_path: Path) -> None:
    out = tmp_path / "fit"
    done = CliRunner().invoke(
        app, ["fit", "gpt2-small-train", "--profile", "h100-sxm-80gb,rtx-2080-ti", "-o", str(out), "--format", "png"]
    )
    assert done.exit_code == 0, done.output
    assert "gpt2-small-train needs" in done.output
    assert "16 bytes for each of 124,4" in done.output
    assert (out / "fit.png").read_bytes()[:4] == b"\x89PNG"
    values = json.loads((out / "fit.json").read_text())
    assert {m["profile"] for m in values["machines"]} == {"h100-sxm-80gb", "rtx-2080-ti"}
    assert values["reserved_bytes"] == sum(values["at_peak"].values())


def test_the_figure_shows_what_is_reserved_of_each_memory() -> None:
    trace = shipped("gpt2-small-train")
    n = need(transforms.apply(trace, "checkpointing"))
    machines = [with_memory(40 * 2**30), with_memory(n.reserved), with_memory(2**30)]
    values = report.values(study(trace, machines, (remedies.Remedy(), remedies.Remedy("checkpointing"))))
    for m, name in zip(values["machines"], ("large", "medium", "small"), strict=True):
        m["profile"] = name
    drawn = figure.draw(values)
    panel = drawn.axes[1]
    bars = {bar.get_gid(): bar.get_width() * 2**30 for bar in panel.patches}
    assert bars["reserved:large"] == pytest.approx(need(trace).reserved)
    assert bars["reserved:medium"] == pytest.approx(values["machines"][1]["ways"][0]["reserved_bytes"])
    assert "reserved:small" not in bars
    words = {text.get_gid(): text.get_text() for text in panel.texts}
    assert words["answer:large"].startswith("fits: ")
    assert words["answer:medium"].startswith("checkpointing: ")
    assert words["answer:small"] == "nothing that was tried makes it fit"


@pytest.mark.parametrize(("words", "says"), [
    (["fit"], "say what is to fit"),
    (["fit", "a", "b"], "not 2"),
    (["fit", "gpt2-smal-train"], "gpt2-small-train"),
    (["fit", "gpt2-small-train", "--profile", "h100"], "h100"),
    (["fit", "gpt2-small-train", "--try", "checkpoint"], "checkpointing"),
    (["fit", "gpt2-small-train", "--try", "swaping"], "did you mean 'swapping'"),
    (["fit", "gpt2-small-train", "--batch", "4"], "'--batch' is no option of fit"),
])  # fmt: skip
def test_what_is_wrong_is_said_in_a_sentence(words: list[str], says: str) -> None:
    done = CliRunner().invoke(app, words)
    assert done.exit_code != 0
    assert says in done.output + str(done.exception)


def test_a_trace_from_a_file_is_studied_too(tmp_path: Path) -> None:
    save_trace(shipped("gpt2-small-train"), tmp_path / "mine.npz")
    tried = remedies.named(["checkpointing | zero(stage=3,ranks=4)"])
    found = report.values(study(load_trace(tmp_path / "mine.npz"), [with_memory(6 * 2**30)], tried))
    way = found["machines"][0]["ways"][0]
    assert (way["remedy"], way["gpus"]) == ("checkpointing | zero(stage=3,ranks=4)", 4)
