"""Will it fit?  Is the need right by hand, does what is chosen really fit, and do the answers agree with the simulator?"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from model_states import ALL, model_states
from typer.testing import CliRunner

from gpusim.base.units import show_bytes
from gpusim.cli.app import app
from gpusim.engine.run.simulate import simulate
from gpusim.machine import catalogue
from gpusim.machine.constants import NO_TIME, HostTime
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.machine.profile import Profile, changed
from gpusim.machine.sampling import with_numbers
from gpusim.programs import transforms
from gpusim.referee import check
from gpusim.results.folder import load_folder
from gpusim.show import fit as figure
from gpusim.studies.capacity import remedies, report
from gpusim.studies.capacity.batches import Batches
from gpusim.studies.capacity.need import count, need, rule_of_thumb
from gpusim.studies.capacity.ranks import machine_with
from gpusim.studies.capacity.settings import USUAL, AllocatorSettings
from gpusim.studies.capacity.study import last_iteration, study
from gpusim.studies.capacity.times import StepBar, step_bar
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import Trace

ROOT = Path(__file__).parents[2]
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


@pytest.mark.slow
def test_each_machine_gets_what_fits_it() -> None:
    """Room for all; for what checkpointing leaves; for what offloading leaves; for nothing that does not swap."""
    trace = shipped("gpt2-small-train")
    n = {chain: need(transforms.apply(trace, chain)) for chain in ("none", "checkpointing")}
    machines = [with_memory(n["none"].reserved), with_memory(n["none"].live - 1), with_memory(n["checkpointing"].live // 2)]
    tried = (remedies.FitRemedy(), remedies.FitRemedy("checkpointing"))
    a, b, c = study(trace, machines, tried).answers
    assert (a.fits, b.fits, c.fits) == (True, False, False)
    assert [str(way.remedy) for way in b.ways] == ["checkpointing"]
    assert b.slowdown(b.ways[0]) > 1
    assert c.ways == ()
    assert set(c.refused) == {"as it is", "checkpointing"}


@pytest.mark.agreement
@pytest.mark.slow
def test_an_answer_is_that_of_the_simulator() -> None:
    trace, machine = shipped("gpt2-small-train"), with_memory(6 * 2**30)
    answer = study(trace, [machine], (remedies.FitRemedy(swap=True),)).answers[0]
    result = simulate(trace, machine, capacity_bytes=USUAL.room(machine), evict="lru", prefetch="next_k", log=True)
    assert check(result, trace).violations == ()
    way = answer.best()
    assert way is not None
    assert way.step_ns == last_iteration(result, trace)
    assert way.reserved == result.metrics["reserved_peak_bytes"] <= USUAL.room(machine)


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


@pytest.mark.slow
def test_machines_without_another_memory_or_links_are_not_offered_them() -> None:
    trace = shipped("gpt2-small-train")
    jetson, pcie = with_memory(6 * 2**30, "jetson-agx-orin-64gb"), with_memory(6 * 2**30, "a100-pcie-40gb")
    tried = (remedies.FitRemedy("offload"), remedies.FitRemedy(swap=True), remedies.FitRemedy("zero(stage=3,ranks=8)", gpus=8))
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


def test_a_snapshot_is_answered_by_its_requests_alone_and_no_time_is_told() -> None:
    """It has no accesses: the same step on every GPU would be an answer to another question."""
    trace = shipped("gpt-medium-infer-snapshot")
    machines = [catalogue.load("h100-sxm-80gb"), with_memory(need(trace).live - 1)]
    found = study(trace, machines, remedies.default(trace))
    assert [a.fits for a in found.answers] == [True, False]
    assert all(a.free_ns is None and a.batch is None and a.slowdown(way) is None for a in found.answers for way in a.ways)
    assert "does not say which tensors each operator reads and writes" in found.timeless
    assert not any("step" in row for row in report.rows(found))
    assert any(line.startswith("No times: ") for line in report.remarks(found))


def test_times_of_another_machine_are_not_passed_on() -> None:
    """Recorded durations without flops hold for the machine of the recording; with flops the model answers for each."""
    b = TraceBuilder("recorded")
    w = b.alloc(64 * MIB, "param")
    b.begin_phase("step0.fwd")
    b.op("aten.mm", (w,), (), duration=1_000_000, flops=10**12, read_bytes=64 * MIB, dtype="float32")
    trace = b.finish()
    machines = [catalogue.load(name) for name in ("t4", "h100-sxm-80gb")]
    slow, fast = study(trace, machines, (remedies.AS_IT_IS,)).answers
    assert slow.free_ns is not None and fast.free_ns is not None
    assert slow.free_ns > 2 * fast.free_ns
    unknown = replace(trace, meta={**trace.meta, "lacks": ["flops"]})
    assert "that it was recorded on" in study(unknown, machines, (remedies.AS_IT_IS,)).timeless


def test_parameters_are_counted_once_whatever_autocast_reads_them_as() -> None:
    """Read as bf16 copies, updated in fp32: 10^6 numbers are 10^6 parameters, not twice as many."""
    b = TraceBuilder("autocast")
    w = b.alloc(4 * 10**6, "param")
    b.begin_phase("step0.fwd")
    b.op("aten._to_copy", (w,), (), dtype="bfloat16")
    b.begin_phase("step0.opt")
    b.op("aten.add_", (w,), (w,), dtype="float32")
    assert count(b.finish()) == 10**6


def test_a_step_is_as_long_as_its_kernels_or_its_host() -> None:
    """100 operators of 6 us (5 to 10) of the host, and kernels of 200 us (half to twice), in steps with 50 us of other time.

    Gaps of 1 us add 100 us to what the device takes.
    """
    host = HostTime(6_000.0, 5_000.0, 10_000.0)
    slow = StepBar(200_000, 0.5, 2.0, "gemm", 100, host, 1000.0)
    assert slow.host_bound and slow.interval(650_000) == (550_000, 1_050_000), "the kernels hide behind the host at both ends"
    fast = StepBar(800_000, 0.5, 2.0, "gemm", 100, host, 1000.0)
    assert not fast.host_bound and fast.interval(950_000) == (550_000, 1_750_000), "at the low end the host is what is left"
    graph = StepBar(800_000, 0.5, 2.0, "gemm", 100, NO_TIME)
    assert graph.interval(850_000) == (450_000, 1_650_000)


def test_a_small_step_is_bound_by_the_host_and_that_is_said() -> None:
    trace = shipped("llama-1b-decode")
    a100 = with_numbers(catalogue.load("a100-sxm4-80gb"), {"launch.eager": 10_000.0})
    found, free = (
        study(trace, [each], (remedies.AS_IT_IS,))
        for each in (a100, with_numbers(a100, {"launch.eager": 0.0, "launch.submit": 0.0}))
    )
    (bound,), (fast,) = found.answers, free.answers
    assert bound.bar.host_bound and not fast.bar.host_bound
    assert bound.free_ns is not None and fast.free_ns is not None
    assert bound.free_ns >= 0.99 * bound.bar.host_ns and fast.free_ns < bound.free_ns
    said = [remark for remark in report.remarks(found) if "bound by the host" in remark]
    assert len(said) == 1 and f"{bound.bar.operators:,} operators" in said[0]
    assert not [remark for remark in report.remarks(free) if "bound by the host" in remark]


def test_every_time_has_its_interval_and_every_assumption_is_named() -> None:
    trace = shipped("gpt2-small-train")
    found = study(trace, [catalogue.load("h100-sxm-80gb")], (remedies.AS_IT_IS,), settings=AllocatorSettings(context=2**30))
    values = report.values(found)
    way = values["machines"][0]["ways"][0]
    times = modelled_durations(trace, catalogue.load("h100-sxm-80gb"))
    assert (way["low_ns"], way["high_ns"]) == step_bar(trace, times, catalogue.load("h100-sxm-80gb")).interval(way["step_ns"])
    assert way["low_ns"] < way["step_ns"] < way["high_ns"]
    assert way["basis"] == "estimated"
    row = report.rows(found)[0]
    assert " to " in row["step, estimated"]
    assert values["machines"][0]["capacity_bytes"] == catalogue.load("h100-sxm-80gb").memory.capacity.value - 2**30
    said = {one["what"]: one for one in values["assumptions"]}
    assert said["program"]["value"] == "as recorded"
    assert said["allocator"]["usual"] and not said["context"]["usual"]


@pytest.mark.slow
def test_the_verb_prints_the_answer_and_leaves_it(tmp_path: Path) -> None:
    out = tmp_path / "fit"
    done = CliRunner().invoke(
        app, ["fit", "gpt2-small-train", "--on", "h100-sxm-80gb,rtx-2080-ti", "-o", str(out), "--format", "png"]
    )
    assert done.exit_code == 0, done.output
    assert "gpt2-small-train needs" in done.output
    assert "16 bytes for each of 124,4" in done.output
    assert "program: as recorded, attention, optimizer, gradients, types and checkpointing" in done.output
    assert "Every time is estimated" in done.output
    assert (out / "fit.png").read_bytes()[:4] == b"\x89PNG"
    values = json.loads((out / "fit.json").read_text())
    assert {m["profile"] for m in values["machines"]} == {"h100-sxm-80gb", "rtx-2080-ti"}
    assert values["reserved_bytes"] == sum(values["at_peak"].values())


@pytest.mark.slow
def test_the_figure_shows_what_is_reserved_of_each_memory() -> None:
    trace = shipped("gpt2-small-train")
    n = need(transforms.apply(trace, "checkpointing"))
    machines = [with_memory(40 * 2**30), with_memory(n.reserved), with_memory(2**30)]
    values = report.values(study(trace, machines, (remedies.FitRemedy(), remedies.FitRemedy("checkpointing"))))
    for m, name in zip(values["machines"], ("large", "medium", "small"), strict=True):
        m["profile"] = name
    drawn = figure.draw(values)
    full, times = drawn.axes[1:]
    room = {m["profile"]: m["capacity_bytes"] for m in values["machines"]}
    share = {line.get_gid(): float(line.get_xdata()[0]) for line in full.lines if line.get_gid()}
    needed = need(trace).reserved
    assert share["reserved:large"] == pytest.approx(needed / room["large"]) and share["reserved:large"] < 1
    assert share["reserved:medium"] == pytest.approx(values["machines"][1]["ways"][0]["reserved_bytes"] / room["medium"])
    assert share["needed:medium"] == pytest.approx(needed / room["medium"]) and share["needed:medium"] > 1
    assert share["needed:small"] == pytest.approx(needed / room["small"]) and "reserved:small" not in share
    interval = next(line for line in times.lines if line.get_gid() == "time:large").get_xdata()
    way = values["machines"][0]["ways"][0]
    assert list(interval) == [way["low_ns"], way["high_ns"]]
    words = {text.get_gid(): text.get_text() for text in times.texts}
    assert [words[f"answer:{name}"] for name in room] == ["", "checkpointing", "nothing that was tried"]


@pytest.mark.slow
@pytest.mark.parametrize(("words", "says"), [
    (["fit"], "say what is to fit"),
    (["fit", "a", "b"], "not 2"),
    (["fit", "gpt2-smal-train"], "gpt2-small-train"),
    (["fit", "gpt2-small-train", "--on", "h100"], "h100"),
    (["fit", "gpt2-small-train", "--try", "checkpoint"], "checkpointing"),
    (["fit", "gpt2-small-train", "--try", "swaping"], "did you mean 'swapping'"),
    (["fit", "gpt2-small-train", "--batch", "4"], "'--batch' is no option of fit"),
    (["fit", "gpt2-small-train", "--allocator", "expandable_segment:True"], "expandable_segment"),
    (["fit", "--zoo", "gpt2-smal"], "did you mean 'gpt2-small'"),
    (["fit", "--zoo", "gpt2-small", "--batch", "0"], "not a whole number from 1"),
    (["fit", "--zoo", "gpt2-small", "--seq", "4096"], "has 1,024 positions"),
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


def _fit(tmp_path: Path, *words: str) -> str:
    done = CliRunner().invoke(app, ["fit", *words, "-o", str(tmp_path / "fit"), "--no-figures"])
    assert done.exit_code == 0, done.output
    return str(done.stdout)


@pytest.mark.slow
def test_what_was_to_be_tried_is_said_where_the_program_fits_without_it(tmp_path: Path) -> None:
    said = _fit(tmp_path, "gpt-medium-infer", "--on", "h100-sxm-80gb,l4", "--try", "swapping")
    assert "\nNothing was tried on h100-sxm-80gb and l4: the program fits as it is. `gpusim advise` tries" in said
    assert "Nothing was tried" not in _fit(tmp_path, "gpt-medium-infer", "--on", "l4")


@pytest.mark.slow
def test_as_many_gpus_are_tried_as_the_machine_has(tmp_path: Path) -> None:
    said = _fit(tmp_path, "llama-1b-train", "--on", "4 x a100-sxm4-80gb(memory.capacity=14 GiB)")
    table = said[said.index("As one of several GPUs, whose peers are not simulated:") :]
    assert "No machine with 4 a100-sxm4-80gb is in the catalogue" in said, "this one has another memory"
    assert "ranks=4" in table and "ranks=8" not in said
    assert "4 x rtx-2080-ti do not help: the profile names no links between GPUs." in _fit(
        tmp_path, "llama-1b-train", "--on", "4 x rtx-2080-ti"
    )


def again(said: str, tmp_path: Path) -> Any:
    """The run that the answer's command makes."""
    (line,) = (line for line in said.splitlines() if line.startswith("  gpusim run"))
    done = CliRunner().invoke(app, [*shlex.split(line)[1:], "-o", str(tmp_path / "again"), "--no-figures"])
    assert done.exit_code == 0, done.output
    (run,) = load_folder(tmp_path / "again")
    return run


@pytest.mark.slow
def test_the_step_of_a_request_over_several_gpus_is_its_last_token_as_on_one(tmp_path: Path) -> None:
    """And not the mean over prompt and tokens, which is longer than a token on one GPU."""
    said = _fit(tmp_path, "llama-1b-decode", "--on", "4x-a10", "--no-figures")
    found = json.loads((tmp_path / "fit" / "fit.json").read_text())
    (layout,) = found["ranks"][0]["layouts"]
    assert layout["of"] == "step" and "a step, estimated" in said and "a step takes an estimated" in said
    assert layout["low_ns"] <= layout["batch_ns"] < found["machines"][0]["ways"][0]["step_ns"]


@pytest.mark.slow
@pytest.mark.agreement
@pytest.mark.parametrize(("on", "options"), [
    ("4x-a10", ()), ("4 x a10", ("--allocator", "expandable_segments:True", "--context", "15 GiB")),
])  # fmt: skip
def test_layouts_over_a_machine_are_those_that_their_command_runs(on: str, options: tuple[str, ...], tmp_path: Path) -> None:
    said = _fit(tmp_path, "gpt2-small-train", "--on", on, *options)
    found = json.loads((tmp_path / "fit" / "fit.json").read_text())
    (machine,) = found["ranks"]
    best, run = machine["layouts"][0], again(said, tmp_path)
    assert machine["machine"] == "4x-a10" and len(machine["layouts"]) == 4 and len(run.ranks) == 4
    assert (run.spec["parallel"], run.spec["transform"]) == (best["layout"], best["chain"])
    assert (run.metrics["batch_ns"], run.metrics["reserved_peak_bytes"]) == (best["batch_ns"], best["reserved"])
    held = [rank.metrics["reserved_peak_bytes"] for rank in run.ranks]
    assert held[best["rank"]] == max(held) <= machine["capacity_bytes"] == run.spec["capacity"]
    assert best["low_ns"] <= best["batch_ns"] <= best["high_ns"] and best["batch_ns"] == min(
        one["batch_ns"] for one in machine["layouts"] if one["fits"]
    )
    assert f"It fits 4 GPUs of 4x-a10 as {best['layout']}" in said
    if options:  # 7 GiB on each: where a rank has whole layers and batches, too little for the activations
        assert {one["layout"]: one["chain"] for one in machine["layouts"]} == {
            "data=4 zero=2": "checkpointing", "data=4 zero=3": "checkpointing", "pipeline=4 microbatches=16": "none",
            "tensor=4": "none",
        }  # fmt: skip


@pytest.mark.slow
def test_what_a_user_names_is_divided_as_it_says(tmp_path: Path) -> None:
    said = _fit(tmp_path, "gpt2-small-train", "--on", "4x-a10", "--try", "checkpointing | zero(stage=3,ranks=4)", "--try",
                "tensor_parallel(ranks=2) | offload")  # fmt: skip
    (machine,) = json.loads((tmp_path / "fit" / "fit.json").read_text())["ranks"]
    assert {one["layout"]: one["chain"] for one in machine["layouts"]} == {
        "data=4 zero=3": "checkpointing", "tensor=2": "offload",
    }  # fmt: skip
    assert "peers are not simulated" not in said


@pytest.mark.slow
def test_a_layout_that_does_not_fit_says_what_is_alive(tmp_path: Path) -> None:
    said = _fit(tmp_path, "llama-1b-train", "--on", "2x-rtx-3090-nvlink", "--context", "21 GiB")
    assert "It fits 2 GPUs of 2x-rtx-3090-nvlink in no layout that was tried." in said
    assert " are alive at once on a rank" in said and "gpusim run" not in said


def test_a_remedy_with_what_ranks_do_not_have_is_refused(tmp_path: Path) -> None:
    words = ["fit", "gpt2-small-train", "--on", "4x-a10", "--try", "zero(stage=3, ranks=4, bucket=1 MiB)", "-o", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "is simulated with all its ranks, which have no 'bucket'" in done.stderr


def test_of_machines_with_a_gpu_the_smallest_with_the_fastest_links_is_taken() -> None:
    known = {name: machine_with(catalogue.load(name), gpus) for name, gpus in
             (("h100-sxm-80gb", 8), ("a100-pcie-80gb", 4), ("b200-sxm", 16), ("l40s", 2))}  # fmt: skip
    named = {name: machine.name if machine else None for name, machine in known.items()}
    assert named == {
        "h100-sxm-80gb": "hgx-h100", "a100-pcie-80gb": "4x-a100-pcie-pairs", "b200-sxm": None, "l40s": None,
    }, "the machine of 16 B200 is an estimate"  # fmt: skip
    assert machine_with(changed(catalogue.load("h100-sxm-80gb"), "memory.capacity", 2**30), 8) is None


def test_a_remedy_for_more_gpus_than_there_are_is_refused(tmp_path: Path) -> None:
    words = ["fit", "gpt-medium-infer", "--on", "2 x l4", "--try", "zero(stage=3,ranks=4)", "-o", str(tmp_path)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 2 and "takes 4 GPUs, and 2 are there (write ranks=2)" in done.stderr
