"""Are the numbers that figures show those of the results, and of the formulas that they stand for?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hand_worked import play, three_tensors_in_two_blocks
from made_results import GIB, MS, run, sweep

from gpusim.machine.catalogue import load
from gpusim.results.activities import activities
from gpusim.results.sampled import Sampled
from gpusim.show import figures
from gpusim.show.page import content
from gpusim.show.programs import RanProgram
from gpusim.show.values import distribution as profile_values
from gpusim.show.values import durations as duration_values
from gpusim.show.values import pareto as trades
from gpusim.show.values import roofline as roofs
from gpusim.show.values.breakdown import IDLE, answer, breakdown
from gpusim.show.values.comparison import comparison, ratios
from gpusim.show.values.distribution import cumulative, profiles
from gpusim.show.values.durations import durations
from gpusim.show.values.heat import LINES, heat
from gpusim.show.values.pareto import front, pareto
from gpusim.show.values.roofline import Roofline, RooflinePoint, roofline
from gpusim.show.values.swimlane import busiest, swimlanes
from gpusim.trace.build import TraceBuilder
from gpusim.trace.files import load_trace

ROOT = Path(__file__).parents[2]


def found(figure, gid):
    return figure.findobj(lambda artist: artist.get_gid() == gid)


# --- policies


def test_ratios_are_to_the_best_of_the_place_that_is_no_oracle():
    """At 4 GiB: belady 1.4, sieve 1.6, lru 2.0; the oracle is below 1."""
    found = comparison(sweep())
    at = {name: line[0] for name, line in ratios(found.panels[0], found.metric).items()}
    assert at["sieve"].value == 1.0
    lru, belady, random = (at[name] for name in ("lru", "belady", "random"))
    points = {line.name: line.points[0].value for line in found.panels[0].lines}
    assert lru.value == pytest.approx(points["lru"] / points["sieve"]) and lru.value > 1
    assert belady.value == pytest.approx(points["belady"] / points["sieve"]) and belady.value < 1
    assert random.value is None and random.ending == "out of memory"


def test_the_interval_of_a_ratio_is_over_the_same_machines():
    """Both twice as slow on the second machine: the ratio does not move, though each of the two does."""
    fast, slow = run("lru", slowdown=1.0), run("fifo", slowdown=1.5)
    fast, slow = (
        replace(r, sampled=Sampled(values={"makespan_ns": [t, 2 * t]}, pushed={}, given=1, assumed=0, estimated=0.1))
        for r, t in ((fast, 100.0), (slow, 150.0))
    )
    there = ratios(comparison([fast, slow], "makespan_ns").panels[0], "makespan_ns")
    assert there["fifo"][0].interval == pytest.approx((1.5, 1.5))
    (point,) = next(line for line in comparison([fast, slow], "makespan_ns").panels[0].lines if line.name == "fifo").points
    assert point.interval == pytest.approx((165.0, 285.0))


def test_intervals_of_dots_and_of_the_best_are_drawn():
    """Six policies on two sampled machines; the first is the best, 100 and 200 ms."""
    runs = [
        replace(
            run(f"policy_{i}", m, 1.0 + i / 10),
            sampled=Sampled(values={"makespan_ns": [(100.0 + 10 * i) * MS, (200.0 + 30 * i) * MS]}, pushed={}, given=1,
                            assumed=0, estimated=0.1),
        )
        for i in range(6) for m in (4 * GIB, 8 * GIB)
    ]  # fmt: skip
    figure = figures.draw("policy_comparison", runs, metric="makespan_ns")
    assert [list(line.get_ydata()) for line in found(figure, "interval:best")] == [pytest.approx([110.0, 190.0])] * 2  # ms
    dots = found(figure, "interval:policy_2")
    assert [list(line.get_xdata()) for line in dots] == [pytest.approx([1.21, 1.29])] * 2  # between 1.2 and 1.3


def test_throughput_is_better_when_higher():
    runs = [replace(run(e), metrics={"makespan_ns": MS, "touched_per_s": v}) for e, v in (("lru", 8.0), ("fifo", 2.0))]
    there = ratios(comparison(runs, "touched_per_s").panels[0], "touched_per_s")
    assert (there["lru"][0].value, there["fifo"][0].value) == (1.0, 4.0)


def test_many_policies_are_dots_of_their_ratios_with_the_bound_above():
    names = [f"policy_{i}" for i in range(8)]
    runs = [run(name, m, 1.5 + i / 20 + 4 * GIB / m) for i, name in enumerate(names) for m in (4 * GIB, 8 * GIB)]
    for r in runs:
        r.spec["rates"] = {"h2d": 10 * GIB}
    figure = figures.draw("policy_comparison", runs)
    dots = found(figure, "dot:policy_3")
    assert sorted(float(d.get_xdata()[0]) for d in dots) == pytest.approx(sorted([2.65 / 2.5, 2.15 / 2.0]))
    assert len(found(figure, "best")) == 2 and len(found(figure, "range")) == 1  # the level of 1, and the best line
    (bound,) = found(figure, "bound:least")
    assert bound.get_ydata() == pytest.approx([1.0, 1.0])  # 1 GiB at 10 GiB/s are the 100 ms without a limit


def test_parts_of_a_run_sum_to_its_makespan():
    one = breakdown(run("lru", slowdown=1.8))
    assert sum(one.parts.values()) == pytest.approx(one.total) == 180 * MS
    assert one.parts["kernels run"] == 90 * MS and one.parts[IDLE] == 0 and one.no_limit == 100 * MS


def test_what_a_program_loses_beside_others_is_in_its_kernels():
    alone, beside = (run("lru", slowdown=1.0), run("lru", slowdown=1.8))
    for one, name in ((alone, "exclusive"), (beside, "mps")):
        one.spec.update(beside="other", tenancy=name)
    beside.metrics["compute_busy_ns"] += 70 * MS
    said = answer([alone, beside], ["tenancy"])
    assert said.startswith("In the fastest run, exclusive, kernels run")
    assert "The slowest, mps, loses 70 ms in slower kernels" in said


# --- two axes, trades, places


def test_a_heat_map_has_a_cell_per_combination_and_frames_the_best():
    made = heat(sweep())
    assert made.down == LINES and made.across == "memory"
    assert made.columns == ("4 GiB", "6 GiB", "8 GiB", "10 GiB")
    cells = dict(zip(made.rows, made.panels[0].cells, strict=True))
    assert cells["sieve"][0].value == pytest.approx(1.6)
    assert cells["random"][0].value is None and cells["random"][0].ending == "out of memory"
    assert made.rows[made.panels[0].best[0]] == "sieve" and cells["belady"][0].oracle
    figure = figures.draw("heat_map", sweep())
    assert found(figure, "cell:sieve:4 GiB") and found(figure, "failed:random:4 GiB") and len(found(figure, "best:0")) == 1


def test_a_front_keeps_what_no_other_beats_in_both():
    class At:
        def __init__(self, memory, value):
            self.memory, self.value = memory, value

    points = [At(1, 9), At(2, 5), At(2, 6), At(3, 5), At(4, 1), At(None, 0)]
    assert [(p.memory, p.value) for p in front(points)] == [(1, 9), (2, 5), (4, 1)]
    assert [(p.memory, p.value) for p in front(points, sign=-1)] == [(1, 9)]


def test_the_front_of_runs_has_no_oracles_and_no_failures():
    panel = pareto(sweep()).panels[0]
    assert {p.line for p in panel.front}.isdisjoint({"belady"}) and panel.failed == {"out of memory": 1}
    assert [p.value for p in panel.front] == sorted((p.value for p in panel.front), reverse=True)
    figure = figures.draw("pareto", sweep())
    (line,) = found(figure, "front")
    assert list(line.get_xdata()) == pytest.approx([p.memory / GIB for p in panel.front])


def test_the_front_says_its_ends():
    """lru and fifo at two sizes: least memory is fifo's, the least slowdown lru's; a third run lies behind both."""
    results = [run("fifo", 4 * GIB, 2.0), run("lru", 8 * GIB, 1.2), run("fifo", 8 * GIB, 1.4)]
    said = "Least memory: fifo · 4 GiB (4 GiB, 2.00×); fastest: lru · 8 GiB (8 GiB, 1.20×); 2 of 3 runs are on the front."
    assert trades.answer(pareto(results)) == said
    assert trades.answer(pareto(results[:1])) == "fifo (4 GiB, 2.00×) needs least memory and is fastest."
    assert trades.answer(pareto([run(outcome="oom")])) == ""


def test_a_profile_names_the_most_often_best_and_the_never_far():
    """Of four places lru is best in two and fails in one; fifo is best in one, and within 1.5x everywhere."""
    oracle = cumulative("all", [1.0] * 4, oracle=True)
    lines = [cumulative("lru", [1.0, 1.0, 3.0], 4), cumulative("fifo", [1.0, 1.2, 1.3, 1.5]), oracle]
    said = "lru is best or within 1 % of it in 50 % of the places."
    assert profile_values.answer(lines) == f"{said} fifo is never further away than 1.5×."
    assert profile_values.answer(lines[:1]) == f"{said} None finishes in all of them." and profile_values.answer([]) == ""


def test_durations_are_said_of_one_run():
    """The second panel begins with another run, of which nothing is said."""
    a, b = cumulative("a", [1000.0] * 99 + [5000.0]), cumulative("b", [7.0])
    panels = {"kernels": [a, b], "swaps in": [b], "stalls": [a]}
    words = "half within 1 us, 99 % within 1 us"
    assert duration_values.answer(panels) == f"a: kernels: {words}; stalls: {words}."
    assert duration_values.answer({"kernels": [a]}) == f"Kernels: {words}." and duration_values.answer({}) == ""


@pytest.mark.parametrize("name", ["pareto", "distribution"])
def test_page_and_picture_say_the_same(name):
    results = sweep() + [replace(one, spec={**one.spec, "profile": "H100"}) for one in sweep()]
    chart = content.charts([results])[name]
    said = " ".join(" ".join(text.get_text() for text in figures.draw(name, results).texts).split())
    assert chart["answer"] and chart["answer"] in said


def test_a_performance_profile_counts_failures_as_never():
    """Four memory sizes; random fails in one of them, so its line ends at three quarters."""
    lines = {line.name: line for line in profiles(sweep())}
    assert lines["random"].shares[-1] == pytest.approx(0.75) and lines["random"].count == 4
    assert lines["sieve"].quantile(1.0) == 1.0
    assert lines["lru"].quantile(0.25) == min(lines["lru"].values)


def test_a_quantile_is_the_value_that_a_share_does_not_exceed():
    line = cumulative("x", [5.0, 1.0, 3.0, 9.0])
    assert [line.quantile(q) for q in (0.25, 0.5, 0.75, 1.0)] == [1.0, 3.0, 5.0, 9.0]
    assert cumulative("x", [1.0, 2.0], count=4).quantile(0.9) is None


# --- operators


def test_a_roofline_has_flops_bytes_and_time_of_each_operator():
    """A product of 1024 x 1024 matrices in bfloat16, twice, and an addition that has no flops."""
    build = TraceBuilder("two kinds")
    a, b, c = (build.alloc(2 << 20, "fwd") for _ in range(3))
    both = {"read_bytes": 4 << 20, "written_bytes": 2 << 20, "dtype": "bfloat16"}
    for _ in range(2):
        build.op("aten.mm.default", [a, b], [c], flops=2.0 * 1024**3, **both)
    build.op("aten.add.Tensor", [a, b], [c], **both)
    trace, profile = build.finish(), load("a100-pcie-80gb")
    made = roofline(trace, profile)
    (product,) = made.of_flops(with_flops=True)
    (add,) = made.of_flops(with_flops=False)
    assert product.count == 2 and product.flops == 2.0 * 1024**3 and product.moved == 6 << 20
    assert add.moved == 6 << 20 and product.share + add.share == pytest.approx(1.0)
    assert list(made.peak) == ["bf16"] and made.peak["bf16"] == pytest.approx(312e12)
    assert product.flops / (product.ns * 1e-9) < made.peak["bf16"]
    assert product.low <= product.ns <= product.high
    figure = figures.draw("roofline", [run()], ran=[RanProgram(trace, profile)])
    assert found(figure, "roof:bf16") and found(figure, "roof:memory") and found(figure, "name:aten.mm.default")


def test_a_roofline_says_what_binds_and_what_takes_most():
    def point(name, share, bound):
        return RooflinePoint(name, "float32", "fp32", 1, 1.0, 1.0, 1.0, 1.0, 1.0, share, bound)

    found = (("aten.mm.default", 0.5, "compute"), ("aten.add.Tensor", 0.3, "memory"), ("aten.mm.default", 0.2, "launch"))
    points = tuple(point(*one) for one in found)
    one = Roofline("gpt2", "A100", {}, {}, 1.0, 1.0, points)
    said = "50 % of the kernel time is bound by arithmetic; mm takes most, 70 %."
    assert roofs.answer([one]) == said and roofs.answer([one, one]) == f"gpt2 on A100: {said}" and roofs.answer([]) == ""


def test_the_roof_is_that_of_the_format_in_which_an_operator_computes():
    """float32 convolutions run as TF32 unless PyTorch's switch is off, products in fp32."""
    made = roofline(load_trace(ROOT / "traces/resnet50-train.npz"), load("a100-pcie-40gb"))
    assert set(made.peak) == set(made.achieved) == {"fp32", "tf32"} and made.peak["tf32"] == pytest.approx(156e12)
    points = made.of_flops(with_flops=True)
    assert {p.computed for p in points if "convolution" in p.name} == {"tf32"}
    assert {p.computed for p in points if "mm" in p.name} == {"fp32"}
    assert all(p.flops / (p.ns * 1e-9) < made.peak[p.computed] for p in points)


# --- timelines


@pytest.fixture(scope="module")
def logged():
    steps = three_tensors_in_two_blocks()
    return play(steps, blocks=2), steps.trace()


def test_a_swimlane_is_as_busy_as_its_lanes(logged):
    """Kernels from 0 to 2000, 3280 to 3780 and 7584 to 8284 ns, in columns of 1000."""
    rows = activities(*logged)
    made = swimlanes(rows, 9, 0, 9000)
    lane = [name for name, _ in made.lanes].index("stream 0")
    kernels = made.busy[lane, made.classes.index("kernel")]
    assert kernels == pytest.approx([1, 1, 0, 0.5, 0, 0, 0, 0.416, 0.284])
    stalls = [name for name, _ in made.lanes].index("stream 0: stalls")
    lost = {name: made.busy[stalls, k].sum() * 1000 for k, name in enumerate(made.classes) if name.startswith("waits")}
    assert lost == pytest.approx({"waits for swap-out": 1280 + 1780, "waits for swap-in": 2024})
    assert made.busy.max() <= 1.0


def test_the_span_that_is_enlarged_is_where_most_is_waited_for(logged):
    start, end = busiest(activities(*logged), 2000)
    assert 3500 <= start <= 5600 and end - start == 2000


def test_durations_are_those_of_the_rows(logged):
    made = durations([("a", activities(*logged))])
    assert made["kernels"][0].values.tolist() == [500, 700, 1000, 1000]
    assert made["stalls"][0].values.tolist() == [1280, 1780, 2024]
    assert made["swaps in"][0].count == 1 and made["swaps out"][0].count == 2


@pytest.mark.parametrize("name", ["swimlane", "durations"])
def test_figures_of_a_log_draw_its_program(logged, name):
    result, trace = logged
    figure = figures.draw(name, [result], ran=[RanProgram(trace, None)])
    figure.canvas.draw()
    assert found(figure, "lanes") if name == "swimlane" else found(figure, "line:run") or figure.axes[0].lines
    without = figures.draw(name, [replace(result, log=None)], ran=[RanProgram(trace, None)])
    (said,) = found(without, "empty")
    assert said.get_text() == "No run kept its event log: --log keeps it."


def test_a_long_timeline_is_drawn_from_columns():
    """A million rows take no more space than the columns of the picture."""
    from gpusim.results.activities import ROW, Activities, ActivityLane

    rows = np.zeros(1_000_000, ROW)
    rows["start"] = np.arange(1_000_000) * 10
    rows["end"] = rows["start"] + 5
    made = swimlanes(Activities(rows, (ActivityLane("stream 0", "stream"),), ("k",)), 500)
    assert made.busy.shape == (1, 1, 500) and made.busy == pytest.approx(0.5, abs=1e-3)
