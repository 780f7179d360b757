"""What a node of `search.py` asks: which section of the floor's valleys, and what may be next there."""

from __future__ import annotations

from typing import Any

from gpusim.base.compiled import kernel
from gpusim.policies.place.parts.packing.board import G_END, G_FIRST, G_FROM, G_TO, HIGHEST, Board, fits, waits

# Which section of the valleys a node asks about, always one with a single option first.
FEWEST, LOWEST, RANKED = range(3)  # with the fewest options; of the lowest valley; where the lowest, then earliest, buffer fits


@kernel
def beneath(b: Board, g: Any) -> int:
    """A buffer that fits under all that is still to come in its sections: it may as well be placed now.

    -1 when there is none; -2 when one would fit there below the floor, so that no plan from here is the lowest.
    """
    for k in range(g[G_FROM], g[G_TO]):
        i = b.members[k]
        if waits(b, i):
            continue
        above = HIGHEST
        for s in range(b.first[i], b.end[i]):
            above = min(above, b.lowest[s, 2] if b.lowest[s, 1] == i else b.lowest[s, 0])
        if b.support[i] + b.size[i] <= above:
            return i if b.support[i] == b.low[i] else -2
    return -1


@kernel
def pick(b: Board, g: Any, capacity: int, rule: int) -> Any:
    """(section, height to which its floor rises if no buffer is next, or -1), from the valleys of the group's floor.

    (-1, 0) when some section has no option left; (-2, 0) when a floor rose, since that was the only one.
    """
    lo, hi = g[G_FIRST], g[G_END]
    b.fitting[lo:hi] = 0
    chosen = -1
    for k in range(g[G_FROM], g[G_TO]):
        i = b.members[k]
        if fits(b, i):
            for s in range(b.first[i], b.end[i]):
                b.fitting[s] += 1 if b.floor[s] == b.low[i] else 0
            if chosen < 0 or b.low[i] < b.low[chosen]:
                chosen = i
    picked, rise, least, then = -1, -1, HIGHEST, 0
    x = lo
    while x < hi:
        height, y = b.floor[x], x + 1
        while y < hi and b.floor[y] == height:
            y += 1
        left = b.floor[x - 1] if x > lo else HIGHEST
        right = b.floor[y] if y < hi else HIGHEST
        if left > height and right > height:
            _gauge(b, g, x, y)
            for s in range(x, y):
                up = min(left, right, height + min(b.beside[0, s], b.beside[1, s + 1]))
                if up + b.need[s] > capacity:
                    up = -1
                options = b.fitting[s] + (1 if up >= 0 else 0)
                if options == 0:
                    return -1, 0
                if b.fitting[s] == 0:
                    b.floor[s] = up
                    return -2, 0
                slack = capacity - b.need[s] - height
                if options == 1:
                    first, second = -1, 0
                elif rule == FEWEST:
                    first, second = options, slack
                elif rule == LOWEST:
                    first, second = height, options
                else:
                    first, second = 0 if b.first[chosen] <= s < b.end[chosen] else 1, options
                if first < least or (first == least and second < then):
                    picked, rise, least, then = s, up, first, second
        x = y
    return picked, rise


@kernel
def _gauge(b: Board, g: Any, x: int, y: int) -> None:
    """beside[0, s]: the smallest buffer of the valley [x, y) that ends at s or before; [1, s]: that begins at s or after."""
    b.beside[:, x : y + 1] = HIGHEST >> 1
    for k in range(g[G_FROM], g[G_TO]):
        i = b.members[k]
        if b.first[i] >= x and b.end[i] <= y:
            b.beside[0, b.end[i]] = min(b.beside[0, b.end[i]], b.size[i])
            b.beside[1, b.first[i]] = min(b.beside[1, b.first[i]], b.size[i])
    for s in range(x + 1, y + 1):
        b.beside[0, s] = min(b.beside[0, s], b.beside[0, s - 1])
    for s in range(y - 1, x - 1, -1):
        b.beside[1, s] = min(b.beside[1, s], b.beside[1, s + 1])
