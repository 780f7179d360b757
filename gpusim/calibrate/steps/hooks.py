"""What keeps saved activations in pinned host memory: hooks of autograd that a user would write, on one stream or two."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from gpusim.calibrate.steps.recording import AHEAD, LEAST, PREFETCH, RESIDENT


class Offload:
    """One step's saved activations.  A storage goes once, however many views of it are saved; parameters stay."""

    def __init__(self, way: str, stays: set[int], device: str = "cuda") -> None:
        self.way, self.stays, self.device = way, stays, device
        self.moved = 0
        self._known: dict[int, tuple[StorageWeakRef, int]] = {}  # address -> the storage that was there, and its number
        self._host: list[torch.Tensor | None] = []  # by number: its copy, whole, as long as a hook will ask for it
        self._wanted: list[int] = []  # by number: how many saved views of it are still to be asked for
        self._back: dict[int, tuple[torch.Tensor, Any]] = {}  # number -> what is or will be back, and when
        self._side = torch.cuda.Stream() if way == PREFETCH else None

    def pack(self, saved: torch.Tensor) -> Any:
        storage = saved.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        if saved.device.type != self.device or size < LEAST or address in self.stays:
            return saved
        known = self._known.get(address)
        if known is None or known[0].expired():  # what was saved from there has left, and another tensor has its place
            known = self._known[address] = StorageWeakRef(storage), self._send(storage)
        number = known[1]
        self._wanted[number] += 1
        return number, saved.dtype, saved.size(), saved.stride(), saved.storage_offset()

    def _send(self, storage: torch.UntypedStorage) -> int:
        whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        there = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=self.device == "cuda")
        if self._side is None:
            there.copy_(whole)
        else:
            self._side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._side):
                there.copy_(whole, non_blocking=True)
            whole.record_stream(self._side)
        self._host.append(there)
        self._wanted.append(0)
        self.moved += storage.nbytes()
        return len(self._host) - 1

    def unpack(self, packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        number, dtype, size, stride, offset = packed
        for other in range(number, max(0, number - AHEAD * (self._side is not None)) - 1, -1):
            self._bring(other)
        whole, ready = self._back[number]
        if ready is not None:
            torch.cuda.current_stream().wait_event(ready)
        self._wanted[number] -= 1
        if not self._wanted[number]:
            del self._back[number]
            self._host[number] = None
        return torch.empty(0, dtype=dtype, device=whole.device).set_(whole.untyped_storage(), offset, size, stride)

    def _bring(self, number: int) -> None:
        there = self._host[number]
        if number in self._back or there is None:
            return
        with nullcontext() if self._side is None else torch.cuda.stream(self._side):
            back = there.to(self.device, non_blocking=True, copy=True)
            ready = torch.cuda.Event() if self._side is not None else None
            if ready is not None:
                ready.record()
                back.record_stream(torch.cuda.default_stream())
        self._back[number] = back, ready


@contextmanager
def kept(way: str, model: torch.nn.Module, device: str = "cuda") -> Iterator[Offload | None]:
    """Saved activations are kept in this way."""
    if way == RESIDENT:
        yield None
        return
    stays = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    moving = Offload(way, stays, device)
    with torch.autograd.graph.saved_tensors_hooks(moving.pack, moving.unpack):
        yield moving
