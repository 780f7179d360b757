"""The page of a results folder in a browser: it needs nothing from elsewhere, sorts, hides, zooms, and fits on a phone."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from browser import Opened, opened, started
from made_results import GIB, run, sweep
from test_page import folder, many

import gpusim
from gpusim.results.folder import load_folder
from gpusim.results.result import Result
from gpusim.show.page.write import write_page
from gpusim.studies.advice import report
from gpusim.studies.advice.answer import NotTried, Proposal, RankedAdvice

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with started() as running:
        yield running


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, chromium: Any) -> Path:
    """Four real runs with their logs."""
    out = tmp_path_factory.mktemp("page") / "out"
    asked = gpusim.Experiment("gpt-medium-infer", "l4", evict=["lru", "largest"], memory=["60 %", "80 %"], log=True)
    gpusim.run(asked, folder=out)
    write_page(out)
    return out


@pytest.fixture(scope="module")
def real(chromium: Any, results: Path) -> Iterator[Opened]:
    with opened(chromium, results / "report.html") as page:
        yield page


@pytest.fixture(scope="module")
def made(chromium: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    """Twenty runs made by hand, one of which failed."""
    with opened(chromium, write_page(folder(tmp_path_factory.mktemp("made") / "out", sweep())).path) as page:
        yield page


def cells(page: Opened, column: str) -> list[str]:
    at = page.ask("name => [...document.querySelectorAll('.runs th')].findIndex(th => th.dataset.id === name)", column)
    return page.ask("at => [...document.querySelectorAll('.runs tbody tr[data-row]')].map(tr => tr.cells[at].textContent)", at)


def sort_by(page: Opened, column: str) -> None:
    page.page.locator(f'.runs th[data-id="{column}"] button').click()


def find(page: Opened, words: str) -> None:
    page.page.locator("#runs input[type=search]").fill(words)


def drawn(page: Opened) -> None:
    """Wait for the plots of the first figure."""
    page.ask("document.getElementById('figures').scrollIntoView()")
    page.wait("document.querySelector('#figures .panel > div')?.data?.length > 0")


# --- nothing from elsewhere


def test_nothing_is_asked_of_a_network_and_nothing_goes_wrong(real: Opened) -> None:
    real.scroll_through()
    real.wait("(gpusimPage.shown.timeline || {}).painted > 0 && (gpusimPage.shown.map || {}).painted > 0")
    real.wait("[...document.querySelectorAll('.panel > div')].every(plot => plot.data)")
    assert real.complaints == [] and real.requests == []


# --- the table


def test_the_table_sorts_in_both_directions_and_back(made: Opened) -> None:
    find(made, "")
    before = cells(made, "slowdown")
    sort_by(made, "slowdown")
    rising = [float(cell) for cell in cells(made, "slowdown") if cell != "out of memory"]
    assert rising == sorted(rising) and cells(made, "slowdown")[-1] == "out of memory"
    sort_by(made, "slowdown")
    falling = [float(cell) for cell in cells(made, "slowdown") if cell != "out of memory"]
    assert falling == rising[::-1] and cells(made, "slowdown")[-1] == "out of memory"
    assert made.ask("document.querySelector('.runs th[data-id=slowdown]').getAttribute('aria-sort')") == "descending"
    sort_by(made, "slowdown")
    assert cells(made, "slowdown") == before


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sieve", {"sieve"}), ("evict=lru", {"lru"}), ("evict!=lru slowdown>1.7", {"clock"}), ("belady", {"belady *"}),
        ("slowdown>=1.6 slowdown<=1.6", {"sieve", "random"}), ("out of memory", {"random"}), ("nothing", set()),
    ],
)  # fmt: skip
def test_words_and_comparisons_filter_the_runs(made: Opened, words: str, expected: set[str]) -> None:
    find(made, words)
    found = cells(made, "evict")
    assert set(found) == expected
    assert made.ask("document.querySelector('#runs .count').textContent") == f"{len(found)} of 20 runs"


def test_a_choice_of_one_key_filters_too(made: Opened) -> None:
    find(made, "")
    made.page.locator("#runs select").last.select_option(label="lru")
    assert set(cells(made, "evict")) == {"lru"}
    made.page.locator("#runs select").last.select_option(index=0)
    assert len(cells(made, "evict")) == 20


def test_a_long_table_has_only_the_rows_in_view(chromium: Any, tmp_path: Path) -> None:
    runs = [run("lru", memory=(1 + i) * GIB, slowdown=1 + i / 1000, timeline=False) for i in range(400)]
    with opened(chromium, write_page(folder(tmp_path / "out", runs)).path) as page:
        rows = "document.querySelectorAll('.runs tbody tr[data-row]').length"
        assert page.ask(rows) < 120
        page.ask("document.querySelector('#runs .scroll').scrollTop = 1e9")
        page.wait("[...document.querySelectorAll('.runs tbody tr[data-row]')].at(-1)?.dataset.row === '399'")
        assert page.ask(rows) < 120
        assert page.complaints == []


def test_a_grid_in_columns_shows_what_to_look_at_and_all_runs(chromium: Any, tmp_path: Path) -> None:
    with opened(chromium, write_page(many(tmp_path / "out", 2400)).path) as page:
        page.scroll_through()
        titles = page.ask("[...document.querySelectorAll('#answer .words h4')].map(h => h.textContent)")
        assert titles[0] == "Best" and titles[1].startswith("Least slowdown for the memory held")
        assert titles[2] == "Variance of slowdown by axis, alone and together with others"
        cells = page.ask("[...document.querySelector('#answer .words tbody tr').cells].map(cell => cell.textContent)")
        assert cells[0] == "lru" and "600 GiB" in cells and "1.17×" in cells
        assert page.ask("document.querySelector('#runs .count').textContent") == "2,400 runs"
        page.page.locator(".runs tbody tr[data-row]").first.click()
        said = page.ask("document.getElementById('run').innerText")
        assert "With --log it has a timeline." in said and "gpusim run out/experiment.yaml --set" in said
        page.page.keyboard.press("Escape")
        page.page.locator("#differences input[type=number]").first.fill("2400")  # of so many no list has the names
        page.page.keyboard.press("Enter")
        assert "2400 · sieve · 600 GiB memory" in page.ask("document.getElementById('differences').innerText")
        assert page.complaints == [] and page.requests == []


def test_a_row_opens_all_that_is_known_of_its_run(real: Opened, results: Path) -> None:
    real.page.locator(".runs tbody tr[data-row]").first.click()
    said = real.ask("document.getElementById('run').innerText")
    first = next(r for r in load_folder(results) if r.key in said)
    assert f"{first.metrics['makespan_ns']:,} ns" in said and "gpusim run out/experiment.yaml --set" in said
    real.page.keyboard.press("Escape")
    assert not real.ask("document.getElementById('run').open")


# --- figures


def test_a_legend_hides_and_shows_in_all_panels(made: Opened) -> None:
    drawn(made)
    chip = made.page.locator("#figures .figure").first.locator(".legend button", has_text="sieve")
    of = (
        "[...document.querySelectorAll('#figures .figure')][0].querySelectorAll('.panel > div')[0].data"
        ".filter(t => t.legendgroup === 'sieve').map(t => t.visible)"
    )
    assert made.ask(of) == [True]
    chip.click()
    made.wait(f"{of}.every(v => v === false)")
    assert chip.get_attribute("aria-pressed") == "false"
    chip.click()
    made.wait(f"{of}.every(v => v === true)")


def test_a_figure_zooms_and_says_exact_values(made: Opened) -> None:
    drawn(made)
    plot = "document.querySelector('#figures .panel > div')"
    made.page.locator("#figures .panel").first.scroll_into_view_if_needed()
    before = made.ask(f"{plot}._fullLayout.xaxis.range")
    box = made.page.locator("#figures .panel .nsewdrag").first.bounding_box()
    x, y = box["x"] + box["width"] * 0.3, box["y"] + box["height"] * 0.3
    made.page.mouse.move(x, y)
    made.page.mouse.down()
    made.page.mouse.move(x + box["width"] * 0.3, y + box["height"] * 0.4, steps=5)
    made.page.mouse.up()
    shown = f"{plot}._fullLayout.xaxis.range"
    made.wait(f"{shown}[1] - {shown}[0] < {before[1] - before[0]} * 0.6")
    made.page.mouse.dblclick(x, y)
    made.wait(f"{shown}[1] - {shown}[0] > {before[1] - before[0]} * 0.9")
    line = made.ask(f"{plot}.data.findIndex(t => t.legendgroup === 'lru' && t.mode === 'lines+markers')")
    made.page.mouse.move(2, 2)
    said = f"{plot}.querySelector('.hoverlayer').textContent"
    made.wait(f"Plotly.Fx.hover({plot}, [{{curveNumber: {line}, pointNumber: 1}}]), {said}.includes('lru at 6 GiB')")
    assert "1.40×" in made.ask(said)


def test_memory_over_time_has_bytes_to_the_last(real: Opened, results: Path) -> None:
    drawn(real)
    texts = real.ask(
        "[...document.querySelectorAll('.panel > div')].filter(p => p.data?.some(t => t.legendgroup === 'reserved'))"
        ".map(p => p.data.find(t => t.legendgroup === 'reserved').text.join(' '))"
    )
    for result in load_folder(results):
        assert any(f"{result.metrics['reserved_peak_bytes']:,} B" in text for text in texts)


# --- in time


def timeline(page: Opened) -> None:
    page.ask("document.getElementById('timelines').scrollIntoView()")
    page.wait("(gpusimPage.shown.timeline || {}).painted > 0")
    page.ask("gpusimPage.shown.timeline.show(...gpusimPage.shown.timeline.whole)")
    page.ask("document.querySelector('#timelines canvas[tabindex]').scrollIntoView({block: 'center'})")


VIEW = "gpusimPage.shown.timeline.view"


def width(page: Opened) -> float:
    return page.ask(f"{VIEW}[1] - {VIEW}[0]")


def test_the_timeline_zooms_and_moves_with_wheel_keys_and_drag(real: Opened) -> None:
    timeline(real)
    all_of_it = width(real)
    box = real.page.locator("#timelines canvas[tabindex]").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + 60
    real.page.mouse.move(x, y)
    real.page.mouse.wheel(0, -300)
    real.page.wait_for_timeout(200)
    assert width(real) == all_of_it  # the page scrolls until the timeline was clicked
    real.ask("document.querySelector('#timelines canvas[tabindex]').scrollIntoView({block: 'center'})")
    box = real.page.locator("#timelines canvas[tabindex]").bounding_box()
    y = box["y"] + 60
    real.page.mouse.click(x, y)
    real.page.mouse.wheel(0, -300)
    real.wait(f"{VIEW}[1] - {VIEW}[0] < {all_of_it} * 0.9")
    near = width(real)
    real.page.keyboard.press("w")
    real.wait(f"{VIEW}[1] - {VIEW}[0] < {near} * 0.7")
    start = real.ask(f"{VIEW}[0]")
    real.page.mouse.move(x, y)
    real.page.mouse.down()
    real.page.mouse.move(x - 150, y, steps=4)
    real.page.mouse.up()
    real.wait(f"{VIEW}[0] > {start}")
    real.page.keyboard.press("0")
    real.wait(f"{VIEW}[1] - {VIEW}[0] >= {all_of_it} * 0.99")


def test_the_pointer_on_a_stall_says_what_it_waited_for(real: Opened) -> None:
    timeline(real)
    said = real.ask("""() => {
      const t = gpusimPage.shown.timeline, kind = t.words.kinds.indexOf("stall");
      let best = -1;
      for (let i = 0; i < t.count; i++)
        if (t.data.kind[i] === kind && t.data.back[i] && (best < 0 || t.data.span[i] > t.data.span[best])) best = i;
      t.showRow(best); t.layout();
      const track = t.tracks.find(one => one.group === "stall"), x = t.xAt(t.data.start[best] + t.data.span[best] / 2);
      t.point(x, track.top + 4);
      return [t.tip.innerText, t.rowAt(x, track.top + 4) === best];
    }""")
    assert said[1] and "stall: " in said[0] and "waited for" in said[0] and " ns" in said[0]
    real.ask("gpusimPage.shown.timeline.select(gpusimPage.shown.timeline.hovered.row)")
    cause = real.ask("gpusimPage.shown.timeline.causeOf(gpusimPage.shown.timeline.selected)")
    real.page.get_by_role("button", name="to its cause").click()
    assert real.ask("gpusimPage.shown.timeline.selected") == cause


def test_the_timeline_finds_by_name(real: Opened) -> None:
    timeline(real)
    name = real.ask("gpusimPage.shown.timeline.nameOf(gpusimPage.shown.timeline.data.kind.indexOf(0))")
    real.page.locator("#timelines input[type=search]").fill(name)
    many = real.ask(
        "name => { const t = gpusimPage.shown.timeline; let n = 0; for (let i = 0; i < t.count; i++)"
        " n += t.nameOf(i).toLowerCase().includes(name.toLowerCase()); return n }", name
    )  # fmt: skip
    assert many and f"{many:,} match" in real.ask("document.querySelector('#timelines .count').textContent")
    real.page.locator("#timelines input[type=search]").press("Enter")
    assert name in real.ask("document.querySelector('#timelines .detail').innerText")
    real.page.locator("#timelines input[type=search]").fill("")


def test_a_metric_over_time_is_chosen_and_moves_with_the_timeline(real: Opened) -> None:
    timeline(real)
    chart, words = "gpusimPage.shown.timeline.metrics", "document.querySelector('#timelines .metrics').innerText"
    assert real.ask(f"{chart}.family.name") == "stall_seconds"
    real.page.locator("#timelines .metrics select").select_option("memory_reserved_bytes")
    assert "Bytes that the allocator holds from the device." in real.ask(words) and "how fast" not in real.ask(words)
    said = real.ask(f"""() => {{
      const c = {chart}, values = c.family.curves[0], k = values.indexOf(Math.max(...values));
      c.point(c.timeline.xAt(c.data.at[k] + 1));
      return [c.tip.innerText, c.text(values[k])];
    }}""")
    assert said[1] in said[0] and said[1].endswith("iB")
    real.page.locator("#timelines .metrics select").select_option("swap_bytes")
    assert "GB/s" in real.ask(f"{chart}.text(1e9)") and "per simulated second" in real.ask(words)
    painted = f"{chart}.canvas.toDataURL()"
    before = real.ask(painted)
    real.ask("gpusimPage.shown.timeline.zoom(0.2)")
    real.wait(f"{painted}.length !== {len(before)}")
    assert real.complaints == []


def test_two_timelines_move_together(real: Opened) -> None:
    timeline(real)
    real.page.locator("#timelines select").nth(1).select_option(index=2)
    real.wait("document.querySelectorAll('#timelines canvas[tabindex]').length === 2")
    real.ask("gpusimPage.shown.timeline.zoom(0.25)")
    views = real.ask("[...gpusimPage.shown.timeline.listeners].length")
    assert views == 1 and width(real) > 0
    real.page.locator("#timelines select").nth(1).select_option(index=0)
    real.wait("document.querySelectorAll('#timelines canvas[tabindex]').length === 1")


def test_the_address_map_zooms_and_knows_its_blocks(real: Opened) -> None:
    real.ask("document.getElementById('maps').scrollIntoView()")
    real.wait("(gpusimPage.shown.map || {}).painted > 0")
    said = real.ask("""() => {
      const m = gpusimPage.shown.map, d = m.data;
      let best = 0;
      for (let i = 0; i < d.span.length; i++) if (d.span[i] * d.bytes[i] > d.span[best] * d.bytes[best]) best = i;
      const x = m.left() + ((d.start[best] + d.span[best] / 2) / m.whole[1]) * m.across();
      const y = m.high() * (1 - (d.addr[best] + d.bytes[best] / 2) / m.whole[3]);
      m.point(x, y);
      const before = m.view[1] - m.view[0];
      m.zoom(0.5, [x, y]);
      return [m.tip.innerText, d.bytes[best], (m.view[1] - m.view[0]) / before];
    }""")
    assert f"({said[1]:,} B)" in said[0] and said[2] == pytest.approx(0.5)


# --- differences


def test_two_runs_are_compared_number_by_number(real: Opened, results: Path) -> None:
    real.ask("document.getElementById('differences').scrollIntoView()")
    for side, at in ((0, 0), (1, 3)):
        real.page.locator("#differences select").nth(side).select_option(index=at)
    a, b = load_folder(results)[0], load_folder(results)[3]
    rows = real.ask(
        "Object.fromEntries([...document.querySelectorAll('#differences tbody tr')].map(tr => [tr.cells[0].textContent,"
        " [tr.cells[1].title, tr.cells[2].title, tr.cells[5].textContent]]))"
    )
    x, y = a.metrics["makespan_ns"], b.metrics["makespan_ns"]
    assert rows["makespan_ns"] == [f"{x:,} ns", f"{y:,} ns", "better" if y < x else "worse"]
    assert not any(one == other and one for one, other, _ in rows.values())


def test_two_folders_have_their_changes_in_a_table(chromium: Any, tmp_path: Path) -> None:
    def slower(result: Result) -> Result:
        return replace(result, metrics={**result.metrics, "makespan_ns": 2 * result.metrics["makespan_ns"]})

    a, b = folder(tmp_path / "a", sweep()), folder(tmp_path / "b", [slower(r) for r in sweep()])
    with opened(chromium, write_page(a, against=b, out=tmp_path / "both.html").path) as page:
        page.ask("document.getElementById('differences').scrollIntoView()")
        page.page.locator("#differences select").first.select_option(label="makespan_ns")
        rows = page.ask("[...document.querySelectorAll('#changes tbody tr')].map(tr => tr.innerText)")
        assert len(rows) == 20 and all("+100.00 %" in row and "worse" in row for row in rows)
        assert page.ask("document.querySelectorAll('#runs .runs').length") == 2
        drawn(page)
        titles = page.ask("[...document.querySelectorAll('#figures .figure')][0].innerText")
        assert "A" in titles and "B" in titles
        assert page.complaints == [] and page.requests == []


# --- what other commands left


def test_advice_without_runs_is_a_page_of_its_own(chromium: Any, tmp_path: Path) -> None:
    helps = Proposal("oom", "expandable_segments:True", line="export X=<1>", fits=True, held=(GIB, GIB), saves=(GIB, GIB))
    no = [NotTried("zero", "one GPU")]
    found = RankedAdvice("mine.py", "", "t4", 4 * GIB, "It leaks.", [], None, False, "", [helps], [], no, [], ["A remark."])
    (tmp_path / "advice.json").write_text(json.dumps(report.values(found)))
    with opened(chromium, write_page(tmp_path).path) as page:
        assert page.ask("[...document.querySelectorAll('#sections a')].map(a => a.textContent)") == ["Answer", "Advice"]
        assert page.ask("document.querySelector('h1').textContent") == "What would help mine.py?"
        assert page.ask("document.querySelector('#answer').innerText").startswith("It leaks. It does not fit t4")
        said = page.ask("document.querySelector('#advised').innerText")
        lines = (report.HELP, "expandable_segments:True", "export X=<1>", "Simulated, and no help: zero: one GPU", "A remark.")
        assert all(words in said for words in lines)
        assert page.complaints == [] and page.requests == []


# --- dark, light, small


def test_colours_follow_the_system_until_they_are_chosen(chromium: Any, results: Path) -> None:
    with opened(chromium, results / "report.html", dark=True) as page:
        theme = "document.documentElement.dataset.theme"
        paper = "getComputedStyle(document.body).backgroundColor"
        assert page.ask(theme) == "dark" and page.ask(paper) == "rgb(20, 23, 29)"
        page.page.locator("#theme").click()
        assert page.ask(theme) == "light" and page.ask(paper) == "rgb(255, 255, 255)"
        drawn(page)
        light = page.ask("document.querySelector('#figures .panel > div').layout.font.color")
        page.page.locator("#theme").click()
        page.wait(f"document.querySelector('#figures .panel > div').layout.font.color !== '{light}'")
        assert page.ask(theme) == "dark" and page.complaints == []


def test_a_phone_reads_it_and_pinches_the_timeline(chromium: Any, results: Path) -> None:
    with opened(chromium, results / "report.html", width=390, height=844, touch=True) as page:
        page.scroll_through()
        assert page.ask("document.documentElement.scrollWidth") == 390
        timeline(page)
        before, box = width(page), page.page.locator("#timelines canvas[tabindex]").bounding_box()
        session = page.page.context.new_cdp_session(page.page)
        x, y = box["x"] + box["width"] * 0.6, box["y"] + 60
        for kind, apart in (("touchStart", 20), ("touchMove", 40), ("touchMove", 80), ("touchMove", 110)):
            points = [{"x": x - apart, "y": y, "id": 0}, {"x": x + apart, "y": y, "id": 1}]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})
        session.send("Input.dispatchTouchEvent", {"type": "touchEnd", "touchPoints": []})
        page.wait(f"{VIEW}[1] - {VIEW}[0] < {before} * 0.6")
        assert page.complaints == [] and page.requests == []
