"""Which storage is which: identity by weak reference, on the GPU or on the host, with its tensor on the tape.

A storage is known from the first operator that makes or meets it until its last reference is gone.  Views share it.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from gpusim.programs.record.schema import plain
from gpusim.programs.record.tape import Tape

GPU, HOST = "cuda", "cpu"


@dataclass(slots=True)
class Storage:
    """A storage that is alive."""

    home: str  # GPU or HOST
    tensor: int  # on the tape; -1 on the host
    nbytes: int
    alive: Any  # the weak reference whose callback ends it
    stand_in: Any = None  # what its values count as where one is asked for; None: not known


class Storages:
    """All live storages of one recording, by their address."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self._live: dict[int, Storage] = {}
        self.closed = False

    def find(self, tensor: torch.Tensor) -> Storage | None:
        """What is known about a tensor's storage; notices that it was resized."""
        raw = plain(tensor).untyped_storage()
        found = self._live.get(raw._cdata)
        if found is not None and found.nbytes != raw.nbytes():
            self._resize(found, raw.nbytes())
        return found

    def add(self, tensor: torch.Tensor, home: str, category: str = "", *, before: bool = False) -> Storage:
        """A storage that was not known."""
        raw = tensor.untyped_storage()
        nbytes = raw.nbytes()
        number = self.tape.alloc(nbytes, category, before=before) if home == GPU else -1
        storage = Storage(home, number, nbytes, weakref.ref(raw, partial(self._end, raw._cdata)))
        self._live[raw._cdata] = storage
        return storage

    def home(self, tensor: torch.Tensor) -> str | None:
        found = self._live.get(plain(tensor).untyped_storage()._cdata)
        return found.home if found else None

    def mark(self, tensor: torch.Tensor, category: str) -> None:
        """Say what a tensor is, if it is on the GPU."""
        found = self._live.get(plain(tensor).untyped_storage()._cdata)
        if found is not None and found.tensor >= 0:
            self.tape.category[found.tensor] = category

    def _resize(self, storage: Storage, nbytes: int) -> None:
        """A resized storage is the end of one tensor and the start of another."""
        storage.nbytes = nbytes
        if storage.tensor >= 0:
            category = self.tape.category[storage.tensor]
            self.tape.free(storage.tensor)
            storage.tensor = self.tape.alloc(nbytes, category)

    def _end(self, address: int, _: Any) -> None:
        storage = self._live.pop(address)
        if storage.tensor >= 0 and not self.closed:
            self.tape.free(storage.tensor)
