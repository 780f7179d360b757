"""Memory that libraries take for themselves, which no operator returns.

cuBLAS: one workspace per handle and stream, kept for good.  The thread of the backward pass has a handle of its own, so
training holds two, inference one (aten/src/ATen/cuda/CublasHandlePool.cpp, getChosenWorkspaceSize).
A matrix whose strides cuBLAS cannot take, such as an expanded one, is copied for the product
(aten/src/ATen/native/cuda/Blas.cpp, prepare_matrix_for_cublas).
cuDNN: a workspace per convolution, given back at once; its size depends on the algorithm that is chosen, so it is an option.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from gpusim.programs.record.schema import is_dense
from gpusim.programs.record.tape import Tape

aten = torch.ops.aten

# Generation -> compute capability.
GENERATIONS = {"volta": (7, 0), "turing": (7, 5), "ampere": (8, 0), "ada": (8, 9), "hopper": (9, 0), "blackwell": (10, 0)}

CUBLAS_BYTES = 8_519_680  # ":4096:2:16:8", in KiB
CUBLAS_BYTES_HOPPER = 33_554_432  # from compute capability 9.0 on: 32 MiB

_MATRIX_PRODUCTS = {aten.mm, aten.addmm, aten.bmm, aten.baddbmm, aten.addmv, aten.mv, aten.dot, aten.addbmm, aten._scaled_mm}
_FIRST_MATRIX = {aten.mm: 0, aten.bmm: 0, aten.addmm: 1, aten.baddbmm: 1, aten.addbmm: 1}  # place among the arguments
_CONVOLUTIONS = {aten.convolution, aten.convolution_backward}


class Workspace(NamedTuple):
    """A workspace that an operator uses."""

    tensor: int  # on the tape
    given_back: bool  # after the operator


class Workspaces:
    """Allocates each workspace on the tape when the first operator needs it."""

    def __init__(self, tape: Tape, generation: str, cudnn: int) -> None:
        self._tape = tape
        self._bytes = CUBLAS_BYTES_HOPPER if GENERATIONS[generation] >= (9, 0) else CUBLAS_BYTES
        self._cudnn = cudnn
        self._of_thread: dict[bool, int] = {}

    def take(self, func: object, backward: bool) -> Workspace | None:
        """The workspace that this operator uses, allocated where it is not there yet."""
        packet = getattr(func, "_overloadpacket", None)
        if packet in _MATRIX_PRODUCTS:
            if backward not in self._of_thread:
                self._of_thread[backward] = self._tape.alloc(self._bytes, "workspace")
            return Workspace(self._of_thread[backward], False)
        if self._cudnn and packet in _CONVOLUTIONS:
            return Workspace(self._tape.alloc(self._cudnn, "workspace"), True)
        return None

    def copies(self, func: object, args: Any) -> list[int]:
        """What a matrix product copies for its time: each is given back after the operator."""
        first = _FIRST_MATRIX.get(getattr(func, "_overloadpacket", None))
        if first is None:
            return []
        return [self._tape.alloc(m.numel() * m.element_size(), "workspace") for m in args[first : first + 2] if not _fits(m)]


def _fits(matrix: torch.Tensor) -> bool:
    """Whether cuBLAS takes the matrices as they lie: rows or columns one behind the other."""
    (rows, columns), (down, along) = matrix.shape[-2:], matrix.stride()[-2:]
    return bool((along == 1 and down >= max(1, columns)) or (down == 1 and along >= max(1, rows)) or is_dense(matrix))
