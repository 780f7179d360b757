"""Do figures of runs of several ranks show what passed each link, and what each rank held?"""

from __future__ import annotations

import pytest
from made_results import GIB, MS, ranked

from gpusim import simulate
from gpusim.machine.topology import build, transfers
from gpusim.show import figures
from gpusim.show.page.charts import links as links_chart
from gpusim.show.page.charts import ranks_memory as memory_chart
from gpusim.show.ranks import numbers
from gpusim.show.values.links import BusyLinks, busy_links
from gpusim.show.values.ranks_memory import held_by_ranks


@pytest.mark.hand_worked
def test_a_link_is_busy_as_long_as_its_bytes_take() -> None:
    rates = transfers.rates(build.load("dgx-1-v100"))
    sent = {"gpu0>gpu3": round(rates["gpu0>gpu3"] * 3 * MS), "gpu3>gpu0": round(rates["gpu3>gpu0"] * MS), "gone": 8}
    found = busy_links([ranked(link_bytes=sent)])
    assert isinstance(found, BusyLinks) and found.busy == pytest.approx({"gpu0>gpu3": 0.75, "gpu3>gpu0": 0.25})
    assert found.answer.startswith("gpu0>gpu3 is busiest, 75 % of the time: ")
    figure = figures.draw("links", [ranked(link_bytes=sent)])
    arcs = {a.get_gid(): a.get_linewidth() for a in figure.findobj(lambda a: str(a.get_gid()).startswith("link "))}
    assert arcs["link gpu0>gpu3"] == 1.5 + 3 * 0.75 and arcs["link gpu0>gpu1"] == 1.5
    bars = links_chart.chart([ranked(link_bytes=sent)]).views[0].panels[0].data[0]
    assert (bars["y"], bars["x"]) == (["gpu0&gt;gpu3", "gpu3&gt;gpu0"], pytest.approx([75, 25]))


def test_without_ranks_or_their_machine_there_are_no_links() -> None:
    for results, said in (([], "No run of several ranks"), ([ranked(profile="my-box", link_bytes={"a>b": 8})], "my-box")):
        assert said in str(busy_links(results)) and figures.draw("links", results) and not links_chart.chart(results).views
    assert "links" not in figures.suitable([ranked()]) and "links" in figures.suitable([ranked(link_bytes={"a>b": 8})])


@pytest.mark.hand_worked
def test_equal_ranks_share_a_curve_to_the_end_of_the_run() -> None:
    found = held_by_ranks([ranked()])
    assert found is not None and found.capacity == 8 * GIB
    curves = {name: (time.tolist(), held.tolist()) for name, (time, held) in found.curves.items()}
    assert curves == {
        "ranks 0 to 2": ([0, MS, 4 * MS], [GIB, 2 * GIB, 2 * GIB]),
        "rank 3": ([0, MS, 2 * MS, 4 * MS], [GIB, 5 * GIB, 4 * GIB, 4 * GIB]),
    }
    assert found.answer == "Most is held by rank 3, 5 GiB; least by ranks 0 to 2, 2 GiB."
    figure = figures.draw("ranks_memory", [ranked()])
    line = next(iter(figure.findobj(lambda a: a.get_gid() == "held:rank 3")))
    assert line.get_ydata().max() == 5
    lines = memory_chart.chart([ranked()]).views[0].panels[0].data
    assert [line["legendgroup"] for line in lines] == ["ranks 0 to 2", "rank 3", "capacity"]
    assert held_by_ranks([]) is None and not memory_chart.chart([]).views and figures.draw("ranks_memory", [])


def test_numbers_of_ranks_in_words() -> None:
    assert [numbers(each) for each in ([3], [0, 1], [0, 1, 2], [0, 2, 4, 5, 6])] == [
        "rank 3", "ranks 0, 1", "ranks 0 to 2", "ranks 0, 2, 4 to 6",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.formulas
def test_what_passes_the_ports_of_a_switch_is_what_the_exchanges_send() -> None:
    """Of all-reduces on NVSwitches that do not reduce (two GPUs), each port takes the whole message once in each direction."""
    result = simulate("gpt2-small-train", on="hgx-h100", parallel="data=2", bounds=False)
    sent = result.spec["link_bytes"]
    ports = {name: size for name, size in sent.items() if "nvswitch" in name}
    assert set(ports) == {"gpu0>nvswitch", "gpu1>nvswitch", "nvswitch>gpu0", "nvswitch>gpu1"} and len(set(ports.values())) == 1
    assert ports["gpu0>nvswitch"] == pytest.approx(result.ranks[0].metrics["collective_bytes"], rel=0.1)
    tight = simulate("gpt2-small-train", on="hgx-h100", parallel="data=2", memory="60 %", bounds=False)
    swapped = tight.ranks[0].metrics["h2d_bytes"] + tight.ranks[0].metrics["program_h2d_bytes"]
    assert swapped > 0 and tight.spec["link_bytes"]["switch0>gpu0"] == swapped
