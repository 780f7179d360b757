"""What would each allocator have held?  Reserved, allocated and requested bytes of all candidates over the program."""

from __future__ import annotations

from collections import Counter

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from gpusim.base.units import show_bytes
from gpusim.policies.trials.allocator_replay import AllocatorReplay
from gpusim.show.style import ALARM, BLACK, FAINT, HEIGHT, INK, Look, canvas, headline, looks, styled
from gpusim.show.view import scale
from gpusim.studies.fragmentation.baseline import SettingOutcome
from gpusim.studies.fragmentation.recorded import NAME
from gpusim.studies.fragmentation.study import FragmentationStudy, show_share
from gpusim.trace.trace import I64

MOST = 10  # curves of one figure
FAR = 3    # times what is held now: no curve


@styled
def draw(found: FragmentationStudy) -> Figure:
    """Above: reserved and allocated over the bytes that the program asks for; below: what is reserved beyond them."""
    shown = _worth_showing(found)
    names = [r.name for r in shown]
    look = looks([n for n in names if n != found.now.name]) | {found.now.name: Look(BLACK, "")}
    figure = canvas(height=HEIGHT * 1.3)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    above.tick_params(labelbottom=False)
    highest = max((r.held_peak for r in shown), default=1)
    per_byte, unit = scale("B", highest)
    asked = found.now.samples["requested"]
    beyond = max((int((r.samples["held"] - r.samples["requested"])[_at(r) >= 0].max(initial=0)) for r in shown), default=0)
    per_idle, idle_unit = scale("B", beyond)
    above.fill_between(_at(found.now), 0, asked / per_byte, step="post", color=FAINT, lw=0, gid="requested")
    drawn, alike = Counter[str](), set()
    for rank, replay in enumerate(shown):
        colour, held, rounded = look[replay.name].colour, replay.samples["held"], replay.samples["rounded"]
        at, requested = _at(replay), replay.samples["requested"]
        width = 2.2 - 1.2 * rank / max(1, len(shown) - 1)
        style = ("-", "--", "-.")[drawn[colour] % 3]  # a look differs in its marker alone where colours run out
        drawn[colour] += 1
        label = f"{replay.name} (now)" if replay is found.now and replay.name != NAME else replay.name
        above.step(at, held / per_byte, where="post", color=colour, lw=width, ls=style, label=label, gid=replay.name)
        if rounded.tobytes() not in alike:  # most allocators round alike
            alike.add(rounded.tobytes())
            above.step(at, rounded / per_byte, where="post", color=colour, lw=0.9, ls=":", gid=f"allocated:{replay.name}")
        beside = f"beyond:{replay.name}"
        below.step(at, (held - requested) / per_idle, where="post", color=colour, lw=width, ls=style, gid=beside)
        if not replay.fits:
            refused = replay.counts["refused_at"]
            high = held[min(refused // replay.counts["bucket"], len(held) - 1)] / per_byte
            above.plot([refused - replay.program.before], [high], "x", color=ALARM, ms=8, mew=2.2)
    top = highest
    if found.capacity < 1.3 * highest:
        above.axhline(found.capacity / per_byte, color=ALARM, lw=1.1, ls="--", gid="capacity")
        top = max(top, found.capacity)
    above.set_xlim(0, max(found.program.total - found.program.before, 1))
    above.set_ylim(0, top / per_byte * 1.06)
    above.set_ylabel(f"memory [{unit}]")
    below.set_ylim(0, beyond / per_idle * 1.06 or 1)
    below.set_ylabel(f"reserved beyond\nrequested [{idle_unit}]")
    below.set_xlabel("request")
    handles = [*above.get_legend_handles_labels()[0], Line2D([], [], color=INK, lw=1.8, label="reserved")]
    handles += [Line2D([], [], color=INK, lw=0.9, ls=":", label="allocated"), Patch(facecolor=FAINT, label="requested")]
    above.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.03), borderaxespad=0)
    crosses = "Red cross: a request is refused." if any(not r.fits for r in shown) else ""
    left_out = [f"{t.high.name} ({show_bytes(t.high.held_peak)})" for t in found.tried if _far(found, t.high)]
    note = " ".join(filter(None, (crosses, f"Not shown: {', '.join(left_out)}." if left_out else "")))
    headline(figure, "What would each allocator have held?", _least(found), note)
    return figure


def _at(replay: AllocatorReplay) -> I64:
    """The request of each sample, counted from the recording's first: each allocator begins with requests of its own."""
    return np.arange(len(replay.samples)) * replay.counts["bucket"] - replay.program.before


def _worth_showing(found: FragmentationStudy) -> list[AllocatorReplay]:
    """What is now, then the candidates, those that hold most first so that the lowest curve is on top."""
    others = [t.high for t in found.tried if t.high is not found.now and not _far(found, t.high)][: MOST - 1]
    return [found.now, *sorted(others, key=lambda r: -r.held_peak)]


def _far(found: FragmentationStudy, replay: AllocatorReplay) -> bool:
    """It holds so much more than now that beside it nothing else could be told apart."""
    return replay.held_peak > FAR * max(found.now.held_peak, found.asked)


def _least(found: FragmentationStudy) -> str:
    first: SettingOutcome | None = next((t for t in found.tried if t.fits), None)
    if first is None:
        return "No candidate can serve all requests."
    own = found.base.replay.held_peak
    saved = 1 - first.high.held_peak / own if own else 0.0
    than = f", {show_share(saved)} less than its own allocator" if saved > 0 else ", no less than its own allocator"
    return f"{first.high.name} holds least: {show_bytes(first.high.held_peak)} at its peak{than}."
