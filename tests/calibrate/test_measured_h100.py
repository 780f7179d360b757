"""Does the simulator give back what one H100 did: whole steps, peaks, kernel times, copies on several streams?"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import median

import pytest

from gpusim.calibrate import rows
from gpusim.calibrate.compare.score import compare as compare_rows
from gpusim.calibrate.kernel_times.recorded import FITTED, recordings, text
from gpusim.calibrate.steps.compare import KERNELS, PEAK, RESERVED, STEP, Found, compare
from gpusim.calibrate.steps.page import FOLDER, MACHINE, tables
from gpusim.calibrate.steps.recording import OFFLOAD, PREFETCH, RESIDENT, read
from gpusim.machine import catalogue
from gpusim.machine.kernels.classes import kernels
from gpusim.machine.kernels.durations import modelled_durations
from gpusim.machine.kernels.store import DATA
from gpusim.programs.record.join import Seen, join
from gpusim.programs.record.tape import Operator
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace

DOCUMENT = Path(__file__).parents[2] / "docs" / "measured_h100.md"


@cache
def found() -> list[Found]:
    return compare(FOLDER, catalogue.load(MACHINE))


def errors(what: str, *ways: str) -> list[float]:
    return [abs(f.error) for f in found() if f.what == what and (not ways or f.way in ways)]


def test_whole_steps_are_as_long_as_measured() -> None:
    """Of 22 steps; the ones above 10 % wait for their host, and are in the document."""
    assert len(errors(STEP)) == 22
    assert median(errors(STEP)) < 0.05
    assert max(errors(STEP, PREFETCH)) < 0.10 and max(errors(STEP, OFFLOAD)) < 0.18 and max(errors(STEP, RESIDENT)) < 0.20


def test_peaks_are_those_of_pytorch() -> None:
    assert max(errors(PEAK)) < 0.003
    assert max(errors(RESERVED)) < 0.06


def test_the_model_of_kernel_times_is_within_a_tenth_of_the_kernels() -> None:
    assert max(errors(KERNELS)) < 0.11
    assert median(errors(KERNELS)) < 0.06


def test_shares_of_the_bandwidth_are_what_the_fitted_recordings_say_again() -> None:
    assert (DATA / "recorded.yaml").read_text() == "\n".join(text(FOLDER, catalogue.load(MACHINE))) + "\n", (
        "python -m gpusim.calibrate.kernel_times fit-recorded"
    )


def test_kernels_that_move_bytes_are_right_in_recordings_that_were_not_fitted() -> None:
    traces, off = recordings(FOLDER), dict[str, list[float]]()
    for name in set(traces) - set(FITTED):
        times = modelled_durations(traces[name], catalogue.load(MACHINE))
        for what in ("pointwise", "cast", "optimizer", "batch_norm backward", "layer_norm backward"):
            if what in times.classes and (at := times.what == times.classes.index(what)).any():
                of = off.setdefault(what, [0.0, 0.0])
                of[0] += times.ns[at].sum()
                of[1] += traces[name].duration[at].sum()
    assert len(off) == 5
    assert {what: round(made / took, 2) for what, (made, took) in off.items() if abs(made / took - 1) > 0.25} == {}


def test_the_document_has_these_tables() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for table in tables(found()):
        assert table in text, "python -m gpusim.calibrate.steps prints them"


def test_copies_on_several_streams_share_the_link() -> None:
    measured = [r for r in rows.read(FOLDER.parent / "rows.csv") if "-streams/" in r.series_id]
    done = compare_rows(measured, catalogue.load(MACHINE), (), measured[0].gpu)
    points = [point for series in done.compared for point in series.points]
    assert len(points) == 6
    assert all(point.error < 0.03 for point in points)


def test_every_recording_is_one_of_these_conditions() -> None:
    conditions, steps = read(FOLDER)
    assert conditions["gpu"] == "NVIDIA H100 80GB HBM3" and conditions["driver"] == "580.159.04"
    assert sum(bool(step.trace) for step in steps) == 9


@pytest.mark.parametrize(
    ("shape", "issue"),
    [
        ("4096x768 768x50304 -> 4096x50304", 0.0),
        ("4096x768 768x50257 -> 4096x50257", 364.0),
        ("4096x768 768x50257 -> 4096x50257 | layout=contiguous,1x0,contiguous", 364.0),
        ("4096x50257 50257x768 -> 4096x768", 547.0),
        ("50257x4096 4096x768 -> 50257x768 | layout=1x0,contiguous,contiguous", 547.0),
        ("50257x4096 4096x768 -> 50257x768", 0.0),
        ("4096x1024 1024x30522 -> 4096x30522", 980.0),
        ("1x768 768x50257 -> 1x50257", 0.0),
    ],
)
def test_rows_between_8_byte_boundaries_bound_a_product(shape: str, issue: float) -> None:
    """The contiguous side of an operand or of the result decides; a product with one row has no tiles."""
    (kernel,) = kernels("aten.mm.default", "bfloat16", shape, 1e9, 1e6, 1e6)
    assert kernel.issue == issue
    (single,) = kernels("aten.mm.default", "float32", shape, 1e9, 1e6, 1e6)
    assert single.issue == 0


def test_a_product_of_odd_rows_takes_what_its_loads_allow() -> None:
    """flops / (364 a clock and processor x 132 x 1.98 GHz): 3.3 ms, and what the other terms add to it."""
    trace = load_trace(FOLDER / "gpt2-small-batch-4.npz")
    at = next(o for o in range(trace.ops) if trace.shapes[trace.shape[o]].startswith("4096x768 768x50257"))
    bound = float(trace.flops[at]) / (364 * 132 * 1.98)
    assert bound == pytest.approx(trace.duration[at], rel=0.01)
    assert bound < modelled_durations(trace, catalogue.load(MACHINE)).ns[at] < 1.1 * bound


def test_a_loss_reads_one_score_for_each_target() -> None:
    shape = "1000x50257 1000 - -> scalar scalar"
    (forward,) = kernels("aten.nll_loss_forward.default", "float32", shape, 0.0, 201_036_000.0, 8.0)
    (backward,) = kernels("aten.nll_loss_backward.default", "float32", shape, 0.0, 402_072_000.0, 201_028_000.0)
    assert (forward.what, forward.moved) == ("reduce", 16_008.0)
    assert (backward.what, backward.moved) == ("fill", 201_028_000.0)


def snapshot() -> TraceBuilder:
    """Two tensors that a watched host allocated 5 ms apart."""
    builder = TraceBuilder("watched")
    builder.alloc(512, time=1_000_000, addr=0)
    builder.alloc(512, time=6_000_000, addr=512)
    return builder


def test_a_watched_host_s_times_are_shortened_or_left_out() -> None:
    operator = Operator("aten.relu.default", [0], [512], 512, 512, 0, "float32", "", 0)
    seen = [Seen(2, operator)]
    plain = join(snapshot().finish(), seen, {0: 100})
    assert plain.time.tolist() == [-1, -1, -1] and plain.meta["lacks"] == ["host times"]
    paced = join(snapshot().finish(), seen, {0: 100}, issue_ns=500_000)
    assert paced.time.tolist() == [0, 500_000, -1] and paced.meta["lacks"] == []


def test_attention_with_fewer_heads_of_keys_is_counted_as_with_all() -> None:
    torch = pytest.importorskip("torch")
    from gpusim.programs.record.flops import flops

    query, key = torch.empty(2, 8, 128, 64, device="meta"), torch.empty(2, 2, 128, 64, device="meta")
    func = torch.ops.aten._scaled_dot_product_flash_attention.default
    assert flops(func, (query, key, key), {}, (query,)) == 2 * 2 * (2 * 8 * 128 * 128 * 64)
