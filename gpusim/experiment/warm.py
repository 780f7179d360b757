"""The first run of all compiles the kernels: the large ones in this process, what they work with in another, at the same time.

    python -m gpusim.experiment.warm place best_fit evict lru ...      what the other process does: policies,
    python -m gpusim.experiment.warm far MODULE.FUNCTION ...           or what verbs call seldom
    python -m gpusim.experiment.warm entry MODULE.FUNCTION             or one large function
    python -m gpusim.experiment.warm everything                        all that is built in, before tests that share one cache
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from gpusim.base.errors import GpusimError, note

# Half of the work of compiling PyTorch's allocator; a program that begins with an empty device needs most of it, too.
SELDOM = (
    "parts.pytorch.giving_back.release_all", "parts.pytorch.settings.carry_out", "parts.pytorch.restore.lay",
    "parts.driver_memory.recorded", "parts.pytorch.expandable.grow", "parts.pytorch.restore.carve",
)  # fmt: skip
ISLAND, REQUESTS, UNIFIED = "engine.host.island.run_until", "policies.trials.requests.run", "engine.pages.door.door"
LOADS = ("gpusim.policies", "gpusim.engine")


def is_cold(name: str = ISLAND) -> bool:
    """Whether this entry of gpusim has to be compiled, and the next process would find it."""
    from gpusim.base.compiled import entries

    module, _, function = name.rpartition(".")
    return entries.is_cold(getattr(import_module(f"gpusim.{module}"), function))


def compile_side_by_side(policies: Iterable[tuple[str, str]]) -> None:
    """Compile to disk what runs with these policies (kind, name) need; no result depends on it."""
    words = [word for pair in sorted(set(policies)) for word in pair]
    with _other(words) as other:
        from gpusim.base.compiled.entries import made
        from gpusim.engine.host.island import run_until

        made(run_until)
        other.wait()


@contextmanager
def allocators_beside() -> Iterator[Callable[[], None]]:
    """For `gpusim oom`, before its first replay: what PyTorch's allocator calls seldom is compiled by another process, while
    this one reads the program; the answer compiles the rest here and waits for the other."""
    if not is_cold(REQUESTS):
        yield lambda: None
        return
    note("compiling the allocators, once; this takes some seconds")
    with _other(["far", *(f"gpusim.policies.place.{name}" for name in SELDOM)]) as other:
        from gpusim.base.compiled.entries import made
        from gpusim.policies.trials import requests

        def ready() -> None:
            made(requests.run, *_verbs("place", "pytorch"))
            other.wait()

        try:
            yield ready
        finally:
            other.terminate()  # of no use where the program cannot be read


def compile_unified() -> None:
    """The same for unified memory, before several processes do it at once: the driver in the other, in this one the island that
    it is attached to."""
    with _other(["entry", UNIFIED]) as other:
        compile_entry(ISLAND)
        compile_policies([("place", "cuda_malloc"), ("evict", "none"), ("prefetch", "none")])
        compile_trace(bounds=False)
        other.wait()


def _other(words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gpusim.experiment.warm", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _verbs(kind: str, name: str) -> list[Any]:
    from gpusim.policies import registry

    return list(vars(registry.get(kind, name)).values())


def compile_policies(policies: Iterable[tuple[str, str]]) -> None:
    """The verbs of policies (kind, name)."""
    from gpusim.base.compiled.entries import made
    from gpusim.policies import registry

    for kind, name in policies:
        try:
            policy = registry.get(kind, name)
            made(*_verbs(kind, name))
            if kind == "place":  # what it calls when memory is out is compiled at the first call
                policy.release(policy.state(1 << 21, 1, 1, policy.params), 0)
        except GpusimError:
            continue  # a user's own: its file has not been loaded here


def compile_entry(name: str) -> None:
    """One entry of gpusim, by module.function."""
    from gpusim.base.compiled.entries import made

    module, _, function = name.rpartition(".")
    made(getattr(import_module(f"gpusim.{module}"), function))


def compile_trace(*, bounds: bool = True) -> None:
    """What a trace goes through before it is simulated; with what bounds and offsets that are known before need of it."""
    from gpusim.engine.run.bounds import swap_in_bound
    from gpusim.policies.place.parts.packing.buffers import from_trace
    from gpusim.policies.place.parts.packing.greedy import greedy
    from gpusim.programs.generate.synth import training
    from gpusim.trace.workload import build

    trace = training(steps=1, layers=2)
    work = build(trace, trace.duration)
    if bounds:
        swap_in_bound(work, work.live_peak)
        greedy(from_trace(trace))


def main(words: list[str]) -> None:
    """Compile built-in policies and what a trace goes through before it is simulated, into numba's cache."""
    if words == ["everything"]:
        from gpusim.experiment.compiled import compile_all

        compile_all()
        return
    if words[:1] == ["entry"]:
        compile_entry(words[1])
        return
    if words[:1] == ["far"]:
        from gpusim.policies.far import compile_now

        for name in words[1:]:
            compile_now(name)
        return
    compile_policies(zip(words[::2], words[1::2], strict=True))
    compile_trace()


if __name__ == "__main__":
    main(sys.argv[1:])
