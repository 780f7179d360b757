"""A program recorded on fake tensors against the same program on a real GPU, as PyTorch's allocator saw it.

tests/support/plain_transformer.py is the program; tests/data/cs336_pairs.json holds what is derived from the snapshots, and
two of them are shipped in whole.  Each pair is the second pass, when the workspaces and the optimizer's state are there.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from plain_transformer import AdamW, Transformer, cross_entropy  # noqa: E402

import gpusim  # noqa: E402
from gpusim.programs.record.join import Seen, join, kernel_ns  # noqa: E402
from gpusim.programs.record.tape import Operator  # noqa: E402
from gpusim.trace.files import load_trace  # noqa: E402
from gpusim.trace.trace import ALLOC, FREE, OP, PHASE, Trace  # noqa: E402

pytestmark = pytest.mark.oracle

HERE = Path(__file__).parents[1]
PAIRS = json.loads((HERE / "data" / "cs336_pairs.json").read_text())["pairs"]
CUBLAS = 8_519_680


def train(length: int) -> Trace:
    with gpusim.record(fake=True) as recording:
        model = Transformer()
        optimizer = AdamW(model.parameters())
        ids, targets = torch.randint(0, 10_000, (4, length)), torch.randint(0, 10_000, (4, length))

        def step() -> Any:
            optimizer.zero_grad()
            logits = model(ids)
            loss = cross_entropy(logits, targets)
            loss.backward()
            optimizer.step()
            return logits, loss

        step()
        last = step()
    del last  # held to the end, as in the recordings
    return recording.trace


def infer(length: int, autocast: bool = False) -> Trace:
    with gpusim.record(fake=True) as recording, torch.no_grad():
        # The recording with autocast gives each cast weight back at once, as CUDA does for weights that are not trained.
        model = Transformer().requires_grad_(not autocast)
        ids = torch.randint(0, 10_000, (4, length))
        for name in ("first", "second"):
            gpusim.record.phase(name)
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                model(ids)
    return recording.trace


@pytest.fixture(scope="module")
def recorded() -> Any:
    known: dict[str, Trace] = {}

    def get(pair: str) -> Trace:
        if pair not in known:
            kind, length, *autocast = pair.split("-")
            known[pair] = train(int(length)) if kind == "train" else infer(int(length), bool(autocast))
        return known[pair]

    return get


def requests(trace: Trace, first: str = "") -> list[int]:
    """Sizes in order, frees negative, from the phase `first` on."""
    begin = 0
    if first:
        begin = int(np.flatnonzero((trace.kind == PHASE) & (trace.arg == trace.phases.index(first)))[0])
    kind, arg = trace.kind[begin:], trace.arg[begin:]
    chosen = (kind == ALLOC) | (kind == FREE)
    return (np.where(kind[chosen] == ALLOC, 1, -1) * trace.size[arg[chosen]]).tolist()


def measured(trace: Trace) -> list[int]:
    return requests(trace, "step1.fwd" if "step1.fwd" in trace.phases else "second")


def highest(sizes: list[int]) -> int:
    return int(max(0, np.cumsum(sizes).max()))


def without(longer: list[int], shorter: list[int]) -> list[int] | None:
    """What is left of `longer` when `shorter` is taken out in order; None when it is not in there."""
    rest, wanted = [], iter(shorter)
    following = next(wanted, None)
    for size in longer:
        if size == following:
            following = next(wanted, None)
        else:
            rest.append(size)
    return rest if following is None else None


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_the_peak_is_that_of_the_real_run_to_the_byte(pair: str, recorded: Any) -> None:
    sizes, real = measured(recorded(pair)), PAIRS[pair]
    assert highest(sizes) == real["peak"]
    assert sum(sizes) == real["end"]


@pytest.mark.slow
@pytest.mark.parametrize("pair", [pair for pair in PAIRS if pair.startswith("infer")])
def test_inference_requests_the_same_sizes_in_the_same_order(pair: str, recorded: Any) -> None:
    sizes = measured(recorded(pair))
    assert sum(size > 0 for size in sizes) == PAIRS[pair]["allocs"]
    assert hashlib.sha256(json.dumps(sizes).encode()).hexdigest()[:16] == PAIRS[pair]["sha256"]


@pytest.mark.slow
def test_training_differs_only_by_scratch_inside_of_one_kernel(recorded: Any) -> None:
    """The sort of an accumulating index_put takes six buffers of its own, which no operator returns."""
    snapshot = load_trace(HERE.parent / "traces" / "gpt-medium-train-snapshot.npz")
    real = requests(snapshot)[snapshot.meta["start"]["tensors"] :]
    rest = without(real, measured(recorded("train-128")))
    assert rest is not None
    assert sum(size > 0 for size in rest) == 6
    assert sum(rest) == 0
    assert max(rest) == 4096


@pytest.mark.slow
def test_the_scratch_of_large_reductions_is_what_the_longer_training_lacks(recorded: Any) -> None:
    allocs = sum(size > 0 for size in measured(recorded("train-256")))
    assert PAIRS["train-256"]["allocs"] - allocs == 6 + 2 * 49  # a buffer and a counter for each of 49 sums over the batch


@pytest.mark.slow
def test_what_was_there_before_is_there_too(recorded: Any) -> None:
    """Parameters, optimizer state, inputs and, in training, two workspaces; the rounded sizes of the real blocks."""
    snapshot = load_trace(HERE.parent / "traces" / "gpt-medium-train-snapshot.npz")
    real = sorted(requests(snapshot)[: snapshot.meta["start"]["tensors"]])
    trace = recorded("train-128")
    first = int(np.flatnonzero((trace.kind == PHASE) & (trace.arg == trace.phases.index("step1.fwd")))[0])
    live = set(trace.arg[:first][trace.kind[:first] == ALLOC]) - set(trace.arg[:first][trace.kind[:first] == FREE])
    ours = sorted(int(trace.size[t]) for t in live)
    assert ours.count(CUBLAS) == real.count(CUBLAS) == 2
    assert [size for size in ours if size > 2**20] == [size for size in real if size > 2**20]


@pytest.mark.slow
def test_operators_seen_by_address_join_the_allocators_history(recorded: Any) -> None:
    """The operators of the recording, with the addresses that the real run had, find their tensors in the real history."""
    memory, ours = load_trace(HERE.parent / "traces" / "gpt-medium-infer-snapshot.npz"), recorded("infer-512-autocast")
    start = memory.meta["start"]["tensors"]
    is_request = (memory.kind == ALLOC) | (memory.kind == FREE)
    address = memory.addr[memory.kind == ALLOC].tolist()
    first = int(np.flatnonzero((ours.kind == PHASE) & (ours.arg == ours.phases.index("second")))[0])
    served, made, number, expected = 0, start, {}, []
    seen = [Seen(0, "fwd")]
    for kind, arg in zip(ours.kind[first:].tolist(), ours.arg[first:].tolist(), strict=True):
        if kind in (ALLOC, FREE):
            served += 1
        if kind == ALLOC:
            number[arg], made = made, made + 1
        elif kind == OP:
            reads = [number[t] for t in ours.read_id[slice(*ours.read_start[arg : arg + 2])].tolist() if t in number]
            writes = [number[t] for t in ours.write_id[slice(*ours.write_start[arg : arg + 2])].tolist() if t in number]
            expected.append((reads, writes))
            at = [[address[t] for t in side] for side in (reads, writes)]
            seen.append(Seen(served, Operator("op", at[0], at[1], 0, 0, 0.0, None, None)))
    joined = join(memory, seen, dict.fromkeys(range(len(seen)), 1000))

    assert int(is_request.sum()) - start == served
    assert joined.meta["accesses_of_unknown_memory"] == 0
    assert joined.ops == len(expected) > 1000
    for op, (reads, writes) in enumerate(expected):
        assert joined.read_id[slice(*joined.read_start[op : op + 2])].tolist() == reads
        assert joined.write_id[slice(*joined.write_start[op : op + 2])].tolist() == writes
    assert (joined.duration == 1000).all()
    assert requests(joined) == requests(memory)
    assert joined.addr[joined.kind == ALLOC].tolist() == address


def test_kernels_count_to_the_range_that_launched_them() -> None:
    """Microseconds as Kineto writes them; a kernel runs later than its launch and is found by its correlation."""

    def event(kind: str, name: str, thread: int, begin: float, took: float, correlation: int = -1) -> dict[str, Any]:
        return {
            "ph": "X", "cat": kind, "name": name, "tid": thread, "ts": begin, "dur": took, "args": {"correlation": correlation}
        }  # fmt: skip

    found = kernel_ns(
        [
            event("user_annotation", "gpusim 0", 1, 10, 5),
            event("user_annotation", "gpusim 1", 1, 20, 5),
            event("user_annotation", "gpusim 2", 2, 10, 50),  # the thread of the backward pass
            event("user_annotation", "ProfilerStep#3", 1, 0, 100),
            event("cuda_runtime", "cudaLaunchKernel", 1, 11, 1, 7),
            event("cuda_runtime", "cudaLaunchKernel", 1, 12, 1, 8),
            event("cuda_runtime", "cudaLaunchKernel", 1, 17, 1, 9),  # between the ranges
            event("cuda_driver", "cuLaunchKernel", 2, 21, 1, 10),
            event("kernel", "gemm", 7, 30, 2.5, 7),
            event("gpu_memset", "Memset", 7, 33, 1, 8),
            event("kernel", "other", 7, 34, 100, 9),
            event("kernel", "backward", 7, 40, 4, 10),
            {"ph": "i", "name": "[memory]", "ts": 1},
        ],
        "gpusim ",
    )
    assert found == {"gpusim 0": 3500, "gpusim 1": 0, "gpusim 2": 4000}
