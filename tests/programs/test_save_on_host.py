"""Activation offloading by hand: which tensors go, when they come back, and what pinned memory costs."""

from __future__ import annotations

import numpy as np
import pytest

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.machine.kernels.durations import durations
from gpusim.programs.transforms.save_on_host import _block, _grows
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN, COPY_OUT, FREE, HOST_WORK, OP, Trace

MIB = 1 << 20


def step(steps: int = 1) -> Trace:
    """Three layers that each save their input x0, x1, x2 (64, 32, 2 MiB) for backward, and a temporary of forward."""
    b = TraceBuilder("step")
    weight, data = b.alloc(MIB, "param"), b.alloc(MIB, "input")
    for s in range(steps):
        b.begin_phase(f"step{s}.fwd")
        before, saved = data, []
        for layer, size in enumerate((64, 32, 2)):
            x, dropped = b.alloc(size * MIB, "fwd"), b.alloc(8 * MIB, "fwd")
            b.op(f"forward{layer}", (weight, before), (x, dropped), read_bytes=10**9, dtype="float16")
            b.free(dropped)
            saved.append(x)
            before = x
        b.begin_phase(f"step{s}.bwd")
        gradient = b.alloc(MIB, "grad")
        for layer in (2, 1, 0):
            b.op(f"backward{layer}", (saved[layer], weight), (gradient,), read_bytes=10**9, dtype="float16")
            b.free(saved[layer])
        b.free(gradient)
    return b.finish()


def story(trace: Trace) -> list[str]:
    """Operators in their order, frees of activations as -MiB."""
    found = []
    for kind, arg in zip(trace.kind, trace.arg, strict=True):
        if kind == OP:
            name = trace.op_names[trace.op[arg]]
            found.append(f"{name}:{trace.read_bytes[arg] >> 20}" if name.startswith("gpusim") else name)
        elif kind == FREE and trace.size[arg] in (64 * MIB, 32 * MIB):
            found.append(f"-{trace.size[arg] >> 20}")
    return found


def test_activations_leave_after_forward_and_come_back_one_ahead() -> None:
    done = gpusim.transform(step(), "save_on_host(least=4 MiB, ahead=1)")
    assert story(done) == [
        "forward0", "forward1", "gpusim::copy_out:64", "-64", "forward2", "gpusim::copy_out:32", "-32",
        "backward2", "gpusim::copy_in:32", "gpusim::copy_in:64", "backward1", "-32", "backward0", "-64",
    ]  # fmt: skip
    assert done.meta["host_bytes"] == 96 * MIB
    copies = {int(s) for s, a in zip(done.stream[done.kind == OP], done.activity, strict=True) if a in (COPY_IN, COPY_OUT)}
    assert len(copies) == 2 and 0 not in copies


def test_when_needed_instead_of_ahead() -> None:
    told = story(gpusim.transform(step(), "save_on_host(least=4 MiB)"))
    assert told[7:] == ["backward2", "gpusim::copy_in:32", "backward1", "-32", "gpusim::copy_in:64", "backward0", "-64"]


def test_the_largest_of_each_step() -> None:
    done = gpusim.transform(step(steps=2), "save_on_host(most=1)")
    assert done.read_bytes[done.activity == COPY_OUT].tolist() == [64 * MIB] * 2


def test_fresh_pinned_memory_costs_an_allocation_each() -> None:
    """The host pins each tensor's memory, and gives it back when the tensor dies; the device is far from done by then."""
    pool, fresh = (gpusim.transform(step(), f"save_on_host(least=4 MiB, memory={m})") for m in ("pool", "fresh"))
    assert story(fresh) == [
        "forward0", "forward1", "gpusim::host_alloc:64", "gpusim::copy_out:64", "-64", "forward2", "gpusim::host_alloc:32",
        "gpusim::copy_out:32", "-32", "backward2", "gpusim::copy_in:32", "backward1", "gpusim::host_free:32", "-32",
        "gpusim::copy_in:64", "backward0", "gpusim::host_free:64", "-64",
    ]  # fmt: skip
    machine = gpusim.load_machine("a100-sxm4-80gb")
    asked = durations(fresh, machine)[0][fresh.activity == HOST_WORK]
    cost = machine.allocation
    pin, free = cost.host_alloc_per_gib.value / 1024, cost.host_free_per_gib.value / 1024  # ns per MiB
    assert asked.tolist() == pytest.approx([64 * pin, 32 * pin, 32 * free, 64 * free], abs=1)
    took = [gpusim.simulate(t, on=machine, bounds=False).metrics["makespan_ns"] for t in (pool, fresh)]
    assert took[1] - took[0] > 0.5 * asked.sum()


def test_a_pool_grows_in_the_first_step_alone() -> None:
    """In the first step both tensors leave before one comes back; the pool's blocks serve the second one."""
    done = gpusim.transform(step(steps=2), "save_on_host(least=4 MiB, memory=grow)")
    assert [word for word in story(done) if "host_" in word] == ["gpusim::host_alloc:64", "gpusim::host_alloc:32"]


def test_a_block_that_has_come_back_is_used_again() -> None:
    """Powers of two: sizes of 3 and 4 share a block of 4 when one has come back before the other leaves."""
    block = _block(np.array([3, 4, 4, 5]))
    assert block.tolist() == [4, 4, 4, 8]
    assert _grows(block, np.array([0, 1, 4, 5]), np.array([3, 9, 9, 9])).tolist() == [True, True, False, True]


def test_pageable_copies_take_the_pageable_rate_in_turn_with_kernels() -> None:
    plain = step()
    done = gpusim.transform(plain, "save_on_host(least=4 MiB, memory=pageable)")
    machine = gpusim.load_machine("t4")
    found = durations(done, machine)[0]
    beside = found[(done.activity != 0)].sum()
    host, link = machine.host, machine.link
    expected = 96 * MIB * 1e9 * (1 / host.pageable_h2d.value + 1 / host.pageable_d2h.value) + 4 * link.latency_queued.value
    assert beside == pytest.approx(expected, rel=1e-6)
    took = [gpusim.simulate(t, on=machine, bounds=False).metrics["makespan_ns"] for t in (plain, done)]
    assert took[1] - took[0] == pytest.approx(beside, rel=0.02)


def test_no_copy_where_everything_stays() -> None:
    with pytest.raises(GpusimError, match="saves no tensor of 1,073,741,824 bytes"):
        gpusim.transform(step(), "save_on_host(least=1 GiB)")


@pytest.mark.parametrize(
    ("chain", "said"),
    [("save_on_host(memory=pol)", "parameter 'memory'"), ("save_on_host(ahead=-1)", "not a whole number")],
)
def test_parameters_are_checked(chain: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        gpusim.transform(step(), chain)
