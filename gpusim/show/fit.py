"""The figure of `gpusim fit`: what the program needs, by role, against what each machine has, and what makes it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes, show_time
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
HELPED = "#94D3C0"  # a paler green
CHAIN = 34  # letters of a chain that there is room for
ROW = 0.19  # inches


@styled
def draw(values: Mapping[str, Any]) -> Figure:
    """Above, the peak by role; below, one line for each machine: its memory, what is reserved of it, and the answer.

    values   as in fit.json
    """
    machines, needed, rule = values["machines"], values["reserved_bytes"], values["rule_of_thumb_bytes"]
    figure = canvas(height=2.2 + ROW * max(len(machines), 2))
    top, panel = figure.subplots(2, 1, height_ratios=[4, max(len(machines), 2)], sharex=True)
    most = max([needed, *(m["capacity_bytes"] for m in machines)], default=1)
    per_byte, unit = scale("B", most)
    _peak(top, values, per_byte)
    for y, machine in enumerate(machines):
        _machine(panel, y, machine, per_byte)
    handles = [
        Patch(facecolor=GREEN, label="fits as it is"),
        Patch(facecolor=HELPED, label="fits with what is named"),
        Patch(facecolor=FAINT, label="the machine's memory"),
        Line2D([], [], color=INK, lw=1.2, label="needed"),
    ]
    for line in (top, panel):
        line.axvline(needed / per_byte, color=INK, lw=1.2, gid="needed")
    if rule and rule <= 1.3 * most:
        handles.append(Line2D([], [], color=INK, lw=1.1, ls=":", label="16 bytes a parameter"))
        for line in (top, panel):
            line.axvline(rule / per_byte, color=INK, lw=1.1, ls=":", gid="rule of thumb")
    panel.set_yticks(range(len(machines)), [m["profile"] for m in machines], fontsize=7.5)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(len(machines) - 0.4, -0.6)
    panel.set_xlim(0, max(most, rule if rule and rule <= 1.3 * most else 0) / per_byte * 1.03)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)
    panel.set_xlabel(f"memory [{unit}]")
    headline(figure, f"Where does {values['trace']} fit, and what makes it fit?", _answer(values), strip=handles)
    return figure


def _peak(top: Axes, values: Mapping[str, Any], per_byte: float) -> None:
    """What is alive when most is alive, and beside it how much of each."""
    parts = sorted(values["at_peak"].items(), key=lambda item: list(ROLES).index(item[0]))
    left = 0.0
    for name, size in parts:
        top.barh(0, size / per_byte, 0.8, left=left, color=ROLES[name], gid=f"role:{name}")
        left += size / per_byte
    top.set_yticks([0], ["at its peak"], fontsize=7.5)
    top.set_ylim(-0.5, 0.5)
    top.tick_params(length=0, labelbottom=False)
    top.spines["bottom"].set_visible(False)
    top.grid(visible=False)
    top.legend(
        handles=[Patch(facecolor=ROLES[name], label=f"{name} {show_bytes(size)}") for name, size in parts if size],
        loc="center left", bbox_to_anchor=(1.0, 0.5), ncols=1 if len(parts) < 4 else 2, fontsize=7.5, handlelength=1.0,
        columnspacing=1.0, labelspacing=0.3, borderaxespad=0.3,
    )  # fmt: skip


def _machine(panel: Axes, y: int, machine: Mapping[str, Any], per_byte: float) -> None:
    """One machine: its memory, how much of that is reserved, and the answer in words."""
    name = machine["profile"]
    way = next((way for way in machine["ways"] if way["gpus"] == 1), None) or next(iter(machine["ways"]), None)
    panel.barh(y, machine["capacity_bytes"] / per_byte, 0.72, color=FAINT, gid=f"memory:{name}")
    if way:
        panel.barh(
            y, way["reserved_bytes"] / per_byte, 0.72, color=GREEN if machine["fits"] else HELPED, gid=f"reserved:{name}"
        )
    panel.annotate(
        _words(machine, way), (1.0, y), (5, 0), xycoords=("axes fraction", "data"), textcoords="offset points", va="center",
        fontsize=7.5, color=INK if way else ALARM, gid=f"answer:{name}",
    )  # fmt: skip


def _words(machine: Mapping[str, Any], way: Mapping[str, Any] | None) -> str:
    if way is None:
        return "nothing that was tried makes it fit"
    if way["step_ns"] is None:
        return "fits"
    time = f"est. {show_time(way['low_ns'])} to {show_time(way['high_ns'])}"
    emulated = f" ({', '.join(machine['emulated'])} emulated)" if machine.get("emulated") else ""
    if machine["fits"]:
        return f"fits: {time} a step{emulated}"
    chain = way["remedy"] if len(way["remedy"]) <= CHAIN else way["remedy"][: CHAIN - 1] + "…"
    gpus = f" on {way['gpus']} GPUs" if way["gpus"] > 1 else ""
    return f"{chain}{gpus}: {time}{emulated}"


def _answer(values: Mapping[str, Any]) -> str:
    fits = [m for m in values["machines"] if m["fits"]]
    helped = [m for m in values["machines"] if m["ways"] and not m["fits"]]
    need, all_of_them = show_bytes(values["reserved_bytes"]), len(values["machines"])
    return f"It needs {need}: it fits {len(fits)} of {all_of_them} machines as it is, {len(helped)} more with what is named."
