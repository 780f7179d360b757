"""The figure of `gpusim fit`: what the program needs, by role, and how full it makes each machine, at which step time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.text import join
from gpusim.base.units import show_bytes, show_time
from gpusim.show.panels import logarithmic
from gpusim.show.style import (
    ALARM,
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INDIGO,
    INK,
    ORANGE,
    PINK,
    SKY,
    SOFT,
    VERMILION,
    canvas,
    headline,
    styled,
)
from gpusim.show.view import scale

# Green is left to the answers.
ROLES = {
    "parameter": BLUE, "gradient": SKY, "optimizer": INDIGO, "activation": ORANGE, "temporary": PINK, "workspace": VERMILION,
    "input": GREY, "unknown": SOFT, "fragmentation": "#C9CDD5",
}  # fmt: skip
EMULATES = " †"
CHAIN = 40  # letters of a chain that there is room for
ROW, PEAK, AXES = 0.2, 0.62, 0.75  # inches: a machine, the bar of the peak with its axis, the axes below

Machine = Mapping[str, Any]


@styled
def draw(values: Mapping[str, Any]) -> Figure:
    """Above, the peak by role; below, a line for each machine: how full it is, logarithmic, and how long a step takes.

    values   as in fit.json
    """
    machines = values["machines"]
    rows = ROW * max(len(machines), 2)
    figure = canvas()
    layout = figure.add_gridspec(2, 2, height_ratios=[PEAK, rows], width_ratios=[1.25, 1])
    roles = _peak(figure.add_subplot(layout[0, :]), values)
    timed = any((way := _way(m)) and way["step_ns"] is not None for m in machines)
    full = figure.add_subplot(layout[1, 0] if timed else layout[1, :])
    marks = _fullness(full, machines, values["reserved_bytes"], values["rule_of_thumb_bytes"])
    last = full
    if timed:
        last = figure.add_subplot(layout[1, 1], sharey=full)
        _times(last, machines)
    for y, machine in enumerate(machines):
        last.annotate(
            _words(machine, _way(machine)), (1.0, y), (4, 0), xycoords=("axes fraction", "data"), textcoords="offset points",
            va="center", fontsize=8, color=INK if _way(machine) else ALARM, gid=f"answer:{machine['profile']}",
        )  # fmt: skip
    names = [m["profile"] + (EMULATES if m.get("emulated") else "") for m in machines]
    full.set_yticks(range(len(machines)), names, fontsize=8)
    full.tick_params(axis="y", length=0)
    full.set_ylim(len(machines) - 0.5, -0.5)
    question = f"Where does {values['trace']} fit, and what makes it fit?"
    emulated = sorted({dtype for m in machines for dtype in m.get("emulated") or ()})
    note = f"{EMULATES.strip()} It has no units for {join(emulated)}, which it emulates." if emulated else ""
    headline(figure, question, _answer(values), note, strip=roles, second=marks, body=PEAK + rows + AXES)
    return figure


def _way(machine: Machine) -> Mapping[str, Any] | None:
    """The first way on one GPU, or else the first of all."""
    return next((way for way in machine["ways"] if way["gpus"] == 1), None) or next(iter(machine["ways"]), None)


def _peak(top: Axes, values: Mapping[str, Any]) -> list[Artist]:
    """What is alive when most is alive; the handles say how much of each."""
    parts = sorted(values["at_peak"].items(), key=lambda item: list(ROLES).index(item[0]))
    per_byte, unit = scale("B", max(sum(size for _, size in parts), 1))
    left = 0.0
    for name, size in parts:
        top.barh(0, size / per_byte, 0.8, left=left, color=ROLES[name], gid=f"role:{name}")
        left += size / per_byte
    top.set_yticks([0], ["at its peak"], fontsize=8)
    top.set_ylim(-0.5, 0.5)
    top.set_xlim(0, left or 1)
    top.tick_params(axis="y", length=0)
    top.set_xlabel(f"memory of the program [{unit}]")
    top.grid(visible=False)
    return [Patch(facecolor=ROLES[name], label=f"{name} {show_bytes(size)}") for name, size in parts if size]


def _fullness(panel: Axes, machines: Sequence[Machine], needed: float, rule: float | None) -> list[Artist]:
    """The share of each machine's memory that the program takes, as it is and with what makes it fit."""
    shares = [1.0]
    for y, machine in enumerate(machines):
        room, name, way = machine["capacity_bytes"], machine["profile"], _way(machine)
        plain = needed / room
        shares.append(plain)
        if y % 2 == 0:
            panel.axhspan(y - 0.5, y + 0.5, color=INK, alpha=0.04, lw=0, zorder=0)
        if rule:
            shares.append(rule / room)
            panel.plot([rule / room], [y], "|", color=SOFT, ms=6, mew=1.1, gid=f"rule of thumb:{name}", zorder=2)
        if machine["fits"]:
            panel.plot([plain], [y], "o", color=GREEN, ms=5.5, mew=0, gid=f"reserved:{name}", zorder=4)
            continue
        colour = GREEN if way else ALARM
        panel.plot([plain], [y], "o" if way else "X", color="white", mec=colour, ms=5, mew=1.3, gid=f"needed:{name}", zorder=3)
        if way:
            held = way["reserved_bytes"] / room
            shares.append(held)
            panel.plot([held, plain], [y, y], color=GREEN, lw=1.1, zorder=2)
            panel.plot([held], [y], "D", color=GREEN, ms=5, mew=0, gid=f"reserved:{name}", zorder=4)
    panel.axvspan(1, 1e9, color=ALARM, alpha=0.06, lw=0, zorder=0)
    panel.axvline(1, color=ALARM, lw=1.3, ls="--", gid="full")
    logarithmic(panel, min(shares) / 1.25, max(shares) * 1.25, lambda v: f"{100 * v:.4g}")
    panel.set_xlabel("of the machine's memory [%]")
    _gridded(panel)
    return _marks(machines, bool(rule))


def _marks(machines: Sequence[Machine], rule: bool) -> list[Artist]:
    def dot(marker: str, label: str, colour: str = GREEN, face: str = GREEN) -> Line2D:
        return Line2D([], [], ls="", marker=marker, color=face, mec=colour, mew=1.3, ms=5.5, label=label)

    helped, lost = (any(not m["fits"] and bool(m["ways"]) is way for m in machines) for way in (True, False))
    return [
        dot("o", "fits as it is"),
        *([dot("o", "as it is, too large", face="white"), dot("D", "with what is named")] if helped else []),
        *([dot("X", "nothing makes it fit", ALARM, "white")] if lost else []),
        Line2D([], [], color=ALARM, lw=1.3, ls="--", label="full"),
        *([Line2D([], [], ls="", marker="|", color=SOFT, ms=7, mew=1.2, label="16 bytes a parameter")] if rule else []),
    ]


def _times(panel: Axes, machines: Sequence[Machine]) -> None:
    """The interval of a step's estimated time, logarithmic."""
    ends = []
    for y, machine in enumerate(machines):
        if y % 2 == 0:
            panel.axhspan(y - 0.5, y + 0.5, color=INK, alpha=0.04, lw=0, zorder=0)
        way = _way(machine)
        if way is None or way["step_ns"] is None:
            continue
        ends += [way["low_ns"], way["high_ns"]]
        gid = f"time:{machine['profile']}"
        panel.plot([way["low_ns"], way["high_ns"]], [y, y], color=INK, lw=3.2, solid_capstyle="butt", gid=gid, zorder=3)
        panel.plot([way["step_ns"]], [y], "|", color=FAINT, ms=6, mew=1.4, zorder=4)
    logarithmic(panel, min(ends) / 1.3, max(ends) * 1.3, show_time, columns=2)
    panel.set_xlabel("a step, estimated: interval")
    panel.tick_params(axis="y", length=0, labelleft=False)
    _gridded(panel)


def _gridded(panel: Axes) -> None:
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)


def _words(machine: Machine, way: Mapping[str, Any] | None) -> str:
    """What makes it fit; nothing where it fits as it is."""
    if way is None:
        return "nothing that was tried"
    if machine["fits"]:
        return ""
    chain = way["remedy"] if len(way["remedy"]) <= CHAIN else way["remedy"][: CHAIN - 1] + "…"
    return " ".join(part for part in (chain, f"on {way['gpus']} GPUs" if way["gpus"] > 1 else "") if part)


def _answer(values: Mapping[str, Any]) -> str:
    fits = [m for m in values["machines"] if m["fits"]]
    helped = [m for m in values["machines"] if m["ways"] and not m["fits"]]
    need, all_of_them = show_bytes(values["reserved_bytes"]), len(values["machines"])
    return f"It needs {need}: it fits {len(fits)} of {all_of_them} machines as it is, {len(helped)} more with what is named."
