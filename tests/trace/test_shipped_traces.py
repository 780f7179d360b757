"""Are the shipped traces what their recordings' headers say, to the byte?"""

from __future__ import annotations

from math import prod
from pathlib import Path

import numpy as np
import pytest

from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.shapes import parse
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import ALLOC, EVENT_KINDS, FREE, KERNEL, OP, Trace

FOLDER = Path(__file__).parents[2] / "traces"
NAMES = sorted(path.stem for path in FOLDER.glob("*.npz"))
LETTERS = {"a": "alloc", "f": "free", "o": "op", "p": "phase"}
BYTES = {"bfloat16": 2, "float32": 4, "int64": 8, "bool": 1, "uint8": 1}  # of an element
PRODUCTS = ("aten.mm.default", "aten.addmm.default", "aten.bmm.default")
# (start, peak, end) in bytes rounded to 512 and number of allocations after the start, from the recordings' headers and,
# for the snapshots, from the allocator's own blocks.
KNOWN = {
    "gpt-medium-train": (5_078_282_240, 6_996_296_192, None, None),
    "gpt-medium-infer": (1_692_848_128, 1_785_255_936, None, 1280),
    "gpt-medium-train-snapshot": (5_095_321_600, 7_013_335_552, 6_808_535_552, 6526),
    "gpt-medium-infer-snapshot": (1_701_482_496, 1_949_343_744, 1_701_482_496, 1666),
}


@pytest.fixture(params=NAMES)
def trace(request: pytest.FixtureRequest) -> Trace:
    return load_trace(FOLDER / f"{request.param}.npz")


def test_they_are_small_and_told() -> None:
    assert sum(path.stat().st_size for path in FOLDER.glob("*.npz")) < 5 * 2**20
    readme = (FOLDER / "README.md").read_text()
    assert all(f"`{name}`" in readme for name in NAMES)


def test_each_carries_its_name_source_and_licence(trace: Trace) -> None:
    assert trace.name in NAMES and trace.meta["source"] and trace.meta["licence"]


def test_counts_are_those_of_the_header(trace: Trace) -> None:
    said = trace.meta.get("recorder", {}).get("events", {})
    for letter, count in said.items():
        assert (trace.kind == EVENT_KINDS.index(LETTERS[letter])).sum() == count


def test_flops_and_bytes_by_phase_are_those_of_the_header(trace: Trace) -> None:
    said = trace.meta.get("recorder", {})
    for phase, flops in said.get("flops_by_phase", {}).items():
        ops = trace.phase == trace.phases.index(phase)
        assert trace.flops[ops].sum() == flops
        assert (trace.read_bytes + trace.written_bytes)[ops].sum() == said["bytes_by_phase"][phase]


def test_the_peak_is_that_of_the_header(trace: Trace) -> None:
    live = live_bytes(trace, -(-trace.size // 512) * 512)
    peak = trace.meta.get("recorder", {}).get("peak_live_bytes_rounded512")
    assert peak or trace.name in KNOWN or trace.meta["format"] == "record"  # which has no header; see below
    if peak:
        assert live.max() == peak
    if trace.name in KNOWN:
        start, peak, end, allocs = KNOWN[trace.name]
        begun = live[np.flatnonzero(trace.kind == ALLOC)[_older(trace) - 1]]
        assert (begun, live.max()) == (start, peak)
        assert end is None or live[-1] == end
        assert allocs is None or (trace.kind == ALLOC).sum() - _older(trace) == allocs


def test_recordings_without_a_header_are_what_is_known_of_their_models() -> None:
    gpt3, resnet, unet, bert = (
        load_trace(FOLDER / f"{name}.npz")
        for name in ("gpt3-175b-train", "resnet50-train-8", "unet3d-train", "bert-large-train-8")
    )
    # 2 bytes each: parameter, gradient, two moments of Adam, and what its foreach implementation divides by.
    assert live_bytes(gpt3, gpt3.size).max() == pytest.approx(10 * 174_604_259_328, rel=1e-3)
    bloom, weights, llama = (
        load_trace(FOLDER / f"{name}.npz") for name in ("bloom-176b-train", "bloom-176b-infer", "llama-70b-train")
    )
    assert live_bytes(bloom, bloom.size).max() == pytest.approx(10 * 176_247_271_424, rel=1e-3)
    begun = live_bytes(weights, weights.size)[np.flatnonzero(weights.kind == OP)[0]]
    assert begun == pytest.approx(2 * 176_247_271_424, rel=1e-3)
    assert live_bytes(llama, llama.size).max() == pytest.approx(16 * 70_553_706_496, rel=1e-3)  # fp32, a fused step
    # Per token and pass, two operations for each parameter and four for each position in each layer's attention (Kaplan et al.,
    # 2020, table 1, without a causal mask); a step is a forward pass, the same again, and twice that backward.
    assert gpt3.flops.sum() == pytest.approx(2 * 4 * 2048 * (2 * 174_604_259_328 + 4 * 96 * 2048 * 12_288), rel=0.005)
    assert resnet.flops.sum() == 4 * load_trace(FOLDER / "resnet50-train.npz").flops.sum()
    assert bert.flops.sum() == pytest.approx(4 * load_trace(FOLDER / "bert-large-train.npz").flops.sum(), rel=1e-4)
    # Multiplications and additions of one image, forward (torchvision's GFLOPS); the first layer's input needs no gradient.
    for depth, billions in ((50, 4.09), (101, 7.80), (152, 11.51)):
        flops = load_trace(FOLDER / f"resnet{depth}-sgd.npz").flops.sum()
        assert flops == pytest.approx(2 * 64 * 3 * 2 * billions * 1e9, rel=0.015)
    assert int(unet.size[unet.category == unet.categories.index("param")].sum()) == 4 * 31_190_243


def test_every_kernel_has_a_shape_of_its_bytes_and_flops(trace: Trace) -> None:
    assert (trace.shape[trace.activity == KERNEL] >= 0).all()
    for op in np.flatnonzero(trace.shape >= 0).tolist():
        name, shape = trace.op_names[trace.op[op]], parse(trace.shapes[trace.shape[op]])
        assert shape.outputs is not None
        if len(shape.outputs) == 1 and isinstance(made := shape.outputs[0], tuple):
            assert trace.written_bytes[op] == BYTES[trace.dtypes[trace.dtype[op]]] * prod(made)
            if name in PRODUCTS:
                left = shape.inputs[-2]
                assert isinstance(left, tuple)
                assert trace.flops[op] == 2 * prod(made) * left[-1]


def _older(trace: Trace) -> int:
    """Tensors that existed before the recording."""
    if "start" in trace.meta:
        return int(trace.meta["start"]["tensors"])
    made = np.isin(trace.category, [i for i, c in enumerate(trace.categories) if c in ("init", "fwd", "bwd")])
    return int(np.flatnonzero(made)[0])  # the first tensor that the program itself made


def test_every_tensor_is_freed_or_alive_at_the_end(trace: Trace) -> None:
    live = live_bytes(trace, trace.size)
    freed = np.zeros(trace.tensors, bool)
    freed[trace.arg[trace.kind == FREE]] = True
    assert live[-1] == trace.size[~freed].sum()


def test_the_file_is_what_saving_it_again_gives(trace: Trace, tmp_path: Path) -> None:
    save_trace(trace, tmp_path / "again.npz")
    assert load_trace(tmp_path / "again.npz").content_hash == trace.content_hash
