"""Draws `docs/house.svg`, the rooms and the imports between them, from the code as it is.

    python docs/house.py          writes the picture
    python docs/house.py --check  exit code 1 when it shows other arrows than the code has

An arrow A -> B is drawn where A imports B and no other way leads from A to B.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "house.svg"
WIDTH, HEIGHT, GAP = 214, 50, 26
# Room -> (column, floor from the top, what it holds).
PLACES = {
    "cli": (1.0, 0, "the verbs of the command line"),
    "api": (1.0, 1, "the public classes and calls"),
    "show": (1.0, 2, "figures, tables, reports"),
    "studies": (0.0, 3, "capacity, fragmentation, G10"),
    "calibrate": (1.0, 3, "measure, fit, compare"),
    "experiment": (2.0, 3, "grid, runs, resume, intervals"),
    "engine": (1.0, 4, "clock, memory, pages, host"),
    "programs": (1.0, 5, "record, zoo, generate, transform"),
    "policies": (1.0, 6, "place, evict, prefetch, plan, ..."),
    "referee": (2.5, 6, "recomputes a run from its log"),
    "machine": (0.5, 7, "profiles, tiers, kernel times"),
    "results": (1.75, 7, "metrics, event log, run folder"),
    "trace": (1.0, 8, "traces, importers, exporters"),
    "base": (1.0, 9, "units, errors, YAML, compiling"),
}
Arrows = set[tuple[str, str]]


def rooms() -> list[str]:
    """The rooms from the top down, as the import contract of pyproject.toml lists them."""
    contract = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"][0]
    return [layer.strip("()") for layer in contract["layers"] if layer != "__main__"]


def imports() -> Arrows:
    """(room, room that it imports), of all files."""
    found: Arrows = set()
    for file in (ROOT / "gpusim").rglob("*.py"):
        room = file.relative_to(ROOT / "gpusim").parts[0]
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and not node.level:
                below = [node.module] if node.module != "gpusim" else [f"gpusim.{alias.name}" for alias in node.names]
            elif isinstance(node, ast.Import):
                below = [alias.name for alias in node.names]
            else:
                continue
            found |= {(room, name.split(".")[1]) for name in below if name.startswith("gpusim.")}
    return {(a, b) for a, b in found if a != b and a in PLACES and b in PLACES}


def reachable(arrows: Arrows, start: str) -> set[str]:
    """All rooms below one."""
    found: set[str] = set()
    waiting = [start]
    while waiting:
        room = waiting.pop()
        new = {b for a, b in arrows if a == room} - found
        found |= new
        waiting += new
    return found


def drawn(arrows: Arrows) -> Arrows:
    """The arrows that do not follow from others.  Raises ValueError for one that runs up or in a circle."""
    order = rooms()
    if up := sorted((a, b) for a, b in arrows if order.index(a) >= order.index(b)):
        raise ValueError(f"these imports run up: {up}")
    return {(a, b) for a, b in arrows if not any(b in reachable(arrows, c) for x, c in arrows if x == a and c != b)}


def _corner(room: str) -> tuple[float, float]:
    column, floor, _ = PLACES[room]
    return 20 + column * (WIDTH + GAP), 20 + floor * (HEIGHT + GAP)


def svg() -> str:
    """The picture: each room a box on its floor, each arrow from the lower edge of a box to the upper edge of another."""
    everything = imports()
    used = {room for arrow in everything for room in arrow}
    shown = [room for room in rooms() if room in used]
    width = round(max(_corner(r)[0] for r in shown) + WIDTH + 20)
    height = round(max(_corner(r)[1] for r in shown) + HEIGHT + 20)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif">',
        "<title>The rooms of gpusim and the imports between them: all run down</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7.5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path d="M0 0 8 4 0 8z" fill="#5b6b7b"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="10" fill="#fbfaf7"/>',
    ]
    for above, below in sorted(drawn(everything)):
        (x, y), (to_x, to_y) = _corner(above), _corner(below)
        shift = max(-0.34, min(0.34, (to_x - x) / (3 * WIDTH))) * WIDTH
        x, to_x = x + WIDTH / 2 + shift, to_x + WIDTH / 2 - shift
        y += HEIGHT
        bend = (to_y - y) / 2
        if to_x - x > WIDTH:  # far to the right: out of the side, past the rooms between
            x, y, to_x = _corner(above)[0] + WIDTH, y - HEIGHT / 2, _corner(below)[0] + 0.6 * WIDTH
            curve = f"M{x:.0f} {y:.0f} C{to_x:.0f} {y:.0f} {to_x:.0f} {y + 60:.0f} {to_x:.0f} {to_y - 1:.0f}"
        else:
            curve = f"M{x:.0f} {y:.0f} C{x:.0f} {y + bend:.0f} {to_x:.0f} {to_y - bend:.0f} {to_x:.0f} {to_y - 1:.0f}"
        lines.append(f'<path d="{curve}" fill="none" stroke="#5b6b7b" stroke-width="1.5" marker-end="url(#tip)"/>')
    for room in shown:
        x, y = _corner(room)
        lines += [
            f'<rect x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{HEIGHT}" rx="6" fill="#e4ecf4" stroke="#39618a"/>',
            f'<text x="{x + 12:.0f}" y="{y + 21:.0f}" font-size="15" font-weight="bold" fill="#1d3b58">{room}</text>',
            f'<text x="{x + 12:.0f}" y="{y + 39:.0f}" font-size="12" fill="#333">{escape(PLACES[room][2])}</text>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def main(words: list[str]) -> int:
    if "--check" in words:
        return int(not PICTURE.is_file() or PICTURE.read_text("utf-8") != svg())
    PICTURE.write_text(svg(), encoding="utf-8")
    print(PICTURE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
