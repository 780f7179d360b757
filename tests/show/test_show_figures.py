"""Do the figures show the numbers of the results, every run in its place, and the same bytes every time?"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from made_results import GIB, MS, faulting, heap_log, ranked, run, sweep
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex, to_rgba
from matplotlib.ft2font import FT2Font
from matplotlib.text import Text

from gpusim.base.errors import ResultError
from gpusim.results.log import OOM
from gpusim.show import figures, font
from gpusim.show.figure import address_map, fault_map
from gpusim.show.steps import visible
from gpusim.show.style import looks


def found(figure, gid):
    """The artists of that name."""
    return figure.findobj(lambda artist: artist.get_gid() == gid)


def words(figure):
    return [t.get_text() for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]


def header(figure, gid):
    return " ".join(t.get_text() for t in found(figure, gid))


def failed_runs():
    return [run("lru", outcome="oom", log=heap_log()), run("fifo", outcome="host_oom", log=heap_log())]


def allocators():
    return [
        run(place=place, slowdown=1.0, timeline=True, log=heap_log(), outcome="oom" if place == "buddy" else "finished")
        for place in ("best_fit", "buddy", "pytorch", "mine")
    ]


def oversubscribed(*machines):
    """The driver and one alternative on machines, from memory for twice the data to a third of it."""
    return [
        run("lru", round(8 * GIB * share), 1 + cost * max(0.0, 1 / share - 1), unified=word, profile=m, memory_share=share)
        for m in machines
        for word, cost in (("driver", 4.0), ("driver(evict=lru)", 9.0))
        for share in (2.0, 1.0, 0.5, 0.25)
    ]


GROUPS = {
    "none": [],
    "one": [run(log=heap_log(), slowdown=1.0)],
    "failed": failed_runs(),
    "many": sweep(profile="A100") + sweep(profile="H100", trace="bert"),
    "allocators": allocators(),
    "faulting": [faulting(profile=name) for name in ("A100", "T4")],
    "unified": oversubscribed("A100", "GH200"),
    "ranked": [ranked(link_bytes={"gpu0>gpu3": 10**6})],
    "bare": [run(timeline=False), run("fifo", timeline=False)],
}


@pytest.mark.slow
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", figures.FIGURES)
def test_every_figure_draws_any_number_of_runs_in_readable_print(name, group):
    figure = figures.draw(name, GROUPS[group])
    figure.canvas.draw()
    sizes = [t.get_fontsize() for t in figure.findobj(Text) if t.get_text().strip() and t.get_visible()]
    assert sizes and min(sizes) >= 8
    assert figure.dpi * figure.get_figwidth() == pytest.approx(1200)
    assert figure.dpi * figure.get_figheight() >= 180


@pytest.mark.slow
@pytest.mark.parametrize("name", ["policy_comparison", "time_breakdown", "traffic"])
@pytest.mark.parametrize("count", [1, 2, 12])
def test_a_figure_is_as_high_as_its_bars_need(name, count):
    figure = figures.draw(name, [run(f"policy_{i}", slowdown=1.2 + i / 8) for i in range(count)])
    (panel,) = figure.axes
    figure.canvas.draw()
    assert panel.get_ylim() == (count - 0.4, -0.6)
    row = panel.get_window_extent().height / figure.dpi / count
    assert 0.2 < row < 0.5  # inches


@pytest.mark.slow
@pytest.mark.parametrize("name", figures.FIGURES)
def test_no_legend_lies_over_a_panel_and_no_text_leaves_the_figure(name):
    others = {
        "fragmentation": "allocators", "address_map": "allocators", "oversubscription": "unified", "fault_map": "faulting",
        "links": "ranked", "ranks_memory": "ranked",
    }  # fmt: skip
    figure = figures.draw(name, GROUPS[others.get(name, "many")])
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    legends = [a.get_legend() for a in figure.axes if a.get_legend()] + list(figure.legends)
    assert legends or name == "policy_comparison" or figures.FIGURES[name].program  # these need more than made-up results
    for legend in legends:
        box = legend.get_window_extent(renderer)
        assert not any(box.overlaps(a.get_window_extent(renderer)) for a in figure.axes if a.axison)
    page = figure.get_tightbbox(renderer)  # inches
    assert page.x0 >= 0 and page.y0 >= 0 and page.x1 <= figure.get_figwidth() and page.y1 <= figure.get_figheight()


def test_curves_have_the_slowdowns_at_their_memory_and_dash_the_oracle():
    figure = figures.draw("policy_comparison", sweep())
    (sieve,) = found(figure, "line:sieve")
    assert list(sieve.get_xdata()) == [4 * GIB, 6 * GIB, 8 * GIB, 10 * GIB]
    assert sieve.get_ydata() == pytest.approx([1.6, 1.3, 1.12, 1.0])
    (belady,) = found(figure, "line:belady")
    assert belady.get_linestyle() == "--" and sieve.get_linestyle() == "-"
    assert found(figure, "bound:no limit")[0].get_ydata() == [1, 1]
    assert "belady *" in words(figure)


def test_a_run_out_of_memory_is_a_mark_at_its_place_and_no_point_of_the_line():
    figure = figures.draw("policy_comparison", sweep())
    (mark,) = found(figure, "failed:random")
    assert mark.get_xdata() == [4 * GIB]
    (line,) = found(figure, "line:random")
    assert list(line.get_xdata()) == [6 * GIB, 8 * GIB, 10 * GIB]
    assert mark.get_color() == line.get_color()
    assert "out of\nmemory" in words(figure)


def test_lines_in_a_tie_stay_visible_below_each_other():
    figure = figures.draw("policy_comparison", sweep())
    (lru,), (clock,) = found(figure, "line:lru"), found(figure, "line:clock")
    assert list(lru.get_ydata()) == list(clock.get_ydata())
    assert lru.get_linewidth() != clock.get_linewidth() and lru.get_markersize() != clock.get_markersize()


@pytest.mark.slow
def test_oversubscription_is_one_over_the_share_on_a_logarithmic_axis_with_a_panel_per_machine():
    figure = figures.draw("oversubscription", oversubscribed("A100", "GH200"))
    left, right = found(figure, "line:driver")
    assert list(left.get_xdata()) == [0.5, 1.0, 2.0, 4.0]
    assert left.get_ydata() == pytest.approx([1.0, 1.0, 5.0, 13.0])
    assert found(figure, "line:driver(evict=lru)")[0].get_ydata() == pytest.approx([1.0, 1.0, 10.0, 28.0])
    assert [a.get_title(loc="left") for a in (left.axes, right.axes)] == ["A100", "GH200"]
    assert left.axes.get_yscale() == right.axes.get_yscale() == "log"
    axis = right.axes.xaxis
    assert [axis.get_major_formatter()(x) for x in axis.get_majorticklocs()] == ["0.5×", "1×", "2×", "4×"]


@pytest.mark.slow
def test_values_that_lie_close_have_points_but_no_labels_on_each_other():
    shares = (2.0, 1.0, 0.8, 0.667, 0.5, 0.333)
    runs = [
        run("lru", round(GIB * s), unified=word, memory_share=s, profile=p)
        for s in shares for p in "ABCDE" for word in ("driver", "driver(evict=lru)")
    ]  # fmt: skip
    line = found(figures.draw("oversubscription", runs, metric="slowdown"), "line:driver")[0]
    assert len(line.get_xdata()) == 6
    assert line.axes.xaxis.get_majorticklocs() == pytest.approx([0.5, 1.0, 1 / 0.667, 2.0, 1 / 0.333])


def test_a_fault_map_has_the_colour_of_what_most_pages_of_a_cell_did():
    figure = figures.draw("fault_map", [faulting()])
    (image,) = found(figure, "pages")
    colours = {name: to_rgba(colour) for name, colour in fault_map.KINDS}
    cell = image.get_array()
    assert tuple(cell[0, 1]) == tuple(cell[0, 8]) == colours["prefetched"]  # 6 of 512 were faulted on
    assert tuple(cell[1, 8]) == colours["faulted on by the GPU"]  # 300 of 512
    assert tuple(cell[0, 5]) == tuple(cell[1, 5]) == colours["evicted"]
    held, free = to_rgba(fault_map.HELD), (1.0, 1.0, 1.0, 1.0)
    assert [tuple(cell[0, t]) for t in (0, 3, 6, 9)] == [pytest.approx(c) for c in (free, held, free, held)]
    assert [tuple(cell[2, t]) for t in (6, 9)] == [pytest.approx(held)] * 2
    assert tuple(cell[6, 9]) == pytest.approx(free)
    panel = figure.axes[0]
    assert [t.get_text() for t in panel.get_yticklabels()] == ["a\n8 MiB", "b\n8 MiB"]
    assert panel.get_xlim() == (0, 10) and panel.get_ylim() == (0, 16 * 2**20)
    assert "migrated away or freed" not in words(figure) and "evicted" in words(figure)


def test_repetitions_are_their_mean_within_a_band_of_their_extremes():
    runs = [run("random", m, s, seed=i) for m in (4 * GIB, 8 * GIB) for i, s in enumerate((1.2, 1.6))]
    figure = figures.draw("policy_comparison", runs + [run("lru", m, 1.1) for m in (4 * GIB, 8 * GIB)])
    assert found(figure, "line:random")[0].get_ydata() == pytest.approx([1.4, 1.4])
    band = next(a for axes in figure.axes for a in axes.collections)
    assert band.get_datalim(figure.axes[0].transData).intervaly == pytest.approx([1.2, 1.6])


def test_the_oracle_that_is_no_line_is_drawn_from_the_bounds():
    runs = [run("lru", m, 1.5) for m in (4 * GIB, 8 * GIB)]
    for r in runs:
        r.metrics["over_oracle"] = 1.25
    (oracle,) = found(figures.draw("policy_comparison", runs), "bound:oracle")
    assert oracle.get_ydata() == pytest.approx([1.2, 1.2])


def test_without_a_number_bars_are_sorted_and_failures_last():
    runs = [r for r in sweep() if r.spec["memory"] == 4 * GIB]
    figure = figures.draw("policy_comparison", runs)
    labels = [t.get_text() for t in figure.axes[0].get_yticklabels()]
    assert labels == ["belady *", "sieve", "clock", "lru", "random"]
    assert found(figure, "bar:sieve")[0].get_width() == pytest.approx(1.6)
    assert found(figure, "failed:random") and "out of memory" in words(figure)


def test_long_names_stand_once_in_one_order_for_all_panels():
    speed = {"best_fit": 1.2, "pytorch": 1.1, "rmm_fixed_size": 1.4}
    runs = [
        run(place=p, evict=e, profile=m, slowdown=v + (e == "lru"))
        for m in "AB"
        for p, v in speed.items()
        for e in ("lru", "arc")
    ]
    left, right = figures.draw("policy_comparison", runs).axes
    assert [t.get_text() for t in left.get_yticklabels()][:2] == ["pytorch + arc", "best_fit + arc"]
    assert (
        [p.get_width() for p in left.patches]
        == [p.get_width() for p in right.patches]
        == sorted(p.get_width() for p in left.patches)
    )
    assert not right.yaxis.get_tick_params()["labelleft"]


def test_the_memory_that_comes_with_a_machine_is_no_axis():
    runs = [run(profile=m, memory=size * GIB, slowdown=s) for m, size, s in (("A", 8, 2.0), ("B", 16, 1.5))]
    assert found(figures.draw("policy_comparison", runs), "bar:B")


def test_programs_are_compared_machine_by_machine():
    runs = [run(profile=m, trace=t, memory=size * GIB) for m in "AB" for t in ("swap", "redo") for size in (4, 8)]
    figure = figures.draw("policy_comparison", runs)
    assert [a.get_title(loc="left") for a in figure.axes] == ["A", "B"]
    assert len(found(figure, "line:swap")) == len(found(figure, "line:redo")) == 2
    assert not found(figure, "bound:no limit")  # each program has its own


@pytest.mark.slow
def test_runs_of_very_different_length_have_their_own_axes_of_time():
    def ends(slowdown):
        figure = figures.draw("memory_over_time", [run(slowdown=1.0), run("fifo", slowdown=slowdown)])
        return [round(a.get_xlim()[1]) for a in figure.axes], " ".join(words(figure))

    assert ends(2.0)[0] == [204, 204] and ends(5.0)[0] == [102, 510]  # ms
    assert "own axis of time" in ends(5.0)[1] and "own axis of time" not in ends(2.0)[1]


@pytest.mark.slow
def test_all_formats_have_one_layout(tmp_path):
    figure = figures.draw("traffic", sweep()[:3])
    before = figure.axes[0].get_position().bounds
    figures.save(figure, tmp_path / "a", ("svg",))
    after = figure.axes[0].get_position().bounds
    figures.save(figure, tmp_path / "a", ("png", "pdf"))
    assert before != after == figure.axes[0].get_position().bounds
    assert figure.dpi == 150 and "<svg" in (tmp_path / "a.svg").read_text()


def test_other_axes_become_panels_and_machines_alone_are_compared_by_makespan():
    figure = figures.draw("policy_comparison", sweep(profile="A100") + sweep(profile="GH200"))
    assert [a.get_title(loc="left") for a in figure.axes] == ["A100", "GH200"]
    alone = figures.draw("policy_comparison", [run(profile="A100", slowdown=2.0), run(profile="GH200", slowdown=1.5)])
    assert found(alone, "bar:GH200")[0].get_width() == pytest.approx(150)  # ms


@pytest.mark.slow
@pytest.mark.parametrize("name", ["policy_comparison", "memory_over_time"])
def test_long_names_of_panels_do_not_lie_over_each_other(name):
    chain = "batch(factor=0.25) | accumulate(steps=4) | checkpointing | zero(stage=3)"
    runs = [run(evict=e, memory=m * GIB, transform=f"{chain}{i}") for i in range(3) for e in ("lru", "fifo") for m in (8, 16)]
    figure = figures.draw(name, runs)
    figure.draw_without_rendering()
    titles = {panel.get_title(loc="left") for panel in figure.axes}
    boxes = [t.get_window_extent() for t in figure.findobj(Text) if t.get_text() in titles - {""}]
    assert len(boxes) > 2
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def test_crowded_values_stand_evenly_and_the_axis_says_so():
    values = [int(share * GIB) for share in (10.0, 10.1, 10.3, 20.0)]
    figure = figures.draw("policy_comparison", [run(e, m) for e in ("lru", "fifo") for m in values])
    assert list(found(figure, "line:lru")[0].get_xdata()) == [0, 1, 2, 3]
    axis = figure.axes[0].xaxis
    assert "not to scale" in axis.get_label().get_text()
    assert axis.get_major_formatter().format_ticks([0, 1, 2, 3]) == ["10", "10.1", "10.3", "20"]


def test_bars_of_machines_show_what_no_limit_would_cost():
    figure = figures.draw("policy_comparison", [run(profile="A100", slowdown=2.0), run(profile="GH200", slowdown=1.5)])
    assert list(found(figure, "bound:A100")[0].get_xdata()) == [100, 100]  # ms
    assert header(figure, "note") == "Tick: without memory limit."
    assert figure.axes[0].get_xlabel() == "makespan [ms]"


def test_a_policy_looks_the_same_in_every_figure_and_no_two_look_alike():
    curve = figures.draw("policy_comparison", sweep())
    bars = figures.draw("policy_comparison", [r for r in sweep() if r.spec["memory"] == 6 * GIB])
    for name in ("lru", "sieve", "clock"):
        assert to_hex(found(curve, f"line:{name}")[0].get_color()) == to_hex(found(bars, f"bar:{name}")[0].get_facecolor())
    names = ["lru", "mine", "yours", "sieve", "lru + next_k", "lru + stride", *(f"policy_{i}" for i in range(40))]
    given = looks(names)
    assert len({(look.colour, look.marker) for look in given.values()}) == len(names)
    assert looks(reversed(names)) == given


def test_memory_over_time_has_the_timeline_the_capacity_and_the_phases():
    one = run(memory=4 * GIB, slowdown=2.0)
    figure = figures.draw("memory_over_time", [one], phases={0: [(0, 50 * MS, "forward"), (50 * MS, 200 * MS, "backward")]})
    (reserved,) = found(figure, "reserved")
    at = np.searchsorted(reserved.get_xdata(), one.timeline["time_ns"] / MS, side="right") - 1
    assert reserved.get_ydata()[at] == pytest.approx(one.timeline["reserved_bytes"] / GIB)
    assert found(figure, "capacity")[0].get_ydata() == [4, 4]
    assert found(figure, "host") and found(figure, "phase:backward")
    assert {"forward", "backward"} <= set(words(figure))


def test_memory_is_held_until_the_device_is_done():
    one = run(slowdown=2.0)
    early = replace(one, timeline={k: v[:10] for k, v in one.timeline.items()})
    (reserved,) = found(figures.draw("memory_over_time", [early]), "reserved")
    assert reserved.get_xdata()[-1] == pytest.approx(200) and reserved.get_ydata()[-1] == reserved.get_ydata()[-2]


def test_memory_over_time_says_which_runs_stop_and_where():
    figure = figures.draw("memory_over_time", [run("lru"), run("fifo", outcome="host_oom")])
    (mark,) = found(figure, "failed:host out of memory")
    assert mark.get_xdata()[0] == pytest.approx(150)
    assert "These do not fit: fifo (host out of memory at 150 ms)." in header(figure, "answer")


def test_the_parts_of_a_bar_are_kernels_and_stalls_and_sum_to_the_makespan():
    figure = figures.draw("time_breakdown", [run("lru", slowdown=1.8)])
    expected = {"kernels run": 90, "waiting for swap-in": 40, "waiting for swap-out": 20, "in the allocator": 20,
                "on launches": 10}  # fmt: skip
    assert {n: found(figure, f"part:{n}")[0].get_width() for n in expected} == pytest.approx(expected)
    assert sum(p.get_width() for p in figure.axes[0].patches) == pytest.approx(180)
    assert "loses 40 ms waiting for swap-in" in header(figure, "answer")


def test_what_is_too_thin_to_be_seen_stands_in_no_legend():
    thin, first = run("lru", slowdown=1.8), run("fifo", slowdown=2.0)
    for r in (thin, first):
        r.metrics["stall_launch_ns"] = MS // 10
    figure = figures.draw("time_breakdown", [thin, first])
    assert not found(figure, "part:on launches") and "on launches" not in words(figure)
    assert "waiting for swap-in" in words(figure)


def test_kernel_time_of_several_streams_is_scaled_to_the_makespan():
    busy = run("lru", slowdown=1.0)
    busy.metrics["compute_busy_ns"] = 190 * MS
    figure = figures.draw("time_breakdown", [busy])
    assert sum(p.get_width() for p in figure.axes[0].patches) == pytest.approx(100)
    assert found(figure, "part:kernels run")[0].get_width() == pytest.approx(95)


def test_traffic_has_both_directions_and_the_bound():
    figure = figures.draw("traffic", sweep()[:2])
    assert found(figure, "host to device:lru")[0].get_width() == pytest.approx(3.2, abs=1e-6)
    assert found(figure, "device to host:lru")[0].get_width() == pytest.approx(2.4, abs=1e-6)
    assert found(figure, "bound:lru")[0].get_xdata() == pytest.approx([1, 1])
    assert "3.2 times what must come in" in header(figure, "answer")


@pytest.mark.slow
def test_fragmentation_has_four_measures_per_allocator():
    figure = figures.draw("fragmentation", allocators())
    for title, width in (("internal", 0.05), ("unused", 0.2), ("external", 0.4), ("failures", 3)):
        assert [found(figure, f"{title}:{y}")[0].get_width() for y in range(4)] == pytest.approx([width] * 4)
    assert found(figure, "reserved:best_fit") and found(figure, "failed:buddy")
    assert "Failed: buddy (out of memory)." in header(figure, "answer")


def test_the_address_map_shows_every_block_and_names_the_worst_moment():
    figure = figures.draw("address_map", [run(log=heap_log(), slowdown=1.0)])
    (blocks,) = found(figure, "blocks")
    assert isinstance(blocks, PolyCollection) and len(blocks.get_paths()) == 8
    corners = blocks.get_paths()[2].vertices
    assert corners[:, 0].min() == 2 and corners[:, 0].max() == 40  # ms
    assert corners[:, 1].min() == 2 and corners[:, 1].max() == 3  # GiB
    assert "4 GiB are free, but the largest hole (red frame) has 1 GiB" in header(figure, "answer")
    assert found(figure, "largest hole")[0].get_height() == 1


def test_blocks_can_be_coloured_by_what_they_hold():
    figure = figures.draw("address_map", [run(log=heap_log())], categories={"gpt2": ["param", "fwd"] * 4})
    assert {"param", "fwd", "free"} <= set(words(figure))
    (blocks,) = found(figure, "blocks")
    assert len({tuple(c) for c in blocks.get_facecolors()}) == 2


@pytest.mark.slow
def test_many_blocks_become_a_picture_of_the_same_map(monkeypatch):
    monkeypatch.setattr(address_map, "VECTOR", 4)
    one = run(log=heap_log(), slowdown=1.0)
    (picture,) = found(figures.draw("address_map", [one], categories={"gpt2": ["param", "fwd"] * 4}), "blocks")
    pixels = np.asarray(picture.get_array())
    high, wide = pixels.shape[:2]
    half = 1 / 16  # middle of a block's height, as a share of the heap
    at = lambda time, block: pixels[int((block / 8 + half) * high), int(time / 100 * wide)]  # noqa: E731
    assert to_hex(at(20, 0)) == "#0072b2" and to_hex(at(20, 1)) == "#e69f00"
    assert at(60, 0)[3] == 0 and at(60, 1)[3] == 1  # freed at 40 ms, and not
    assert at(1, 7)[3] == 0  # not yet placed


def test_the_address_map_marks_the_request_that_failed():
    log = np.append(heap_log(), np.array([(60 * MS, OOM, 9, 0, GIB, 2 * GIB)], heap_log().dtype))
    figure = figures.draw("address_map", [run(log=log, outcome="oom")])
    assert found(figure, "failed:out of memory")[0].get_xdata() == [60, 60]
    assert "out of memory: 2 GiB wanted" in words(figure)


def test_the_question_is_the_title_and_the_answer_stands_below():
    figure = figures.draw("policy_comparison", sweep(), question="Who loses least?")
    assert header(figure, "question") == "Who loses least?"
    assert "sieve has the lowest slowdown, 1.60×" in header(figure, "answer")


def test_only_figures_that_say_something_are_suitable():
    always = ["memory_over_time", "time_breakdown", "traffic"]
    assert figures.suitable(sweep()) == ["policy_comparison", "heat_map", "pareto", *always]
    assert figures.suitable([run(), run("fifo", slowdown=1.2)]) == ["policy_comparison", *always]
    assert "distribution" in figures.suitable(sweep(profile="A100") + sweep(profile="H100"))
    assert "fragmentation" in figures.suitable(allocators()) and "address_map" in figures.suitable(allocators())
    assert figures.suitable([]) == []


def test_an_unknown_figure_is_refused_with_a_suggestion():
    with pytest.raises(ResultError, match="did you mean 'traffic'"):
        figures.draw("trafic", sweep())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["policy_comparison", "address_map"])
def test_equal_results_give_equal_bytes_whatever_the_users_style(name, tmp_path):
    def files(folder):
        runs = sweep() if name == "policy_comparison" else allocators()[:1]
        return [p.read_bytes() for p in figures.save(figures.draw(name, runs), tmp_path / folder / name)]

    first = files("a")
    with matplotlib.rc_context({"font.size": 20, "lines.linewidth": 9, "svg.hashsalt": None, "axes.grid": False}):
        assert files("b") == first
    assert all(first) and b"<dc:date>" not in first[1] and b"/CreationDate" not in first[2]


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultError, match="cannot write the figure"):
        figures.save(figures.draw("traffic", sweep()), tmp_path / "file" / "traffic")


@pytest.mark.slow
def test_draw_all_writes_the_suitable_figures_in_every_format(tmp_path):
    made = figures.draw_all(sweep()[:4], tmp_path, "Why?", formats=("png",))
    assert list(made) == figures.suitable(sweep()[:4])
    assert all(path.stat().st_size > 1000 for paths in made.values() for path in paths)


@pytest.mark.slow
def test_nothing_imports_pyplot():
    code = (
        "import sys; sys.path.insert(0, 'tests/support'); from made_results import sweep; from gpusim.show import figures;"
        "assert 'matplotlib' not in sys.modules; figures.draw('traffic', sweep());"
        "assert 'matplotlib.pyplot' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_letters_are_those_of_dejavu_and_missing_ones_come_from_it(tmp_path):
    for file, ours in font.FILES.items():
        whole = FT2Font(Path(matplotlib.get_data_path()) / "fonts" / "ttf" / file)
        part = FT2Font(ours)
        shapes = []
        for face in (whole, part):
            face.set_size(12, 72)
            shapes.append([(face.load_char(ord(c)).linearHoriAdvance, face.get_path()[0].tolist()) for c in "agβ×≥ 3µ"])
        assert shapes[0] == shapes[1]
    common, rare = (figures.draw("policy_comparison", [run(name), run("fifo")]) for name in ("lru", "lru⠿"))
    figures.save(common, tmp_path / "common", ("pdf",))
    figures.save(rare, tmp_path / "rare", ("pdf",))
    assert b"gpusim-Sans" in (tmp_path / "common.pdf").read_bytes() and b"DejaVu" not in (tmp_path / "common.pdf").read_bytes()
    assert b"gpusim-Sans" in (tmp_path / "rare.pdf").read_bytes() and b"DejaVuSans" in (tmp_path / "rare.pdf").read_bytes()


def test_a_step_curve_keeps_each_turn_while_they_are_few():
    time, level = visible(np.array([0.0, 1, 2, 3, 4, 5]), np.array([2.0, 2, 7, 7, 1, 1]), 100)
    assert time.tolist() == [0, 2, 4, 5] and level.tolist() == [2, 7, 1, 1]
    assert [c.tolist() for c in visible(np.array([3.0]), np.array([8.0]), 10)] == [[3], [8]]


def test_a_long_step_curve_covers_the_same_pixels():
    rng = np.random.default_rng(7)
    time = np.sort(rng.random(50_000) ** 3)  # most of them early
    level = rng.random(50_000)
    level[31_000] = 9.0  # lower and higher peaks than all others, of one point each
    level[44_000] = -9.0
    seen_time, seen = visible(time, level, 60)
    assert len(seen) <= 4 * 61 and (seen_time[0], seen[0], seen_time[-1], seen[-1]) == (time[0], level[0], time[-1], level[-1])

    def ranges(t, y):
        column = ((t - time[0]) * (60 / (time[-1] - time[0]))).astype(int)
        return {c: (y[column == c].min(), y[column == c].max()) for c in set(column.tolist())}

    assert ranges(seen_time, seen) == ranges(time, level)
