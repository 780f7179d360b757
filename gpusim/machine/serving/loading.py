"""How long a model's weights take from disk, or from host memory, to the GPUs of an instance.

    pipelined    `threads` threads read chunks into pinned memory past the page cache, each its next when it has the one before.
                 The disk serves them in order: the latency of a read overlaps with other threads' bytes.  A chunk that is
                 there is copied to its GPU by a call that blocks, one after the other on each GPU, while others are read:

                     read i   ends  max(end of read i - 1, end of read i - threads + latency) + bytes / disk
                     copy i   ends  max(end of read i, end of the copy before on its GPU) + call + bytes / link

    safetensors  one thread for each GPU reads its part of the file through the page cache, a window of `readahead` at a time,
                 and copies it from pageable memory: no disk is read while bytes are copied

                     ns = bytes / min(readahead / (latency + readahead / disk), disk) + bytes / pageable

From host memory there is no read; a pipelined model lies in pinned memory there, a safetensors file in the page cache.

Source: ServerlessLLM (Apache-2.0) @9f50241, sllm_store/csrc, in own words; the loader of safetensors maps its file; 128 KiB
are Linux's default read_ahead_kb (Documentation/ABI/stable/sysfs-block).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, suggest
from gpusim.base.text import join
from gpusim.base.units import BYTES, parse

LOADERS = {"pipelined": ("chunk", "threads"), "safetensors": ("readahead",)}
MOST_CHUNKS = 10**6


@dataclass(frozen=True)
class Loader:
    """How weights are read; see the module."""

    kind: str = "pipelined"
    chunk: int = 16 << 20
    threads: int = 4
    readahead: int = 128 << 10

    @property
    def pinned(self) -> bool:
        """Whether copies come from pinned memory."""
        return self.kind == "pipelined"


@dataclass(frozen=True)
class LoadWays:
    """Rates in bytes/ns, latencies in ns.

    disk, latency   of one host's disk, and of each read
    link, call      of copies to one GPU while all GPUs of the instance copy, and what each call takes beside its bytes
    gpus            over which the model is spread evenly
    """

    disk: float
    latency: float
    link: float
    call: float
    gpus: int = 1


@dataclass(frozen=True)
class LoadTimes:
    """ns from the begin of a load until the model is in host memory and on its GPUs; from host memory to its GPUs."""

    read: int
    loaded: int
    copied: int


def loader_of(text: str) -> Loader:
    """pipelined(chunk=16 MiB, threads=4), safetensors(readahead=128 KiB).  Raises GpusimError."""
    kind, given = split(text, "a loader")
    if kind not in LOADERS:
        raise GpusimError(f"there is no loader '{kind}'", hint=suggest(kind, LOADERS) or join(tuple(LOADERS)))
    numbers: dict[str, int] = {}
    for name, value in given.items():
        if name not in LOADERS[kind]:
            hint = suggest(name, LOADERS[kind]) or f"it has {join(LOADERS[kind])}"
            raise GpusimError(f"the loader {kind} has no '{name}'", hint=hint)
        if name == "threads" and not (value.isdecimal() and 1 <= int(value) <= 1024):
            raise GpusimError(f"a loader cannot have threads={value}", hint="a number from 1 to 1,024")
        numbers[name] = int(value) if name == "threads" else int(parse(value, BYTES))
        if not numbers[name]:
            raise GpusimError(f"a loader cannot have {name}={value}", hint=f"write {name}=16 MiB")
    return Loader(kind, **numbers)


@lru_cache(maxsize=1024)
def load_times(loader: Loader, ways: LoadWays, size: int) -> LoadTimes:
    """A model of so many bytes.  Raises GpusimError for chunks that are too small to follow one by one."""
    if not loader.pinned:
        part = size / ways.gpus
        disk = ways.disk / ways.gpus
        read = part / min(loader.readahead / (ways.latency + loader.readahead / disk), disk)
        return LoadTimes(round(read), round(read + part / ways.link), round(part / ways.link))
    if size > MOST_CHUNKS * loader.chunk:
        said = f"{size} bytes are more than {MOST_CHUNKS:,} chunks of {loader.chunk}"
        raise GpusimError(said, hint="pipelined(chunk=16 MiB)")
    chunks = [loader.chunk] * (size // loader.chunk) + [size % loader.chunk] * (size % loader.chunk > 0)
    reads, there, here = [0.0] * loader.threads, [0.0] * ways.gpus, [0.0] * ways.gpus
    last = 0.0
    for i, chunk in enumerate(chunks):
        thread, gpu, copy = i % loader.threads, i % ways.gpus, ways.call + chunk / ways.link
        last = reads[thread] = max(last, reads[thread] + ways.latency) + chunk / ways.disk
        there[gpu] = max(last, there[gpu]) + copy
        here[gpu] += copy
    return LoadTimes(round(last), round(max(there)), round(max(here)))
