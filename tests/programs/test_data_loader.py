"""Loading inputs: what moves when, by hand, and what double buffering hides."""

from __future__ import annotations

import pytest
from hand_worked import machine

import gpusim
from gpusim.base.errors import GpusimError
from gpusim.engine.run.simulate import simulate
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import FREE, OP, Trace

pytestmark = pytest.mark.hand_worked


def three_steps() -> Trace:
    b = TraceBuilder("three")
    w, x = b.alloc(4096, "param"), b.alloc(10240, "input")
    for step in range(3):
        b.begin_phase(f"step{step}.fwd")
        y = b.alloc(1024, "fwd")
        b.op("mul", [w, x], [y], duration=10_000)
        b.free(y)
    return b.finish()


def order(trace: Trace) -> list[str]:
    name = {OP: lambda a: trace.op_names[trace.op[a]].removeprefix("gpusim::"), FREE: lambda a: f"-{trace.size[a]}"}
    return [name[k](a) for k, a in zip(trace.kind.tolist(), trace.arg.tolist(), strict=True) if k in name]


def test_a_step_begins_with_its_load() -> None:
    done = gpusim.transform(three_steps(), "data_loader(buffers=1)")
    assert order(done) == ["copy_in", "mul", "-10240", "-1024"] * 3
    assert done.meta["host_bytes"] == 10240 and done.stream.max() == 0


def test_two_buffers_are_loaded_a_step_ahead_on_a_stream_of_their_own() -> None:
    done = gpusim.transform(three_steps(), "data_loader(work=yes, source=nvme, share=2)")
    load = ["nvme_read", "decode", "copy_in"]
    step = ["mul", "-10240", "-1024"]
    assert order(done) == [*load, *load, *step, *load, *step, *step]
    assert done.stream[done.kind == OP].tolist() == [1] * 6 + [0] + [1] * 3 + [0, 0]
    assert done.meta["host_bytes"] == 2 * 2 * 10240
    assert set(done.read_bytes[done.activity > 0].tolist()) == {20480}


def test_more_buffers_than_steps_are_all_loaded_at_once() -> None:
    assert order(gpusim.transform(three_steps(), "data_loader(buffers=9)"))[:4] == ["copy_in"] * 3 + ["mul"]


def test_what_double_buffering_hides_to_the_nanosecond() -> None:
    """A load takes 1000 ns to start and 1024 to move, a step 10,000: three in turn, or all but the first load beside a step."""
    times = [
        simulate(gpusim.transform(three_steps(), f"data_loader(buffers={n})"), machine(), place="first_fit").metrics
        for n in (1, 2)
    ]
    assert [m["makespan_ns"] for m in times] == [3 * 12_024, 2_024 + 30_000]
    assert [m["program_h2d_bytes"] for m in times] == [30_720, 30_720]


@pytest.mark.parametrize(
    ("chain", "said"),
    [
        ("data_loader(buffers=0)", "'buffers' of transform 'data_loader' is '0', not a whole number above 0"),
        ("data_loader(source=nvm)", "'source' of transform 'data_loader' is 'nvm' (did you mean 'nvme'?)"),
        ("data_loader(source=disk)", "known: host, nvme"),
    ],
)
def test_what_cannot_be_loaded_is_said_in_one_sentence(chain: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        gpusim.transform(three_steps(), chain)
    assert said in str(error.value)
