"""The figure of `gpusim fit`: what the program needs, by role, against what each machine has, and what makes it fit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpusim.show.style import ALARM, BLUE, FAINT, GREEN, GREY, INK, ORANGE, PINK, SKY, SOFT, VERMILION, canvas, headline, styled
from gpusim.show.view import scale
from gpusim.units import show_bytes, show_time

COLOURS = {
    "parameter": BLUE, "gradient": SKY, "optimizer": GREEN, "activation": ORANGE, "temporary": PINK, "workspace": VERMILION,
    "input": GREY, "unknown": SOFT, "fragmentation": "#C9CDD5",
}  # fmt: skip


@styled
def draw(values: Mapping[str, Any]) -> Figure:
    """Above, the peak by role; below, one line for each machine: its memory, and what was needed there.

    values   as in fit.json
    """
    machines = values["machines"]
    rows = len(machines)
    figure = canvas(height=1.9 + 0.19 * max(rows, 4))
    top, panel = figure.subplots(2, 1, height_ratios=[1, max(4.0, 0.38 * rows)], sharex=True)
    most = max([values["reserved_bytes"], *(m["capacity_bytes"] for m in machines)], default=1)
    per_byte, unit = scale("B", most)
    left = 0.0
    for name, size in sorted(values["at_peak"].items(), key=lambda item: list(COLOURS).index(item[0])):
        top.barh(0, size / per_byte, 0.8, left=left, color=COLOURS[name], gid=f"role:{name}")
        left += size / per_byte
    top.set_yticks([0], ["needed"])
    top.tick_params(axis="y", length=0)
    top.grid(visible=False)
    seen = [name for name in COLOURS if values["at_peak"].get(name, 0) > 0.002 * values["reserved_bytes"]]
    handles = [Patch(facecolor=COLOURS[name], label=name) for name in seen]
    for y, m in enumerate(machines):
        alone = next((way for way in m["ways"] if way["gpus"] == 1), None)
        way = alone or next(iter(m["ways"]), None)
        colour = GREEN if m["fits"] else BLUE if way else ALARM
        panel.barh(y, m["capacity_bytes"] / per_byte, 0.72, color=FAINT, gid=f"memory:{m['profile']}")
        panel.barh(y, most / per_byte * 0.006, 0.72, color=colour)
        words = "does not fit"
        if way:
            what = "fits" if m["fits"] else way["remedy"] + (f" on {way['gpus']} GPUs" if way["gpus"] > 1 else "")
            words = f"{what}: {show_time(way['step_ns'])}" + ("" if m["fits"] else f", {way['slowdown']:.2f}x")
        inside = m["capacity_bytes"] > 0.62 * most
        beside = max(m["capacity_bytes"], values["reserved_bytes"] if m["capacity_bytes"] < values["reserved_bytes"] else 0)
        panel.annotate(
            words, ((m["capacity_bytes"] if inside else beside) / per_byte, y), (-4 if inside else 4, 0),
            textcoords="offset points", va="center", ha="right" if inside else "left", fontsize=7.5,
            color=INK if way else ALARM, gid=f"answer:{m['profile']}",
        )  # fmt: skip
    panel.axvline(values["reserved_bytes"] / per_byte, color=INK, lw=1.1, gid="needed")
    if values["rule_of_thumb_bytes"] and values["rule_of_thumb_bytes"] <= 1.3 * most:
        panel.axvline(values["rule_of_thumb_bytes"] / per_byte, color=INK, lw=1.0, ls=":", gid="rule of thumb")
    panel.set_yticks(range(rows), [m["profile"] for m in machines], fontsize=7.5)
    panel.tick_params(axis="y", length=0)
    panel.set_ylim(rows - 0.4, -0.6)
    panel.set_xlim(0, most / per_byte * 1.05)
    panel.grid(axis="y", visible=False)
    panel.grid(axis="x", visible=True)
    panel.set_xlabel(f"memory [{unit}]: what each machine has; line: needed as it is; dotted: 16 bytes for each parameter")
    headline(figure, f"Where does {values['trace']} fit, and what makes it fit?", _answer(values), strip=handles)
    return figure


def _answer(values: Mapping[str, Any]) -> str:
    fits = [m for m in values["machines"] if m["fits"]]
    helped = [m for m in values["machines"] if m["ways"] and not m["fits"]]
    need = show_bytes(values["reserved_bytes"])
    return f"It needs {need}: {len(fits)} of {len(values['machines'])} machines have that, {len(helped)} more can be helped."
