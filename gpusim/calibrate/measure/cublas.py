"""cuBLAS through ctypes, where some package (PyTorch's, for one) has brought it."""

from __future__ import annotations

import ctypes
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpusim.base.errors import MeasurementError

COMPUTE_32F, COMPUTE_32F_FAST_TF32 = 68, 77
R_32F, R_16F, R_16BF = 0, 2, 14


@dataclass(frozen=True)
class Type:
    """How cuBLAS names it, and numbers in it."""

    code: int
    compute: int = COMPUTE_32F

    def encode(self, x: np.ndarray) -> np.ndarray:
        """fp32 numbers in this type; bf16 is the upper half of fp32."""
        if self.code == R_16F:
            return x.astype(np.float16)
        if self.code == R_16BF:
            return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
        return np.ascontiguousarray(x)


TYPES = {"bf16": Type(R_16BF), "fp16": Type(R_16F), "tf32": Type(R_32F, COMPUTE_32F_FAST_TF32), "fp32": Type(R_32F)}


class Cublas:
    """A handle on one stream.  Raises MeasurementError where the library is not installed."""

    def __init__(self, stream: Any) -> None:
        self.library = _find()
        self.handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self.handle))
        self._call("cublasSetStream_v2", self.handle, ctypes.c_void_p(int(stream)))
        number = ctypes.c_int()
        self._call("cublasGetVersion_v2", self.handle, ctypes.byref(number))
        self.version = number.value
        self.one, self.zero = ctypes.c_float(1), ctypes.c_float(0)

    def close(self) -> None:
        self._call("cublasDestroy_v2", self.handle)

    def gemm(self, dtype: str, n: int, a: int, b: int, c: int, wide: bool = False) -> None:
        """C = A B by rows; `wide` keeps C in fp32.  cuBLAS goes by columns, where the same memory is B A."""
        kind = TYPES[dtype]
        out = R_32F if wide else kind.code
        at, one, zero = ctypes.c_void_p, ctypes.byref(self.one), ctypes.byref(self.zero)
        self._call(
            "cublasGemmEx", self.handle, 0, 0, n, n, n, one, at(b), kind.code, n, at(a), kind.code, n,
            zero, at(c), out, n, kind.compute, -1,
        )  # fmt: skip

    def _call(self, name: str, *args: Any) -> None:
        status = getattr(self.library, name)(*args)
        if status:
            raise MeasurementError(f"{name} failed with status {status}")


def _find() -> ctypes.CDLL:
    spec = importlib.util.find_spec("nvidia")
    folders = [Path(p) for p in (spec.submodule_search_locations or [])] if spec else []
    wanted = ("libcublas.so.13", "libcublas.so.12")
    packed = [f / sub / "lib" / name for f in folders for name in wanted for sub in ("cu13", "cublas")]
    for name in [*(str(p) for p in packed if p.exists()), *wanted]:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise MeasurementError("cuBLAS is not installed", hint="pip install nvidia-cublas, or nvidia-cublas-cu12 for CUDA 12")
