"""Files: large reads and writes past the page cache, by request size and how many at once, and the latency of one small read.

Needs no GPU.  What is measured is the disk under the folder that is named, whatever it is; the conditions say which.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from gpusim.calibrate.measure.bench import Bench, GiB, KiB, MiB
from gpusim.errors import MeasurementError

PAGE = 4 * KiB


def run(bench: Bench) -> None:
    out, folder = bench.out, bench.folder
    size = 128 * MiB if out.quick else GiB
    while size * 8 > shutil.disk_usage(folder).free and size > 16 * MiB:
        size //= 2
    path = folder / f".gpusim-measure-{os.getpid()}"
    try:
        direct = _direct(path)
        for request, jobs in [(MiB, 4)] if out.quick else [(16 * KiB, 1), (128 * KiB, 1), (MiB, 1), (MiB, 4), (16 * MiB, 4)]:
            for verb in ("write", "read"):
                if out.time_for(f"{verb} of {request} by {jobs}"):
                    _stream(bench, path, verb, size, request, jobs, direct)
        if out.time_for("latency"):
            _latency(bench, path, size, direct)
    finally:
        path.unlink(missing_ok=True)


def _direct(path: Path) -> bool:
    """Whether the file system reads and writes past the page cache."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o600)
    except OSError:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        return False
    os.close(fd)
    return True


def _open(path: Path, direct: bool) -> int:
    fd = os.open(path, os.O_RDWR | (os.O_DIRECT if direct else 0))
    if not direct:  # the next best: ask the system to forget what it holds
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    return fd


def _stream(bench: Bench, path: Path, verb: str, size: int, request: int, jobs: int, direct: bool) -> None:
    """Jobs take turns in requests over the whole file; a write ends when it is on the disk."""
    buffers = [mmap.mmap(-1, request) for _ in range(jobs)]  # aligned to a page, as direct access needs
    stamps = np.frombuffer(np.random.default_rng(1).bytes(request), np.uint8)
    for buffer in buffers:
        buffer[:] = stamps.tobytes()

    def job(fd: int, number: int) -> None:
        buffer = buffers[number]
        for at in range(number * request, size, jobs * request):
            done = os.pwritev(fd, [buffer], at) if verb == "write" else os.preadv(fd, [buffer], at)
            if done != request:
                raise MeasurementError(f"a {verb} of {request} bytes moved {done}", str(path))

    def once() -> float:
        fd = _open(path, direct)
        try:
            begin = bench.out.clock()
            with ThreadPoolExecutor(jobs) as pool:
                list(pool.map(job, [fd] * jobs, range(jobs)))
            if verb == "write":
                os.fdatasync(fd)
            return bench.out.clock() - begin
        finally:
            os.close(fd)

    times = bench.out.repeat(once, least=3, most=7, seconds=6)
    if verb == "read" and any(buffer[:] != stamps.tobytes() for buffer in buffers):
        raise MeasurementError("a read gave other bytes than were written; nothing of this is trusted", str(path))
    how = "O_DIRECT" if direct else "page cache dropped before"
    method = f"file of {size} bytes, {how}, {'pwritev and fdatasync' if verb == 'write' else 'preadv'}, host clock"
    param = {"jobs": jobs, "request": request, "direct": int(direct)}
    bench.out.add(f"nvme_{verb}_bw", times, case="file", size=request, work=size, method=method, host=True, param=param)
    for buffer in buffers:
        buffer.close()


def _latency(bench: Bench, path: Path, size: int, direct: bool) -> None:
    chance = random.Random(1)
    if not path.stat().st_size:
        os.truncate(path, size)
    fd = _open(path, direct)
    buffer = mmap.mmap(-1, PAGE)
    try:

        def once() -> float:
            at = chance.randrange(path.stat().st_size // PAGE) * PAGE
            return bench.out.timed(lambda: os.preadv(fd, [buffer], at))

        times = bench.out.repeat(once, least=50, most=500, seconds=2)
    finally:
        os.close(fd)
        buffer.close()
    method = "one random read of 4 KiB after the other, O_DIRECT if the file system can, host clock"
    param = {"direct": int(direct)}
    bench.out.add("nvme_read_latency_us", times, case="file", size=PAGE, method=method, host=True, param=param)
