"""A machine as a picture: sockets above, what is below them, links between GPUs as arcs; or how busy each link is."""

from __future__ import annotations

from collections.abc import Mapping

from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import PathPatch
from matplotlib.path import Path as Curve

from gpusim.base.units import RATE, show
from gpusim.machine.topology.topology import DIRECT, INSIDE, Topology, TopologyLink
from gpusim.show import style
from gpusim.show.style import FAINT, INK, PAPER, SOFT, canvas, headline, styled

MOST_GPUS = 16
"""GPUs whose hosts are drawn; of a larger machine the first."""
_COLOURS = {
    "nvlink": style.GREEN, "optical": style.PINK, "pcie": style.BLUE, "c2c": style.WINE, "socket": style.ORANGE,
    "network": style.VERMILION, "cxl": style.GREY,
}  # fmt: skip
_HEAT = colormaps["YlOrRd"]
Places = dict[str, tuple[float, float]]


@styled
def draw(
    made: Topology, loads: Mapping[str, float] | None = None, about: str = "", answer: str = "", note: str = ""
) -> Figure:
    """The machine; `loads`: share of its time that each link was busy, by name, which then colours it.

    about, answer, note  what stands above and below instead of the machine's summary
    """
    places = _places(made)
    figure = canvas(height=2.4 + 0.9 * max(1.0, -min(y for _, y in places.values())))
    axes = figure.add_subplot()
    axes.axis("off")
    drawn = [link for link in made.links.values() if link.a in places and link.b in places and link.a < link.b]
    for link in drawn:
        _draw_link(axes, made, places, link, loads)
    crowded = len({x for x, _ in places.values()}) > 20
    for name, (x, y) in places.items():
        _draw_node(axes, made, name, x, y, crowded)
    left = len(made.gpus) - len([gpu for gpu in made.gpus if gpu in places])
    note = " ".join(words for words in (note, f"{left} more GPUs are not drawn" if left else "") if words)
    about = about or (made.file.summary if not made.network else f"{made.name}: {made.file.summary}")
    marked = "an estimate: no such machine was measured" if made.file.estimate else ""
    headline(figure, about, answer or marked, note, _legend(drawn, loads))
    return figure


def _places(made: Topology) -> Places:
    """Where nodes stand: one column for each leaf, a row for each step below the socket."""
    places: Places = {}
    column, gpus = 0.0, 0
    for host in sorted(set(made.host.values())):
        sockets = [n for n in made.nodes if made.host.get(n) == host and made.nodes[n].kind == "socket"]
        for socket in sockets:
            column = _place(made, socket, column, 0, places)
        column += 0.6
        gpus = sum(name in places for name in made.gpus)
        if gpus >= MOST_GPUS:
            break
    lowest = min(y for _, y in places.values())
    for name, node in made.nodes.items():
        joined = [places[link.b][0] for link in made.neighbours[name] if link.b in places]
        if node.kind in ("nvswitch", "network", "cxl") and joined:
            below = node.kind == "nvswitch"
            places[name] = (sum(joined) / len(joined), lowest - 1.3 if below else 1.0)
    return places


def _place(made: Topology, name: str, column: float, row: int, places: Places) -> float:
    """Place a node and what is below it; returns the next free column."""
    places[name] = (column, -row)
    below = [
        link.b for link in made.neighbours[name]
        if link.kind in INSIDE and link.b not in places and made.nodes[link.b].kind != "socket"
        and made.nodes[name].kind in ("socket", "switch")
    ]  # fmt: skip
    below.sort(key=lambda other: made.nodes[other].kind == "nic")
    start = column
    for other in below:
        column = _place(made, other, column, row + 1, places)
    places[name] = ((start + max(start, column - 1)) / 2, -row)
    return max(column, start + 1)


def _draw_node(axes: Axes, made: Topology, name: str, x: float, y: float, crowded: bool) -> None:
    """A box with the node's name; in a crowd those of leaves stand upright and leave their host's out."""
    kind = made.nodes[name].kind
    gpu, leaf = kind == "gpu", kind in ("gpu", "nic", "nvme")
    axes.text(
        x, y, name.rpartition(".")[2] if crowded and leaf else name, ha="center", va="center", fontsize=8.5,
        rotation=90 if crowded and leaf else 0, color=PAPER if gpu else INK, zorder=3, gid=f"node {name}",
        bbox={"boxstyle": "round,pad=0.35", "facecolor": INK if gpu else PAPER, "edgecolor": SOFT, "linewidth": 0.8},
    )  # fmt: skip


def _draw_link(axes: Axes, made: Topology, places: Places, link: TopologyLink, loads: Mapping[str, float] | None) -> None:
    (xa, ya), (xb, yb) = places[link.a], places[link.b]
    bend = 0.0
    if made.nodes[link.a].kind == made.nodes[link.b].kind and ya == yb:
        bend = (-0.35 if link.kind in DIRECT else 0.25) * (1 + 0.45 * abs(xa - xb) ** 0.8)
    colour, width = _COLOURS[link.kind], 1.0 + 0.5 * min(4, link.count)
    if loads is not None:
        busy = max(loads.get(name, 0.0) for name in (link.name, f"{link.b}>{link.a}", link.pair))
        part = min(1.0, busy / _top(loads))
        colour, width = _heat(part) if busy else FAINT, 1.5 + 3 * part
    curve = Curve([(xa, ya), ((xa + xb) / 2, (ya + yb) / 2 + bend), (xb, yb)], [Curve.MOVETO, Curve.CURVE3, Curve.CURVE3])
    axes.add_patch(PathPatch(curve, facecolor="none", edgecolor=colour, linewidth=width, zorder=1, gid=f"link {link.name}"))
    axes.update_datalim([(xa, ya), ((xa + xb) / 2, (ya + yb) / 2 + bend / 2), (xb, yb)])
    axes.autoscale_view()


def _top(loads: Mapping[str, float]) -> float:
    """The share of the darkest colour: the least of a few that no link is above."""
    most = max(loads.values(), default=0.0)
    return next((top for top in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5) if most <= top), 1.0)


def _heat(part: float) -> str:
    return to_hex(_HEAT(0.15 + 0.85 * part))


def _legend(links: list[TopologyLink], loads: Mapping[str, float] | None) -> list[Line2D]:
    """A line for each kind with its rates; or for shares of busy time."""
    if loads is not None:
        top = _top(loads)
        parts = (0.1, 0.5, 1.0)
        return [Line2D([], [], color=_heat(s), linewidth=1.5 + 3 * s, label=f"busy {100 * s * top:g} %") for s in parts]
    found = []
    for kind in dict.fromkeys(link.kind for link in links):
        rates = sorted({link.rate / link.count for link in links if link.kind == kind})
        said = show(rates[0], RATE, 3) + (f" to {show(rates[-1], RATE, 3)}" if rates[-1] > rates[0] else "")
        found.append(Line2D([], [], color=_COLOURS[kind], linewidth=2, label=f"{kind} {said}"))
    return found
