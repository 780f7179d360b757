"""The first run of all compiles the kernels: the large ones in this process, what they work with in another, at the same time.

    python -m gpusim.experiment.warm place best_fit evict lru ...      what the other process does: policies,
    python -m gpusim.experiment.warm far MODULE.FUNCTION ...           or what verbs call seldom
    python -m gpusim.experiment.warm unified                           or what the CPU does under unified memory
    python -m gpusim.experiment.warm everything                        all that is built in, before tests that share one cache
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError, note

# Half of the work of compiling PyTorch's allocator; a program that begins with an empty device needs most of it, too.
SELDOM = (
    "parts.pytorch.giving_back.release_all", "parts.pytorch.settings.carry_out", "parts.pytorch.restore.lay",
    "parts.driver_memory.recorded", "parts.pytorch.expandable.grow", "parts.pytorch.restore.carve",
)  # fmt: skip
ISLAND, REQUESTS, UNIFIED = "engine.host.island.run_until", "policies.trials.requests.run", "engine.pages.door.door"
LOADS = ("gpusim.trace", "gpusim.policies", "gpusim.engine", "gpusim.programs.generate")  # where compiled code is


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
    """The same for unified memory, before several processes do it at once: kernels here, what the CPU does in the other."""
    with _other(["unified"]) as other:
        _unified(of_cpu=False)
        other.wait()


def _unified(*, of_cpu: bool) -> None:
    """Run a program of all that the CPU does, or of a kernel."""
    from gpusim.engine.pages.simulate import simulate_uvm
    from gpusim.machine import platforms
    from gpusim.programs.managed.patterns import sweep
    from gpusim.programs.managed.steps import Array, HostTouch, Prefetch, Steps

    steps: Steps = [HostTouch("a"), Prefetch("a")] if of_cpu else [sweep("a", 1024)]
    simulate_uvm([Array("a", 4096)], steps, platforms.load("t4"))


def _other(words: list[str]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "gpusim.experiment.warm", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _verbs(kind: str, name: str) -> list[Any]:
    from gpusim.policies import registry

    return list(vars(registry.get(kind, name)).values())


def _compile(policies: Iterable[tuple[str, str]]) -> None:
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


def _everything() -> None:
    """The island and unified memory in this process, all policies in another, then every other entry with a signature."""
    from gpusim.base.compiled.entries import made
    from gpusim.policies import registry
    from gpusim.policies.entry import KINDS

    known = registry.of()
    compile_side_by_side((kind, entry.name) for kind in KINDS for entry in known.entries(kind))
    compile_unified()
    top = Path(__file__).parents[2]
    for file in sorted(file for room in LOADS for file in top.joinpath(*room.split(".")).rglob("[!_]*.py")):
        made(*vars(import_module(".".join(file.relative_to(top).with_suffix("").parts))).values())


def main(words: list[str]) -> None:
    """Compile built-in policies and what a trace goes through before it is simulated, into numba's cache."""
    if words == ["everything"]:
        _everything()
        return
    if words == ["unified"]:
        _unified(of_cpu=True)
        return
    if words[:1] == ["far"]:
        from gpusim.policies.far import compile_now

        for name in words[1:]:
            compile_now(name)
        return
    from gpusim.engine.run.bounds import swap_in_bound
    from gpusim.policies.place.parts.packing.buffers import from_trace
    from gpusim.policies.place.parts.packing.greedy import greedy
    from gpusim.programs.generate.synth import training
    from gpusim.trace.workload import build

    _compile(zip(words[::2], words[1::2], strict=True))
    trace = training(steps=1, layers=2)
    work = build(trace, trace.duration)
    swap_in_bound(work, work.live_peak)
    greedy(from_trace(trace))


if __name__ == "__main__":
    main(sys.argv[1:])
