"""Does `gpusim machines` say what a machine is, and how bytes go in it?"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.text import Text
from test_cli import gpusim as typed

import gpusim
from gpusim.machine.topology import build
from gpusim.show.topology import draw

pytestmark = pytest.mark.fast


def test_all_machines_stand_in_a_line_each() -> None:
    lines = typed("machines").stdout.splitlines()
    assert len(lines) == 2 + len(build.names())
    assert any(line.split()[0] == "dgx-1-v100" and "NV1, NV2, MEM" in line for line in lines[2:])
    assert any(line.startswith("cxl-pool-2x-h100") and line.rstrip().endswith("yes") for line in lines)


def test_a_machine_is_shown_with_nodes_wires_and_ways() -> None:
    text = typed("machines", "dgx-1-v100").stdout
    assert "    switch0\n      gpu0  v100-sxm2-16gb\n" in text
    assert "NV# so many NVLinks; MEM staged through the host's memory" in text
    found = json.loads(typed("machines", "dgx-1-v100", "--json").stdout)
    assert found["between_gpus"][0]["gpu3"] == "NV2" and found["between_gpus"][0]["gpu5"] == "MEM"
    assert found == json.loads(json.dumps(gpusim.machines("dgx-1-v100")))
    assert "an estimate" in typed("machines", "optical-16x-b200").stdout


def test_a_route_is_shown_with_its_reason() -> None:
    text = typed("machines", "dgx-1-v100", "gpu0", "gpu5").stdout
    assert text.startswith("gpu0 > switch0 > socket0 > socket1 > switch2 > gpu5, 10.49 GB/s\nno link between them")
    assert typed("machines", "hgx-h100", "gpu0", "gpu1", "--no-peers").stdout.splitlines()[1].startswith("direct access is off")
    across = json.loads(typed("machines", "2 x hgx-h100", "n0.gpu1", "n1.gpu1", "--json").stdout)
    assert across["rate"] == 47.7e9 and "RDMA" in across["reason"]


def test_a_collective_is_shown_with_channels_and_times() -> None:
    text = typed("machines", "hgx-h100", "--collective", "all_reduce").stdout
    assert text.startswith("hgx-h100: all_reduce of 8 GPUs\nrings 12 x 30 GB/s; trees 12 x 30 GB/s; NVLS 8 x 40 GB/s\n")
    assert "NVLS" in text.splitlines()[-1] and "1 KiB" in text
    found = json.loads(typed("machines", "2 x hgx-h100", "--collective", "send", "--gpus", "n0.gpu1,n1.gpu1", "--json").stdout)
    assert found == json.loads(json.dumps(gpusim.machines("2 x hgx-h100", collective="send", gpus="n0.gpu1, n1.gpu1")))
    assert found["nodes"] == 2 and {row["algorithm"] for row in found["times"]} == {"direct"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("dgx-1", ""), "no machine 'dgx-1'"),
        (("dgx-2", "gpu0"), "a route has two ends"),
        (("dgx-2", "gpu0", "gpu77"), "has no node 'gpu77'"),
        (("dgx-2", "-o", "picture.gif"), "not drawn as '.gif'"),
        (("-o", "picture.png"), "a figure shows one machine"),
        (("cxl-pool-2x-h100", "gpu0", "gpu3"), "which no network of machine"),
        (("dgx-2", "--collective", "all_reduced"), "'all_reduced' is no collective"),
        (("dgx-2", "--collective", "all_reduce", "--gpus", "17"), "has 16 GPUs for a collective, not 17"),
        (("--collective", "all_reduce"), "a collective is one of a machine"),
        (("dgx-2", "--collective", "send"), "two ends, not 16"),
    ],
)
def test_what_cannot_be_answered_is_refused(words: tuple[str, ...], said: str) -> None:
    done = typed("machines", *words, code=2)
    assert said in done.stderr


def test_a_figure_has_every_node_and_link(tmp_path: Path) -> None:
    typed("machines", "dgx-1-v100", "-o", tmp_path / "dgx1.svg")
    assert "gpu7" in (tmp_path / "dgx1.svg").read_text() or (tmp_path / "dgx1.svg").stat().st_size > 10_000
    made = build.load("dgx-1-v100")
    axes = draw(made).axes[0]
    assert {text.get_gid() for text in axes.texts} == {f"node {name}" for name in made.nodes}
    assert len(axes.patches) == len(made.links) / 2


def test_a_large_machine_is_drawn_in_part_and_says_so() -> None:
    figure = draw(build.load("gb200-nvl72"))
    assert "56 more GPUs are not drawn" in [text.get_text() for text in figure.findobj(Text)]


def test_links_are_coloured_by_how_busy_they_are() -> None:
    made = build.load("dgx-1-v100")
    patches = {patch.get_gid(): patch for patch in draw(made, {"gpu0>gpu1": 0.9, "gpu0=switch0": 0.2}).axes[0].patches}
    busy, half, idle = (patches[f"link {name}"] for name in ("gpu0>gpu1", "gpu0>switch0", "gpu2>gpu3"))
    assert busy.get_linewidth() > half.get_linewidth() > idle.get_linewidth()
    assert busy.get_edgecolor() != half.get_edgecolor() != idle.get_edgecolor()
