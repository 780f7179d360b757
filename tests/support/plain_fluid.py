"""Bytes and kernels' work in continuous time, shared max-min, as exact fractions; a part of `plain_model`."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import simpy

Steps = Generator[Any, Any, None]
NOISE = Fraction(1, 10_000)  # ns: less than this is the rounding of a simulator that counts in floats


@dataclass(eq=False)
class Flow:
    """Work in progress: `left` units, at most `cap` units/ns; each unit passes `weight` bytes over each link of `route`."""

    left: Fraction
    cap: Fraction
    route: tuple[str, ...]  # a link twice: each byte passes it twice
    weight: Fraction
    ended: simpy.Event
    speed: Fraction = Fraction(0)


def fair(flows: Iterable[Flow], links: dict[str, Fraction]) -> None:
    """Max-min: the bytes/ns of all rise together; a flow stays where its cap or a full link stops it."""
    rising = []
    for flow in flows:
        flow.speed = flow.cap
        if flow.weight and flow.route and flow.cap:
            rising.append(flow)
    free, level = dict(links), Fraction(0)
    while rising:
        load = {name: sum(flow.route.count(name) for flow in rising) for name in links}
        steps = {name: free[name] / n for name, n in load.items() if n}
        step = min([*steps.values(), *(flow.cap * flow.weight - level for flow in rising)])
        level += step
        for name, n in load.items():
            free[name] -= n * step
        full = {name for name in steps if not free[name]}
        stopped = [f for f in rising if full.intersection(f.route) or f.cap * f.weight == level]
        for flow in stopped:
            flow.speed = level / flow.weight
        rising = [flow for flow in rising if flow not in stopped]


class Fluid:
    """All work in progress on the device.  An end is seen at the first whole ns at which it is true."""

    def __init__(self, env: simpy.Environment, links: dict[str, Fraction]) -> None:
        self.env, self.links = env, links
        self.flows: list[Flow] = []
        self.now = Fraction(0)
        self.changes = 0

    def advance(self) -> None:
        """Carry all work on to the present; what is done within it gives way to the others at that very moment."""
        while True:
            fair(self.flows, self.links)
            step = min([self.env.now - self.now, *(f.left / f.speed for f in self.flows if f.speed)])
            for flow in self.flows:
                flow.left -= flow.speed * step
            self.now += step
            done = [f for f in self.flows if f.left <= f.speed * NOISE and (f.left == 0 or self.now == self.env.now)]
            for flow in done:
                self.flows.remove(flow)
                flow.ended.succeed()
            if not done:
                return

    def changed(self) -> None:
        """Look again when the next of the flows will be done, unless something changes before."""
        self.advance()
        self.changes += 1
        ends = [self.now + f.left / f.speed for f in self.flows if f.speed]
        if ends:
            self.env.process(self.wait(math.ceil(min(ends) - NOISE), self.changes))

    def wait(self, until: int, changes: int) -> Steps:
        """Look again at this time."""
        yield self.env.timeout(max(0, until - self.env.now))
        if changes == self.changes:
            self.changed()
