"""A breadth-first search of a random graph, level by level: what a frontier kernel touches, by index."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpusim.programs.managed.patterns import I64


def levels(nodes: int, degree: int, seed: int, start: int) -> Iterator[tuple[I64, I64]]:
    """For each level: the nodes of the frontier in ascending order, and [node, k] the node that its k-th edge leads to.

    Each node has `degree` edges to random nodes.
    """
    targets = np.random.default_rng(seed).integers(0, nodes, (nodes, degree))
    seen = np.zeros(nodes, bool)
    seen[start] = True
    frontier = np.array([start], np.int64)
    while len(frontier):
        reached = targets[frontier]
        yield frontier, reached
        before = seen.copy()
        seen[reached.ravel()] = True
        frontier = np.flatnonzero(seen & ~before).astype(np.int64)
