"""What forward saves for backward waits in host memory: hooks of torch.autograd.graph."""

from __future__ import annotations

import weakref
from collections import Counter
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks

LEAST = 1
PINNED = True

MOVED: Counter[int] = Counter()  # bytes of a storage -> how many of them left, for comparison with SIMULATED


class _Moved:
    """A storage whose bytes wait on the host; once brought back it stays until nothing saved needs it."""

    def __init__(self, storage: torch.UntypedStorage, streams: dict[str, Any]) -> None:
        self.device, self.streams = storage.device, streams
        self.back: torch.Tensor | None = None
        on_gpu = storage.device.type == "cuda"
        bytes_ = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        self.host = torch.empty(storage.nbytes(), dtype=torch.uint8, pin_memory=PINNED and on_gpu)
        if on_gpu and PINNED:
            out = streams.setdefault("out", torch.cuda.Stream())
            out.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(out):
                self.host.copy_(bytes_, non_blocking=True)
            bytes_.record_stream(out)
        else:
            self.host.copy_(bytes_)
        MOVED[storage.nbytes()] += 1

    def bring(self) -> torch.Tensor:
        """All bytes of the storage, on its device."""
        if self.back is None and self.device.type == "cuda" and PINNED:
            into = self.streams.setdefault("in", torch.cuda.Stream())
            into.wait_stream(self.streams["out"])
            with torch.cuda.stream(into):
                self.back = self.host.to(self.device, non_blocking=True)
            torch.cuda.current_stream().wait_stream(into)
            self.back.record_stream(torch.cuda.current_stream())
        elif self.back is None:
            self.back = self.host.to(self.device, copy=True)
        return self.back


class saved_on_host(saved_tensors_hooks):
    """Around forward and loss.  Parameters, buffers and `inputs` stay, and so does what is smaller than LEAST bytes."""

    def __init__(self, model: torch.nn.Module, *inputs: torch.Tensor) -> None:
        stay = [*model.parameters(), *model.buffers(), *inputs]
        self._stay = {tensor.untyped_storage().data_ptr() for tensor in stay}
        self._known: dict[int, tuple[Any, Any]] = {}
        self._streams: dict[str, Any] = {}
        super().__init__(self._pack, self._unpack)

    def _pack(self, tensor: torch.Tensor) -> Any:
        storage = tensor.untyped_storage()
        if storage.nbytes() < LEAST or storage.data_ptr() in self._stay:
            return tensor
        alive, moved = self._known.get(storage._cdata, (None, None))
        moved = moved() if moved is not None and alive() is storage else None
        if moved is None:
            moved = _Moved(storage, self._streams)
            self._known[storage._cdata] = weakref.ref(storage), weakref.ref(moved)
        return moved, tensor.dtype, tensor.size(), tensor.stride(), tensor.storage_offset()

    def _unpack(self, packed: Any) -> torch.Tensor:
        if isinstance(packed, torch.Tensor):
            return packed
        moved, dtype, size, stride, offset = packed
        whole = torch.empty(0, dtype=dtype, device=moved.device).set_(moved.bring().untyped_storage())
        return whole.as_strided(size, stride, offset)
