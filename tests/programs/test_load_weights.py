"""Does a model that comes to the GPU block by block take what its copies and its kernels take, to 1 ns?

See `hand_worked` for the machine: 10 bytes/ns to the device behind 1000 ns; a copy of a block takes 2024 ns.
"""

from __future__ import annotations

import pytest
from hand_worked import BLOCK, machine, spans

from gpusim.base.errors import GpusimError
from gpusim.engine.run.simulate import simulate
from gpusim.programs.transforms.registry import apply
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace

pytestmark = [pytest.mark.fast, pytest.mark.hand_worked]


def model() -> Trace:
    """Two weights, each with a kernel of 500 that reads it."""
    build = TraceBuilder("two layers")
    weights = [build.alloc(BLOCK, "param") for _ in range(2)]
    build.op("first", weights[:1], [], duration=500)
    build.op("second", weights[1:], [], duration=500)
    return build.finish()


@pytest.mark.parametrize(
    "transform, kernels",
    [
        ("load_weights", [(2024, 2524), (4048, 4548)]),
        ("load_weights(pipelined=false)", [(4048, 4548), (4548, 5048)]),
        ("load_weights(group=all)", [(3048, 3548), (3548, 4048)]),
    ],
)
def test_kernels_wait_for_the_weights_that_they_read(transform: str, kernels: list[tuple[int, int]]) -> None:
    made = apply(model(), transform)
    found = spans(simulate(made, machine(), log=True, place="device"))["kernel"]
    assert [span for span in found if span[1] - span[0] == 500] == kernels
    assert made.meta["host_bytes"] == 2 * BLOCK


def test_another_group_is_refused() -> None:
    with pytest.raises(GpusimError, match="parameter 'group' of transform 'load_weights' is 'layer'"):
        apply(model(), "load_weights(group=layer)")
