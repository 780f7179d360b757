"""A GPU with channels that serve whole tensors in turn, and an arena for them: what FlashNeuron and its kin run on."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from heapq import heappop, heappush

from gpusim.studies.g10.arena import Arena
from gpusim.studies.g10.conditions import GIB, Conditions
from gpusim.studies.g10.extent_tables import HOST, SSD
from gpusim.studies.g10.kernel_program import KernelProgram


class DoesNotFit(Exception):
    """No plan, or at some point no hole, is large enough."""


@dataclass(frozen=True)
class Run:
    """What one run came to: ms, bytes."""

    ms: float
    out_bytes: int
    in_bytes: int


class Channel:
    """Serves tensors in turn, each for its time; several of them share one heap of ends."""

    def __init__(self, rate: float) -> None:
        self.rate = rate  # bytes/ms
        self.queue: deque[int] = deque()
        self.bytes = 0


class ChannelClock:
    """Time, the channels, the arena and where each tensor is in it."""

    def __init__(self, program: KernelProgram, conditions: Conditions, pages: int) -> None:
        self.program, self.now = program, 0.0
        self.pages = program.size // conditions.page
        self.arena = Arena(pages)
        self.at: dict[int, int] = {}     # tensors in the arena: their first page
        self.fetching: set[int] = set()
        self.waiting: deque[int] = deque()  # to be brought back once there is a hole
        self.in_host: set[int] = set()
        ssd, rest = conditions.ssd * GIB / 1000, (conditions.pcie - conditions.ssd) * GIB / 1000
        self.out = {SSD: Channel(ssd), HOST: Channel(rest)}
        self.back = {SSD: Channel(ssd), HOST: Channel(rest)}
        self.ends: list[tuple[float, int, Channel | None, int]] = []
        self.number = 0

    def from_left(self, tensor: int) -> bool:
        """Give the tensor a block; False if there is no hole."""
        return self._placed(tensor, self.arena.from_left(int(self.pages[tensor])))

    def from_right(self, tensor: int) -> bool:
        return self._placed(tensor, self.arena.from_right(int(self.pages[tensor])))

    def drop(self, tensor: int) -> None:
        if tensor in self.at:
            self.arena.give_back(self.at.pop(tensor), int(self.pages[tensor]))

    def send(self, channel: Channel, tensor: int) -> None:
        channel.queue.append(tensor)
        channel.bytes += int(self.program.size[tensor])
        if len(channel.queue) == 1:
            self._start(channel)

    def offload(self, tensor: int, to: int) -> None:
        if to == HOST:
            self.in_host.add(tensor)
        self.send(self.out[to], tensor)

    def fetch(self, tensor: int, source: int = SSD) -> None:
        self.fetching.add(tensor)
        self.send(self.back[source], tensor)

    def admit(self) -> None:
        """The first tensor that waits for a hole is fetched if there is one now."""
        if self.waiting and self.arena.largest >= self.pages[self.waiting[0]]:
            tensor = self.waiting.popleft()
            self.from_right(tensor)
            self.fetch(tensor, HOST if tensor in self.in_host else SSD)

    def run(self, ms: float) -> None:
        """A kernel runs."""
        kernel = self._push(ms, None)
        while self.step() != kernel:
            self.admit()
        self.admit()

    def step(self) -> int:
        """The next end of anything; returns its number, -1 if nothing goes on."""
        if not self.ends:
            return -1
        self.now, number, channel, tensor = heappop(self.ends)
        if channel is None:
            return number
        if channel in self.out.values():
            self.drop(tensor)
        else:
            self.fetching.discard(tensor)
            if channel is self.back[HOST]:
                self.in_host.discard(tensor)
        channel.queue.popleft()
        if channel.queue:
            self._start(channel)
        return number

    def until(self, done: Callable[[int], bool], tensor: int = -1) -> None:
        """Let time pass until that holds, of the tensor; DoesNotFit if it never will."""
        while not done(tensor):
            if self.step() < 0:
                raise DoesNotFit
            self.admit()

    def here(self, tensor: int) -> bool:
        return tensor in self.at

    def settled(self, tensor: int) -> bool:
        return tensor not in self.fetching

    def written(self, _: int) -> bool:
        return not self.out[SSD].queue

    def result(self) -> Run:
        moved = (sum(channel.bytes for channel in way.values()) for way in (self.out, self.back))
        return Run(self.now, *moved)

    def _placed(self, tensor: int, first: int) -> bool:
        if first >= 0:
            self.at[tensor] = first
        return first >= 0

    def _start(self, channel: Channel) -> None:
        tensor = channel.queue[0]
        self._push(float(self.program.size[tensor]) / channel.rate, channel, tensor)

    def _push(self, ms: float, channel: Channel | None, tensor: int = -1) -> int:
        self.number += 1
        heappush(self.ends, (self.now + ms, self.number, channel, tensor))
        return self.number
