"""The physical form of kernel times: values worked out by hand, and what must hold for all shapes."""

from dataclasses import replace

import numpy as np
import pytest

from gpusim.machine.kernels.correction import build
from gpusim.machine.kernels.numbers import Numbers, starved, tf32
from gpusim.machine.kernels.physics import ClassCoefficients, Rates, predict, terms
from gpusim.machine.kernels.shapes import work

pytestmark = pytest.mark.fast

GPU = Numbers(
    name="made-up", capability=8.0, processors=100, clock=2e9, cache=40e6, hbm=True, power=400,
    peak={"fp32": 10e12, "tf32": 80e12, "fp16": 200e12, "bf16": 200e12}, bandwidth=1e12,
    nominal_peak={"fp32": 12e12}, nominal_bandwidth=1.2e12,
)  # fmt: skip
PLAIN = ClassCoefficients(floor=1000, compute=1, fill=0, tile=0, memory=1, reach=1e-9, chain=0, growth=1, blend=1)


def column(**dims: float) -> dict[str, np.ndarray]:
    return {name: np.array([value], float) for name, value in dims.items()}


def one(c: ClassCoefficients, what: str, dtype: str = "bf16", size: int = 2, gpu: Numbers = GPU, **dims: float) -> float:
    return float(predict(c, work(what, column(**dims), size), Rates.of(gpu, dtype))[0])


def test_a_gemm_is_floor_and_compute_and_memory_where_they_add() -> None:
    # 2 * 1000^3 flops at 200 TFLOP/s: 10 us; 3 * 2 MB at 1 TB/s: 6 us; floor 1 us; with blend 1 they add
    assert one(PLAIN, "gemm", m=1000, n=1000, k=1000) == pytest.approx(17_000)


def test_with_a_sharp_blend_only_the_larger_side_counts() -> None:
    assert one(replace(PLAIN, blend=60), "gemm", m=1000, n=1000, k=1000) == pytest.approx(11_000, rel=1e-3)


def test_fill_tile_and_chain_by_hand() -> None:
    c = replace(PLAIN, fill=100, tile=20, chain=500)
    w, rates = work("gemm", column(m=1000, n=1000, k=1000), 2), Rates.of(GPU, "bf16")
    a, _, chain = terms(c, w, rates)
    assert a[0] == pytest.approx(10_000 * 1.1 * 1.02)
    # 1000 steps of 2 * 128^2 flops on one of 100 processors of 2 TFLOP/s each: 16.384 us
    assert chain[0] == pytest.approx(500 * 16.384)


def test_bytes_that_stay_in_the_cache_move_at_its_rate() -> None:
    c = replace(PLAIN, reach=1.0, blend=60)
    small = one(c, "elementwise add", "fp32", 4, rows=100, width=1000)  # 1.2 MB of 20 MB: 18.7 B * 100 * 2 GHz
    large = one(c, "elementwise add", "fp32", 4, rows=100_000, width=1000)  # 1.2 GB
    assert small == pytest.approx(1000 + 1.2e6 / 3.74e12 * 1e9)
    assert large == pytest.approx(1000 + 1.2e9 / 1e12 * 1e9)


def test_elementwise_operators_count_their_operands() -> None:
    two = one(PLAIN, "elementwise relu", "fp32", 4, rows=1000, width=1000) - 1000
    three = one(PLAIN, "elementwise add", "fp32", 4, rows=1000, width=1000) - 1000
    assert three == pytest.approx(1.5 * two)


def test_a_convolution_is_the_gemm_of_its_windows() -> None:
    dims = {"b": 8, "cin": 64, "cout": 128, "h": 28, "w": 28, "r": 3, "s": 3, "stride": 1, "padding": 1, "groups": 1}
    w = work("conv", column(**dims), 4)
    assert w.flops[0] == 2 * (8 * 28 * 28) * 128 * (64 * 9)
    assert (w.rows[0], w.columns[0], w.loop[0]) == (8 * 28 * 28, 128, 576)
    assert work("conv wgrad", column(**dims), 4).loop[0] == 8 * 28 * 28
    assert work("conv", column(**{**dims, "stride": 2}), 4).fast[0] == 0


def test_winograd_divides_the_computing() -> None:
    dims = {"b": 8, "cin": 512, "cout": 512, "h": 28, "w": 28, "r": 3, "s": 3, "stride": 1, "padding": 1, "groups": 1}
    tiles = 8 * 7 * 7  # of 4 x 4 pixels, each 36 products instead of 144
    w = work("conv", column(**dims), 4)
    assert (w.fast[0], w.fast_loop[0]) == (2 * 36 * tiles * 512 * 512, 512) and w.flops[0] == 4 * w.fast[0]
    assert w.transformed[0] == 2 * 36 * 4 * (tiles * 1024 + 512 * 512)  # written and read
    direct, fast = (one(replace(PLAIN, fast=f, blend=60), "conv", "fp32", 4, **dims) - 1000 for f in (0, 1))
    assert direct == pytest.approx(4 * fast, rel=1e-6)
    assert one(replace(PLAIN, fast=0.1, blend=60), "conv", "fp32", 4, **dims) - 1000 == pytest.approx(direct)  # the shorter
    assert work("conv", column(**dims), 2).fast[0] == 0  # tensor cores multiply faster than they transform


def test_causal_attention_computes_the_pairs_at_or_below_the_diagonal() -> None:
    dims = {"b": 1, "q": 4, "kv": 4, "heads": 1, "kv_heads": 1, "dim": 8}
    full, causal = (work("attention", column(**dims, causal=c), 2).flops[0] for c in (0, 1))
    assert (full, causal) == (4 * 16 * 8, 4 * 10 * 8)


@pytest.mark.parametrize("what", ["gemm", "bmm"])
@pytest.mark.parametrize("name", ["m", "n", "k"])
def test_a_larger_product_never_takes_less(what: str, name: str) -> None:
    c = ClassCoefficients()
    rng = np.random.default_rng(0)
    dims = {key: rng.integers(1, 8192, 500).astype(float) for key in ("b", "m", "n", "k")}
    more = {**dims, name: dims[name] * 1.5}
    for gpu in (GPU, replace(GPU, hbm=False)):
        rates = Rates.of(gpu, "bf16")
        assert (predict(c, work(what, more, 2), rates) >= predict(c, work(what, dims, 2), rates) * (1 - 1e-12)).all()


def test_bf16_before_ampere_runs_at_the_rate_of_fp32() -> None:
    volta = replace(GPU, capability=7.0, peak={"fp32": 14e12, "fp16": 100e12})
    assert volta.rate("bfloat16") == (14e12, "fp32")
    assert volta.rate("float16") == (100e12, "fp16")


def test_fp8_without_such_units_runs_in_16_bits() -> None:
    assert GPU.rate("float8") == (200e12, "bf16")


def test_tf32_is_as_pytorch_has_it() -> None:
    assert tf32("conv wgrad", {}) and not tf32("gemm", {})
    assert tf32("gemm", {"tf32": True}) and not tf32("conv", {"cudnn_tf32": False})
    assert tf32("conv", {"tf32": False}) and not tf32("gemm", {"cudnn_tf32": True})  # two switches


def test_tf32_where_there_is_none_is_fp32() -> None:
    assert replace(GPU, peak={"fp32": 10e12}).rate("tf32") == (10e12, "fp32")


@pytest.mark.parametrize(
    ("capability", "fp32", "watts", "bound"),
    [(6.1, 5.5e12, 75, True), (7.5, 8.1e12, 70, True), (8.9, 30.3e12, 72, True), (7.0, 14e12, 250, False),
     (8.0, 19.5e12, 250, False), (8.6, 35.6e12, 350, False), (9.0, 67e12, 700, False)],
)  # fmt: skip
def test_which_gpus_are_bound_by_power(capability: float, fp32: float, watts: float, bound: bool) -> None:
    assert starved(capability, fp32, watts) is bound


def test_a_correction_returns_what_it_was_built_from_and_fades() -> None:
    rng = np.random.default_rng(1)
    dims = 2 ** rng.uniform(10, 20, (4000, 2))
    residual = 0.3 * np.sin(np.log2(dims[:, 0])) + 0.1 * np.log2(dims[:, 1] / 2**15) / 5
    lattice = build(dims, residual, (0.5, 0.5))
    assert np.abs(lattice.at(dims) - residual).mean() < 0.02
    assert np.abs(lattice.at(np.array([[2.0**60, 2.0**60]]))) == 0


def test_negative_coefficients_are_refused() -> None:
    with pytest.raises(ValueError, match="'tile' is negative"):
        ClassCoefficients(tile=-1)
