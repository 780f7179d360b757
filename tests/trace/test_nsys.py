"""Does an Nsight Systems export become what its tables say, in either version of the schema?  (No real export was tried.)"""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

import pytest
from nsys_exports import NEW, OLD, PID, Export

from gpusim.base.errors import TraceError
from gpusim.programs.recordings import import_trace
from gpusim.trace.trace import ACTIVITIES, ALLOC, FREE, OP

BOTH = pytest.mark.parametrize("schema", [OLD, NEW], ids=["2021.5", "2024.6"])


def small(path: Path, schema: dict[str, str]) -> Path:
    export = Export(path, schema)
    export.add("StringIds", id=5, value="sgemm")
    export.alloc(1000, 0x7000, 512)
    export.alloc(1100, 0x100, 64, kind=1)  # pinned: of the host
    export.alloc(1200, 0x9000, 8192, kind=4)  # managed
    export.work("MEMCPY", 1300, 1400, 1500, bytes=512, copyKind=1)
    export.work("KERNEL", 1350, 1600, 1900, demangledName=6, shortName=5)
    export.work(
        "KERNEL", 1360, 1700, 1750, stream=13, demangledName=6, shortName=5, gridX=4, gridY=2, gridZ=1, blockX=128, blockY=1,
        blockZ=1, registersPerThread=40, staticSharedMemory=24, dynamicSharedMemory=1000,
    )  # fmt: skip
    export.work("MEMSET", 1370, 1950, 1960, bytes=100)
    export.work("MEMCPY", 1380, 1970, 1990, bytes=30, copyKind=8)
    export.work("MEMCPY", 1390, 2000, 2040, bytes=20, copyKind=2)
    for at, kind, size in ((1610, 11, 4096), (1620, 11, 65536), (2100, 12, 4096)):  # the driver's own
        export.add("CUPTI_ACTIVITY_KIND_MEMCPY", start=at, end=at + 5, deviceId=0, contextId=1, streamId=7, globalPid=PID,
                   bytes=size, copyKind=kind, migrationCause=4 if kind == 12 else 2)  # fmt: skip
    for at, address, access in ((1605, 0x9000, 1), (1800, 0xA000, 2), (1720, 0x9010, 1), (1606, 0x7000, 2), (5000, 0x9000, 2)):
        export.add("CUDA_UM_GPU_PAGE_FAULT_EVENTS", start=at, end=at + 1, globalPid=PID, deviceId=0, address=address,
                   numberOfPageFaults=3, faultAccessType=access)  # fmt: skip
    export.add("CUDA_UM_CPU_PAGE_FAULT_EVENTS", start=2000, globalPid=PID, address=0x9000)
    export.free(2200, 0x7000, 512)
    export.free(2300, 0x100, 64, kind=1)
    return export.done()


@BOTH
@pytest.mark.parametrize("pack", [False, True])
def test_an_export_is_what_its_tables_say(tmp_path: Path, schema: dict[str, str], pack: bool) -> None:
    path = small(tmp_path / "report.sqlite", schema)
    if pack:
        path.write_bytes(gzip.compress(path.read_bytes()))
    trace = import_trace(path)
    assert trace.kind.tolist() == [ALLOC, ALLOC] + [OP] * 6 + [FREE]
    assert trace.size.tolist() == [512, 8192] and trace.addr.tolist() == [0x7000, 0x9000, *[-1] * 6, 0x7000]
    assert [trace.categories[c] for c in trace.category] == ["device", "managed"]
    assert trace.time.tolist() == [0, 200, 300, 350, 360, 370, 380, 390, 1200]  # when they were issued
    assert trace.duration.tolist() == [100, 300, 50, 10, 20, 40]
    names = ["memcpy HTOD", "sgemm", "sgemm", "memset", "memcpy DTOD", "memcpy DTOH"]
    assert [trace.op_names[i] for i in trace.op] == names
    activities = ["copy_in", "kernel", "kernel", "kernel", "kernel", "copy_out"]
    assert [ACTIVITIES[i] for i in trace.activity] == activities
    assert trace.read_bytes.tolist() == [512, 0, 0, 0, 30, 20] and trace.written_bytes.tolist() == [0, 0, 0, 100, 30, 0]
    assert trace.stream[trace.kind == OP].tolist() == [0, 0, 1, 0, 0, 0]
    assert trace.launches == ("grid=4x2x1 block=128x1x1 registers=40 shared=1024",)
    assert trace.launch.tolist() == [-1, -1, 0, -1, -1, -1]
    # Faults at 1605 (read) and 1800 (write) are of the first kernel, at 1720 of the second, which began last; 0x7000 is not
    # managed, and at 5000 nothing ran.
    assert trace.read_start.tolist() == [0, 0, 1, 2, 2, 2, 2] and trace.read_id.tolist() == [1, 1]
    assert trace.write_start.tolist() == [0, 0, 1, 1, 1, 1, 1] and trace.write_id.tolist() == [1]
    causes = {"coherence": 2, "eviction": 1} if schema is NEW else None
    assert trace.meta["unified_memory"] == {
        "cpu_faults": 1, "gpu_faults": 15, "htod": {"migrations": 2, "bytes": 69632}, "dtoh": {"migrations": 1, "bytes": 4096},
        "causes": causes or {},
    }  # fmt: skip
    assert trace.meta["pinned_host_memory"] == {"allocations": 1, "bytes": 64}
    assert trace.meta["version"] == ("2024.6.2.225" if schema is NEW else "")
    assert trace.meta["warnings"] == [] and "accesses" in trace.meta["lacks"]


@pytest.mark.slow
@BOTH
def test_a_recording_that_begins_and_ends_in_the_middle(tmp_path: Path, schema: dict[str, str]) -> None:
    export = Export(tmp_path / "report.sqlite", schema)
    export.free(10, 0x1000, 100)  # older than the recording
    export.alloc(20, 0x1000, 200)
    export.free(30, 0x1000, 200)
    export.free(40, 0x1000, 200)  # freed twice
    export.alloc(50, 0x2000, 300)
    export.alloc(60, 0x2000, 400)  # the free between is missing
    trace = import_trace(export.done())
    assert trace.kind.tolist() == [ALLOC, FREE, ALLOC, FREE, ALLOC, FREE, ALLOC] and trace.size.tolist() == [100, 200, 300, 400]
    assert trace.time.tolist() == [-1, 0, 10, 20, 40, 50, 50]
    first, second, third = trace.meta["warnings"]
    assert "1 frees" in first and "1 allocations" in second and "--trace=cuda" in third and "kernels" in trace.meta["lacks"]


def test_processes_have_address_spaces_and_correlations_of_their_own(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", NEW)
    export.alloc(1, 0x1000, 8)
    export.alloc(2, 0x1000, 16, globalPid=2 * PID)
    export.work("KERNEL", 3, 10, 11, shortName=1)
    export.add("CUPTI_ACTIVITY_KIND_RUNTIME", start=0, end=1, globalTid=2 * PID + 1, correlationId=1)
    export.free(4, 0x1000, 16, globalPid=2 * PID, streamId=2**32 - 1)
    trace = import_trace(export.done())
    assert trace.arg[trace.kind == FREE].tolist() == [1] and trace.meta["warnings"] == []
    assert trace.time.tolist() == [0, 1, 2, 3] and trace.op_names == ("kernel 1",)


def test_one_device_of_several_is_chosen(tmp_path: Path) -> None:
    export = Export(tmp_path / "report.sqlite", NEW)
    export.alloc(1, 0x1000, 8)
    export.alloc(2, 0x2000, 16, deviceId=3)
    export.work("KERNEL", 3, 10, 11, deviceId=3, shortName=1)
    path = export.done()
    with pytest.raises(TraceError, match=r"holds the devices 0, 3 \(choose one with --device\)"):
        import_trace(path)
    with pytest.raises(TraceError, match="no memory events of device 1"):
        import_trace(path, device=1)
    assert import_trace(path, device=3).size.tolist() == [16] and import_trace(path, device=0).ops == 0


def _without(path: Path, *statements: str) -> None:
    small(path, NEW)
    with sqlite3.connect(path) as database:
        for statement in statements:
            database.execute(statement)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("statements", "words"),
    [
        (["DROP TABLE CUDA_GPU_MEMORY_USAGE_EVENTS"], ["no memory events", "--cuda-memory-usage=true"]),
        (["DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS"], ["no memory events", "--cuda-um-gpu-page-faults=true"]),
        (["DELETE FROM CUDA_GPU_MEMORY_USAGE_EVENTS WHERE memKind <> 1"], ["memory of the host alone"]),
        (["DROP TABLE StringIds"], ["no export of Nsight Systems"]),
        (["ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME shortName TO brief"], ["CUPTI_ACTIVITY_KIND_KERNEL", "'shortName'"]),
        (["ALTER TABLE CUDA_GPU_MEMORY_USAGE_EVENTS RENAME bytes TO size"], ["CUDA_GPU_MEMORY_USAGE_EVENTS", "'bytes'"]),
        (["UPDATE CUDA_GPU_MEMORY_USAGE_EVENTS SET bytes = 'many' WHERE memKind = 2"], ["not a number"]),
    ],
)  # fmt: skip
def test_what_is_missing_is_named(tmp_path: Path, statements: list[str], words: list[str]) -> None:
    path = tmp_path / "report.sqlite"
    _without(path, *statements)
    with pytest.raises(TraceError) as error:
        import_trace(path)
    said = str(error.value)
    assert said.startswith(str(path)) and "\n" not in said
    for word in words:
        assert word in said, said


@pytest.mark.slow
@pytest.mark.parametrize("keep", [100, 20_000])
def test_a_database_cut_short_is_refused(tmp_path: Path, keep: int) -> None:
    path = small(tmp_path / "report.sqlite", NEW)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(TraceError, match="cannot be read"):
        import_trace(path)


@BOTH
def test_without_calls_of_the_host_kernels_stand_where_the_gpu_began(tmp_path: Path, schema: dict[str, str]) -> None:
    export = Export(tmp_path / "report.sqlite", schema)
    for start in (30, 10, 20):
        export.add("CUPTI_ACTIVITY_KIND_KERNEL", start=start, end=start + 5, deviceId=0, streamId=1, shortName=start)
    export.alloc(15, 0x1000, 8)
    trace = import_trace(export.done())
    assert trace.op_names == ("kernel 10", "kernel 20", "kernel 30") and trace.kind.tolist() == [OP, ALLOC, OP, OP]
    assert trace.time.tolist() == [0, 5, 10, 20]
