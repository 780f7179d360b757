"""Rates of computing: fp32 by intensity, matrix products (own, and cuBLAS where it is installed), an elementwise kernel."""

from __future__ import annotations

from functools import partial

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, MiB
from gpusim.calibrate.measure.cublas import TYPES, Cublas
from gpusim.calibrate.measure.gpu import F32, I32, U64, OpenGpu
from gpusim.calibrate.measure.recorder import sizes

SMALL = 256
"""Side of the product that is compared with the host's; its entries are whole numbers that every type holds."""


def run(bench: Bench) -> None:
    _elementwise(bench)
    _intensity(bench)
    side = 4096 if bench.out.quick else 8192
    while 3 * 4 * side * side > bench.room and side > 1024:
        side //= 2
    sides = [side] if bench.out.quick else [n for n in (1024, 2048, 4096, 8192) if n <= side]
    with bench.gpu.buffer(4 * side * side) as a, bench.gpu.buffer(4 * side * side) as b, bench.gpu.buffer(4 * side * side) as c:
        _own(bench, (a, b, c), [min(side, 4096)])
        try:
            library = Cublas(bench.gpu.stream)
        except MeasurementError as error:
            bench.out.left_out["roofline: gemm by cuBLAS"] = str(error)
            return
        for dtype in TYPES:
            _check_library(bench.gpu, library, (a, b, c), dtype)
            for n in sides:
                _library(bench, library, (a, b, c), dtype, n)
        library.close()


def _elementwise(bench: Bench) -> None:
    gpu = bench.gpu
    largest = bench.most(64 * MiB if bench.out.quick else 1024 * MiB, 2, "elementwise")
    with gpu.buffer(largest) as x, gpu.buffer(largest) as y:
        for size in sizes(min(MiB, largest), largest, 4):
            if bench.out.time_for(f"elementwise {size}"):
                count = max(1, min(100, 256 * MiB // size))

                def start(_: int, size: int = size) -> None:
                    gpu.launch("elementwise", gpu.blocks(), 1024, U64(y), U64(x), U64(size // 16), F32(0.5))

                times = bench.out.repeat(partial(gpu.queued, start, count), most=21)
                method = f"y += relu(x + bias) in fp32, {count} in a row, CUDA events; 2 reads and 1 write counted"
                bench.out.add("elementwise_bw", times, case="roofline", size=size, work=3 * size, method=method)


def _intensity(bench: Bench) -> None:
    gpu = bench.gpu
    size = bench.most(128 * MiB if bench.out.quick else 1024 * MiB, 1, "fp32 by intensity")
    with gpu.buffer(size) as a:
        for fmas in (1, 8, 64, 512) if bench.out.quick else (1, 2, 4, 8, 16, 32, 64, 128, 256, 512):
            if bench.out.time_for(f"{fmas} fma"):

                def start(_: int, fmas: int = fmas) -> None:
                    args = (U64(a), U64(size // 16), I32(fmas), F32(0.999), U64(gpu.scratch))
                    gpu.launch("fma_sweep", gpu.blocks(), 1024, *args)

                times = bench.out.repeat(partial(gpu.queued, start, 1), most=15)
                method = f"{fmas} fused multiply-adds on each fp32 read once, CUDA events"
                param = {"flop_per_byte": f"{fmas / 2:.3f}"}
                bench.out.add("fp32_fma_gflops", times, case="roofline", work=fmas * size / 2, method=method, param=param)


def _whole(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(-2, 3, (n, n)).astype(np.float32)


def _compare(gpu: OpenGpu, at: int, wanted: np.ndarray, what: str) -> None:
    """Raise MeasurementError unless the product on the device is the host's, to the bit."""
    found = gpu.words(at, wanted.size // 2).view(np.float32).reshape(wanted.shape)
    if not np.array_equal(found, wanted):
        raise MeasurementError(f"{what} computes a wrong product; its rate is not trusted")


def _own(bench: Bench, at: tuple[int, int, int], sides: list[int]) -> None:
    gpu = bench.gpu
    a, b, c = at

    def product(n: int, _: int = 0) -> None:
        gpu.launch("gemm_fp32", (n // 128, n // 128), 256, U64(a), U64(b), U64(c), I32(n))

    x, y = _whole(SMALL, 1), _whole(SMALL, 2)
    gpu.write(a, x)
    gpu.write(b, y)
    product(SMALL)
    if bench.out.compared:
        _compare(gpu, c, x @ y, "the own fp32 product")
    for n in sides:
        if bench.out.time_for(f"own product of {n}"):
            _random(gpu, (a, b), n, "fp32")
            times = bench.out.repeat(partial(gpu.queued, partial(product, n), 1), most=11)
            method = "own fp32 kernel without matrix units, normal random numbers, CUDA events: less than a library reaches"
            param = {"dtype": "fp32", "by": "own", "n": n}
            bench.out.add("gemm_gflops", times, case="own", work=2 * n**3, method=method, param=param)


def _random(gpu: OpenGpu, at: tuple[int, int], n: int, dtype: str) -> None:
    """Normal random numbers: zeros would draw less power, and clocks would stay higher."""
    block = np.random.default_rng(n).standard_normal((min(n, 512), n)).astype(np.float32)
    data = TYPES[dtype].encode(block)
    for address in at:
        for row in range(0, n, len(block)):
            gpu.write(address + row * n * data.itemsize, data)


def _check_library(gpu: OpenGpu, library: Cublas, at: tuple[int, int, int], dtype: str) -> None:
    x, y = _whole(SMALL, 3), _whole(SMALL, 4)
    gpu.write(at[0], TYPES[dtype].encode(x))
    gpu.write(at[1], TYPES[dtype].encode(y))
    library.gemm(dtype, SMALL, *at, wide=True)
    _compare(gpu, at[2], x @ y, f"cuBLAS in {dtype}")


def _library(bench: Bench, library: Cublas, at: tuple[int, int, int], dtype: str, n: int) -> None:
    gpu = bench.gpu
    if not bench.out.time_for(f"cuBLAS {dtype} {n}"):
        return
    _random(gpu, at[:2], n, dtype)
    count = max(1, min(20, 8192**3 // n**3))
    # cuBLAS may ask the driver for memory or a module in its first call, which must not wait behind a spin kernel.
    library.gemm(dtype, n, *at)
    gpu.synchronize()
    times = bench.out.repeat(partial(gpu.queued, lambda _: library.gemm(dtype, n, *at), count), most=15)
    method = f"cublasGemmEx {library.version}, square, normal random numbers, {count} in a row, CUDA events"
    param = {"dtype": dtype, "by": "cublas", "n": n}
    bench.out.add("gemm_gflops", times, case="cublas", work=2 * n**3, method=method, param=param)
