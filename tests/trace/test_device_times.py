"""Does a trace keep when operators began on the device, and is one that does not know it as it was before?"""

from __future__ import annotations

from pathlib import Path

import pytest
from nsys_exports import NEW, PID, Export

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.build import TraceBuilder
from gpusim.trace.edit import Edit
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.importers.collective_groups import least_of_groups
from gpusim.trace.trace import Trace, recorded_columns

DATA = Path(__file__).parents[1] / "data" / "traces"


def program(*began: int) -> Trace:
    build = TraceBuilder("timed")
    for at in began:
        build.op("aten.add.Tensor", [], [], duration=10, time=0, device_time=at)
    return build.finish()


def test_a_file_keeps_them_and_a_trace_without_them_is_as_before(tmp_path: Path) -> None:
    timed, plain = program(5, -1, 40), program(-1)
    for trace in (timed, plain):
        save_trace(trace, tmp_path / "t.npz")
        read = load_trace(tmp_path / "t.npz")
        assert read == trace and read.device_time.tolist() == trace.device_time.tolist()
    assert "device_time" in dict(recorded_columns(timed)) and "device_time" not in dict(recorded_columns(plain))


def test_a_changed_program_has_none() -> None:
    edit = Edit(program(5, 20))
    edit["duration"][0] = 7
    assert edit.finish().device_time.tolist() == [-1, -1]


def test_a_negative_one_is_refused() -> None:
    with pytest.raises(TraceError, match="'device_time' is -2, which is negative"):
        program(-2)


@pytest.mark.parametrize("name", ["kineto_v100_ddp", "simple_add_kineto"])
def test_kineto_tells_when_kernels_began(name: str) -> None:
    trace = import_trace(DATA / f"{name}.json.gz")
    issued = trace.time[trace.kind == 2]
    assert (trace.device_time > issued).all()


def test_nsight_systems_tells_when_kernels_began(tmp_path: Path) -> None:
    export = Export(tmp_path / "n.sqlite", NEW)
    export.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=1000, end=1100, globalTid=PID + 1, correlationId=1)
    export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=1500, end=1800, deviceId=0, contextId=1, streamId=7, correlationId=1,
               globalPid=PID, shortName=1)  # fmt: skip
    export.add("CUDA_GPU_MEMORY_USAGE_EVENTS", start=900, globalPid=PID, deviceId=0, contextId=1, address=4096, bytes=512,
               memKind=2, memoryOperationType=0)  # fmt: skip
    export.add("StringIds", id=1, value="kernel")
    export.database.commit()
    trace = import_trace(tmp_path / "n.sqlite")
    assert (trace.device_time.tolist(), trace.duration.tolist(), trace.time.tolist()) == ([600], [300], [0, 100])


def test_a_collective_takes_the_least_time_of_its_group() -> None:
    """Device 1 comes 30 ns late to the first and waits 5 ns for device 0 at the second."""
    name, other = "ncclDevKernel_AllReduce_Sum_f32_RING_LL", "ncclKernel_AllGather_RING_LL"
    rows = [(0, 0, name, 130), (30, 1, name, 100), (200, 1, name, 45), (205, 0, name, 40), (3, 0, "gemm", 9)]
    assert least_of_groups(rows) == {0: 100, 1: 100, 2: 40, 3: 40}
    unequal = [*rows, (400, 0, other, 10), (500, 0, other, 20), (400, 1, other, 5)]
    assert set(least_of_groups(unequal)) == {0, 1, 2, 3}
    assert least_of_groups([(0, 0, name, 130)]) == {0: 130}
    assert least_of_groups([(0, 0, "ncclDevKernel_SendRecv", 9), (0, 1, "ncclDevKernel_SendRecv", 5)]) == {}
