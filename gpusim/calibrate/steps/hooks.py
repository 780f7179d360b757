"""What keeps saved activations in pinned host memory: hooks of autograd that a user would write, on one stream or two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from gpusim.calibrate.steps.recording import AHEAD, LEAST, PREFETCH, RESIDENT


class Offload:
    """One step's saved activations.  A storage goes once, however many views of it are saved; parameters stay."""

    def __init__(self, way: str, stays: set[int]) -> None:
        self.way, self.stays = way, stays
        self.moved = 0
        self._host: dict[int, torch.Tensor] = {}  # storage -> its copy, whole
        self._order: list[int] = []
        self._back: dict[int, tuple[torch.Tensor, Any]] = {}  # storage -> what is or will be back, and when
        self._side = torch.cuda.Stream() if way == PREFETCH else None

    def pack(self, saved: torch.Tensor) -> Any:
        storage = saved.untyped_storage()
        key, size = storage.data_ptr(), storage.nbytes()
        if not saved.is_cuda or size < LEAST or key in self.stays:
            return saved
        if key not in self._host:
            whole = torch.empty(0, dtype=torch.uint8, device=saved.device).set_(storage)
            there = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            if self._side is None:
                there.copy_(whole)
            else:
                self._side.wait_stream(torch.cuda.current_stream())
                with torch.cuda.stream(self._side):
                    there.copy_(whole, non_blocking=True)
                whole.record_stream(self._side)
            self._host[key] = there
            self._order.append(key)
            self.moved += size
        return key, saved.dtype, saved.size(), saved.stride(), saved.storage_offset()

    def unpack(self, packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        key, dtype, size, stride, offset = packed
        at = self._order.index(key)
        for other in self._order[max(0, at - AHEAD * (self._side is not None)) : at + 1][::-1]:
            self._bring(other)
        whole, ready = self._back[key]
        if ready is not None:
            torch.cuda.current_stream().wait_event(ready)
        return torch.empty(0, dtype=dtype, device=whole.device).set_(whole.untyped_storage(), offset, size, stride)

    def _bring(self, key: int) -> None:
        if key in self._back:
            return
        there = self._host[key]
        with torch.cuda.stream(self._side):
            back = there.to("cuda", non_blocking=True)
            ready = torch.cuda.Event() if self._side is not None else None
            if ready is not None:
                ready.record()
                back.record_stream(torch.cuda.default_stream())
        self._back[key] = back, ready


@contextmanager
def kept(way: str, model: torch.nn.Module) -> Iterator[Offload | None]:
    """Saved activations are kept in this way."""
    if way == RESIDENT:
        yield None
        return
    stays = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    moving = Offload(way, stays)
    with torch.autograd.graph.saved_tensors_hooks(moving.pack, moving.unpack):
        yield moving
