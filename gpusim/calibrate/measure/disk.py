"""Files: large reads and writes past the page cache, by request size and how many at once, and the latency of one small read.

Needs no GPU.  What is measured is the disk under the folder that is named, whatever it is; the conditions say which.
"""

from __future__ import annotations

import mmap
import os
import random
import shutil
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np

from gpusim.base.errors import MeasurementError
from gpusim.calibrate.measure.bench import Bench, GiB, KiB, MiB

PAGE = 4 * KiB
FIRST = 32 * MiB
"""What is written to find out how large a file may be, and read in small pieces."""


def run(bench: Bench) -> None:
    out = bench.out
    path = bench.folder / f".gpusim-measure-{os.getpid()}"
    try:
        direct = _direct(path)
        size = _size(bench, path, direct)
        _latency(bench, path, FIRST, direct)
        for request, jobs in [(MiB, 4)] if out.quick else [(16 * KiB, 1), (128 * KiB, 1), (MiB, 1), (MiB, 4), (16 * MiB, 4)]:
            for verb in ("write", "read"):
                if out.time_for(f"{verb} of {request} by {jobs}"):
                    _stream(bench, path, verb, min(size, 4096 * request), request, jobs, direct)
    finally:
        path.unlink(missing_ok=True)


def _size(bench: Bench, path: Path, direct: bool) -> int:
    """Of the file: what is written in a second or two, and an eighth of what is free at most."""
    most = min(128 * MiB if bench.out.quick else GiB, shutil.disk_usage(path.parent).free // 8)
    size = FIRST
    ns = _pass(bench, path, "write", FIRST, [mmap.mmap(-1, MiB)], direct)
    while 2 * size <= most and 2 * size * ns <= 2e9 * FIRST:
        size *= 2
    return size


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


def _pass(bench: Bench, path: Path, verb: str, size: int, buffers: list[mmap.mmap], direct: bool) -> float:
    """ns for the whole file; each buffer is a job, and jobs take turns in requests.  A write ends when it is on the disk."""
    request, jobs = len(buffers[0]), len(buffers)

    def job(number: int) -> None:
        for at in range(number * request, size, jobs * request):
            call = os.pwritev if verb == "write" else os.preadv
            done = call(fd, [buffers[number]], at)
            if done != request:
                raise MeasurementError(f"a {verb} of {request} bytes moved {done}", str(path))

    fd = _open(path, direct)
    try:
        begin = bench.out.clock()
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(job, range(jobs)))
        if verb == "write":
            os.fdatasync(fd)
        return bench.out.clock() - begin
    finally:
        os.close(fd)


def _stream(bench: Bench, path: Path, verb: str, size: int, request: int, jobs: int, direct: bool) -> None:
    content = np.random.default_rng(1).bytes(request)
    buffers = [mmap.mmap(-1, request) for _ in range(jobs)]  # aligned to a page, as direct access needs
    for buffer in buffers:
        buffer[:] = content if verb == "write" else bytes(request)
    times = bench.out.repeat(partial(_pass, bench, path, verb, size, buffers, direct), least=3, most=7, seconds=2)
    if verb == "read" and any(buffer[:] != content for buffer in buffers):
        raise MeasurementError("a read gave other bytes than were written; nothing of this is trusted", str(path))
    how = "O_DIRECT" if direct else "page cache dropped before"
    method = f"file of {size} bytes, {how}, {'pwritev and fdatasync' if verb == 'write' else 'preadv'}, host clock"
    param = {"jobs": jobs, "request": request, "direct": int(direct)}
    bench.out.add(f"nvme_{verb}_bw", times, case="file", size=request, work=size, method=method, host=True, param=param)


def _latency(bench: Bench, path: Path, size: int, direct: bool) -> None:
    chance = random.Random(1)
    fd = _open(path, direct)
    buffer = mmap.mmap(-1, PAGE)
    try:

        def once() -> float:
            at = chance.randrange(size // PAGE) * PAGE
            return bench.out.timed(lambda: os.preadv(fd, [buffer], at))

        times = bench.out.repeat(once, least=50, most=500, seconds=2)
    finally:
        os.close(fd)
    method = "one random read of 4 KiB after the other, O_DIRECT if the file system can, host clock"
    param = {"direct": int(direct)}
    bench.out.add("nvme_read_latency_us", times, case="file", size=PAGE, method=method, host=True, param=param)
