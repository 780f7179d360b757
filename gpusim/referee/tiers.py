"""The memories below the device's, as a result's spec describes them: rooms, queues of copies, links that copies pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpusim.trace.trace import I64

NEVER = 2**62
INTO, OUT = 0, 1


@dataclass(frozen=True)
class Tiers:
    """M memories, the device's is number 0.  Queues of copies are negative, as START and END show them."""

    kinds: tuple[str, ...]              # of memories 1 ..
    capacity: I64                       # (M,) bytes
    engine: tuple[int, ...]             # of memories 1 ..: those of one engine take turns
    slots: dict[tuple[int, int], int]   # (engine, direction) -> copies at once
    remote: I64                         # tensors that operators use in memory 1
    access: int                         # bytes that they access there at once
    routes: tuple[tuple[list[str], list[str]], ...]  # of memories 1 ..: links to the device, links from it
    lenders: tuple[str, ...]            # of memories 1 ..: whose memory it is, "" its own

    @property
    def engines(self) -> int:
        """How many there are; of programs that borrow, the last one has the copies from one memory below to another."""
        return max(self.engine) + 1 + any(self.lenders)

    def is_recall(self, copy: I64) -> npt.NDArray[np.bool_]:
        """Of each COPY whether it goes from one memory below to another."""
        found: npt.NDArray[np.bool_] = (copy >= 0) & (copy >> 8 & 255 != 0) & (copy & 255 != 0)
        return found

    @property
    def memories(self) -> int:
        return len(self.capacity)

    def home(self, tensors: int) -> I64:
        """Of each tensor the memory in which operators use it."""
        out = np.zeros(tensors, np.int64)
        out[self.remote] = 1
        return out

    def queue(self, copy: I64) -> I64:
        """Of each COPY (its `b`) the queue in which it waits."""
        src, dst = copy >> 8 & 255, copy & 255
        engine = np.where(self.is_recall(copy), self.engines - 1, np.array([0, *self.engine])[np.maximum(src, dst)])
        found: I64 = -1 - (2 * (engine + self.engines * (copy >> 16)) + (dst != 0))
        return found

    def side(self, queue: int) -> tuple[int, int]:
        """The (engine, direction) of a queue of copies."""
        place = -1 - queue
        return place // 2 % self.engines, place % 2

    def name(self, queue: int) -> str:
        """What the queue is, for people."""
        if queue >= 0:
            return f"stream {queue}"
        engine, direction = self.side(queue)
        if engine not in self.engine:
            return "the copies from lent memory to tiers below"
        kind = self.kinds[self.engine.index(engine)]
        return f"the copies {'from' if direction else 'to'} the device, {'to' if direction else 'from'} {kind}"


def tiers(spec: Mapping[str, Any]) -> Tiers:
    """Without a word about tiers: one of host memory behind the device's own link."""
    slots = spec.get("slots", {})
    said = spec.get("memories") or [{
        "kind": "host", "capacity": spec.get("host_capacity"), "in": ["h2d", "both"], "out": ["d2h", "both"], "queue": "copy",
        "slots": [slots.get("h2d", 1), slots.get("d2h", 1)],
    }]  # fmt: skip
    room = [spec.get("capacity"), *(tier["capacity"] for tier in said)]
    queues = list(dict.fromkeys(tier["queue"] for tier in said))
    engine = tuple(queues.index(tier["queue"]) for tier in said)
    lenders = tuple(str(tier.get("lender", "")) for tier in said)
    recalls = {(len(queues), way): 1 for way in (INTO, OUT)} if any(lenders) else {}
    return Tiers(
        tuple(tier["kind"] for tier in said),
        np.array([NEVER if size is None else int(size) for size in room], np.int64),
        engine,
        {(e, way): int(tier["slots"][way]) for e, tier in zip(engine, said, strict=True) for way in (INTO, OUT)} | recalls,
        np.array(spec.get("remote", []), np.int64),
        int(spec.get("remote_access", 128)),
        tuple((list(tier["in"]), list(tier["out"])) for tier in said),
        lenders,
    )
